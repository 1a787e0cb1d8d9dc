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
/// escape too, but more bytes follow.
fn is_quit(bytes: &[u8]) -> bool {
    bytes == b"\x1b" || (!bytes.starts_with(b"\x1b") && bytes.iter().any(|b| b"qQ".contains(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q_and_escape_quit_and_arrows_do_not() {
        for quits in [&b"q"[..], b"Q", b"xq", b"\x1b"] {
            assert!(is_quit(quits), "{quits:?}");
        }
        for ignored in [&b"x"[..], b"\x1b[A", b"\x1bOq", b"\n"] {
            assert!(!is_quit(ignored), "{ignored:?}");
        }
    }
}
