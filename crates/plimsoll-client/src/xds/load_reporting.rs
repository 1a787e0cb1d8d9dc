//! Sends load reports to the management server (LRS).
//!
//! `plimsoll_xds::lrs::Client` decides when and what to report; the cluster manager has the counts.
//! Counts that could not be sent are part of the first report on the next stream. A client that is
//! shut down reports once more.

use std::time::Duration;

use plimsoll_xds::driver::Servers;
use plimsoll_xds::driver::lrs_client::{self, LrsClientChannels};
use plimsoll_xds::lrs::message::ClusterLoadStats;
use plimsoll_xds::lrs::{Client, ClientEvent, EdsNames, ObservedTraffic, with_eds_names};
use plimsoll_xds::node::NodeInfo;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::cluster::manager::Update;

/// How long a last report may take: the server is asked to confirm it by ending the stream.
const LAST_REPORT_TIMEOUT: Duration = Duration::from_secs(2);

/// The task that reports load.
#[derive(Debug)]
pub(crate) struct LoadReporter {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl LoadReporter {
    /// Spawns the task. It ends with the client.
    pub(crate) fn start(
        servers: Servers,
        node: NodeInfo,
        eds_names: watch::Receiver<EdsNames>,
        updates: mpsc::WeakSender<Update>,
    ) -> Self {
        let (end, ended) = oneshot::channel();
        let task = tokio::spawn(run(servers, node, eds_names, updates, ended));
        Self { end, task }
    }

    /// Reports what was counted since the last report, and ends the stream.
    pub(crate) async fn end(mut self) {
        // The task may have ended by itself.
        let _ = self.end.send(());
        let ended = tokio::time::timeout(LAST_REPORT_TIMEOUT, &mut self.task).await;
        if ended.is_err() {
            self.task.abort();
        }
    }
}

async fn run(
    servers: Servers,
    node: NodeInfo,
    eds_names: watch::Receiver<EdsNames>,
    updates: mpsc::WeakSender<Update>,
    end: oneshot::Receiver<()>,
) {
    let (events, mut client_events) = mpsc::channel(16);
    let (drained, stats) = mpsc::channel(1);
    let channels = LrsClientChannels {
        events,
        stats,
        end: Some(end),
    };
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
