//! [`Worker`]: state shared by all tasks of one worker thread.
//!
//! A worker caches one client service per route and cluster, and has a random number generator and
//! a coarse clock. Its mutex is never contended, because only one thread uses it; the mutex makes
//! the type `Sync`. `accept` spawns the threads.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use plimsoll_client::{Client, ClusterService, Error, RequestOptions, ResponseBody};
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use tower_service::Service as _;

use crate::body::{BoxError, MeteredBody};
use crate::mirror::{MirrorBody, MirrorCount};
use crate::overload::Overload;
use crate::router::{Forward, ForwardId, WeightedCluster};
use crate::stream_timeouts::StreamTimeouts;

/// Resolution of the coarse clock and therefore of all connection timeouts.
pub(crate) const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Worker {
    pub(crate) index: usize,
    client: Client,
    /// Shared epoch that changes when new routes are activated.
    route_epoch: Arc<AtomicU64>,
    ticks: AtomicU32,
    /// HTTP/2 streams whose limits are checked; ended ones are removed on the next tick.
    streams: Mutex<Vec<Arc<StreamTimeouts>>>,
    pub(crate) mirrors: MirrorCount,
    pub(crate) overload: Arc<Overload>,
    state: Mutex<WorkerState>,
}

struct WorkerState {
    /// Cached services by route (or `weighted_clusters` entry) and cluster name.
    services: HashMap<(ForwardId, Arc<str>), ClusterService>,
    /// Cluster and route epochs for which `services` were created.
    epochs: (u64, u64),
    rng: Xoshiro256,
}

pub(crate) type ClusterCall =
    <ClusterService as tower_service::Service<Request<MeteredBody>>>::Future;

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
            streams: Mutex::default(),
            mirrors: MirrorCount::default(),
            overload: Arc::default(),
            state: Mutex::new(WorkerState {
                services: HashMap::new(),
                epochs: (0, 0),
                rng: Xoshiro256::from_seed(seed),
            }),
        }
    }

    pub(crate) fn draw(&self) -> u64 {
        self.lock().rng.next_u64()
    }

    /// Sends a request to a cluster with the options of its route and `weighted_clusters` entry.
    pub(crate) fn call(
        &self,
        forward: &Forward,
        weighted: Option<&WeightedCluster>,
        cluster: Arc<str>,
        request: Request<MeteredBody>,
    ) -> Result<ClusterCall, Error> {
        let id = weighted.map_or(forward.id, |entry| entry.id);
        let options = || request_options(forward, weighted, None);
        self.call_with(id, cluster, options, request)
    }

    /// Sends a copy of a request to a cluster, without retries.
    pub(crate) fn call_mirror(
        &self,
        id: ForwardId,
        cluster: Arc<str>,
        timeout: Option<Duration>,
        request: Request<MirrorBody>,
    ) -> Result<ClusterCall, Error> {
        let options = || RequestOptions::new().timeout(timeout);
        self.call_with(id, cluster, options, request)
    }

    /// Sends a request with the service cached under `id`; a new one gets `options`.
    fn call_with<B>(
        &self,
        id: ForwardId,
        cluster: Arc<str>,
        options: impl FnOnce() -> RequestOptions,
        request: Request<B>,
    ) -> Result<ClusterCall, Error>
    where
        B: Body<Data = Bytes, Error = BoxError> + Send + 'static,
    {
        let mut state = self.lock();
        let routes = self.route_epoch.load(Ordering::Relaxed);
        let epochs = (self.client.cluster_epoch(), routes);
        if state.epochs != epochs {
            state.services.clear();
            state.epochs = epochs;
        }
        match state.services.entry((id, cluster)) {
            Entry::Occupied(mut cached) => Ok(cached.get_mut().call(request)),
            Entry::Vacant(vacant) => {
                let service = self
                    .client
                    .service_on(&vacant.key().1, self.index)?
                    .with_defaults(options())
                    // TLS may end here: `https` is how the request came, not how it goes on.
                    .ignore_scheme();
                Ok(vacant.insert(service).call(request))
            }
        }
    }

    /// Returns the number of ticks since the worker started.
    pub(crate) fn now(&self) -> u32 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Advances the coarse clock by one tick, checks the limits of HTTP/2 streams, and returns the
    /// new number of ticks.
    pub(crate) fn tick(&self) -> u32 {
        self.overload.record_tick(self.index, Instant::now());
        let now = self.ticks.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        self.streams().retain(|stream| {
            // The request holds the other references.
            let active = Arc::strong_count(stream) > 1;
            if active {
                stream.check_http2(now);
            }
            active
        });
        now
    }

    pub(crate) fn watch_stream(&self, stream: Arc<StreamTimeouts>) {
        self.streams().push(stream);
    }

    fn streams(&self) -> MutexGuard<'_, Vec<Arc<StreamTimeouts>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, WorkerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts a duration to ticks, rounding up.
