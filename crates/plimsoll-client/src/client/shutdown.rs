//! [`Client::shutdown`]: requests in flight end, the last load is reported, connections close.

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "xds")]
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Client;
use crate::cluster::manager::Update;
use crate::error::{Error, ErrorKind, Side};
#[cfg(feature = "xds")]
use crate::xds::subscriber::SubscribeCommand;

/// Default of `shutdown_timeout`: leaves a third of the 30 s that Kubernetes gives a pod to end.
pub(crate) const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(20);

/// How often requests in flight are counted. They are not watched, because that would cost every
/// request of the client's life for the sake of its end.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Client {
    /// Ends the client: refuses new requests, waits for those in flight and their response bodies,
    /// sends the last load report, and closes all connections.
    ///
    /// Waits for requests at most [`ClientBuilder::shutdown_timeout`], then ends them, and returns
    /// an error with their number. From then on requests fail with [`ErrorKind::Closed`], through
    /// every service and clone. Stop to accept requests before you call this. A second call waits,
    /// too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use plimsoll_client::{Client, Cluster, ErrorKind, Request};
    ///
    /// let orders = Cluster::new("orders").endpoints(["10.0.0.1:80"]);
    /// let client = Client::builder().cluster(orders).build()?;
    /// let orders = client.service("orders")?;
    /// client.shutdown().await?;
    /// let error = orders.send(Request::get("/").body(())?).await.unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Closed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`ClientBuilder::shutdown_timeout`]: crate::ClientBuilder::shutdown_timeout
    pub async fn shutdown(&self) -> Result<(), Error> {
        let (fetch, limit) = (&self.0.initial_fetch, self.0.shutdown_timeout);
        fetch.lifecycle.drain();
        // Calls of `ready` need not wait any longer.
        fetch.changed.notify_waiters();
        let left = self.wait_for_requests(limit).await;
        #[cfg(feature = "xds")]
        self.report_last_load().await;
        fetch.lifecycle.close();
        // Fails if another call has ended the manager already.
        if self.0.updates.send(Update::Shutdown).await.is_ok() {
            self.0.updates.closed().await;
        }
        if left == 0 {
            return Ok(());
        }
        let message =
            format!("{left} requests were still in flight {limit:?} after shutdown began");
        Err(Error::new(ErrorKind::Timeout, message).with_side(Side::Caller))
    }

    /// Waits until nothing is in flight, at most `limit`; returns the number of requests that are.
    async fn wait_for_requests(&self, limit: Duration) -> u64 {
        let deadline = Instant::now().checked_add(limit);
        loop {
            let left = self.requests_in_flight();
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if left == 0 || is_late {
                return left;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    fn requests_in_flight(&self) -> u64 {
        let clusters = self.0.clusters.load();
        let each = clusters.values().map(Arc::as_ref);
        each.map(|cluster| cluster.load.active() + cluster.limits.backlog.waiting())
            .sum()
    }

    /// Ends the discovery stream, after a load report with what was counted since the last one.
    #[cfg(feature = "xds")]
    async fn report_last_load(&self) {
        let Some(xds) = &self.0.xds else {
            return;
        };
        let (done, reported) = oneshot::channel();
        if xds.commands.send(SubscribeCommand::End(done)).await.is_ok() {
            // Dropped if the task has ended for another reason.
            let _ = reported.await;
        }
    }
}
