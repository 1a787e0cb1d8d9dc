//! [`Watcher`]: looks at every node and every replica of a testbed all the time, and remembers the
//! largest deviations of fractions and of sums of demand from the truth.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use plimsoll_testing::http::get_json;

use super::{Nodes, ZONES};
use crate::support::load::Meter;

const INTERVAL: Duration = Duration::from_millis(100);
/// Seconds of traffic that sums may be about: a node that moves counts with its last report for up
/// to 10 s.
const REMEMBERED_SECONDS: usize = 15;

/// A deviation and where it was seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Worst {
    /// In basis points of all demand, or in percent of the demand of a zone.
    pub(super) deviation: u64,
    place: String,
}

/// Admin addresses of the replicas. A replica that is dead does not answer.
pub(super) type Replicas = Arc<Mutex<Vec<SocketAddr>>>;

/// A thread that watches; stopped when dropped.
pub(super) struct Watcher {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    thread: Option<JoinHandle<()>>,
}

/// Largest deviations since the start.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) fractions: Worst,
    pub(super) sums: Worst,
    /// Number of times that a replica's sums were compared.
    pub(super) sums_compared: u64,
}

impl Worst {
    fn keep(&mut self, other: Self) {
        if other.deviation > self.deviation {
            *self = other;
        }
    }
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.deviation, self.place)
    }
}

impl Watcher {
    pub(super) fn start(nodes: Arc<Nodes>, replicas: Replicas, traffic: Meter) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::<Mutex<Seen>>::default();
        let (stopped, written) = (Arc::clone(&stop), Arc::clone(&seen));
        let thread = thread::spawn(move || {
            let mut rates = Rates::new(traffic);
            while !stopped.load(Ordering::Relaxed) {
                rates.sample();
                let fractions = fractions(&nodes);
                let addresses = replicas.lock().unwrap().clone();
                let sums: Vec<_> = addresses
                    .into_iter()
                    .filter_map(|replica| sums(replica, rates.range()?))
                    .collect();
                let mut seen = written.lock().unwrap();
                seen.fractions.keep(fractions);
                seen.sums_compared += sums.len() as u64;
                sums.into_iter().for_each(|sum| seen.sums.keep(sum));
                drop(seen);
                thread::sleep(INTERVAL);
            }
        });
        Self {
            stop,
            seen,
            thread: Some(thread),
        }
    }

    pub(super) fn seen(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic was already printed.
            let _ = thread.join();
        }
    }
}

/// Returns the largest deviation of a fraction at any node.
fn fractions(nodes: &Nodes) -> Worst {
    // A busy admin interface may not answer in time.
    let seen = (0..3).find_map(|_| nodes.largest_bp());
    let (deviation, place) =
        seen.unwrap_or_else(|| (10_000, "a node without fractions".to_owned()));
    Worst { deviation, place }
}

/// Returns how far the demand of a zone, summed over its nodes, is from the requests that were
/// sent, in percent: a node that counts twice or not at all makes it 50. `None` if the replica is
/// dead, or has not read the store since it started and therefore delivers nothing.
fn sums(replica: SocketAddr, sent: Range) -> Option<Worst> {
    let store = get_json(replica, "/api/v1/replicas")?;
    if store["store"]["synced"] != true {
        return None;
    }
    let page = get_json(replica, "/api/v1/fleets")?;
    let demand = &page["fleets"][0]["demand"][0]["zones"];
    let zones = demand.as_array().cloned().unwrap_or_default();
    let mut worst = Worst::default();
    for (zone, _, share_bp, _) in ZONES {
        let entry = zones.iter().find(|entry| entry["locality"]["zone"] == zone);
        let rate = entry.and_then(|entry| entry["requests_per_second"].as_f64());
        worst.keep(Worst {
            deviation: sent.deviation(rate.unwrap_or_default(), share_bp),
            place: format!("{replica} in {zone}: {rate:?} of {sent:?}"),
        });
    }
    Some(worst)
}

/// Requests per second of all sources, in the slowest and in the fastest of the last seconds.
#[derive(Clone, Copy, Debug)]
struct Range {
    slowest: f64,
    fastest: f64,
}

impl Range {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "percentages are small"
    )]
    fn deviation(self, rate: f64, share_bp: u64) -> u64 {
        let share = share_bp as f64 / 10_000.0;
        let (low, high) = (self.slowest * share, self.fastest * share);
        let outside = f64::max((low - rate) / low, (rate - high) / high);
        (100.0 * outside).max(0.0) as u64
    }
}

/// The rate of traffic in each of the last seconds: it drops when the machine is busy.
struct Rates {
    traffic: Meter,
    since: Instant,
    requests: u64,
    seconds: VecDeque<f64>,
}

impl Rates {
    fn new(traffic: Meter) -> Self {
        Self {
            since: Instant::now(),
            requests: traffic.succeeded(),
            traffic,
            seconds: VecDeque::new(),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    fn sample(&mut self) {
        let elapsed = self.since.elapsed();
        if elapsed < Duration::from_secs(1) {
            return;
        }
        let requests = self.traffic.succeeded();
        let rate = (requests - self.requests) as f64 / elapsed.as_secs_f64();
        self.seconds.push_back(rate);
        if self.seconds.len() > REMEMBERED_SECONDS {
            self.seconds.pop_front();
        }
        self.requests = requests;
        self.since = Instant::now();
    }

    fn range(&self) -> Option<Range> {
        let rates = || self.seconds.iter().copied();
        Some(Range {
            slowest: rates().reduce(f64::min)?,
            fastest: rates().reduce(f64::max)?,
        })
    }
}
