//! Streams and long polls: many requests in progress, few that end in a report interval. Their
//! zones do not fail, and each request is demand once.

use super::*;
use crate::planner::Arrivals;
use crate::rng::{Rng, Xoshiro256};

const ZONES: [&str; 3] = ["a", "b", "c"];

#[derive(Clone, Copy, Debug)]
enum End {
    Success,
    /// As gRPC reports streams that clients cancel.
    Error,
    /// As Envoy reports them: neither success nor error.
    Canceled,
}

/// The proxy of a zone, whose streams are served in the zone.
struct Proxy {
    zone: &'static str,
    /// Streams that begin per second.
    rate: f64,
    /// Seconds at which its streams end.
    ends: Vec<f64>,
    arrivals: Arrivals,
    issued: u64,
    ended: u64,
    all_issued: u64,
}

struct World {
    harness: Harness,
    proxies: Vec<Proxy>,
    rng: Xoshiro256,
    end: End,
    duration: f64,
    /// Whether all streams last equally long.
    is_constant: bool,
}

impl World {
    fn new(rates: [f64; 3], duration: f64, is_constant: bool, end: End) -> Self {
        let proxy = |(&zone, rate)| Proxy {
            zone,
            rate,
            ends: Vec::new(),
            arrivals: Arrivals::default(),
            issued: 0,
            ended: 0,
            all_issued: 0,
        };
        Self {
            harness: Harness::new(),
            proxies: ZONES.iter().zip(rates).map(proxy).collect(),
            rng: Xoshiro256::from_seed(11),
            end,
            duration,
            is_constant,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a draw")]
    fn exponential(rng: &mut Xoshiro256, mean: f64) -> f64 {
        -mean * ((rng.next_u64() as f64 + 1.0) / u64::MAX as f64).ln()
    }

    fn begin(&mut self, index: usize, at: f64) {
        let duration = if self.is_constant {
            self.duration
        } else {
            Self::exponential(&mut self.rng, self.duration)
        };
        let proxy = &mut self.proxies[index];
        proxy.ends.push(at + duration);
        proxy.issued += 1;
        proxy.all_issued += 1;
    }

    /// Closes all streams of a zone and opens them again, as when its clients restart.
    fn reconnect(&mut self, index: usize, second: u32) {
        let streams = std::mem::take(&mut self.proxies[index].ends).len();
        (0..streams).for_each(|_| self.begin(index, f64::from(second)));
    }

    /// Runs one second; each proxy reports every ten.
    fn step(&mut self, second: u32) {
        let (from, until) = (f64::from(second), f64::from(second + 1));
        for index in 0..self.proxies.len() {
            let gap = 1.0 / self.proxies[index].rate;
            let mut at = from + Self::exponential(&mut self.rng, gap);
            while at < until {
                self.begin(index, at);
                at += Self::exponential(&mut self.rng, gap);
            }
            let proxy = &mut self.proxies[index];
            let before = proxy.ends.len();
            proxy.ends.retain(|&end| end >= until);
            proxy.ended += (before - proxy.ends.len()) as u64;
            if (second as usize + 3 * index).is_multiple_of(10) {
                self.report(index, second);
            }
        }
        self.harness.run(u64::from(second));
    }

    fn report(&mut self, index: usize, second: u32) {
        let proxy = &mut self.proxies[index];
        let (issued, ended) = (
            std::mem::take(&mut proxy.issued),
            std::mem::take(&mut proxy.ended),
        );
        let mut report = stats(ORDERS, issued, INTERVAL, proxy.zone);
        let entry = &mut report.upstream_locality_stats[0];
        entry.total_successful_requests = 0;
        match self.end {
            End::Success => entry.total_successful_requests = ended,
            End::Error => entry.total_error_requests = ended,
            End::Canceled => (),
        }
        entry.total_requests_in_progress = proxy.ends.len() as u64;
        let mut reports = [report];
        proxy.arrivals.complete(&mut reports, &[]);
        let reporter = node(proxy.zone, proxy.zone);
        let now = at(u64::from(second));
        self.harness.report_stats(&reporter, &reports[0], now);
    }

    fn failed(&self) -> Vec<&PlannerEvent> {
        let events = self.harness.events.iter();
        let fails = |event: &&PlannerEvent| matches!(event, PlannerEvent::ZoneFails { .. });
        events.filter(fails).collect()
    }
}

/// From the first stream on, in zones of any size, and when all clients of a zone start again.
#[test]
fn streams_are_no_failures() {
    for end in [End::Success, End::Error, End::Canceled] {
        for duration in [5.0, 15.0, 60.0, 600.0] {
            for is_constant in [false, true] {
                for rates in [[4.0, 3.5, 2.5], [30.0, 3.0, 0.5]] {
                    let mut world = World::new(rates, duration, is_constant, end);
                    for second in 1..1800 {
                        if second == 900 {
                            world.reconnect(0, second);
                        }
                        world.step(second);
                    }
                    let name = format!("{end:?} {duration} {is_constant} {rates:?}");
                    assert_eq!(world.failed(), Vec::<&PlannerEvent>::new(), "{name}");
                }
            }
        }
    }
}

#[test]
fn each_stream_is_demand_once() {
    for end in [End::Success, End::Error, End::Canceled] {
        let mut world = World::new([8.0, 7.0, 5.0], 200.0, false, end);
        (1..1801).for_each(|second| world.step(second));
        let plan = world.harness.plan(Some(ORDERS)).unwrap();
        for (zone, proxy) in plan.zones.iter().zip(&world.proxies) {
            let off = zone.rate_per_second / proxy.rate - 1.0;
            assert!(off.abs() < 0.2, "{end:?} {}: {off}", proxy.zone);
        }
    }
}
