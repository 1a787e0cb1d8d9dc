//! Tests of pages from constructed explanations: content and layout.

use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::explain::{
    Explanation, FractionStatus, LocalityExplanation, PreconditionExplanation, PriorityExplanation,
    StateName, ZoneExplanation,
};
use plimsoll_core::locality_picking::fractions::FractionOrigin;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::assignment::{AssignmentParts, ClusterLoadAssignment, LocalityParts};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::time::Instant;

use super::table::width_of;
use super::wrap::WIDTH;
use super::*;

/// Explanation of a real balancer with two zones, whose rows the functions below change.
fn template() -> Explanation {
    let zone = |name: &str, port: u16| LocalityParts {
        observed_traffic_fraction: Some(5000),
        ..LocalityParts::new(
            Locality::new("eu", name, ""),
            [SocketAddr::from(([127, 0, 0, 1], port))],
        )
    };
    let parts = AssignmentParts::new("orders", [zone("a", 1), zone("b", 2)]);
    let assignment = ClusterLoadAssignment::try_new(parts).unwrap();
    let config = ClusterConfig::try_new(ClusterConfigParts {
        locality_policy: LocalityPolicy::ZoneAware(ZoneAware::default()),
        ..ClusterConfigParts::new("orders")
    });
    let own = Locality::new("eu", "a", "");
    let mut balancer = Balancer::new(Arc::new(config.unwrap()), own, Instant::ORIGIN);
    balancer.handle_assignment(assignment.clone(), Instant::ORIGIN);
    balancer.handle_fleet_assignment(assignment, Instant::ORIGIN);
    balancer.poll_snapshot().unwrap().explain()
}

fn row(zone: &str, own: bool, shares: (f64, f64), load: f64) -> LocalityExplanation {
    let mut row = template().localities.remove(0);
    row.zone = zone.into();
    row.own = own;
    (row.hosts, row.healthy, row.healthy_weight) = (5, 5, 5);
    (row.fleet_hosts, row.fleet_healthy) = (4, 4);
    row.observed_traffic_fraction_bp = None;
    (row.local_bp, row.upstream_bp, row.residual_bp) = (4000, 2500, 0);
    (row.expected_share, row.capacity_share) = shares;
    (row.demand_share, row.traffic_share) = (0.5, 0.5);
    row.load_factor = Some(load);
    row
}

fn zone(zone: &str, state: StateName, shares: &[f64]) -> ZoneExplanation {
    let mut row = template().zones.remove(0);
    row.locality = Locality::new("eu", zone, "");
    (row.demand_share, row.kept_local) = (0.4, 0.625);
    row.state = state;
    row.shares = shares.to_vec();
    row
}

fn priority(number: usize, reason_code: Option<Reason>) -> PriorityExplanation {
    let mut row = template().priorities.remove(0);
    row.priority = number;
    (row.hosts, row.healthy) = (20, 20);
    row.state = StateName::LocalityResidual;
    row.reason_code = reason_code;
    row
}

fn precondition(passed: bool) -> PreconditionExplanation {
    let mut row = template().preconditions.remove(0);
    row.name = Reason::UpstreamTooSmall;
    row.passed = passed;
    (row.actual, row.required) = (5, 6);
    row.text = "the upstream cluster has 5 healthy hosts, min_cluster_size is 6".into();
    row
}

/// Explanation with two zones; the proxy's own zone spills to the other.
fn residual() -> Explanation {
    let mut explanation = template();
    explanation.locality_basis = Some(LocalityBasis::LrsReportedRate);
    explanation.state = StateName::LocalityResidual;
    explanation.reason = "the own locality has less capacity than demand".into();
    explanation.reason_code = None;
    explanation.zone_state = StateName::LocalityResidual;
    explanation.local_percent_to_route_bp = Some(6250);
    explanation.preconditions = vec![precondition(true)];
    explanation.fractions.status = FractionStatus::Fresh;
    explanation.fractions.origin = Some(FractionOrigin::EdsField);
    explanation.fractions.age_ms = Some(1500);
    explanation.fractions.staleness_threshold_ms = Some(60_000);
    explanation.localities = vec![
        row("a", true, (0.625, 0.25), 1.0),
        row("b", false, (0.375, 0.75), 1.0),
    ];
    explanation.zones = vec![
        zone("a", StateName::LocalityResidual, &[0.625, 0.375]),
        zone("b", StateName::LocalityDirect, &[0.0, 1.0]),
    ];
    explanation.priorities = vec![priority(0, None)];
    explanation.notes = Vec::new();
    explanation
}

fn plain(explanation: &Explanation) -> String {
    let heading = Heading {
        title: "",
        description: "",
    };
    page(heading, explanation, Style::new(false, None))
}

