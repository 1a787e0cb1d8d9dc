//! Tests of the selection of deliveries.

use std::sync::Arc;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::node::{ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE};

use super::*;
use crate::config::{ConfigFile, ControlConfig};

const CLASSES: [NodeClass; 4] = NodeClass::ALL;

fn service(rest: &str) -> Arc<Service> {
    service_of("", rest)
}

fn service_of(cluster: &str, rest: &str) -> Arc<Service> {
    let text = format!("services: [{{cluster: {{name: orders{cluster}}}{rest}}}]");
    let file = ConfigFile {
        name: "test".to_owned(),
        text,
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    Arc::clone(&config.services["orders"])
}

fn policy(name: &str, message: &str, fields: &str) -> String {
    format!(
        ", load_balancing_policy: {{policies: [{{typed_extension_config: {{name: \
         envoy.load_balancing_policies.{name}, typed_config: {{'@type': \
         type.googleapis.com/envoy.extensions.load_balancing_policies.{name}.v3.{message}{fields}\
         }}}}}}]}}"
    )
}

fn selected(service: &Service, class: NodeClass) -> Delivery {
    match steering(service, class) {
        Steering::Demand(delivery) => delivery,
        other => panic!("{other:?}"),
    }
}

#[test]
fn nodes_are_classified_by_user_agent_and_features() {
    let node = |user_agent_name: &str, features: &[&str]| NodeInfo {
        node: Node {
            id: "n".into(),
            cluster: "f".into(),
            locality: Locality::default(),
        },
        user_agent_name: user_agent_name.to_owned(),
        user_agent_version: String::new(),
        client_features: features.iter().map(|&name| name.to_owned()).collect(),
    };
    assert_eq!(NodeClass::of(&node("envoy", &[])), NodeClass::Envoy);
    assert_eq!(
        NodeClass::of(&node("", &[])),
        NodeClass::Envoy,
        "the careful choice"
    );
    assert_eq!(NodeClass::of(&node("gRPC C-core", &[])), NodeClass::Grpc);
    assert_eq!(
        NodeClass::of(&node("envoy", &[PLIMSOLL_FEATURE])),
        NodeClass::Plimsoll
    );
    for features in [
        &[ENVOY_MODULE_FEATURE][..],
        &[ENVOY_MODULE_FEATURE, PLIMSOLL_FEATURE],
    ] {
        let class = NodeClass::of(&node("envoy", features));
        assert_eq!(class, NodeClass::EnvoyModule);
    }
}

#[test]
fn modules_get_demand_on_their_own_stream() {
    let module = NodeClass::EnvoyModule;
    let asked = ["AUTO", "EDS_FIELD", "LOCALITY_METADATA", "FLEET_WEIGHTS"];
    for delivery in asked {
        let service = service(&format!(", delivery: {delivery}"));
        let demand = steering(&service, module);
        assert_eq!(demand, Steering::Demand(Delivery::LrsResponse));
        assert!(uses_module(&service, module, demand), "{delivery}");
        assert!(sends_lrs_traffic(&service, module, demand), "{delivery}");
        assert!(!uses_module(&service, NodeClass::Envoy, demand));
    }
    let weights = service(", delivery: LOCALITY_WEIGHTS");
    let demand = steering(&weights, module);
    assert_eq!(demand, Steering::Demand(Delivery::LocalityWeights));
    assert!(!uses_module(&weights, module, demand));
    let shadow = service(", mode: SHADOW");
    assert!(!uses_module(&shadow, module, steering(&shadow, module)));
}

#[test]
fn modules_balance_by_load_and_leave_subsets_to_envoy() {
    let module = NodeClass::EnvoyModule;
    let child = "endpoint_picking_policy: {policies: [{typed_extension_config: {name: r, \
                 typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                 load_balancing_policies.round_robin.v3.RoundRobin}}}]}";
    let load_aware = |fields: &str, rest: &str| {
        let fields = format!(", {child}{fields}");
        service_of(
            &policy("load_aware_locality", "LoadAwareLocality", &fields),
            rest,
        )
    };
    let convergent = load_aware(", spill_controller: CONVERGENT", "");
    let feed_forward = steering(&convergent, module);
    assert_eq!(feed_forward, Steering::FeedForward(Delivery::LrsResponse));
    assert!(uses_module(&convergent, module, feed_forward));
    let off = load_aware("", ", mode: OFF");
    assert!(uses_module(&off, module, steering(&off, module)));
    let observed = policy(
        "round_robin",
        "RoundRobin",
        ", locality_lb_config: {zone_aware_lb_config: {locality_basis: OBSERVED_LOAD}}",
    );
    let observed = service_of(&observed, "");
    assert!(uses_module(&observed, module, steering(&observed, module)));
    let subsets = service_of(
        ", lb_subset_config: {fallback_policy: ANY_ENDPOINT, subset_selectors: [{keys: [stage]}]}",
        "",
    );
    let stock = steering(&subsets, module);
    let ignored = Steering::AsConfigured(NotSteeredReason::Subsets);
    assert_eq!(stock, ignored, "only locality weights could carry demand");
    assert!(!uses_module(&subsets, module, stock));
    // What Envoy can do alone: no load, or hosts that are selected by the request.
    let ring_hash = policy("ring_hash", "RingHash", "");
    let child = ring_hash.replace("load_balancing_policy:", "endpoint_picking_policy:");
    let by_request = policy("load_aware_locality", "LoadAwareLocality", &child);
    for stock in [
        service(", mode: OFF"),
        service_of(&zone_aware("locality_basis: HEALTHY_HOSTS_NUM"), ""),
        service_of(&by_request, ""),
    ] {
        let steering = steering(&stock, module);
        assert!(matches!(steering, Steering::AsConfigured(_)));
        assert!(!uses_module(&stock, module, steering), "{steering:?}");
    }
}

#[test]
fn lrs_responses_have_demand_unless_another_delivery_is_requested() {
    let classes = |delivery: &str| {
        let service = service(&format!(", delivery: {delivery}"));
        CLASSES.map(|class| sends_lrs_traffic(&service, class, steering(&service, class)))
    };
    // By class: Plimsoll, EnvoyModule, Grpc, Envoy.
    for (delivery, expected) in [
        ("AUTO", [true; 4]),
        ("LRS_RESPONSE", [true; 4]),
        ("EDS_FIELD", [false, true, false, false]),
        ("LOCALITY_METADATA", [false, true, false, false]),
        ("FLEET_WEIGHTS", [false, true, false, false]),
        ("LOCALITY_WEIGHTS", [false; 4]),
    ] {
        assert_eq!(classes(delivery), expected, "{delivery}");
    }
    let weights = service_of(", common_lb_config: {locality_weighted_lb_config: {}}", "");
    let steering = steering(&weights, NodeClass::EnvoyModule);
    assert_eq!(steering, Steering::Demand(Delivery::LocalityWeights));
    assert!(!sends_lrs_traffic(
        &weights,
        NodeClass::EnvoyModule,
        steering
    ));
    assert!(sends_lrs_traffic(&weights, NodeClass::Plimsoll, steering));
}

#[test]
fn auto_selects_the_best_supported_delivery() {
    let auto = service("");
    assert_eq!(selected(&auto, NodeClass::Plimsoll), Delivery::EdsField);
    assert_eq!(selected(&auto, NodeClass::Grpc), Delivery::LocalityWeights);
    assert_eq!(selected(&auto, NodeClass::Envoy), Delivery::FleetWeights);
}

#[test]
fn unsupported_deliveries_are_never_selected() {
    let ours = [
        Delivery::EdsField,
        Delivery::LocalityMetadata,
        Delivery::LrsResponse,
    ];
    let all = [
        "AUTO",
        "EDS_FIELD",
        "LOCALITY_METADATA",
        "LRS_RESPONSE",
        "FLEET_WEIGHTS",
    ];
    for asked in all.iter().chain(&["LOCALITY_WEIGHTS"]) {
        for class in [NodeClass::Grpc, NodeClass::Envoy] {
            for ramp in [0, 50, 100] {
                let service = service(&format!(", delivery: {asked}, ramp: {ramp}"));
                if let Steering::Demand(delivery) = steering(&service, class) {
                    assert!(!ours.contains(&delivery), "{asked} to {class:?}");
                    assert_ne!(delivery, Delivery::Auto);
                }
            }
        }
    }
}

#[test]
fn grpc_always_gets_locality_weights() {
    let fleet = service(", delivery: FLEET_WEIGHTS");
    assert_eq!(selected(&fleet, NodeClass::Grpc), Delivery::LocalityWeights);
}

#[test]
fn a_ramp_is_delivered_by_weights_of_its_own() {
    for delivery in ["AUTO", "EDS_FIELD", "LRS_RESPONSE", "FLEET_WEIGHTS"] {
        for ramp in [0, 1, 99] {
            let young = service(&format!(", ramp: {ramp}, delivery: {delivery}"));
            for class in CLASSES {
                let selected = selected(&young, class);
                assert_eq!(selected, Delivery::LocalityWeights, "{delivery} {class:?}");
                let demand = Steering::Demand(selected);
                assert!(!uses_module(&young, class, demand));
            }
        }
    }
    let subsets = ", lb_subset_config: {subset_selectors: [{keys: [version]}]}";
    let subsets = Service {
        ramp: 10,
        ..Service::clone(&service_of(subsets, ""))
    };
    let ignored = Steering::AsConfigured(NotSteeredReason::Subsets);
    assert_eq!(steering(&subsets, NodeClass::Envoy), ignored);
}

/// Nothing is sent to fleets because a service is on its way.
#[test]
fn fleets_get_demand_only_for_services_at_the_end_of_their_ramp() {
    let delivers = |service: &str| {
        let text = format!("services: [{{cluster: {{name: orders}}{service}}}]");
        let file = ConfigFile {
            name: "test".to_owned(),
            text,
        };
        delivers_to_fleets(&ControlConfig::parse(&file, &[]).unwrap())
    };
    assert!(delivers("") && delivers(", ramp: 100"));
    for other in ["ramp: 99", "mode: SHADOW", "delivery: LOCALITY_WEIGHTS"] {
        assert!(!delivers(&format!(", {other}")), "{other}");
    }
    // Fractions that lead load reports are ramped in load report responses.
    let led = load_aware("CONVERGENT", ", ramp: 70");
    let steered = steering(&led, NodeClass::Plimsoll);
    assert_eq!(steered, Steering::FeedForward(Delivery::LrsResponse));
    assert!(!uses_fleet_assignment(&led));
    assert!(uses_fleet_assignment(&load_aware("CONVERGENT", "")));
}

#[test]
fn shadow_and_off_deliver_no_demand() {
    for class in CLASSES {
        let shadow = steering(&service(", mode: SHADOW"), class);
        assert_eq!(shadow, Steering::HostCounts);
        let off = steering(&service(", mode: OFF"), class);
        assert_eq!(off, Steering::AsConfigured(NotSteeredReason::ModeOff));
    }
}

#[test]
fn policies_that_ignore_zones_are_not_steered() {
    let hashing = service_of(", lb_policy: RING_HASH", "");
    let child = "{policies: [{typed_extension_config: {name: x, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.\
                 RoundRobin}}}]}";
    let fields = format!(", endpoint_picking_policy: {child}");
    let load_aware = policy("load_aware_locality", "LoadAwareLocality", &fields);
    let load_aware = service_of(&load_aware, "");
    for class in CLASSES {
        let alone = |service| steering(service, class);
        assert_eq!(
            alone(&hashing),
            Steering::AsConfigured(NotSteeredReason::Hashing)
        );
        let expected = Steering::AsConfigured(NotSteeredReason::LoadAwareLocality);
        assert_eq!(alone(&load_aware), expected);
    }
}

/// A service with `load_aware_locality`, this spill controller, and `rest` as further fields.
fn load_aware(controller: &str, rest: &str) -> Arc<Service> {
    let child = "{policies: [{typed_extension_config: {name: x, typed_config: {'@type': \
                 type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.\
                 RoundRobin}}}]}";
    let fields = format!(", spill_controller: {controller}, endpoint_picking_policy: {child}");
    let cluster = policy("load_aware_locality", "LoadAwareLocality", &fields);
    service_of(&cluster, rest)
}

#[test]
fn demand_is_feed_forward_of_convergent_services() {
    let led = load_aware("CONVERGENT", "");
    let ours = steering(&led, NodeClass::Plimsoll);
    assert_eq!(ours, Steering::FeedForward(Delivery::LrsResponse));
    assert!(sends_lrs_traffic(&led, NodeClass::Plimsoll, ours));
    assert!(steered_config(&led, ours).uses_demand_feed_forward());
    let alone = Steering::AsConfigured(NotSteeredReason::LoadAwareLocality);
    for class in [NodeClass::Grpc, NodeClass::Envoy] {
        assert_eq!(steering(&led, class), alone);
    }
    let by_field = load_aware("CONVERGENT", ", delivery: EDS_FIELD");
    let steered = steering(&by_field, NodeClass::Plimsoll);
    assert_eq!(steered, Steering::FeedForward(Delivery::EdsField));
    assert!(!sends_lrs_traffic(&by_field, NodeClass::Plimsoll, steered));
    // The fleet's assignment has one ramp for all services, so ramp 10 needs the LRS response.
    let young = load_aware("CONVERGENT", ", delivery: EDS_FIELD, ramp: 10");
    let steered = steering(&young, NodeClass::Plimsoll);
    assert_eq!(steered, Steering::FeedForward(Delivery::LrsResponse));
}

#[test]
fn demand_of_other_services_is_not_used_as_feed_forward() {
    let others = [
        load_aware("CONVERGENT", ", mode: OFF"),
        load_aware("CONVERGENT", ", mode: SHADOW"),
        load_aware("HEADROOM", ""),
        load_aware("CONVERGENT, demand_feed_forward: false", ""),
    ];
    for service in others {
        let steered = steering(&service, NodeClass::Plimsoll);
        assert!(matches!(steered, Steering::AsConfigured(_)), "{steered:?}");
        assert!(!sends_lrs_traffic(&service, NodeClass::Plimsoll, steered));
        // The fleet's assignment has demand for other services, so feed-forward must be disabled.
        let config = steered_config(&service, steered);
        assert!(!config.uses_demand_feed_forward());
    }
}

#[test]
fn the_shortest_staleness_threshold_is_of_services_with_fractions() {
    let rules = |seconds: u32| {
        let lrs = format!("lrs_rate_config: {{staleness_threshold: {seconds}s}}");
        let measured = format!("{{locality_basis: LRS_REPORTED_RATE, {lrs}}}");
        let fields = format!(", locality_lb_config: {{zone_aware_lb_config: {measured}}}");
        policy("round_robin", "RoundRobin", &fields)
    };
    let (patient, hasty) = (service_of(&rules(300), ""), service_of(&rules(30), ""));
    let hasty_but_off = service_of(&rules(5), ", mode: SHADOW");
    let hashing = service_of(", lb_policy: RING_HASH", "");
    let all = [&*patient, &*hasty, &*hasty_but_off, &*hashing];
    let (service, threshold) = shortest_staleness_threshold(all.into_iter()).unwrap();
    assert_eq!((&**service.name(), threshold.as_secs()), ("orders", 30));
    let led = load_aware("CONVERGENT", "");
    let threshold = shortest_staleness_threshold([&*patient, &*led].into_iter())
        .unwrap()
        .1;
    assert_eq!(threshold.as_secs(), 60, "the default is what leads");
    assert!(shortest_staleness_threshold([&*hashing].into_iter()).is_none());
}

#[test]
fn orca_weights_need_locality_weights_on_a_stock_envoy() {
    let name = "client_side_weighted_round_robin";
    let orca = service_of(&policy(name, "ClientSideWeightedRoundRobin", ""), "");
    assert_eq!(selected(&orca, NodeClass::Envoy), Delivery::LocalityWeights);
    assert_eq!(selected(&orca, NodeClass::Plimsoll), Delivery::EdsField);
}

#[test]
fn small_services_are_steered_unless_min_cluster_size_is_explicit() {
    let minimum = |service: &Service| {
        let config = steered_config(service, Steering::Demand(Delivery::EdsField));
        config.zone_aware().unwrap().min_cluster_size()
    };
    assert_eq!(minimum(&service("")), 1, "not Envoy's 6");
    for written in [20, 6, 0] {
        let rules = format!("zone_aware_lb_config: {{min_cluster_size: {written}}}");
        let rules = format!(", common_lb_config: {{{rules}}}");
        assert_eq!(minimum(&service_of(&rules, "")), written, "is written");
    }
    let off = service(", mode: OFF");
    let as_written = steered_config(&off, Steering::AsConfigured(NotSteeredReason::ModeOff));
    assert_eq!(as_written.zone_aware().unwrap().min_cluster_size(), 6);
}

#[test]
fn locality_weights_are_not_sent_to_subsets_that_ignore_them() {
    let subsets = |aware: bool| {
        format!(
            ", lb_subset_config: {{subset_selectors: [{{keys: [version]}}], \
             locality_weight_aware: {aware}}}, common_lb_config: {{locality_weighted_lb_config: \
             {{}}}}"
        )
    };
    let unaware = service_of(&subsets(false), "");
    for class in [NodeClass::Plimsoll, NodeClass::Envoy] {
        let steering = steering(&unaware, class);
        assert_eq!(
            steering,
            Steering::AsConfigured(NotSteeredReason::Subsets),
            "{class:?}"
        );
    }
    assert_eq!(
        selected(&unaware, NodeClass::Grpc),
        Delivery::LocalityWeights
    );
    let aware = service_of(&subsets(true), "");
    for class in CLASSES {
        assert_eq!(
            selected(&aware, class),
            Delivery::LocalityWeights,
            "{class:?}"
        );
    }
    // Demand on the fleet's assignment works in every subset.
    let zones = ", lb_subset_config: {subset_selectors: [{keys: [version]}]}";
    let zones = service_of(zones, "");
    assert_eq!(selected(&zones, NodeClass::Envoy), Delivery::FleetWeights);
    assert_eq!(selected(&zones, NodeClass::Plimsoll), Delivery::EdsField);
}

/// Where endpoints of a relayed server cannot be weighted, demand fleet by fleet is better than
/// none; but an objective would be ignored.
#[test]
fn demand_of_several_fleets_goes_on_the_assignment_of_the_fleet_where_weights_are_impossible() {
    let goal = ", objective: {waterfall: {target_utilization: 0.8}}, \
                capacity: {requests_per_second: 20}";
    let reason = NotSteeredReason::SharedEndpoints;
    for (rest, no_weights, expected) in [
        ("", None, Steering::Demand(Delivery::LocalityWeights)),
        ("", Some(reason), Steering::Demand(Delivery::FleetWeights)),
        (goal, None, Steering::Demand(Delivery::LocalityWeights)),
        (goal, Some(reason), Steering::AsConfigured(reason)),
    ] {
        let service = Service {
            has_own_plan: true,
            no_weights,
            ..Service::clone(&service(rest))
        };
        assert_eq!(steering(&service, NodeClass::Envoy), expected, "{rest}");
        let plimsoll = steering(&service, NodeClass::Plimsoll);
        assert_eq!(plimsoll, Steering::Demand(Delivery::LrsResponse), "{rest}");
    }
}

fn zone_aware(fields: &str) -> String {
    let fields = format!(", locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}");
    policy("round_robin", "RoundRobin", &fields)
}

#[test]
fn an_explicit_basis_is_kept_in_every_mode_and_for_every_class() {
    for basis in ["HEALTHY_HOSTS_NUM", "HEALTHY_HOSTS_WEIGHT", "OBSERVED_LOAD"] {
        let cluster = zone_aware(&format!("locality_basis: {basis}"));
        for mode in ["", ", mode: SHADOW"] {
            let service = service_of(&cluster, mode);
            for class in CLASSES {
                let steering = steering(&service, class);
                assert_eq!(
                    steering,
                    Steering::AsConfigured(NotSteeredReason::ExplicitBasis)
                );
                assert_eq!(steered_config(&service, steering), *service.config);
                assert!(!sends_lrs_traffic(&service, class, steering));
            }
        }
    }
    let measured = service_of(&zone_aware("locality_basis: LRS_REPORTED_RATE"), "");
    assert_eq!(selected(&measured, NodeClass::Plimsoll), Delivery::EdsField);
}

/// Parses the service `orders` with these further fields of its cluster and of the service.
fn parsed(cluster: &str, rest: &str) -> Result<ControlConfig, String> {
    let text = format!("services: [{{cluster: {{name: orders{cluster}}}{rest}}}]");
    let name = "test".to_owned();
    ControlConfig::parse(&ConfigFile { name, text }, &[]).map_err(|error| error.to_string())
}

#[test]
fn settings_that_cannot_act_are_refused() {
    let basis = |name: &str| zone_aware(&format!("locality_basis: {name}"));
    let by_load = |fields: &str| {
        let child = "endpoint_picking_policy: {policies: [{typed_extension_config: {name: x, \
                     typed_config: {'@type': type.googleapis.com/envoy.extensions.\
                     load_balancing_policies.round_robin.v3.RoundRobin}}}]}";
        let fields = format!(", {child}{fields}");
        policy("load_aware_locality", "LoadAwareLocality", &fields)
    };
    let subsets = |fields: &str| {
        format!(", lb_subset_config: {{subset_selectors: [{{keys: [stage]}}]{fields}}}")
    };
    let (ring, maglev) = (", lb_policy: RING_HASH", policy("maglev", "Maglev", ""));
    let not_led = by_load(", spill_controller: CONVERGENT, demand_feed_forward: false");
    let weighted = ", common_lb_config: {locality_weighted_lb_config: {}}";
    let by_weights = ", delivery: LOCALITY_WEIGHTS";
    for (cluster, rest, field, part) in [
        (
            &*basis("HEALTHY_HOSTS_NUM"),
            ", delivery: EDS_FIELD",
            "delivery",
            "locality_basis",
        ),
        (
            &basis("OBSERVED_LOAD"),
            ", mode: ENFORCE",
            "mode",
            "locality_basis",
        ),
        (
            &basis("HEALTHY_HOSTS_WEIGHT"),
            ", ramp: 100",
            "ramp",
            "locality_basis",
        ),
        (ring, ", mode: ENFORCE", "mode", "consistent hashing"),
        (
            &maglev,
            ", delivery: FLEET_WEIGHTS",
            "delivery",
            "consistent hashing",
        ),
        (
            ring,
            ", mode: SHADOW, ramp: 5",
            "ramp",
            "consistent hashing",
        ),
        (
            &by_load(""),
            ", mode: ENFORCE",
            "mode",
            "load reports of hosts",
        ),
        (
            &by_load(""),
            ", ramp: 10, mode: SHADOW",
            "ramp",
            "load reports of hosts",
        ),
        (
            &not_led,
            ", delivery: LRS_RESPONSE",
            "delivery",
            "demand_feed_forward",
        ),
        (
            &subsets(""),
            by_weights,
            "delivery",
            "locality_weight_aware",
        ),
        (&subsets(""), ", ramp: 99", "ramp", "locality_weight_aware"),
        (
            &(subsets("") + weighted),
            ", mode: ENFORCE",
            "mode",
            "locality_weight_aware",
        ),
    ] {
        let error = parsed(cluster, rest).unwrap_err();
        let path = format!("services[0].{field}: requests measured demand, but ");
        assert!(error.contains(&path), "{cluster}{rest}: {error}");
        assert!(error.contains(part), "{cluster}{rest}: {error}");
        assert!(error.contains("; remove one of the two"), "{error}");
        // Without the field, and in mode OFF, nothing asks for what cannot be.
        assert!(parsed(cluster, "").is_ok(), "{cluster}");
        let off = rest
            .replace(", mode: ENFORCE", "")
            .replace(", mode: SHADOW", "");
        let off = parsed(cluster, &format!("{off}, mode: OFF"));
        assert!(off.is_ok(), "{cluster}{rest}: {off:?}");
    }
    for (cluster, rest) in [
        (
            &*by_load(", spill_controller: CONVERGENT"),
            ", ramp: 10, delivery: FLEET_WEIGHTS",
        ),
        (
            &(subsets(", locality_weight_aware: true") + weighted),
            ", ramp: 10, delivery: LOCALITY_WEIGHTS",
        ),
        (&subsets(""), ", delivery: EDS_FIELD"),
        (weighted, ", ramp: 10, delivery: EDS_FIELD"),
    ] {
        let read = parsed(cluster, rest);
        assert!(read.is_ok(), "{cluster}{rest}: {read:?}");
    }
}

#[test]
fn a_delivery_that_contradicts_the_cluster_is_refused() {
    let metadata = zone_aware("lrs_rate_config: {fraction_source: LOCALITY_METADATA}");
    let error = parsed(&metadata, ", delivery: EDS_FIELD").unwrap_err();
    assert!(
        error.contains("services[0].delivery: is EDS_FIELD, but"),
        "{error}"
    );
    assert!(error.contains("remove one of the two"), "{error}");
    assert!(parsed(&metadata, ", delivery: EDS_FIELD, mode: OFF").is_ok());
}

#[test]
fn a_class_that_is_steered_is_enough() {
    let led = load_aware("CONVERGENT", ", mode: SHADOW");
    let reason = Some(NotSteeredReason::LoadAwareLocality);
    for (classes, expected) in [
        (&CLASSES[..], None),
        (&[NodeClass::Envoy, NodeClass::Plimsoll], None),
        (&[NodeClass::Envoy, NodeClass::Grpc], reason),
        (&[], None),
    ] {
        assert_eq!(not_steered(&led, classes.iter().copied()), expected);
    }
}

#[test]
fn an_explicit_fraction_source_is_kept() {
    let metadata = zone_aware("lrs_rate_config: {fraction_source: LOCALITY_METADATA}");
    for delivery in ["AUTO", "LRS_RESPONSE", "LOCALITY_METADATA"] {
        let service = service_of(&metadata, &format!(", delivery: {delivery}"));
        let steering = steering(&service, NodeClass::Plimsoll);
        let config = steered_config(&service, steering);
        let source = config.zone_aware().unwrap().fraction_source();
        assert_eq!(source, FractionSource::LocalityMetadata, "{delivery}");
    }
}

#[test]
fn plimsoll_data_planes_get_fractions_instead_of_fleet_weights() {
    let fleet = service(", delivery: FLEET_WEIGHTS");
    assert_eq!(selected(&fleet, NodeClass::Plimsoll), Delivery::EdsField);
    assert_eq!(selected(&fleet, NodeClass::Envoy), Delivery::FleetWeights);
}

#[test]
fn with_a_relay_a_file_that_requests_demand_takes_precedence() {
    let theirs = service_of(&zone_aware("locality_basis: HEALTHY_HOSTS_WEIGHT"), "");
    let relayed = |rest: &str| Service {
        config: Arc::clone(&theirs.config),
        ..Service::clone(&service(rest))
    };
    let steering = |rest: &str| steering(&relayed(rest), NodeClass::Plimsoll);
    assert_eq!(
        steering(""),
        Steering::AsConfigured(NotSteeredReason::ExplicitBasis)
    );
    for asked in [", mode: ENFORCE", ", ramp: 100", ", delivery: EDS_FIELD"] {
        assert_eq!(
            steering(asked),
            Steering::Demand(Delivery::EdsField),
            "{asked}"
        );
    }
}
