//! [`wait_for_host`]: what a call does that has no host yet: it waits for the first endpoints, and
//! for circuit breakers that calls which waited for endpoints have filled.
//!
//! `destination` picks; `call` and `service::layer` come here only if that gave no host.

use std::pin::pin;
use std::sync::Arc;

use plimsoll_xds::upstream::UpstreamOptions;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::cluster::initial_fetch::{INITIAL_FETCH_TIMEOUT, until};
use crate::error::Error;
use crate::request::destination::{self, Destination, Pick};
use crate::upstream::waiting::CLAIM_TIME;

/// Where a call goes. Both change if the fallback cluster takes over.
pub(crate) struct Receiver<'a> {
    pub(crate) cluster: &'a mut Arc<Cluster>,
    pub(crate) upstream: &'a mut Arc<UpstreamOptions>,
    /// Whether the call has waited for discovery, so that an open breaker makes it wait.
    pub(crate) waited: &'a mut bool,
    /// When the call first waited for a circuit breaker: all its waits together have one limit.
    pub(crate) waits_since: &'a mut Option<Instant>,
}

/// Waits until `repick` finds a host. Fails with an error of the kind
/// [`Overflow`](crate::ErrorKind::Overflow) if a circuit breaker is open for another reason than
/// discovery, or for longer than the initial fetch may take.
pub(crate) async fn wait_for_host(
    to: Receiver<'_>,
    mut pick: Pick,
    repick: impl Fn(&Cluster, &UpstreamOptions) -> Result<Pick, Error>,
) -> Result<Destination, Error> {
    loop {
        pick = match pick {
            Pick::Host(destination) => return Ok(destination),
            Pick::NoEndpoints => {
                *to.waited |= !to.cluster.initial_fetch_ended();
                if let Some(fallback) = to.cluster.ready_or_fallback().await? {
                    *to.upstream = fallback.options.load_full();
                    *to.cluster = fallback;
                }
                repick(to.cluster, to.upstream)?
            }
            Pick::Full(refused) => {
                let since = *to.waits_since.get_or_insert_with(Instant::now);
                let waited = *to.waited;
                let found =
                    wait_in_backlog(to.cluster, to.upstream, waited, since, &repick).await?;
                // Calls that may wait once may wait again, if another breaker is open.
                *to.waited |= found.is_some();
                found.ok_or_else(|| refuse(to.cluster, to.upstream, refused))?
            }
        };
    }
}

/// Waits behind other calls until the circuit breakers are closed; `None` if the call may not wait,
/// or not any longer. `since` is when it first did.
async fn wait_in_backlog(
    cluster: &Cluster,
    upstream: &UpstreamOptions,
    waited: bool,
    since: Instant,
    repick: impl Fn(&Cluster, &UpstreamOptions) -> Result<Pick, Error>,
) -> Result<Option<Pick>, Error> {
    let (backlog, breakers) = (&cluster.limits.backlog, &upstream.circuit_breakers);
    // With a limit of 0, nothing that ends makes room.
    if breakers.max_requests == 0 || breakers.max_pending_requests == 0 {
        return Ok(None);
    }
    let window = cluster.initial_fetch.timeout;
    let joined = if waited {
        Some(backlog.join(window.unwrap_or(INITIAL_FETCH_TIMEOUT)))
    } else {
        backlog.join_late(breakers.max_pending_requests)
    };
    let Some(call) = joined else {
        return Ok(None);
    };
    let deadline = cluster.initial_fetch.deadline_of(since);
    let mut released = pin!(call.released());
    loop {
        // What ends after this line ends the wait below.
        released.as_mut().enable();
        // Checked here, because a request that waits for a connection finds out too late.
        let has_connections = cluster.limits.pending() < u64::from(breakers.max_pending_requests);
        if has_connections {
            match repick(cluster, upstream)? {
                Pick::Full(_) => {}
                found => return Ok(Some(found)),
            }
        }
        // A call that was woken may be held without being polled, or may have been dropped.
        let woken = tokio::time::timeout(CLAIM_TIME, released.as_mut());
        match until(deadline, woken).await {
            None => return Ok(None),
            Some(Ok(())) => released.set(call.released()),
            Some(Err(_)) => {}
        }
    }
}

