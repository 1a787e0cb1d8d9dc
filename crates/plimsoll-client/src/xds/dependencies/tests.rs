//! Resources in, watches and changes out; no sockets.

use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::route::Action;
use plimsoll_xds::wire::{
    AssignmentOut, ClusterOut, LocalityDelivery, LocalityOut, PathMatch, RouteEntryOut, RouteOut,
    RouteTarget, VirtualHostOut,
};
use plimsoll_xds::yaml::parse_cluster;

use super::*;

fn machine(listeners: &[&str]) -> Dependencies {
    Dependencies::new(Roots {
        listeners: listeners.iter().map(|&name| name.into()).collect(),
        local_cluster_name: "local_cluster".into(),
        ..Roots::default()
    })
}

fn updated(machine: &mut Dependencies, type_url: &str, name: &str, body: Bytes) {
    assert_eq!(check(type_url, name, &body), Ok(()), "{type_url} {name}");
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
    let route = |cluster: &&str| RouteEntryOut {
        path: PathMatch::Prefix(String::new()),
        target: RouteTarget::Cluster((*cluster).to_owned()),
        metadata_match: None,
        timeout: None,
        retry: None,
    };
    let body = wire::encode_route_configuration(&RouteOut {
        name: name.to_owned(),
        virtual_hosts: vec![VirtualHostOut {
            name: name.to_owned(),
            domains: vec!["*".to_owned()],
            routes: clusters.iter().map(route).collect(),
        }],
    });
    updated(machine, ROUTE_CONFIGURATION, name, body);
}

fn cluster(machine: &mut Dependencies, name: &str, eds_name: Option<&str>) {
    // The one kind of cluster that has no use for the fleet.
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
    });
    updated(machine, CLUSTER_LOAD_ASSIGNMENT, name, body);
}

fn absent(machine: &mut Dependencies, type_url: &str, name: &str) {
    machine.handle(ClientEvent::Removed {
        type_url: type_url.into(),
        name: name.into(),
    });
}

/// What is asked for now, and no longer: `+orders`, `-orders`.
fn commands(machine: &mut Dependencies) -> Vec<String> {
    let all = std::iter::from_fn(|| machine.poll_command());
    let short = |type_url: &str| type_url.rsplit('.').next().unwrap_or_default().to_owned();
    all.map(|command| match command {
        AdsCommand::Watch { type_url, name } => format!("+{} {name}", short(&type_url)),
        AdsCommand::Unwatch { type_url, name } => format!("-{} {name}", short(&type_url)),
    })
    .collect()
}

fn changes(machine: &mut Dependencies) -> Vec<String> {
    let all = std::iter::from_fn(|| machine.poll_change());
    all.filter_map(|change| {
        Some(match change {
            Change::Cluster(cluster) => format!("cluster {}", cluster.config.name()),
            Change::Removed(name) => format!("removed {name}"),
            Change::Assignment(cluster, _) => format!("endpoints {cluster}"),
            Change::Fleet(_) => "fleet".to_owned(),
            Change::Routes(RouteUser::Target(target), _) => format!("routes {target}"),
            Change::Routes(RouteUser::Follower(name), _) => format!("followed {name}"),
            Change::Problem((_, name), Some(problem)) => format!("problem {name}: {problem}"),
            Change::Problem(_, None) => return None,
        })
    })
    .collect()
}

