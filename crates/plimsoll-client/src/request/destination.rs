//! [`Destination`]: the host that one attempt of a request is sent to, with its connections.
//!
//! Checks the circuit breaker, asks the core's picker, and picks again if the picked host is in
//! connect backoff. `admission` waits if there is no host yet.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use plimsoll_core::host::Host;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::picker::{PickArgs, PickError, PickResult};
use plimsoll_xds::upstream::UpstreamOptions;

use crate::cluster::{Cluster, HostPicker};
use crate::error::{Error, ErrorKind};
use crate::upstream::connection::ConnectionLimits;
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

#[derive(Debug)]
pub(crate) enum Pick {
    Host(Destination),
    /// The cluster has not received its first endpoints.
    NoEndpoints,
    /// A circuit breaker is open. Has the error of the host that refused the request, if it was
    /// `max_pending_requests`.
    Full(Option<Error>),
}

#[cfg(test)]
impl Pick {
    pub(crate) fn host(self) -> Option<Destination> {
        match self {
            Self::Host(destination) => Some(destination),
            Self::NoEndpoints | Self::Full(_) => None,
        }
    }
}

/// Picks the host of an attempt. Counts nothing: the caller may wait.
pub(crate) fn pick(
    cluster: &Cluster,
    picker: &mut HostPicker,
    upstream: &UpstreamOptions,
    args: PickArgs<'_>,
) -> Result<Pick, Error> {
    if let Err(error) = cluster.initial_fetch.lifecycle.check_sending() {
        return Err(error.with_cluster(&cluster.name));
    }
    if cluster.load.active() >= u64::from(upstream.circuit_breakers.max_requests) {
        return Ok(Pick::Full(None));
    }
    Ok(match choose(cluster, picker, args)? {
        Some(first) if first.endpoint.is_in_backoff() => {
            Pick::Host(repick(cluster, picker, args, first))
        }
        Some(chosen) => Pick::Host(chosen),
        None => Pick::NoEndpoints,
    })
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

/// Error of a request beyond `max_requests`.
#[cold]
pub(crate) fn overflow(cluster: &Cluster, upstream: &UpstreamOptions) -> Error {
    let breaker = OpenBreaker {
        name: "max_requests",
        current: cluster.load.active(),
        limit: upstream.circuit_breakers.max_requests,
    };
    let name = &cluster.name;
    breaker.error(name, &cluster.limits).with_cluster(name)
}

/// A circuit breaker that refuses a request.
pub(crate) struct OpenBreaker {
    pub(crate) name: &'static str,
    pub(crate) current: u64,
    pub(crate) limit: u32,
}

impl OpenBreaker {
    /// Names the setting that raises the limit.
    #[cold]
    pub(crate) fn error(&self, cluster: &str, limits: &ConnectionLimits) -> Error {
        let Self {
            name,
            current,
            limit,
        } = self;
        let raise = if limits.added_via_api.load(Ordering::Relaxed) {
            format!("raise {name} in circuit_breakers of the cluster on the management server")
        } else {
            format!("raise it with Cluster::{name}")
        };
        let message = format!(
            "circuit breaker {name} of cluster {cluster} is open: {current} of {limit}; {raise}"
        );
        Error::new(ErrorKind::Overflow, message)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Client, Endpoint as Listed};

    /// Three hosts of zone a, one of zone b, and one of zone a with priority 1.
    fn cluster() -> (Client, Arc<Cluster>) {
        let spare = Listed::from("127.0.0.1:5").priority(1);
        let orders = crate::Cluster::new("orders")
            .zone("a", ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"])
            .zone("b", ["127.0.0.1:4"])
            .zone("a", [spare]);
        let builder = Client::builder().cluster(orders).seed(1);
        let client = builder.build().unwrap();
        let cluster = client.find("orders").unwrap();
        (client, cluster)
    }

    fn hosts(picker: &mut HostPicker) -> Vec<Arc<Host>> {
        picker.snapshot().routing().hosts().cloned().collect()
    }

    fn ports(hosts: &[Arc<Host>]) -> Vec<u16> {
        let mut ports: Vec<u16> = hosts.iter().map(|host| host.address().port()).collect();
        ports.sort_unstable();
        ports
    }

    #[tokio::test]
    async fn two_unreachable_hosts_make_their_zone_unreachable() {
        let (_client, cluster) = cluster();
        let mut picker = cluster.checkout_picker();
        let all = hosts(&mut picker);
        let host = |port: u16| {
            let mut found = all.iter().filter(|host| host.address().port() == port);
            found.next().unwrap()
        };
        let mut avoid = Vec::new();
        avoid_unreachable(&mut avoid, host(1), &mut picker);
        assert_eq!(ports(&avoid), [1]);
        avoid_unreachable(&mut avoid, host(4), &mut picker);
        assert_eq!(ports(&avoid), [1, 4], "of different zones");
        avoid_unreachable(&mut avoid, host(3), &mut picker);
        assert_eq!(ports(&avoid), [1, 2, 3, 4, 5]);
    }

    #[tokio::test]
    async fn priorities_are_avoided_once_a_host_of_them_was_tried() {
        let (_client, cluster) = cluster();
        let mut picker = cluster.checkout_picker();
        let first = pick(
            &cluster,
            &mut picker,
            &cluster.options.load(),
            PickArgs::default(),
        );
        let mut avoid = vec![first.unwrap().host().unwrap().host];
        assert!(avoid_priorities(&mut avoid, &mut picker));
        let avoided: std::collections::BTreeSet<u16> = ports(&avoid).into_iter().collect();
        assert_eq!(avoided, [1, 2, 3, 4].into());
    }

    #[tokio::test]
    async fn an_open_circuit_breaker_names_the_setting_that_raises_it() {
        let (_client, cluster) = cluster();
        let mut picker = cluster.checkout_picker();
        let mut options = UpstreamOptions::default();
        options.circuit_breakers.max_requests = 2;
        let args = PickArgs::default();
        let mut active = Vec::new();
        for _ in 0..2 {
            let picked = pick(&cluster, &mut picker, &options, args).unwrap();
            active.push(picked.host().unwrap().host.begin_request());
        }
        let full = pick(&cluster, &mut picker, &options, args).unwrap();
        assert!(matches!(full, Pick::Full(None)), "{full:?}");
        let error = overflow(&cluster, &options);
        assert_eq!(error.kind(), ErrorKind::Overflow);
        assert_eq!(error.cluster(), Some("orders"));
        let start = "circuit breaker max_requests of cluster orders is open: 2 of 2; ";
        let own = format!("{start}raise it with Cluster::max_requests");
        assert_eq!(error.to_string(), own);
        (cluster.limits.added_via_api).store(true, Ordering::Relaxed);
        assert_eq!(
            overflow(&cluster, &options).to_string(),
            format!(
                "{start}raise max_requests in circuit_breakers of the cluster on the management \
                 server"
            )
        );
        active.pop();
        let picked = pick(&cluster, &mut picker, &options, args).unwrap();
        assert!(picked.host().is_some());
    }

    #[tokio::test]
    async fn a_problem_of_the_cluster_explains_why_there_is_no_host() {
        let (_client, cluster) = cluster();
        let text = |error| no_host(&cluster, error).to_string();
        let plain = format!("cluster orders: {}", PickError::NoHost);
        assert_eq!(text(PickError::NoHost), plain);
        cluster.set_problem(Some("DNS fails".to_owned()));
        assert_eq!(text(PickError::NoHost), format!("{plain}; DNS fails"));
        for other in [PickError::NoSubset, PickError::Panic] {
            assert_eq!(text(other), format!("cluster orders: {other}"));
        }
        assert_eq!(
            no_host(&cluster, PickError::NoHost).kind(),
            ErrorKind::NoHost
        );
    }
}
