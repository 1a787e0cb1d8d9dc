//! Clusters encoded by another implementation, round trips, errors and replaced policies.

mod subset;

use plimsoll_core::model::cluster::{ClusterConfigParts, LocalityPolicy, LocalitySampling};
use plimsoll_core::model::endpoint_policy::EndpointPolicy;
use plimsoll_core::model::orca::MetricName;
use plimsoll_core::model::subset::{LbSubsetConfig, LbSubsetConfigParts, SubsetSelectorParts};
use plimsoll_core::model::zone_aware::{LocalityBasis, ZoneAware};
use proptest::prelude::*;

use super::*;
use crate::convert::hex::{hex, message};
use crate::yaml::parse_cluster;
use std::collections::BTreeMap;

use plimsoll_schema::field::{put_field, raw_fields};
use plimsoll_schema::pb::AnyMessage;
use plimsoll_schema::pb::policy::{LoadBalancingPolicyMessage, RandomMessage, ZoneAwareMessage};
use plimsoll_schema::pb::subset::SubsetMessage;
use plimsoll_schema::pb::upstream::{
    ExplicitHttpConfigMessage, Http2Message, HttpProtocolOptionsMessage,
};

/// Policies as YAML, compared with the same policies as bytes.
const POLICIES: &[&str] = &[
    "round_robin.v3.RoundRobin'}",
    "round_robin.v3.RoundRobin', slow_start_config: {slow_start_window: 30s}}",
    "round_robin.v3.RoundRobin', locality_lb_config: {locality_weighted_lb_config: {}}}",
    "round_robin.v3.RoundRobin', locality_lb_config: {zone_aware_lb_config: {routing_enabled: \
     {value: 29}, min_cluster_size: 1, fail_traffic_on_panic: true, force_local_zone: {min_size: \
     0}, locality_basis: HEALTHY_HOSTS_WEIGHT}}}",
    "least_request.v3.LeastRequest', choice_count: 5, active_request_bias: {default_value: 0.5, \
     runtime_key: k}, selection_method: FULL_SCAN, slow_start_config: {slow_start_window: 1s, \
     aggression: {default_value: 2, runtime_key: k}, min_weight_percent: {value: 12.5}}}",
    "random.v3.Random', locality_lb_config: {zone_aware_lb_config: {locality_basis: \
     LRS_REPORTED_RATE, lrs_rate_config: {staleness_threshold: 30s, fraction_source: \
     LOCALITY_METADATA}, upstream_locality_basis: HEALTHY_HOSTS_WEIGHT, dead_band_bp: 7, \
     all_priorities: true}}}",
    "ring_hash.v3.RingHash', hash_function: MURMUR_HASH_2, minimum_ring_size: 10, \
     maximum_ring_size: 20}",
    "maglev.v3.Maglev', table_size: 7, locality_weighted_lb_config: {}, \
     consistent_hashing_lb_config: {use_hostname_for_hashing: true, hash_balance_factor: 150}}",
    "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin', enable_oob_load_report: \
     true, oob_reporting_period: 2s, oob_reporting_config: {port_value: 9, authority: a}, \
     blackout_period: 0s, weight_expiration_period: 9s, weight_update_period: 0.2s, \
     error_utilization_penalty: 1.5, metric_names_for_computing_utilization: [named_metrics.q], \
     utilization_precedence: NAMED_METRICS_FIRST}",
    "wrr_locality.v3.WrrLocality', endpoint_picking_policy: {policies: [{typed_extension_config: \
     {name: c, typed_config: {'@type': type.googleapis.com/envoy.extensions.\
     load_balancing_policies.least_request.v3.LeastRequest}}}]}}",
    "load_aware_locality.v3.LoadAwareLocality', weight_update_period: 0.5s, \
     metric_names_for_computing_utilization: [cpu_utilization], utilization_variance_threshold: \
     0.2, smoothing_time_constant: 3s, remote_probe_fraction: 0.05, weight_expiration_period: 0s, \
     enable_oob_load_report: true, oob_reporting_period: 4s, oob_reporting_config: \
     {port_value: 9001, authority: orca.example}, utilization_precedence: \
     NAMED_METRICS_FIRST, cold_start: HOST_COUNT, remote_mean: REPORTING_ONLY, spill_controller: \
     CONVERGENT, local_probe_fraction: 0.1, demand_feed_forward: false, \
     endpoint_picking_policy: {policies: [{typed_extension_config: {name: c, typed_config: {\
     '@type': type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.Random}}}]}}",
    "subset.v3.Subset', fallback_policy: DEFAULT_SUBSET, default_subset: {stage: prod, n: [1, \
     null, {camelCase: true}]}, subset_selectors: [{keys: [version, stage], fallback_policy: \
     KEYS_SUBSET, fallback_keys_subset: [stage]}, {keys: [id], single_host_per_subset: true, \
     fallback_policy: ANY_ENDPOINT}], locality_weight_aware: true, scale_locality_weight: true, \
     panic_mode_any: true, list_as_any: true, metadata_fallback_policy: FALLBACK_LIST, \
     allow_redundant_keys: true, max_subsets: 7, subset_lb_policy: {policies: \
     [{typed_extension_config: {name: c, typed_config: {'@type': type.googleapis.com/\
     envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest, locality_lb_config: \
     {locality_weighted_lb_config: {}}}}}]}}",
    "subset.v3.Subset', subset_selectors: [{keys: [v]}], subset_lb_policy: {policies: \
     [{typed_extension_config: {name: c, typed_config: {'@type': type.googleapis.com/\
     envoy.extensions.load_balancing_policies.load_aware_locality.v3.LoadAwareLocality, \
     endpoint_picking_policy: {policies: [{typed_extension_config: {name: c, typed_config: \
     {'@type': type.googleapis.com/envoy.extensions.load_balancing_policies.maglev.v3.\
     Maglev}}}]}}}}]}}",
    "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin', locality_lb_config: \
     {zone_aware_lb_config: {locality_basis: LRS_REPORTED_RATE, min_cluster_size: 1}}}",
    "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin', locality_lb_config: \
     {locality_weighted_lb_config: {}}}",
    "random.v3.Random', locality_lb_config: {zone_aware_lb_config: {locality_basis: \
     HEALTHY_HOSTS_NUM, min_cluster_size: 6}}}",
    "least_request.v3.LeastRequest', locality_lb_config: {zone_aware_lb_config: {locality_basis: \
     OBSERVED_LOAD, observed_load_period: 0.25s, dead_band_bp: 40, upstream_locality_basis: \
     HEALTHY_HOSTS_WEIGHT, force_local_zone: {min_size: 2}}}}",
];

