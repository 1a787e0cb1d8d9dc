//! The client of a program with its own listeners, such as a proxy: route configurations, listeners
//! and endpoints that it subscribes to by name, and services per worker.
#![cfg(feature = "xds")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::management::{Management, xds_options};
use crate::support::resources::{assignment, cluster, listener, routes};
use crate::support::{Backend, get, within};
use plimsoll_client::{
    Client, Cluster, ErrorKind, ListenerCompiler, RouteCompiler, RouteStatus, Subscriptions,
    Variant,
};
use plimsoll_core::units::FieldError;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::ads::ROUTE_CONFIGURATION;

const VARIANTS: [Variant; 2] = [Variant::Sotw, Variant::Delta];

/// Routes as the program compiles them: the name of the configuration.
struct Table(String);

/// Accepts routes until the flag is set.
fn compiler(refuses: &Arc<AtomicBool>) -> RouteCompiler {
    let refuses = Arc::clone(refuses);
    RouteCompiler::new(move |routes| {
        if refuses.load(Ordering::Relaxed) {
            return Err(FieldError::new("virtual_hosts", "is not supported here"));
        }
        Ok(Table(routes.name.clone()))
    })
}

/// Subscribes to routes, and not to the fleet, which the server does not have.
fn to_routes(name: &str) -> Subscriptions {
    Subscriptions {
        routes: [name.into()].into(),
        local_cluster_name: Some("".into()),
        ..Default::default()
    }
}

fn status(client: &Client) -> RouteStatus {
    client.xds_status().unwrap().routes["r"].clone()
}

async fn pending(client: &Client) -> Vec<(String, String)> {
    let pending = within(client.pending_resources()).await.unwrap();
    let names = pending.iter();
    names
        .map(|(kind, name)| (kind.to_string(), name.to_string()))
        .collect()
}

#[tokio::test]
async fn routes_are_compiled_published_and_counted_by_name() {
    let backend = Backend::start().await;
    let upstream = |name: &str| {
        [
            cluster(name, "lb_policy: ROUND_ROBIN"),
            assignment(name, &[("a", &[backend.address])]),
        ]
    };
    for variant in VARIANTS {
        let server = Management::start(&[]);
        let refuses = Arc::new(AtomicBool::new(false));
        let mut options = xds_options(server.address, variant);
        options = options.compile_routes(compiler(&refuses));
        let client = Client::builder().xds(options).build().unwrap();
        let mut changed = client.routes_changed().unwrap();
        client.subscribe(to_routes("r")).await.unwrap();
        let routes_are_pending = (ROUTE_CONFIGURATION.to_owned(), "r".to_owned());
        wait_until("the routes are awaited", async || {
            pending(&client).await.contains(&routes_are_pending)
        })
        .await;
        assert!(client.route_configuration("r").is_none());
        assert!(client.compiled_routes::<Table>("r").is_none());
        assert_eq!(status(&client), RouteStatus::default());

        let [c1, e1] = upstream("c1");
        server.set(&[c1.clone(), e1.clone(), routes("r", "c1")]);
        within(changed.wait_for(|changes| *changes > 0))
            .await
            .unwrap();
        assert_eq!(&*client.route_configuration("r").unwrap().name, "r");
        assert_eq!(client.compiled_routes::<Table>("r").unwrap().0, "r");
        assert!(client.compiled_routes::<u8>("r").is_none(), "another type");
        assert!(client.compiled_routes::<Table>("other").is_none());
        assert!(client.route_configuration("other").is_none());
        wait_until("nothing is awaited", async || {
            pending(&client).await.is_empty()
        })
        .await;
        let first = status(&client);
        let counts = |status: &RouteStatus| {
            [
                status.update_success,
                status.update_rejected,
                status.config_reload,
            ]
        };
        assert_eq!(counts(&first), [1, 0, 1], "{variant:?}");
        assert!(!first.version.is_empty());
        assert_eq!(first.in_force.unwrap().0, first.version);
        let mut orders = client.service("c1").unwrap();
        within(get(&mut orders, "/")).await.unwrap();

        // Routes that the program refuses leave the earlier ones in use.
        refuses.store(true, Ordering::Relaxed);
        let [c2, e2] = upstream("c2");
        let both = |to: &str| {
            let routes = routes("r", to);
            vec![c1.clone(), e1.clone(), c2.clone(), e2.clone(), routes]
        };
        server.set(&both("c2"));
        wait_until("the routes are rejected", async || {
            client.xds_status().unwrap().rejected == 1
        })
        .await;
        let last = client.xds_status().unwrap().last_rejection.unwrap();
        assert!(
            last.contains("virtual_hosts: is not supported here"),
            "{last}"
        );
        assert_eq!(counts(&status(&client)), [1, 1, 1], "{variant:?}");
        refuses.store(false, Ordering::Relaxed);
        let generation = *changed.borrow_and_update();
        let [c3, e3] = upstream("c3");
        server.set(&[both("c3"), vec![c3, e3]].concat());
        within(changed.changed()).await.unwrap();
        assert_eq!(*changed.borrow(), generation + 1);
        assert_eq!(counts(&status(&client)), [2, 1, 2], "{variant:?}");
    }
}

