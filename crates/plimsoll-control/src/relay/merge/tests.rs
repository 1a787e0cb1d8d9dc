//! Tests of resources that are passed on, rewritten, or absent.

mod changes;
mod improve;
mod shared;

use bytes::Bytes;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::ads::{LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::wire::{
    AssignmentOut, ClusterOut, EndpointOut, LocalityDelivery, LocalityOut, decode_assignment,
    decode_cluster, encode_assignment, encode_cluster,
};

use super::*;
use crate::config::{ConfigFile, ControlConfig};
use crate::delivery::NodeClass;

const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// An unknown field at the end of a message: number 1000, a string.
const UNKNOWN: &[u8] = &[0xc2, 0x3e, 2, b'h', b'i'];

fn service(rest: &str) -> Arc<Service> {
    let text =
        format!("relay: {{address: 'h:1'}}\nservices: [{{cluster: {{name: orders}}{rest}}}]");
    let name = "test".to_owned();
    let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
    Arc::clone(&config.services["orders"])
}

fn patch(class: NodeClass, rest: &str, generation: u64) -> Patch {
    let weights = ReceiverWeights {
        receiver: zone("a"),
        weights: vec![(zone("a"), Some(9000)), (zone("b"), Some(1000))],
        off: None,
    };
    let rewrite = Rewrite {
        service: service(rest),
        weights: Some(weights),
        zone_fails: false,
    };
    Patch {
        generation,
        class,
        services: [("orders".into(), rewrite)].into(),
        ..Patch::default()
    }
}

fn zone(name: &str) -> Locality {
    Locality::new("r", name, "")
}

fn cluster_bytes(name: &str, eds_service_name: Option<&str>) -> Bytes {
    let text = format!("services: [{{cluster: {{name: {name}}}}}]");
    let file = ConfigFile {
        name: "test".to_owned(),
        text,
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let cluster = encode_cluster(&ClusterOut {
        eds_service_name,
        ..ClusterOut::new(&config.services[name].config, LocalityDelivery::None)
    });
    [&cluster[..], UNKNOWN].concat().into()
}

fn assignment_bytes(name: &str) -> Bytes {
    let locality = |zone_name: &str, port| LocalityOut {
        locality: zone(zone_name),
        endpoints: vec![EndpointOut::new(([127, 0, 0, 1], port).into())],
        ..LocalityOut::default()
    };
    let assignment = encode_assignment(&AssignmentOut {
        cluster_name: name.into(),
        localities: vec![locality("a", 1), locality("b", 2)],
        ..AssignmentOut::default()
    });
    [&assignment[..], UNKNOWN].concat().into()
}

fn subscriptions(of: &[(&str, &[&str])]) -> ResourceSubscriptions {
    let names = |names: &[&str]| names.iter().map(|&name| Arc::from(name)).collect();
    of.iter()
        .map(|(kind, all)| (Arc::from(*kind), names(all)))
        .collect()
}

fn updated(type_url: &str, name: &str, body: &Bytes) -> ClientEvent {
    ClientEvent::Updated {
        type_url: type_url.into(),
        resource: Resource::new(name, body.clone()),
    }
}

fn merge(patch: Patch) -> Merge {
    let mut merge = Merge::new(Arc::new(patch));
    merge.subscribe(&subscriptions(&[
        (CLUSTER, &["*"]),
        (
            CLUSTER_LOAD_ASSIGNMENT,
            &["orders", "others", "local_cluster", "fleet"],
        ),
        (SECRET, &["key"]),
    ]));
    merge
}

fn body(view: &View, type_url: &str, name: &str) -> Option<Bytes> {
    let resource = view.get(type_url)?.get(name)?;
    Some(resource.body.clone())
}

#[test]
fn other_resources_are_passed_on_unchanged() {
    let mut merge = merge(patch(NodeClass::Envoy, "", 1));
    let secret = Bytes::from_static(b"\x0a\x03key\xff\x00 not even protobuf");
    let (other, other_endpoints) = (cluster_bytes("others", None), assignment_bytes("others"));
    merge.handle_upstream(updated(SECRET, "key", &secret));
    merge.handle_upstream(updated(CLUSTER, "others", &other));
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "others", &other_endpoints));
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster_bytes("orders", None)));
    let endpoints = assignment_bytes("orders");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
    let view = merge.poll_view().unwrap();
    assert_eq!(body(&view, SECRET, "key").unwrap(), secret);
    assert_eq!(body(&view, CLUSTER, "others").unwrap(), other);
    let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "others");
    assert_eq!(shown.unwrap(), other_endpoints);
    // This receiver is steered by fleet weights, so the assignment of `orders` is unchanged.
    let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders");
    assert_eq!(shown.unwrap(), endpoints);
    let improved = body(&view, CLUSTER, "orders").unwrap();
    assert!(improved.windows(UNKNOWN.len()).any(|part| part == UNKNOWN));
    let read = decode_cluster(&improved).unwrap().config;
    let basis = format!("{:?}", read.zone_aware().unwrap());
    assert!(basis.contains("HealthyHostsWeight"), "{basis}");
    assert!(merge.poll_view().is_none(), "nothing happened since");
}

