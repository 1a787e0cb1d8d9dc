//! Load reports to the management server: [`run`].
//!
//! When and what to report is known by `plimsoll_xds::lrs::Client`, the counters by the cluster
//! manager; here they meet. Counts that could not be sent wait for the next stream.

use plimsoll_xds::driver::Servers;
use plimsoll_xds::driver::lrs_client::{self, LrsClientChannels};
use plimsoll_xds::lrs::message::ClusterStatsMessage;
use plimsoll_xds::lrs::{Client, ClientEvent, EdsNames, Observed, messages};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster_manager::Update;

/// Reports until the manager is gone.
pub(crate) async fn run(
    servers: Servers,
    node: NodeInfo,
    eds_names: watch::Receiver<EdsNames>,
    updates: mpsc::WeakSender<Update>,
) {
    let (events, mut asked) = mpsc::channel(16);
    let (drained, stats) = mpsc::channel(1);
    let channels = LrsClientChannels { events, stats };
    let driver = tokio::spawn(lrs_client::run(servers, Client::new(node), channels));
    while let Some(event) = asked.recv().await {
        // The client is gone, and with it everybody who could send.
        let Some(updates) = updates.upgrade() else {
            break;
        };
        if handle(event, &updates, &drained, &eds_names)
            .await
            .is_none()
        {
            break;
        }
    }
    driver.abort();
}

/// `None` when there is nobody left to report for or to.
async fn handle(
    event: ClientEvent,
    updates: &mpsc::Sender<Update>,
    drained: &mpsc::Sender<Vec<ClusterStatsMessage>>,
    eds_names: &watch::Receiver<EdsNames>,
) -> Option<()> {
    match event {
        ClientEvent::Select(wanted) => {
            let update = Update::SelectLoadStats(wanted);
            updates.send(update).await.ok()?;
        }
        ClientEvent::ObservedTraffic(clusters) => {
            for Observed { traffic, at } in clusters {
                let fractions = traffic.fractions.into_iter().collect();
                let update = Update::ObservedTraffic(traffic.cluster_name, fractions, at);
                updates.send(update).await.ok()?;
            }
        }
        ClientEvent::Collect {
            wanted,
            report_endpoint_granularity,
        } => {
            let (reply, stats) = oneshot::channel();
            let update = Update::DrainLoadStats {
                wanted,
                by_endpoint: report_endpoint_granularity,
                reply,
            };
            updates.send(update).await.ok()?;
            let stats = stats.await.ok()?;
            let messages = messages(stats, &eds_names.borrow());
            drained.send(messages).await.ok()?;
        }
    }
    Some(())
}
