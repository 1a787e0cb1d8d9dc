//! Tables of `envoy.extensions.load_balancing_policies.*.v3`.

use super::Class::{Host, Request};
use super::Inside::{Many, One, Policies, Value};
use super::Kind;
use crate::convert::cluster::POLICY_PREFIX;

/// The policies that we have, by the rest of their name.
pub(super) static POLICIES: [(&str, &Kind); 9] = [
    (
        "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
        &CLIENT_SIDE_WEIGHTED_ROUND_ROBIN,
    ),
    ("least_request.v3.LeastRequest", &LEAST_REQUEST),
    (
        "load_aware_locality.v3.LoadAwareLocality",
        &LOAD_AWARE_LOCALITY,
    ),
    ("maglev.v3.Maglev", &MAGLEV),
    ("random.v3.Random", &RANDOM),
    ("ring_hash.v3.RingHash", &RING_HASH),
    ("round_robin.v3.RoundRobin", &ROUND_ROBIN),
    ("subset.v3.Subset", &SUBSET),
    ("wrr_locality.v3.WrrLocality", &WRR_LOCALITY),
];

/// The table of a policy that we have, by the full name of its type.
pub(super) fn kind(full_name: &str) -> Option<&'static Kind> {
    let name = full_name.strip_prefix(POLICY_PREFIX)?;
    let found = POLICIES.iter().find(|(known, _)| *known == name);
    found.map(|(_, kind)| *kind)
}

/// `envoy.config.cluster.v3.LoadBalancingPolicy`.
pub(super) static LOAD_BALANCING_POLICY: Kind = Kind {
    read: &[(1, "policies", Policies)],
    ..Kind::EMPTY
};

pub(super) static ROUND_ROBIN: Kind = Kind {
    read: &[
        (1, "slow_start_config", One(&SLOW_START)),
        (2, "locality_lb_config", One(&LOCALITY_LB_CONFIG)),
    ],
    ..Kind::EMPTY
};

pub(super) static LEAST_REQUEST: Kind = Kind {
    read: &[
        (1, "choice_count", Value),
        (2, "active_request_bias", One(&RUNTIME_DOUBLE)),
        (3, "slow_start_config", One(&SLOW_START)),
        (4, "locality_lb_config", One(&LOCALITY_LB_CONFIG)),
        (6, "selection_method", Value),
    ],
    // Files are told to write selection_method instead.
    refused: &[(5, "enable_full_scan", Host)],
    ..Kind::EMPTY
};

pub(super) static RANDOM: Kind = Kind {
    read: &[(1, "locality_lb_config", One(&LOCALITY_LB_CONFIG))],
    ..Kind::EMPTY
};