#[test]
fn only_locality_weights_of_an_assignment_are_changed() {
    let delivery = ", delivery: LOCALITY_WEIGHTS";
    for (class, rest) in [(NodeClass::Envoy, delivery), (NodeClass::Grpc, "")] {
        let mut merge = merge(patch(class, rest, 1));
        // The cluster `orders` names its assignment `others` (`eds_cluster_config`).
        let cluster = cluster_bytes("orders", Some("others"));
        let endpoints = assignment_bytes("others");
        merge.handle_upstream(updated(CLUSTER, "orders", &cluster));
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "others", &endpoints));
        let unrelated = assignment_bytes("orders");
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &unrelated));
        let view = merge.poll_view().unwrap();
        let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "others").unwrap();
        assert!(shown.ends_with(UNKNOWN));
        let shown = decode_assignment(&shown).unwrap();
        let weights = shown
            .endpoints()
            .iter()
            .map(|entry| entry.load_balancing_weight);
        assert_eq!(weights.collect::<Vec<_>>(), [9000, 1000], "{class:?}");
        let passed = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders");
        assert_eq!(passed.unwrap(), unrelated);
        let cluster = decode_cluster(&body(&view, CLUSTER, "orders").unwrap()).unwrap();
        assert_eq!(
            cluster.lrs_self,
            class == NodeClass::Grpc,
            "gRPC must be told to report"
        );
        let seen: Vec<_> = std::iter::from_fn(|| merge.poll_event()).collect();
        let names = seen.iter().map(|event| match event {
            MergeEvent::Learned(RelayedResource::Cluster { cluster, .. }) => (&**cluster, 0),
            MergeEvent::Learned(RelayedResource::Assignment {
                cluster,
                assignment,
                ..
            }) => (&**cluster, assignment.endpoints().len()),
            MergeEvent::Unreadable { .. } => panic!("{event:?}"),
        });
        assert_eq!(names.collect::<Vec<_>>(), [("orders", 0), ("orders", 2)]);
    }
}

#[test]
fn new_weights_change_assignments_without_relearning_clusters() {
    let mut merge = merge(patch(NodeClass::Grpc, "", 1));
    merge.handle_upstream(updated(CLUSTER, "orders", &cluster_bytes("orders", None)));
    let endpoints = assignment_bytes("orders");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
    let before = merge.poll_view().unwrap();
    while merge.poll_event().is_some() {}
    let mut next = patch(NodeClass::Grpc, "", 2);
    let orders = next.services.get_mut("orders").unwrap();
    orders.weights.as_mut().unwrap().weights[1].1 = None;
    merge.handle_patch(Arc::new(next));
    let view = merge.poll_view().unwrap();
    assert_eq!(
        body(&view, CLUSTER, "orders"),
        body(&before, CLUSTER, "orders")
    );
    let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders").unwrap();
    let shown = decode_assignment(&shown).unwrap();
    let places = shown
        .endpoints()
        .iter()
        .map(|entry| (entry.priority, entry.load_balancing_weight));
    assert_eq!(
        places.collect::<Vec<_>>(),
        [(0, 9000), (1, 1)],
        "a zone without a share stands by"
    );
    assert_eq!(merge.poll_event(), None);
}

#[test]
fn shadow_off_and_hashing_change_nothing() {
    for (class, rest) in [
        (NodeClass::Envoy, ", mode: SHADOW"),
        (
            NodeClass::Plimsoll,
            ", mode: SHADOW, delivery: LOCALITY_WEIGHTS",
        ),
        (NodeClass::Grpc, ", mode: OFF"),
        (NodeClass::Envoy, ", mode: OFF"),
    ] {
        let mut merge = merge(patch(class, rest, 1));
        let (cluster, endpoints) = (cluster_bytes("orders", None), assignment_bytes("orders"));
        merge.handle_upstream(updated(CLUSTER, "orders", &cluster));
        merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
        let view = merge.poll_view().unwrap();
        assert_eq!(body(&view, CLUSTER, "orders").unwrap(), cluster, "{rest}");
        let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders");
        assert_eq!(shown.unwrap(), endpoints, "{rest}");
        let seen = std::iter::from_fn(|| merge.poll_event()).count();
        assert_eq!(seen, 2, "explanations need them: {rest}");
    }
    // Encoded cluster: field 2 (type) is EDS, field 6 (lb_policy) is RING_HASH.
    let hashing = Bytes::from_static(b"\x0a\x06orders\x10\x03\x30\x02");
    assert!(
        decode_cluster(&hashing)
            .unwrap()
            .config
            .endpoint_policy()
            .is_hash()
    );
    let mut merge = merge(patch(NodeClass::Envoy, "", 1));
    merge.handle_upstream(updated(CLUSTER, "orders", &hashing));
    let view = merge.poll_view().unwrap();
    assert_eq!(body(&view, CLUSTER, "orders").unwrap(), hashing);
}

