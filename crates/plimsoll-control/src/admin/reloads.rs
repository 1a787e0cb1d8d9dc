//! [`Reloads`]: what became of the last edits of the configuration.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// What became of the last edits. A new one counts the first reading as good.
#[derive(Debug)]
pub struct Reloads {
    counts: Mutex<Counts>,
}

/// Edits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Edits that are in force or were.
    pub succeeded: u64,
    /// Edits that were refused.
    pub failed: u64,
    /// Why the newest edit was refused; `None` when it is in force.
    pub error: Option<String>,
    /// When the configuration in force was read, in seconds since 1970.
    pub last_success_unix_seconds: u64,
    /// Fields that were edited but take effect at the next start only.
    pub restart_needed: Vec<&'static str>,
}

impl Default for Reloads {
    fn default() -> Self {
        let counts = Counts {
            last_success_unix_seconds: unix_seconds(),
            ..Counts::default()
        };
        Self {
            counts: Mutex::new(counts),
        }
    }
}

impl Reloads {
    /// An edit is in force, but for these fields.
    pub fn succeeded(&self, restart_needed: Vec<&'static str>) {
        let mut counts = self.lock();
        counts.succeeded += 1;
        counts.error = None;
        counts.last_success_unix_seconds = unix_seconds();
        counts.restart_needed = restart_needed;
    }

    /// An edit was refused.
    pub fn failed(&self, error: String) {
        let mut counts = self.lock();
        counts.failed += 1;
        counts.error = Some(error);
    }

    /// The counts now.
    pub fn counts(&self) -> Counts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unix_seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_edit_clears_the_complaint() {
        let reloads = Reloads::default();
        reloads.failed("x: no".to_owned());
        assert_eq!(reloads.counts().error.as_deref(), Some("x: no"));
        reloads.succeeded(vec!["listen"]);
        let counts = reloads.counts();
        assert_eq!(
            (counts.succeeded, counts.failed, counts.error),
            (1, 1, None)
        );
        assert_eq!(counts.restart_needed, ["listen"]);
        assert!(counts.last_success_unix_seconds > 0);
    }
}
