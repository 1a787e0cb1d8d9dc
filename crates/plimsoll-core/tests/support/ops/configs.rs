//! Cluster settings from bytes: valid ones, and ones with a single error.

use std::time::Duration;

use plimsoll_core::model::cluster::{
    ClusterConfig, ClusterConfigParts, HealthChecking, LocalityPolicy, LocalitySampling,
};
use plimsoll_core::model::endpoint_policy::{
    ConsistentHashing, EndpointPolicy, HashFunction, LeastRequest, LeastRequestParts, Maglev,
    RingHash, RoundRobin, SelectionMethod, SlowStart,
};
use plimsoll_core::model::zone_aware::{
    CapacityBasis, ForceLocalZone, FractionSource, LocalityBasis, LrsRateConfigParts,
    RuntimeOverrides, ZoneAware, ZoneAwareParts,
};
use plimsoll_core::units::FieldError;

use super::bytes::Bytes;
use super::loads;

/// Returns valid settings of a cluster.
pub(crate) fn config(bytes: &mut Bytes<'_>) -> ClusterConfigParts {
    let endpoint_policy = endpoint_policy(bytes);
    let choices = if endpoint_policy.is_hash() { 4 } else { 10 };
    let locality_policy = match bytes.below(choices) {
        0 => LocalityPolicy::Flat,
        1 => LocalityPolicy::LocalityWeighted,
        2 => LocalityPolicy::WrrLocality,
        3 | 4 => LocalityPolicy::LoadAwareLocality(loads::load_aware_locality(bytes)),
        _ => LocalityPolicy::ZoneAware(zone_aware(bytes)),
    };
    ClusterConfigParts {
        name: "orders".into(),
        healthy_panic_threshold: bytes.maybe(&[50.0, 0.0, 33.3, 100.0]),
        locality_policy,
        endpoint_policy,
        locality_sampling: bytes.one_of(&[
            None,
            Some(LocalitySampling::Random),
            Some(LocalitySampling::LowDiscrepancy),
        ]),
        health_checking: HealthChecking {
            active: bytes.once_in(8),
            ignore_new_hosts_until_first_hc: bytes.flag(),
        },
        runtime: RuntimeOverrides {
            healthy_panic_threshold: bytes.once_in(16).then_some(250),
            zone_routing_enabled: bytes.once_in(16).then_some(101),
            zone_routing_min_cluster_size: bytes.maybe(&[1]),
            force_local_zone_min_size: bytes.once_in(16).then_some(2),
            ..Default::default()
        },
        lrs_report_endpoint_metrics: Vec::new(),
        lb_subset_config: None,
        ..Default::default()
    }
}

fn zone_aware(bytes: &mut Bytes<'_>) -> ZoneAware {
    let force_local_zone = bytes.once_in(5).then(|| ForceLocalZone {
        min_size: bytes.maybe(&[0, 1, 3]),
    });
    let parts = ZoneAwareParts {
        routing_enabled: bytes.maybe(&[100.0, 0.0, 29.0, 99.9]),
        min_cluster_size: bytes.maybe(&[1, 0, 6]),
        fail_traffic_on_panic: bytes.once_in(4),
        force_locality_direct_routing: bytes.once_in(8),
        force_local_zone,
        locality_basis: bytes.one_of(&[
            LocalityBasis::LrsReportedRate,
            LocalityBasis::HealthyHostsNum,
            LocalityBasis::HealthyHostsWeight,
            LocalityBasis::LrsReportedRate,
            LocalityBasis::ObservedLoad,
        ]),
        lrs_rate_config: LrsRateConfigParts {
            staleness_threshold: bytes.maybe(&[5, 600, 17]).map(Duration::from_secs),
            fraction_source: bytes
                .one_of(&[FractionSource::EdsField, FractionSource::LocalityMetadata]),
            ..Default::default()
        },
        upstream_locality_basis: bytes.one_of(&[
            CapacityBasis::HealthyHostsNum,
            CapacityBasis::HealthyHostsWeight,
        ]),
        dead_band_bp: bytes.maybe(&[0, 10_000]),
        all_priorities: bytes.flag(),
        ..Default::default()
    };
    ZoneAware::try_new(parts).expect("valid by construction")
}

fn endpoint_policy(bytes: &mut Bytes<'_>) -> EndpointPolicy {
    let methods = [SelectionMethod::NChoices, SelectionMethod::FullScan];
    match bytes.below(7) {
        0 | 1 => EndpointPolicy::RoundRobin(RoundRobin {
            slow_start: slow_start(bytes),
        }),
        2 => EndpointPolicy::Random,
        3 => {
            let parts = LeastRequestParts {
                choice_count: bytes.maybe(&[2, 7]),
                active_request_bias: bytes.maybe(&[0.0, 0.5, 1.0, 3.0]),
                selection_method: bytes.one_of(&methods),
                slow_start: slow_start(bytes),
                ..Default::default()
            };
            EndpointPolicy::LeastRequest(LeastRequest::try_new(parts).expect("valid"))
        }
        4 => {
            // Small tables, since large ones only add time.
            let (least, most) = bytes.one_of(&[(16, 64), (8, 8), (100, 100), (1, 512)]);
            let function = bytes.one_of(&[HashFunction::XxHash, HashFunction::MurmurHash2]);
            let hashing = consistent_hashing(bytes);
            let ring = RingHash::try_new(function, Some(least), Some(most), hashing);
            EndpointPolicy::RingHash(ring.expect("valid"))
        }
        5 => loads::client_side_weights(bytes),
        _ => {
            let size = bytes.one_of(&[2, 7, 101, 251]);
            let maglev = Maglev::try_new(Some(size), consistent_hashing(bytes));
            EndpointPolicy::Maglev(maglev.expect("valid"))
        }
    }
}

