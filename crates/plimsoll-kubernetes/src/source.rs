//! [`start`]: tasks that mirror the objects of a cluster and return changed Services in batches.
//!
//! One task per kind and namespace drives a reflector; one task joins their changes in an
//! [`Inventory`] and publishes what changed, at most every [`BATCH_INTERVAL`]. The first batch has
//! all Services, and comes when every kind has been listed: a Service never appears without its
//! endpoints. While the consumer is busy, changes of one Service are merged.

mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
pub use plimsoll_serve::discovery::BATCH_INTERVAL;
use plimsoll_serve::discovery::{SourceClock, SourceStatus, SourceTasks, due_permit};
use plimsoll_serve::http_client::with_query;
use tokio::sync::mpsc;

use crate::access::ApiAccess;
use crate::inventory::{DiscoveredService, Inventory, InventoryOptions};
use crate::log_lines;
use crate::objects::{
    EndpointSlice, ObjectKey, Resource, SERVICE_NAME_LABEL, Service, ZoneRoutingPolicy,
};
use crate::reflector::{Change, RemovalGuard};

use watch::Mirror;

/// Messages of reflectors that wait for the inventory.
const QUEUE: usize = 16;

/// What is watched, and how.
#[derive(Clone, Debug)]
pub struct SourceOptions {
    pub access: ApiAccess,
    /// Namespaces to watch; all if empty.
    pub namespaces: Vec<String>,
    /// Label selector of Services, such as `team=shop`.
    pub label_selector: Option<String>,
    pub inventory: InventoryOptions,
    pub guard: RemovalGuard,
    /// `timeoutSeconds` of watches; half-open connections are found after it.
    pub watch_timeout: Duration,
    /// Time beyond `watch_timeout` after which a watch that is still open is closed.
    pub watch_grace: Duration,
}

impl Default for SourceOptions {
    fn default() -> Self {
        Self {
            access: ApiAccess::default(),
            namespaces: Vec::new(),
            label_selector: None,
            inventory: InventoryOptions::default(),
            guard: RemovalGuard::default(),
            watch_timeout: Duration::from_secs(120),
            watch_grace: Duration::from_secs(10),
        }
    }
}

/// Services that changed since the batch before.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Whether this is the first batch, with all Services.
    pub is_complete: bool,
    /// `None` for Services that are gone or ignored.
    pub services: BTreeMap<ObjectKey, Option<DiscoveredService>>,
    /// Policies that exist, if one of them changed.
    pub policies: Option<Vec<Arc<ZoneRoutingPolicy>>>,
}

/// A running source; dropping it stops its tasks.
pub type Source = plimsoll_serve::discovery::Source<Batch>;

/// Starts to mirror the cluster.
pub fn start(options: &SourceOptions) -> Source {
    let tasks = SourceTasks::default();
    let clock = SourceClock::default();
    let status = Arc::new(SourceStatus::new(clock));
    let (updates, received) = mpsc::channel(QUEUE);
    let all = [String::new()];
    let namespaces = if options.namespaces.is_empty() {
        &all[..]
    } else {
        &options.namespaces
    };
    let mut expected = 0;
    for namespace in namespaces {
        let mirror = |selector: Option<String>| MirrorParts {
            options: options.clone(),
            namespace: namespace.clone(),
            selector,
            updates: updates.clone(),
            status: Arc::clone(&status),
            clock,
        };
        let own_services = options.label_selector.clone();
        Mirror::<Service>::spawn(&tasks, mirror(own_services), Update::Services);
        // Slices without this label belong to no Service.
        let of_services = Some(SERVICE_NAME_LABEL.to_owned());
        Mirror::<EndpointSlice>::spawn(&tasks, mirror(of_services), Update::Slices);
        Mirror::<ZoneRoutingPolicy>::spawn(&tasks, mirror(None), Update::Policies);
        expected += 3;
    }
    let join = Join {
        inventory: Inventory::new(options.inventory.clone()),
        updates: received,
        clock,
        unsynced: expected,
        policies_changed: false,
    };
    Source::start(tasks, status, |batches| join.run(batches))
}