#[test]
fn a_complete_page() {
    let heading = Heading {
        title: "A title",
        description: "What it\nshows.\n",
    };
    let page = page(heading, &residual(), Style::new(false, None));
    let expected = "\
A title
What it shows.

Cluster orders, seen from eu/a: zone_aware over round_robin, basis LRS_REPORTED_RATE

LocalityResidual: 62.50 % stays local, the rest spills
  the own locality has less capacity than demand

Preconditions
  ✓ the upstream cluster has 5 healthy hosts, min_cluster_size is 6

Localities at priority 0 (▸ own)
  locality  healthy  demand%  capacity%  spare%   share            load  0      1.00     2
▸ a             5/5    40.00      25.00    0.00  62.5 %  █████···  1.00  ████████│········
  b             5/5    40.00      25.00    0.00  37.5 %  ███·····  1.00  ████████│········
  demand: share of all requests that arrives here; capacity: share of the hosts; spare: capacity for
  requests that spill; share: of this proxy's requests; load: traffic ÷ capacity, if the proxies of
  every zone decide the same way

Where the proxies of every zone send their requests
  proxies in  demand  routing         a        b
▸ a           40.0 %  spills     62.5 %   37.5 %
  b           40.0 %  all local       –  100.0 %

Measured fractions of demand
  in force for every zone; 1.5 s old, stale after 60 s, from the fleet's EDS assignment

Priorities
  priority   load  degraded load  healthy  degraded  excluded  state
  0         100 %            0 %    20/20         0         0  LocalityResidual
";
    assert_eq!(page, expected);
}

#[test]
fn without_zone_routing_there_are_no_percentages() {
    let mut explanation = residual();
    explanation.state = StateName::NoLocalityRouting;
    explanation.zone_state = StateName::NoLocalityRouting;
    explanation.reason_code = Some(Reason::UpstreamTooSmall);
    explanation.local_percent_to_route_bp = None;
    explanation.preconditions = vec![precondition(true), precondition(false)];
    explanation.localities[1].load_factor = None;
    explanation.priorities = vec![priority(0, Some(Reason::UpstreamTooSmall))];
    let page = plain(&explanation);
    assert!(
        page.contains("NoLocalityRouting: localities are ignored\n"),
        "{page}"
    );
    assert!(
        page.contains("  ✓ the up") && page.contains("  ✗ the up"),
        "{page}"
    );
    assert!(
        page.contains("▸ a             5/5        –          –       –  62.5 %"),
        "{page}"
    );
    assert!(
        page.contains("  b             5/5        –          –       –  37.5 %  ███·····     –\n")
    );
    assert!(page.contains("  none: upstream too small\n"), "{page}");
}

#[test]
fn regions_are_shown_where_the_own_one_differs() {
    let mut explanation = residual();
    assert!(!plain(&explanation).contains("  eu/b "));
    explanation.own_locality = Some(Locality::zone_only("a"));
    let page = plain(&explanation);
    assert!(
        page.contains("seen from a: ") && page.contains("▸ eu/a ") && page.contains("  eu/b "),
        "{page}"
    );
}

#[test]
fn an_override_of_zone_routing_is_shown_with_the_state_it_overrides() {
    let mut explanation = residual();
    explanation.state = StateName::NoLocalityRouting;
    explanation.reason_code = Some(Reason::UpstreamInPanic);
    explanation.reason = "the upstream cluster is in panic".into();
    explanation.notes = vec!["priority 0 is in panic".into()];
    explanation.priorities[0].panic = true;
    let page = plain(&explanation);
    let expected = "NoLocalityRouting: localities are ignored\n  the upstream cluster is in \
                    panic\n  ! priority 0 is in panic\n  overrides: LocalityResidual\n";
    assert!(page.contains(expected), "{page}");
    assert!(page.trim_end().ends_with("panic"), "{page}");
    for row in &mut explanation.localities {
        row.expected_share = 0.0;
    }
    assert!(plain(&explanation).contains("NoLocalityRouting: requests fail\n"));
}

#[test]
fn reported_utilization_replaces_shares_of_demand() {
    let mut explanation = residual();
    explanation.locality_policy = "load_aware_locality";
    explanation.locality_basis = None;
    explanation.state = StateName::LoadAwareLocality;
    explanation.zone_state = StateName::NoLocalityRouting;
    explanation.reason_code = Some(Reason::LoadAwareLocality);
    explanation.reason = "localities are chosen by the utilization that hosts report".into();
    explanation.priorities = vec![priority(0, Some(Reason::LoadAwareLocality))];
    let unreported = plain(&explanation);
    assert!(unreported.contains("demand%") && !unreported.contains("utilization:"));
    explanation.localities[0].utilization = Some(0.704);
    let page = plain(&explanation);
    let expected = "\
LoadAwareLocality: 62.50 % stays local
  localities are chosen by the utilization that hosts report
";
    assert!(page.contains(expected), "{page}");
    let expected = "
  locality  healthy  utilization   share            load  0      1.00     2
▸ a             5/5         0.70  62.5 %  █████···  1.00  ████████│········
  b             5/5            –  37.5 %  ███·····  1.00  ████████│········
  utilization: mean of the hosts' reports, smoothed; share: of this proxy's requests; load:
  utilization ÷ mean utilization of all hosts
";
    assert!(page.contains(expected), "{page}");
    assert!(page.ends_with("  by reported utilization\n"), "{page}");
    explanation.localities[0].own = false;
    let remote = plain(&explanation);
    assert!(
        remote.contains("LoadAwareLocality: 0.00 % stays local\n"),
        "{remote}"
    );
}