/// `orders` is known down to its endpoints.
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
fn a_target_is_followed_down_to_its_endpoints() {
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
fn routes_change_only_when_their_clusters_are_there_and_the_old_ones_go_then() {
    let mut machine = complete();
    routes(&mut machine, "r", &["c2"]);
    assert_eq!(commands(&mut machine), ["+Cluster c2"]);
    assert_eq!(changes(&mut machine), Vec::<String>::new());
    cluster(&mut machine, "c2", None);
    assert_eq!(changes(&mut machine), ["cluster c2"]);
    assignment(&mut machine, "c2");
    let told = changes(&mut machine);
    assert_eq!(told, ["endpoints c2", "routes orders", "removed c1"]);
    let asked = commands(&mut machine);
    assert!(asked.contains(&"-Cluster c1".to_owned()), "{asked:?}");
    assert!(
        asked.contains(&"-ClusterLoadAssignment c1".to_owned()),
        "{asked:?}"
    );
}

#[test]
fn the_limit_of_a_listener_is_for_routes_without_one() {
    let mut machine = complete();
    let limit = Duration::from_secs(9);
    machine.limits.insert("orders".into(), limit);
    routes(&mut machine, "r", &["c1"]);
    let found = std::iter::from_fn(|| machine.poll_change()).find_map(|change| match change {
        Change::Routes(_, routes) => Some(routes),
        _ => None,
    });
    let found = found.unwrap();
    let Action::Forward(action) = &found.virtual_hosts()[0].routes[0].action else {
        panic!("it forwards");
    };
    assert_eq!(action.max_stream_duration, Some(limit));
    // A listener without a limit takes it back.
    listener(&mut machine, "orders", "r");
    assert_eq!(changes(&mut machine), ["routes orders"]);
}

#[test]
fn routes_do_not_wait_for_a_cluster_that_does_not_exist() {
    let mut machine = complete();
    routes(&mut machine, "r", &["c1", "nowhere"]);
    machine.handle(ClientEvent::DoesNotExist {
        type_url: CLUSTER.into(),
        name: "nowhere".into(),
    });
    let told = changes(&mut machine);
    assert_eq!(
        told,
        [
            "problem nowhere: the server does not have it",
            "routes orders"
        ]
    );
}

#[test]
fn what_the_server_takes_away_stays_in_use() {
    let mut machine = complete();
    for (type_url, name) in [
        (LISTENER, "orders"),
        (ROUTE_CONFIGURATION, "r"),
        (CLUSTER, "c1"),
        (CLUSTER_LOAD_ASSIGNMENT, "c1"),
    ] {
        absent(&mut machine, type_url, name);
        let told = changes(&mut machine);
        assert_eq!(told, [format!("problem {name}: the server took it away")]);
        assert_eq!(commands(&mut machine), Vec::<String>::new());
    }
    cluster(&mut machine, "c1", None);
    assert_eq!(changes(&mut machine), Vec::<String>::new(), "nothing new");
}

#[test]
fn with_all_clusters_those_that_go_are_removed() {
    let mut machine = Dependencies::new(Roots {
        all_clusters: true,
        local_cluster_name: "local_cluster".into(),
        ..Roots::default()
    });
    assert_eq!(commands(&mut machine), ["+Cluster *"]);
    cluster(&mut machine, "c1", None);
    assert_eq!(commands(&mut machine), ["+ClusterLoadAssignment c1"]);
    absent(&mut machine, CLUSTER, "c1");
    let told = changes(&mut machine);
    assert_eq!(
        told,
        [
            "cluster c1",
            "removed c1",
            "problem c1: the server took it away"
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
fn whoever_can_use_the_fleet_makes_it_be_asked_for() {
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
        machine.settle();
        let config = parse_cluster(&format!("name: c1\n{policy}")).unwrap();
        let out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
        updated(&mut machine, CLUSTER, "c1", wire::encode_cluster(&out));
        let asked = commands(&mut machine);
        assert_eq!(asked.contains(&FLEET.to_owned()), expected, "{policy}");
        if expected {
            assignment(&mut machine, "local_cluster");
            let told = changes(&mut machine);
            assert!(told.contains(&"fleet".to_owned()), "{told:?}");
        }
    }
}

#[test]
fn clusters_of_the_program_need_the_fleet_too() {
    let mut machine = machine(&[]);
    machine.want_fleet(true);
    assert_eq!(commands(&mut machine), [FLEET]);
    machine.want_fleet(true);
    assert_eq!(commands(&mut machine), [""; 0]);
    assignment(&mut machine, "local_cluster");
    assert_eq!(changes(&mut machine), ["fleet"]);
    machine.want_fleet(false);
    assert_eq!(commands(&mut machine), [FLEET.replace('+', "-")]);
}

#[test]
fn the_fleet_has_the_name_that_the_program_says() {
    let mut machine = machine(&[]);
    machine.want_fleet(true);
    commands(&mut machine);
    let named = |name: &str| Following {
        local_cluster_name: Some(name.into()),
        ..Following::default()
    };
    machine.follow(named("gateways"));
    let asked = ["+ClusterLoadAssignment gateways", &FLEET.replace('+', "-")];
    assert_eq!(commands(&mut machine), asked);
    assignment(&mut machine, "gateways");
    assert_eq!(changes(&mut machine), ["fleet"]);
    // It knows its fleet itself.
    machine.follow(named(""));
    assert_eq!(commands(&mut machine), ["-ClusterLoadAssignment gateways"]);
    machine.follow(Following::default());
    assert_eq!(commands(&mut machine), [FLEET]);
}

#[test]
fn refusals_name_the_field() {
    let error = check(CLUSTER, "c1", &Bytes::new()).unwrap_err();
    assert!(error.starts_with("name: "), "{error}");
    let body = wire::encode_api_listener("l", "r");
    assert_eq!(check(LISTENER, "l", &body), Ok(()));
    let error = check(LISTENER, "other", &body).unwrap_err();
    assert_eq!(error, "name: is \"l\" inside");
    let error = check("type.googleapis.com/x.Y", "c1", &Bytes::new()).unwrap_err();
    assert!(error.contains("not asked for"), "{error}");
    assert!(check(LISTENER, "l", &Bytes::from_static(b"\xff")).is_err());
}

/// Follows the routes `r`; `own` is ours, and gets its endpoints by EDS.
fn following() -> Dependencies {
    let mut machine = machine(&[]);
    machine.follow(Following {
        routes: BTreeSet::from(["r".into()]),
        own_clusters: BTreeMap::from([
            ("static".into(), None),
            ("own".into(), Some("own-endpoints".into())),
        ]),
        local_cluster_name: None,
    });
    machine
}

#[test]
fn routes_are_followed_by_name_and_own_clusters_are_not_asked_for() {
    let mut machine = following();
    let asked = [
        "+ClusterLoadAssignment own-endpoints",
        "+RouteConfiguration r",
    ];
    assert_eq!(commands(&mut machine), asked);
    routes(&mut machine, "r", &["static", "own"]);
    assert_eq!(commands(&mut machine), [""; 0]);
    assert_eq!(changes(&mut machine), ["followed r"]);
    assignment(&mut machine, "own-endpoints");
    assert_eq!(changes(&mut machine), ["endpoints own"]);
    // What the server says about a name of ours does not count.
    cluster(&mut machine, "own", None);
    absent(&mut machine, CLUSTER, "own");
    assert_eq!(
        changes(&mut machine),
        ["problem own: the server took it away"]
    );
}

#[test]
fn followed_routes_that_replace_others_wait_for_clusters_and_endpoints() {
    let mut machine = following();
    routes(&mut machine, "r", &["static"]);
    assert_eq!(changes(&mut machine), ["followed r"]);
    commands(&mut machine);
    routes(&mut machine, "r", &["c"]);
    assert_eq!(commands(&mut machine), ["+Cluster c"]);
    assert_eq!(changes(&mut machine), [""; 0]);
    cluster(&mut machine, "c", None);
    assert_eq!(changes(&mut machine), ["cluster c"]);
    assignment(&mut machine, "c");
    assert_eq!(changes(&mut machine), ["endpoints c", "followed r"]);
    // Nobody waits for what the server does not have.
    routes(&mut machine, "r", &["d"]);
    cluster(&mut machine, "d", None);
    absent(&mut machine, CLUSTER_LOAD_ASSIGNMENT, "d");
    let changed = changes(&mut machine);
    assert!(changed.contains(&"followed r".to_owned()), "{changed:?}");
    assert!(changed.contains(&"removed c".to_owned()), "{changed:?}");
}

#[test]
fn what_is_no_longer_followed_is_let_go() {
    let mut machine = following();
    routes(&mut machine, "r", &["c"]);
    cluster(&mut machine, "c", None);
    commands(&mut machine);
    changes(&mut machine);
    machine.follow(Following::default());
    let asked = [
        "-Cluster c",
        "-ClusterLoadAssignment c",
        "-ClusterLoadAssignment own-endpoints",
        "-RouteConfiguration r",
    ];
    assert_eq!(commands(&mut machine), asked);
    assert_eq!(changes(&mut machine), ["removed c"]);
}
