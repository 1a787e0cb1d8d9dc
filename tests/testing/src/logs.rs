//! [`CapturedLogs`]: a subscriber that keeps every log line of this thread.

use std::fmt::Write as _;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

/// Level of every line, and its message and fields.
#[derive(Clone, Debug)]
pub struct CapturedLogs(pub Arc<Mutex<Vec<(Level, String)>>>);

/// A second subscriber, which gets no lines. As long as there is only one, tracing asks the thread
/// that first reaches a line whether it is enabled, and that may be one without a subscriber.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| Dispatch::new(CapturedLogs(Arc::default())));

impl Default for CapturedLogs {
    fn default() -> Self {
        LazyLock::force(&SECOND);
        Self(Arc::default())
    }
}

impl CapturedLogs {
    /// Lines of a level that have all these words.
    pub fn with(&self, level: Level, words: &[&str]) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        let found = lines.iter().filter(|line| line.0 == level && has(&line.1));
        found.map(|line| line.1.clone()).collect()
    }

    /// Returns how many lines of a level have all these words.
    pub fn count(&self, level: Level, words: &[&str]) -> usize {
        self.with(level, words).len()
    }

    /// Removes all lines and returns them.
    pub fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => write!(self.0, "message={value} ").unwrap(),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, "{}={value:?} ", field.name()).unwrap();
    }
}

impl Subscriber for CapturedLogs {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let line = (*event.metadata().level(), text.0);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
