//! Feeds resources and checks the resulting subscriptions and changes, without sockets.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::route::Action;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::{self, AssignmentOut, ClusterOut, LocalityDelivery, LocalityOut};
use plimsoll_xds::yaml::{Document, parse_cluster};

use super::*;
use crate::xds::decode::{Compilers, decode};

fn machine(listeners: &[&str]) -> Dependencies {
    Dependencies::new(Roots {
        listeners: listeners.iter().map(|&name| name.into()).collect(),
        local_cluster_name: "local_cluster".into(),
        ..Roots::default()
    })
}

fn updated(machine: &mut Dependencies, type_url: &str, name: &str, body: Bytes) {
    let body = decode(type_url, name, &body, &Compilers::default()).unwrap();
    machine.handle(ClientEvent::Updated {
        type_url: type_url.into(),
        resource: Resource {
            name: name.into(),
            version: "1".into(),
            body,
            epoch: 0,
        },
    });
}

fn listener(machine: &mut Dependencies, name: &str, routes: &str) {
    let body = wire::encode_api_listener(name, routes);
    updated(machine, LISTENER, name, body);
}

fn routes(machine: &mut Dependencies, name: &str, clusters: &[&str]) {
    let route =
        |cluster: &&str| format!("{{match: {{prefix: ''}}, route: {{cluster: {cluster}}}}}");
    let routes: Vec<_> = clusters.iter().map(route).collect();
    let text = format!(
        "{{name: {name}, virtual_hosts: [{{name: {name}, domains: ['*'], routes: [{}]}}]}}",
        routes.join(", ")
    );
    let written: FileMessage<RouteConfigurationMessage> =
        Document::parse(&text).unwrap().read().unwrap();
    updated(machine, ROUTE_CONFIGURATION, name, written.bytes().clone());
}

fn cluster(machine: &mut Dependencies, name: &str, eds_name: Option<&str>) {
    // Ring hash does not use the fleet.
    let config = parse_cluster(&format!("name: {name}\nlb_policy: RING_HASH")).unwrap();
    let mut out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
    out.eds_service_name = eds_name;
    updated(machine, CLUSTER, name, wire::encode_cluster(&out));
}

fn assignment(machine: &mut Dependencies, name: &str) {
    let body = wire::encode_assignment(&AssignmentOut {
        cluster_name: name.into(),
        localities: vec![LocalityOut {
            locality: Locality::zone_only("a"),
            load_balancing_weight: Some(1),
            endpoints: vec![LbEndpoint::new("10.0.0.1:80".parse().unwrap())],
            ..LocalityOut::default()
        }],
        drop_overloads: Vec::new(),
        overprovisioning_factor: None,
        weighted_priority_health: false,
        endpoint_stale_after: None,
        extras: Default::default(),
        draining_in_metadata: false,
    });
    updated(machine, CLUSTER_LOAD_ASSIGNMENT, name, body);
}

fn absent(machine: &mut Dependencies, type_url: &str, name: &str) {
    machine.handle(ClientEvent::Removed {
        type_url: type_url.into(),
        name: name.into(),
    });
}

/// Drains subscription changes: `+Type name` for a watch, `-Type name` for an unwatch.
fn commands(machine: &mut Dependencies) -> Vec<String> {
    let all = std::iter::from_fn(|| machine.poll_command());
    let short = |type_url: &str| type_url.rsplit('.').next().unwrap_or_default().to_owned();
    all.map(|command| match command {
        AdsCommand::Subscribe { type_url, name } => format!("+{} {name}", short(&type_url)),
        AdsCommand::Unsubscribe { type_url, name } => format!("-{} {name}", short(&type_url)),
    })
    .collect()
}

fn changes(machine: &mut Dependencies) -> Vec<String> {
    let all = std::iter::from_fn(|| machine.poll_change());
    all.filter_map(|change| {
        Some(match change {
            Change::Cluster(cluster) => format!("cluster {}", cluster.config.name()),
            Change::Removed(name) => format!("removed {name}"),
            Change::Endpoints(cluster, _) => format!("endpoints {cluster}"),
            Change::Fleet(_) => "fleet".to_owned(),
            Change::Routes(RouteConsumer::Target(target), _) => format!("routes {target}"),
            Change::Routes(RouteConsumer::Subscription(name), _) => format!("subscribed {name}"),
            Change::Listeners(listeners) => {
                let names: Vec<&str> = listeners.keys().map(AsRef::as_ref).collect();
                format!("listeners {}", names.join(" "))
            }
            Change::Problem((_, name), Some(problem)) => format!("problem {name}: {problem}"),
            Change::Problem(_, None) => return None,
        })
    })
    .collect()
}

