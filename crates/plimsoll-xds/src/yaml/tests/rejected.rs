//! Rejected files with path and reason: one row per mistake.

use super::{TYPED_CONFIG, URL, assert_rejected, error_of, typed, with_policies, zone_aware_yaml};

/// Each row: the fields of `zone_aware_lb_config`, the end of the path, a word of the reason.
#[test]
fn invalid_zone_aware_values_are_rejected_at_their_field() {
    for (fields, path, reason) in [
        (
            "routing_enabled: {value: .nan}",
            "routing_enabled.value",
            "NaN",
        ),
        (
            "routing_enabled: {value: NaN}",
            "routing_enabled.value",
            "NaN",
        ),
        (
            "routing_enabled: {value: 100.5}",
            "routing_enabled.value",
            "between 0 and 100",
        ),
        (
            "routing_enabled: {valeu: 1}",
            "routing_enabled.valeu",
            "unknown field",
        ),
        ("routing_enabled: 50", "routing_enabled", "invalid type"),
        (
            "min_cluster_size: -1",
            "min_cluster_size",
            "-1 is not a whole number",
        ),
        (
            "min_cluster_size: 1.5",
            "min_cluster_size",
            "1.5 is not a whole number",
        ),
        (
            "min_cluster_size: {value: 6}",
            "min_cluster_size",
            "invalid type: map",
        ),
        (
            "fail_traffic_on_panic: yes",
            "fail_traffic_on_panic",
            "expected a boolean",
        ),
        (
            "force_local_zone: {min_size: 4294967296}",
            "force_local_zone.min_size",
            "is above 4294967295",
        ),
        (
            "locality_basis: HEALTHY_HOST_NUM",
            "locality_basis",
            "expected one of HEALTHY_HOSTS_NUM",
        ),
        ("locality_basis: 4", "locality_basis", "unknown value 4"),
        ("locality_basis: -1", "locality_basis", "unknown value -1"),
        (
            "upstream_locality_basis: 2",
            "upstream_locality_basis",
            "unknown value 2",
        ),
        ("dead_band_bp: 10001", "dead_band_bp", "above 10000"),
        (
            "lrs_rate_config: {fraction_source: CDS}",
            "lrs_rate_config.fraction_source",
            "EDS_FIELD",
        ),
        (
            "lrs_rate_config: {staleness_threshold: 60}",
            "lrs_rate_config.staleness_threshold",
            "has no unit",
        ),
        (
            "lrs_rate_config: {staleness_threshold: 4s}",
            "lrs_rate_config.staleness_threshold",
            "5s to 600s",
        ),
        (
            "lrs_rate_config: {staleness_treshold: 5s}",
            "lrs_rate_config.staleness_treshold",
            "unknown field",
        ),
    ] {
        let path = format!("{TYPED_CONFIG}.locality_lb_config.zone_aware_lb_config.{path}");
        assert_rejected(&zone_aware_yaml(fields), &path, reason);
    }
}

