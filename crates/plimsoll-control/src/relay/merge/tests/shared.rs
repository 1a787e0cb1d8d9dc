//! Tests of clusters of the relayed server that have the same assignment.

use super::*;
use crate::delivery::{NotSteeredReason, Steering};

/// The services `orders` and `search`, both with weights of their own if they need them.
fn both(class: NodeClass, rest: &str, generation: u64) -> Patch {
    let mut both = patch(class, rest, generation);
    let text =
        format!("relay: {{address: 'h:1'}}\nservices: [{{cluster: {{name: search}}{rest}}}]");
    let name = "test".to_owned();
    let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
    let search = Rewrite {
        service: Arc::clone(&config.services["search"]),
        ..both.services["orders"].clone()
    };
    both.services.insert("search".into(), search);
    both
}

/// What was learned: clusters with whether they share endpoints, and clusters with endpoints.
fn learned(merge: &mut Merge) -> (Vec<(String, bool)>, Vec<String>) {
    let (mut clusters, mut assignments) = (Vec::new(), Vec::new());
    while let Some(event) = merge.poll_event() {
        match event {
            MergeEvent::Learned(RelayedResource::Cluster {
                cluster,
                shares_endpoints,
                ..
            }) => clusters.push((cluster.to_string(), shares_endpoints)),
            MergeEvent::Learned(RelayedResource::Assignment { cluster, .. }) => {
                assignments.push(cluster.to_string());
            }
            MergeEvent::Unreadable { .. } => panic!("{event:?}"),
        }
    }
    (clusters, assignments)
}

const WEIGHTS: &str = ", delivery: LOCALITY_WEIGHTS";

#[test]
fn both_clusters_learn_their_endpoints_and_neither_weights_them() {
    for (class, rest) in [
        (NodeClass::Envoy, WEIGHTS),
        (NodeClass::Envoy, ", ramp: 10"),
        (NodeClass::Plimsoll, WEIGHTS),
        (NodeClass::Grpc, ""),
    ] {
        let mut merge = merge(both(class, rest, 1));
        let [orders, search] = ["orders", "search"].map(|name| cluster_bytes(name, Some("others")));
        let endpoints = assignment_bytes("others");
        merge.handle_upstream(updated(CLUSTER, "orders", &orders));
        merge.handle_upstream(updated(CLUSTER, "search", &search));
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "others", &endpoints));
        let view = merge.poll_view().unwrap();
        let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "others").unwrap();
        assert_eq!(shown, endpoints, "{class:?} {rest}");
        for (name, theirs) in [("orders", &orders), ("search", &search)] {
            let shown = body(&view, CLUSTER, name).unwrap();
            let read = |body: &Bytes| decode_cluster(body).unwrap().config;
            assert_eq!(read(&shown), read(theirs), "{class:?} {rest}");
            let improved = merge.clusters[name].improved.as_ref().unwrap();
            let reason = NotSteeredReason::SharedEndpoints;
            assert_eq!(improved.steering, Steering::AsConfigured(reason));
        }
        let (clusters, assignments) = learned(&mut merge);
        let shared = ["orders", "search"].map(|name| (name.to_owned(), true));
        assert_eq!(clusters, shared, "{class:?} {rest}");
        assert_eq!(assignments, ["orders", "search"], "{class:?} {rest}");
    }
}

#[test]
fn demand_that_needs_no_weights_steers_clusters_with_the_same_endpoints() {
    let mut merge = merge(both(NodeClass::Envoy, "", 1));
    for name in ["orders", "search"] {
        let cluster = cluster_bytes(name, Some("others"));
        merge.handle_upstream(updated(CLUSTER, name, &cluster));
        let view = merge.poll_view().unwrap();
        let read = decode_cluster(&body(&view, CLUSTER, name).unwrap()).unwrap();
        let basis = format!("{:?}", read.config.zone_aware().unwrap());
        assert!(basis.contains("HealthyHostsWeight"), "{basis}");
    }
}

/// A cluster that the file does not name keeps what it has, from when it is known until it is gone.
#[test]
fn a_cluster_outside_the_file_keeps_the_endpoints_as_they_are() {
    let mut merge = merge(patch(NodeClass::Envoy, WEIGHTS, 1));
    let cluster = cluster_bytes("orders", Some("others"));
    let endpoints = assignment_bytes("others");
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster));
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "others", &endpoints));
    let is_weighted = |merge: &mut Merge| {
        let view = merge.poll_view().unwrap();
        body(&view, CLUSTER_LOAD_ASSIGNMENT, "others").unwrap() != endpoints
    };
    assert!(is_weighted(&mut merge));
    let orders = |shared| (vec![("orders".to_owned(), shared)], Vec::<String>::new());
    let (clusters, assignments) = learned(&mut merge);
    assert_eq!((clusters, assignments.len()), (orders(false).0, 1));
    let other = cluster_bytes("others", None);
    merge.handle_upstream(updated(CLUSTER, "others", &other));
    assert!(!is_weighted(&mut merge));
    assert_eq!(learned(&mut merge), orders(true));
    merge.handle_upstream(ClientEvent::Removed {
        type_url: CLUSTER.into(),
        name: "others".into(),
    });
    assert!(is_weighted(&mut merge));
    assert_eq!(learned(&mut merge), orders(false));
}

/// The other server adds a cluster with endpoints that are known already.
#[test]
fn a_cluster_that_comes_later_learns_endpoints_that_are_known() {
    let mut merge = merge(both(NodeClass::Envoy, "", 1));
    let cluster = |name: &str| cluster_bytes(name, Some("others"));
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster("orders")));
    let endpoints = assignment_bytes("others");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "others", &endpoints));
    merge.poll_view().unwrap();
    assert_eq!(learned(&mut merge).1, ["orders"]);
    merge.handle_upstream(updated(CLUSTER, "search", &cluster("search")));
    merge.poll_view().unwrap();
    assert_eq!(learned(&mut merge).1, ["search"]);
}
