//! [`Reloads`]: what became of the last edits of the configuration.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// What became of the last edits.
#[derive(Debug, Default)]
pub struct Reloads {
    counts: Mutex<Counts>,
}

/// Edits so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Edits that are in force or were.
    pub succeeded: u64,
    /// Edits that were refused.
    pub failed: u64,
    /// Why the newest edit was refused; `None` when it is in force.
    pub error: Option<String>,
}

impl Reloads {
    /// An edit is in force.
    pub fn succeeded(&self) {
        let mut counts = self.lock();
        counts.succeeded += 1;
        counts.error = None;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_edit_clears_the_complaint() {
        let reloads = Reloads::default();
        reloads.failed("x: no".to_owned());
        assert_eq!(reloads.counts().error.as_deref(), Some("x: no"));
        reloads.succeeded();
        let counts = reloads.counts();
        assert_eq!(
            (counts.succeeded, counts.failed, counts.error),
            (1, 1, None)
        );
    }
}
