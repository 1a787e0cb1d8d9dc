//! The load balancer of one thread of Envoy: picks hosts, and on the main thread passes the hosts
//! of the cluster to the engine.
//!
//! Envoy updates its threads one after another, so a thread may know other hosts than the engine
//! for a moment. A pick that is not healthy on its own thread is repeated; if that does not help,
//! any healthy host of the thread is better than an error. A request that the engine refuses on
//! purpose (`fail_traffic_on_panic`, `force_local_zone` with `min_size: 0`) fails.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

use plimsoll_core::host::Host;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::picker::{PickArgs, PickError, PickResult, Picker};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::ConfigError;

use crate::attempt;
use crate::cluster::Cluster;
use crate::config::ModuleConfig;
use crate::host_sets::{HostSets, assignment};
use crate::host_table::{HostTable, Slot};
use crate::log::{self, Level};
use crate::metrics::{PickMetrics, Written};
use crate::process::Process;

/// `lb_policy_name` of the policy.
const POLICY: &str = "plimsoll";
/// `lb_policy_name` of a policy whose picks panic.
#[cfg(feature = "faults")]
const PANICKING_POLICY: &str = "plimsoll.panic";
/// Picks of hosts that the thread does not have before any healthy host is taken.
const MISSES: u32 = 8;

/// The request that a host is chosen for.
pub trait Request {
    /// Hash from the route's hash policy.
    fn hash(&self) -> Option<u64>;
    /// How often a host may be rejected.
    fn reselections(&self) -> u32;
    /// Whether a retry predicate rejects the host with this index in the list of all hosts.
    fn rejects(&self, priority: u32, index: usize) -> bool;
}

/// Configuration of one cluster, from which Envoy creates a load balancer per thread.
#[derive(Debug)]
pub struct PolicyConfig {
    config: ModuleConfig,
    /// The thread that reads configurations: Envoy's main thread.
    main_thread: ThreadId,
    validate_only: bool,
    panics: bool,
    cluster: Mutex<Option<Arc<Cluster>>>,
    metrics: Option<Arc<PickMetrics>>,
}

impl PolicyConfig {
    /// Reads the configuration. To be called on the main thread.
    pub fn parse(name: &[u8], text: &[u8], validate_only: bool) -> Result<Self, ConfigError> {
        let name = String::from_utf8_lossy(name);
        let panics = is_panicking_policy(&name);
        if name != POLICY && !panics {
            let reason = format!("unknown policy {name:?}, expected {POLICY:?}");
            return Err(ConfigError::new("lb_policy_name", reason));
        }
        let text = std::str::from_utf8(text)
            .map_err(|error| ConfigError::new("lb_policy_config", error.to_string()))?;
        let config = ModuleConfig::parse(text)?;
        if !validate_only {
            // Clusters of the control plane may be created before this one.
            Process::global().identity(config.identity.as_ref());
        }
        Ok(Self {
            config,
            main_thread: thread::current().id(),
            validate_only,
            panics,
            cluster: Mutex::default(),
            metrics: None,
        })
    }

    /// Sets the metrics that load balancers write.
    pub fn set_metrics(&mut self, metrics: PickMetrics) {
        self.metrics = Some(Arc::new(metrics));
    }

    /// Returns the cluster of this configuration; the first load balancer creates it.
    fn cluster(&self, name: &str, process: &'static Process) -> Result<Arc<Cluster>, FieldError> {
        let mut created = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = &*created {
            return Ok(Arc::clone(cluster));
        }
        let identity = process.identity(self.config.identity.as_ref());
        let cluster = Arc::new(Cluster::new(
            self.config.cluster(name)?,
            identity.locality.clone(),
            identity.local_cluster_name.clone(),
            process.now(),
        ));
        process.add(&cluster);
        let format = self.config.endpoint_load_metrics_format;
        process.report_formats().set(&cluster, format);
        if !self.validate_only {
            process.start_timers();
            process.start_oob(&cluster);
            if let Some(address) = self.config.admin_address {
                process.start_explaining(address);
            }
            if let Some(server) = &identity.management_server {
                process.connect(&cluster, server);
            }
        }
        *created = Some(Arc::clone(&cluster));
        Ok(cluster)
    }
}

/// Whether a policy needs requests in flight, their latency or outcome, which only filters see.
fn counts_requests(config: &ClusterConfig) -> bool {
    let basis = config.zone_aware().map(ZoneAware::locality_basis);
    let hashing = config.endpoint_policy().consistent_hashing();
    basis == Some(LocalityBasis::ObservedLoad)
        || config.load_aware_locality().is_some()
        || hashing.is_some_and(|hashing| hashing.hash_balance_factor().is_some())
}

#[cfg(feature = "faults")]
fn is_panicking_policy(name: &str) -> bool {
    name == PANICKING_POLICY
}

#[cfg(not(feature = "faults"))]
const fn is_panicking_policy(_: &str) -> bool {
    false
}