/// Each row: the message, its fields, the end of the path, a word of the reason.
#[test]
fn invalid_typed_policy_values_are_rejected_at_their_field() {
    let hash = "ring_hash.v3.RingHash";
    for (message, fields, path, reason) in [
        (
            "round_robin.v3.RoundRobin",
            "slow_start_config: {aggression: {default_value: 0}}",
            "slow_start_config.aggression.default_value",
            "above 0",
        ),
        (
            "round_robin.v3.RoundRobin",
            "slow_start_config: {min_weight_percent: {value: 101}}",
            "slow_start_config.min_weight_percent.value",
            "between 0 and 100",
        ),
        (
            "round_robin.v3.RoundRobin",
            "locality_lb_config: {}",
            "locality_lb_config",
            "must have",
        ),
        (
            "round_robin.v3.RoundRobin",
            "locality_lb_config: {zone_aware_lb_config: {}, locality_weighted_lb_config: {}}",
            "locality_lb_config.locality_weighted_lb_config",
            "cannot be combined",
        ),
        (
            "round_robin.v3.RoundRobin",
            "locality_lb_config: {locality_weighted_lb_config: {x: 1}}",
            "locality_lb_config.locality_weighted_lb_config.x",
            "unknown field",
        ),
        (
            "round_robin.v3.RoundRobin",
            "locality_lb_config: {locality_weighted_lb_config: }",
            "locality_lb_config.locality_weighted_lb_config",
            "has no value",
        ),
        (
            "least_request.v3.LeastRequest",
            "choice_count: 1",
            "choice_count",
            "less than 2",
        ),
        (
            "least_request.v3.LeastRequest",
            "active_request_bias: {default_value: Infinity}",
            "active_request_bias.default_value",
            "finite",
        ),
        (
            "least_request.v3.LeastRequest",
            "enable_full_scan: true",
            "enable_full_scan",
            "selection_method",
        ),
        (
            "maglev.v3.Maglev",
            "table_size: 65536",
            "table_size",
            "not a prime",
        ),
        (
            "maglev.v3.Maglev",
            "locality_lb_config: {zone_aware_lb_config: {}}",
            "locality_lb_config",
            "unknown field",
        ),
        (
            hash,
            "locality_lb_config: {zone_aware_lb_config: {}}",
            "locality_lb_config",
            "locality_weighted_lb_config",
        ),
        (
            hash,
            "minimum_ring_size: 8388609",
            "minimum_ring_size",
            "above",
        ),
        (
            hash,
            "consistent_hashing_lb_config: {hash_balance_factor: 99}",
            "consistent_hashing_lb_config.hash_balance_factor",
            "below 100",
        ),
        (hash, "hash_function: MD5", "hash_function", "XX_HASH"),
    ] {
        assert_rejected(
            &typed(message, fields),
            &format!("{TYPED_CONFIG}.{path}"),
            reason,
        );
    }
}

/// Each row: fields beside `name`, the path, a word of the reason.
#[test]
fn invalid_clusters_are_rejected_at_their_field() {
    for (text, path, reason) in [
        (
            "health_checks: {}",
            "health_checks",
            "invalid type: map, expected a sequence",
        ),
        (
            "typed_extension_protocol_options: []",
            "typed_extension_protocol_options",
            "invalid type: sequence, expected a map of keys and values",
        ),
        (
            "lb_policy: ROUNDROBIN",
            "lb_policy",
            "expected one of ROUND_ROBIN, LEAST_REQUEST",
        ),
        ("lb_policy: CLUSTER_PROVIDED", "lb_policy", "unknown value"),
        ("lb_polici: RANDOM", "lb_polici", "did you mean lb_policy?"),
        ("load_assignment: {}", "load_assignment", "is not supported"),
        (
            "lb_subset_config: {allow_redundant_keys: true}",
            "lb_subset_config.allow_redundant_keys",
            "is not supported",
        ),
        (
            "lb_subset_config: {subset_selectors: [{keys: [a], fallback_policy: KEYS_SUBSET}]}",
            "lb_subset_config.subset_selectors[0].fallback_keys_subset",
            "must not be empty",
        ),
        (
            "lb_subset_config: {subset_selectors: [{keys: [a]}], locality_weight_aware: true}",
            "lb_subset_config.locality_weight_aware",
            "needs common_lb_config.locality_weighted_lb_config",
        ),
        (
            "lb_subset_config: {max_subsets: 0}",
            "lb_subset_config.max_subsets",
            "between 1 and",
        ),
        (
            "lb_subset_config: {fallback_policy: KEYS_SUBSET}",
            "lb_subset_config.fallback_policy",
            "expected one of NO_FALLBACK, ANY_ENDPOINT, DEFAULT_SUBSET",
        ),
        (
            "common_lb_config: {healthy_panic_threshold: {value: 101}}",
            "common_lb_config.healthy_panic_threshold.value",
            "between 0 and 100",
        ),
        (
            "common_lb_config: {zone_aware_lb_config: {force_local_zone: {}}}",
            "common_lb_config.zone_aware_lb_config.force_local_zone",
            "unknown field",
        ),
        (
            "common_lb_config: {zone_aware_lb_config: {routing_enabled: {value: -1}}}",
            "common_lb_config.zone_aware_lb_config.routing_enabled.value",
            "between 0 and 100",
        ),
        (
            "common_lb_config: {zone_aware_lb_config: {}, locality_weighted_lb_config: {}}",
            "common_lb_config.locality_weighted_lb_config",
            "cannot be combined",
        ),
        (
            "common_lb_config: {consistent_hashing_lb_config: {}}",
            "common_lb_config.consistent_hashing_lb_config",
            "only RING_HASH and MAGLEV",
        ),
        (
            "lb_policy: MAGLEV, common_lb_config: {zone_aware_lb_config: {}}",
            "common_lb_config.zone_aware_lb_config",
            "cannot be combined",
        ),
        (
            "lb_policy: 2, ring_hash_lb_config: {minimum_ring_size: 3, maximum_ring_size: 2}",
            "ring_hash_lb_config.minimum_ring_size",
            "above maximum_ring_size",
        ),
        (
            "lb_policy: RANDOM, ring_hash_lb_config: {}",
            "ring_hash_lb_config",
            "no effect with lb_policy RANDOM",
        ),
        (
            "lb_policy: LEAST_REQUEST, least_request_lb_config: {choice_count: 0}",
            "least_request_lb_config.choice_count",
            "less than 2",
        ),
        (
            "plimsoll: {locality_sampling: GOLDEN}",
            "plimsoll.locality_sampling",
            "LOW_DISCREPANCY",
        ),
        (
            "plimsoll: {localitySampeling: RANDOM}",
            "plimsoll.localitySampeling",
            "unknown field",
        ),
    ] {
        let text = format!("{{name: a, {text}}}");
        assert_rejected(&text, path, reason);
    }
    assert_eq!(error_of("lb_policy: RANDOM\n"), "name: must not be empty");
    assert_eq!(error_of("name: ''\n"), "name: must not be empty (at 1:7)");
    assert_eq!(
        error_of("name: a\nlb_policy: LOAD_BALANCING_POLICY_CONFIG\n"),
        "load_balancing_policy: must be set with lb_policy LOAD_BALANCING_POLICY_CONFIG"
    );
}

