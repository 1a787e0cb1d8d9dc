//! Files and messages are decoded alike: for every policy, whole clusters, and past differences.
//! The tests of plimsoll-schema compare every field of every message.
//!
//! The messages are encoded by the encoder of those tests (`wire_format`), independently of the
//! file reader.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::as_conversions,
    reason = "tests"
)]

#[path = "../../../plimsoll-schema/tests/suite/reachable.rs"]
mod reachable;
#[path = "../../../plimsoll-schema/tests/suite/wire_format.rs"]
mod wire_format;

use std::collections::BTreeSet;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_xds::ads::CLUSTER;
use plimsoll_xds::pb::cluster::ClusterMessage;
use plimsoll_xds::pb::endpoint::AssignmentMessage;
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::schema::registry::POLICIES;
use plimsoll_xds::schema::{Described, Descriptor, Kind};
use plimsoll_xds::wire;
use plimsoll_xds::yaml::{Document, parse_cluster, parse_upstream_cluster};
use serde_json::{Map, Value};

use self::reachable::reach;

/// Names of messages and their fields.
type Fields = BTreeSet<(&'static str, &'static str)>;

/// Reads a file into the bytes of a message.
fn file<M: Described>(text: &str) -> FileMessage<M> {
    let document = Document::parse(text).unwrap();
    document
        .read()
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Parses a text as a JSON document.
fn value(text: &str) -> Value {
    Document::parse(text).unwrap().read().unwrap()
}

fn bytes(descriptor: &'static Descriptor, text: &str) -> Vec<u8> {
    wire_format::message(descriptor, &value(text))
}

const PREFIX: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";

/// Cluster with one typed policy: the end of its type URL, and its fields.
fn with_policy(kind: &str, fields: &str) -> String {
    format!("{{name: c, load_balancing_policy: {}}}", list(kind, fields))
}

fn list(kind: &str, fields: &str) -> String {
    let config = format!("{{'@type': {PREFIX}.{kind}, {fields}}}");
    format!("{{policies: [{{typed_extension_config: {{name: p, typed_config: {config}}}}}]}}")
}

const SLOW_START: &str = "slow_start_config: {slow_start_window: 30s, aggression: \
    {default_value: 2, runtime_key: k}, min_weight_percent: {value: 12.5}}";
const OOB: &str = "enable_oob_load_report: true, oob_reporting_period: 2s, oob_reporting_config: \
    {port_value: 9, authority: a}";

/// Clusters that together set every field of every policy.
fn policies() -> Vec<String> {
    let zone_aware =
        |fields: &str| format!("locality_lb_config: {{zone_aware_lb_config: {fields}}}");
    let child = list("round_robin.v3.RoundRobin", "");
    let hashing = "consistent_hashing_lb_config: {use_hostname_for_hashing: true, \
                   hash_balance_factor: 150}, locality_weighted_lb_config: {}";
    let policies = [
        (
            "round_robin.v3.RoundRobin",
            format!(
                "{SLOW_START}, {}",
                zone_aware(
                    "{routing_enabled: {value: 29}, min_cluster_size: 1, fail_traffic_on_panic: \
                     true, force_local_zone: {min_size: 0}, locality_basis: HEALTHY_HOSTS_WEIGHT}"
                )
            ),
        ),
        (
            "least_request.v3.LeastRequest",
            format!(
                "choice_count: 5, active_request_bias: {{default_value: 0.5, runtime_key: k}}, \
                 selection_method: FULL_SCAN, {SLOW_START}, locality_lb_config: \
                 {{locality_weighted_lb_config: {{}}}}"
            ),
        ),
        (
            "random.v3.Random",
            zone_aware(
                "{locality_basis: LRS_REPORTED_RATE, lrs_rate_config: {staleness_threshold: 30s, \
                 fraction_source: LOCALITY_METADATA}, upstream_locality_basis: \
                 HEALTHY_HOSTS_WEIGHT, dead_band_bp: 7, all_priorities: true}",
            ),
        ),
        (
            "random.v3.Random",
            zone_aware("{force_locality_direct_routing: true}"),
        ),
        (
            "random.v3.Random",
            zone_aware("{locality_basis: OBSERVED_LOAD, observed_load_period: 2s}"),
        ),
        (
            "ring_hash.v3.RingHash",
            format!(
                "hash_function: MURMUR_HASH_2, minimum_ring_size: 10, maximum_ring_size: 20, \
                 {hashing}"
            ),
        ),
        (
            "ring_hash.v3.RingHash",
            "use_hostname_for_hashing: true, hash_balance_factor: 150".to_owned(),
        ),
        ("maglev.v3.Maglev", format!("table_size: 7, {hashing}")),
        (
            "client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
            format!(
                "{OOB}, blackout_period: 0s, weight_expiration_period: 9s, weight_update_period: \
                 0.2s, error_utilization_penalty: 1.5, metric_names_for_computing_utilization: \
                 [named_metrics.q], utilization_precedence: NAMED_METRICS_FIRST, {SLOW_START}, {}",
                zone_aware("{min_cluster_size: 2}")
            ),
        ),
        (
            "wrr_locality.v3.WrrLocality",
            format!("endpoint_picking_policy: {child}"),
        ),
        (
            "load_aware_locality.v3.LoadAwareLocality",
            format!(
                "endpoint_picking_policy: {child}, {OOB}, weight_update_period: 0.5s, \
                 metric_names_for_computing_utilization: [named_metrics.q], \
                 utilization_variance_threshold: 0.2, smoothing_time_constant: 2s, \
                 remote_probe_fraction: 0.05, weight_expiration_period: 9s, \
                 utilization_precedence: NAMED_METRICS_FIRST, cold_start: HOST_COUNT, \
                 remote_mean: REPORTING_ONLY, spill_controller: CONVERGENT, \
                 local_probe_fraction: 0.04, demand_feed_forward: false"
            ),
        ),
        (
            "load_aware_locality.v3.LoadAwareLocality",
            format!(
                "endpoint_picking_policy: {child}, spill_controller: CONVERGENT, \
                 demand_feed_forward: true, demand_feed_forward_percent: 7"
            ),
        ),
        (
            "subset.v3.Subset",
            format!(
                "fallback_policy: DEFAULT_SUBSET, default_subset: {{version: stable}}, \
                 subset_selectors: [{{keys: [version, stage], fallback_policy: KEYS_SUBSET, \
                 fallback_keys_subset: [stage]}}, {{keys: [id], single_host_per_subset: true}}], \
                 locality_weight_aware: true, scale_locality_weight: true, panic_mode_any: true, \
                 list_as_any: true, metadata_fallback_policy: FALLBACK_LIST, subset_lb_policy: \
                 {}, allow_redundant_keys: true, max_subsets: 9",
                list(
                    "random.v3.Random",
                    "locality_lb_config: {locality_weighted_lb_config: {}}"
                )
            ),
        ),
    ];
    let typed = policies
        .iter()
        .map(|(kind, fields)| with_policy(kind, fields));
    typed
        .chain(LEGACY.iter().map(|&text| text.to_owned()))
        .collect()
}

/// The same policies in legacy form.
const LEGACY: &[&str] = &[
    "{name: c, lb_policy: ROUND_ROBIN, round_robin_lb_config: {slow_start_config: \
     {slow_start_window: 1s}}, common_lb_config: {healthy_panic_threshold: {value: 12.5}, \
     zone_aware_lb_config: {routing_enabled: {value: 5}, min_cluster_size: 3, \
     fail_traffic_on_panic: true}}}",
    "{name: c, lb_policy: LEAST_REQUEST, least_request_lb_config: {choice_count: 3, \
     active_request_bias: {default_value: 2, runtime_key: k}, slow_start_config: \
     {slow_start_window: 1s}}, common_lb_config: {locality_weighted_lb_config: {}}}",
    "{name: c, lb_policy: RANDOM, plimsoll: {locality_sampling: LOW_DISCREPANCY}, health_checks: \
     [{timeout: 1s, interval: 1s, unhealthy_threshold: 1, healthy_threshold: 1, \
     tcp_health_check: {}}], common_lb_config: {ignore_new_hosts_until_first_hc: true}}",
    "{name: c, lb_policy: RING_HASH, ring_hash_lb_config: {minimum_ring_size: 7, hash_function: \
     MURMUR_HASH_2, maximum_ring_size: 9}, common_lb_config: {consistent_hashing_lb_config: \
     {use_hostname_for_hashing: true, hash_balance_factor: 120}}}",
    "{name: c, lb_policy: MAGLEV, maglev_lb_config: {table_size: 11}}",
    "{name: c, lb_policy: RANDOM, lrs_report_endpoint_metrics: [cpu_utilization], \
     lb_subset_config: {fallback_policy: ANY_ENDPOINT, subset_selectors: [{keys: [version]}]}}",
];

#[test]
fn every_policy_is_decoded_alike() {
    let mut seen = Fields::new();
    for text in policies() {
        let from_file = parse_cluster(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let wire = wire::decode_cluster(&bytes(ClusterMessage::DESCRIPTOR, &text));
        let from_wire = wire.unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(from_file, from_wire.config, "{text}");
        fields(
            ClusterMessage::DESCRIPTOR,
            value(&text).as_object().unwrap(),
            &mut seen,
        );
    }
    let mut reachable = Vec::new();
    for policy in POLICIES {
        reach(policy, &mut reachable);
    }
    for descriptor in reachable {
        let declared = descriptor
            .fields
            .iter()
            .map(|field| (descriptor.name, field.name));
        let missing: Vec<_> = declared.filter(|place| !seen.contains(place)).collect();
        let is_refused = |place: &(_, _)| place.1 == "enable_full_scan";
        assert!(missing.iter().all(is_refused), "no policy sets {missing:?}");
    }
}

/// Collects the fields that a document sets, by message.
fn fields(descriptor: &'static Descriptor, document: &Map<String, Value>, seen: &mut Fields) {
    for field in descriptor.fields {
        let Some(value) = document.get(field.name) else {
            continue;
        };
        seen.insert((descriptor.name, field.name));
        let one = std::slice::from_ref(value);
        let items = value.as_array().map_or(one, Vec::as_slice);
        for inner in items.iter().filter_map(Value::as_object) {
            match field.kind {
                Kind::Message(descriptor) => fields(descriptor(), inner, seen),
                Kind::Any(types) => {
                    let url = inner["@type"].as_str().unwrap();
                    let mut types = types().iter();
                    let found = types.find(|known| url.ends_with(known.name)).unwrap();
                    fields(found, inner, seen);
                }
                _ => {}
            }
        }
    }
}

#[test]
fn whole_clusters_are_decoded_alike() {
    for text in [
        include_str!("../data/upstream_eds.yaml"),
        include_str!("../data/upstream_static.yaml"),
        include_str!("../data/upstream_tls.yaml"),
    ] {
        let from_file = parse_upstream_cluster(text).unwrap();
        let wire = wire::decode_upstream_cluster(&bytes(ClusterMessage::DESCRIPTOR, text));
        assert_eq!(Ok(from_file), wire, "{text}");
    }
}

const ROUTES: &str = "{name: rc, virtual_hosts: [{name: v, domains: ['*'], routes: [
    {match: {prefix: ''}, route: {cluster: c, timeout: 0.5s,
     retry_policy: {retry_on: connect-failure, num_retries: 2}}},
    {match: {path: /x}, route: {weighted_clusters: {clusters: [{name: a, weight: 1}, {name: b,
     weight: 3}]}}},
    {match: {path_separated_prefix: /y}, route: {cluster: c}}]}]}";

