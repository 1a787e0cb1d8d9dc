//! Setup shared by the benches: clusters of two sizes, in a chosen state of zone-aware routing.
//!
//! The comparison with other balancers (`bench/` at the top) includes this file as well, so that it
//! measures the same picks. Nothing here is timed.
#![allow(dead_code, reason = "every bench uses its own part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use plimsoll_core::balancer::Balancer;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, LocalityPolicy, LocalitySampling,
};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware, ZoneAwareParts};
use plimsoll_core::picker::Picker;
use plimsoll_core::publish::{self, Publisher, Reader};
use plimsoll_core::rng::Xoshiro256;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_core::time::Instant;
use plimsoll_core::units::BasisPoints;

/// Proxies of the fleet in every zone.
const PROXIES_PER_ZONE: u32 = 3;

/// Size of a cluster.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Hosts, spread over the zones as evenly as possible.
    pub(crate) hosts: u32,
    /// Zones; the proxy is in the first.
    pub(crate) zones: u32,
}

/// The small end of every comparison.
pub(crate) const SMALL: Shape = Shape {
    hosts: 10,
    zones: 3,
};
/// The large end of every comparison.
pub(crate) const LARGE: Shape = Shape {
    hosts: 10_000,
    zones: 100,
};

impl Shape {
    pub(crate) fn name(self) -> String {
        format!("{}x{}", self.hosts, self.zones)
    }

    fn zone(self, index: u32) -> Locality {
        Locality::new("region", &format!("zone-{index:03}"), "")
    }

    fn hosts_of(self, zone: u32) -> u32 {
        self.hosts / self.zones + u32::from(zone < self.hosts % self.zones)
    }
}

/// State of zone-aware routing.
#[derive(Clone, Copy)]
pub(crate) enum State {
    /// All requests stay in the local zone.
    Direct,
    /// The local zone has 1.5 times as much demand as capacity: two thirds stay, one third spills.
    Residual,
}

impl State {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Residual => "residual",
        }
    }
}

/// Cluster and policies to pick with.
pub(crate) struct Setup {
    pub(crate) shape: Shape,
    pub(crate) state: State,
    pub(crate) endpoint_policy: EndpointPolicy,
    /// `None` = zone-aware routing by measured demand.
    pub(crate) locality_policy: Option<LocalityPolicy>,
    pub(crate) sampling: LocalitySampling,
    /// Weights of hosts differ.
    pub(crate) weighted: bool,
}

impl Setup {
    pub(crate) fn new(shape: Shape, state: State, endpoint_policy: EndpointPolicy) -> Self {
        let sampling = LocalitySampling::Random;
        Self {
            shape,
            state,
            endpoint_policy,
            locality_policy: None,
            sampling,
            weighted: false,
        }
    }
}

/// One cluster: its balancer, publisher and reader.
pub(crate) struct Cluster {
    pub(crate) balancer: Balancer,
    pub(crate) publisher: Publisher<RoutingSnapshot>,
    reader: Reader<RoutingSnapshot>,
}

impl Cluster {
    /// The cluster of `setup`, ready to pick from.
    pub(crate) fn new(setup: Setup) -> Self {
        let now = Instant::ORIGIN;
        let shape = setup.shape;
        let config = ClusterConfigParts {
            name: "upstream".into(),
            locality_policy: setup.locality_policy.unwrap_or_else(measured_demand),
            endpoint_policy: setup.endpoint_policy,
            locality_sampling: Some(setup.sampling),
            ..Default::default()
        };
        let config = Arc::new(ClusterConfig::try_new(config).expect("valid settings"));
        let mut balancer = Balancer::new(config, shape.zone(0), now);
        let (publisher, reader) = publish::channel(balancer.initial_snapshot(now));
        balancer.handle_fleet_assignment(fleet(shape, None), now);
        balancer.handle_assignment(upstream(shape, setup.weighted), now);
        balancer.handle_observed_traffic(fractions(shape, setup.state), now);
        let mut cluster = Self {
            balancer,
            publisher,
            reader,
        };
        cluster.publish();
        cluster
    }

