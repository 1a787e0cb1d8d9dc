//! Keys of `plimsoll top`: reads the terminal without waiting for Enter.

use std::io::{self, IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Puts the terminal into the mode in which every key is read at once and not echoed. Dropping it
/// restores the mode. Ctrl-C still sends SIGINT.
#[derive(Debug)]
pub(super) struct Keys {
    before: Termios,
    quit: mpsc::Receiver<()>,
}

impl Keys {
    /// Starts to read keys; `None` if standard input is not a terminal.
    pub(super) fn start() -> Option<Self> {
        let stdin = io::stdin();
        let before = tcgetattr(&stdin).ok().filter(|_| stdin.is_terminal())?;
        let mut mode = before.clone();
        mode.local_modes
            .remove(LocalModes::ICANON | LocalModes::ECHO);
        tcsetattr(&stdin, OptionalActions::Now, &mode).ok()?;
        let (sender, quit) = mpsc::channel(1);
        // A thread of its own, which ends with the process: a read cannot be canceled.
        std::thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = io::stdin().read(&mut bytes) {
                if is_quit(&bytes[..count]) && sender.blocking_send(()).is_err() {
                    return;
                }
            }
        });
        Some(Self { before, quit })
    }

    /// Waits for a key that quits.
    pub(super) async fn quit(&mut self) {
        if self.quit.recv().await.is_none() {
            // Standard input was closed: only signals end the program.
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Whether the bytes of one read quit: `q`, or Esc alone. Arrows and other keys begin with an
/// escape too, but more bytes follow; one read may have several keys.
fn is_quit(mut bytes: &[u8]) -> bool {
    loop {
        bytes = match bytes {
            [] => return false,
            [0x1b] | [b'q' | b'Q', ..] => return true,
            // A control sequence ends with a letter or one of @[\]^_`{|}~.
            [0x1b, b'[', rest @ ..] => {
                let end = rest.iter().position(|byte| (0x40..=0x7e).contains(byte));
                rest.get(end.map_or(rest.len(), |end| end + 1)..)
                    .unwrap_or_default()
            }
            [0x1b, b'O', _, rest @ ..] | [0x1b, _, rest @ ..] | [_, rest @ ..] => rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_escape_quit_and_arrows_do_not() {
        for quits in [
            &b"q"[..],
            b"Q",
            b"xq",
            b"\x1b",
            b"\x1b[Aq",
            b"\x1b[1;5Cxq",
            b"\x1bOAq",
        ] {
            assert!(is_quit(quits), "{quits:?}");
        }
        for ignored in [
            &b"x"[..],
            b"\x1b[A",
            b"\x1bOq",
            b"\n",
            b"\x1b[200q",
            b"\x1bq",
        ] {
            assert!(!is_quit(ignored), "{ignored:?}");
        }
    }
}
