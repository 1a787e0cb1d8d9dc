//! [`Source`]: tasks that mirror the objects of a cluster and return changed Services in batches.
//!
//! One task per kind and namespace drives a reflector; one task joins their changes in an
//! [`Inventory`] and publishes what changed, at most every [`BATCH_INTERVAL`]. The first batch has
//! all Services, and comes when every kind has been listed: a Service never appears without its
//! endpoints. While the consumer is busy, changes of one Service are merged.

mod watch;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_core::time::Instant;
use plimsoll_serve::CancellationToken;
use tokio::sync::mpsc;

use crate::access::ApiAccess;
use crate::inventory::{DiscoveredService, Inventory, InventoryOptions};
use crate::log_lines;
use crate::objects::{
    EndpointSlice, ObjectKey, Resource, SERVICE_NAME_LABEL, Service, ZoneRoutingPolicy,
};
use crate::reflector::{Change, RemovalGuard};
use crate::status::SourceStatus;

use watch::Mirror;

/// Shortest time between two batches. The first change after a quiet time is published at once; in
/// a rolling update, which changes slices many times per second, every batch costs each connected
/// proxy a comparison of all its resources.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(200);
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
#[derive(Debug)]
pub struct Source {
    batches: mpsc::Receiver<Batch>,
    status: Arc<SourceStatus>,
    stopping: CancellationToken,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.stopping.cancel();
    }
}

impl Source {
    /// Starts to mirror the cluster.
    pub fn start(options: &SourceOptions) -> Self {
        let stopping = CancellationToken::new();
        let clock = Clock::default();
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
                stopping: stopping.clone(),
            };
            let own_services = options.label_selector.clone();
            Mirror::<Service>::spawn(mirror(own_services), Update::Services);
            // Slices without this label belong to no Service.
            let of_services = Some(SERVICE_NAME_LABEL.to_owned());
            Mirror::<EndpointSlice>::spawn(mirror(of_services), Update::Slices);
            Mirror::<ZoneRoutingPolicy>::spawn(mirror(None), Update::Policies);
            expected += 3;
        }
        let (batches, received_batches) = mpsc::channel(1);
        let join = Join {
            inventory: Inventory::new(options.inventory.clone()),
            updates: received,
            clock,
            unsynced: expected,
            policies_changed: false,
        };
        let stopped = stopping.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stopped.cancelled() => {}
                () = join.run(batches) => {}
            }
        });
        Self {
            batches: received_batches,
            status,
            stopping,
        }
    }

    /// Returns the next batch; `None` when the source has ended.
    pub async fn next(&mut self) -> Option<Batch> {
        self.batches.recv().await
    }

    /// Returns the status, which is updated while the source runs.
    pub const fn status(&self) -> &Arc<SourceStatus> {
        &self.status
    }
}

/// What a mirror needs to run.
struct MirrorParts {
    options: SourceOptions,
    /// Empty for all namespaces.
    namespace: String,
    selector: Option<String>,
    updates: mpsc::Sender<Update>,
    status: Arc<SourceStatus>,
    clock: Clock,
    stopping: CancellationToken,
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
    clock: Clock,
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
                changes.for_each(|change| self.inventory.handle_service(change));
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

/// Waits until the next batch is due and the consumer has room for it.
async fn due_permit(
    batches: &mpsc::Sender<Batch>,
    due: tokio::time::Instant,
) -> Result<mpsc::Permit<'_, Batch>, mpsc::error::SendError<()>> {
    tokio::time::sleep_until(due).await;
    batches.reserve().await
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

/// Time since the start of the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(tokio::time::Instant);

impl Default for Clock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl Clock {
    pub(crate) fn now(self) -> Instant {
        let nanos = u64::try_from(self.0.elapsed().as_nanos());
        Instant::from_nanos(nanos.unwrap_or(u64::MAX))
    }

    /// Sleeps until `until`; never resolves if it is `None`.
    pub(crate) async fn sleep_until(self, until: Option<Instant>) {
        match until {
            Some(until) => {
                let at = self.0 + Duration::from_nanos(until.as_nanos());
                tokio::time::sleep_until(at).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Draws a random number. Each `RandomState` has random keys.
fn draw() -> u64 {
    RandomState::new().build_hasher().finish()
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
    let mut separator = '?';
    for (name, value) in query {
        target.push(separator);
        target += name;
        target.push('=');
        for byte in value.bytes() {
            match byte {
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    target.push(char::from(byte));
                }
                _ => target += &format!("%{byte:02X}"),
            }
        }
        separator = '&';
    }
    target
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
