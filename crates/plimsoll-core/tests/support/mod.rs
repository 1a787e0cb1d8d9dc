//! What the integration tests of the core share: builders of inputs, a driver, tallies of picks.
//!
//! Public API only, as an embedder would use it. The interpreter of operation sequences (`ops.rs`)
//! does not use this file: the fuzz targets include it alone.
#![allow(dead_code, reason = "each test crate uses a part")]

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

/// The moment `seconds` after the origin.
pub(crate) const fn at(seconds: u64) -> Instant {
    Instant::from_secs(seconds)
}

/// A locality that has only a zone.
pub(crate) fn zone(name: &str) -> Locality {
    Locality::zone_only(name)
}

/// Address of a host: 10.zone.high.low, so that no two zones share one.
pub(crate) fn address(zone: usize, host: usize) -> SocketAddr {
    let byte = |number: usize| u8::try_from(number % 256).expect("below 256");
    SocketAddr::from(([10, byte(zone), byte(host / 256), byte(host)], 8080))
}

/// Zones with so many endpoints, all of weight 1 and of unknown (usable) health.
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

/// Parts that are known to be right.
pub(crate) fn checked(parts: AssignmentParts) -> ClusterLoadAssignment {
    ClusterLoadAssignment::try_new(parts).expect("a valid assignment")
}

/// Fractions by zone name, in basis points.
pub(crate) fn fractions(zones: &[(&str, u64)]) -> FractionMap {
    let fraction = |bp| BasisPoints::new(bp, "fraction").expect("a valid fraction");
    zones
        .iter()
        .map(|&(name, bp)| (zone(name), fraction(bp)))
        .collect()
}

/// Settings of a cluster, all unset except what `change` sets.
pub(crate) fn config(change: impl FnOnce(&mut ClusterConfigParts)) -> Arc<ClusterConfig> {
    let mut parts = ClusterConfigParts {
        name: "orders".into(),
        ..Default::default()
    };
    change(&mut parts);
    Arc::new(ClusterConfig::try_new(parts).expect("a valid configuration"))
}

/// Zone-aware settings, all unset except what `change` sets.
pub(crate) fn zone_aware(change: impl FnOnce(&mut ZoneAwareParts)) -> LocalityPolicy {
    let mut parts = ZoneAwareParts::default();
    change(&mut parts);
    LocalityPolicy::ZoneAware(ZoneAware::try_new(parts).expect("valid zone-aware settings"))
}

/// Round robin by zone, with this basis.
pub(crate) fn by_basis(locality_basis: LocalityBasis) -> Arc<ClusterConfig> {
    config(|parts| parts.locality_policy = zone_aware(|zone| zone.locality_basis = locality_basis))
}

/// A balancer and the channel it publishes to: what a driver holds for one cluster.
pub(crate) struct Driver {
    pub(crate) balancer: Balancer,
    publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
}

impl Driver {
    /// A driver of a proxy in zone `own`, at the origin of time.
    pub(crate) fn new(config: Arc<ClusterConfig>, own: &str) -> Self {
        let balancer = Balancer::new(config, zone(own), at(0));
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(at(0)));
        Self {
            balancer,
            publisher,
            reader,
        }
    }

    /// Publishes what there is to publish and returns what happened, as a driver must after each
    /// input.
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

    /// The endpoints of the cluster.
    pub(crate) fn assignment(&mut self, parts: AssignmentParts, now: Instant) -> Vec<Event> {
        self.balancer.handle_assignment(checked(parts), now);
        self.drain()
    }

    /// The fleet.
    pub(crate) fn originating(&mut self, parts: AssignmentParts, now: Instant) -> Vec<Event> {
        self.balancer.handle_originating(checked(parts), now);
        self.drain()
    }

    /// The timer fires.
    pub(crate) fn timeout(&mut self, now: Instant) -> Vec<Event> {
        self.balancer.handle_timeout(now);
        self.drain()
    }

    /// What workers see.
    pub(crate) fn snapshot(&mut self) -> Arc<RoutingSnapshot> {
        Arc::clone(self.reader.latest())
    }

    /// Why it looks like that.
    pub(crate) fn explain(&mut self) -> Explanation {
        self.reader.latest().explain()
    }

    /// A worker.
    pub(crate) fn picker(&self, seed: u64) -> Picker {
        self.picker_with(Xoshiro256::from_seed(seed))
    }

    /// A worker with a generator of its own kind.
    pub(crate) fn picker_with<R: Rng>(&self, rng: R) -> Picker<R> {
        Picker::new(self.reader.clone(), rng)
    }
}

/// Addresses of the next picks; `None` where there was no host.
pub(crate) fn pick_sequence(picker: &mut Picker, picks: usize) -> Vec<Option<SocketAddr>> {
    let mut pick = || {
        picker
            .pick(PickArgs::default())
            .host()
            .map(|host| host.address())
    };
    (0..picks).map(|_| pick()).collect()
}

/// How many of `picks` requests went where.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By locality.
    pub(crate) localities: BTreeMap<Locality, u64>,
    /// By host.
    pub(crate) hosts: BTreeMap<SocketAddr, u64>,
    /// Without a host.
    pub(crate) failed: u64,
    /// All of them.
    pub(crate) picks: u64,
}

impl Tally {
    /// Picks and counts.
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

    /// Share of a locality.
    pub(crate) fn share(&self, locality: &Locality) -> f64 {
        self.localities
            .get(locality)
            .map_or(0.0, |&count| ratio(count, self.picks))
    }
}

/// Share of a zone in an explanation's localities.
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

/// `part / whole` as a number of its own.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tests are far below 2^53"
)]
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Five standard deviations of the share of `picks` independent draws that hit with chance `p`, and
/// one draw for what rounding does: a correct picker misses this once in a million tries.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts of tests are far below 2^53"
)]
pub(crate) fn sampling_error(p: f64, picks: u64) -> f64 {
    let picks = picks as f64;
    5.0 * (p * (1.0 - p) / picks).sqrt() + 1.0 / picks
}

/// Asserts that two numbers are as good as equal.
#[track_caller]
pub(crate) fn assert_close(actual: f64, expected: f64, tolerance: f64, what: &str) {
    assert!(
        (actual - expected).abs() <= tolerance,
        "{what}: {actual} is not {expected} ± {tolerance}"
    );
}
