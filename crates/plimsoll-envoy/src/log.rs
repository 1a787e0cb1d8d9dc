//! Log lines of the module, written through Envoy's logger.
//!
//! The safe code of this crate knows only [`write()`] and the macros of `tracing`, which the
//! streams of `plimsoll-xds` log with, too; `hooks` installs the function that calls Envoy when the
//! module is loaded. Without Envoy, in tests, lines are dropped.

use std::fmt::{self, Write as _};
use std::sync::OnceLock;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Log level, with the numbers of Envoy's ABI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Level {
    Debug = 1,
    Info = 2,
    Warn = 3,
    Error = 4,
}

impl From<tracing::Level> for Level {
    fn from(level: tracing::Level) -> Self {
        match level {
            tracing::Level::ERROR => Self::Error,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::INFO => Self::Info,
            _ => Self::Debug,
        }
    }
}

static SINK: OnceLock<fn(Level, &str)> = OnceLock::new();

/// Installs the function that writes lines; the first call wins.
pub fn install(sink: fn(Level, &str)) {
    if SINK.set(sink).is_ok() {
        // Fails if this library has a subscriber, which only a program that links it could set.
        let _ = tracing::subscriber::set_global_default(Events(write));
    }
}

/// Writes a line. May be called from any thread.
pub fn write(level: Level, line: &str) {
    if let Some(sink) = SINK.get() {
        sink(level, line);
    }
}

/// Writes the events of our crates as lines: `plimsoll: MESSAGE NAME=VALUE …`. Those of libraries
/// are left out, as are trace events.
pub struct Events<F>(pub F);

impl<F: Fn(Level, &str) + 'static> Subscriber for Events<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
            && *metadata.level() <= tracing::Level::DEBUG
            && metadata.target().starts_with("plimsoll")
    }

    fn max_level_hint(&self) -> Option<tracing::level_filters::LevelFilter> {
        Some(tracing::level_filters::LevelFilter::DEBUG)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = Line("plimsoll:".to_owned());
        event.record(&mut line);
        (self.0)(Level::from(*event.metadata().level()), &line.0);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

impl<F> fmt::Debug for Events<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Events")
    }
}

struct Line(String);

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.0.push(' ');
            self.0.push_str(value);
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, Mutex};

    use plimsoll_core::event::log_lines::PANIC_LEFT;

    use super::*;

    /// Lines that were written on this thread meanwhile.
    pub(crate) fn lines_of<T>(work: impl FnOnce() -> T) -> Vec<(Level, String)> {
        let lines: Arc<Mutex<Vec<(Level, String)>>> = Arc::default();
        let sink = Arc::clone(&lines);
        let events = Events(move |level, line: &str| {
            sink.lock().unwrap().push((level, line.to_owned()));
        });
        drop(tracing::subscriber::with_default(events, work));
        let written = lines.lock().unwrap();
        written.clone()
    }

    #[test]
    fn events_are_lines_with_their_fields() {
        let lines = lines_of(|| {
            tracing::event!(
                tracing::Level::ERROR,
                cluster = "orders",
                age_s = 1.5,
                "broken"
            );
            tracing::event!(tracing::Level::INFO, count = 2, "as intended");
            tracing::event!(tracing::Level::DEBUG, "single step");
            let cluster = "orders";
            plimsoll_core::log_line!(PANIC_LEFT, cluster);
            tracing::event!(tracing::Level::TRACE, "too much");
            tracing::event!(target: "h2", tracing::Level::WARN, "of a library");
        });
        let line = |level, line: &str| (level, format!("plimsoll: {line}"));
        let expected = [
            line(Level::Error, "broken cluster=\"orders\" age_s=1.5"),
            line(Level::Info, "as intended count=2"),
            line(Level::Debug, "single step"),
            line(Level::Info, "priority left panic mode cluster=\"orders\""),
        ];
        assert_eq!(lines, expected);
    }
}