#[test]
fn routes_and_assignments_are_decoded_alike() {
    let written: FileMessage<RouteConfigurationMessage> = file(ROUTES);
    let from_file = wire::decode_route_configuration(written.bytes()).unwrap();
    let wire = bytes(RouteConfigurationMessage::DESCRIPTOR, ROUTES);
    assert_eq!(wire::decode_route_configuration(&wire), Ok(from_file));

    let text = "{cluster_name: c, endpoints: [{locality: {region: r, zone: z, sub_zone: s}, \
        priority: 1, load_balancing_weight: 3, observed_traffic_fraction: 7, lb_endpoints: \
        [{endpoint: {address: {socket_address: {address: '::1', port_value: 80}}, hostname: h, \
        health_check_config: {port_value: 81}}, health_status: DEGRADED, load_balancing_weight: \
        9, metadata: {filter_metadata: {envoy.lb: {hash_key: k, Stage: 1}}}}]}, {priority: 0}], \
        policy: {overprovisioning_factor: 150, drop_overloads: [{category: x, drop_percentage: \
        {numerator: 5, denominator: MILLION}}], weighted_priority_health: true}}";
    let written: FileMessage<AssignmentMessage> = file(text);
    let from_file = wire::decode_endpoints(written.bytes()).unwrap();
    let wire = bytes(AssignmentMessage::DESCRIPTOR, text);
    assert_eq!(wire::decode_endpoints(&wire), Ok(from_file));
}