#[test]
fn every_status_of_fractions_is_described() {
    let rendered = |status, age_ms| {
        let mut explanation = residual();
        explanation.fractions.status = status;
        explanation.fractions.age_ms = age_ms;
        plain(&explanation)
    };
    for (status, words) in [
        (
            FractionStatus::Unused,
            "known, but not used by the locality basis; 90 s old",
        ),
        (
            FractionStatus::Absent,
            "none received: host counts are used",
        ),
        (
            FractionStatus::Partial,
            "zones without one share the rest by host counts",
        ),
        (
            FractionStatus::AllZero,
            "all 0, treated as no data: host counts are used",
        ),
        (
            FractionStatus::Stale,
            "stale: host counts are used; 90 s old, stale after 60 s",
        ),
    ] {
        let page = rendered(status, Some(90_000));
        assert!(page.contains(words), "{status:?}: {page}");
    }
    let unused = rendered(FractionStatus::Unused, None);
    assert!(!unused.contains("Measured"), "{unused}");
    let mut lrs = residual();
    lrs.fractions.origin = Some(FractionOrigin::LrsResponse);
    assert!(plain(&lrs).contains("from the LRS response"));
}

/// Checks the layout with long names, regions, 40 zones and many hosts.
#[test]
fn large_pages_fit_the_width() {
    let mut explanation = residual();
    let name = |index: usize| format!("a-zone-with-a-rather-long-name-{index:02}");
    let shares = vec![0.025; 40];
    explanation.localities = (0..40)
        .map(|index| {
            let mut row = row(&name(index), index == 0, (0.025, 0.025), 1234.5);
            row.region = format!("region-{}", index % 3);
            (row.hosts, row.healthy) = (123_456, 123_455);
            row
        })
        .collect();
    explanation.zones = (0..40)
        .map(|index| zone(&name(index), StateName::LocalityDirect, &shares))
        .collect();
    explanation.reason = "many words ".repeat(40);
    explanation.notes = vec!["a note ".repeat(40)];
    let page = plain(&explanation);
    for line in page.lines() {
        assert!(
            width_of(line) <= WIDTH,
            "{} columns: {line}",
            width_of(line)
        );
        assert_eq!(line.trim_end(), line);
    }
    assert!(page.contains("35 more"), "{page}");
    assert!(
        page.contains("87.5 %"),
        "the last column sums up the others: {page}"
    );
    assert!(page.contains("-name-39"), "{page}");
    assert!(page.contains("1234.50  ████████│███████▶"), "{page}");
}

#[test]
fn colors_do_not_change_the_text() {
    let heading = Heading {
        title: "A title",
        description: "Words.",
    };
    let painted = page(heading, &residual(), Style::new(true, None));
    let mut stripped = String::new();
    let mut rest = painted.as_str();
    while let Some((before, code)) = rest.split_once('\u{1b}') {
        stripped.push_str(before);
        rest = code.split_once('m').map_or("", |(_, after)| after);
    }
    stripped.push_str(rest);
    assert_ne!(painted, stripped);
    assert_eq!(
        stripped,
        page(heading, &residual(), Style::new(false, None))
    );
    assert!(painted.contains("\u{1b}[32m✓\u{1b}[0m"));
    for line in painted.lines() {
        let starts = line.matches("\u{1b}[").count();
        assert_eq!(starts % 2, 0, "a color ends on its line: {line:?}");
    }
}

#[test]
fn an_empty_explanation_has_only_a_heading() {
    let mut explanation = residual();
    explanation.localities.clear();
    explanation.zones.clear();
    explanation.priorities.clear();
    explanation.preconditions.clear();
    explanation.own_locality = None;
    explanation.locality_basis = None;
    let page = plain(&explanation);
    assert!(page.starts_with(
        "Cluster orders, seen from an unknown locality: zone_aware over round_robin\n"
    ));
    assert!(!page.contains("Localities") && !page.contains("Priorities"));
}

#[test]
fn names_from_a_file_cannot_move_the_cursor() {
    let mut explanation = residual();
    explanation.cluster = "or\u{1b}[2Jders".into();
    explanation.localities[1].zone = "b\n\u{7}".into();
    explanation.reason = "bell \u{7}".into();
    let heading = Heading {
        title: "a\u{1b}]0;title\u{7}",
        description: "x\u{8}y",
    };
    let page = page(heading, &explanation, Style::new(false, None));
    assert!(
        !page.contains(|c: char| c.is_control() && c != '\n'),
        "{page:?}"
    );
    assert!(page.contains("\n  b\u{fffd}\u{fffd}  "), "{page}");
}