/// All resources of the target `orders`, down to its endpoints, are known.
fn complete() -> Dependencies {
    let mut machine = machine(&["orders"]);
    listener(&mut machine, "orders", "r");
    routes(&mut machine, "r", &["c1"]);
    cluster(&mut machine, "c1", None);
    assignment(&mut machine, "c1");
    commands(&mut machine);
    changes(&mut machine);
    machine
}

#[test]
fn a_target_subscribes_to_its_resources_down_to_endpoints() {
    let mut machine = machine(&["orders"]);
    assert_eq!(commands(&mut machine), ["+Listener orders"]);
    listener(&mut machine, "orders", "r");
    assert_eq!(commands(&mut machine), ["+RouteConfiguration r"]);
    routes(&mut machine, "r", &["c1", "c2"]);
    assert_eq!(commands(&mut machine), ["+Cluster c1", "+Cluster c2"]);
    assert_eq!(changes(&mut machine), Vec::<String>::new());
    cluster(&mut machine, "c1", None);
    assert_eq!(commands(&mut machine), ["+ClusterLoadAssignment c1"]);
    assert_eq!(changes(&mut machine), ["cluster c1"]);
    cluster(&mut machine, "c2", Some("service-2"));
    assert_eq!(commands(&mut machine), ["+ClusterLoadAssignment service-2"]);
    assert_eq!(changes(&mut machine), ["cluster c2", "routes orders"]);
    assignment(&mut machine, "service-2");
    assert_eq!(changes(&mut machine), ["endpoints c2"]);
}

#[test]
fn new_routes_wait_for_their_clusters_and_then_remove_unneeded_ones() {
    let mut machine = complete();
    routes(&mut machine, "r", &["c2"]);
    assert_eq!(commands(&mut machine), ["+Cluster c2"]);
    assert_eq!(changes(&mut machine), Vec::<String>::new());
    cluster(&mut machine, "c2", None);
    assert_eq!(changes(&mut machine), ["cluster c2"]);
    assignment(&mut machine, "c2");
    let changed = changes(&mut machine);
    assert_eq!(changed, ["endpoints c2", "routes orders", "removed c1"]);
    let issued = commands(&mut machine);
    assert!(issued.contains(&"-Cluster c1".to_owned()), "{issued:?}");
    assert!(
        issued.contains(&"-ClusterLoadAssignment c1".to_owned()),
        "{issued:?}"
    );
}

#[test]
fn max_stream_duration_of_a_listener_applies_to_routes_without_one() {
    let mut machine = complete();
    let limit = Duration::from_secs(9);
    let limited = ApiListener {
        name: "orders".to_owned(),
        routes: RouteSource::Rds("r".into()),
        max_stream_duration: Some(limit),
    };
    let listeners = &mut machine.listeners;
    listeners.insert("orders".into(), Arc::new(limited));
    routes(&mut machine, "r", &["c1"]);
    let found = std::iter::from_fn(|| machine.poll_change())
        .find_map(|change| match change {
            Change::Routes(_, routes) => Some(routes),
            _ => None,
        })
        .unwrap();
    let Action::Forward(action) = &found.configuration.virtual_hosts()[0].routes[0].action else {
        panic!("it forwards");
    };
    assert_eq!(action.max_stream_duration, Some(limit));
    // A listener without `max_stream_duration` removes the limit from the routes again.
    listener(&mut machine, "orders", "r");
    assert_eq!(changes(&mut machine), ["routes orders"]);
}

#[test]
fn routes_do_not_wait_for_a_cluster_that_does_not_exist() {
    let mut machine = complete();
    routes(&mut machine, "r", &["c1", "missing"]);
    machine.handle(ClientEvent::DoesNotExist {
        type_url: CLUSTER.into(),
        name: "missing".into(),
        timed_out: false,
    });
    let changed = changes(&mut machine);
    assert_eq!(
        changed,
        [
            "problem missing: does not exist on the management server",
            "routes orders"
        ]
    );
}

#[test]
fn removed_resources_stay_in_use() {
    let mut machine = complete();
    for (type_url, name) in [
        (LISTENER, "orders"),
        (ROUTE_CONFIGURATION, "r"),
        (CLUSTER, "c1"),
        (CLUSTER_LOAD_ASSIGNMENT, "c1"),
    ] {
        absent(&mut machine, type_url, name);
        let changed = changes(&mut machine);
        assert_eq!(
            changed,
            [format!("problem {name}: removed by the management server")]
        );
        assert_eq!(commands(&mut machine), Vec::<String>::new());
    }
    cluster(&mut machine, "c1", None);
    assert_eq!(changes(&mut machine), Vec::<String>::new(), "nothing new");
}

