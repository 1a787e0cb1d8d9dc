//! Tests of which clusters and assignments are rewritten, by class of nodes and by policy.

use super::*;
use crate::config::Mode;
use crate::relay::improve::cluster as rewritten;
use crate::view::cluster::encode;
use crate::view::tests::policies;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::health::HealthStatus;

/// A cluster of the other server with these further fields, and an unknown field at the end.
fn theirs(fields: &str, load_reporting: bool) -> Bytes {
    let config = parsed(fields);
    let cluster = encode_cluster(&ClusterOut {
        load_reporting,
        ..ClusterOut::new(&config.config, LocalityDelivery::AsConfigured)
    });
    [&cluster[..], UNKNOWN].concat().into()
}

/// The service `orders` with these further fields of its cluster.
fn parsed(fields: &str) -> Arc<Service> {
    let text = format!("services: [{{cluster: {{name: orders{fields}}}}}]");
    let name = "test".to_owned();
    let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
    Arc::clone(&config.services["orders"])
}

/// `load_aware_locality` with this spill controller.
fn load_aware(controller: &str) -> String {
    let policy = |name: &str, message: &str, fields: &str| {
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{'@type': \
             type.googleapis.com/envoy.extensions.load_balancing_policies.{name}.v3.{message}\
             {fields}}}}}}}]}}"
        )
    };
    let child = policy("round_robin", "RoundRobin", "");
    let fields = format!(", spill_controller: {controller}, endpoint_picking_policy: {child}");
    let policy = policy("load_aware_locality", "LoadAwareLocality", &fields);
    format!(", load_balancing_policy: {policy}")
}

fn shown(patch: Patch, cluster: &Bytes) -> Bytes {
    let mut merge = merge(patch);
    merge.handle_upstream(updated(CLUSTER, "orders", cluster));
    let view = merge.poll_view().unwrap();
    body(&view, CLUSTER, "orders").unwrap()
}

#[test]
fn clusters_without_eds_are_not_steered_by_locality_weights() {
    let fixed = Bytes::from([b"\x0a\x06orders", UNKNOWN].concat());
    assert!(!decode_cluster(&fixed).unwrap().is_eds);
    let weights = patch(NodeClass::Envoy, ", delivery: LOCALITY_WEIGHTS", 1);
    assert_eq!(shown(weights.clone(), &fixed), fixed);
    assert_ne!(shown(patch(NodeClass::Envoy, "", 1), &fixed), fixed);
    // A policy in the file replaces theirs, and measured demand is left out.
    let mut written = weights.clone();
    let service = parsed(", lb_policy: LEAST_REQUEST");
    let service = Service {
        delivery: crate::config::Delivery::LocalityWeights,
        ..Service::clone(&service)
    };
    written.services.get_mut("orders").unwrap().service = Arc::new(service);
    let replaced = decode_cluster(&shown(written, &fixed)).unwrap().config;
    assert_eq!(replaced.endpoint_policy().name(), "least_request");
    assert!(!replaced.locality_weighted());
    // An assignment of that name belongs to somebody else.
    let mut merge = merge(weights);
    let endpoints = assignment_bytes("orders");
    merge.handle_upstream(updated(CLUSTER, "orders", &fixed));
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
    let view = merge.poll_view().unwrap();
    let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders");
    assert_eq!(shown.unwrap(), endpoints);
}

#[test]
fn feed_forward_is_rewritten_for_modules_and_where_demand_must_not_count() {
    let convergent = theirs(&load_aware("CONVERGENT"), false);
    let headroom = theirs(&load_aware("HEADROOM"), false);
    let leads = |cluster: &Bytes| {
        let config = decode_cluster(cluster).unwrap().config;
        assert!(config.load_aware_locality().is_some());
        config.uses_demand_feed_forward()
    };
    assert!(leads(&convergent) && !leads(&headroom));
    let shadow = ", mode: SHADOW";
    for (class, rest, original) in [
        (NodeClass::Plimsoll, "", &convergent),
        (NodeClass::Envoy, "", &convergent),
        (NodeClass::Envoy, shadow, &convergent),
        (NodeClass::Plimsoll, "", &headroom),
        (NodeClass::Plimsoll, shadow, &headroom),
    ] {
        let shown = shown(patch(class, rest, 1), original);
        assert_eq!(shown, original, "{class:?} {rest}");
    }
    assert!(!leads(&shown(
        patch(NodeClass::Plimsoll, shadow, 1),
        &convergent
    )));
    for rest in ["", shadow] {
        let shown = shown(patch(NodeClass::EnvoyModule, rest, 1), &convergent);
        assert_ne!(shown, convergent, "{rest}");
    }
    // A policy in the file replaces the one of the other server.
    let mut written = patch(NodeClass::Plimsoll, "", 1);
    let orders = written.services.get_mut("orders").unwrap();
    orders.service = parsed(&load_aware("CONVERGENT"));
    assert!(leads(&shown(written, &cluster_bytes("orders", None))));
}