#[tokio::test]
async fn clusters_of_earlier_routes_stay_for_a_while_and_subscriptions_are_replaced() {
    let backend = Backend::start().await;
    let zones: [(&str, &[_]); 1] = [("a", &[backend.address])];
    let server = Management::start(&[
        cluster("c1", "lb_policy: ROUND_ROBIN"),
        assignment("c1", &zones),
        cluster("c2", "lb_policy: ROUND_ROBIN"),
        assignment("c2", &zones),
        routes("r1", "c1"),
        routes("r2", "c2"),
    ]);
    let options = xds_options(server.address, Variant::Delta);
    let client = Client::builder().xds(options).build().unwrap();
    client.subscribe(to_routes("r1")).await.unwrap();
    wait_until("the first routes are known", async || {
        client.route_configuration("r1").is_some()
    })
    .await;
    client.subscribe(to_routes("r2")).await.unwrap();
    wait_until("the second routes are known", async || {
        client.route_configuration("r2").is_some()
    })
    .await;
    // Requests that were routed a moment ago still need the first cluster.
    let names: BTreeSet<String> = client
        .cluster_names()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(names, ["c1", "c2"].map(str::to_owned).into());
    let routes = client.xds_status().unwrap().routes;
    assert_eq!(
        routes.keys().map(|name| &**name).collect::<Vec<_>>(),
        ["r2"]
    );
}

#[tokio::test]
async fn listeners_are_compiled_and_follow_the_server() {
    for variant in VARIANTS {
        let server = Management::start(&[listener("l1", "r"), listener("l2", "r")]);
        let mut options = xds_options(server.address, variant);
        options = options.compile_listeners(ListenerCompiler::new(|bytes| Ok(bytes.len())));
        let client = Client::builder().xds(options).build().unwrap();
        let mut changed = client.routes_changed().unwrap();
        let names = || {
            let listeners = client.compiled_listeners::<usize>();
            let names: Vec<String> = listeners.iter().map(|one| one.0.to_string()).collect();
            names.join(" ")
        };
        wait_until("both listeners are known", async || names() == "l1 l2").await;
        for (name, version, length) in client.compiled_listeners::<usize>() {
            let (_, _, body) = listener(&name, "r");
            assert_eq!((*length, version.is_empty()), (body.len(), false));
        }
        assert!(client.compiled_listeners::<String>().is_empty());
        let before = *changed.borrow_and_update();
        server.set(&[listener("l2", "r")]);
        wait_until("one listener is removed", async || names() == "l2").await;
        assert!(*changed.borrow() > before, "{variant:?}");
    }
}

#[tokio::test]
async fn endpoints_of_own_clusters_are_subscribed_to_by_their_name() {
    let [own, other] = [Backend::start().await, Backend::start().await];
    let server = Management::start(&[
        assignment("endpoints", &[("a", &[own.address])]),
        // The server's cluster of the same name is ignored.
        cluster("own", "lb_policy: ROUND_ROBIN"),
        assignment("own", &[("a", &[other.address])]),
    ]);
    let mut options = xds_options(server.address, Variant::Sotw);
    options = options.all_clusters(true);
    let client = Client::builder().xds(options).build().unwrap();
    let cluster = Cluster::eds("own").eds_service_name("endpoints");
    client.set_cluster(cluster.build().unwrap()).await.unwrap();
    let subscriptions = Subscriptions {
        own_clusters: [("own".into(), Some("endpoints".into()))].into(),
        local_cluster_name: Some("".into()),
        ..Default::default()
    };
    client.subscribe(subscriptions).await.unwrap();
    let mut service = client.service("own").unwrap();
    for _ in 0..4 {
        within(get(&mut service, "/")).await.unwrap();
    }
    assert_eq!((own.seen(), other.seen()), (4, 0));
    wait_until("nothing is awaited", async || {
        pending(&client).await.is_empty()
    })
    .await;
}

#[tokio::test]
async fn without_a_management_server_there_is_nothing_to_subscribe_to() {
    let client = Client::builder().build().unwrap();
    let error = client.subscribe(to_routes("r")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("ClientBuilder::xds"), "{error}");
    assert!(client.xds_status().is_none() && client.routes_changed().is_none());
    assert!(client.route_configuration("r").is_none());
    assert!(client.compiled_routes::<Table>("r").is_none());
    assert!(client.compiled_listeners::<usize>().is_empty());
    assert!(pending(&client).await.is_empty());
}

#[tokio::test]
async fn each_pool_has_its_own_connections() {
    let backend = Backend::start().await;
    let cluster = Cluster::new("orders")
        .endpoints([backend.address.to_string()])
        .http2();
    let builder = Client::builder().cluster(cluster).pools(2);
    let client = builder.build().unwrap();
    let connections = async || {
        let status = client.cluster_statuses().await.unwrap();
        status[0].hosts[0].connections.total
    };
    for (pool, expected) in [(0, 1), (0, 1), (1, 2), (1, 2), (2, 2), (3, 2)] {
        let mut service = client.service_on("orders", pool).unwrap();
        let response = within(get(&mut service, "/")).await.unwrap();
        drop(response);
        assert_eq!(connections().await, expected, "pool {pool}");
    }
    let error = client.service_on("other", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::UnknownCluster);
    assert!(error.to_string().contains("[\"orders\"]"), "{error}");
}
