//! Load generators of the demo: the clients of a zone send to the proxies of that zone.
//!
//! Open loop: requests are sent on schedule, whether earlier ones have completed or not. The load
//! generators use plimsoll-client, with the zone's proxies as the cluster.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::{Client, Cluster, ClusterService, RequestOptions};
use plimsoll_core::log_line;
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use tokio::sync::watch;
use tower::Service as _;

use crate::backend::ZONE_HEADER;
use crate::counters::{Counters, Outcome};
use crate::setting::ZONES;

use crate::log_lines;

const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum delay of the schedule that is caught up on, if the machine was paused.
const MAX_LATE: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(crate) struct Clients {
    zone: usize,
    service: ClusterService,
    counters: Arc<Counters>,
    rates: watch::Receiver<[f64; 3]>,
    rng: Xoshiro256,
    /// Keeps the client's task running.
    _client: Client,
}

impl Clients {
    /// Creates the load generator of `zone`, which sends to `proxies`.
    pub(crate) fn new(
        zone: usize,
        proxies: &[SocketAddr],
        counters: Arc<Counters>,
        rates: watch::Receiver<[f64; 3]>,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let client = Client::builder()
            .zone(ZONES[zone])
            .cluster(Cluster::new("proxies").zone(ZONES[zone], proxies.iter().copied()))
            .seed(seed)
            .build()?;
        let defaults = RequestOptions::new().timeout(TIMEOUT);
        Ok(Self {
            zone,
            service: client.service("proxies")?.with_defaults(defaults),
            counters,
            rates,
            rng: Xoshiro256::from_seed(seed),
            _client: client,
        })
    }

    /// Sends requests until the sender of `rates` is dropped.
    pub(crate) async fn run(mut self) {
        let mut due = Instant::now();
        loop {
            let rate = self.rates.borrow_and_update()[self.zone];
            due = due.max(Instant::now().checked_sub(MAX_LATE).unwrap_or(due));
            due += self.pause(rate);
            tokio::select! {
                () = tokio::time::sleep_until(due.into()) => self.send(),
                changed = self.rates.changed() => match changed {
                    Ok(()) => due = Instant::now(),
                    Err(_) => return,
                },
            }
        }
    }

    /// Returns the time until the next request: uniform between 0.5 and 1.5 times the mean.
    fn pause(&mut self, rate: f64) -> Duration {
        let draw = u32::try_from(self.rng.next_u64() >> 32).unwrap_or(0);
        let share = 0.5 + f64::from(draw) / f64::from(u32::MAX);
        Duration::from_secs_f64(share / rate.max(0.1))
    }

    fn send(&mut self) {
        let request = Request::get("http://orders/")
            .header(ZONE_HEADER, ZONES[self.zone])
            .body(Empty::<Bytes>::new());
        // All parts are constants, so building the request cannot fail.
        let Ok(request) = request else { return };
        let call = self.service.call(request);
        let (zone, counters) = (self.zone, Arc::clone(&self.counters));
        tokio::spawn(async move {
            let started = Instant::now();
            let outcome = match call.await {
                Ok(response) => outcome(response).await,
                Err(error) => {
                    log_line!(log_lines::DEMO_REQUEST_FAILED, %error);
                    Outcome::Failed
                }
            };
            counters.completed(zone, outcome, started.elapsed());
        });
    }
}

async fn outcome(response: http::Response<plimsoll_client::ResponseBody>) -> Outcome {
    let status = response.status();
    let body = response.into_body().collect().await;
    let busy = |body: &[u8]| status == StatusCode::SERVICE_UNAVAILABLE && body == b"overloaded";
    match body.map(http_body_util::Collected::to_bytes) {
        Ok(_) if status.is_success() => Outcome::Served,
        Ok(body) if busy(&body) => Outcome::Rejected,
        _ => {
            log_line!(log_lines::DEMO_REQUEST_FAILED, %status);
            Outcome::Failed
        }
    }
}
