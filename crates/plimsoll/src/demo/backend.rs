//! [`Backend`]: an HTTP server with a modelled capacity that reports its load (ORCA).
//!
//! It answers after as long as its `capacity` says and reports the utilization that follows, so
//! that a laptop can play twelve busy machines. Killing one closes its socket and breaks its
//! connections, as the end of a process does.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use plimsoll_orca::{OrcaHandle, OrcaLayer};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tower::Layer as _;

use super::capacity::{Meter, Queue, SAMPLES};
use super::counters::Counters;
use super::setting::{CAPACITY, ZONES};

/// Names the zone in which a request arrived.
pub(crate) const FROM: &str = "x-demo-zone";

/// Time between two samples of a meter: it looks at the last second.
const SAMPLE: Duration = Duration::from_millis(1000 / SAMPLES as u64);

/// One backend.
#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    host: Arc<Host>,
    serving: Option<JoinHandle<()>>,
}

/// What outlives a restart.
#[derive(Debug)]
struct Host {
    zone: usize,
    counters: Arc<Counters>,
    orca: OrcaLayer,
    work: Mutex<Work>,
    started: Instant,
}

#[derive(Debug)]
struct Work {
    queue: Queue,
    /// Seconds of work that were asked for.
    total: f64,
    rng: Xoshiro256,
}

impl Backend {
    /// Starts one on a free port.
    pub(crate) async fn start(
        zone: usize,
        counters: Arc<Counters>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        // What the real CPU does is of no interest here.
        let orca = OrcaLayer::builder().cpu(false).memory(false).build()?;
        let host = Arc::new(Host {
            zone,
            counters,
            orca,
            work: Mutex::new(Work {
                queue: Queue::default(),
                total: 0.0,
                rng: Xoshiro256::from_seed(seed),
            }),
            started: Instant::now(),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let serving = Some(tokio::spawn(serve(listener, Arc::clone(&host))));
        Ok(Self {
            address,
            host,
            serving,
        })
    }

    /// Where it is, dead or alive.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Utilization as it reports it; `None` while it is dead.
    pub(crate) fn utilization(&self) -> Option<f64> {
        let report = self.orca().report();
        self.serving
            .as_ref()
            .map(|_| report.application_utilization)
    }

    /// Ends it at once.
    pub(crate) async fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // It was told to end and may end in any way.
            let _ = serving.await;
        }
    }

    /// Starts it again where it was.
    pub(crate) async fn restart(&mut self) -> io::Result<()> {
        if self.serving.is_none() {
            let listener = TcpListener::bind(self.address).await?;
            self.host.lock().queue = Queue::default();
            self.serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.host))));
        }
        Ok(())
    }

    fn orca(&self) -> OrcaHandle {
        self.host.orca.handle()
    }
}

/// Accepts until it is aborted, and takes its connections along.
async fn serve(listener: TcpListener, host: Arc<Host>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(measure(Arc::clone(&host)));
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Out of sockets: those that end make room.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let own = Arc::clone(&host);
        let answer = tower::service_fn(move |request| answer(Arc::clone(&own), request));
        let service = TowerToHyperService::new(host.orca.layer(answer));
        tasks.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // Who called may have gone.
            let _ = connection.await;
        });
    }
}

/// Says how busy it is.
async fn measure(host: Arc<Host>) {
    let (orca, mut meter) = (host.orca.handle(), Meter::default());
    let mut ticks = tokio::time::interval(SAMPLE);
    loop {
        ticks.tick().await;
        let total = host.lock().total;
        let utilization = meter.sample(total, host.started.elapsed());
        // A 0 would mean that nothing is known.
        let _ = orca.set_application_utilization(utilization.max(0.001));
    }
}

async fn answer(
    host: Arc<Host>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if let Some(from) = arrived_in(request.headers()) {
        host.counters.taken(from, host.zone);
    }
    let (status, body) = match host.offer() {
        Some(wait) => {
            tokio::time::sleep(wait).await;
            (StatusCode::OK, ZONES[host.zone])
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "too busy"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

fn arrived_in(headers: &HeaderMap) -> Option<usize> {
    let zone = headers.get(FROM)?.to_str().ok()?;
    ZONES.iter().position(|one| *one == zone)
}

impl Host {
    /// How long the next request takes.
    fn offer(&self) -> Option<Duration> {
        let now = self.started.elapsed();
        let mut work = self.lock();
        let draw = work.rng.next_u64();
        // Between half and one and a half of the mean.
        let share = 0.5 + f64::from(u32::try_from(draw >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let seconds = share / CAPACITY;
        work.total += seconds;
        work.queue.offer(Duration::from_secs_f64(seconds), now)
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        // Nothing in here can be half done.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
