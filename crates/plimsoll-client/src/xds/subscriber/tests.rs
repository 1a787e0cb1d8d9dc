//! Tests of the subscriber without a server: its counters, delayed removals and load reports.

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::upstream::UpstreamCluster;

use super::*;
use crate::xds::decode::Content;

struct Fixture {
    subscriber: Subscriber,
    updates: mpsc::Receiver<Update>,
    sender: mpsc::Sender<Update>,
}

fn fixture(load_reporting: LoadReporting) -> Fixture {
    let node = Node {
        id: "n1".into(),
        cluster: "fleet".into(),
        locality: Locality::default(),
    };
    let mut options = XdsOptions::new("http://127.0.0.1:1", node);
    options.load_reporting = load_reporting;
    let (sender, updates) = mpsc::channel(8);
    let subscriber = Subscriber {
        servers: Servers::new(options.server.clone(), []),
        dependencies: Dependencies::new(Roots::default()),
        updates: sender.downgrade(),
        routes: Arc::default(),
        routed: watch::channel(0).0,
        status: watch::channel(XdsStatus::default()).0,
        eds_names: watch::channel(EdsNames::new()).0,
        is_silent: true,
        reporter: None,
        subscribes_routes: false,
        pending_removals: BTreeMap::new(),
        initial_fetch: Arc::default(),
        options,
    };
    Fixture {
        subscriber,
        updates,
        sender,
    }
}

fn routes() -> Routes {
    Arc::new(RouteConfiguration::default()).into()
}

fn updated(type_url: &str, name: &str, ignored: &[&str]) -> ClientEvent<Decoded> {
    ClientEvent::Updated {
        type_url: type_url.into(),
        resource: Resource {
            name: name.into(),
            version: "7".into(),
            body: Decoded {
                content: Content::Routes(routes()),
                ignored: ignored.iter().map(|&path| path.to_owned()).collect(),
            },
            epoch: 0,
        },
    }
}

fn rejected(type_url: &str) -> ClientEvent<Decoded> {
    ClientEvent::Rejected {
        type_url: type_url.into(),
        version: "8".to_owned(),
        reason: format!("{type_url} is invalid"),
    }
}

fn to_routes(names: &[&str]) -> Subscriptions {
    Subscriptions {
        routes: names.iter().map(|&name| name.into()).collect(),
        ..Subscriptions::default()
    }
}

fn upstream(name: &str, fields: &str) -> Arc<UpstreamCluster> {
    let text = format!(
        "{{name: {name}, type: EDS, eds_cluster_config: {{eds_config: {{ads: {{}}}}{fields}}}}}"
    );
    Arc::new(plimsoll_xds::yaml::parse_upstream_cluster(&text).unwrap())
}

#[tokio::test]
async fn updates_and_rejections_are_counted_by_type_and_name() {
    let mut fixture = fixture(LoadReporting::Never);
    fixture.subscriber.subscribe(to_routes(&["edge", "inner"]));
    let count = |event| fixture.subscriber.count(&event);
    count(updated(ROUTE_CONFIGURATION, "edge", &[]));
    count(updated(ROUTE_CONFIGURATION, "edge", &[]));
    count(updated(ROUTE_CONFIGURATION, "unknown", &[]));
    count(updated(CLUSTER, "inner", &[]));
    count(rejected(ROUTE_CONFIGURATION));
    count(rejected(ROUTE_CONFIGURATION));
    count(rejected(CLUSTER));
    for _ in 0..2 {
        fixture.subscriber.count_reload("edge");
        fixture.subscriber.count_reload("unknown");
    }
    let status = fixture.subscriber.status.borrow().clone();
    assert_eq!(status.rejected, 3);
    let last = format!("{CLUSTER} is invalid");
    assert_eq!(status.last_rejection, Some(last));
    let counts = |name: &str| {
        let route = &status.routes[name];
        (
            route.update_success,
            route.update_rejected,
            route.config_reload,
        )
    };
    assert_eq!(counts("edge"), (2, 2, 2));
    assert_eq!(counts("inner"), (0, 2, 0));
    assert_eq!(status.routes.len(), 2);
    let (version, _) = status.routes["edge"].in_force.clone().unwrap();
    assert_eq!(&*version, "7");
    assert!(status.routes["inner"].in_force.is_none());
    // A route configuration that is no longer subscribed to is forgotten.
    fixture.subscriber.subscribe(to_routes(&["inner"]));
    assert_eq!(fixture.subscriber.status.borrow().routes.len(), 1);
}

