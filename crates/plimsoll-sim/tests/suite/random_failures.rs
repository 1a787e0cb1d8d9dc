//! Do no harm, in sequences that nobody thought of: random zones, demand and failures one after the
//! other and at the same time. Measured demand may fail at most a point more requests than host
//! counts do in the same run, and `CONVERGENT` than weights by host count.
//!
//! A run is made from its seed. A failure prints seed and scenario, which `plimsoll sim` runs;
//! `PLIMSOLL_SEEDS=17` runs that seed, and `PLIMSOLL_SEEDS=1000..2000` others.

use plimsoll_core::rng::{Rng as _, Xoshiro256};
use plimsoll_sim::{Policy, Report, Scenario};
use std::ops::Range;

/// Runs of each policy, which are the same each time. The variable has more.
const SEEDS: Range<u64> = 0..40;
/// Length of a run in seconds, and when its first failure begins.
const LENGTH: u64 = 300;
const FIRST: u64 = 40;
/// Failed share beyond that of host counts, which is what we promise.
const PROMISED: f64 = 0.01;
/// Standard deviations of the failures that a run may exceed this by. Runs have fixed seeds.
const NOISE: f64 = 3.0;
/// Time that a change of the fleet needs to be known: detection of dead hosts, delays, and the
/// timeouts of requests.
const KNOWN_AFTER: u64 = 6;
/// Age at which Plimsoll's data planes no longer follow fractions. Stock Envoys keep their weights
/// while there is no control plane (docs/operations.md says so), which is not compared.
const STALE_AFTER: u64 = 5;
/// Age at which load reports of hosts expire, and when a zone without any has its part of the
/// requests (docs/operations.md).
const EXPIRES_AFTER: u64 = 10;
const SILENT_AFTER: u64 = EXPIRES_AFTER + 30;
/// Utilization of all usable hosts above which a run is not compared if queues are long, and the
/// seconds until they are short again. What cannot be served fails by every policy, but where
/// requests wait for longer than their timeout, zones that are all a little too full answer fewer
/// in time than one that is given up (decision 0038).
const OVERLOADED: f64 = 0.9;
const DRAINED_AFTER: u64 = 5;
/// Utilization from which HEADROOM fills zones in turns without any failure: the specified rule
/// swings.
const SWINGS_FROM: f64 = 0.6;
/// Requests that a host lets wait, of 30 per second: those that it serves are served in time, and
/// the others are refused at once. Without that, queues are as long as timeouts.
const SHORT_QUEUE: u64 = 6;
/// Flapping hosts with a longer period are down and up long enough to be reported as either.
const SLOW_FLAPPING: u64 = 30;

struct Draws(Xoshiro256);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap()]
    }
}

/// A run as a file that `plimsoll simulate` reads, and the seconds in which nobody can know yet
/// what has changed.
struct Run {
    scenario: String,
    unknown: Vec<Range<u64>>,
    /// Whether seconds count in which there is more demand than capacity.
    counts_overload: bool,
}