/// Compares with bytes that protobuf for Python encoded.
#[test]
fn a_file_matches_another_encoder() {
    let lines = include_str!("../data/messages.hex").lines();
    let mut lines = lines.filter_map(|line| line.strip_prefix("route "));
    let hex = lines.next().unwrap().trim().as_bytes().chunks(2);
    let digits = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    let expected: Vec<u8> = hex.map(digits).collect();
    let written: FileMessage<RouteConfigurationMessage> = file(ROUTES);
    assert_eq!(written.bytes(), &expected);
}

#[test]
fn locality_sampling_has_the_same_numbers_in_both_readers() {
    let cluster =
        |sampling: &str| format!("{{name: c, plimsoll: {{locality_sampling: {sampling}}}}}");
    for (name, number, expected) in [
        ("RANDOM", "0", LocalitySampling::Random),
        ("LOW_DISCREPANCY", "1", LocalitySampling::LowDiscrepancy),
    ] {
        let by_name = parse_cluster(&cluster(name)).unwrap();
        let by_number = parse_cluster(&cluster(number)).unwrap();
        let wire = bytes(ClusterMessage::DESCRIPTOR, &cluster(number));
        assert_eq!(by_name.locality_sampling(), expected);
        assert_eq!(by_name, by_number);
        assert_eq!(wire::decode_cluster(&wire).unwrap().config, by_name);
    }
    let path = "plimsoll.locality_sampling";
    assert_eq!(parse_cluster(&cluster("2")).unwrap_err().path(), path);
    let wire = bytes(ClusterMessage::DESCRIPTOR, &cluster("2"));
    assert_eq!(wire::decode_cluster(&wire).unwrap_err().path(), path);
}

