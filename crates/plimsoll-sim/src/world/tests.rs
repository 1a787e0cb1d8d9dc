//! Short simulations: requests are conserved, the seed determines the run, failures have an effect.

use super::*;
use crate::metrics::recorder::{BIN, Totals};
use crate::scenario::ScenarioParts;
use crate::testing::three_zones;

fn scenario(more: &str) -> Scenario {
    let mut parts = three_zones();
    let given: ScenarioParts = toml::from_str(more).unwrap();
    parts.event = given.event;
    parts.reports = given.reports;
    parts.scale = given.scale;
    parts.host = given.host;
    parts.control_plane = given.control_plane;
    if let Some(proxies) = given.zone.first().and_then(|zone| zone.proxies) {
        parts
            .zone
            .iter_mut()
            .for_each(|zone| zone.proxies = Some(proxies));
    }
    Scenario::try_new(parts).unwrap()
}

fn run(scenario: &Scenario, policy: Policy) -> Run {
    let workload = Workload::new(scenario);
    World::new(scenario, &workload, policy)
        .unwrap()
        .run(&mut |_| {})
}

fn conserved(totals: Totals) -> bool {
    totals.issued == totals.succeeded + totals.failed + totals.no_host + totals.in_flight
}

/// Returns the share of a zone's requests that stayed local, between two moments in seconds.
fn kept_local(recorder: &Recorder, zone: usize, from: u64, to: u64) -> f64 {
    let (mut local, mut issued) = (0.0, 0.0);
    let bins = num::slot(from * num::SECOND, BIN)..num::slot(to * num::SECOND, BIN);
    for bin in bins {
        local += f64::from(recorder.local_in(bin)[zone]);
        issued += f64::from(recorder.issued_in(bin)[zone]);
    }
    local / issued
}

#[test]
fn every_policy_conserves_requests() {
    let scenario = scenario("");
    for &policy in Policy::ALL.iter().filter(|policy| !policy.is_computed()) {
        let totals = run(&scenario, policy).recorder.totals();
        assert!(conserved(totals), "{policy:?}: {totals:?}");
        // 216 requests/s for 40 s, except at the very start.
        assert!(
            (8_400..=8_640).contains(&totals.issued),
            "{policy:?}: {totals:?}"
        );
        assert_eq!(totals.no_host, 0, "{policy:?}");
    }
}

#[test]
fn all_policies_see_the_same_arrivals() {
    let scenario = scenario("");
    let one = run(&scenario, Policy::None).recorder;
    let other = run(&scenario, Policy::Convergent).recorder;
    for bin in 0..one.bins() {
        assert_eq!(one.issued_in(bin), other.issued_in(bin), "bin {bin}");
    }
}

#[test]
fn the_seed_determines_the_run() {
    let scenario = scenario("[reports]\nnoise = 0.1\nloss = 0.1\n");
    let counts = |scenario: &Scenario| {
        let recorder = run(scenario, Policy::Convergent).recorder;
        (0..recorder.bins())
            .map(|bin| recorder.served_in(bin).to_vec())
            .collect::<Vec<_>>()
    };
    let first = counts(&scenario);
    assert_eq!(first, counts(&scenario));
    assert_ne!(first, counts(&scenario.clone().with_seed(2)));
}

#[test]
fn host_counts_keep_all_and_flat_round_robin_keeps_a_third() {
    let scenario = scenario("");
    let kept = |policy| kept_local(&run(&scenario, policy).recorder, 0, 10, 40);
    assert_eq!(kept(Policy::ZoneAwareHosts), 1.0);
    assert!((kept(Policy::None) - 0.333).abs() < 0.01);
    assert!((kept(Policy::ZoneAwareWeights) - 0.556).abs() < 0.03);
}

#[test]
fn measured_demand_arrives_after_the_first_reports() {
    let scenario = scenario("[control_plane]\nreport_interval = \"5s\"\n");
    let recorder = run(&scenario, Policy::LrsByReporter).recorder;
    assert_eq!(
        kept_local(&recorder, 0, 0, 4),
        1.0,
        "host counts before the first report"
    );
    assert!((kept_local(&recorder, 0, 15, 40) - 0.556).abs() < 0.03);
}

#[test]
fn lost_hosts_fail_requests_until_detected() {
    let scenario = scenario("[[event]]\nat = \"20s\"\nlose_hosts = { zone = \"a\" }\n");
    let recorder = run(&scenario, Policy::ZoneAwareHosts).recorder;
    let failed = |from: usize, to: usize| -> u32 {
        (from * 4..to * 4)
            .flat_map(|bin| recorder.failed_in(bin))
            .sum()
    };
    // 129.6 requests/s fail for three seconds, plus requests in flight.
    assert!((380..=560).contains(&failed(20, 24)), "{}", failed(20, 24));
    // Proxies of zone a stay up and send everything to the other zones, which have the capacity.
    assert_eq!(kept_local(&recorder, 0, 25, 40), 0.0);
    assert!(failed(30, 40) < 40, "{}", failed(30, 40));
    assert!(conserved(recorder.totals()));
}

