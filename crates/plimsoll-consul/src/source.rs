//! [`start`]: tasks that follow the services of Consul and return those that changed in batches.
//!
//! One task per datacenter follows its catalog, one per service follows the health of its
//! instances, and one joins them in an [`Inventory`] and publishes what changed, at most every
//! [`BATCH_INTERVAL`]. The first batch has all services, and comes when every service has been
//! read: a service never appears without its endpoints. While the consumer is busy, changes of one
//! service are merged.

mod catalog;
mod follower;
mod health;
mod pool;
mod progress;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_serve::discovery::{
    BATCH_INTERVAL, RemovalGuard, SourceClock, SourceStatus, SourceTasks, due_permit,
};
use tokio::sync::{mpsc, watch};

use crate::access::ConsulAccess;
use crate::inventory::{DiscoveredService, Inventory};
use crate::log_lines;
use crate::merge::{Endpoints, MergeOptions};
use crate::query::Consistency;

use catalog::Catalog;
use follower::Scope;
use pool::Pool;
use progress::Progress;

/// Messages that wait for the inventory.
const QUEUE: usize = 64;
/// How long the first batch waits for datacenters that do not answer, if others do.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// A datacenter to follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datacenter {
    /// `None` for that of the agent.
    pub name: Option<String>,
    /// Region of its endpoints, in place of its name.
    pub region: Option<String>,
}

/// What is followed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceOptions {
    pub access: ConsulAccess,
    pub datacenters: Vec<Datacenter>,
    pub consistency: Consistency,
    /// Age from which a stale answer is asked for again.
    pub max_stale: Duration,
    /// Longest time of a blocking query.
    pub wait: Duration,
    /// Time beyond it until the answer begins: an agent that is silent for longer hangs.
    pub grace: Duration,
    /// Connections for the health of services; more services than these take turns.
    pub max_connections: usize,
    pub merge: MergeOptions,
    /// Also how long a service stays that the catalog no longer has.
    pub guard: RemovalGuard,
}

/// Services that changed since the batch before.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Whether this is the first batch, with all services.
    pub is_complete: bool,
    /// `None` for services that are gone.
    pub services: BTreeMap<Arc<str>, Option<DiscoveredService>>,
}

/// A running source; dropping it stops its tasks.
pub type Source = plimsoll_serve::discovery::Source<Batch>;

/// What the tasks of all datacenters share.
#[derive(Debug)]
struct Shared {
    options: SourceOptions,
    clock: SourceClock,
    tasks: SourceTasks,
    /// Connections for the catalogs.
    catalogs: Pool,
    /// Connections for the health of services.
    health: Pool,
    /// Number of services that are followed.
    services: watch::Sender<usize>,
}

/// What a task found.
#[derive(Debug)]
enum Update {
    /// The services of the first catalog of a datacenter.
    Listed(usize, BTreeSet<Arc<str>>),
    /// The endpoints of a service in a datacenter; `None` if it is gone.
    Service(usize, Arc<str>, Option<Endpoints>),
}

/// Starts to follow Consul.
pub fn start(options: SourceOptions) -> Source {
    let tasks = SourceTasks::default();
    let clock = SourceClock::default();
    let status = Arc::new(SourceStatus::new(clock));
    let (updates, received) = mpsc::channel(QUEUE);
    let count = options.datacenters.len();
    let shared = Arc::new(Shared {
        clock,
        tasks: tasks.clone(),
        catalogs: Pool::new(&options, count.max(1)),
        health: Pool::new(&options, options.max_connections.max(1)),
        services: watch::Sender::new(0),
        options,
    });
    for (number, datacenter) in shared.options.datacenters.iter().enumerate() {
        let name = datacenter.name.clone().unwrap_or_default();
        let progress = Arc::new(Progress::new(Arc::clone(&status), name, clock));
        let scope = Scope {
            number,
            shared: Arc::clone(&shared),
            progress,
            updates: updates.clone(),
        };
        tasks.spawn(Catalog::new(scope).run());
    }
    let join = Join {
        inventory: Inventory::default(),
        updates: received,
        status: Arc::clone(&status),
        datacenters: count,
        unread: (0..count).map(|datacenter| (datacenter, None)).collect(),
    };
    Source::start(tasks, status, |batches| join.run(batches))
}

struct Join {
    inventory: Inventory,
    updates: mpsc::Receiver<Update>,
    status: Arc<SourceStatus>,
    datacenters: usize,
    /// Datacenters whose services have not all been read, with these services; `None` before the
    /// first catalog.
    unread: BTreeMap<usize, Option<BTreeSet<Arc<str>>>>,
}

