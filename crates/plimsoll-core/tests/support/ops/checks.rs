//! Invariants of snapshots, explanations and picks, checked after every operation.

use std::sync::Arc;

use plimsoll_core::counts::{ClassCounts, HostSetCounts};
use plimsoll_core::explain::{Explanation, FractionStatus, StateName};
use plimsoll_core::host::Host;
use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::health::HealthClass;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use plimsoll_core::picker::{Pick, PickError};
use plimsoll_core::snapshot::RoutingSnapshot;

use super::model::{HostState, Model};

/// Checks a new snapshot against the model, and remembers the object of each host.
pub(crate) fn snapshot(snapshot: &RoutingSnapshot, model: &mut Model) {
    assert_eq!(snapshot.is_ready(), model.assignment.is_some());
    assert!(
        Arc::ptr_eq(snapshot.config(), &model.config),
        "the settings in force"
    );
    for priority in 0..model.priorities {
        let counts = snapshot
            .counts(priority)
            .expect("priorities never disappear");
        let expected = model.counts(priority);
        if model.reported_weights {
            assert_eq!(without_weights(counts), without_weights(&expected));
            continue;
        }
        assert_eq!(counts, &expected, "counts of priority {priority}");
    }
    assert!(
        snapshot.counts(model.priorities).is_none(),
        "one priority too many"
    );
    assert_eq!(
        snapshot.hosts().count(),
        model.hosts.len(),
        "every host once"
    );
    for host in snapshot.hosts() {
        let known = model
            .hosts
            .get_mut(&host.address())
            .expect("a host of the assignment");
        let weight = known.endpoint.weight();
        assert!(
            model.reported_weights || host.weight() == weight,
            "{host:?}"
        );
        assert!(host.weight() >= 1, "{host:?}");
        assert_eq!(host.locality(), &known.locality, "{}", host.address());
        let scheduled = host.scheduled_weight();
        assert!(
            (0.0..=f64::from(host.weight())).contains(&scheduled),
            "{scheduled}"
        );
        // A host that stays keeps its object, and with it its requests and counters.
        let same = known
            .host
            .as_ref()
            .is_none_or(|before| Arc::ptr_eq(before, host));
        assert!(same, "{} lost its counters", host.address());
        known.host = Some(Arc::clone(host));
    }
    loads(snapshot, model);
    explanation(&snapshot.explain(), snapshot, model);
}

/// Returns what can be compared if host weights come from load reports.
fn without_weights(counts: &HostSetCounts) -> HostSetCounts {
    let mut counts = counts.clone();
    counts.weights = ClassCounts::default();
    counts
        .localities
        .iter_mut()
        .for_each(|slot| slot.healthy_weight = 0);
    counts
}

/// Checks that loads sum to 100 and go to priorities with hosts.
fn loads(snapshot: &RoutingSnapshot, model: &Model) {
    let loads = snapshot.loads();
    if model.priorities == 0 {
        return;
    }
    let hosts: u64 = (0..)
        .map_while(|p| snapshot.counts(p))
        .map(|set| set.flat.all)
        .sum();
    let available: u32 = loads
        .health()
        .iter()
        .chain(loads.degraded_availability())
        .sum();
    let total_panic = loads.panic().iter().all(|&panic| panic);
    if hosts == 0 || (available == 0 && model.config.panic_threshold() == 0) {
        assert_eq!(
            loads.healthy_load()[0],
            100,
            "no host: priority 0 has all load"
        );
        return;
    }
    if available == 0 && !total_panic {
        return; // scores rounded down to nothing: loads stay as they were, as in Envoy
    }
    let sum: u32 = loads
        .healthy_load()
        .iter()
        .chain(loads.degraded_load())
        .sum();
    assert_eq!(sum, 100, "{loads:?}");
    for priority in 0..model.priorities {
        let Some(set) = snapshot.counts(priority) else {
            continue;
        };
        let usable = if total_panic {
            set.flat.all
        } else {
            set.flat.healthy
        };
        assert!(
            loads.healthy_load()[priority] == 0 || usable > 0,
            "{loads:?}"
        );
        assert!(
            loads.degraded_load()[priority] == 0 || set.flat.degraded > 0,
            "{loads:?}"
        );
    }
}

