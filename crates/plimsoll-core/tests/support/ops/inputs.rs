//! Assignments and fractions from bytes: valid ones, and ones with a single error.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::{
    AssignmentParts, DropOverloadParts, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::units::BasisPoints;

use super::bytes::Bytes;

/// Number of addresses; few, so that hosts stay, move and return.
const POOL: usize = 24;

/// Returns one of several localities, including the unset one.
pub(crate) fn locality(bytes: &mut Bytes<'_>) -> Locality {
    match bytes.below(8) {
        0 | 1 => Locality::zone_only("a"),
        2 | 3 => Locality::zone_only("b"),
        4 => Locality::zone_only("c"),
        5 => Locality::new("r", "a", ""),
        6 => Locality::new("", "a", "rack"),
        _ => Locality::default(),
    }
}

/// Returns an address of the pool, or one that is in no assignment.
pub(crate) fn address(bytes: &mut Bytes<'_>) -> SocketAddr {
    pool(bytes.below(POOL + 1))
}

fn pool(index: usize) -> SocketAddr {
    let low = u8::try_from(index).unwrap_or(u8::MAX);
    if index.is_multiple_of(5) {
        return SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, u16::from(low) + 1], 443));
    }
    SocketAddr::from(([10, 0, 0, low], 80))
}

/// Returns a valid assignment.
pub(crate) fn assignment(bytes: &mut Bytes<'_>) -> AssignmentParts {
    let mut parts = AssignmentParts {
        cluster_name: bytes.one_of(&["orders", "", "fleet"]).to_owned(),
        overprovisioning_factor: bytes.maybe(&[140, 100, 1, 250, u32::MAX]),
        weighted_priority_health: bytes.once_in(4),
        ..Default::default()
    };
    let mut used = BTreeSet::new();
    // Values that two entries of one locality must agree on.
    let mut weights = BTreeMap::new();
    let mut fractions = BTreeMap::new();
    for _ in 0..bytes.below(7) {
        let locality = locality(bytes);
        let priority = bytes.one_of(&[0, 0, 0, 0, 1, 1, 2, 5]);
        let weight = bytes.maybe(&[1, 2, 50, u32::MAX / 8]);
        let fraction = bytes.maybe(&[0, 1, 2500, 5000, 9999, 10_000]);
        let place = (priority, locality.clone());
        parts.endpoints.push(LocalityParts {
            priority,
            load_balancing_weight: *weights.entry(place).or_insert(weight),
            lb_endpoints: endpoints(bytes, &mut used),
            observed_traffic_fraction: *fractions.entry(locality.clone()).or_insert(fraction),
            metadata_traffic_fraction: None,
            locality,
            ..Default::default()
        });
    }
    for entry in &mut parts.endpoints {
        // The other source disagrees about every other locality.
        let bp = fractions.get(&entry.locality).copied().flatten();
        entry.metadata_traffic_fraction = match bp {
            Some(0) | None => None,
            Some(bp) => u32::try_from(10_000 - bp).ok().map(f64::from),
        };
    }
    if bytes.once_in(6) {
        parts.drop_overloads.push(DropOverloadParts {
            category: "throttle".into(),
            numerator: bytes.one_of(&[0, 1, 50, 200, u32::MAX]),
            denominator: bytes.one_of(&[100, 10_000, 1_000_000]),
        });
    }
    parts
}

fn endpoints(bytes: &mut Bytes<'_>, used: &mut BTreeSet<SocketAddr>) -> Vec<LbEndpoint> {
    let mut endpoints = Vec::new();
    for _ in 0..bytes.below(9) {
        let choice = bytes.below(POOL);
        if !used.insert(pool(choice)) {
            continue;
        }
        let status = i32::from(bytes.one_of(&[0_u8, 0, 0, 1, 1, 2, 3, 4, 5]));
        endpoints.push(LbEndpoint {
            address: pool(choice),
            hostname: bytes.one_of(&["", "", "", "h1"]).into(),
            health_status: HealthStatus::from_number(status).unwrap_or_default(),
            // The weights of the whole pool together fit 32 bits.
            load_balancing_weight: bytes.maybe(&[1, 1, 2, 3, 100, u32::MAX / 24]),
            hash_key: bytes.once_in(8).then(|| "key".into()),
            metadata: Metadata::default(),
        });
    }
    endpoints
}