/// Counts a request that an open circuit breaker refuses, with the error of the breaker if a host
/// has returned one.
#[cold]
fn refuse(cluster: &Cluster, upstream: &UpstreamOptions, refused: Option<Error>) -> Error {
    let stats = &cluster.limits.stats;
    stats.upstream_rq_pending_overflow.increment();
    cluster.load.record_drop();
    refused.unwrap_or_else(|| destination::overflow(cluster, upstream))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use plimsoll_core::picker::PickArgs;

    use super::*;
    use crate::error::ErrorKind;

    fn pick_any(cluster: &Cluster, upstream: &UpstreamOptions) -> Result<Pick, Error> {
        let picker = &mut cluster.checkout_picker();
        destination::pick(cluster, picker, upstream, PickArgs::default())
    }

    async fn wait(
        cluster: &Arc<Cluster>,
        upstream: &UpstreamOptions,
        waited: bool,
    ) -> Result<Destination, Error> {
        wait_since(cluster, upstream, waited, &mut None).await
    }

    async fn wait_since(
        cluster: &Arc<Cluster>,
        upstream: &UpstreamOptions,
        waited: bool,
        waits_since: &mut Option<Instant>,
    ) -> Result<Destination, Error> {
        let to = Receiver {
            cluster: &mut Arc::clone(cluster),
            upstream: &mut Arc::new(upstream.clone()),
            waited: &mut { waited },
            waits_since,
        };
        let first = pick_any(cluster, upstream)?;
        wait_for_host(to, first, pick_any).await
    }

    /// A host may refuse a call that has waited, which then waits again.
    #[tokio::test(start_paused = true)]
    async fn all_waits_of_a_call_together_are_not_longer_than_discovery() {
        let orders = crate::Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let builder = crate::Client::builder().cluster(orders).seed(1);
        let client = builder.build().unwrap();
        let cluster = client.find("orders").unwrap();
        let mut upstream = UpstreamOptions::default();
        upstream.circuit_breakers.max_requests = 1;
        let host = wait(&cluster, &upstream, false).await.unwrap().host;
        let active = host.begin_request();
        let started = Instant::now();
        let mut since = None;
        let mut first = Box::pin(wait_since(&cluster, &upstream, true, &mut since));
        assert!((&mut first).now_or_never().is_none());
        tokio::time::advance(Duration::from_secs(10)).await;
        drop(active);
        cluster.limits.backlog.notify();
        let active = first.await.unwrap().host.begin_request();
        let again = wait_since(&cluster, &upstream, true, &mut since).await;
        assert_eq!(again.unwrap_err().kind(), ErrorKind::Overflow);
        assert_eq!(started.elapsed().as_secs(), 15);
        drop(active);
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_breaker_is_waited_for_after_discovery_only_and_not_longer_than_discovery() {
        let orders = crate::Cluster::new("orders").endpoints(["127.0.0.1:1"]);
        let builder = crate::Client::builder().cluster(orders).seed(1);
        let client = builder.build().unwrap();
        let cluster = client.find("orders").unwrap();
        let mut upstream = UpstreamOptions::default();
        upstream.circuit_breakers.max_requests = 1;
        let host = wait(&cluster, &upstream, false).await.unwrap().host;
        let active = host.begin_request();
        let overflow = &cluster.limits.stats.upstream_rq_pending_overflow;
        let started = Instant::now();
        let refused = |result: Result<Destination, Error>| {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::Overflow);
            (overflow.get(), started.elapsed().as_secs())
        };
        assert_eq!(refused(wait(&cluster, &upstream, false).await), (1, 0));
        assert_eq!(refused(wait(&cluster, &upstream, true).await), (2, 15));
        let mut first = Box::pin(wait(&cluster, &upstream, true));
        assert!((&mut first).now_or_never().is_none());
        // A later call waits behind it.
        let mut later = Box::pin(wait(&cluster, &upstream, false));
        assert!((&mut later).now_or_never().is_none());
        drop(active);
        cluster.limits.backlog.notify();
        let sent = first.await.unwrap().host.begin_request();
        assert!((&mut later).now_or_never().is_none());
        // Not notified, as when the future of a request is dropped.
        drop(sent);
        let before = Instant::now();
        later.await.unwrap();
        assert!(before.elapsed() <= CLAIM_TIME + Duration::from_millis(1));
        assert_eq!(overflow.get(), 2, "waiting counts nothing");
        // Nothing that ends makes room.
        upstream.circuit_breakers.max_requests = 0;
        let started = Instant::now();
        assert!(wait(&cluster, &upstream, true).await.is_err());
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}