#[tokio::test]
async fn the_list_of_clusters_is_complete_with_its_own_type_only() {
    let fixture = fixture(LoadReporting::Never);
    let complete = |type_url: &str| {
        let type_url = type_url.into();
        fixture
            .subscriber
            .count(&ClientEvent::Complete { type_url });
        fixture.subscriber.status.borrow().clusters_complete
    };
    assert!(!complete(LISTENER));
    assert!(complete(CLUSTER));
}

#[tokio::test]
async fn ignored_fields_are_those_of_the_newest_version() {
    let fixture = fixture(LoadReporting::Never);
    let mut changes = fixture.subscriber.status.subscribe();
    let mut report = |event| {
        fixture.subscriber.report_ignored(&event);
        let changed = changes.has_changed().unwrap();
        (changed, changes.borrow_and_update().ignored_fields.len())
    };
    let removed = |name: &str| ClientEvent::Removed {
        type_url: CLUSTER.into(),
        name: name.into(),
    };
    assert_eq!(report(updated(CLUSTER, "a", &[])), (false, 0));
    assert_eq!(report(updated(CLUSTER, "a", &["x", "y"])), (true, 1));
    assert_eq!(report(updated(CLUSTER, "a", &["x", "y"])), (false, 1));
    assert_eq!(report(removed("b")), (false, 1));
    assert_eq!(report(updated(CLUSTER, "b", &["x"])), (true, 2));
    assert_eq!(report(updated(CLUSTER, "b", &[])), (true, 1));
    let absent = ClientEvent::DoesNotExist {
        type_url: CLUSTER.into(),
        name: "a".into(),
        timed_out: false,
    };
    assert_eq!(report(absent), (true, 0));
    let status = fixture.subscriber.status.borrow();
    assert_eq!(status.dynamic_unknown_fields, 2);
}

#[tokio::test]
async fn every_change_of_routes_and_listeners_has_its_generation() {
    let Fixture {
        mut subscriber,
        mut updates,
        sender,
    } = fixture(LoadReporting::Never);
    // The manager publishes clusters before routes that name them.
    let manager = tokio::spawn(async move {
        let mut flushed = 0;
        while let Some(Update::Flush(reply)) = updates.recv().await {
            flushed += 1;
            reply.send(()).unwrap();
        }
        flushed
    });
    let generations = subscriber.routed.subscribe();
    let listener = VersionedListener {
        version: "1".into(),
        compiled: Arc::new(()),
    };
    let changes = [
        Change::Listeners([("edge".into(), listener)].into()),
        Change::Routes(RouteConsumer::Target("orders".into()), routes()),
        Change::Routes(RouteConsumer::Subscription("edge".into()), routes()),
    ];
    for (generation, change) in (1..).zip(changes) {
        subscriber.apply(change).await.unwrap();
        assert_eq!(*generations.borrow(), generation);
    }
    let active = subscriber.routes.load_full();
    assert!(active.listeners.contains_key("edge"));
    assert!(active.targets.contains_key("orders"));
    assert!(active.subscribed.contains_key("edge"));
    assert_eq!((active.targets.len(), active.subscribed.len()), (1, 1));
    drop(sender);
    assert_eq!(manager.await.unwrap(), 2);
    let routes = Change::Routes(RouteConsumer::Target("orders".into()), routes());
    assert!(subscriber.apply(routes).await.is_none(), "the client ended");
}

#[tokio::test(start_paused = true)]
async fn clusters_are_removed_later_if_programs_use_routes() {
    let mut fixture = fixture(LoadReporting::Never);
    let subscriber = &mut fixture.subscriber;
    let removed = |name: &str| Change::Removed(name.into());
    let mut next = || match fixture.updates.try_recv() {
        Ok(Update::Remove(name)) => Some(name),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    };
    subscriber.apply(removed("early")).await.unwrap();
    assert_eq!(next().as_deref(), Some("early"));
    subscriber.subscribe(Subscriptions::default());
    assert!(!subscriber.subscribes_routes);
    subscriber.subscribe(to_routes(&["edge"]));
    subscriber.subscribe(Subscriptions::default());
    assert!(subscriber.subscribes_routes, "once and for all");
    subscriber.apply(removed("a")).await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    for name in ["b", "back", "own"] {
        subscriber.apply(removed(name)).await.unwrap();
    }
    subscriber.remove_due().await.unwrap();
    assert_eq!(next(), None);
    // What comes back, or is the program's own, is not removed.
    let back = Change::Cluster(upstream("back", ""));
    subscriber.apply(back).await.unwrap();
    let Ok(Update::Discovered(cluster)) = fixture.updates.try_recv() else {
        panic!("the cluster is added");
    };
    assert_eq!(&**cluster.config.name(), "back");
    let mut subscriptions = to_routes(&["edge"]);
    subscriptions.own_clusters.insert("own".into(), None);
    subscriber.subscribe(subscriptions);
    let mut next = || match fixture.updates.try_recv() {
        Ok(Update::Remove(name)) => Some(name),
        Ok(other) => panic!("{other:?}"),
        Err(_) => None,
    };
    tokio::time::advance(CLUSTER_REMOVAL_DELAY - Duration::from_secs(2)).await;
    subscriber.remove_due().await.unwrap();
    assert_eq!((next().as_deref(), next()), (Some("a"), None));
    tokio::time::advance(Duration::from_secs(2)).await;
    subscriber.remove_due().await.unwrap();
    assert_eq!((next().as_deref(), next()), (Some("b"), None));
    assert!(subscriber.pending_removals.is_empty());
}