#[test]
fn a_lost_zone_restarts_its_proxies() {
    let scenario = scenario(
        "[[event]]\nat = \"10s\"\nlose_zone = { zone = \"b\", for = \"10s\" }\n\
         [[zone]]\nname = \"x\"\nproxies = 2\n",
    );
    for policy in [
        Policy::ZoneAwareHosts,
        Policy::LrsByReporter,
        Policy::Hybrid,
    ] {
        let recorder = run(&scenario, policy).recorder;
        let issued = |second: usize| -> u32 {
            (second * 4..second * 4 + 4)
                .map(|bin| recorder.issued_in(bin)[1])
                .sum()
        };
        assert!(
            issued(9) > 40 && issued(12) == 0 && issued(25) > 40,
            "{policy:?}"
        );
        let least = if policy == Policy::Hybrid { 0.3 } else { 0.9 };
        assert!(kept_local(&recorder, 1, 28, 40) > least, "{policy:?}");
        // Until zone b's hosts are detected again, Envoy's choice among full zones may be b.
        assert!(recorder.totals().no_host < 3 * 43, "{policy:?}");
        assert!(conserved(recorder.totals()), "{policy:?}");
    }
}

#[test]
fn reports_arrive_in_band_and_out_of_band_with_and_without_delay() {
    for reports in [
        "",
        "[reports]\ndelay = \"300ms\"\n",
        "[reports]\nmode = \"out_of_band\"\n",
        "[reports]\nmode = \"out_of_band\"\ndelay = \"300ms\"\n",
    ] {
        let recorder = run(&scenario(reports), Policy::Convergent).recorder;
        let kept = kept_local(&recorder, 0, 20, 40);
        assert!((kept - 0.56).abs() < 0.06, "{reports}: {kept}");
    }
}

#[test]
fn without_reports_a_load_aware_policy_sends_only_probes_elsewhere() {
    let silent = scenario("[[event]]\nat = \"0s\"\nstop_reports = {}\n");
    let recorder = run(&silent, Policy::Headroom).recorder;
    let kept = kept_local(&recorder, 0, 5, 40);
    assert!((kept - 0.97).abs() < 0.01, "{kept}");
    let lossy = scenario("[reports]\nloss = 1.0\n");
    let recorder = run(&lossy, Policy::Headroom).recorder;
    assert!((kept_local(&recorder, 0, 5, 40) - 0.97).abs() < 0.01);
}

#[test]
fn an_outage_blocks_fractions() {
    let scenario = scenario(
        "[[event]]\nat = \"0s\"\ncontrol_plane_outage = { for = \"25s\" }\n\
         [control_plane]\nreport_interval = \"3s\"\n",
    );
    let recorder = run(&scenario, Policy::LrsByReporter).recorder;
    assert_eq!(kept_local(&recorder, 0, 0, 25), 1.0);
    assert!((kept_local(&recorder, 0, 33, 40) - 0.556).abs() < 0.05);
}

#[test]
fn sampled_traffic_matches_full_traffic() {
    let mut parts = three_zones();
    parts
        .zone
        .iter_mut()
        .for_each(|zone| zone.hosts[0].capacity = 300.0);
    parts.scale.requests_per_sample = Some(10);
    let scenario = Scenario::try_new(parts).unwrap();
    let recorder = run(&scenario, Policy::Convergent).recorder;
    assert!(
        (8_400..=8_640).contains(&recorder.totals().issued),
        "samples, not requests"
    );
    assert!((kept_local(&recorder, 0, 20, 40) - 0.56).abs() < 0.06);
}

#[test]
fn final_routing_is_explained() {
    let endings = run(&scenario(""), Policy::ZoneAwareHosts).endings;
    let zones: Vec<&str> = endings.iter().map(|ending| ending.zone.as_str()).collect();
    assert_eq!(zones, ["a", "b", "c"]);
    assert!(endings.iter().all(|ending| !ending.reason.is_empty()));
}

#[test]
fn progress_is_reported_every_second_and_at_the_end() {
    let scenario = scenario("");
    let workload = Workload::new(&scenario);
    let mut reported = Vec::new();
    let world = World::new(&scenario, &workload, Policy::None).unwrap();
    world.run(&mut |at| reported.push(at));
    assert!((39..=42).contains(&reported.len()), "{}", reported.len());
    assert!(reported.is_sorted() && reported.last() == Some(&scenario.duration));
}