fn explanation(explanation: &Explanation, snapshot: &RoutingSnapshot, model: &Model) {
    assert_eq!(explanation.generation, snapshot.generation());
    assert_eq!(explanation.priorities.len(), model.priorities);
    assert!(!explanation.reason.is_empty() && explanation.notes.iter().all(|n| !n.is_empty()));
    let slots = snapshot.counts(0).map_or(0, |set| set.localities.len());
    assert!(explanation.localities.len() >= slots, "a row per slot");
    let rows = || explanation.localities.iter();
    // Without any host, requests outside zone-aware routing fail and the sum is below 1. Loads may
    // outlive the hosts they were computed for, so degraded load needs degraded hosts.
    let degraded_load = snapshot.loads().degraded_load().first().copied();
    let somebody = snapshot.counts(0).is_some_and(|set| {
        set.flat.healthy > 0 && (degraded_load == Some(0) || set.flat.degraded > 0)
    });
    let own: f64 = rows().map(|row| row.expected_share).sum();
    assert!((0.0..=1.0 + 1e-9).contains(&own), "shares sum to {own}");
    if somebody {
        whole(rows().map(|row| row.expected_share));
    }
    // Zones whose requests fail send nothing, so the sum may be below 1.
    let traffic: f64 = rows().map(|row| row.traffic_share).sum();
    assert!(
        (0.0..=1.0 + 1e-9).contains(&traffic),
        "traffic sums to {traffic}"
    );
    whole(rows().map(|row| row.capacity_share));
    whole(explanation.zones.iter().map(|zone| zone.demand_share));
    for zone in &explanation.zones {
        assert_eq!(zone.shares.len(), slots, "{zone:?}");
        if somebody {
            whole(zone.shares.iter().copied());
        }
        whole([zone.kept_local, 1.0 - zone.kept_local].into_iter());
    }
    for (of, sum) in [
        ("local", rows().map(|row| row.local_bp).sum::<u64>()),
        ("upstream", rows().map(|row| row.upstream_bp).sum()),
        ("residual", rows().map(|row| row.residual_bp).sum()),
    ] {
        assert!(sum <= 10_000, "{of}: {sum} basis points");
    }
    let factors = rows().filter_map(|row| row.load_factor);
    assert!(
        factors
            .into_iter()
            .all(|factor| factor.is_finite() && factor >= 0.0)
    );
    let kept = explanation.local_percent_to_route_bp;
    match explanation.state {
        StateName::NoLocalityRouting
        | StateName::LoadAwareLocality
        | StateName::LocalityWeighted => assert_eq!(kept, None),
        StateName::LocalityDirect => assert_eq!(kept, Some(10_000)),
        StateName::LocalityResidual => assert!(kept.is_some_and(|kept| kept < 10_000)),
        state => unreachable!("no check for {state:?}"),
    }
}

/// Checks that shares are between 0 and 1 and sum to 1, or are all 0.
fn whole(shares: impl Iterator<Item = f64>) {
    let mut sum = 0.0;
    for share in shares {
        assert!((0.0..=1.0 + 1e-9).contains(&share), "a share of {share}");
        sum += share;
    }
    assert!(
        (sum - 1.0).abs() < 1e-6 || sum == 0.0,
        "shares sum to {sum}"
    );
}

