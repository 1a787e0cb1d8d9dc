//! Tests of what follows when a resource, a subscription or the patch changes.

use super::*;

/// Weights of localities in an assignment that is shown.
fn weights(view: &View, name: &str) -> Vec<u32> {
    let shown = body(view, CLUSTER_LOAD_ASSIGNMENT, name).unwrap();
    let shown = decode_assignment(&shown).unwrap();
    let entries = shown.endpoints().iter();
    entries.map(|entry| entry.load_balancing_weight).collect()
}

fn repeated(type_url: &str, name: &str, body: &Bytes, epoch: u64) -> ClientEvent {
    ClientEvent::Updated {
        type_url: type_url.into(),
        resource: Resource::new(name, body.clone()).with_epoch(epoch),
    }
}

fn missing(type_url: &str, name: &str) -> ClientEvent {
    ClientEvent::DoesNotExist {
        type_url: type_url.into(),
        name: name.into(),
        timed_out: false,
    }
}

#[test]
fn only_repeated_assignments_are_passed_on() {
    let mut merge = merge(patch(NodeClass::Grpc, "", 1));
    let (cluster, endpoints) = (cluster_bytes("orders", None), assignment_bytes("orders"));
    let epoch = |view: &View, type_url| view.get(type_url).unwrap().get("orders").unwrap().epoch;
    merge.handle_upstream(repeated(CLUSTER, "orders", &cluster, 5));
    merge.handle_upstream(repeated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints, 5));
    let first = merge.poll_view().unwrap();
    assert_eq!(epoch(&first, CLUSTER), 0);
    assert_eq!(epoch(&first, CLUSTER_LOAD_ASSIGNMENT), 5);
    merge.handle_upstream(repeated(CLUSTER, "orders", &cluster, 6));
    merge.handle_upstream(repeated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints, 5));
    assert!(merge.poll_view().is_none(), "nothing has changed");
    merge.handle_upstream(repeated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints, 6));
    let second = merge.poll_view().unwrap();
    assert_eq!(epoch(&second, CLUSTER_LOAD_ASSIGNMENT), 6);
    assert_eq!((first.generation(), second.generation()), (1, 2));
}

/// Names of the clusters and assignments that were learned.
fn learned(merge: &mut Merge) -> Vec<String> {
    let events = std::iter::from_fn(|| merge.poll_event());
    let name = |event| match event {
        MergeEvent::Learned(RelayedResource::Cluster { cluster, .. }) => cluster,
        MergeEvent::Learned(RelayedResource::Assignment { name, .. }) => name,
        MergeEvent::Unreadable { .. } => panic!("{event:?}"),
    };
    let names = events.map(name);
    names.map(|name| name.to_string()).collect()
}

/// A cluster `orders` of gRPC clients, and the assignments `orders` and `others`.
fn with_assignments() -> Merge {
    let mut merge = merge(patch(NodeClass::Grpc, "", 1));
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster_bytes("orders", None)));
    for name in ["orders", "others"] {
        let endpoints = assignment_bytes(name);
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, name, &endpoints));
    }
    let view = merge.poll_view().unwrap();
    assert_eq!(weights(&view, "orders"), [9000, 1000]);
    assert_eq!(learned(&mut merge), ["orders", "orders"]);
    merge
}

#[test]
fn changed_assignments_are_learned_and_rewritten_again() {
    let mut merge = with_assignments();
    let one_zone = encode_assignment(&AssignmentOut {
        cluster_name: "orders".into(),
        localities: vec![LocalityOut {
            locality: zone("b"),
            endpoints: vec![EndpointOut::new(([127, 0, 0, 1], 2).into())],
            ..LocalityOut::default()
        }],
        ..AssignmentOut::default()
    });
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &one_zone));
    let view = merge.poll_view().unwrap();
    assert_eq!(weights(&view, "orders"), [1000]);
    assert_eq!(learned(&mut merge), ["orders"]);
}