fn run(seed: u64) -> Run {
    let mut draws = Draws(Xoshiro256::from_seed(seed));
    let zones = &["a", "b", "c", "d", "e"][..draws.one_of(&[2, 3, 3, 3, 4, 5])];
    let report_interval = draws.one_of(&[1, 2, 5]);
    let data_plane = draws.one_of(&["envoy", "envoy", "plimsoll"]);
    let utilization = draws.between(20..60);
    let mut more = Draws(Xoshiro256::from_seed(!seed));
    let counts_overload = more.below(2) == 0;
    let (utilization, queue) = if counts_overload {
        let is_high = more.below(3) == 0;
        let high = more.between(60..130);
        let queue = format!("host = {{ queue = {SHORT_QUEUE} }}\n");
        (if is_high { high } else { utilization }, queue)
    } else {
        (utilization, String::new())
    };
    // By host counts small fleets ignore zones otherwise, which is another comparison.
    let mut scenario = format!(
        "seed = {seed}
duration = \"{LENGTH}s\"
traffic = {{ mean_utilization = \"{utilization}%\" }}
control_plane = {{ report_interval = \"{report_interval}s\", tau = \"5s\", \
         staleness_threshold = \"{STALE_AFTER}s\" }}
balancer = {{ data_plane = \"{data_plane}\", min_cluster_size = 1 }}
load_aware_locality = {{ weight_expiration_period = \"{EXPIRES_AFTER}s\" }}
network = {{ connect_timeout = \"1s\", request_timeout = \"1s\" }}
{queue}"
    );
    for zone in zones {
        let demand = draws.between(10..60);
        let (proxies, hosts) = (draws.between(1..4), draws.between(2..7));
        scenario += &format!(
            "[[zone]]
name = \"{zone}\"
demand = {demand}
proxies = {proxies}
hosts = [{{ count = {hosts}, capacity = 30 }}]
"
        );
    }
    let known_after = 2 * report_interval + KNOWN_AFTER;
    let mut unknown = Vec::new();
    let events = draws.between(1..6);
    let events = (0..events).map(|_| event(&mut draws, zones));
    let mut events: Vec<Event> = events.collect();
    events.extend((0..more.below(3)).map(|_| another_event(&mut more, zones)));
    for event in events {
        unknown.extend(event.changes.iter().map(|at| *at..at + known_after));
        if let Some(outage) = event.outage {
            let stale_at = (outage.start + STALE_AFTER).min(outage.end);
            let until = if data_plane == "envoy" {
                outage.end
            } else {
                stale_at
            };
            unknown.push(outage.start..until + known_after);
        }
        unknown.extend(event.silence.map(|at| at..at + SILENT_AFTER));
        scenario += &event.table;
    }
    Run {
        scenario,
        unknown,
        counts_overload,
    }
}

/// An event of a scenario.
struct Event {
    table: String,
    /// Seconds after which the fleet, its hosts or their demand are others.
    changes: Vec<u64>,
    /// When there is no control plane.
    outage: Option<Range<u64>>,
    /// When hosts stop to report.
    silence: Option<u64>,
}

fn event(draws: &mut Draws, zones: &[&str]) -> Event {
    let at = draws.between(FIRST..LENGTH - 60);
    let length = draws.one_of(&[5, 15, 40, 100, 300]);
    let zone = draws.one_of(zones);
    let until = format!("for = \"{length}s\"");
    let mut changes = vec![at, at + length];
    let (mut outage, mut silence) = (None, None);
    let effect = match draws.below(10) {
        0 => {
            outage = Some(at..at + length);
            format!("control_plane_outage = {{ {until} }}")
        }
        1 => format!("lose_hosts = {{ zone = \"{zone}\", {until} }}"),
        2 => {
            let factor = draws.one_of(&[0.3, 0.5, 1.5, 2.0]);
            format!("demand = {{ zone = \"{zone}\", factor = {factor:?}, {until} }}")
        }
        3 => {
            silence = Some(at);
            format!("stop_reports = {{ zone = \"{zone}\", {until} }}")
        }
        _ => {
            let how = draws.one_of(&["refuse", "unreachable", "hang", "error", "slow"]);
            let some = draws.one_of(&["", ", hosts = 1", ", hosts = 2"]);
            let share = match (how, draws.below(4)) {
                ("slow", _) | (_, 1..) => "",
                _ => ", share = \"40%\"",
            };
            let every = draws.one_of(&[0, 0, 0, 3, 14, 60, 90]);
            let flapping = if every == 0 {
                String::new()
            } else {
                format!(", every = \"{every}s\"")
            };
            if every >= SLOW_FLAPPING {
                changes.extend((at..at + length).step_by(usize::try_from(every / 2).unwrap()));
            }
            format!(
                "fail = {{ zone = \"{zone}\", how = \"{how}\"{some}{share}{flapping}, {until} }}"
            )
        }
    };
    Event {
        table: format!("[[event]]\nat = \"{at}s\"\n{effect}\n"),
        changes,
        outage,
        silence,
    }
}

/// Failures of links, and restarts.
fn another_event(draws: &mut Draws, zones: &[&str]) -> Event {
    let at = draws.between(FIRST..LENGTH - 60);
    let length = draws.one_of(&[5, 15, 40, 100, 300]);
    let until = format!("for = \"{length}s\"");
    let (from, to) = (draws.one_of(zones), draws.one_of(zones));
    let mut event = Event {
        table: String::new(),
        changes: vec![at, at + length],
        outage: None,
        silence: None,
    };
    let effect = match draws.below(4) {
        0 => {
            event.outage = Some(at..at + length);
            format!("control_plane_outage = {{ {until}, forgets = true }}")
        }
        1 => format!("restart_proxies = {{ zone = \"{from}\" }}"),
        _ => {
            let how = draws.one_of(&["refuse", "unreachable", "hang", "error"]);
            let share = draws.one_of(&["", "", ", share = \"40%\""]);
            let link = format!("zone = \"{to}\", from = \"{from}\"");
            format!("fail = {{ {link}, how = \"{how}\"{share}, {until} }}")
        }
    };
    event.table = format!("[[event]]\nat = \"{at}s\"\n{effect}\n");
    event
}

/// Sums of one policy over the seconds that count.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    requests: f64,
    failed: f64,
}

/// Returns the utilization of all usable hosts above which a run is not compared.
fn highest_compared(run: &Run, policy: Policy) -> f64 {
    match policy {
        _ if !run.counts_overload => OVERLOADED,
        Policy::Headroom => SWINGS_FROM,
        // Reports are late: the zones are not quite level, and what is above a capacity fails.
        Policy::Convergent | Policy::Hybrid => OVERLOADED,
        _ => f64::INFINITY,
    }
}

/// Returns the sums of each policy over the seconds in which the changes before are known.
fn sums(run: &Run, report: &Report, highest: f64) -> Vec<Sum> {
    let csv = report.csv();
    let rows = csv.lines().skip(1).map(|line| line.split(',').collect());
    let fleet = rows.filter(|row: &Vec<&str>| row[2] == "*");
    let rows: Vec<(&str, u64, Vec<f64>)> = fleet
        .map(|row| {
            let values = row[3..].iter().map(|value| value.parse().unwrap_or(0.0));
            (row[0], row[1].parse().unwrap(), values.collect())
        })
        .collect();
    let overloaded = rows.iter().filter(|(_, _, values)| values[0] > highest);
    let overloaded: Vec<_> = overloaded
        .map(|(_, second, _)| *second..second + DRAINED_AFTER)
        .collect();
    let counts = |second: u64| {
        let mut excluded = run.unknown.iter().chain(&overloaded);
        second >= FIRST && !excluded.any(|seconds| seconds.contains(&second))
    };
    let mut sums: Vec<(&str, Sum)> = Vec::new();
    for (policy, second, values) in rows {
        if sums.last().is_none_or(|(last, _)| *last != policy) {
            sums.push((policy, Sum::default()));
        }
        if counts(second) {
            let sum = &mut sums.last_mut().unwrap().1;
            sum.requests += values[5];
            sum.failed += values[8];
        }
    }
    sums.into_iter().map(|(_, sum)| sum).collect()
}

/// Returns a line if measured demand failed more requests than promised.
fn breaks_promise(seed: u64, policies: [Policy; 2]) -> Option<String> {
    let run = run(seed);
    let scenario = Scenario::parse(&run.scenario).unwrap();
    let report = plimsoll_sim::run(&scenario.with_policies(policies.to_vec()), |_| {}).unwrap();
    let sums = sums(&run, &report, highest_compared(&run, policies[1]));
    let [counts, measured] = [sums[0], sums[1]];
    let noise = NOISE * (counts.failed + measured.failed).sqrt();
    let limit = counts.failed + PROMISED * counts.requests + noise;
    let share = |sum: Sum| 100.0 * sum.failed / sum.requests.max(1.0);
    let line = format!(
        "seed {seed}: {:.2} % by host counts, {:.2} % by {}",
        share(counts),
        share(measured),
        policies[1].name(),
    );
    (measured.failed > limit).then(|| format!("{line}\n{}", run.scenario))
}

/// Runs the seeds of the environment, or all.
fn in_all_runs(policies: [Policy; 2]) {
    let seeds = match std::env::var("PLIMSOLL_SEEDS") {
        Ok(seeds) => {
            let (from, to) = seeds.split_once("..").unwrap_or((&seeds, ""));
            let from: u64 = from.parse().unwrap();
            from..to.parse().unwrap_or(from + 1)
        }
        Err(_) => SEEDS,
    };
    let broken: Vec<String> = seeds
        .filter_map(|seed| breaks_promise(seed, policies))
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn measured_demand_fails_no_more_requests_than_host_counts_in_random_runs() {
    in_all_runs([Policy::ZoneAwareHosts, Policy::LrsByReporter]);
}

/// The seed of `load_aware_locality` promises weights by host count where nothing is known, which
/// is what routing without zones comes to.
#[test]
fn convergent_fails_no_more_requests_than_weights_by_host_count_in_random_runs() {
    in_all_runs([Policy::None, Policy::Convergent]);
}

#[test]
fn observed_load_fails_no_more_requests_than_host_counts_in_random_runs() {
    in_all_runs([Policy::ZoneAwareHosts, Policy::ObservedLoad]);
}

#[test]
fn headroom_fails_no_more_requests_than_weights_by_host_count_in_random_runs() {
    in_all_runs([Policy::None, Policy::Headroom]);
}

#[test]
fn hybrid_fails_no_more_requests_than_weights_by_host_count_in_random_runs() {
    in_all_runs([Policy::None, Policy::Hybrid]);
}
