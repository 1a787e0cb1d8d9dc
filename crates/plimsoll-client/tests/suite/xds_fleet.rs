//! The fleet's assignment and measured demand from a management server: subscription, precedence
//! and withdrawal.
#![cfg(feature = "xds")]

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::management::Management;
use crate::support::resources::{Made, assignment, cluster};
use plimsoll_client::{Client, LoadReporting, XdsOptions};
use plimsoll_core::explain::FractionStatus;
use plimsoll_core::locality_picking::fractions::FractionOrigin;
use plimsoll_core::locality_picking::zone_aware::Reason;
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_testing::tasks::wait_until;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::lrs::message::ClusterTraffic;
use plimsoll_xds::wire::{AssignmentOut, LocalityOut, encode_assignment};
use plimsoll_xds::yaml::parse_upstream_cluster;

const POLICIES: &str = "type.googleapis.com/envoy.extensions.load_balancing_policies";

fn options(server: &Management) -> XdsOptions {
    let node = Node {
        id: "n1".into(),
        cluster: "gateway".into(),
        locality: Locality::zone_only("a"),
    };
    let mut options = XdsOptions::new(format!("http://{}", server.address), node);
    options = options.all_clusters(true);
    options = options.load_reporting(LoadReporting::Always);
    options = options.backoff(Duration::from_millis(5), Duration::from_millis(50));
    options
}

/// A proxy in each zone, with a fraction of the demand.
fn fleet(fractions: [Option<u32>; 2]) -> Made {
    let zones = ["a", "b"].into_iter().zip(fractions).zip(1_u16..);
    let localities = zones.map(|((zone, fraction), port)| LocalityOut {
        locality: Locality::zone_only(zone),
        endpoints: vec![LbEndpoint::new(([127, 0, 0, 1], port).into())],
        observed_traffic_fraction: fraction,
        ..LocalityOut::default()
    });
    let body = encode_assignment(&AssignmentOut {
        cluster_name: "local_cluster".into(),
        localities: localities.collect(),
        ..AssignmentOut::default()
    });
    (CLUSTER_LOAD_ASSIGNMENT, "local_cluster".to_owned(), body)
}

fn zones() -> [(&'static str, &'static [SocketAddr]); 2] {
    const A: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 9);
    const B: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 10);
    [("a", &[A]), ("b", &[B])]
}

/// A `load_balancing_policy` with one policy.
fn policies(message: &str, rest: &str) -> String {
    let config = format!("'@type': {POLICIES}.{message}{rest}");
    format!("{{policies: [{{typed_extension_config: {{name: x, typed_config: {{{config}}}}}}}]}}")
}

fn measured() -> String {
    let zone_aware = "{min_cluster_size: 1, locality_basis: LRS_REPORTED_RATE}";
    let rest = format!(", locality_lb_config: {{zone_aware_lb_config: {zone_aware}}}");
    let policy = policies("round_robin.v3.RoundRobin", &rest);
    format!("load_balancing_policy: {policy}")
}

fn convergent() -> String {
    let child = policies("round_robin.v3.RoundRobin", "");
    let rest = format!(", spill_controller: CONVERGENT, endpoint_picking_policy: {child}");
    let policy = policies("load_aware_locality.v3.LoadAwareLocality", &rest);
    format!("load_balancing_policy: {policy}")
}

fn traffic(parts: &[(&str, u64)]) -> ClusterTraffic {
    let part = |&(zone, bp): &(&str, u64)| {
        let fraction = BasisPoints::new(bp, "test").unwrap();
        (Locality::zone_only(zone), fraction)
    };
    ClusterTraffic {
        cluster_name: "orders".into(),
        fractions: parts.iter().map(part).collect(),
        observation_time: None,
    }
}

/// Waits for a status and an origin of the fractions.
async fn wait_for_fractions(
    client: &Client,
    status: FractionStatus,
    origin: Option<FractionOrigin>,
) {
    let what = format!("fractions are {status:?} from {origin:?}");
    wait_until(&what, async || {
        let explained = client.explain("orders").await;
        explained.is_ok_and(|explained| {
            let fractions = explained.fractions;
            (fractions.status, fractions.origin) == (status, origin)
        })
    })
    .await;
}

#[tokio::test]
async fn fractions_of_the_lrs_response_win_and_are_withdrawn() {
    let resources = [
        cluster("orders", &measured()),
        assignment("orders", &zones()),
        fleet([Some(5000), Some(5000)]),
    ];
    let server = Management::start(&resources);
    let client = Client::builder().xds(options(&server)).build().unwrap();
    let by_field = Some(FractionOrigin::EdsField);
    wait_for_fractions(&client, FractionStatus::Fresh, by_field).await;
    server.set_traffic(1, vec![traffic(&[("a", 9000), ("b", 1000)])]);
    let by_lrs = Some(FractionOrigin::LrsResponse);
    wait_for_fractions(&client, FractionStatus::Fresh, by_lrs).await;
    // An entry without fractions withdraws them.
    server.set_traffic(2, vec![traffic(&[])]);
    wait_for_fractions(&client, FractionStatus::Fresh, by_field).await;
    server.set_traffic(3, vec![traffic(&[("a", 1), ("b", 9999)])]);
    wait_for_fractions(&client, FractionStatus::Fresh, by_lrs).await;
}