/// Checks that the host of a pick is in the list that the pick names, and was not tried while there
/// was another.
pub(crate) fn pick(
    pick: &Pick<'_>,
    avoid: &[Arc<Host>],
    snapshot: &RoutingSnapshot,
    model: &Model,
) {
    assert_eq!(pick.generation, snapshot.generation());
    let known = model
        .hosts
        .get(&pick.host.address())
        .expect("a host of the assignment");
    assert!(
        known
            .host
            .as_ref()
            .is_some_and(|host| Arc::ptr_eq(host, pick.host))
    );
    assert_eq!(pick.priority, known.priority);
    assert_eq!(pick.local, Some(pick.host.locality()) == model.own.as_ref());
    let panic = snapshot.loads().panic()[pick.priority];
    let class = known.health.class();
    let slot = |index: usize| &snapshot.counts(pick.priority).expect("there").localities[index];
    match pick.source {
        HostSource::AllHosts => assert!(panic, "all hosts without panic"),
        HostSource::HealthyHosts => assert_eq!(class, HealthClass::Healthy),
        HostSource::DegradedHosts => assert_eq!(class, HealthClass::Degraded),
        HostSource::LocalityHealthyHosts(index) => {
            assert_eq!(
                (class, &known.locality),
                (HealthClass::Healthy, &slot(index).locality)
            );
        }
        HostSource::LocalityDegradedHosts(index) => {
            assert_eq!(
                (class, &known.locality),
                (HealthClass::Degraded, &slot(index).locality)
            );
        }
        HostSource::LocalityAllHosts(index) => {
            assert_eq!(&known.locality, &slot(index).locality);
        }
    }
    let all = matches!(
        pick.source,
        HostSource::AllHosts | HostSource::LocalityAllHosts(_)
    );
    assert_eq!(panic, all, "panic uses all hosts");
    let tried = |host: &Arc<Host>| avoid.iter().any(|other| Arc::ptr_eq(other, host));
    if tried(pick.host) {
        let others = model
            .hosts
            .values()
            .filter(|other| alternative(known, other, panic, model));
        let untried = others
            .filter_map(|other| other.host.as_ref())
            .find(|host| !tried(host));
        assert!(
            untried.is_none(),
            "{} was not tried",
            untried.map_or("", |h| h.hostname())
        );
    }
}

/// Whether `other` could have been picked instead of `picked`.
fn alternative(picked: &HostState, other: &HostState, panic: bool, model: &Model) -> bool {
    let hashed = model.config.endpoint_policy().is_hash();
    let weightless = model.config.locality_weighted() && other.locality_weight == 0;
    other.priority == picked.priority
        && (panic || other.health.class() == picked.health.class())
        && !(hashed && weightless)
        // The child policy of load_aware_locality sees one locality only.
        && (model.config.load_aware_locality().is_none() || other.locality == picked.locality)
}

/// Checks that a failed request has a valid reason.
pub(crate) fn failure(error: PickError, snapshot: &RoutingSnapshot, model: &Model) {
    let zone_aware = model.config.zone_aware();
    if error == PickError::Panic {
        assert!(zone_aware.is_some_and(ZoneAware::fail_traffic_on_panic));
        let fleet_panic = snapshot
            .source_policy(0)
            .is_some_and(|source| source.fleet_panic);
        assert!(fleet_panic || snapshot.loads().panic().contains(&true));
        return;
    }
    // An empty list behind an otherwise valid decision: a locality without hosts of that class, no
    // healthy host at all, or hashing, which ignores degraded hosts and localities without weight.
    //
    // Zone-aware routing chooses a locality without hosts of that class only where Envoy does: by
    // its own bases, while demand is unknown, or because of force_local_zone.
    let status = snapshot.explain().fractions.status;
    let measured = matches!(status, FractionStatus::Fresh | FractionStatus::Partial);
    let envoys = zone_aware.is_some_and(|config| {
        config.force_local_zone() == Some(0)
            || match config.locality_basis() {
                LocalityBasis::HealthyHostsNum | LocalityBasis::HealthyHostsWeight => true,
                LocalityBasis::LrsReportedRate => !measured,
                LocalityBasis::ObservedLoad => false,
            }
    });
    let routed = envoys
        && (0..model.priorities)
            .filter_map(|priority| snapshot.source_policy(priority))
            .any(|source| source.zone.is_active());
    let sets = (0..).map_while(|priority| snapshot.counts(priority));
    let loads = snapshot.loads();
    let served = sets.enumerate().all(|(priority, set)| {
        let (all, panic) = (set.flat.all > 0, loads.panic()[priority]);
        let healthy = loads.healthy_load()[priority] == 0 || set.flat.healthy > 0;
        let degraded = loads.degraded_load()[priority] == 0 || set.flat.degraded > 0;
        (panic && all) || (healthy && degraded)
    });
    let hashed = model.config.endpoint_policy().is_hash();
    // Scores that round down to zero leave earlier loads in place, or none.
    let scores = loads.health().iter().chain(loads.degraded_availability());
    let outdated = scores.sum::<u32>() == 0;
    assert!(
        routed || hashed || outdated || !served,
        "no host although every list has some: {loads:?}"
    );
}
