//! `build` refuses what cannot work, with the field and the reason.

use crate::support::management::{Management, xds_options};
use crate::support::resources::assignment;
use crate::support::{Backend, get};
use plimsoll_client::{
    Client, ClientBuilder, Cluster, ErrorKind, Locality, Node, Policy, Variant, XdsOptions,
};
use plimsoll_testing::tasks::wait_until;

fn orders() -> Cluster {
    Cluster::new("orders")
        .zone("zone-a", ["10.0.0.1:80"])
        .zone("zone-b", ["10.0.0.2:80"])
}

fn zone_aware() -> Cluster {
    orders().policy(Policy::zone_aware().min_cluster_size(2))
}

fn measured() -> Cluster {
    orders().policy(Policy::zone_aware().measured().min_cluster_size(2))
}

/// A management server that cannot be reached: nothing here waits for it.
fn server() -> XdsOptions {
    let node = Node {
        id: "n".into(),
        cluster: "fleet".into(),
        locality: Locality::default(),
    };
    XdsOptions::new("http://127.0.0.1:9", node)
}

#[tokio::test]
async fn what_cannot_work_is_refused() {
    let builder = || Client::builder().zone("zone-a");
    let demand = [("zone-a", 60), ("zone-b", 40)];
    let region = Locality::new("r1", "zone-a", "");
    let cases: [(ClientBuilder, &str); 14] = [
        (
            builder().cluster(Cluster::eds("orders")),
            "clusters[orders].eds_cluster_config: endpoints from EDS need a management server",
        ),
        (
            builder().cluster(Cluster::new("orders")),
            "clusters[orders].endpoints: the cluster lists no host",
        ),
        (
            builder().cluster(Cluster::new("orders").zone("zone-a", [] as [&str; 0])),
            "clusters[orders].endpoints: the cluster lists no host",
        ),
        (
            builder().cluster(Cluster::new("")),
            "clusters[].name: must not be empty",
        ),
        (
            builder()
                .cluster(orders())
                .cluster(orders().policy(Policy::random())),
            "clusters[orders]: is added twice",
        ),
        (
            Client::builder()
                .locality(Locality::default())
                .cluster(measured())
                .demand(demand),
            "clusters[orders].policy.zone_aware_lb_config: zone-aware routing needs the zone",
        ),
        (
            builder()
                .cluster(orders().policy(Policy::zone_aware().measured()))
                .demand(demand),
            "clusters[orders].policy.zone_aware_lb_config.min_cluster_size: zone-aware routing \
             needs 6 hosts and the cluster lists 2",
        ),
        (
            builder().cluster(measured()),
            "clusters[orders].policy.zone_aware_lb_config.locality_basis: needs the demand",
        ),
        (
            builder().cluster(zone_aware()),
            "clusters[orders].policy.zone_aware_lb_config.locality_basis: needs the demand",
        ),
        (
            builder()
                .cluster(measured())
                .demand([("zone-a", 60), ("zone-x", 40)]),
            "demand[zone-x]: no cluster has this zone",
        ),
        (
            builder().cluster(measured()).demand([("zone-b", 1)]),
            "demand[zone-a]: the zone of this process has no demand: add it to the list",
        ),
        (
            builder()
                .cluster(measured())
                .demand([("zone-a", -1), ("zone-b", 1)]),
            "demand[zone-a]: -1 is not a finite number",
        ),
        (
            builder()
                .locality(region)
                .cluster(measured())
                .demand(demand),
            "clusters[orders].endpoints.locality: this process is in zone \"zone-a\" of region \
             \"r1\", the hosts are in zone \"zone-a\" without a region",
        ),
        (
            builder().cluster(orders().policy(Policy::zone_aware().dead_band_bp(20_000))),
            "clusters[orders].policy.zone_aware_lb_config.dead_band_bp: 20000 is above",
        ),
    ];
    for (builder, expected) in cases {
        let error = builder.build().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(
            error.to_string().starts_with(expected),
            "{expected}: {error}"
        );
    }
}

#[test]
fn a_runtime_is_needed() {
    let error = Client::builder().cluster(orders()).build().unwrap_err();
    assert!(error.to_string().contains("tokio runtime"), "{error}");
}

#[tokio::test]
async fn what_may_work_is_accepted() {
    let builder = || Client::builder().zone("zone-a");
    let declared = measured().empty_zone("zone-x");
    for (name, builder) in [
        ("no cluster at all", Client::builder()),
        (
            "default policy without a zone",
            Client::builder().cluster(orders()),
        ),
        (
            "demand of a server",
            builder().cluster(measured()).xds(server()),
        ),
        (
            "endpoints of a server",
            builder().cluster(Cluster::eds("orders")).xds(server()),
        ),
        (
            "demand in a zone without hosts",
            builder()
                .cluster(declared)
                .demand([("zone-a", 1), ("zone-x", 1)]),
        ),
        (
            "zones that the server may know",
            builder()
                .cluster(measured())
                .demand([("zone-a", 1), ("zone-x", 1)])
                .xds(server()),
        ),
        (
            "an own zone without hosts",
            Client::builder()
                .zone("zone-x")
                .cluster(measured())
                .demand([("zone-x", 1)]),
        ),
        (
            "own response times",
            builder()
                .cluster(orders().policy(Policy::zone_aware().observed_load().min_cluster_size(2))),
        ),
    ] {
        let built = builder.build();
        assert!(built.is_ok(), "{name}: {:?}", built.unwrap_err());
    }
}

#[tokio::test]
async fn the_own_locality_is_the_one_given_or_else_that_of_the_node() {
    let node = Node {
        id: "n".into(),
        cluster: "fleet".into(),
        locality: Locality::zone_only("zone-b"),
    };
    let options = server().node(node);
    let node = Client::builder().cluster(orders()).xds(options.clone());
    let given = Client::builder()
        .zone("zone-a")
        .cluster(orders())
        .xds(options);
    for (builder, zone) in [(node, "zone-b"), (given, "zone-a")] {
        let client = builder.build().unwrap();
        let own = client.explain("orders").await.unwrap().own_locality;
        assert_eq!(own, Some(Locality::zone_only(zone)));
    }
    let client = Client::builder()
        .zone("zone-a")
        .cluster(orders())
        .xds(server());
    let own = client
        .build()
        .unwrap()
        .explain("orders")
        .await
        .unwrap()
        .own_locality;
    assert_eq!(own, Some(Locality::zone_only("zone-a")));
}

#[tokio::test]
async fn a_cluster_of_the_program_gets_its_endpoints_from_the_server() {
    let backend = Backend::start().await;
    let server = Management::start(&[assignment("orders-v1", &[("a", &[backend.address])])]);
    let orders = Cluster::eds("orders").eds_service_name("orders-v1");
    let builder = Client::builder()
        .cluster(orders)
        .xds(xds_options(server.address, Variant::Sotw));
    let client = builder.build().unwrap();
    wait_until("the endpoint is known", async || {
        let snapshot = client.snapshot("orders");
        snapshot.is_some_and(|snapshot| snapshot.hosts().count() == 1)
    })
    .await;
    get(&mut client.service("orders").unwrap(), "/")
        .await
        .unwrap();
    assert_eq!(backend.seen(), 1);
}