/// Returns a valid assignment with one error, and a part of the expected path.
pub(crate) fn broken_assignment(bytes: &mut Bytes<'_>) -> (AssignmentParts, &'static str) {
    let mut parts = assignment(bytes);
    let new = Locality::zone_only("broken");
    let endpoint = |port: u16| LbEndpoint::new(SocketAddr::from(([192, 0, 2, 1], port)));
    let mut entry = LocalityParts {
        locality: new,
        lb_endpoints: vec![endpoint(80)],
        ..Default::default()
    };
    let path = match bytes.below(14) {
        0 => {
            entry.priority = bytes.one_of(&[129, u32::MAX]);
            "priority"
        }
        1 => {
            entry.load_balancing_weight = Some(0);
            "load_balancing_weight"
        }
        2 => {
            entry.lb_endpoints[0].load_balancing_weight = Some(0);
            "lb_endpoints[0].load_balancing_weight"
        }
        3 => {
            entry.lb_endpoints[0] = endpoint(0);
            "lb_endpoints[0].endpoint.address"
        }
        4 => {
            entry.lb_endpoints.push(endpoint(80));
            "lb_endpoints[1].endpoint.address"
        }
        5 => {
            entry.observed_traffic_fraction = Some(bytes.one_of(&[10_001, 65_536, u64::MAX]));
            "observed_traffic_fraction"
        }
        6 => {
            let wrong = [f64::NAN, -1.0, 0.5, f64::INFINITY, 10_001.0, 1e300];
            entry.metadata_traffic_fraction = Some(bytes.one_of(&wrong));
            "filter_metadata[envoy.lb].observed_traffic_fraction"
        }
        7 => {
            parts.overprovisioning_factor = Some(0);
            "policy.overprovisioning_factor"
        }
        8 | 9 => broken_drop(&mut parts, bytes),
        10 => {
            entry.lb_endpoints.push(endpoint(81));
            entry
                .lb_endpoints
                .iter_mut()
                .for_each(|e| e.load_balancing_weight = Some(u32::MAX));
            "lb_endpoints"
        }
        fault => contradiction(&mut parts, entry.clone(), fault),
    };
    parts.endpoints.push(entry);
    (parts, path)
}

fn broken_drop(parts: &mut AssignmentParts, bytes: &mut Bytes<'_>) -> &'static str {
    let (category, denominator, path) = if bytes.flag() {
        ("", 100, "category")
    } else {
        (
            "throttle",
            bytes.one_of(&[0, 1, 99, u32::MAX]),
            "denominator",
        )
    };
    let category = category.to_owned();
    parts.drop_overloads.push(DropOverloadParts {
        category,
        numerator: 1,
        denominator,
    });
    path
}

/// Adds a second entry that contradicts `entry`, which is pushed after it.
fn contradiction(parts: &mut AssignmentParts, entry: LocalityParts, fault: usize) -> &'static str {
    let other = LocalityParts {
        lb_endpoints: Vec::new(),
        ..entry
    };
    let (other, path) = match fault {
        11 => {
            let far = Locality::zone_only("far");
            let most = LocalityParts {
                load_balancing_weight: Some(u32::MAX),
                ..other
            };
            parts.endpoints.push(LocalityParts {
                locality: far,
                ..most.clone()
            });
            (
                LocalityParts {
                    locality: Locality::zone_only("further"),
                    ..most
                },
                "load_balancing_weight",
            )
        }
        12 => {
            let one = LocalityParts {
                observed_traffic_fraction: Some(1),
                ..other
            };
            parts.endpoints.push(LocalityParts {
                priority: 1,
                ..one.clone()
            });
            let two = LocalityParts {
                observed_traffic_fraction: Some(2),
                ..one
            };
            (two, "observed_traffic_fraction")
        }
        _ => {
            let weight = LocalityParts {
                load_balancing_weight: Some(7),
                ..other
            };
            (weight, "load_balancing_weight")
        }
    };
    parts.endpoints.push(other);
    path
}

/// Returns fractions for one upstream cluster; an empty map withdraws them.
pub(crate) fn fractions(bytes: &mut Bytes<'_>) -> FractionMap {
    let mut fractions = FractionMap::new();
    for _ in 0..bytes.below(5) {
        let bp = bytes.one_of(&[0, 1, 1428, 2500, 5000, 10_000]);
        let bp = BasisPoints::new(bp, "fraction").expect("at most 10000");
        fractions.insert(locality(bytes), bp);
    }
    fractions
}