#[test]
fn the_assignment_of_a_cluster_is_the_one_that_it_names_now() {
    let mut merge = with_assignments();
    let cluster = cluster_bytes("orders", Some("others"));
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster));
    let view = merge.poll_view().unwrap();
    let read = decode_cluster(&body(&view, CLUSTER, "orders").unwrap()).unwrap();
    assert_eq!(read.eds_service_name.as_deref(), Some("others"));
    assert_eq!(weights(&view, "others"), [9000, 1000]);
    let shown = |view: &View, name| body(view, CLUSTER_LOAD_ASSIGNMENT, name).unwrap();
    assert_eq!(shown(&view, "orders"), assignment_bytes("orders"));
    assert_eq!(learned(&mut merge), ["orders", "others"]);
    merge.handle_upstream(ClientEvent::Removed {
        type_url: CLUSTER.into(),
        name: "orders".into(),
    });
    let view = merge.poll_view().unwrap();
    assert_eq!(shown(&view, "others"), assignment_bytes("others"));
}

#[test]
fn a_new_patch_rewrites_clusters_and_unchanged_ones_keep_their_version() {
    let cluster = cluster_bytes("orders", None);
    let resource = Resource {
        version: "v7".into(),
        ..Resource::new("orders", cluster)
    };
    let mut merge = merge(patch(NodeClass::Envoy, "", 1));
    merge.handle_upstream(ClientEvent::Updated {
        type_url: CLUSTER.into(),
        resource: resource.clone(),
    });
    let shown = |merge: &mut Merge| {
        let view = merge.poll_view().unwrap();
        view.get(CLUSTER).unwrap().get("orders").unwrap().clone()
    };
    let rewritten = shown(&mut merge);
    assert_ne!(rewritten.body, resource.body);
    assert_eq!(rewritten, Resource::new("orders", rewritten.body.clone()));
    let shadow = patch(NodeClass::Envoy, ", mode: SHADOW", 2);
    merge.handle_patch(Arc::new(shadow));
    assert_eq!(shown(&mut merge), resource);
}

#[test]
fn assignments_of_receivers_with_clusters_from_elsewhere_are_rewritten_by_name() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Grpc, "", 1)));
    let names = subscriptions(&[(CLUSTER_LOAD_ASSIGNMENT, &["orders"])]);
    merge.subscribe(&names);
    let endpoints = assignment_bytes("orders");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
    let view = merge.poll_view().unwrap();
    assert_eq!(weights(&view, "orders"), [9000, 1000]);
}

#[test]
fn withheld_resources_of_this_server_are_not_absent() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Envoy, "", 1)));
    let names = ["local_cluster", "fleet", "their"];
    merge.subscribe(&subscriptions(&[(CLUSTER_LOAD_ASSIGNMENT, &names)]));
    for name in names {
        merge.handle_upstream(missing(CLUSTER_LOAD_ASSIGNMENT, name));
    }
    let resource = |name: &str| Resource::new(name, assignment_bytes(name));
    let mut held = patch(NodeClass::Envoy, "", 2);
    held.held = true;
    held.fleet = Some(resource("fleet"));
    held.add_own(CLUSTER_LOAD_ASSIGNMENT, resource("local_cluster"));
    held.add_own(LISTENER, resource("in"));
    merge.handle_patch(Arc::new(held));
    let view = merge.poll_view().unwrap();
    let assignments = view.get(CLUSTER_LOAD_ASSIGNMENT).unwrap();
    assert!(assignments.is_empty());
    let absent = names.map(|name| assignments.is_absent(name));
    assert_eq!(absent, [false, false, true]);
    assert_eq!(
        view.get(LISTENER).unwrap().len(),
        1,
        "it does not depend on demand"
    );
}

#[test]
fn without_its_wildcard_subscription_a_type_is_not_complete() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Envoy, "", 1)));
    merge.subscribe(&subscriptions(&[(LISTENER, &["*", "in"])]));
    let listener = Bytes::from_static(b"\x0a\x02in");
    for name in ["in", "other"] {
        merge.handle_upstream(updated(LISTENER, name, &listener));
    }
    let complete = || ClientEvent::Complete {
        type_url: LISTENER.into(),
    };
    merge.handle_upstream(complete());
    let listeners = |merge: &mut Merge| {
        let view = merge.poll_view().unwrap();
        let listeners = view.get(LISTENER).unwrap();
        (listeners.len(), listeners.is_complete())
    };
    assert_eq!(listeners(&mut merge), (2, true));
    merge.subscribe(&subscriptions(&[(LISTENER, &["in"])]));
    assert_eq!(listeners(&mut merge), (1, false));
    merge.handle_upstream(complete());
    assert!(
        merge.poll_view().is_none(),
        "it answers another subscription"
    );
}
