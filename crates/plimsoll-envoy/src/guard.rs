//! Keeps panics inside the module: one that unwinds into Envoy would abort the process.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::envoy;
use crate::log::Level;

/// Runs a hook; after a panic, logs it and returns `fallback`.
///
/// State that the hook was changing may be half changed. Locks are taken over in that state (see
/// `cluster`), and the next input rebuilds what depends on it.
pub(crate) fn guarded<T>(hook: &str, fallback: T, run: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(panic) => {
            let reason = panic
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            let line = format!("plimsoll: {hook} panicked: {reason}");
            // The logger itself must not end the process either.
            let _ = catch_unwind(AssertUnwindSafe(|| envoy::log(Level::Error, &line)));
            fallback
        }
    }
}
