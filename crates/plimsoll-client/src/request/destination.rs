//! [`Destination`]: the host that one attempt of a request is sent to, with its connections.
//!
//! Checks the circuit breaker, asks the core's picker, and picks again if the picked host is in
//! connect backoff.

use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::picker::{PickArgs, PickError, PickResult};
use plimsoll_xds::upstream::UpstreamOptions;

use crate::cluster::{Cluster, HostPicker};
use crate::error::{Error, ErrorKind};
use crate::upstream::endpoint::Endpoint;

/// Maximum number of picks to find a host that is not in backoff; then one in backoff is used.
const MAX_REPICKS: usize = 8;
/// Unreachable hosts in a locality after which the whole locality is avoided.
const UNREACHABLE_HOSTS: usize = 2;

#[derive(Debug)]
pub(crate) struct Destination {
    pub(crate) host: Arc<Host>,
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) source: HostSource,
}

/// Picks the host of an attempt; `None` before the cluster has received its first endpoints.
pub(crate) fn pick(
    cluster: &Cluster,
    picker: &mut HostPicker,
    upstream: &UpstreamOptions,
    args: PickArgs<'_>,
) -> Result<Option<Destination>, Error> {
    let limit = upstream.circuit_breakers.max_requests;
    if cluster.load.active() >= u64::from(limit) {
        cluster.load.record_drop();
        return Err(overflow(cluster, limit));
    }
    match choose(cluster, picker, args)? {
        Some(first) if first.endpoint.is_in_backoff() => {
            Ok(Some(repick(cluster, picker, args, first)))
        }
        chosen => Ok(chosen),
    }
}

/// Avoids `host`, and all hosts of its locality once [`UNREACHABLE_HOSTS`] there were unreachable.
pub(crate) fn avoid_unreachable(
    avoid: &mut Vec<Arc<Host>>,
    host: &Arc<Host>,
    picker: &mut HostPicker,
) {
    let here = |other: &&Arc<Host>| other.locality() == host.locality();
    avoid.push(Arc::clone(host));
    if avoid.iter().filter(here).count() >= UNREACHABLE_HOSTS {
        let routing = picker.snapshot().routing();
        let is_new = |host: &&Arc<Host>| !avoid.iter().any(|other| Arc::ptr_eq(other, host));
        let more: Vec<_> = routing
            .hosts()
            .filter(here)
            .filter(is_new)
            .cloned()
            .collect();
        avoid.extend(more);
    }
}

/// Avoids the priorities of the unreachable hosts. Returns whether another priority has hosts.
pub(crate) fn avoid_priorities(avoid: &mut Vec<Arc<Host>>, picker: &mut HostPicker) -> bool {
    let more = picker.snapshot().routing().hosts_of_tried_priorities(avoid);
    let found = more.is_some();
    avoid.extend(more.into_iter().flatten());
    found
}

fn choose(
    cluster: &Cluster,
    picker: &mut HostPicker,
    args: PickArgs<'_>,
) -> Result<Option<Destination>, Error> {
    let (snapshot, result) = picker.pick_with_snapshot(args);
    match result {
        PickResult::Complete(pick) => {
            let endpoint = snapshot
                .attached(pick.host)
                .ok_or_else(|| no_host(cluster, PickError::NoHost))?;
            Ok(Some(Destination {
                host: Arc::clone(pick.host),
                endpoint: Arc::clone(endpoint),
                source: pick.source,
            }))
        }
        PickResult::Queue => Ok(None),
        PickResult::Drop { category } => {
            let message = format!(
                "cluster {}: dropped by drop_overloads ({category})",
                cluster.name
            );
            Err(Error::new(ErrorKind::Dropped, message).with_cluster(&cluster.name))
        }
        PickResult::Fail(error) => Err(no_host(cluster, error)),
    }
}

#[cold]
fn overflow(cluster: &Cluster, limit: u32) -> Error {
    let stats = &cluster.limits.stats;
    stats.upstream_rq_pending_overflow.increment();
    let name = &cluster.name;
    let active = cluster.load.active();
    circuit_breaker(name, "max_requests", active, limit).with_cluster(name)
}

/// Error of an open circuit breaker, which names the setting that raises its limit.
#[cold]
pub(crate) fn circuit_breaker(cluster: &str, breaker: &str, current: u64, limit: u32) -> Error {
    let message = format!(
        "circuit breaker {breaker} of cluster {cluster} is open: {current} of {limit}; \
         raise it with Cluster::{breaker}"
    );
    Error::new(ErrorKind::Overflow, message)
}

#[cold]
fn no_host(cluster: &Cluster, error: PickError) -> Error {
    let name = &cluster.name;
    let message = match cluster.problem().filter(|_| error == PickError::NoHost) {
        Some(problem) => format!("cluster {name}: {error}; {problem}"),
        None => format!("cluster {name}: {error}"),
    };
    Error::new(ErrorKind::NoHost, message).with_cluster(name)
}

/// Picks a host other than `first`, which is in backoff; returns `first` if there is none.
#[cold]
fn repick(
    cluster: &Cluster,
    picker: &mut HostPicker,
    args: PickArgs<'_>,
    first: Destination,
) -> Destination {
    let mut avoid = args.avoid.to_vec();
    let mut unreachable = Arc::clone(&first.host);
    for _ in 0..MAX_REPICKS {
        avoid_unreachable(&mut avoid, &unreachable, picker);
        let args = PickArgs {
            avoid: &avoid,
            ..args
        };
        match choose(cluster, picker, args) {
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
