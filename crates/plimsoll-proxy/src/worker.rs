//! [`Worker`]: what everything on one thread shares: services of clusters, draws, a coarse clock.
//!
//! A worker is one thread with a runtime of its own, so that a request never changes cores. Locks
//! here are never contended; they only tell the compiler so. Threads are started in `run`.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use plimsoll_client::{Client, ClusterService, Error, RequestOptions, ResponseBody};
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use tower_service::Service as _;

use crate::body::RequestStream;
use crate::router::{Forward, ForwardId, WeightedCluster};

/// Length of a tick: how exact timeouts of connections are.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// What everything on one thread shares.
pub(crate) struct Worker {
    pub(crate) index: usize,
    client: Client,
    /// Rises when other routes are put in force.
    route_epoch: Arc<AtomicU64>,
    ticks: AtomicU32,
    state: Mutex<State>,
}

struct State {
    /// By route, or entry of its weighted clusters, and cluster.
    services: HashMap<(ForwardId, Arc<str>), ClusterService>,
    /// Epochs of clusters and routes that the services were made in.
    epochs: (u64, u64),
    rng: Xoshiro256,
}

/// A call that is on its way.
pub(crate) type Call = <ClusterService as tower_service::Service<Request<RequestStream>>>::Future;

/// The response of a cluster.
pub(crate) type UpstreamResponse = Response<ResponseBody>;

impl Worker {
    pub(crate) fn new(
        index: usize,
        client: Client,
        route_epoch: Arc<AtomicU64>,
        seed: u64,
    ) -> Self {
        Self {
            index,
            client,
            route_epoch,
            ticks: AtomicU32::new(0),
            state: Mutex::new(State {
                services: HashMap::new(),
                epochs: (0, 0),
                rng: Xoshiro256::from_seed(seed),
            }),
        }
    }

    /// A random number.
    pub(crate) fn draw(&self) -> u64 {
        self.lock().rng.next_u64()
    }

    /// Sends a request to a cluster, with what its route and the entry of the cluster ask for.
    pub(crate) fn call(
        &self,
        (forward, weighted): (&Forward, Option<&WeightedCluster>),
        cluster: Arc<str>,
        request: Request<RequestStream>,
    ) -> Result<Call, Error> {
        let mut state = self.lock();
        let routes = self.route_epoch.load(Ordering::Relaxed);
        let epochs = (self.client.cluster_epoch(), routes);
        if state.epochs != epochs {
            state.services.clear();
            state.epochs = epochs;
        }
        let id = weighted.map_or(forward.id, |entry| entry.id);
        match state.services.entry((id, cluster)) {
            Entry::Occupied(mut known) => Ok(known.get_mut().call(request)),
            Entry::Vacant(free) => {
                let service = self.client.service_on(&free.key().1, self.index)?;
                let service = service.with_defaults(options(forward, weighted, None));
                Ok(free.insert(service).call(request))
            }
        }
    }

    /// Ticks since the start.
    pub(crate) fn now(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// One tick later.
    pub(crate) fn tick(&self) -> u32 {
        self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many ticks a time is, rounded up.
pub(crate) fn in_ticks(time: Duration) -> u32 {
    let ticks = time.as_nanos().div_ceil(TICK.as_nanos());
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// What the client is told about requests of a route. A hash is of one request; the rest is known
/// to the route's service.
pub(crate) fn options(
    forward: &Forward,
    weighted: Option<&WeightedCluster>,
    hash: Option<u64>,
) -> RequestOptions {
    let criteria = match weighted {
        Some(entry) => &entry.metadata_match,
        None => &forward.metadata_match,
    };
    RequestOptions {
        timeout: forward.timeout,
        per_try_timeout: forward.per_try_timeout,
        retry: forward.retry.clone(),
        hash,
        metadata_match: criteria.clone(),
    }
}