fn consistent_hashing(bytes: &mut Bytes<'_>) -> ConsistentHashing {
    let factor = bytes.maybe(&[0, 100, 150, u32::MAX]);
    ConsistentHashing::try_new(bytes.flag(), factor).expect("valid")
}

fn slow_start(bytes: &mut Bytes<'_>) -> Option<SlowStart> {
    let window = Duration::from_millis(bytes.one_of(&[0, 0, 0, 1, 10_000, 600_000]));
    let (aggression, min) = (bytes.maybe(&[0.5, 2.0]), bytes.maybe(&[0.0, 100.0]));
    SlowStart::try_new(window, aggression, min).expect("valid")
}

/// Returns settings with one error, the result of checking them, and a part of the expected path.
pub(crate) fn broken_config(bytes: &mut Bytes<'_>) -> (Result<(), FieldError>, &'static str) {
    let not_a_share = [f64::NAN, f64::INFINITY, -0.1, 100.1];
    let zone = |parts| ZoneAware::try_new(parts).map(drop);
    match bytes.below(8) {
        0 => {
            let parts = ClusterConfigParts {
                name: String::new(),
                ..config(bytes)
            };
            (ClusterConfig::try_new(parts).map(drop), "name")
        }
        1 => {
            let healthy_panic_threshold = Some(bytes.one_of(&not_a_share));
            let parts = ClusterConfigParts {
                healthy_panic_threshold,
                ..config(bytes)
            };
            (
                ClusterConfig::try_new(parts).map(drop),
                "healthy_panic_threshold",
            )
        }
        2 => {
            let maglev = Maglev::try_new(Some(7), ConsistentHashing::default()).expect("valid");
            let parts = ClusterConfigParts {
                endpoint_policy: EndpointPolicy::Maglev(maglev),
                locality_policy: LocalityPolicy::default(),
                ..config(bytes)
            };
            (
                ClusterConfig::try_new(parts).map(drop),
                "zone_aware_lb_config",
            )
        }
        3 => {
            let routing_enabled = Some(bytes.one_of(&not_a_share));
            (
                zone(ZoneAwareParts {
                    routing_enabled,
                    ..Default::default()
                }),
                "routing_enabled",
            )
        }
        4 => {
            let seconds = bytes.one_of(&[0, 4, 601, u64::MAX]);
            let lrs_rate_config = LrsRateConfigParts {
                staleness_threshold: Some(Duration::from_secs(seconds)),
                ..Default::default()
            };
            (
                zone(ZoneAwareParts {
                    lrs_rate_config,
                    ..Default::default()
                }),
                "staleness_threshold",
            )
        }
        5 => {
            let dead_band_bp = Some(bytes.one_of(&[10_001, u64::MAX]));
            (
                zone(ZoneAwareParts {
                    dead_band_bp,
                    ..Default::default()
                }),
                "dead_band_bp",
            )
        }
        6 => broken_hashing(bytes),
        _ => broken_weighing(bytes),
    }
}

fn broken_hashing(bytes: &mut Bytes<'_>) -> (Result<(), FieldError>, &'static str) {
    let none = ConsistentHashing::default();
    let ring = |least, most| RingHash::try_new(HashFunction::XxHash, least, most, none).map(drop);
    match bytes.below(4) {
        0 => {
            let factor = Some(bytes.one_of(&[1, 99]));
            (
                ConsistentHashing::try_new(false, factor).map(drop),
                "hash_balance_factor",
            )
        }
        1 => {
            let least = bytes.one_of(&[0, 9, 8_388_609]);
            (ring(Some(least), Some(8)), "minimum_ring_size")
        }
        2 => (
            ring(None, Some(bytes.one_of(&[8_388_609, u64::MAX]))),
            "maximum_ring_size",
        ),
        _ => {
            let size = bytes.one_of(&[0, 1, 4, 65_536, 5_000_111, u64::MAX]);
            (Maglev::try_new(Some(size), none).map(drop), "table_size")
        }
    }
}

fn broken_weighing(bytes: &mut Bytes<'_>) -> (Result<(), FieldError>, &'static str) {
    let negative = bytes.one_of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0]);
    let window = Duration::from_secs(1);
    match bytes.below(4) {
        0 => {
            let parts = LeastRequestParts {
                choice_count: Some(bytes.one_of(&[0, 1])),
                ..Default::default()
            };
            (LeastRequest::try_new(parts).map(drop), "choice_count")
        }
        1 => {
            let parts = LeastRequestParts {
                active_request_bias: Some(negative),
                ..Default::default()
            };
            (
                LeastRequest::try_new(parts).map(drop),
                "active_request_bias",
            )
        }
        2 => (
            SlowStart::try_new(window, Some(negative), None).map(drop),
            "aggression",
        ),
        _ => (
            SlowStart::try_new(window, None, Some(negative)).map(drop),
            "min_weight_percent",
        ),
    }
}
