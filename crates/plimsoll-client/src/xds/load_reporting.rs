//! Sends load reports to the management server (LRS).
//!
//! `plimsoll_xds::lrs::Client` decides when and what to report; the cluster manager has the counts.
//! Counts that could not be sent are part of the first report on the next stream.

use plimsoll_xds::driver::Servers;
use plimsoll_xds::driver::lrs_client::{self, LrsClientChannels};
use plimsoll_xds::lrs::message::ClusterLoadStats;
use plimsoll_xds::lrs::{Client, ClientEvent, EdsNames, ObservedTraffic, with_eds_names};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{mpsc, oneshot, watch};

use crate::cluster::manager::Update;

pub(crate) async fn run(
    servers: Servers,
    node: NodeInfo,
    eds_names: watch::Receiver<EdsNames>,
    updates: mpsc::WeakSender<Update>,
) {
    let (events, mut client_events) = mpsc::channel(16);
    let (drained, stats) = mpsc::channel(1);
    let channels = LrsClientChannels { events, stats };
    let driver = tokio::spawn(lrs_client::run(servers, Client::new(node), channels));
    while let Some(event) = client_events.recv().await {
        // The client was dropped.
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

/// Handles an event of the LRS client; `None` when the manager or the stream has ended.
async fn handle(
    event: ClientEvent,
    updates: &mpsc::Sender<Update>,
    drained: &mpsc::Sender<Vec<ClusterLoadStats>>,
    eds_names: &watch::Receiver<EdsNames>,
) -> Option<()> {
    match event {
        ClientEvent::Select(wanted) => {
            let update = Update::SelectLoadStats(wanted);
            updates.send(update).await.ok()?;
        }
        ClientEvent::ObservedTraffic(clusters) => {
            for ObservedTraffic { traffic, at } in clusters {
                let fractions = traffic.fractions.into_iter().collect();
                let update = Update::ObservedTraffic(traffic.cluster_name, fractions, at);
                updates.send(update).await.ok()?;
            }
        }
        ClientEvent::Collect {
            clusters: wanted,
            report_endpoint_granularity,
        } => {
            let (reply, stats) = oneshot::channel();
            let update = Update::DrainLoadStats {
                wanted,
                by_endpoint: report_endpoint_granularity,
                reply,
            };
            updates.send(update).await.ok()?;
            let stats = with_eds_names(stats.await.ok()?, &eds_names.borrow());
            drained.send(stats).await.ok()?;
        }
    }
    Some(())
}
