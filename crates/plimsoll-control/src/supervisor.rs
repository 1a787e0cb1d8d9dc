//! [`Supervisor`]: tasks that run as long as the process. If one of them ends, the control plane
//! would go on with files that nobody reads or endpoints that nobody follows, so the process ends,
//! and a new one starts clean.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Notices that a task has ended. Cloning is cheap.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor(Arc<watch::Sender<Option<&'static str>>>);

impl Default for Supervisor {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

/// Tells the supervisor when it is dropped by a panic; a task that is aborted ends as intended.
struct PanicGuard {
    supervisor: Supervisor,
    name: &'static str,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.supervisor.tell(self.name);
        }
    }
}

impl Supervisor {
    /// Spawns a task that ends with the process, or when it is aborted.
    pub(crate) fn spawn(
        &self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let guard = PanicGuard {
            supervisor: self.clone(),
            name,
        };
        tokio::spawn(async move {
            task.await;
            guard.supervisor.tell(name);
        })
    }

    /// Resolves when a task has ended, with its name. All end when the process does.
    pub(crate) async fn ended(&self) -> &'static str {
        let mut ended = self.0.subscribe();
        match ended.wait_for(Option::is_some).await.map(|name| *name) {
            Ok(Some(name)) => name,
            // `self` has a sender, and the condition holds.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    fn tell(&self, name: &'static str) {
        self.0.send_if_modified(|ended| {
            let is_first = ended.is_none();
            ended.get_or_insert(name);
            is_first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_or_returns_is_noticed_and_one_that_is_aborted_is_not() {
        let supervisor = Supervisor::default();
        let aborted = supervisor.spawn("aborted", std::future::pending());
        tokio::task::yield_now().await;
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        assert_eq!(*supervisor.0.borrow(), None);
        let panicked = supervisor.spawn("panicked", async { panic!("of a test") });
        assert!(panicked.await.unwrap_err().is_panic());
        assert_eq!(supervisor.ended().await, "panicked");
        let supervisor = Supervisor::default();
        let (first, second) = (supervisor.clone(), supervisor.clone());
        first.spawn("first", async {}).await.unwrap();
        second.spawn("second", async {}).await.unwrap();
        assert_eq!(supervisor.ended().await, "first");
    }
}