/// Every policy that a relay's file names reaches every class of nodes, in every mode; what is
/// explained is what the bytes say.
#[test]
fn every_policy_of_the_file_is_delivered() {
    let theirs = theirs("", true);
    for policy in &policies() {
        for mode in ["", "ENFORCE", "SHADOW", "'OFF'"] {
            let file = match mode {
                "" => format!("services: [{{cluster: {{name: orders, {policy}}}}}]"),
                mode => {
                    format!("services: [{{cluster: {{name: orders, {policy}}}, mode: {mode}}}]")
                }
            };
            let name = "test".to_owned();
            let file = ConfigFile { name, text: file };
            // `mode: ENFORCE` is refused where demand cannot steer.
            let Ok(config) = ControlConfig::parse(&file, &[]) else {
                assert_eq!(mode, "ENFORCE", "{policy}");
                continue;
            };
            let service = &config.services["orders"];
            for class in NodeClass::ALL {
                let mut ours = patch(class, "", 1);
                ours.services.get_mut("orders").unwrap().service = Arc::clone(service);
                let improved = rewritten(service, class, false, false, &theirs).unwrap();
                assert_eq!(shown(ours, &theirs), improved.body);
                let got = decode_cluster(&improved.body).unwrap().config;
                let expected = encode(service, class, improved.steering);
                let expected = decode_cluster(&expected).unwrap().config;
                let both = |config: &ClusterConfig| {
                    (
                        config.locality_policy().clone(),
                        config.endpoint_policy().clone(),
                        config.lb_subset_config().cloned(),
                    )
                };
                assert_eq!(both(&got), both(&expected), "{class:?} {mode} {policy}");
                assert!(improved.is_rewritten, "{class:?} {mode} {policy}");
            }
        }
    }
}

/// `common_lb_config.healthy_panic_threshold` and `plimsoll` choose no policy.
#[test]
fn a_panic_threshold_alone_keeps_the_other_servers_policy() {
    let panic = ", common_lb_config: {healthy_panic_threshold: {value: 20}}";
    let sampling = ", plimsoll: {locality_sampling: RANDOM}";
    for policy in policies() {
        let theirs = theirs(&format!(", {policy}"), false);
        for mode in ["", "'OFF'", "SHADOW"] {
            let file = |fields: &str| Service {
                mode: match mode {
                    "" => Mode::Enforce,
                    "SHADOW" => Mode::Shadow,
                    _ => Mode::Off,
                },
                ..Service::clone(&parsed(fields))
            };
            for class in NodeClass::ALL {
                let got = |fields: &str| {
                    let mut ours = patch(class, "", 1);
                    ours.services.get_mut("orders").unwrap().service = Arc::new(file(fields));
                    decode_cluster(&shown(ours, &theirs)).unwrap().config
                };
                let plain = got("");
                let expected = plain.with_panic_threshold_of(&parsed(panic).config);
                assert_eq!(expected.panic_threshold(), 20);
                assert_eq!(got(panic), expected, "{class:?} {mode} {policy}");
                let expected = match class {
                    NodeClass::Plimsoll => plain.with_extensions_of(&parsed(sampling).config),
                    _ => plain,
                };
                assert_eq!(got(sampling), expected, "{class:?} {mode} {policy}");
            }
        }
    }
}