#[tokio::test]
async fn load_is_reported_for_clusters_that_ask_for_it() {
    for (load_reporting, lrs, expected) in [
        (LoadReporting::PerCluster, true, true),
        (LoadReporting::PerCluster, false, false),
        (LoadReporting::Never, true, false),
        (LoadReporting::Never, false, false),
    ] {
        let mut fixture = fixture(load_reporting);
        let mut cluster = UpstreamCluster::clone(&upstream("orders", ""));
        cluster.options.lrs = lrs;
        let change = Change::Cluster(Arc::new(cluster));
        fixture.subscriber.apply(change).await.unwrap();
        assert_eq!(
            fixture.subscriber.reporter.is_some(),
            expected,
            "{load_reporting:?} {lrs}"
        );
        drop(fixture.sender);
    }
}

#[tokio::test]
async fn names_of_assignments_are_kept_if_they_differ() {
    let mut fixture = fixture(LoadReporting::Never);
    let subscriber = &mut fixture.subscriber;
    let names = |subscriber: &Subscriber| {
        let names = subscriber.eds_names.borrow();
        let pairs = names.iter().map(|(name, eds)| format!("{name}={eds}"));
        pairs.collect::<Vec<_>>()
    };
    for (service_name, expected) in [
        (", service_name: zones/orders", &["orders=zones/orders"][..]),
        (", service_name: orders", &[]),
        (", service_name: b", &["orders=b"]),
        ("", &[]),
    ] {
        let change = Change::Cluster(upstream("orders", service_name));
        subscriber.apply(change).await.unwrap();
        assert_eq!(names(subscriber), expected);
    }
    let mut subscriptions = Subscriptions::default();
    subscriptions
        .own_clusters
        .insert("own".into(), Some("eds".into()));
    subscriber.subscribe(subscriptions);
    assert_eq!(names(subscriber), ["own=eds"]);
}

#[tokio::test]
async fn problems_come_and_go() {
    let fixture = fixture(LoadReporting::Never);
    let mut changes = fixture.subscriber.status.subscribe();
    let key = || (Arc::from(CLUSTER), Arc::from("orders"));
    let mut set = |problem: Option<&str>| {
        let changed = fixture.subscriber.initial_fetch.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let problem = problem.map(ToOwned::to_owned);
        fixture.subscriber.set_problem(key(), problem);
        let notified = futures_util::FutureExt::now_or_never(changed).is_some();
        assert!(notified, "requests that wait look again");
        let modified = changes.has_changed().unwrap();
        let problem = problem_of(&changes.borrow_and_update(), CLUSTER, "orders");
        (modified, problem)
    };
    assert_eq!(set(None), (false, None));
    assert_eq!(set(Some("gone")), (true, Some("gone".to_owned())));
    assert_eq!(set(None), (true, None));
}

#[tokio::test]
async fn the_state_of_the_server_is_part_of_errors() {
    let mut fixture = fixture(LoadReporting::Never);
    let message = "refused".to_owned();
    for (is_silent, state, text) in [
        (true, XdsState::Connecting, "(connecting)"),
        (
            true,
            XdsState::Connected,
            "(connected, no resources received)",
        ),
        (false, XdsState::Connected, "(connected)"),
        (
            true,
            XdsState::Disconnected { message },
            "(disconnected: refused)",
        ),
    ] {
        fixture.subscriber.is_silent = is_silent;
        fixture.subscriber.set_state(state.clone());
        let status = fixture.subscriber.status.borrow().clone();
        assert_eq!(
            (&*status.server, &status.state),
            ("http://127.0.0.1:1", &state)
        );
        let described = fixture.subscriber.initial_fetch.server_state();
        let expected = format!("management server http://127.0.0.1:1 {text}");
        assert_eq!(described, expected);
    }
    assert_eq!(waiting("orders"), "listener orders");
}
