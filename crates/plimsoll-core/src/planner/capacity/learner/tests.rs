//! Tests of [`CapacityLearner`]: reports of nodes at moments of their own, with and without hosts.

use super::*;
use crate::model::assignment::{AssignmentParts, LbEndpoint, LocalityParts};
use crate::model::health::HealthStatus;
use crate::model::load_report::{UpstreamEndpointStats, UpstreamLocalityStats};

const INTERVAL: Duration = Duration::from_secs(10);
const CPU: &str = "cpu_utilization";

fn host(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 80))
}

fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

/// Hosts 1 and 2 in zone a, 3 and 4 in zone b.
fn assignment(health: HealthStatus) -> ClusterLoadAssignment {
    let locality = |name: &str, hosts: [u8; 2]| LocalityParts {
        locality: zone(name),
        lb_endpoints: hosts
            .map(|number| LbEndpoint {
                health_status: if number == 1 {
                    health
                } else {
                    HealthStatus::Healthy
                },
                ..LbEndpoint::new(host(number))
            })
            .to_vec(),
        ..Default::default()
    };
    let localities = [locality("a", [1, 2]), locality("b", [3, 4])];
    ClusterLoadAssignment::try_new(AssignmentParts::new("orders", localities)).unwrap()
}

/// What hosts 1 to 4 serve at utilization 1.
const STRENGTH: [f64; 4] = [20.0, 40.0, 40.0, 80.0];

struct Run {
    learner: CapacityLearner,
    second: u64,
}

impl Run {
    fn start(metric: Option<&str>) -> Self {
        let now = Instant::from_secs(0);
        let mut learner = CapacityLearner::new(metric.map(Into::into), INTERVAL, now);
        learner.handle_hosts(&assignment(HealthStatus::Healthy));
        Self { learner, second: 0 }
    }

    fn now(&self) -> Instant {
        Instant::from_secs(self.second)
    }

    /// A node reports `rates` to the four hosts, in requests per second.
    fn report(&mut self, id: &str, rates: [u64; 4], told: &[UpstreamEndpointStats]) {
        let seconds = INTERVAL.as_secs();
        let node: NodeName = ("edge".into(), id.into());
        let locality = |name: &str, rate: u64| UpstreamLocalityStats {
            locality: zone(name),
            total_successful_requests: rate * seconds,
            ..Default::default()
        };
        let stats = ClusterStats {
            cluster_name: "orders".into(),
            upstream_locality_stats: vec![
                locality("a", rates[0] + rates[1]),
                locality("b", rates[2] + rates[3]),
            ],
            total_dropped_requests: 0,
            load_report_interval: INTERVAL,
        };
        self.learner.handle_report(node.clone(), &stats, self.now());
        let hosts = ClusterHostStats {
            cluster_name: "orders".into(),
            load_report_interval: INTERVAL,
            endpoints: told.to_vec(),
            localities: Vec::new(),
        };
        self.learner.handle_host_stats(&node, &hosts);
    }

    fn pass(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second += 1;
            if self.learner.poll_timeout() <= self.now() {
                self.learner.handle_timeout(self.now());
            }
        }
    }

    fn rates(&self) -> [Option<f64>; 4] {
        [1, 2, 3, 4].map(|number| {
            let rate = self.learner.estimator().rate(host(number))?;
            Some(rate.round())
        })
    }
}

/// What a node says of the hosts, to which all nodes together send `all`.
fn told(rates: [u64; 4], all: [u64; 4], metric: &str) -> Vec<UpstreamEndpointStats> {
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let of = |index: usize| {
        let requests = rates[index] * INTERVAL.as_secs();
        let utilization = all[index] as f64 / STRENGTH[index];
        let metric_stats = MetricStats {
            num_requests_finished_with_metric: requests,
            total_metric_value: utilization * requests as f64,
        };
        UpstreamEndpointStats {
            address: host(u8::try_from(index + 1).unwrap()),
            total_successful_requests: requests,
            total_requests_in_progress: 0,
            total_error_requests: 0,
            total_issued_requests: requests,
            load_metric_stats: BTreeMap::from([(metric.into(), metric_stats)]),
        }
    };
    (0..4).map(of).collect()
}

const KNOWN: [Option<f64>; 4] = [Some(20.0), Some(40.0), Some(40.0), Some(80.0)];

/// Two nodes report at moments of their own; every window has the requests of both once.
#[test]
fn every_window_has_the_rates_of_all_nodes() {
    let mut run = Run::start(None);
    let (one, two, all) = ([6, 6, 3, 3], [4, 4, 12, 12], [10, 10, 15, 15]);
    for _ in 0..6 {
        run.report("1", one, &told(one, all, CPU));
        run.pass(4);
        run.report("2", two, &told(two, all, CPU));
        run.pass(6);
    }
    assert_eq!(run.rates(), KNOWN);
    let learned = run.learner.poll_learned(run.now()).unwrap();
    assert!(learned.weight(host(1)) < 50 && learned.weight(host(4)) > 50);
    let typical = learned.unit().of_typical_host();
    assert!((typical - 40.0).abs() < 0.5, "{typical}");
}

/// A node of another replica, or a gRPC client: requests by zone only. Without its requests, hosts
/// of zone b would seem to serve a third of what they do.
#[test]
fn requests_by_zone_are_those_of_hosts_in_proportion() {
    let mut run = Run::start(None);
    let (one, two, all) = ([5, 5, 5, 5], [0, 0, 10, 10], [5, 5, 15, 15]);
    for _ in 0..6 {
        run.report("1", one, &told(one, all, CPU));
        run.report("grpc", two, &[]);
        run.pass(10);
    }
    assert_eq!(run.rates(), KNOWN);
}

