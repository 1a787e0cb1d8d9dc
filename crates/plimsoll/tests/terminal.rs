//! Tests of `plimsoll top` in a pseudoterminal: keys, the banner, exit codes, and that a page fits
//! 80 columns and 24 rows without cut words.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// A program whose standard input and output are a terminal.
struct Terminal {
    child: Child,
    /// The side of the user: what is written here was typed.
    user: File,
    program: OwnedFd,
    output: Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    fn start(args: &[&str]) -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let size = Winsize {
            ws_row: u16::try_from(ROWS).unwrap(),
            ws_col: u16::try_from(COLUMNS).unwrap(),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&user, size).unwrap();
        let name = ptsname(&user, Vec::new()).unwrap().into_string().unwrap();
        let program = File::options().read(true).write(true).open(name).unwrap();
        let side = || Stdio::from(program.try_clone().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
            .args(args)
            .env("NO_COLOR", "1")
            .stdin(side())
            .stdout(side())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let user = File::from(user);
        let mut reader = user.try_clone().unwrap();
        let (sender, output) = channel();
        thread::spawn(move || {
            let mut bytes = vec![0; 4096];
            // Reading fails when the program's side is closed.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            user,
            program: program.into(),
            output,
            screen: String::new(),
        }
    }

    fn press(&mut self, keys: &[u8]) {
        self.user.write_all(keys).unwrap();
    }

    /// Reads until the screen shows `part`.
    fn wait_for(&mut self, part: &str) {
        while !self.screen.contains(part) {
            self.read(part);
        }
    }

    fn read(&mut self, awaited: &str) {
        let received = self.output.recv_timeout(LIMIT);
        let more = received.unwrap_or_else(|_| panic!("{awaited:?} is missing:\n{}", self.screen));
        self.screen.push_str(&String::from_utf8_lossy(&more));
    }

    /// Returns the lines of the last page that was drawn completely.
    fn lines(&mut self) -> Vec<String> {
        loop {
            let (start, end) = ("\u{1b}[H", "\u{1b}[J");
            let complete = self.screen.rsplit_once(end).map(|(before, _)| before);
            // The screen may begin in the middle of a page.
            if let Some((_, frame)) = complete.and_then(|pages| pages.rsplit_once(start)) {
                let page = frame.replace("\u{1b}[K", "");
                return page.lines().map(str::to_owned).collect();
            }
            self.read(start);
        }
    }

    /// Waits for the end; returns the exit code.
    fn exit_code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    fn is_line_mode(&self) -> bool {
        let mode = tcgetattr(&self.program).unwrap().local_modes;
        mode.contains(LocalModes::ICANON | LocalModes::ECHO)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves a document `times` times, then refuses connections.
fn serve(document: &Value, times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let body = document.to_string();
    thread::spawn(move || {
        for _ in 0..times {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let count = stream.read(&mut buffer).unwrap();
                request.extend_from_slice(&buffer[..count]);
            }
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(body.as_bytes()).unwrap();
        }
    });
    address
}

/// A document with every state, reasons, a comparison and long names.
fn document() -> Value {
    let zone = |name: &str, load: f64, state: &str| {
        json!({
            "locality": {"region": "europe-west1", "zone": name}, "healthy_hosts": 3, "hosts": 3,
            "load": load, "state": state, "kept_local": 0.75, "demand_bp": 3333,
            "demand_requests_per_second": 48.5, "served_requests_per_second": 50.5,
            "above_line": (load > 1.06).then_some(
                "demand is 52 % above the capacity of the zone, within the dead band of 60 %"),
            "now": {"load": load, "served_requests_per_second": 50.5, "kept_local": 1.0},
            "enforce": {"load": 1.0, "served_requests_per_second": 33.0, "kept_local": 0.6},
        })
    };
    let total = json!({"cross_zone_requests_per_second": 18.9, "kept_local": 0.81,
                       "highest_load": 1.52, "usd_per_month": 9.93});
    json!({
        "title": "plimsoll control", "version": "9.9.9",
        "clusters": [{
            "cluster": "orders", "fleet": "gateway", "mode": "SHADOW", "ramp_percent": 100,
            "basis": "host_counts", "policy": "zone_aware, client_side_weighted_round_robin",
            "now": total, "enforce": total,
            "zones": [
                zone("europe-west1-b", 1.52, "LocalityResidual"),
                zone("europe-west1-c", 0.92, "NoLocalityRouting"),
                zone("europe-west1-d", 0.45, "LocalityDirect"),
            ],
        }],
    })
}

#[test]
fn a_page_fits_80_columns_and_24_rows_without_cut_words() {
    let address = serve(&document(), 1000);
    let mut terminal = Terminal::start(&["top", &address, "--interval", "100ms"]);
    terminal.wait_for("orders");
    let lines = terminal.lines();
    let page = lines.join("\n");
    assert!(lines.len() <= ROWS, "{page}");
    for line in &lines {
        assert!(line.chars().count() <= COLUMNS, "{line:?}\n{page}");
        assert!(!line.trim_end().ends_with('…'), "{line:?}\n{page}");
    }
    // Words of the document and of the page are whole; sentences may continue on the next line.
    let words: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for whole in [
        "plimsoll control 9.9.9",
        "zone_aware, client_side_weighted_round_robin",
        "demand is 52 % above the capacity of the zone, within the dead band of 60 %",
        "75.0 % spills",
        "75.0 % zones ignored",
        "75.0 % all local",
        "with ENFORCE: highest load 1.52",
        "about $9.93/month",
    ] {
        assert!(words.contains(whole), "{whole:?} is missing:\n{page}");
    }
    for zone in ["west1-b", "west1-c", "west1-d"] {
        assert!(words.contains(zone), "{zone:?} is missing:\n{page}");
    }
    let at = |part: &str| page.find(part).unwrap();
    assert!(at("west1-b") < at("west1-c"), "highest load first:\n{page}");
}

#[test]
fn keys_quit_with_code_0_and_restore_the_terminal() {
    for key in [&b"q"[..], b"Q", b"\x1b"] {
        let address = serve(&document(), 1000);
        let mut terminal = Terminal::start(&["top", &address, "--interval", "100ms"]);
        terminal.wait_for("orders");
        assert!(!terminal.is_line_mode(), "keys are read at once");
        // An arrow and other letters do nothing: the page is drawn again.
        terminal.press(b"\x1b[Ax");
        terminal.screen.clear();
        terminal.wait_for("orders");
        terminal.press(key);
        assert_eq!(terminal.exit_code(), Some(0), "{key:?}");
        // The alternate screen is left and the cursor shown.
        terminal.wait_for("\u{1b}[?1049l");
        assert!(terminal.screen.contains("\u{1b}[?25h"));
        assert!(terminal.is_line_mode(), "{key:?}");
    }
}

#[test]
fn signals_quit_with_code_0() {
    for signal in [Signal::INT, Signal::TERM] {
        let address = serve(&document(), 1000);
        let mut terminal = Terminal::start(&["top", &address, "--interval", "100ms"]);
        terminal.wait_for("orders");
        kill_process(Pid::from_child(&terminal.child), signal).unwrap();
        assert_eq!(terminal.exit_code(), Some(0), "{signal:?}");
        terminal.wait_for("\u{1b}[?1049l");
    }
}

#[test]
fn a_lost_server_leaves_the_page_below_a_banner() {
    let address = serve(&document(), 2);
    let mut terminal = Terminal::start(&["top", &address, "--interval", "100ms"]);
    terminal.wait_for("no answer, this page is ");
    terminal.screen.clear();
    terminal.wait_for("no answer, this page is ");
    let lines = terminal.lines();
    let page = lines.join("\n");
    assert!(lines[0].starts_with("! no answer"), "{page}");
    assert!(page.contains("orders"), "the last page stays:\n{page}");
    assert!(lines.len() <= ROWS, "{page}");
    assert!(
        lines.iter().all(|line| line.chars().count() <= COLUMNS),
        "{page}"
    );
    terminal.press(b"q");
    assert_eq!(terminal.exit_code(), Some(0));
}

#[test]
fn wrong_arguments_fail_before_the_screen_is_cleared() {
    let address = serve(&document(), 1);
    let mut terminal = Terminal::start(&["top", &address, "--cluster", "nope"]);
    assert_eq!(terminal.exit_code(), Some(2));
    let mut error = String::new();
    let stderr = terminal.child.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut error).unwrap();
    assert!(error.contains("known are orders"), "{error}");
    assert!(!terminal.screen.contains("\u{1b}[?1049h"));
}