#[test]
fn undecodable_resources_are_passed_on_and_reported_once() {
    let mut merge = merge(patch(NodeClass::Grpc, "", 1));
    let broken = Bytes::from_static(b"\x0a\x06orders\x1a\xff");
    merge.handle_upstream(updated(CLUSTER, "orders", &broken));
    // An assignment whose cluster could not be decoded is passed on unchanged.
    let endpoints = assignment_bytes("orders");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "orders", &endpoints));
    for generation in [1, 2] {
        merge.handle_patch(Arc::new(patch(NodeClass::Grpc, "", generation)));
        let view = merge.poll_view().unwrap();
        assert_eq!(body(&view, CLUSTER, "orders").unwrap(), broken);
        let shown = body(&view, CLUSTER_LOAD_ASSIGNMENT, "orders");
        assert_eq!(shown.unwrap(), endpoints);
    }
    let told = merge.poll_event().unwrap();
    assert!(
        matches!(
            told,
            MergeEvent::Unreadable {
                type_url: CLUSTER,
                ..
            }
        ),
        "{told:?}"
    );
    assert_eq!(merge.poll_event(), None);
}

#[test]
fn own_resources_are_not_subscribed_to_except_for_the_fleet_name() {
    let mut ours = patch(NodeClass::Envoy, "", 1);
    let local = Bytes::from_static(b"\x0a\x0dlocal_cluster");
    ours.add_own(
        CLUSTER_LOAD_ASSIGNMENT,
        Resource::new("local_cluster", local.clone()),
    );
    let fleet = Bytes::from_static(b"\x0a\x05fleet");
    ours.fleet = Some(Resource::new("fleet", fleet.clone()));
    let mut merge = Merge::new(Arc::new(ours.clone()));
    let names = subscriptions(&[(CLUSTER_LOAD_ASSIGNMENT, &["local_cluster", "fleet"])]);
    let commands = merge.subscribe(&names);
    let watch = AdsCommand::Subscribe {
        type_url: CLUSTER_LOAD_ASSIGNMENT.into(),
        name: "fleet".into(),
    };
    assert_eq!(commands, [watch]);
    let view = merge.poll_view().unwrap();
    assert_eq!(
        body(&view, CLUSTER_LOAD_ASSIGNMENT, "local_cluster").unwrap(),
        local
    );
    assert_eq!(
        body(&view, CLUSTER_LOAD_ASSIGNMENT, "fleet"),
        None,
        "not known yet"
    );
    merge.handle_upstream(ClientEvent::DoesNotExist {
        type_url: CLUSTER_LOAD_ASSIGNMENT.into(),
        name: "fleet".into(),
        timed_out: false,
    });
    let view = merge.poll_view().unwrap();
    assert_eq!(
        body(&view, CLUSTER_LOAD_ASSIGNMENT, "fleet").unwrap(),
        fleet
    );
    let theirs = assignment_bytes("fleet");
    merge.handle_upstream(updated(CLUSTER_LOAD_ASSIGNMENT, "fleet", &theirs));
    let view = merge.poll_view().unwrap();
    assert_eq!(
        body(&view, CLUSTER_LOAD_ASSIGNMENT, "fleet").unwrap(),
        theirs
    );
    // Demand is withheld: receivers keep their assignments, and none is announced as absent.
    ours.held = true;
    ours.generation = 2;
    merge.handle_patch(Arc::new(ours));
    assert!(merge.subscribe(&names).is_empty());
    let view = merge.poll_view().unwrap();
    let held = view.get(CLUSTER_LOAD_ASSIGNMENT).unwrap();
    assert!(held.get("local_cluster").is_none() && !held.is_absent("local_cluster"));
}