#[test]
fn a_wildcard_subscription_removes_clusters_that_disappear() {
    let mut machine = Dependencies::new(Roots {
        all_clusters: true,
        local_cluster_name: "local_cluster".into(),
        ..Roots::default()
    });
    assert_eq!(commands(&mut machine), ["+Cluster *"]);
    cluster(&mut machine, "c1", None);
    assert_eq!(commands(&mut machine), ["+ClusterLoadAssignment c1"]);
    absent(&mut machine, CLUSTER, "c1");
    let changed = changes(&mut machine);
    assert_eq!(
        changed,
        [
            "cluster c1",
            "removed c1",
            "problem c1: removed by the management server"
        ]
    );
    assert_eq!(commands(&mut machine), ["-ClusterLoadAssignment c1"]);
}

const FLEET: &str = "+ClusterLoadAssignment local_cluster";

/// A load-aware cluster with this `spill_controller`.
fn load_aware(controller: &str) -> String {
    let package = "type.googleapis.com/envoy.extensions.load_balancing_policies";
    let typed = |name: &str, rest: &str| {
        let config = format!("'@type': {package}.{name}{rest}");
        format!(
            "{{policies: [{{typed_extension_config: {{name: x, typed_config: {{{config}}}}}}}]}}"
        )
    };
    let child = typed("round_robin.v3.RoundRobin", "");
    let rest = format!(", spill_controller: {controller}, endpoint_picking_policy: {child}");
    let policy = typed("load_aware_locality.v3.LoadAwareLocality", &rest);
    format!("load_balancing_policy: {policy}")
}

#[test]
fn policies_that_use_the_fleet_subscribe_to_it() {
    let convergent = load_aware("CONVERGENT");
    let headroom = load_aware("HEADROOM");
    let cases = [
        ("common_lb_config: {zone_aware_lb_config: {}}", true),
        ("lb_policy: LEAST_REQUEST", true),
        ("common_lb_config: {locality_weighted_lb_config: {}}", true),
        (&*convergent, true),
        (&*headroom, false),
        ("lb_policy: MAGLEV", false),
    ];
    for (policy, expected) in cases {
        let mut machine = machine(&[]);
        machine.roots.clusters.insert("c1".into());
        machine.reconcile();
        let config = parse_cluster(&format!("name: c1\n{policy}")).unwrap();
        let out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
        updated(&mut machine, CLUSTER, "c1", wire::encode_cluster(&out));
        let issued = commands(&mut machine);
        assert_eq!(issued.contains(&FLEET.to_owned()), expected, "{policy}");
        if expected {
            assignment(&mut machine, "local_cluster");
            let changed = changes(&mut machine);
            assert!(changed.contains(&"fleet".to_owned()), "{changed:?}");
        }
    }
}

#[test]
fn clusters_of_the_program_subscribe_to_the_fleet_too() {
    let mut machine = machine(&[]);
    machine.set_fleet_needed(true);
    assert_eq!(commands(&mut machine), [FLEET]);
    machine.set_fleet_needed(true);
    assert_eq!(commands(&mut machine), [""; 0]);
    assignment(&mut machine, "local_cluster");
    assert_eq!(changes(&mut machine), ["fleet"]);
    machine.set_fleet_needed(false);
    assert_eq!(commands(&mut machine), [FLEET.replace('+', "-")]);
}

#[test]
fn subscriptions_override_the_name_of_the_fleet() {
    let mut machine = machine(&[]);
    machine.set_fleet_needed(true);
    commands(&mut machine);
    let named = |name: &str| Subscriptions {
        local_cluster_name: Some(name.into()),
        ..Subscriptions::default()
    };
    machine.subscribe(named("gateways"));
    let expected = ["+ClusterLoadAssignment gateways", &FLEET.replace('+', "-")];
    assert_eq!(commands(&mut machine), expected);
    assignment(&mut machine, "gateways");
    assert_eq!(changes(&mut machine), ["fleet"]);
    // An empty name: the program sets its fleet itself.
    machine.subscribe(named(""));
    assert_eq!(commands(&mut machine), ["-ClusterLoadAssignment gateways"]);
    machine.subscribe(Subscriptions::default());
    assert_eq!(commands(&mut machine), [FLEET]);
}

/// Subscribes to the routes `r`; the cluster `own` is the program's, with endpoints by EDS.
fn subscribed() -> Dependencies {
    let mut machine = machine(&[]);
    machine.subscribe(Subscriptions {
        routes: BTreeSet::from(["r".into()]),
        own_clusters: BTreeMap::from([
            ("static".into(), None),
            ("own".into(), Some("own-endpoints".into())),
        ]),
        local_cluster_name: None,
        ..Default::default()
    });
    machine
}