#[test]
fn a_typed_policy_excludes_legacy_choices() {
    for field in [
        "zone_aware_lb_config",
        "locality_weighted_lb_config",
        "consistent_hashing_lb_config",
    ] {
        let text = with_policies(&[("random.v3.Random", "")])
            + &format!("common_lb_config:\n  {field}: {{}}\n");
        let path = format!("common_lb_config.{field}");
        assert_rejected(
            &text,
            &path,
            "cannot be combined with load_balancing_policy",
        );
    }
}

#[test]
fn a_typed_config_needs_type_and_name() {
    let start = "name: a\nload_balancing_policy:\n  policies:\n  - typed_extension_config:";
    let path = "load_balancing_policy.policies[0].typed_extension_config";
    let text = format!("{start} {{name: x, typed_config: {{locality_lb_config: {{}}}}}}\n");
    assert_rejected(&text, &format!("{path}.typed_config.@type"), "must be set");
    let text = format!("{start} {{name: x}}\n");
    assert_rejected(&text, &format!("{path}.typed_config"), "must be set");
    let url = format!("{URL}.random.v3.Random");
    let text = format!("{start} {{name: '', typed_config: {{\"@type\": {url}}}}}\n");
    assert_rejected(&text, &format!("{path}.name"), "not empty");
    let text = format!("{start} {{typed_config: {{\"@type\": {url}}}}}\n");
    assert_rejected(&text, &format!("{path}.name"), "must be set");
}

#[test]
fn errors_keep_the_spelling_of_the_file() {
    let text = "name: a\ncommonLbConfig:\n  healthyPanicThreshold: {value: 200}\n";
    assert_eq!(
        error_of(text),
        "commonLbConfig.healthyPanicThreshold.value: 200 is not a percentage between 0 and 100 \
         (at 3:34)"
    );
}
