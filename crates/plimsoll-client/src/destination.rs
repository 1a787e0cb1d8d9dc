//! [`Target`]: where one try of a request goes. Asks the breaker and the picker, finds the
//! connections, and steers around hosts that could not be reached a moment ago.
//!
//! Choosing is plimsoll-core's; what is said here is only whom to avoid.

use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::picker::{PickArgs, PickResult};
use plimsoll_xds::upstream::UpstreamOptions;

use crate::cluster::{Cluster, Worker};
use crate::endpoint::Endpoint;
use crate::error::{Error, ErrorKind};

/// Picks that steer around hosts in back-off, before one of them is tried all the same.
const DETOURS: usize = 8;
/// Hosts of one locality that could not be reached, after which all of it is avoided.
const UNREACHABLE: usize = 2;

/// Picks that may meet a host which was removed between two reads, each by another update.
const REPLACED: usize = 16;

/// Where a try goes.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) host: Arc<Host>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) config: Arc<ClusterConfig>,
    pub(crate) source: HostSource,
}

/// Where a request goes. `None` = no assignment yet.
pub(crate) fn pick(
    cluster: &Cluster,
    worker: &mut Worker,
    upstream: &UpstreamOptions,
    args: PickArgs<'_>,
) -> Result<Option<Target>, Error> {
    let limit = upstream.circuit_breakers.max_requests;
    if cluster.load.active() >= u64::from(limit) {
        cluster.load.record_drop();
        let stats = &cluster.limits.stats;
        stats.upstream_rq_pending_overflow.increment();
        let message = format!("cluster {}: {limit} requests in flight", cluster.name);
        return Err(Error::new(ErrorKind::Overflow, message));
    }
    match choose(cluster, worker, args)? {
        Some(target) if target.endpoint.is_in_backoff() => {
            Ok(Some(detour(cluster, worker, args, target)))
        }
        target => Ok(target),
    }
}

/// All hosts of the locality in which `host` is the last of several that cannot be reached; else
/// `host` alone. To be called with every such host, in order.
pub(crate) fn avoid_unreachable(avoid: &mut Vec<Arc<Host>>, host: &Arc<Host>, worker: &mut Worker) {
    let here = |other: &&Arc<Host>| other.locality() == host.locality();
    avoid.push(Arc::clone(host));
    if avoid.iter().filter(here).count() >= UNREACHABLE {
        let snapshot = worker.picker.snapshot();
        let known = |host: &&Arc<Host>| !avoid.iter().any(|known| Arc::ptr_eq(known, host));
        let more: Vec<_> = snapshot
            .hosts()
            .filter(here)
            .filter(known)
            .cloned()
            .collect();
        avoid.extend(more);
    }
}

/// All hosts of the priorities of those that cannot be reached. Whether there are hosts in others.
pub(crate) fn avoid_priorities(avoid: &mut Vec<Arc<Host>>, worker: &mut Worker) -> bool {
    let more = worker.picker.snapshot().priorities_of(avoid);
    let found = more.is_some();
    avoid.extend(more.into_iter().flatten());
    found
}

/// Endpoints are published before the snapshot that knows them, and removed after it: a pick whose
/// endpoint is gone was made from a snapshot that is no longer the newest, so the next one fits.
fn choose(
    cluster: &Cluster,
    worker: &mut Worker,
    args: PickArgs<'_>,
) -> Result<Option<Target>, Error> {
    for _ in 0..REPLACED {
        let (host, source) = match worker.picker.pick(args) {
            PickResult::Complete(pick) => (Arc::clone(pick.host), pick.source),
            PickResult::Queue => return Ok(None),
            PickResult::Drop { category } => {
                let message = format!("dropped by order of the assignment ({category})");
                return Err(Error::new(ErrorKind::Dropped, message));
            }
            PickResult::Fail(error) => {
                let message = format!("cluster {}: {error}", cluster.name);
                return Err(Error::new(ErrorKind::NoHost, message));
            }
        };
        if let Some(endpoint) = worker.endpoints.latest().get(&host.address()) {
            return Ok(Some(Target {
                endpoint: Arc::clone(endpoint),
                config: Arc::clone(worker.picker.snapshot().config()),
                host,
                source,
            }));
        }
    }
    let message = format!("cluster {}: hosts go faster than they come", cluster.name);
    Err(Error::new(ErrorKind::NoHost, message))
}

/// Another host than `first`, which could not be reached a moment ago; `first` if there is none.
/// Not a retry: nothing was tried.
#[cold]
fn detour(cluster: &Cluster, worker: &mut Worker, args: PickArgs<'_>, first: Target) -> Target {
    let mut avoid = args.avoid.to_vec();
    let mut unreachable = Arc::clone(&first.host);
    for _ in 0..DETOURS {
        avoid_unreachable(&mut avoid, &unreachable, worker);
        let args = PickArgs {
            avoid: &avoid,
            ..args
        };
        match choose(cluster, worker, args) {
            Ok(Some(other)) if !other.endpoint.is_in_backoff() => {
                let tried = avoid.iter().any(|tried| Arc::ptr_eq(tried, &other.host));
                return if tried { first } else { other };
            }
            Ok(Some(other)) => unreachable = other.host,
            _ => break,
        }
    }
    first
}