impl Join {
    async fn run(mut self, batches: mpsc::Sender<Batch>) {
        let mut is_first = true;
        let mut next_batch = tokio::time::Instant::now();
        let give_up = tokio::time::sleep(START_TIMEOUT);
        tokio::pin!(give_up);
        let mut has_given_up = false;
        loop {
            let missing = self.unread.len();
            let is_started =
                missing == 0 || !is_first || (has_given_up && missing < self.datacenters);
            let is_due = is_started && (self.inventory.has_changed() || is_first);
            tokio::select! {
                biased;
                permit = due_permit(&batches, next_batch), if is_due => {
                    let Ok(permit) = permit else { return };
                    permit.send(self.take(is_first));
                    is_first = false;
                    next_batch = tokio::time::Instant::now() + BATCH_INTERVAL;
                }
                update = self.updates.recv() => match update {
                    Some(update) => self.handle(update),
                    None => return,
                },
                () = &mut give_up, if !has_given_up => has_given_up = true,
            }
        }
    }

    fn handle(&mut self, update: Update) {
        match update {
            Update::Listed(datacenter, services) => {
                self.unread.insert(datacenter, Some(services));
                self.read(datacenter, "");
            }
            Update::Service(datacenter, service, endpoints) => {
                self.inventory
                    .handle_endpoints(datacenter, &service, endpoints);
                self.read(datacenter, &service);
            }
        }
    }

    /// A service has been read; removes a datacenter of which it was the last one.
    fn read(&mut self, datacenter: usize, service: &str) {
        if let Some(Some(unread)) = self.unread.get_mut(&datacenter) {
            unread.remove(service);
            if unread.is_empty() {
                self.unread.remove(&datacenter);
            }
        }
    }

    fn take(&mut self, is_complete: bool) -> Batch {
        let mut batch = Batch {
            is_complete,
            services: BTreeMap::new(),
        };
        while let Some((name, service)) = self.inventory.poll_changed() {
            batch.services.insert(name, service);
        }
        if is_complete {
            self.status.set_synced();
            let services = batch.services.values().flatten().count();
            log_line!(log_lines::SYNCED, services);
            let datacenters = self.unread.len();
            if datacenters > 0 {
                log_line!(log_lines::DATACENTER_MISSING, datacenters);
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn join(datacenters: usize) -> (mpsc::Sender<Update>, mpsc::Receiver<Batch>) {
        let (updates, received) = mpsc::channel(QUEUE);
        let (batches, received_batches) = mpsc::channel(1);
        let join = Join {
            inventory: Inventory::default(),
            updates: received,
            status: Arc::default(),
            datacenters,
            unread: (0..datacenters).map(|number| (number, None)).collect(),
        };
        tokio::spawn(join.run(batches));
        (updates, received_batches)
    }

    fn read(datacenter: usize, service: &str) -> Update {
        Update::Service(datacenter, service.into(), Some(Endpoints::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_datacenter_that_does_not_answer_is_waited_for_for_a_minute() {
        let (updates, mut batches) = join(2);
        let start = tokio::time::Instant::now();
        let listed = Update::Listed(0, ["a".into(), "b".into()].into());
        for update in [listed, read(0, "a"), read(0, "b")] {
            updates.send(update).await.unwrap();
        }
        let batch = batches.recv().await.unwrap();
        assert!(batch.is_complete && batch.services.len() == 2);
        assert_eq!(start.elapsed(), START_TIMEOUT);
        for update in [Update::Listed(1, ["c".into()].into()), read(1, "c")] {
            updates.send(update).await.unwrap();
        }
        let batch = batches.recv().await.unwrap();
        assert!(!batch.is_complete && batch.services.contains_key("c"));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_published_before_all_of_a_datacenter_was_read() {
        let (updates, mut batches) = join(1);
        let listed = Update::Listed(0, ["a".into(), "b".into()].into());
        for update in [listed, read(0, "a")] {
            updates.send(update).await.unwrap();
        }
        let waited = tokio::time::timeout(START_TIMEOUT * 2, batches.recv()).await;
        assert!(waited.is_err(), "b may have had endpoints");
        updates.send(read(0, "b")).await.unwrap();
        assert_eq!(batches.recv().await.unwrap().services.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_datacenter_without_services_is_complete() {
        let (updates, mut batches) = join(1);
        updates
            .send(Update::Listed(0, BTreeSet::new()))
            .await
            .unwrap();
        let batch = batches.recv().await.unwrap();
        assert!(batch.is_complete && batch.services.is_empty());
    }
}
