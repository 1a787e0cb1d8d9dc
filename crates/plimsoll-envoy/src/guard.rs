//! Keeps panics inside the module: one that unwinds into Envoy would abort the process, and one
//! that ends a thread would stop what the thread does for all clusters.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::log::{self, Level};

/// Time from a panic to the next attempt: whatever panics always must not fill Envoy's log.
pub(crate) const RESTART_DELAY: Duration = Duration::from_secs(1);

/// Runs a hook; after a panic, logs it and returns `fallback`.
///
/// State that the hook was changing may be half changed. Locks are taken over in that state (see
/// `cluster`), and the next input rebuilds what depends on it.
pub(crate) fn guarded<T>(hook: &str, fallback: T, run: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result,
        Err(panic) => {
            log_panic(hook, &*panic);
            fallback
        }
    }
}

fn log_panic(name: &str, panic: &(dyn Any + Send)) {
    let reason = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or_default();
    let line = format!("plimsoll: {name} panicked: {reason}");
    // The logger itself must not end the process either.
    let _ = catch_unwind(|| log::write(Level::Error, &line));
}

/// Runs a task until it ends or `stopped` resolves; one that panics is started again after `delay`.
pub(crate) fn run_restarting<F: Future<Output = ()>>(
    name: &str,
    runtime: &Runtime,
    delay: Duration,
    mut stopped: oneshot::Receiver<()>,
    start: impl Fn() -> F,
) {
    loop {
        let run = || {
            runtime.block_on(async {
                tokio::select! {
                    // Resolves with an error when the sender is dropped.
                    _ = &mut stopped => {}
                    () = start() => {}
                }
            });
            true
        };
        if guarded(name, false, run) {
            return;
        }
        let is_stopped =
            runtime.block_on(async { tokio::time::timeout(delay, &mut stopped).await.is_ok() });
        if is_stopped {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Panics in the first `panics` runs; the next one never ends unless `ends`.
    fn runs(panics: usize, ends: bool, stopped: oneshot::Receiver<()>) -> usize {
        let count = AtomicUsize::new(0);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        run_restarting(
            "test",
            &runtime.unwrap(),
            Duration::ZERO,
            stopped,
            || async {
                let run = count.fetch_add(1, Ordering::Relaxed);
                assert!(run >= panics, "run {run}");
                if !ends {
                    std::future::pending::<()>().await;
                }
            },
        );
        count.into_inner()
    }

    #[test]
    fn a_task_that_panics_is_started_again() {
        let (_stop, stopped) = oneshot::channel();
        assert_eq!(runs(2, true, stopped), 3);
    }

    #[test]
    fn a_task_that_was_stopped_is_not_started_again() {
        let (stop, stopped) = oneshot::channel();
        drop(stop);
        // It may have run once before the stop was seen.
        assert!(runs(usize::MAX, true, stopped) <= 1);
        let (stop, stopped) = oneshot::channel();
        drop(stop);
        assert!(runs(0, false, stopped) <= 1);
    }
}