    /// Hands the newest snapshot to the readers, as a driver does after every input.
    pub(crate) fn publish(&mut self) {
        while let Some(snapshot) = self.balancer.poll_snapshot() {
            self.publisher.publish(snapshot);
        }
        while self.balancer.poll_event().is_some() {}
    }

    /// Creates a picker, as each worker has one.
    pub(crate) fn picker(&self) -> Picker {
        Picker::new(self.reader.clone(), Xoshiro256::from_seed(7))
    }
}

/// Address of a host of the upstream cluster.
pub(crate) fn address(host: u32) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from_bits(0x0a00_0000 + host), 8080))
}

/// The upstream cluster; all localities have weight 1.
pub(crate) fn upstream(shape: Shape, weighted: bool) -> ClusterLoadAssignment {
    upstream_with(shape, weighted, &[])
}

/// Like [`upstream`], with the addresses of some hosts replaced.
pub(crate) fn upstream_with(
    shape: Shape,
    weighted: bool,
    replaced: &[(u32, u32)],
) -> ClusterLoadAssignment {
    let mut next = 0;
    let mut endpoint = || {
        let host = next;
        next += 1;
        let other = replaced.iter().find(|&&(old, _)| old == host);
        let mut endpoint = LbEndpoint::new(address(other.map_or(host, |&(_, new)| new)));
        endpoint.load_balancing_weight = weighted.then_some(1 + host % 3);
        endpoint
    };
    let endpoints = (0..shape.zones).map(|zone| LocalityParts {
        locality: shape.zone(zone),
        load_balancing_weight: Some(1),
        lb_endpoints: (0..shape.hosts_of(zone)).map(|_| endpoint()).collect(),
        ..Default::default()
    });
    assignment("upstream", endpoints.collect())
}

/// The fleet: equally many proxies in every zone, with fractions of demand or without.
pub(crate) fn fleet(shape: Shape, state: Option<State>) -> ClusterLoadAssignment {
    let endpoints = (0..shape.zones).map(|zone| LocalityParts {
        locality: shape.zone(zone),
        lb_endpoints: (0..PROXIES_PER_ZONE)
            .map(|proxy| LbEndpoint::new(address(0x80_0000 + zone * PROXIES_PER_ZONE + proxy)))
            .collect(),
        observed_traffic_fraction: state.map(|state| fraction(shape, state, zone)),
        ..Default::default()
    });
    assignment("fleet", endpoints.collect())
}

/// Fractions of demand that lead to `state`.
pub(crate) fn fractions(shape: Shape, state: State) -> FractionMap {
    let zones = (0..shape.zones).map(|zone| {
        let fraction = BasisPoints::new(fraction(shape, state, zone), "fraction");
        (shape.zone(zone), fraction.expect("a share"))
    });
    zones.collect()
}

/// Direct: demand follows capacity. Residual: the local zone has 1.5 times as much, the others
/// share the rest evenly.
fn fraction(shape: Shape, state: State, zone: u32) -> u64 {
    let capacity = 10_000 * shape.hosts_of(zone) / shape.hosts;
    let own = 10_000 * shape.hosts_of(0) / shape.hosts * 3 / 2;
    u64::from(match (state, zone) {
        (State::Direct, _) => capacity,
        (State::Residual, 0) => own,
        (State::Residual, _) => (10_000 - own) / (shape.zones - 1),
    })
}

/// Zone-aware routing by measured demand. Without a dead band: with it, the small surplus of one
/// zone in a hundred would count as noise.
fn measured_demand() -> LocalityPolicy {
    let parts = ZoneAwareParts {
        locality_basis: LocalityBasis::LrsReportedRate,
        dead_band_bp: Some(0),
        ..Default::default()
    };
    LocalityPolicy::ZoneAware(ZoneAware::try_new(parts).expect("valid settings"))
}

fn assignment(name: &str, endpoints: Vec<LocalityParts>) -> ClusterLoadAssignment {
    let parts = AssignmentParts {
        cluster_name: name.into(),
        endpoints,
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).expect("valid assignment")
}