/// Clients that report no endpoints at all: hosts of a zone are alike.
#[test]
fn utilization_by_zone_is_capacity_by_zone() {
    let mut run = Run::start(Some("named_metrics.queue"));
    for _ in 0..6 {
        run.report("grpc", [10, 10, 15, 15], &[]);
        let metric = |utilization: f64| {
            let stats = MetricStats {
                num_requests_finished_with_metric: 100,
                total_metric_value: 100.0 * utilization,
            };
            BTreeMap::from([("named_metrics.queue".into(), stats)])
        };
        let stats = ClusterHostStats {
            cluster_name: "orders".into(),
            load_report_interval: INTERVAL,
            endpoints: Vec::new(),
            localities: vec![(zone("a"), metric(0.5)), (zone("b"), metric(0.25))],
        };
        run.learner
            .handle_host_stats(&("edge".into(), "grpc".into()), &stats);
        run.pass(10);
    }
    assert_eq!(run.rates(), [20.0, 20.0, 60.0, 60.0].map(Some));
}

/// Its requests go on: hosts would seem weaker by what it sends.
#[test]
fn nothing_is_learned_while_a_node_is_silent() {
    let mut run = Run::start(None);
    let (one, two, all) = ([6, 6, 3, 3], [4, 4, 12, 12], [10, 10, 15, 15]);
    for round in 0..30 {
        run.report("1", one, &told(one, all, CPU));
        if round < 6 {
            run.report("2", two, &told(two, all, CPU));
        }
        run.pass(10);
    }
    assert_eq!(run.rates(), KNOWN);
    let frozen = run.learner.estimator().frozen();
    assert_eq!(frozen, Some(Frozen::SilentNodes));

    // It leaves, and so do its requests.
    run.learner.handle_left(&("edge".into(), "2".into()));
    for _ in 0..6 {
        run.report("1", one, &told(one, one, CPU));
        run.pass(10);
    }
    assert_eq!(run.learner.estimator().frozen(), None);
    assert_eq!(run.rates(), KNOWN);
}

#[test]
fn a_node_that_stays_silent_is_not_waited_for_forever() {
    let mut run = Run::start(None);
    let all = [10, 10, 15, 15];
    run.report("gone", all, &[]);
    for _ in 0..70 {
        run.report("1", all, &told(all, all, CPU));
        run.pass(10);
    }
    assert_eq!(run.learner.estimator().frozen(), None);
}

#[test]
fn application_utilization_comes_first_and_another_metric_starts_over() {
    let mut run = Run::start(None);
    let all = [10, 10, 15, 15];
    let mut both = told(all, all, "application_utilization");
    for host in &mut both {
        let cpu = MetricStats {
            num_requests_finished_with_metric: 1,
            total_metric_value: 0.9,
        };
        host.load_metric_stats.insert(CPU.into(), cpu);
    }
    for _ in 0..6 {
        run.report("1", all, &both);
        run.pass(10);
    }
    assert_eq!(run.rates(), KNOWN);
    run.learner
        .handle_settings(Some("named_metrics.gpu".into()), INTERVAL);
    assert_eq!(run.rates(), [None; 4]);
    run.report("1", all, &both);
    run.pass(10);
    assert_eq!(run.rates(), [None; 4]);
}

/// It may have restarted on another machine.
#[test]
fn a_host_that_was_unhealthy_starts_over() {
    let mut run = Run::start(None);
    let all = [10, 10, 15, 15];
    for _ in 0..6 {
        run.report("1", all, &told(all, all, CPU));
        run.pass(10);
    }
    for health in [HealthStatus::Unhealthy, HealthStatus::Healthy] {
        run.learner.handle_hosts(&assignment(health));
    }
    assert_eq!(run.rates(), [None, KNOWN[1], KNOWN[2], KNOWN[3]]);
}

/// More answers with the metric than answers.
#[test]
fn reports_that_contradict_themselves_teach_nothing() {
    let mut run = Run::start(None);
    let all = [10, 10, 15, 15];
    let mut lie = told(all, all, CPU);
    for host in &mut lie {
        for stats in host.load_metric_stats.values_mut() {
            stats.num_requests_finished_with_metric = u64::MAX;
        }
    }
    for _ in 0..6 {
        run.report("1", all, &lie);
        run.pass(10);
    }
    assert_eq!(run.rates(), [None; 4]);
    assert_eq!(run.learner.estimator().frozen(), Some(Frozen::FewHosts));
}

#[test]
fn a_ramp_is_between_what_is_written_and_what_was_learned() {
    let mut run = Run::start(None);
    let all = [10, 10, 15, 15];
    let mut learned = None;
    for _ in 0..12 {
        run.report("1", all, &told(all, all, CPU));
        run.pass(10);
        learned = run.learner.poll_learned(run.now()).or(learned);
    }
    let learned = learned.unwrap();
    let written = assignment(HealthStatus::Healthy);
    let weights = |ramp| -> Vec<u32> {
        let applied = learned.applied_to(&written, ramp).unwrap();
        let entries = applied.endpoints().iter();
        entries
            .flat_map(|entry| entry.lb_endpoints.iter().map(LbEndpoint::weight))
            .collect()
    };
    assert_eq!(weights(0), [1, 1, 1, 1]);
    assert_eq!(weights(50), [36, 50, 50, 70]);
    assert_eq!(weights(100), [26, 50, 50, 98]);
}