/// Whether `force_local_zone` asks to fail requests rather than let them leave the zone.
fn stays_in_zone(config: &ClusterConfig) -> bool {
    let needed = config.zone_aware().and_then(ZoneAware::force_local_zone);
    needed == Some(0)
}

/// What the engine decided for one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Picked {
    Host(Slot),
    /// The settings ask for an error.
    Refused,
    /// No host that Envoy would accept from this thread: it knows other hosts than the engine, or
    /// the engine picked hosts that are not healthy.
    Unusable,
}

/// Picks hosts on one thread.
#[derive(Debug)]
pub struct LoadBalancer {
    cluster: Arc<Cluster>,
    process: &'static Process,
    picker: Picker,
    table: HostTable,
    /// The table does not show the newest membership update.
    stale: bool,
    feeds_engine: bool,
    panics: bool,
    uses_hash: bool,
    uses_active_requests: bool,
    /// The engine counts requests, which the upstream filter ends.
    counts_requests: bool,
    /// Requests fail when their zone has no healthy host.
    stays_in_zone: bool,
    metrics: Option<Arc<PickMetrics>>,
    written: Written,
}

impl LoadBalancer {
    /// Creates the load balancer of the calling thread.
    pub fn new(config: &PolicyConfig, cluster: &str) -> Result<Self, FieldError> {
        let process = Process::global();
        let cluster = config.cluster(cluster, process)?;
        let policy = cluster.config().endpoint_policy();
        Ok(Self {
            process,
            picker: cluster.picker(),
            table: HostTable::default(),
            stale: true,
            feeds_engine: thread::current().id() == config.main_thread,
            panics: config.panics,
            uses_hash: policy.is_hash(),
            uses_active_requests: matches!(policy, EndpointPolicy::LeastRequest(_)),
            counts_requests: counts_requests(cluster.config()),
            stays_in_zone: stays_in_zone(cluster.config()),
            metrics: config.metrics.clone(),
            written: Written::default(),
            cluster,
        })
    }

    /// Handles a change of the hosts, their health, weights or metadata.
    pub fn handle_membership(&mut self, hosts: &impl HostSets) {
        self.stale = true;
        if !self.feeds_engine {
            return;
        }
        match assignment(hosts, self.cluster.name()) {
            Ok(assignment) => self.process.handle_hosts(&self.cluster, assignment),
            Err(error) => {
                let name = self.cluster.name();
                let line = format!("plimsoll: hosts of {name} are not applied: {error}");
                log::write(Level::Error, &line);
            }
        }
    }

    /// Chooses a healthy host; `None` if this thread has none.
    pub fn choose_host(&mut self, hosts: &impl HostSets, request: &impl Request) -> Option<Slot> {
        #[expect(clippy::panic, reason = "a policy for tests, behind a Cargo feature")]
        if self.panics {
            panic!("this policy panics on purpose");
        }
        if std::mem::take(&mut self.stale) {
            self.table.rebuild(hosts);
        }
        self.write_metrics();
        attempt::set_picked(None);
        match self.pick(hosts, request) {
            Picked::Host(slot) => Some(slot),
            Picked::Refused => None,
            Picked::Unusable => self.table.any(),
        }
    }

    #[inline]
    fn write_metrics(&mut self) {
        let tick = self.process.tick();
        if self.written.is_due(tick)
            && let Some(metrics) = &self.metrics
        {
            let (stats, values) = (self.picker.stats(), self.cluster.tick_values());
            let name = self.cluster.name();
            self.written.write(metrics, stats, &values, name, tick);
        }
    }

    fn pick(&mut self, hosts: &impl HostSets, request: &impl Request) -> Picked {
        let Self { picker, table, .. } = self;
        let active = |host: &Host| {
            let slot = table.get(host.address());
            slot.map_or(0, |slot| hosts.active_requests(slot.priority, slot.index))
        };
        let hash = self.uses_hash.then(|| request.hash()).flatten();
        let (mut reselections, mut misses) = (request.reselections(), MISSES);
        let mut tried: Vec<Arc<Host>> = Vec::new();
        loop {
            let args = PickArgs {
                hash,
                avoid: &tried,
                ..Default::default()
            };
            let picked = if self.uses_active_requests {
                picker.pick_with_active_requests(args, &active)
            } else {
                picker.pick(args)
            };
            let host = match picked {
                PickResult::Complete(pick) => pick.host,
                PickResult::Fail(PickError::Panic) => return Picked::Refused,
                PickResult::Fail(_) if self.stays_in_zone => return Picked::Refused,
                PickResult::Fail(_) | PickResult::Drop { .. } | PickResult::Queue => {
                    return Picked::Unusable;
                }
            };
            match table.get(host.address()) {
                Some(slot) => {
                    if reselections == 0 || !request.rejects(slot.priority, slot.index) {
                        if self.counts_requests {
                            attempt::set_picked(Some(Arc::clone(host)));
                        }
                        return Picked::Host(slot);
                    }
                    reselections -= 1;
                }
                None if misses == 0 => return Picked::Unusable,
                None => misses -= 1,
            }
            tried.push(Arc::clone(host));
        }
    }
}

#[cfg(test)]
mod tests;