#[tokio::test]
async fn measured_demand_reaches_a_convergent_cluster_by_eds_and_lrs() {
    let resources = [
        cluster("orders", &convergent()),
        assignment("orders", &zones()),
        fleet([None, None]),
    ];
    let server = Management::start(&resources);
    let client = Client::builder().xds(options(&server)).build().unwrap();
    wait_for_fractions(&client, FractionStatus::Absent, None).await;
    server.set_traffic(1, vec![traffic(&[("a", 9000), ("b", 1000)])]);
    let leads = FractionStatus::FeedForward;
    wait_for_fractions(&client, leads, Some(FractionOrigin::LrsResponse)).await;
    wait_until("half of the demand of zone a goes to zone b", async || {
        let explained = client.explain("orders").await.unwrap();
        let own = explained.localities.iter().find(|one| one.zone == "a");
        own.is_some_and(|own| (own.expected_share - 5.0 / 9.0).abs() < 0.05)
    })
    .await;
    server.set_traffic(2, vec![traffic(&[])]);
    wait_for_fractions(&client, FractionStatus::Absent, None).await;
    let parts = [resources[0].clone(), resources[1].clone()];
    server.set(&[parts.as_slice(), &[fleet([Some(9000), Some(1000)])]].concat());
    wait_for_fractions(&client, leads, Some(FractionOrigin::EdsField)).await;
}

#[tokio::test]
async fn clusters_of_the_program_subscribe_to_the_fleet() {
    let server = Management::start(&[fleet([Some(9000), Some(1000)])]);
    let endpoint = "{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9}}}}";
    let endpoints = format!("[{{locality: {{zone: a}}, lb_endpoints: [{endpoint}]}}]");
    let listed = format!("load_assignment: {{cluster_name: orders, endpoints: {endpoints}}}");
    let text = format!("name: orders\ntype: STATIC\n{listed}\n{}", measured());
    let own = parse_upstream_cluster(&text).unwrap();
    // With a cluster of the builder, and with one that is added later.
    let first = Client::builder().xds(options(&server)).cluster(own.clone());
    let second = Client::builder().xds(options(&server)).build().unwrap();
    second.set_cluster(own).await.unwrap();
    for client in [first.build().unwrap(), second] {
        wait_for_fractions(
            &client,
            FractionStatus::Fresh,
            Some(FractionOrigin::EdsField),
        )
        .await;
    }
}

#[tokio::test]
async fn a_cluster_of_the_program_can_be_the_fleet() {
    let server = Management::start(&[fleet([Some(9000), Some(1000)])]);
    let client = Client::builder().xds(options(&server)).build().unwrap();
    let host = |zone: &str, port: u16| {
        let socket = format!("{{address: localhost, port_value: {port}}}");
        let endpoint = format!("{{endpoint: {{address: {{socket_address: {socket}}}}}}}");
        format!("{{locality: {{zone: {zone}}}, lb_endpoints: [{endpoint}]}}")
    };
    let upstream = |name: &str| {
        let endpoints = format!("[{}, {}]", host("a", 9), host("b", 10));
        let listed = format!("{{cluster_name: {name}, endpoints: {endpoints}}}");
        let small = "common_lb_config: {zone_aware_lb_config: {min_cluster_size: 1}}";
        let text = format!("name: {name}\ntype: STRICT_DNS\nload_assignment: {listed}\n{small}");
        parse_upstream_cluster(&text).unwrap()
    };
    let subscriptions = plimsoll_client::Subscriptions {
        local_cluster_name: Some("".into()),
        ..Default::default()
    };
    client.subscribe(subscriptions).await.unwrap();
    client.set_local_cluster(Some("proxies")).await.unwrap();
    client.set_cluster(upstream("orders")).await.unwrap();
    // Without hosts there is nothing to route.
    wait_until("the hosts of the cluster are known", async || {
        let explained = client.explain("orders").await.unwrap();
        explained.reason_code == Some(Reason::NoLocalCluster)
    })
    .await;
    // A DNS cluster: the fleet is known once its names are resolved.
    client.set_cluster(upstream("proxies")).await.unwrap();
    wait_until("requests are routed by zone", async || {
        let explained = client.explain("orders").await.unwrap();
        explained.reason_code.is_none()
    })
    .await;
}