pub(super) static RING_HASH: Kind = Kind {
    read: &[
        (1, "hash_function", Value),
        (2, "minimum_ring_size", Value),
        (3, "maximum_ring_size", Value),
        (4, "use_hostname_for_hashing", Value),
        (5, "hash_balance_factor", Value),
        (6, "consistent_hashing_lb_config", One(&CONSISTENT_HASHING)),
        (7, "locality_weighted_lb_config", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static MAGLEV: Kind = Kind {
    read: &[
        (1, "table_size", Value),
        (2, "consistent_hashing_lb_config", One(&CONSISTENT_HASHING)),
        (3, "locality_weighted_lb_config", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static WRR_LOCALITY: Kind = Kind {
    read: &[(1, "endpoint_picking_policy", One(&LOAD_BALANCING_POLICY))],
    ..Kind::EMPTY
};

/// The legacy message too, of which fields from 9 on are refused where it is decoded.
pub(super) static SUBSET: Kind = Kind {
    read: &[
        (1, "fallback_policy", Value),
        (2, "default_subset", Value),
        (3, "subset_selectors", Many(&SUBSET_SELECTOR)),
        (4, "locality_weight_aware", Value),
        (5, "scale_locality_weight", Value),
        (6, "panic_mode_any", Value),
        (7, "list_as_any", Value),
        (8, "metadata_fallback_policy", Value),
        (9, "subset_lb_policy", One(&LOAD_BALANCING_POLICY)),
        (10, "allow_redundant_keys", Value),
        (50001, "max_subsets", Value),
    ],
    ..Kind::EMPTY
};

static SUBSET_SELECTOR: Kind = Kind {
    read: &[
        (1, "keys", Value),
        (2, "fallback_policy", Value),
        (3, "fallback_keys_subset", Value),
        (4, "single_host_per_subset", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static CLIENT_SIDE_WEIGHTED_ROUND_ROBIN: Kind = Kind {
    read: &[
        (1, "enable_oob_load_report", Value),
        (2, "oob_reporting_period", Value),
        (3, "blackout_period", Value),
        (4, "weight_expiration_period", Value),
        (5, "weight_update_period", Value),
        (6, "error_utilization_penalty", Value),
        (7, "metric_names_for_computing_utilization", Value),
        (8, "slow_start_config", One(&SLOW_START)),
        (9, "oob_reporting_config", One(&OOB_REPORTING)),
        (50001, "utilization_precedence", Value),
        (50002, "locality_lb_config", One(&LOCALITY_LB_CONFIG)),
    ],
    ..Kind::EMPTY
};

pub(super) static LOAD_AWARE_LOCALITY: Kind = Kind {
    read: &[
        (1, "endpoint_picking_policy", One(&LOAD_BALANCING_POLICY)),
        (2, "weight_update_period", Value),
        (3, "metric_names_for_computing_utilization", Value),
        (4, "utilization_variance_threshold", Value),
        (5, "smoothing_time_constant", Value),
        (6, "remote_probe_fraction", Value),
        (7, "weight_expiration_period", Value),
        (8, "enable_oob_load_report", Value),
        (9, "oob_reporting_period", Value),
        (10, "oob_reporting_config", One(&OOB_REPORTING)),
        (50001, "utilization_precedence", Value),
        (50002, "cold_start", Value),
        (50003, "remote_mean", Value),
        (50004, "spill_controller", Value),
        (50005, "local_probe_fraction", Value),
        (50006, "demand_feed_forward", Value),
    ],
    ..Kind::EMPTY
};

/// `common.v3.OrcaOobReportingConfig`. There are no transport sockets to choose among.
pub(super) static OOB_REPORTING: Kind = Kind {
    read: &[(1, "port_value", Value), (2, "authority", Value)],
    refused: &[(3, "transport_socket_match_criteria", Request)],
    ..Kind::EMPTY
};

pub(super) static LOCALITY_LB_CONFIG: Kind = Kind {
    read: &[
        (1, "zone_aware_lb_config", One(&ZONE_AWARE)),
        (2, "locality_weighted_lb_config", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static ZONE_AWARE: Kind = Kind {
    read: &[
        (1, "routing_enabled", Value),
        (2, "min_cluster_size", Value),
        (3, "fail_traffic_on_panic", Value),
        (4, "force_locality_direct_routing", Value),
        (5, "force_local_zone", One(&FORCE_LOCAL_ZONE)),
        (6, "locality_basis", Value),
        (7, "lrs_rate_config", One(&LRS_RATE)),
        (50001, "upstream_locality_basis", Value),
        (50002, "dead_band_bp", Value),
        (50003, "all_priorities", Value),
        (50004, "observed_load_period", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static FORCE_LOCAL_ZONE: Kind = Kind {
    read: &[(1, "min_size", Value)],
    ..Kind::EMPTY
};

pub(super) static LRS_RATE: Kind = Kind {
    read: &[
        (1, "staleness_threshold", Value),
        (2, "fraction_source", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static SLOW_START: Kind = Kind {
    read: &[
        (1, "slow_start_window", Value),
        (2, "aggression", One(&RUNTIME_DOUBLE)),
        (3, "min_weight_percent", Value),
    ],
    ..Kind::EMPTY
};

pub(super) static CONSISTENT_HASHING: Kind = Kind {
    read: &[
        (1, "use_hostname_for_hashing", Value),
        (2, "hash_balance_factor", Value),
    ],
    refused: &[(3, "hash_policy", Host)],
    ..Kind::EMPTY
};

/// There are no runtime layers behind xDS: the default value holds, and a key changes nothing.
pub(super) static RUNTIME_DOUBLE: Kind = Kind {
    read: &[(1, "default_value", Value), (2, "runtime_key", Value)],
    ..Kind::EMPTY
};
