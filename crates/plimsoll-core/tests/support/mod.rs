//! Shared helpers of the core's integration tests: input builders, a driver, tallies of picks.
//!
//! Public API only, as an embedder would use it. The interpreter of operation sequences (`ops.rs`)
//! does not use this file, because the fuzz targets include it alone.

pub(crate) mod ops;
#[expect(
    clippy::duplicate_mod,
    reason = "a fuzz target includes each file alone"
)]
pub(crate) mod planner_ops;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::event::Event;
use plimsoll_core::explain::Explanation;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{ClusterConfig, ClusterConfigParts, LocalityPolicy};
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use plimsoll_core::picker::{PickArgs, PickResult, Picker};
use plimsoll_core::publish::{self, Publisher, Reader};
use plimsoll_core::rng::{Rng, Xoshiro256};
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;

/// Returns the time `seconds` after the origin.
pub(crate) const fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

/// Returns a locality that has only a zone.
pub(crate) fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

/// Returns the address of a host, 10.zone.high.low, distinct across zones.
pub(crate) fn address(zone: usize, host: usize) -> SocketAddr {
    let byte = |number: usize| u8::try_from(number % 256).expect("below 256");
    SocketAddr::from(([10, byte(zone), byte(host / 256), byte(host)], 8080))
}

/// Returns zones with endpoints of weight 1 and unknown (usable) health.
pub(crate) fn parts(zones: &[(&str, usize)]) -> AssignmentParts {
    let entry = |(index, &(name, hosts)): (usize, &(&str, usize))| LocalityParts {
        locality: zone(name),
        lb_endpoints: (0..hosts)
            .map(|host| LbEndpoint::new(address(index, host)))
            .collect(),
        ..Default::default()
    };
    AssignmentParts {
        cluster_name: "orders".into(),
        endpoints: zones.iter().enumerate().map(entry).collect(),
        ..Default::default()
    }
}

/// Checks parts that are known to be valid.
pub(crate) fn checked(parts: AssignmentParts) -> ClusterLoadAssignment {
    ClusterLoadAssignment::try_new(parts).expect("a valid assignment")
}

/// Returns fractions by zone name, in basis points.
pub(crate) fn fractions(zones: &[(&str, u64)]) -> FractionMap {
    let fraction = |bp| BasisPoints::new(bp, "fraction").expect("a valid fraction");
    zones
        .iter()
        .map(|&(name, bp)| (zone(name), fraction(bp)))
        .collect()
}

/// Returns the settings of a cluster, with defaults except for `change`.
pub(crate) fn config(change: impl FnOnce(&mut ClusterConfigParts)) -> Arc<ClusterConfig> {
    let mut parts = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    change(&mut parts);
    Arc::new(ClusterConfig::try_new(parts).expect("a valid configuration"))
}

/// Returns zone-aware settings, with defaults except for `change`.
pub(crate) fn zone_aware(change: impl FnOnce(&mut ZoneAwareParts)) -> LocalityPolicy {
    let mut parts = ZoneAwareParts::default();
    change(&mut parts);
    LocalityPolicy::ZoneAware(ZoneAware::try_new(parts).expect("valid zone-aware settings"))
}

/// Returns a round-robin cluster with zone-aware routing on this basis.
pub(crate) fn by_basis(locality_basis: LocalityBasis) -> Arc<ClusterConfig> {
    config(|parts| parts.locality_policy = zone_aware(|zone| zone.locality_basis = locality_basis))
}

/// A balancer and the channel it publishes to, as a driver holds them for one cluster.
pub(crate) struct Driver {
    pub(crate) balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
}