#[test]
fn own_resources_are_not_absent_when_the_other_server_lacks_them() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Envoy, "", 1)));
    let listener = |name: &str| Resource::new(name, Bytes::from_static(b"\x0a\x03our"));
    merge.subscribe(&subscriptions(&[(LISTENER, &["our", "their", "open"])]));
    for name in ["our", "their"] {
        merge.handle_upstream(ClientEvent::DoesNotExist {
            type_url: LISTENER.into(),
            name: name.into(),
            timed_out: false,
        });
    }
    // The file gets the listener after the other server has answered.
    let mut ours = patch(NodeClass::Envoy, "", 2);
    ours.add_own(LISTENER, listener("our"));
    merge.handle_patch(Arc::new(ours));
    let view = merge.poll_view().unwrap();
    let listeners = view.get(LISTENER).unwrap();
    assert!(!listeners.is_complete(), "one subscription is not answered");
    assert!(listeners.get("our").is_some() && !listeners.is_absent("our"));
    assert!(listeners.is_absent("their") && !listeners.is_absent("open"));
}

#[test]
fn absence_is_known_once_all_subscriptions_are_answered() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Envoy, "", 1)));
    merge.subscribe(&subscriptions(&[(LISTENER, &["*"])]));
    merge.handle_upstream(updated(LISTENER, "in", &Bytes::from_static(b"\x0a\x02in")));
    let listeners = |merge: &mut Merge| {
        let view = merge.poll_view().unwrap();
        Arc::clone(view.get(LISTENER).unwrap())
    };
    assert!(!listeners(&mut merge).is_complete(), "others may follow");
    let complete = ClientEvent::Complete {
        type_url: LISTENER.into(),
    };
    merge.handle_upstream(complete);
    assert!(listeners(&mut merge).is_complete());
    merge.subscribe(&subscriptions(&[(LISTENER, &["*", "late"])]));
    assert!(!listeners(&mut merge).is_absent("late"), "not answered yet");
    merge.handle_upstream(ClientEvent::Removed {
        type_url: LISTENER.into(),
        name: "in".into(),
    });
    assert!(listeners(&mut merge).is_absent("in"));
    merge.handle_upstream(ClientEvent::DoesNotExist {
        type_url: LISTENER.into(),
        name: "late".into(),
        timed_out: false,
    });
    let now = listeners(&mut merge);
    assert!(now.is_complete() && now.is_absent("late") && now.is_absent("in"));
}

#[test]
fn unsubscribed_resources_are_dropped() {
    let mut merge = Merge::new(Arc::new(patch(NodeClass::Envoy, "", 1)));
    merge.subscribe(&subscriptions(&[(ROUTE_CONFIGURATION, &["a", "b"])]));
    let route = Bytes::from_static(b"\x0a\x01a");
    merge.handle_upstream(updated(ROUTE_CONFIGURATION, "a", &route));
    merge.handle_upstream(updated(ROUTE_CONFIGURATION, "b", &route));
    let commands = merge.subscribe(&subscriptions(&[(ROUTE_CONFIGURATION, &["b"])]));
    let unwatch = AdsCommand::Unsubscribe {
        type_url: ROUTE_CONFIGURATION.into(),
        name: "a".into(),
    };
    assert_eq!(commands, [unwatch]);
    // The relayed server sent this update before it received the unsubscription.
    merge.handle_upstream(updated(ROUTE_CONFIGURATION, "a", &route));
    let view = merge.poll_view().unwrap();
    assert_eq!(view.get(ROUTE_CONFIGURATION).unwrap().len(), 1);
}

#[test]
fn subsets_of_the_other_server_are_kept_with_a_policy_of_the_file() {
    // Encoded cluster: name, EDS, lb_policy RANDOM, lb_subset_config with the selector `v`.
    let cluster =
        Bytes::from_static(b"\x0a\x06orders\x10\x03\x30\x03\xb2\x01\x05\x1a\x03\x0a\x01v");
    let subsets = decode_cluster(&cluster).unwrap().config;
    assert!(subsets.lb_subset_config().is_some());
    for class in [NodeClass::Envoy, NodeClass::Plimsoll] {
        let mut patch = patch(class, "", 1);
        let orders = patch.services.get_mut("orders").unwrap();
        let text = "services: [{cluster: {name: orders, lb_policy: LEAST_REQUEST}}]".to_owned();
        let name = "test".to_owned();
        let config = ControlConfig::parse(&ConfigFile { name, text }, &[]).unwrap();
        orders.service = Arc::clone(&config.services["orders"]);
        let mut merge = merge(patch);
        merge.handle_upstream(updated(CLUSTER, "orders", &cluster));
        merge.handle_upstream(updated(
            CLUSTER_LOAD_ASSIGNMENT,
            "orders",
            &assignment_bytes("orders"),
        ));
        let view = merge.poll_view().unwrap();
        let shown = decode_cluster(&body(&view, CLUSTER, "orders").unwrap())
            .unwrap()
            .config;
        assert_eq!(shown.endpoint_policy().name(), "least_request", "{class:?}");
        assert_eq!(
            shown.lb_subset_config(),
            subsets.lb_subset_config(),
            "{class:?}"
        );
    }
}