pub(crate) fn to_ticks(time: Duration) -> u32 {
    const NANOS: u32 = TICK.subsec_nanos();
    const PER_SECOND: u64 = 1_000_000_000 / NANOS as u64;
    let part = u64::from(time.subsec_nanos().div_ceil(NANOS));
    let ticks = time
        .as_secs()
        .saturating_mul(PER_SECOND)
        .saturating_add(part);
    u32::try_from(ticks).unwrap_or(u32::MAX)
}

/// Options for requests of a route. They are constant per route and cluster except for `hash`,
/// which differs between requests.
pub(crate) fn request_options(
    forward: &Forward,
    weighted: Option<&WeightedCluster>,
    hash: Option<u64>,
) -> RequestOptions {
    let criteria = match weighted {
        Some(entry) => &entry.metadata_match,
        None => &forward.metadata_match,
    };
    RequestOptions::new()
        .timeout(forward.timeout)
        .per_try_timeout(forward.per_try_timeout)
        .retry(forward.retry.clone())
        .hash(hash)
        .metadata_match(criteria.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_rounded_up_to_ticks() {
        for (nanos, expected) in [
            (0, 0),
            (1, 1),
            (100_000_000, 1),
            (100_000_001, 2),
            (999_999_999, 10),
            (1_000_000_000, 10),
            (61_500_000_000, 615),
        ] {
            assert_eq!(to_ticks(Duration::from_nanos(nanos)), expected, "{nanos}");
        }
        assert_eq!(to_ticks(Duration::MAX), u32::MAX);
    }

    #[tokio::test]
    async fn streams_are_checked_on_each_tick_until_their_requests_end() {
        let client = Client::builder().build().unwrap();
        let worker = Worker::new(0, client, Arc::default(), 1);
        let options = crate::config::HttpOptions {
            max_stream_duration: Some(TICK * 2),
            ..Default::default()
        };
        let [active, ended] = [(); 2].map(|()| {
            let stream = Arc::new(StreamTimeouts::default());
            stream.start(&options, worker.now());
            worker.watch_stream(Arc::clone(&stream));
            stream
        });
        assert_eq!([worker.tick(), worker.tick(), worker.now()], [1, 2, 2]);
        assert_eq!(active.expired(), None);
        assert_eq!(worker.streams().len(), 2);
        drop(ended);
        assert_eq!(worker.tick(), 3);
        assert!(active.expired().is_some());
        assert_eq!(worker.streams().len(), 1);
        drop(active);
        worker.tick();
        assert!(worker.streams().is_empty());
    }

    #[tokio::test]
    async fn draws_follow_the_seed() {
        let draws = |seed| {
            let client = Client::builder().build().unwrap();
            let worker = Worker::new(0, client, Arc::default(), seed);
            [worker.draw(), worker.draw()]
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
        assert_ne!(draws(1)[0], draws(1)[1]);
    }
}
