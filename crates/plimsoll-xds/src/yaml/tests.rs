//! Valid clusters in both of Envoy's forms and both spellings; errors and their paths.

use std::time::Duration;

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::cluster::{HealthChecking, LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::{EndpointPolicy, HashFunction, SelectionMethod};
use plimsoll_core::model::zone_aware::{
    CapacityBasis, FractionSource, LocalityBasis, RuntimeOverrides, ZoneAware,
};

use super::{ClusterYaml, Document, RuntimeYaml, cluster_config_parts, parse_cluster};

mod load_aware_locality;
mod rejected;
mod robust;
mod spelling;
pub(crate) mod upstream;

/// Prefix of every `@type`.
const URL: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";

/// Cluster with one typed policy; `fields` are those of its `typed_config`, in flow style.
fn typed(message: &str, fields: &str) -> String {
    let comma = if fields.is_empty() { "" } else { "," };
    format!(
        "name: orders\n\
         load_balancing_policy:\n  \
           policies:\n  \
           - typed_extension_config:\n      \
               name: envoy.load_balancing_policies.any\n      \
               typed_config: {{\n        \
                 {fields}{comma}\n        \
                 \"@type\": {URL}.{message}\n      \
               }}\n"
    )
}

fn round_robin(fields: &str) -> String {
    typed("round_robin.v3.RoundRobin", fields)
}

fn zone_aware_yaml(fields: &str) -> String {
    round_robin(&format!(
        "locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}"
    ))
}

fn accepted(text: &str) -> ClusterConfig {
    parse_cluster(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn error_of(text: &str) -> String {
    match parse_cluster(text) {
        Ok(config) => panic!("accepted: {config:?}\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// Asserts the path of the error, and a word of its reason.
fn assert_rejected(text: &str, path: &str, reason: &str) {
    let error = match parse_cluster(text) {
        Ok(config) => panic!("accepted: {config:?}\n{text}"),
        Err(error) => error,
    };
    assert_eq!(error.path(), path, "{error}\n{text}");
    assert!(error.reason().contains(reason), "{error}\n{text}");
    assert!(error.location().is_some(), "{error}\n{text}");
}

const TYPED_CONFIG: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config";

#[test]
fn the_shortest_cluster_is_round_robin_with_zone_aware_routing() {
    let config = accepted("name: orders\n");
    assert_eq!(config.name().as_ref(), "orders");
    assert_eq!(config.endpoint_policy(), &EndpointPolicy::default());
    assert_eq!(config.zone_aware(), Some(&ZoneAware::default()));
    assert_eq!(config.panic_threshold(), 50);
    assert_eq!(config.locality_sampling(), LocalitySampling::Random);
}

/// The legacy and the typed form of one cluster, with other fields.
#[test]
fn both_forms_of_a_zone_aware_cluster_are_equivalent() {
    let around = "name: my_cluster\n\
                  type: EDS\n\
                  connect_timeout: 0.25s\n\
                  eds_cluster_config:\n  \
                    eds_config:\n    \
                      api_config_source:\n      \
                        api_type: GRPC\n      \
                        grpc_services:\n      \
                        - envoy_grpc: {cluster_name: xds_cluster}\n";
    let legacy = format!(
        "{around}\
         common_lb_config:\n  \
           zone_aware_lb_config:\n    \
             routing_enabled:\n      \
               value: 80\n    \
             min_cluster_size: 4\n    \
             fail_traffic_on_panic: true\n"
    );
    let modern = format!(
        "{around}\
         load_balancing_policy:\n  \
           policies:\n  \
           - typed_extension_config:\n      \
               name: envoy.load_balancing_policies.round_robin\n      \
               typed_config:\n        \
                 \"@type\": {URL}.round_robin.v3.RoundRobin\n        \
                 locality_lb_config:\n          \
                   zone_aware_lb_config:\n            \
                     routing_enabled:\n              \
                       value: 80\n            \
                     min_cluster_size: 4\n            \
                     fail_traffic_on_panic: true\n"
    );
    let config = accepted(&modern);
    assert_eq!(config, accepted(&legacy));
    let zone_aware = config.zone_aware().unwrap();
    assert_eq!(zone_aware.routing_enabled(), 80);
    assert_eq!(zone_aware.min_cluster_size(), 4);
    assert!(zone_aware.fail_traffic_on_panic());
}

#[test]
fn every_field_of_zone_aware_routing_is_read() {
    let config = accepted(&zone_aware_yaml(
        "routing_enabled: {value: 12.5}, min_cluster_size: 7, fail_traffic_on_panic: true, \
         force_local_zone: {min_size: 3}, locality_basis: LRS_REPORTED_RATE, \
         lrs_rate_config: {staleness_threshold: 7.5s, fraction_source: LOCALITY_METADATA}, \
         upstream_locality_basis: HEALTHY_HOSTS_WEIGHT, dead_band_bp: 250, all_priorities: true",
    ));
    let zone_aware = config.zone_aware().unwrap();
    assert_eq!(zone_aware.routing_enabled(), 12);
    assert_eq!(zone_aware.min_cluster_size(), 7);
    assert!(zone_aware.fail_traffic_on_panic());
    assert_eq!(zone_aware.force_local_zone(), Some(3));
    assert_eq!(zone_aware.locality_basis(), LocalityBasis::LrsReportedRate);
    assert_eq!(
        zone_aware.staleness_threshold(),
        Duration::from_millis(7500)
    );
    assert_eq!(
        zone_aware.fraction_source(),
        FractionSource::LocalityMetadata
    );
    assert_eq!(
        zone_aware.upstream_locality_basis(),
        CapacityBasis::HealthyHostsWeight
    );
    assert_eq!(
        zone_aware
            .written_dead_band()
            .map(plimsoll_core::units::BasisPoints::get),
        Some(250)
    );
    assert!(zone_aware.all_priorities());
}

#[test]
fn the_observed_load_basis_is_read_with_its_settings() {
    let fields = "locality_basis: OBSERVED_LOAD, min_cluster_size: 2, all_priorities: true, \
                  upstream_locality_basis: HEALTHY_HOSTS_WEIGHT, dead_band_bp: 0, \
                  observed_load_period: 0.5s";
    let config = accepted(&zone_aware_yaml(fields));
    let zone_aware = config.zone_aware().unwrap();
    assert_eq!(zone_aware.locality_basis(), LocalityBasis::ObservedLoad);
    assert_eq!(
        zone_aware.observed_load_period(),
        Duration::from_millis(500)
    );
    assert_eq!(zone_aware.min_cluster_size(), 2);
    assert_eq!(
        zone_aware
            .written_dead_band()
            .map(plimsoll_core::units::BasisPoints::get),
        Some(0)
    );
    assert_eq!(
        zone_aware.upstream_locality_basis(),
        CapacityBasis::HealthyHostsWeight
    );
    assert!(zone_aware.all_priorities());
    let camel = "localityBasis: 50001, minClusterSize: 2, allPriorities: true, \
                 upstreamLocalityBasis: 1, deadBandBp: 0, observedLoadPeriod: 0.5s";
    assert_eq!(accepted(&zone_aware_yaml(camel)), config);
    let path =
        format!("{TYPED_CONFIG}.locality_lb_config.zone_aware_lb_config.observed_load_period");
    let short = zone_aware_yaml("observed_load_period: 0.01s");
    assert_rejected(&short, &path, "outside 100ms to 60s");
}

#[test]
fn the_spellings_of_force_local_zone() {
    let forced = |fields| {
        let config = accepted(&zone_aware_yaml(fields));
        config.zone_aware().unwrap().force_local_zone()
    };
    assert_eq!(forced(""), None);
    assert_eq!(forced("force_local_zone: {}"), Some(1));
    assert_eq!(forced("force_local_zone: {min_size: 0}"), Some(0));
    assert_eq!(forced("force_locality_direct_routing: true"), Some(1));
    assert_eq!(forced("force_locality_direct_routing: false"), None);
}

#[test]
fn camel_case_numbers_in_quotes_and_enums_by_number() {
    let snake = zone_aware_yaml(
        "min_cluster_size: 7, locality_basis: HEALTHY_HOSTS_WEIGHT, \
         force_local_zone: {min_size: 2}",
    );
    let camel = r#"{"name": "orders", "loadBalancingPolicy": {"policies": [
        {"typedExtensionConfig": {"name": "any", "typedConfig": {
        "@type": "URL.round_robin.v3.RoundRobin",
        "localityLbConfig": {"zoneAwareLbConfig": {
        "minClusterSize": "7", "localityBasis": 1, "forceLocalZone": {"minSize": 2}}}}}}]}}"#;
    assert_eq!(accepted(&camel.replace("URL", URL)), accepted(&snake));
}

#[test]
fn locality_weights_are_read_in_all_forms() {
    for text in [
        "name: orders\ncommon_lb_config: {locality_weighted_lb_config: {}}\n".to_owned(),
        round_robin("locality_lb_config: {locality_weighted_lb_config: {}}"),
        typed("ring_hash.v3.RingHash", "locality_weighted_lb_config: {}"),
        typed("maglev.v3.Maglev", "locality_weighted_lb_config: {}"),
    ] {
        let config = accepted(&text);
        assert_eq!(config.locality_policy(), &LocalityPolicy::LocalityWeighted);
    }
}

#[test]
fn every_lb_policy_is_read_with_its_settings() {
    let policy = |text: &str| accepted(text).endpoint_policy().clone();
    let legacy = policy("name: a\nlb_policy: RANDOM\n");
    assert_eq!(legacy, EndpointPolicy::Random);
    assert_eq!(legacy, policy(&typed("random.v3.Random", "")));

    let fields = "choice_count: 5, active_request_bias: {default_value: 0.5, runtime_key: bias}, \
                  slow_start_config: {slow_start_window: 60s}";
    let legacy = policy(&format!(
        "{{name: a, lb_policy: LEAST_REQUEST, least_request_lb_config: {{{fields}}}}}"
    ));
    let modern = policy(&typed("least_request.v3.LeastRequest", fields));
    let EndpointPolicy::LeastRequest(least_request) = &legacy else {
        panic!("{legacy:?}");
    };
    let numbers = (
        least_request.choice_count(),
        least_request.active_request_bias(),
    );
    assert_eq!(numbers, (5, 0.5));
    assert_eq!(modern, legacy);

    let legacy = policy(
        "name: a\nlb_policy: RING_HASH\nring_hash_lb_config: {minimum_ring_size: 10, \
         maximum_ring_size: 20, hash_function: MURMUR_HASH_2}\n\
         common_lb_config: {consistent_hashing_lb_config: {use_hostname_for_hashing: true, \
         hash_balance_factor: 150}}\n",
    );
    let EndpointPolicy::RingHash(ring) = &legacy else {
        panic!("{legacy:?}");
    };
    assert_eq!(ring.hash_function(), HashFunction::MurmurHash2);
    assert_eq!(
        (ring.minimum_ring_size(), ring.maximum_ring_size()),
        (10, 20)
    );
    assert!(ring.consistent_hashing().use_hostname_for_hashing());
    assert_eq!(ring.consistent_hashing().hash_balance_factor(), Some(150));

    let legacy = policy("name: a\nlb_policy: MAGLEV\nmaglev_lb_config: {table_size: 251}\n");
    assert_eq!(
        legacy,
        policy(&typed("maglev.v3.Maglev", "table_size: 251"))
    );
}

#[test]
fn ring_hash_has_two_spellings_of_its_key_and_its_own_enum() {
    let new = typed(
        "ring_hash.v3.RingHash",
        "consistent_hashing_lb_config: {use_hostname_for_hashing: true, hash_balance_factor: 150}",
    );
    let old = typed(
        "ring_hash.v3.RingHash",
        "use_hostname_for_hashing: true, hash_balance_factor: 150",
    );
    assert_eq!(accepted(&new), accepted(&old));
    let both = new.replace(
        "consistent_hashing_lb_config",
        "hash_balance_factor: 150, consistent_hashing_lb_config",
    );
    let path = format!("{TYPED_CONFIG}.hash_balance_factor");
    assert_rejected(&both, &path, "cannot be combined");
    // 1 is XX_HASH here and MURMUR_HASH_2 in the legacy message.
    for (number, function) in [
        (0, HashFunction::XxHash),
        (1, HashFunction::XxHash),
        (2, HashFunction::MurmurHash2),
    ] {
        let text = typed("ring_hash.v3.RingHash", &format!("hash_function: {number}"));
        let EndpointPolicy::RingHash(ring) = accepted(&text).endpoint_policy().clone() else {
            panic!("{text}");
        };
        assert_eq!(ring.hash_function(), function);
    }
}

#[test]
fn slow_start_and_full_scan_are_read() {
    let config = accepted(&round_robin(
        "slow_start_config: {slow_start_window: 30s, aggression: {default_value: 2.0, \
         runtime_key: a}, min_weight_percent: {value: 25}}",
    ));
    let slow_start = config.endpoint_policy().slow_start().unwrap();
    assert_eq!(slow_start.window(), Duration::from_secs(30));
    let ramp = (slow_start.aggression(), slow_start.min_weight_percent());
    assert_eq!(ramp, (2.0, 25.0));
    let off = accepted(&round_robin("slow_start_config: {}"));
    assert_eq!(off.endpoint_policy().slow_start(), None);
    let scan = typed(
        "least_request.v3.LeastRequest",
        "selection_method: FULL_SCAN",
    );
    let EndpointPolicy::LeastRequest(scan) = accepted(&scan).endpoint_policy().clone() else {
        panic!("not least request");
    };
    assert_eq!(scan.selection_method(), SelectionMethod::FullScan);
}

#[test]
fn health_settings_and_the_plimsoll_extension_are_read() {
    let config = accepted(
        "name: a\nhealth_checks: [{timeout: 1s}]\n\
         common_lb_config: {healthy_panic_threshold: {value: 33.9}, update_merge_window: 0s, \
         ignore_new_hosts_until_first_hc: true}\nplimsoll: {locality_sampling: LOW_DISCREPANCY}\n",
    );
    assert_eq!(config.panic_threshold(), 33);
    assert_eq!(config.locality_sampling(), LocalitySampling::LowDiscrepancy);
    let expected = HealthChecking {
        active: true,
        ignore_new_hosts_until_first_hc: true,
    };
    assert_eq!(config.health_checking(), expected);
    // The threshold may be combined with a typed policy; only the three locality choices may not.
    let text = round_robin("") + "common_lb_config: {healthy_panic_threshold: {value: 0}}\n";
    assert_eq!(accepted(&text).panic_threshold(), 0);
}

/// Entry of `policies`: a message and the fields of its `typed_config`, in flow style.
fn policy((message, fields): &(&str, &str)) -> String {
    let config = format!("{{\"@type\": {URL}.{message}{fields}}}");
    format!("{{typed_extension_config: {{name: x, typed_config: {config}}}}}")
}

fn with_policies(messages: &[(&str, &str)]) -> String {
    let policies: Vec<_> = messages.iter().map(policy).collect();
    let policies = policies.join(", ");
    format!("name: a\nload_balancing_policy: {{policies: [{policies}]}}\n")
}

const CSWRR: &str = "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin";

/// Policy that Envoy supports and Plimsoll does not.
const PICK_FIRST: &str = "pick_first.v3.PickFirst";

#[test]
fn the_first_supported_policy_wins() {
    let text = with_policies(&[
        (PICK_FIRST, ", shuffle_address_list: true"),
        ("random.v3.Random", ""),
        ("round_robin.v3.RoundRobin", ""),
    ]);
    assert_eq!(accepted(&text).endpoint_policy(), &EndpointPolicy::Random);
    // Policies after the first supported one are checked too.
    let text = with_policies(&[
        ("random.v3.Random", ""),
        ("maglev.v3.Maglev", ", table_size: 4"),
    ]);
    let path = "load_balancing_policy.policies[1].typed_extension_config.typed_config.table_size";
    assert_rejected(&text, path, "not a prime");
    // A typed policy supersedes lb_policy, whose settings remain for older clients.
    let text = with_policies(&[("random.v3.Random", "")])
        + "lb_policy: RING_HASH\nring_hash_lb_config: {minimum_ring_size: 10}\n";
    assert_eq!(accepted(&text).endpoint_policy(), &EndpointPolicy::Random);
    let text = with_policies(&[("random.v3.Random", "")]) + "lb_policy: 7\n";
    assert_eq!(accepted(&text).endpoint_policy(), &EndpointPolicy::Random);
}

#[test]
fn unsupported_policies_are_named() {
    let path = format!("{TYPED_CONFIG}.@type");
    let only = with_policies(&[(PICK_FIRST, "")]);
    let list = "load_balancing_policy.policies";
    assert_rejected(&only, list, "PickFirst\"] is supported; supported are");
    let unknown = with_policies(&[("round_robbin.v3.RoundRobin", "")]);
    assert_rejected(&unknown, &path, "unknown type");
    let unknown_first = with_policies(&[("nobody.v1.Knows", ""), ("random.v3.Random", "")]);
    assert_rejected(&unknown_first, &path, "unknown type");
    assert_rejected(
        "name: a\nload_balancing_policy: {policies: []}\n",
        "load_balancing_policy.policies",
        "at least one",
    );
}

fn wrr_locality(children: &[(&str, &str)]) -> String {
    let children: Vec<_> = children.iter().map(policy).collect();
    let children = children.join(", ");
    typed(
        "wrr_locality.v3.WrrLocality",
        &format!("endpoint_picking_policy: {{policies: [{children}]}}"),
    )
}

#[test]
fn wrr_locality_supports_any_endpoint_policy() {
    for (message, policy) in [
        ("round_robin.v3.RoundRobin", "round_robin"),
        ("least_request.v3.LeastRequest", "least_request"),
        ("random.v3.Random", "random"),
        ("ring_hash.v3.RingHash", "ring_hash"),
        ("maglev.v3.Maglev", "maglev"),
        (CSWRR, "client_side_weighted_round_robin"),
    ] {
        let config = accepted(&wrr_locality(&[(PICK_FIRST, ""), (message, "")]));
        assert_eq!(config.endpoint_policy().name(), policy);
        assert_eq!(config.locality_policy(), &LocalityPolicy::WrrLocality);
    }
}

#[test]
fn wrr_locality_rejects_locality_policies_and_missing_children() {
    let child = format!("{TYPED_CONFIG}.endpoint_picking_policy");
    let weighted = ", locality_lb_config: {locality_weighted_lb_config: {}}";
    let text = wrr_locality(&[("round_robin.v3.RoundRobin", weighted)]);
    let path = format!("{child}.policies[0].typed_extension_config.typed_config");
    assert_rejected(&text, &path, "chooses a locality");
    let text = wrr_locality(&[(PICK_FIRST, "")]);
    assert_rejected(&text, &child, "No supported endpoint picking policy");
    let text = wrr_locality(&[("random.v3.Random", ", wheight: 1")]);
    let path = format!("{child}.policies[0].typed_extension_config.typed_config.wheight");
    assert_rejected(
        &text,
        &path,
        "unknown field, expected one of locality_lb_config",
    );
}

#[test]
fn client_side_weights_default_to_zone_aware_routing() {
    let config = accepted(&typed(CSWRR, "blackout_period: 3s"));
    let EndpointPolicy::ClientSideWeightedRoundRobin(policy) = config.endpoint_policy() else {
        panic!("{config:?}");
    };
    assert_eq!(policy.blackout_period(), Duration::from_secs(3));
    assert_eq!(config.zone_aware(), Some(&ZoneAware::default()));
    let path = format!("{TYPED_CONFIG}.weight_update_period");
    let text = typed(CSWRR, "weight_update_period: 0s");
    assert_rejected(&text, &path, "less than 1 ms");
    let text = wrr_locality(&[(CSWRR, ", error_utilization_penalty: -1")]);
    let path = format!(
        "{TYPED_CONFIG}.endpoint_picking_policy.policies[0].typed_extension_config.typed_config.\
         error_utilization_penalty"
    );
    assert_rejected(&text, &path, "at least 0");
}

#[test]
fn client_side_weights_support_a_locality_policy() {
    let measured = "locality_lb_config: {zone_aware_lb_config: {locality_basis: \
                    LRS_REPORTED_RATE, min_cluster_size: 6}}";
    let config = accepted(&typed(CSWRR, measured));
    let zone_aware = config.zone_aware().unwrap();
    assert_eq!(zone_aware.locality_basis(), LocalityBasis::LrsReportedRate);
    assert_eq!(zone_aware.written_min_cluster_size(), Some(6));
    assert_eq!(config.locality_sampling(), LocalitySampling::LowDiscrepancy);
    let weighted = "locality_lb_config: {locality_weighted_lb_config: {}}";
    let config = accepted(&typed(CSWRR, weighted));
    assert_eq!(*config.locality_policy(), LocalityPolicy::LocalityWeighted);
    let path = format!("{TYPED_CONFIG}.locality_lb_config");
    let text = typed(CSWRR, "locality_lb_config: {}");
    assert_rejected(&text, &path, "must have zone_aware_lb_config");
    let text = wrr_locality(&[(CSWRR, &format!(", {weighted}"))]);
    let path = format!(
        "{TYPED_CONFIG}.endpoint_picking_policy.policies[0].typed_extension_config.typed_config"
    );
    assert_rejected(&text, &path, "the child chooses a locality");
}

#[test]
fn an_explicit_default_differs_from_unset() {
    let of = |fields: &str| {
        let fields = format!("locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}");
        let config = accepted(&typed("round_robin.v3.RoundRobin", &fields));
        let zone_aware = config.zone_aware().unwrap();
        let basis = zone_aware.written_locality_basis();
        (zone_aware.written_min_cluster_size(), basis)
    };
    assert_eq!(of(""), (None, None));
    assert_eq!(of("min_cluster_size: 6"), (Some(6), None));
    let basis = Some(LocalityBasis::HealthyHostsNum);
    assert_eq!(of("locality_basis: HEALTHY_HOSTS_NUM"), (None, basis));
    let legacy = "{name: a, common_lb_config: {zone_aware_lb_config: {min_cluster_size: 6}}}";
    let legacy = accepted(legacy);
    let size = legacy.zone_aware().unwrap().written_min_cluster_size();
    assert_eq!(size, Some(6));
}

#[test]
fn parts_leave_runtime_keys_to_the_caller() {
    let document = Document::parse("name: a\n").unwrap();
    let cluster: ClusterYaml = document.read().unwrap();
    let mut parts = cluster_config_parts(&cluster).unwrap();
    assert_eq!(parts.runtime, RuntimeOverrides::default());
    let keys = "upstream.healthy_panic_threshold: 1\nupstream.zone_routing.enabled: 2\n\
                upstream.zone_routing.min_cluster_size: 3\n\
                upstream.zone_routing.force_local_zone.min_size: 4\n";
    let document = Document::parse(keys).unwrap();
    parts.runtime = document.read::<RuntimeYaml>().unwrap().into();
    let config = ClusterConfig::try_new(parts).unwrap();
    let zone_aware = config.zone_aware().unwrap();
    assert_eq!(config.panic_threshold(), 1);
    assert_eq!(zone_aware.routing_enabled(), 2);
    assert_eq!(zone_aware.min_cluster_size(), 3);
    assert_eq!(zone_aware.force_local_zone(), Some(4));
    let document = Document::parse("upstream.zone_routing.enable: 2\n").unwrap();
    let error = document.read::<RuntimeYaml>().unwrap_err();
    assert_eq!(error.path(), "upstream.zone_routing.enable");
}

/// `Subset` with these fields around a policy.
fn subset(fields: &str, child: &str) -> String {
    let child = policy(&(child, ""));
    let fields = format!(", {fields}subset_lb_policy: {{policies: [{child}]}}");
    with_policies(&[("subset.v3.Subset", &fields)])
}

#[test]
fn only_the_outermost_policy_may_define_subsets() {
    let config = accepted(&subset(
        "subset_selectors: [{keys: [b, a]}], ",
        "random.v3.Random",
    ));
    assert_eq!(config.endpoint_policy(), &EndpointPolicy::Random);
    let subsets = config.lb_subset_config().unwrap();
    assert_eq!(
        subsets.subset_selectors()[0].keys(),
        &["a".into(), "b".into()]
    );
    let inside = format!("{TYPED_CONFIG}.subset_lb_policy");
    let path = format!("{inside}.policies[0].typed_extension_config.typed_config");
    let nested = subset("", "wrr_locality.v3.WrrLocality");
    assert_rejected(
        &nested,
        &format!("{path}.endpoint_picking_policy"),
        "No supported endpoint picking policy",
    );
    let nobody = subset("", "pick_first.v3.PickFirst");
    assert_rejected(
        &nobody,
        &format!("{inside}.policies"),
        "PickFirst\"] is supported; supported are",
    );
    let childless = with_policies(&[("subset.v3.Subset", "")]);
    assert_rejected(&childless, &format!("{inside}.policies"), "at least one");
    let inner = policy(&("random.v3.Random", ""));
    let inner = format!(", subset_lb_policy: {{policies: [{inner}]}}");
    let wrr = wrr_locality(&[("subset.v3.Subset", &inner)]);
    assert_rejected(
        &wrr,
        &format!(
            "{TYPED_CONFIG}.endpoint_picking_policy.policies[0].typed_extension_config.typed_config"
        ),
        "outermost",
    );
}

#[test]
fn the_two_forms_of_subsets_cannot_be_combined() {
    let text = with_policies(&[("random.v3.Random", "")]) + "lb_subset_config: {}\n";
    assert_rejected(
        &text,
        "lb_subset_config",
        "cannot be combined with load_balancing_policy",
    );
    let text = "name: a\nlb_policy: LOAD_BALANCING_POLICY_CONFIG\nlb_subset_config: \
                {subset_selectors: [{keys: [x]}]}\n";
    let error = error_of(text);
    assert!(
        error.starts_with("load_balancing_policy: must be set"),
        "{error}"
    );
}

#[test]
fn metadata_is_read_verbatim() {
    let text = "name: a\nlbSubsetConfig: {fallbackPolicy: DEFAULT_SUBSET, defaultSubset: \
                {camelCase: null, snake_case: [1, 2.5, yes, {InnerKey: true}]}, subsetSelectors: \
                [{keys: [camelCase]}]}\n";
    let config = accepted(text);
    let default = config.lb_subset_config().unwrap().default_subset();
    assert_eq!(
        default.to_string(),
        r#"camelCase=null, snake_case=[1,2.5,"yes",{"InnerKey":true}]"#
    );
    assert_rejected(
        "name: a\nlb_subset_config: {default_subset: [1]}\n",
        "lb_subset_config.default_subset",
        "expected a map of keys and values",
    );
    assert_rejected(
        "name: a\nlb_subset_config: {subset_selectors: [{keys: }]}\n",
        "lb_subset_config.subset_selectors[0].keys",
        "has no value",
    );
}