const TYPED: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config";

/// Envoy prefers the new field; setting both in a file is an error.
#[test]
fn duplicate_consistent_hashing_settings_are_an_error_in_files_only() {
    let text = with_policy(
        "ring_hash.v3.RingHash",
        "use_hostname_for_hashing: true, consistent_hashing_lb_config: {hash_balance_factor: 150}",
    );
    let error = parse_cluster(&text).unwrap_err();
    assert_eq!(error.path(), format!("{TYPED}.use_hostname_for_hashing"));
    let only = with_policy(
        "ring_hash.v3.RingHash",
        "consistent_hashing_lb_config: {hash_balance_factor: 150}",
    );
    let wire = wire::decode_cluster(&bytes(ClusterMessage::DESCRIPTOR, &text));
    assert_eq!(wire.unwrap().config, parse_cluster(&only).unwrap());
}

#[test]
fn enable_full_scan_is_rejected_by_both() {
    for flag in ["true", "false"] {
        let fields = format!("enable_full_scan: {flag}");
        let text = with_policy("least_request.v3.LeastRequest", &fields);
        let path = format!("{TYPED}.enable_full_scan");
        assert_eq!(parse_cluster(&text).unwrap_err().path(), path);
        let wire = wire::decode_cluster(&bytes(ClusterMessage::DESCRIPTOR, &text));
        assert_eq!(wire.unwrap_err().path(), path);
    }
}

