//! [`Source`]: a running source of services, its tasks and its batches of changes.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::SourceStatus;

/// Starts the tasks of a source. If one of them panics, all end, and the batches with them: the
/// others alone would show services as they were, and nobody would notice.
#[derive(Clone, Debug, Default)]
pub struct SourceTasks(CancellationToken);

/// Ends the source when it is dropped by a panic; a task that is aborted ends as intended.
struct PanicGuard(CancellationToken);

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cancel();
        }
    }
}

impl SourceTasks {
    /// Spawns a task that ends with the source, or when it is aborted.
    pub fn spawn<T>(&self, task: impl Future<Output = T> + Send + 'static) -> JoinHandle<()>
    where
        T: Send + 'static,
    {
        let guard = PanicGuard(self.0.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = guard.0.cancelled() => {}
                _ = task => {}
            }
        })
    }
}

/// A running source, whose batches are of type `B`; dropping it stops its tasks.
#[derive(Debug)]
pub struct Source<B> {
    batches: mpsc::Receiver<B>,
    status: Arc<SourceStatus>,
    tasks: SourceTasks,
}

impl<B> Drop for Source<B> {
    fn drop(&mut self) {
        self.tasks.0.cancel();
    }
}

impl<B: Send + 'static> Source<B> {
    /// Starts the last of the tasks, which joins what the others found in batches.
    pub fn start<F>(
        tasks: SourceTasks,
        status: Arc<SourceStatus>,
        join: impl FnOnce(mpsc::Sender<B>) -> F,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, batches) = mpsc::channel(1);
        tasks.spawn(join(sender));
        Self {
            batches,
            status,
            tasks,
        }
    }

    /// Returns the next batch; `None` when the source has ended.
    pub async fn next(&mut self) -> Option<B> {
        self.batches.recv().await
    }

    /// Returns the status, which is updated while the source runs.
    pub const fn status(&self) -> &Arc<SourceStatus> {
        &self.status
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source that has sent the batch 1 and has no other.
    fn idle(tasks: &SourceTasks) -> Source<u32> {
        Source::start(tasks.clone(), Arc::default(), |batches| async move {
            let _ = batches.send(1).await;
            std::future::pending::<()>().await;
        })
    }

    #[tokio::test]
    async fn batches_end_with_a_task_that_panics() {
        let tasks = SourceTasks::default();
        let mut source = idle(&tasks);
        assert_eq!(source.next().await, Some(1));
        tasks.spawn(async { panic!("of a test") });
        assert_eq!(source.next().await, None);
    }

    #[tokio::test]
    async fn batches_go_on_when_a_task_is_aborted_or_returns() {
        let tasks = SourceTasks::default();
        let mut source = idle(&tasks);
        let aborted = tasks.spawn(std::future::pending::<()>());
        aborted.abort();
        assert!(aborted.await.unwrap_err().is_cancelled());
        tasks.spawn(async {}).await.unwrap();
        assert!(!tasks.0.is_cancelled());
        assert_eq!(source.next().await, Some(1));
    }

    #[tokio::test]
    async fn tasks_end_with_the_source() {
        let tasks = SourceTasks::default();
        let source = idle(&tasks);
        let other = tasks.spawn(std::future::pending::<()>());
        drop(source);
        other.await.unwrap();
    }
}