/// What a mirror needs to run.
struct MirrorParts {
    options: SourceOptions,
    /// Empty for all namespaces.
    namespace: String,
    selector: Option<String>,
    updates: mpsc::Sender<Update>,
    status: Arc<SourceStatus>,
    clock: SourceClock,
}

/// All changes of one page or event: they take effect together.
enum Update {
    Services(Changes<Service>),
    Slices(Changes<EndpointSlice>),
    Policies(Changes<ZoneRoutingPolicy>),
}

struct Changes<T> {
    changes: Vec<Change<T>>,
    /// Whether the kind has now been listed for the first time.
    first_sync: bool,
}

struct Join {
    inventory: Inventory,
    updates: mpsc::Receiver<Update>,
    clock: SourceClock,
    /// Kinds and namespaces that have not been listed.
    unsynced: usize,
    policies_changed: bool,
}

impl Join {
    async fn run(mut self, batches: mpsc::Sender<Batch>) {
        let mut is_first = true;
        let mut next_batch = tokio::time::Instant::now();
        loop {
            let has_changed = self.inventory.has_changed() || self.policies_changed;
            let is_due = self.unsynced == 0 && (has_changed || is_first);
            let deadline = self.inventory.poll_timeout();
            tokio::select! {
                biased;
                permit = due_permit(&batches, next_batch), if is_due => {
                    let Ok(permit) = permit else { return };
                    let batch = take(&mut self.inventory, &mut self.policies_changed, is_first);
                    if is_first {
                        let services = batch.services.values().flatten().count();
                        log_line!(log_lines::SYNCED, services);
                    }
                    is_first = false;
                    permit.send(batch);
                    next_batch = tokio::time::Instant::now() + BATCH_INTERVAL;
                }
                update = self.updates.recv() => match update {
                    Some(update) => self.handle(update),
                    None => return,
                },
                () = self.clock.sleep_until(deadline) => {
                    self.inventory.handle_timeout(self.clock.now());
                }
            }
        }
    }

    fn handle(&mut self, update: Update) {
        let now = self.clock.now();
        let first_sync = match update {
            Update::Services(update) => {
                let changes = update.changes.into_iter();
                changes.for_each(|change| self.inventory.handle_service(change, now));
                update.first_sync
            }
            Update::Slices(update) => {
                let changes = update.changes.into_iter();
                changes.for_each(|change| self.inventory.handle_slice(change, now));
                update.first_sync
            }
            Update::Policies(update) => {
                self.policies_changed |= !update.changes.is_empty();
                let changes = update.changes.into_iter();
                changes.for_each(|change| self.inventory.handle_policy(change));
                update.first_sync
            }
        };
        self.unsynced -= usize::from(first_sync);
    }
}

fn take(inventory: &mut Inventory, policies_changed: &mut bool, is_complete: bool) -> Batch {
    let mut batch = Batch {
        is_complete,
        ..Batch::default()
    };
    while let Some((key, service)) = inventory.poll_changed() {
        batch.services.insert(key, service);
    }
    if std::mem::take(policies_changed) {
        batch.policies = Some(inventory.policies().cloned().collect());
    }
    batch
}

/// Path and query of a request for the objects of a kind.
fn target<T: Resource>(namespace: &str, query: &[(&str, &str)]) -> String {
    let mut target = String::from(T::API);
    if !namespace.is_empty() {
        target += "/namespaces/";
        target += namespace;
    }
    target += "/";
    target += T::PLURAL;
    with_query(&target, query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_percent_encoded() {
        assert_eq!(target::<Service>("", &[]), "/api/v1/services");
        let query = [
            ("labelSelector", "app in (a, b),team=x/y"),
            ("limit", "500"),
        ];
        assert_eq!(
            target::<EndpointSlice>("shop", &query),
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=\
             app%20in%20%28a%2C%20b%29%2Cteam%3Dx%2Fy&limit=500"
        );
    }
}