/// An unknown name in a file is a mistake. Unknown numbers in messages come from newer versions and
/// are reported.
#[test]
fn unknown_fields_are_rejected_in_files_and_reported_in_messages() {
    let error = parse_cluster("{name: c, common_lb_config: {newest: 1}}").unwrap_err();
    assert_eq!(error.path(), "common_lb_config.newest");
    let mut wire = bytes(ClusterMessage::DESCRIPTOR, "{name: c}");
    let mut inside = Vec::new();
    wire_format::bytes(&mut inside, 999, b"x");
    wire_format::bytes(&mut wire, 27, &inside);
    assert!(wire::decode_cluster(&wire).is_ok());
    let reported = wire::ignored_fields(CLUSTER, &wire);
    assert_eq!(reported, ["common_lb_config.field 999"]);
}

/// Envoy fields without effect here are classified alike by both readers.
#[test]
fn fields_without_effect_are_treated_alike() {
    let with = |number: u32| {
        let mut wire = bytes(ClusterMessage::DESCRIPTOR, &format!("{{{EDS}}}"));
        wire_format::bytes(&mut wire, number, b"\x08\x01");
        wire
    };
    for (number, field, value, is_refused) in [
        (28, "alt_stat_name", "x", false),
        (40, "filters", "{a: 1}", true),
        (34, "original_dst_lb_config", "{a: 1}", true),
    ] {
        let text = format!("{{{EDS}, {field}: {value}}}");
        let written: FileMessage<ClusterMessage> = file(&text);
        for bytes in [&with(number)[..], written.bytes()] {
            assert_eq!(wire::ignored_fields(CLUSTER, bytes), [field]);
            let path =
                wire::decode_upstream_cluster(bytes).map_err(|error| error.path().to_owned());
            assert_eq!(path.is_err(), is_refused, "{field}: {path:?}");
            assert!(path.is_ok() || path == Err(field.to_owned()), "{path:?}");
        }
        let parsed = parse_upstream_cluster(&text);
        assert_eq!(parsed.is_err(), is_refused, "{field}: {parsed:?}");
    }
}

const EDS: &str = "name: c, type: EDS, eds_cluster_config: {eds_config: {ads: {}}}";

#[test]
fn one_of_several_weights_may_be_zero() {
    for (weights, is_taken) in [([0, 3], true), ([0, 0], false)] {
        let [a, b] = weights;
        let text = format!(
            "{{name: r, virtual_hosts: [{{name: v, domains: ['*'], routes: [{{match: {{prefix: \
             ''}}, route: {{weighted_clusters: {{clusters: [{{name: a, weight: {a}}}, {{name: b, \
             weight: {b}}}]}}}}}}]}}]}}"
        );
        let written: FileMessage<RouteConfigurationMessage> = file(&text);
        let from_file = wire::decode_route_configuration(written.bytes());
        let wire = bytes(RouteConfigurationMessage::DESCRIPTOR, &text);
        let from_wire = wire::decode_route_configuration(&wire);
        assert_eq!(from_file, from_wire);
        assert_eq!(from_wire.is_ok(), is_taken, "{from_wire:?}");
    }
}
