//! HTTP server of the demo with a simulated capacity, which reports its load (ORCA).
//!
//! A backend responds after the time that [`Queue`] computes and reports the resulting utilization,
//! so that one laptop can simulate twelve busy machines. Killing a backend closes its socket and
//! breaks its connections, like the exit of a process.

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

use crate::capacity::{Meter, Queue, SAMPLES};
use crate::counters::Counters;
use crate::setting::{CAPACITY, ZONES};

/// Request header with the zone in which the request arrived.
pub(crate) const ZONE_HEADER: &str = "x-demo-zone";

/// Interval at which a [`Meter`] is sampled; the meter's window is one second.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1000 / SAMPLES as u64);

#[derive(Debug)]
pub(crate) struct Backend {
    address: SocketAddr,
    host: Arc<Host>,
    serving: Option<JoinHandle<()>>,
}

/// State of a backend that survives a restart.
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
    /// Seconds of work that requests have asked for so far.
    total: f64,
    rng: Xoshiro256,
}

impl Backend {
    pub(crate) async fn start(
        zone: usize,
        counters: Arc<Counters>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        // ORCA reports must show the simulated load, not the load of the real CPU.
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

    /// Address the backend listens on, also while it is killed.
    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Utilization that the backend reports; `None` while it is killed.
    pub(crate) fn utilization(&self) -> Option<f64> {
        let report = self.orca().report();
        self.serving
            .as_ref()
            .map(|_| report.application_utilization)
    }

    pub(crate) async fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            // The task was aborted, so the join error is expected.
            let _ = serving.await;
        }
    }

    /// Starts a killed backend again on the same address.
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

/// Accepts connections until the task is aborted, which also ends the connections.
async fn serve(listener: TcpListener, host: Arc<Host>) {
    let mut tasks = JoinSet::new();
    tasks.spawn(measure(Arc::clone(&host)));
    loop {
        while tasks.try_join_next().is_some() {}
        let Ok((stream, _)) = listener.accept().await else {
            // Probably out of file descriptors: wait until connections end.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let own = Arc::clone(&host);
        let respond = tower::service_fn(move |request| respond(Arc::clone(&own), request));
        let service = TowerToHyperService::new(host.orca.layer(respond));
        tasks.spawn(async move {
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // The client may have disconnected.
            let _ = connection.await;
        });
    }
}

/// Measures the utilization and publishes it in ORCA reports.
async fn measure(host: Arc<Host>) {
    let (orca, mut meter) = (host.orca.handle(), Meter::default());
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    loop {
        ticks.tick().await;
        let total = host.lock().total;
        let utilization = meter.sample(total, host.started.elapsed());
        // In ORCA, 0 means "not set", so report at least 0.001.
        let _ = orca.set_application_utilization(utilization.max(0.001));
    }
}

async fn respond(
    host: Arc<Host>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if let Some(from) = zone_of(request.headers()) {
        host.counters.received(from, host.zone);
    }
    let (status, body) = match host.offer() {
        Some(wait) => {
            tokio::time::sleep(wait).await;
            (StatusCode::OK, ZONES[host.zone])
        }
        None => (StatusCode::SERVICE_UNAVAILABLE, "overloaded"),
    };
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    Ok(response)
}

fn zone_of(headers: &HeaderMap) -> Option<usize> {
    let zone = headers.get(ZONE_HEADER)?.to_str().ok()?;
    ZONES.iter().position(|one| *one == zone)
}

impl Host {
    /// Returns how long the next request takes; `None` if it is rejected.
    fn offer(&self) -> Option<Duration> {
        let now = self.started.elapsed();
        let mut work = self.lock();
        let draw = work.rng.next_u64();
        // Uniform between 0.5 and 1.5 times the mean.
        let share = 0.5 + f64::from(u32::try_from(draw >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let seconds = share / CAPACITY;
        work.total += seconds;
        work.queue.offer(Duration::from_secs_f64(seconds), now)
    }

    fn lock(&self) -> MutexGuard<'_, Work> {
        // No update can panic halfway, so a poisoned lock is still consistent.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
