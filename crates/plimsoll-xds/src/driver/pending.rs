//! Futures that never resolve without something to wait for, for `select!` loops.

use tokio::sync::watch;

/// Awaits `future`; never resolves if it is `None`.
pub(super) async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Waits for a change of the watched value; never resolves if it is `None` or the sender is gone.
pub(super) async fn changed<T>(watched: Option<&mut watch::Receiver<T>>) {
    if let Some(watched) = watched
        && watched.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}
