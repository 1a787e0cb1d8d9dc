//! Tests of which clusters and assignments are rewritten, by class of nodes and by policy.

use super::*;

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

fn shown(overlay: Overlay, cluster: &Bytes) -> Bytes {
    let mut merge = merge(overlay);
    merge.handle_upstream(updated(CLUSTER, "orders", cluster));
    let view = merge.poll_view().unwrap();
    body(&view, CLUSTER, "orders").unwrap()
}

#[test]
fn clusters_without_eds_are_not_steered_by_locality_weights() {
    let fixed = Bytes::from([b"\x0a\x06orders", UNKNOWN].concat());
    assert!(!decode_cluster(&fixed).unwrap().is_eds);
    let weights = overlay(NodeClass::Envoy, ", delivery: LOCALITY_WEIGHTS", 1);
    assert_eq!(shown(weights.clone(), &fixed), fixed);
    assert_ne!(shown(overlay(NodeClass::Envoy, "", 1), &fixed), fixed);
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
        let shown = shown(overlay(class, rest, 1), original);
        assert_eq!(shown, original, "{class:?} {rest}");
    }
    assert!(!leads(&shown(
        overlay(NodeClass::Plimsoll, shadow, 1),
        &convergent
    )));
    for rest in ["", shadow] {
        let shown = shown(overlay(NodeClass::EnvoyModule, rest, 1), &convergent);
        assert_ne!(shown, convergent, "{rest}");
    }
    // A policy in the file replaces the one of the other server.
    let mut written = overlay(NodeClass::Plimsoll, "", 1);
    let orders = written.services.get_mut("orders").unwrap();
    orders.service = parsed(&load_aware("CONVERGENT"));
    assert!(leads(&shown(written, &cluster_bytes("orders", None))));
}

#[test]
fn clusters_that_ask_for_load_reports_stay_as_they_are_for_grpc() {
    let shadow = overlay(NodeClass::Grpc, ", mode: SHADOW", 1);
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
    let mut ours = overlay(NodeClass::Plimsoll, "", 1);
    ours.services.get_mut("orders").unwrap().service = Arc::clone(&written);
    let shown = shown(ours, &theirs(&subsets("theirs"), false));
    let shown = decode_cluster(&shown).unwrap().config;
    assert_eq!(shown.lb_subset_config(), written.config.lb_subset_config());
}

#[test]
fn assignments_that_depend_on_demand_are_withheld_with_it() {
    let held = Overlay {
        held: true,
        ..overlay(NodeClass::Grpc, "", 1)
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