impl Driver {
    /// Creates the driver of a proxy in zone `own`, at the origin of time.
    pub(crate) fn new(config: Arc<ClusterConfig>, own: &str) -> Self {
        let balancer = Balancer::new(config, zone(own), at(0));
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(at(0)));
        Self {
            balancer,
            publisher,
            reader,
        }
    }

    /// Publishes the pending snapshot and returns the events, as a driver must do after each input.
    pub(crate) fn drain(&mut self) -> Vec<Event> {
        if let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        assert!(
            self.balancer.poll_snapshot().is_none(),
            "the newest snapshot, once"
        );
        std::iter::from_fn(|| self.balancer.poll_event()).collect()
    }

    /// Updates the endpoints of the cluster.
    pub(crate) fn assignment(&mut self, parts: AssignmentParts, now: Instant) -> Vec<Event> {
        self.balancer.handle_assignment(checked(parts), now);
        self.drain()
    }

    /// Updates the endpoints of the fleet.
    pub(crate) fn originating(&mut self, parts: AssignmentParts, now: Instant) -> Vec<Event> {
        self.balancer.handle_fleet_assignment(checked(parts), now);
        self.drain()
    }

    /// Fires the timer at `now`.
    pub(crate) fn timeout(&mut self, now: Instant) -> Vec<Event> {
        self.balancer.handle_timeout(now);
        self.drain()
    }

    /// Returns the published snapshot.
    pub(crate) fn snapshot(&mut self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.reader.latest())
    }

    /// Explains the published snapshot.
    pub(crate) fn explain(&mut self) -> Explanation {
        self.reader.latest().explain()
    }

    /// Creates a worker with a seeded generator.
    pub(crate) fn picker(&self, seed: u64) -> Picker {
        self.picker_with(Xoshiro256::from_seed(seed))
    }

    /// Creates a worker with the given generator.
    pub(crate) fn picker_with<R: Rng>(&self, rng: R) -> Picker<R> {
        Picker::new(self.reader.clone(), rng)
    }
}

/// Returns the addresses of the next picks; `None` if there was no host.
pub(crate) fn pick_sequence(picker: &mut Picker, picks: usize) -> Vec<Option<SocketAddr>> {
    let mut pick = || {
        picker
            .pick(PickArgs::default())
            .host()
            .map(|host| host.address())
    };
    (0..picks).map(|_| pick()).collect()
}

/// Number of requests per destination.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) localities: BTreeMap<Locality, u64>,
    pub(crate) hosts: BTreeMap<SocketAddr, u64>,
    /// Requests without a host.
    pub(crate) failed: u64,
    /// Total number of requests.
    pub(crate) picks: u64,
}

impl Tally {
    /// Makes `picks` picks and counts them.
    pub(crate) fn of(picker: &mut Picker, picks: u64) -> Self {
        let mut tally = Self {
            picks,
            ..Default::default()
        };
        for _ in 0..picks {
            match picker.pick(PickArgs::default()) {
                PickResult::Complete(pick) => {
                    *tally
                        .localities
                        .entry(pick.host.locality().clone())
                        .or_default() += 1;
                    *tally.hosts.entry(pick.host.address()).or_default() += 1;
                }
                _ => tally.failed += 1,
            }
        }
        tally
    }

    /// Returns the share of a locality.
    pub(crate) fn share(&self, locality: &Locality) -> f64 {
        self.localities
            .get(locality)
            .map_or(0.0, |&count| ratio(count, self.picks))
    }
}

/// Returns a value per zone from the localities of an explanation.
pub(crate) fn by_zone<T>(
    explanation: &Explanation,
    of: impl Fn(&plimsoll_core::explain::LocalityExplanation) -> T,
) -> BTreeMap<String, T> {
    explanation
        .localities
        .iter()
        .map(|row| (row.zone.clone(), of(row)))
        .collect()
}

/// Returns `part / whole` as a floating-point number.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tests are far below 2^53"
)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Returns five standard deviations of the share of `picks` independent draws with probability `p`,
/// plus one draw for rounding: a correct picker fails once in a million runs.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tests are far below 2^53"
)]
pub(crate) fn sampling_error(p: f64, picks: u64) -> f64 {
    let picks = picks as f64;
    5.0 * (p * (1.0 - p) / picks).sqrt() + 1.0 / picks
}

/// Asserts that two numbers are approximately equal.
#[track_caller]
pub(crate) fn assert_close(actual: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (actual - expected).abs() <= tolerance,
        "{what}: {actual} is not {expected} ± {tolerance}"
    );
}