#[test]
fn own_clusters_are_not_subscribed_to() {
    let mut machine = subscribed();
    let expected = [
        "+ClusterLoadAssignment own-endpoints",
        "+RouteConfiguration r",
    ];
    assert_eq!(commands(&mut machine), expected);
    routes(&mut machine, "r", &["static", "own"]);
    assert_eq!(commands(&mut machine), [""; 0]);
    assert_eq!(changes(&mut machine), ["subscribed r"]);
    assignment(&mut machine, "own-endpoints");
    assert_eq!(changes(&mut machine), ["endpoints own"]);
    // A cluster of the server with the name of an own cluster is ignored.
    cluster(&mut machine, "own", None);
    absent(&mut machine, CLUSTER, "own");
    assert_eq!(
        changes(&mut machine),
        ["problem own: removed by the management server"]
    );
}

#[test]
fn replaced_routes_wait_for_clusters_and_endpoints() {
    let mut machine = subscribed();
    routes(&mut machine, "r", &["static"]);
    assert_eq!(changes(&mut machine), ["subscribed r"]);
    commands(&mut machine);
    routes(&mut machine, "r", &["c"]);
    assert_eq!(commands(&mut machine), ["+Cluster c"]);
    assert_eq!(changes(&mut machine), [""; 0]);
    cluster(&mut machine, "c", None);
    assert_eq!(changes(&mut machine), ["cluster c"]);
    assignment(&mut machine, "c");
    assert_eq!(changes(&mut machine), ["endpoints c", "subscribed r"]);
    // Routes do not wait for endpoints that the server does not have.
    routes(&mut machine, "r", &["d"]);
    cluster(&mut machine, "d", None);
    absent(&mut machine, CLUSTER_LOAD_ASSIGNMENT, "d");
    let changed = changes(&mut machine);
    assert!(changed.contains(&"subscribed r".to_owned()), "{changed:?}");
    assert!(changed.contains(&"removed c".to_owned()), "{changed:?}");
}

#[test]
fn dropped_subscriptions_are_unwatched_and_their_clusters_removed() {
    let mut machine = subscribed();
    routes(&mut machine, "r", &["c"]);
    cluster(&mut machine, "c", None);
    commands(&mut machine);
    changes(&mut machine);
    machine.subscribe(Subscriptions::default());
    let expected = [
        "-Cluster c",
        "-ClusterLoadAssignment c",
        "-ClusterLoadAssignment own-endpoints",
        "-RouteConfiguration r",
    ];
    assert_eq!(commands(&mut machine), expected);
    assert_eq!(changes(&mut machine), ["removed c"]);
}

/// Types and names of pending subscriptions, without the prefix of the type.
fn pending(machine: &Dependencies) -> Vec<String> {
    let names = machine.pending().into_iter();
    names
        .map(|(type_url, name)| format!("{} {name}", type_url.rsplit('.').next().unwrap()))
        .collect()
}

#[test]
fn resources_are_pending_until_they_arrive_or_do_not_exist() {
    let mut machine = Dependencies::new(Roots {
        all_clusters: true,
        ..Roots::default()
    });
    machine.subscribe(Subscriptions {
        routes: [Arc::from("r")].into(),
        ..Subscriptions::default()
    });
    let absent = |machine: &mut Dependencies, type_url: &str, name: &str| {
        machine.handle(ClientEvent::DoesNotExist {
            type_url: type_url.into(),
            name: name.into(),
            timed_out: false,
        });
    };
    assert_eq!(pending(&machine), ["Cluster *", "RouteConfiguration r"]);
    cluster(&mut machine, "c1", None);
    machine.handle(ClientEvent::Complete {
        type_url: CLUSTER.into(),
    });
    let expected = ["ClusterLoadAssignment c1", "RouteConfiguration r"];
    assert_eq!(pending(&machine), expected);
    absent(&mut machine, CLUSTER_LOAD_ASSIGNMENT, "c1");
    absent(&mut machine, ROUTE_CONFIGURATION, "r");
    assert_eq!(pending(&machine), ["RouteConfiguration r"]);
    routes(&mut machine, "r", &["c1"]);
    assert_eq!(pending(&machine), [""; 0]);
}

#[test]
fn compiled_listeners_are_published_and_removed() {
    let mut machine = Dependencies::new(Roots {
        all_listeners: true,
        ..Roots::default()
    });
    assert_eq!(pending(&machine), ["Listener *"]);
    let compilers = Compilers {
        routes: None,
        listeners: Some(crate::ListenerCompiler::new(|bytes| Ok(bytes.len()))),
    };
    for name in ["one", "two"] {
        let body = wire::encode_api_listener(name, "r");
        let body = decode(LISTENER, name, &body, &compilers).unwrap();
        machine.handle(ClientEvent::Updated {
            type_url: LISTENER.into(),
            resource: Resource {
                name: name.into(),
                version: "1".into(),
                body,
                epoch: 0,
            },
        });
    }
    assert_eq!(
        changes(&mut machine),
        ["listeners one", "listeners one two"]
    );
    machine.handle(ClientEvent::Removed {
        type_url: LISTENER.into(),
        name: "one".into(),
    });
    assert_eq!(changes(&mut machine), ["listeners two"]);
}