fn yaml(policy: &str) -> ClusterConfig {
    let text = format!(
        "name: up\nload_balancing_policy: {{policies: [{{typed_extension_config: {{name: x, \
         typed_config: {{'@type': 'type.googleapis.com/envoy.extensions.load_balancing_policies.\
         {policy}}}}}]}}\n"
    );
    parse_cluster(&text).unwrap_or_else(|error| panic!("{policy}: {error}"))
}

fn configs() -> impl Iterator<Item = ClusterConfig> {
    POLICIES.iter().map(|policy| yaml(policy))
}

/// Every [`LocalityDelivery`] except `AsConfigured`, the one for plimsoll data planes.
const STOCK: [LocalityDelivery; 6] = [
    LocalityDelivery::Stock,
    LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsNum),
    LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight),
    LocalityDelivery::LocalityWeighted,
    LocalityDelivery::None,
    LocalityDelivery::Grpc,
];

/// Protocol options of a cluster with HTTP/2.
pub(super) fn http2() -> BTreeMap<String, AnyMessage> {
    let options = HttpProtocolOptionsMessage {
        explicit_http_config: Some(ExplicitHttpConfigMessage {
            http2_protocol_options: Some(Http2Message::default()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let any = AnyMessage::pack(HTTP_PROTOCOL_OPTIONS, &options);
    BTreeMap::from([(HTTP_PROTOCOL_OPTIONS.to_owned(), any)])
}

#[test]
fn a_cluster_matches_another_encoder() {
    let config = yaml(
        "round_robin.v3.RoundRobin', locality_lb_config: {zone_aware_lb_config: \
         {min_cluster_size: 1}}}",
    );
    let metrics = ["cpu_utilization".to_owned()];
    let settings = ClusterMessage {
        connect_timeout: Some(Duration::from_secs(1).into()),
        lrs_report_endpoint_metrics: metrics.to_vec(),
        typed_extension_protocol_options: http2(),
        ..Default::default()
    };
    let cluster = ClusterOut {
        settings: Some(&settings),
        eds_service_name: Some("svc"),
        load_reporting: true,
        update_merge_window: Some(Duration::ZERO),
        ..ClusterOut::new(
            &config,
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight),
        )
    };
    let written = encode_cluster(&cluster);
    assert_eq!(written, message("cluster"));
    let read = decode_cluster(&written).unwrap();
    assert!(read.is_eds && read.lrs_self);
    assert_eq!(read.eds_service_name.as_deref(), Some("svc"));
    assert_eq!(read.connect_timeout, Some(Duration::from_secs(1)));
    assert_eq!(read.lrs_report_endpoint_metrics, metrics);
    let names = read.config.lrs_report_endpoint_metrics().iter();
    assert!(names.map(MetricName::as_str).eq(["cpu_utilization"]));
}

#[test]
fn policies_of_another_encoder_equal_yaml() {
    for (name, policy) in [
        (
            "p_lr",
            "least_request.v3.LeastRequest', choice_count: 3, active_request_bias: {default_value: \
             0.5, runtime_key: k}, slow_start_config: {slow_start_window: 10s, aggression: \
             {default_value: 2, runtime_key: k}, min_weight_percent: {value: 20}}, \
             locality_lb_config: {zone_aware_lb_config: {routing_enabled: {value: 70}, \
             min_cluster_size: 3, fail_traffic_on_panic: true, force_local_zone: {min_size: 2}, \
             locality_basis: HEALTHY_HOSTS_WEIGHT}}, selection_method: FULL_SCAN}",
        ),
        (
            "p_rh",
            "ring_hash.v3.RingHash', hash_function: MURMUR_HASH_2, minimum_ring_size: 10, \
             maximum_ring_size: 20, consistent_hashing_lb_config: {use_hostname_for_hashing: true, \
             hash_balance_factor: 150}, locality_weighted_lb_config: {}}",
        ),
        (
            "p_mg",
            "maglev.v3.Maglev', table_size: 7, locality_weighted_lb_config: {}}",
        ),
        (
            "p_rn",
            "random.v3.Random', locality_lb_config: {locality_weighted_lb_config: {}}}",
        ),
        (
            "p_wl",
            "wrr_locality.v3.WrrLocality', endpoint_picking_policy: {policies: \
             [{typed_extension_config: {name: c, typed_config: {'@type': type.googleapis.com/\
             envoy.extensions.load_balancing_policies.client_side_weighted_round_robin.v3.\
             ClientSideWeightedRoundRobin, enable_oob_load_report: true, oob_reporting_period: 5s, \
             blackout_period: 1s, weight_expiration_period: 60s, weight_update_period: 0.5s, \
             error_utilization_penalty: 1.5, metric_names_for_computing_utilization: \
             [named_metrics.foo]}}}]}}",
        ),
    ] {
        let read = decode_cluster(&message(name)).unwrap().config;
        let wanted = yaml(policy);
        assert_eq!(read.endpoint_policy(), wanted.endpoint_policy(), "{name}");
        assert_eq!(read.locality_policy(), wanted.locality_policy(), "{name}");
    }
}

#[test]
fn legacy_fields_of_another_encoder_equal_yaml() {
    let read = decode_cluster(&message("legacy")).unwrap();
    let text = "{name: x, lb_policy: LEAST_REQUEST, least_request_lb_config: {choice_count: 4}, \
                common_lb_config: {healthy_panic_threshold: {value: 30}, zone_aware_lb_config: \
                {routing_enabled: {value: 80}, min_cluster_size: 2, fail_traffic_on_panic: true}, \
                ignore_new_hosts_until_first_hc: true}, health_checks: [{}]}";
    assert_eq!(read.config, parse_cluster(text).unwrap());
    assert!(!read.is_eds && !read.lrs_self);
    let read = decode_cluster(&message("legacy_ring")).unwrap();
    let text = "{name: x, lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 10, \
                maximum_ring_size: 20, hash_function: MURMUR_HASH_2}, common_lb_config: \
                {locality_weighted_lb_config: {}, consistent_hashing_lb_config: \
                {use_hostname_for_hashing: true}}}";
    assert_eq!(read.config, parse_cluster(text).unwrap());
}

#[test]
fn a_plimsoll_data_plane_gets_the_full_configuration() {
    for config in configs() {
        let out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
        let read = decode_cluster(&encode_cluster(&out)).unwrap();
        assert_eq!(read.config, config);
    }
}

#[test]
fn locality_sampling_is_the_same_in_files_and_messages_and_may_be_unset() {
    for (value, number) in [("RANDOM", 0), ("LOW_DISCREPANCY", 1)] {
        let by_name = format!("{{name: up, plimsoll: {{locality_sampling: {value}}}}}");
        let by_name = parse_cluster(&by_name).unwrap();
        let by_number = format!("{{name: up, plimsoll: {{locality_sampling: {number}}}}}");
        assert_eq!(parse_cluster(&by_number).unwrap(), by_name);
        let bytes = encode_cluster(&ClusterOut::new(&by_name, LocalityDelivery::AsConfigured));
        let message = ClusterMessage::decode(bytes.clone()).unwrap();
        let written = message.plimsoll.and_then(|ours| ours.locality_sampling);
        assert_eq!(written, Some(number), "{value}");
        assert_eq!(decode_cluster(&bytes).unwrap().config, by_name);
    }
    let unset = parse_cluster("{name: up}").unwrap();
    let bytes = encode_cluster(&ClusterOut::new(&unset, LocalityDelivery::AsConfigured));
    let message = ClusterMessage::decode(bytes.clone()).unwrap();
    assert_eq!(message.plimsoll, None);
    let read = decode_cluster(&bytes).unwrap().config;
    assert_eq!(read.written_locality_sampling(), None);
}

#[test]
fn a_format_of_load_reports_is_delivered_to_plimsoll_only() {
    for (value, number) in [("TEXT", 0), ("JSON", 1), ("BIN", 2)] {
        let text = format!("{{name: up, plimsoll: {{endpoint_load_metrics_format: {value}}}}}");
        let config = parse_cluster(&text).unwrap();
        let format = config.endpoint_load_metrics_format().unwrap();
        assert_eq!(format.header_value(), value);
        let encode = |locality| encode_cluster(&ClusterOut::new(&config, locality));
        let bytes = encode(LocalityDelivery::AsConfigured);
        let message = ClusterMessage::decode(bytes.clone()).unwrap();
        let written = message.plimsoll.unwrap().endpoint_load_metrics_format;
        assert_eq!(written, Some(number), "{value}");
        assert_eq!(decode_cluster(&bytes).unwrap().config, config);
        let stock = ClusterMessage::decode(encode(LocalityDelivery::Stock)).unwrap();
        assert_eq!(stock.plimsoll, None);
    }
    let error = parse_cluster("{name: up, plimsoll: {endpoint_load_metrics_format: XML}}");
    let path = "plimsoll.endpoint_load_metrics_format";
    assert_eq!(error.unwrap_err().path(), path);
}

#[test]
fn plimsoll_combines_client_side_weights_with_zone_aware_routing() {
    let config = yaml(POLICIES[13]);
    assert_eq!(
        config.zone_aware().unwrap().locality_basis(),
        LocalityBasis::LrsReportedRate
    );
    let own = encode_cluster(&ClusterOut::new(&config, LocalityDelivery::AsConfigured));
    assert_eq!(decode_cluster(&own).unwrap().config, config);
    // Envoy's message has no locality field, so an Envoy uses zone-aware routing with defaults.
    let stock = encode_cluster(&ClusterOut::new(&config, LocalityDelivery::Stock));
    let read = decode_cluster(&stock).unwrap().config;
    assert_eq!(*read.locality_policy(), LocalityPolicy::default());
}

/// Collects every field number of nested messages, with policies unpacked.
fn numbers(bytes: &[u8], found: &mut Vec<u32>) {
    let walked: Result<Vec<_>, _> = raw_fields(bytes).collect();
    for field in walked.into_iter().flatten() {
        found.push(field.number);
        if field.is_length_delimited {
            numbers(field.value, found);
        }
    }
}

#[test]
fn a_stock_envoy_never_gets_unknown_fields() {
    for config in configs() {
        for locality in STOCK {
            let bytes = encode_cluster(&ClusterOut::new(&config, locality));
            let mut found = Vec::new();
            numbers(&bytes, &mut found);
            let own = found
                .iter()
                .any(|&number| number > 50_000 && number < 60_000);
            assert!(!own, "{config:?} {locality:?}");
            let read = decode_cluster(&bytes).unwrap().config;
            let basis = read.zone_aware().map(ZoneAware::locality_basis);
            let classic = [
                None,
                Some(LocalityBasis::HealthyHostsNum),
                Some(LocalityBasis::HealthyHostsWeight),
            ];
            assert!(classic.contains(&basis), "{config:?} {locality:?}");
        }
    }
}

#[test]
fn each_delivery_encodes_its_locality_policy() {
    let config = yaml(POLICIES[5]);
    let read = |locality| {
        let bytes = encode_cluster(&ClusterOut::new(&config, locality));
        decode_cluster(&bytes).unwrap().config
    };
    let weight = read(LocalityDelivery::ZoneAware(
        ClassicBasis::HealthyHostsWeight,
    ));
    let basis = weight.zone_aware().unwrap().locality_basis();
    assert_eq!(basis, LocalityBasis::HealthyHostsWeight);
    let stock = read(LocalityDelivery::Stock);
    let basis = stock.zone_aware().unwrap().locality_basis();
    assert_eq!(basis, LocalityBasis::HealthyHostsNum);
    let weighted = read(LocalityDelivery::LocalityWeighted);
    assert_eq!(
        *weighted.locality_policy(),
        LocalityPolicy::LocalityWeighted
    );
    let none = read(LocalityDelivery::None);
    assert_eq!(*none.locality_policy(), LocalityPolicy::default());
}

/// Messages of the policies of a list, in order.
fn message_names(list: &LoadBalancingPolicyMessage) -> Vec<String> {
    let policies = list.policies.iter();
    let any = policies.filter_map(|policy| {
        policy
            .typed_extension_config
            .as_ref()?
            .typed_config
            .as_ref()
    });
    let name = |any: &AnyMessage| any.type_url.rsplit('.').next().map(ToOwned::to_owned);
    any.filter_map(name).collect()
}

/// Envoys before 1.40 do not know `load_aware_locality`.
#[test]
fn load_aware_locality_is_followed_by_a_policy_that_every_envoy_has() {
    let subsets = LbSubsetConfig::try_new(LbSubsetConfigParts {
        subset_selectors: vec![SubsetSelectorParts {
            keys: vec!["version".to_owned()],
            ..Default::default()
        }],
        ..Default::default()
    });
    let alone = yaml(POLICIES[10]).into_parts();
    let within = ClusterConfigParts {
        lb_subset_config: Some(subsets.unwrap()),
        ..alone.clone()
    };
    let [alone, within] = [alone, within].map(|parts| ClusterConfig::try_new(parts).unwrap());
    let sent = |config: &ClusterConfig, locality| {
        let bytes = encode_cluster(&ClusterOut::new(config, locality));
        ClusterMessage::decode(bytes)
            .unwrap()
            .load_balancing_policy
            .unwrap()
    };
    let both = ["LoadAwareLocality", "Random"];
    assert_eq!(message_names(&sent(&alone, LocalityDelivery::Stock)), both);
    let module = sent(&alone, LocalityDelivery::Module);
    assert_eq!(message_names(&module)[1..], both);
    let plimsoll = sent(&alone, LocalityDelivery::AsConfigured);
    assert_eq!(message_names(&plimsoll), both[..1]);
    let outer = sent(&within, LocalityDelivery::Stock);
    assert_eq!(message_names(&outer), ["Subset"]);
    let subset = outer.policies[0].typed_extension_config.as_ref().unwrap();
    let body = &subset.typed_config.as_ref().unwrap().value;
    let inner = SubsetMessage::decode(&body[..])
        .unwrap()
        .subset_lb_policy
        .unwrap();
    assert_eq!(message_names(&inner), both);
    // The second one routes by zone, as without any policy.
    let second = inner.policies[1].typed_extension_config.as_ref().unwrap();
    let body = &second.typed_config.as_ref().unwrap().value;
    let random = RandomMessage::decode(&body[..]).unwrap();
    let locality = random.locality_lb_config.unwrap();
    assert_eq!(
        locality.zone_aware_lb_config,
        Some(ZoneAwareMessage::default())
    );
}

#[test]
fn wrr_locality_wraps_client_side_weights() {
    let config = yaml(POLICIES[8]);
    for locality in [LocalityDelivery::LocalityWeighted, LocalityDelivery::Grpc] {
        let bytes = encode_cluster(&ClusterOut::new(&config, locality));
        let read = decode_cluster(&bytes).unwrap().config;
        assert_eq!(*read.locality_policy(), LocalityPolicy::WrrLocality);
        assert_eq!(
            read.endpoint_policy().name(),
            "client_side_weighted_round_robin"
        );
    }
}

#[test]
fn envoy_gets_wrr_locality_for_client_side_weights_only() {
    let config = yaml(POLICIES[9]);
    assert_eq!(*config.locality_policy(), LocalityPolicy::WrrLocality);
    let bytes = encode_cluster(&ClusterOut::new(&config, LocalityDelivery::Stock));
    let read = decode_cluster(&bytes).unwrap().config;
    assert_eq!(*read.locality_policy(), LocalityPolicy::LocalityWeighted);
    assert_eq!(read.endpoint_policy().name(), "least_request");
}

#[test]
fn grpc_gets_policies_it_supports() {
    for (policy, lb_policy, typed) in [
        (POLICIES[0], 0, false),
        (POLICIES[4], 0, true),
        (POLICIES[5], 0, false),
        (POLICIES[6], 2, false),
        (POLICIES[7], 2, false),
        (POLICIES[8], 0, true),
    ] {
        let config = yaml(policy);
        let bytes = encode_cluster(&ClusterOut::new(&config, LocalityDelivery::Grpc));
        let message = ClusterMessage::decode(bytes).unwrap();
        assert_eq!(message.lb_policy, lb_policy, "{policy}");
        assert_eq!(message.load_balancing_policy.is_some(), typed, "{policy}");
    }
}

#[test]
fn a_flat_policy_without_hashing_disables_zone_aware_routing() {
    let flat = ClusterConfig::try_new(ClusterConfigParts {
        name: "up".into(),
        locality_policy: LocalityPolicy::Flat,
        endpoint_policy: EndpointPolicy::Random,
        ..Default::default()
    })
    .unwrap();
    let bytes = encode_cluster(&ClusterOut::new(&flat, LocalityDelivery::Stock));
    let read = decode_cluster(&bytes).unwrap().config;
    assert_eq!(read.zone_aware().unwrap().routing_enabled(), 0);
}

/// Encodes a cluster `x` with one policy of this type and body.
fn typed(package_and_message: &str, body: &[u8]) -> Vec<u8> {
    let mut any = Vec::new();
    let url = format!(
        "type.googleapis.com/envoy.extensions.load_balancing_policies.{package_and_message}"
    );
    put_field(&mut any, 1, url.as_bytes());
    put_field(&mut any, 2, body);
    let mut bytes = hex("0a0178");
    put_field(&mut bytes, 41, &wrapped(&any));
    bytes
}

/// Encodes a list with one policy of this `Any`.
fn wrapped(any: &[u8]) -> Vec<u8> {
    let mut config = hex("0a0170");
    put_field(&mut config, 2, any);
    let mut policy = Vec::new();
    put_field(&mut policy, 4, &config);
    let mut list = Vec::new();
    put_field(&mut list, 1, &policy);
    list
}

/// Encodes the body of a `Subset` around this policy.
fn subset_around(package_and_message: &str) -> Vec<u8> {
    let mut any = Vec::new();
    let url = format!(
        "type.googleapis.com/envoy.extensions.load_balancing_policies.{package_and_message}"
    );
    put_field(&mut any, 1, url.as_bytes());
    let mut body = Vec::new();
    put_field(&mut body, 9, &wrapped(&any));
    body
}

#[test]
fn errors_name_the_field() {
    let inside = "load_balancing_policy.policies[0].typed_extension_config.typed_config";
    for (bytes, path) in [
        (hex(""), "name".to_owned()),
        (hex("0a0178 3006"), "lb_policy".to_owned()),
        (hex("0a0178 3007"), "load_balancing_policy".to_owned()),
        (hex("0a0178 b20100 ca0200"), "lb_subset_config".to_owned()),
        (
            hex("0a0178 b20102 0803"),
            "lb_subset_config.fallback_policy".to_owned(),
        ),
        (
            hex("0a0178 b20102 4002"),
            "lb_subset_config.metadata_fallback_policy".to_owned(),
        ),
        (
            hex("0a0178 b20108 1a06 0a0161 1a0161"),
            "lb_subset_config.subset_selectors[0].fallback_keys_subset".to_owned(),
        ),
        (
            hex("0a0178 b20107 1a05 0a0161 1005"),
            "lb_subset_config.subset_selectors[0].fallback_policy".to_owned(),
        ),
        (
            hex("0a0178 b20107 1a03 0a0161 2001"),
            "lb_subset_config.locality_weight_aware".to_owned(),
        ),
        (
            hex("0a0178 b20102 5001"),
            "lb_subset_config.allow_redundant_keys".to_owned(),
        ),
        (
            hex("0a0178 b20107 1205 0a03 0a0161"),
            "lb_subset_config.default_subset.a".to_owned(),
        ),
        (
            hex("0a0178 ca0200"),
            "load_balancing_policy.policies".to_owned(),
        ),
        (
            typed("pick_first.v3.PickFirst", &[]),
            "load_balancing_policy.policies".to_owned(),
        ),
        (
            hex("0a0178 3002 ba0104 0a020800"),
            "ring_hash_lb_config.minimum_ring_size".to_owned(),
        ),
        (
            hex("0a0178 3002 da0102 1200"),
            "common_lb_config.zone_aware_lb_config".to_owned(),
        ),
        (
            hex("0a0178 da0104 1200 1a00"),
            "common_lb_config.locality_weighted_lb_config".to_owned(),
        ),
        (
            typed("random.v3.Random", &hex("0a00")),
            format!("{inside}.locality_lb_config"),
        ),
        (
            typed("random.v3.Random", &hex("0a04 0a02 3003")),
            format!("{inside}.locality_lb_config.zone_aware_lb_config.locality_basis"),
        ),
        (
            typed("random.v3.Random", &hex("0a08 0a06 3a04 0a02 0801")),
            format!(
                "{inside}.locality_lb_config.zone_aware_lb_config.lrs_rate_config.\
                 staleness_threshold"
            ),
        ),
        (
            typed("least_request.v3.LeastRequest", &hex("0a02 0801")),
            format!("{inside}.choice_count"),
        ),
        (
            typed("ring_hash.v3.RingHash", &hex("0803")),
            format!("{inside}.hash_function"),
        ),
        (
            typed("wrr_locality.v3.WrrLocality", &[]),
            format!("{inside}.endpoint_picking_policy"),
        ),
        (
            typed("subset.v3.Subset", &[]),
            format!("{inside}.subset_lb_policy.policies"),
        ),
        (
            typed("subset.v3.Subset", &hex("08ffffffffffffffffff01")),
            format!("{inside}.fallback_policy"),
        ),
        (
            typed("subset.v3.Subset", &subset_around("subset.v3.Subset")),
            format!("{inside}.subset_lb_policy.policies[0].typed_extension_config.typed_config"),
        ),
    ] {
        let error = decode_cluster(&bytes).unwrap_err();
        assert_eq!(error.path(), path, "{error}");
    }
}

#[test]
fn observed_load_has_plimsoll_field_numbers() {
    // locality_basis (6) = 50001, observed_load_period (50004) = 2 s.
    let written = typed("random.v3.Random", &hex("0a0c0a0a30d18603a2b518020802"));
    let read = decode_cluster(&written).unwrap().config;
    let zone_aware = read.zone_aware().unwrap();
    assert_eq!(zone_aware.locality_basis(), LocalityBasis::ObservedLoad);
    assert_eq!(zone_aware.observed_load_period(), Duration::from_secs(2));
    let out = ClusterOut::new(&read, LocalityDelivery::AsConfigured);
    let bytes = encode_cluster(&out);
    let period = hex("a2b518020802");
    assert!(bytes.windows(period.len()).any(|part| part == period));
    let zero = typed("random.v3.Random", &hex("0a0a0a0830d18603a2b51800"));
    let error = decode_cluster(&zero).unwrap_err();
    assert!(
        error
            .path()
            .ends_with("zone_aware_lb_config.observed_load_period")
    );
}

#[test]
fn unknown_policies_before_a_known_one_are_skipped() {
    let round_robin = typed("round_robin.v3.RoundRobin", &[]);
    let mut bytes = typed("who.v3.Knows", &[1, 2, 3]);
    // Two occurrences of a repeated field are one list.
    bytes.extend_from_slice(&round_robin[3..]);
    let read = decode_cluster(&bytes).unwrap().config;
    assert_eq!(read.endpoint_policy().name(), "round_robin");
}

#[test]
fn nested_policy_lists_are_bounded() {
    let url = "type.googleapis.com/envoy.extensions.load_balancing_policies.wrr_locality.v3.\
               WrrLocality";
    let mut body = Vec::new();
    for _ in 0..2000 {
        let mut any = Vec::new();
        put_field(&mut any, 1, url.as_bytes());
        put_field(&mut any, 2, &body);
        body.clear();
        put_field(&mut body, 1, &wrapped(&any));
    }
    let error = decode_cluster(&typed("wrr_locality.v3.WrrLocality", &body)).unwrap_err();
    assert!(error.reason().contains("has done that already"), "{error}");
}

#[test]
fn replacing_a_policy_changes_nothing_else() {
    // Name, unknown 99, lb_policy, common with panic threshold and zone_aware, 41, TLS (24).
    let original = hex(
        "0a0178 9a0603616263 3001 da0113 0a09090000000000003e40 1200 9a0603646566 aa0200 ca0200 \
         c2010178",
    );
    let config = yaml(POLICIES[0]);
    let written =
        rewrite_cluster_policy(&original, &config, LocalityDelivery::LocalityWeighted).unwrap();
    let kept = hex("0a0178 9a0603616263 da0111 0a09090000000000003e40 9a0603646566 c2010178");
    assert_eq!(written[..kept.len()], kept);
    let policy: Vec<_> = raw_fields(&written[kept.len()..])
        .map(|field| field.unwrap().number)
        .collect();
    assert_eq!(policy, [41]);
}

#[test]
fn setting_a_panic_threshold_changes_nothing_else() {
    // Name, common with panic threshold and an unknown field, unknown 99, policy, common again.
    let original = hex(
        "0a0178 da0111 0a09090000000000003e40 9a0603616263 9a0603646566 aa0200 \
                        da010b 0a09090000000000003e40",
    );
    let written = rewrite_panic_threshold(&original, 20).unwrap();
    let expected = hex(
        "0a0178 da0111 9a0603616263 0a09090000000000003440 9a0603646566 aa0200 \
                        da0100",
    );
    assert_eq!(written, expected);
    let without = hex("0a0178 9a0603616263");
    let written = rewrite_panic_threshold(&without, 20).unwrap();
    assert_eq!(written[..without.len()], without);
    assert_eq!(
        decode_cluster(&written).unwrap().config.panic_threshold(),
        20
    );
    assert!(rewrite_panic_threshold(&hex("da01020a09"), 20).is_err());
}

#[test]
fn setting_what_envoy_does_not_have_keeps_the_policy() {
    let theirs = encode_cluster(&ClusterOut::new(
        &yaml(POLICIES[0]),
        LocalityDelivery::AsConfigured,
    ));
    let sampled = |sampling: &str| {
        parse_cluster(&format!(
            "{{name: x, plimsoll: {{locality_sampling: {sampling}}}}}"
        ))
        .unwrap()
    };
    for (sampling, expected) in [
        ("LOW_DISCREPANCY", LocalitySampling::LowDiscrepancy),
        ("RANDOM", LocalitySampling::Random),
    ] {
        let written = rewrite_extensions(&theirs, &sampled(sampling)).unwrap();
        let read = decode_cluster(&written).unwrap().config;
        assert_eq!(read.written_locality_sampling(), Some(expected));
        let before = decode_cluster(&theirs).unwrap().config;
        assert_eq!(read.endpoint_policy(), before.endpoint_policy());
        assert_eq!(read.locality_policy(), before.locality_policy());
    }
    assert!(rewrite_extensions(&hex("0a05"), &sampled("RANDOM")).is_err());
}

#[test]
fn enabling_load_reporting_changes_nothing_else() {
    // name, type, lrs_server with another address, an unknown field.
    let original = hex("0a0178 1003 d202020a00 9a0603616263");
    assert!(!decode_cluster(&original).unwrap().lrs_self);
    let written = rewrite_load_reporting(&original).unwrap();
    let kept = hex("0a0178 1003 9a0603616263");
    assert_eq!(written[..kept.len()], kept);
    assert!(decode_cluster(&written).unwrap().lrs_self);
    assert!(rewrite_load_reporting(&hex("0a05")).is_err());
}

proptest! {
    #[test]
    fn replacing_a_policy_keeps_every_other_field(
        others in prop::collection::vec(
            (1u32..2000, prop::collection::vec(any::<u8>(), 0..20)),
            0..8,
        ),
        at in 0usize..13,
    ) {
        let policy_fields = [6, 22, 23, 27, 37, 41, 52, 56];
        let mut original = Vec::new();
        for (number, value) in &others {
            put_field(&mut original, *number, value);
        }
        let config = yaml(POLICIES[at % POLICIES.len()]);
        // A malformed field 27 may be rejected; no other field is decoded.
        let Ok(written) = rewrite_cluster_policy(&original, &config, LocalityDelivery::Stock) else {
            prop_assert!(others.iter().any(|&(number, _)| number == 27));
            return Ok(());
        };
        let keep = |bytes: &[u8]| -> Vec<Vec<u8>> {
            raw_fields(bytes)
                .map(Result::unwrap)
                .filter(|field| !policy_fields.contains(&field.number))
                .map(|field| field.raw.to_vec())
                .collect()
        };
        prop_assert_eq!(keep(&written), keep(&original));
        let policies = raw_fields(&written).filter(|f| f.as_ref().unwrap().number == 41);
        prop_assert_eq!(policies.count(), 1);
    }

    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_cluster(&noise);
        let _ = rewrite_cluster_policy(&noise, &yaml(POLICIES[0]), LocalityDelivery::None);
    }

    #[test]
    fn damaged_clusters_never_panic(which in 0usize..5, at in 0usize..500, byte: u8) {
        let names = ["p_lr", "p_rh", "p_wl", "cluster", "legacy"];
        let mut bytes = message(names[which]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode_cluster(&bytes);
    }
}
