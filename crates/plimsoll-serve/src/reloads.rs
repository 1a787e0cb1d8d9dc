//! [`Reloads`]: counters of configuration reloads, and the error of the newest edit.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::log_line;

use crate::log_lines;

/// Outcome of configuration reloads. It starts with the initial load, which succeeded.
#[derive(Debug)]
pub struct Reloads {
    counts: Mutex<ReloadCounts>,
}

/// Reload counters and the outcome of the newest edit of the files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReloadCounts {
    /// Number of edits that were applied.
    pub succeeded: u64,
    pub failed: u64,
    /// Why the newest edit was refused; `None` if it was applied.
    pub error: Option<String>,
    /// When the current configuration was loaded, in seconds since 1970.
    pub last_success_unix_seconds: u64,
    /// Fields that differ from startup but take effect only after a restart.
    pub restart_needed: Vec<&'static str>,
}

impl Default for Reloads {
    fn default() -> Self {
        let counts = ReloadCounts {
            last_success_unix_seconds: unix_seconds(),
            ..ReloadCounts::default()
        };
        Self {
            counts: Mutex::new(counts),
        }
    }
}

impl Reloads {
    /// Records and logs a reload: the edited fields that need a restart, or the error.
    pub fn record(&self, outcome: Result<Vec<&'static str>, String>) {
        let mut counts = self.lock();
        match outcome {
            Ok(restart_needed) => {
                log_line!(log_lines::CONFIG_RELOADED);
                if !restart_needed.is_empty() {
                    let fields = restart_needed.join(", ");
                    log_line!(log_lines::RESTART_NEEDED, %fields);
                }
                *counts = ReloadCounts {
                    succeeded: counts.succeeded + 1,
                    failed: counts.failed,
                    error: None,
                    last_success_unix_seconds: unix_seconds(),
                    restart_needed,
                };
            }
            Err(error) => {
                log_line!(log_lines::CONFIG_REJECTED, %error);
                counts.failed += 1;
                counts.error = Some(error);
            }
        }
    }

    /// Returns the current counters.
    pub fn counts(&self) -> ReloadCounts {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, ReloadCounts> {
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
    fn a_successful_reload_clears_the_error() {
        let reloads = Reloads::default();
        reloads.record(Err("x: no".to_owned()));
        assert_eq!(reloads.counts().error.as_deref(), Some("x: no"));
        reloads.record(Ok(vec!["listen"]));
        let counts = reloads.counts();
        assert_eq!(
            (counts.succeeded, counts.failed, counts.error),
            (1, 1, None)
        );
        assert_eq!(counts.restart_needed, ["listen"]);
        assert!(counts.last_success_unix_seconds > 0);
    }
}