/// Of the file's cluster only the policy replaces theirs.
#[test]
fn a_policy_of_the_file_keeps_the_other_servers_panic_threshold() {
    let theirs = theirs(
        ", common_lb_config: {healthy_panic_threshold: {value: 20}}",
        false,
    );
    for (fields, expected) in [
        (", lb_policy: RANDOM", 20),
        (
            ", lb_policy: RANDOM, common_lb_config: {healthy_panic_threshold: {value: 50}}",
            50,
        ),
    ] {
        for class in NodeClass::ALL {
            let improved = rewritten(&parsed(fields), class, false, false, &theirs).unwrap();
            let got = decode_cluster(&improved.body).unwrap().config;
            assert_eq!(got.panic_threshold(), expected, "{class:?}");
            // The module and explanations read it here.
            assert_eq!(improved.service.config.panic_threshold(), expected);
        }
    }
}

/// Envoy tells its policies only that a host is unhealthy.
#[test]
fn modules_are_told_which_endpoints_of_the_other_server_are_draining() {
    let endpoint = |port, health_status| EndpointOut {
        health_status,
        ..EndpointOut::new(([127, 0, 0, 1], port).into())
    };
    let theirs = encode_assignment(&AssignmentOut {
        cluster_name: "orders".into(),
        localities: vec![LocalityOut {
            locality: zone("a"),
            endpoints: vec![
                endpoint(1, HealthStatus::Draining),
                endpoint(2, HealthStatus::Unhealthy),
            ],
            ..LocalityOut::default()
        }],
        ..AssignmentOut::default()
    });
    for (class, rest, is_told) in [
        (NodeClass::EnvoyModule, "", true),
        (NodeClass::EnvoyModule, ", mode: SHADOW", false),
        (
            NodeClass::EnvoyModule,
            ", delivery: LOCALITY_WEIGHTS",
            false,
        ),
        (NodeClass::Envoy, "", false),
        (NodeClass::Plimsoll, "", false),
    ] {
        let mut merge = merge(patch(class, rest, 1));
        merge.handle_upstream(updated(CLUSTER, "orders", &cluster_bytes("orders", None)));
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &theirs));
        let view = merge.poll_view().unwrap();
        let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders").unwrap();
        let says = shown.windows(8).filter(|part| part == b"DRAINING").count();
        assert_eq!(says, usize::from(is_told), "{class:?}{rest}");
        let hosts = |bytes: &[u8]| {
            let assignment = decode_assignment(bytes).unwrap();
            assignment.endpoints()[0].lb_endpoints.clone()
        };
        assert_eq!(hosts(&shown), hosts(&theirs));
    }
}

#[test]
fn clusters_that_ask_for_load_reports_stay_as_they_are_for_grpc() {
    let shadow = patch(NodeClass::Grpc, ", mode: SHADOW", 1);
    let asking = theirs("", true);
    assert_eq!(shown(shadow.clone(), &asking), asking);
    let silent = theirs("", false);
    let shown = shown(shadow, &silent);
    assert!(decode_cluster(&shown).unwrap().lrs_self);
}

#[test]
fn subsets_of_the_file_replace_those_of_the_other_server() {
    let subsets =
        |key: &str| format!(", lb_subset_config: {{subset_selectors: [{{keys: [{key}]}}]}}");
    let written = parsed(&format!(", lb_policy: LEAST_REQUEST{}", subsets("file")));
    let mut ours = patch(NodeClass::Plimsoll, "", 1);
    ours.services.get_mut("orders").unwrap().service = Arc::clone(&written);
    let shown = shown(ours, &theirs(&subsets("theirs"), false));
    let shown = decode_cluster(&shown).unwrap().config;
    assert_eq!(shown.lb_subset_config(), written.config.lb_subset_config());
}

#[test]
fn assignments_that_depend_on_demand_are_withheld_with_it() {
    let held = Patch {
        held: true,
        ..patch(NodeClass::Grpc, "", 1)
    };
    let mut merge = merge(held);
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster_bytes("orders", None)));
    for name in ["orders", "others"] {
        let endpoints = assignment_bytes(name);
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, name, &endpoints));
    }
    let view = merge.poll_view().unwrap();
    let assignments = view.get(CLUSTER_LOAD_ASSIGNMENT).unwrap();
    let shown: Vec<_> = assignments.iter().map(|one| &*one.name).collect();
    assert_eq!(shown, ["others"]);
    assert!(!assignments.is_absent("orders"));
}
