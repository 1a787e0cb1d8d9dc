//! Log lines of the module, written through Envoy's logger.
//!
//! The safe code of this crate knows only [`write()`]; `hooks` installs the function that calls
//! Envoy when the module is loaded. Without Envoy, in tests, lines are dropped.

use std::sync::OnceLock;

/// Log level, with the numbers of Envoy's ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    Debug = 1,
    Info = 2,
    Warn = 3,
    Error = 4,
}

static SINK: OnceLock<fn(Level, &str)> = OnceLock::new();

/// Installs the function that writes lines; the first call wins.
pub fn install(sink: fn(Level, &str)) {
    let _ = SINK.set(sink);
}

/// Writes a line. May be called from any thread.
pub fn write(level: Level, line: &str) {
    if let Some(sink) = SINK.get() {
        sink(level, line);
    }
}
