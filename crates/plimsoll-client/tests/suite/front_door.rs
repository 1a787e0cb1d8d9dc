//! The client used through `plimsoll_client` alone, as a program with this one dependency does:
//! static clusters with several policies, requests to servers on loopback, explanations, events.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use plimsoll_client::explain::FractionOrigin;
use plimsoll_client::{
    Client, Cluster, ClusterLoadAssignment, ErrorKind, Event, Explanation, FractionStatus,
    Locality, Policy, RequestOptions, StateName,
};
use plimsoll_testing::tasks::wait_to_see;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tower_service::Service as _;

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// A server that answers every request with its zone, and with the utilization it is given.
async fn backend(zone: &'static str, utilization: Option<f64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let load = utilization.map_or_else(String::new, |utilization| {
        format!("endpoint-load-metrics: TEXT application_utilization={utilization}\r\n")
    });
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n{load}\r\n{zone}",
        zone.len()
    );
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let mut read = [0; 4096];
                // A request of these tests fits into one segment.
                while socket.read(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                    socket.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    address
}

async fn backends(loads: [Option<f64>; 3]) -> Vec<(&'static str, Vec<SocketAddr>)> {
    let mut zones = Vec::new();
    for (zone, load) in ZONES.into_iter().zip(loads) {
        zones.push((
            zone,
            vec![backend(zone, load).await, backend(zone, load).await],
        ));
    }
    zones
}

/// A cluster with two hosts in each zone.
async fn orders() -> Cluster {
    let zones = backends([None; 3]).await;
    let add = |cluster: Cluster, (zone, hosts): &(&str, Vec<SocketAddr>)| {
        cluster.zone(zone, hosts.iter().copied())
    };
    zones.iter().fold(Cluster::new("orders"), add)
}

/// Shares of `count` requests by zone.
async fn shares(client: &Client, count: u32) -> BTreeMap<String, f64> {
    let mut service = client.service("orders").unwrap();
    let mut shares = BTreeMap::new();
    for _ in 0..count {
        let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
        let response = service.call(request).await.unwrap();
        let zone = response.into_body().collect().await.unwrap().to_bytes();
        let zone = String::from_utf8(zone.to_vec()).unwrap();
        *shares.entry(zone).or_insert(0.0) += 1.0 / f64::from(count);
    }
    shares
}

fn assert_near(shares: &BTreeMap<String, f64>, expected: [f64; 3]) {
    for (zone, expected) in ZONES.into_iter().zip(expected) {
        let share = shares.get(zone).copied().unwrap_or(0.0);
        assert!((share - expected).abs() < 0.05, "{zone}: {shares:?}");
    }
}

#[tokio::test]
async fn a_static_client_routes_by_stated_demand() {
    let client = Client::builder()
        .zone("zone-a")
        .demand([("zone-a", 60), ("zone-b", 20), ("zone-c", 20)])
        .cluster(orders().await.policy(Policy::zone_aware().measured()))
        .build()
        .unwrap();
    // Zone a issues 60 % and has a third of the hosts: 5/9 stays, the rest is shared.
    assert_near(
        &shares(&client, 200).await,
        [5.0 / 9.0, 2.0 / 9.0, 2.0 / 9.0],
    );
    let explanation: Explanation = client.explain("orders").await.unwrap();
    assert_eq!(explanation.state, StateName::LocalityResidual);
    assert_eq!(
        explanation.own_locality,
        Some(Locality::zone_only("zone-a"))
    );
    assert_eq!(explanation.fractions.status, FractionStatus::Fresh);
    assert_eq!(explanation.fractions.origin, Some(FractionOrigin::Stated));
    for row in &explanation.localities {
        assert!(
            row.load_factor
                .is_some_and(|load| (load - 1.0).abs() < 0.01),
            "{row:?}"
        );
    }
    let events = client.recent_events("orders");
    let added = |event: &Event| matches!(event, Event::MembershipChanged { added: 6, .. });
    assert!(events.iter().any(|(_, event)| added(event)), "{events:?}");

    client
        .set_demand([("zone-a", 1), ("zone-b", 1), ("zone-c", 1)])
        .await
        .unwrap();
    assert_near(&shares(&client, 50).await, [1.0, 0.0, 0.0]);
    let error = client
        .set_demand([("zone-a", 1), ("zone-x", 1)])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().starts_with("demand[zone-x]: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn stated_fractions_never_expire() {
    let hosts = |zone: u8| (1..=3).map(move |host| format!("10.0.{zone}.{host}:80"));
    let cluster = || {
        Cluster::new("orders")
            .zone("zone-a", hosts(1))
            .zone("zone-b", hosts(2))
            .policy(Policy::zone_aware().measured())
    };
    let stated = Client::builder().demand([("zone-a", 0.9), ("zone-b", 0.1)]);
    let fleet = Client::builder().originating(fleet([9000, 1000]));
    for (builder, origin) in [
        (stated, FractionOrigin::Stated),
        (fleet, FractionOrigin::EdsField),
    ] {
        let builder = builder.zone("zone-a").cluster(cluster());
        let client = builder.build().unwrap();
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(3600)).await;
            let explanation = client.explain("orders").await.unwrap();
            assert_eq!(explanation.state, StateName::LocalityResidual);
            assert_eq!(explanation.fractions.status, FractionStatus::Fresh);
            assert_eq!(explanation.fractions.origin, Some(origin));
            assert_eq!(explanation.fractions.age_ms, None);
        }
        let stale = |event: &Event| matches!(event, Event::FractionsStale { .. });
        let events = client.recent_events("orders");
        assert!(!events.iter().any(|(_, event)| stale(event)), "{events:?}");
    }
}

/// A fleet of one process in each zone, with fractions of demand in basis points.
fn fleet(fractions: [u64; 2]) -> ClusterLoadAssignment {
    use plimsoll_client::settings::{AssignmentParts, LbEndpoint, LocalityParts};
    let zone = |(fraction, (zone, host)): (u64, (&str, u8))| LocalityParts {
        locality: Locality::zone_only(zone),
        lb_endpoints: vec![LbEndpoint::new(([10, 9, 0, host], 1).into())],
        observed_traffic_fraction: Some(fraction),
        ..Default::default()
    };
    let parts = AssignmentParts {
        cluster_name: "fleet".into(),
        endpoints: fractions
            .into_iter()
            .zip(ZONES.into_iter().zip(1..))
            .map(zone)
            .collect(),
        ..Default::default()
    };
    ClusterLoadAssignment::try_new(parts).unwrap()
}

#[tokio::test]
async fn measured_demand_of_the_program_expires() {
    let client = Client::builder()
        .zone("zone-a")
        .demand([("zone-a", 1), ("zone-b", 1), ("zone-c", 1)])
        .cluster(orders().await.policy(Policy::zone_aware().measured()))
        .build()
        .unwrap();
    let measured = plimsoll_client::FractionMap::from([(
        Locality::zone_only("zone-a"),
        plimsoll_client::settings::BasisPoints::new(10_000, "zone-a").unwrap(),
    )]);
    client
        .update_observed_traffic("orders", measured)
        .await
        .unwrap();
    let fractions = client.explain("orders").await.unwrap().fractions;
    assert_eq!(fractions.origin, Some(FractionOrigin::LrsResponse));
    assert_eq!(fractions.staleness_threshold_ms, Some(60_000));
}

#[tokio::test]
async fn zones_are_chosen_by_reported_load() {
    let zones = backends([Some(0.9), Some(0.1), Some(0.1)]).await;
    let add = |cluster: Cluster, (zone, hosts): &(&str, Vec<SocketAddr>)| {
        cluster.zone(zone, hosts.iter().copied())
    };
    let policy = Policy::load_aware()
        .convergent()
        .weight_update_period(Duration::from_millis(100))
        .smoothing_time_constant(Duration::from_millis(100));
    let client = Client::builder()
        .zone("zone-a")
        .cluster(
            zones
                .iter()
                .fold(Cluster::new("orders"), add)
                .policy(policy),
        )
        .build()
        .unwrap();
    let shares = async || shares(&client, 50).await;
    wait_to_see("requests leave zone-a", shares, |seen| {
        seen.get("zone-a").copied().unwrap_or(0.0) < 0.5
    })
    .await;
    let explanation = client.explain("orders").await.unwrap();
    assert_eq!(explanation.state, StateName::LoadAwareLocality);
    assert_eq!(explanation.locality_policy, "load_aware_locality");
}

#[tokio::test]
async fn zones_are_chosen_by_their_weights() {
    let cluster = orders()
        .await
        .locality_weight("zone-a", 1)
        .locality_weight("zone-b", 3)
        .policy(Policy::locality_weighted().over(Policy::least_request()));
    let client = Client::builder()
        .zone("zone-a")
        .cluster(cluster)
        .seed(7)
        .build()
        .unwrap();
    assert_near(&shares(&client, 400).await, [0.25, 0.75, 0.0]);
    let explanation = client.explain("orders").await.unwrap();
    assert_eq!(explanation.state, StateName::LocalityWeighted);
    assert_eq!(explanation.endpoint_policy, "least_request");
}

#[tokio::test]
async fn without_a_fleet_hosts_are_chosen_in_turn() {
    let cluster = orders().await.policy(Policy::round_robin());
    let client = Client::builder()
        .zone("zone-a")
        .cluster(cluster)
        .build()
        .unwrap();
    let third = 1.0 / 3.0;
    assert_near(&shares(&client, 60).await, [third, third, third]);
    let state = client.explain("orders").await.unwrap().state;
    assert_eq!(state, StateName::NoLocalityRouting);
}

#[tokio::test]
async fn own_response_times_need_neither_demand_nor_server() {
    let policy = Policy::zone_aware().observed_load().min_cluster_size(1);
    let cluster = orders().await.policy(policy);
    let client = Client::builder()
        .zone("zone-a")
        .cluster(cluster)
        .build()
        .unwrap();
    assert_eq!(shares(&client, 20).await.values().sum::<f64>().round(), 1.0);
    let basis = client.explain("orders").await.unwrap().locality_basis;
    assert_eq!(
        basis,
        Some(plimsoll_client::explain::LocalityBasis::ObservedLoad)
    );
}

#[tokio::test]
async fn circuit_breakers_are_easy_to_lift() {
    // A server that accepts connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let overflows = async |cluster: Cluster, requests: usize| {
        let client = Client::builder().cluster(cluster).build().unwrap();
        let service = client
            .service("orders")
            .unwrap()
            .with_defaults(RequestOptions::new().timeout(Duration::from_secs(2)));
        let mut running = tokio::task::JoinSet::new();
        for _ in 0..requests {
            let mut service = service.clone();
            let request = Request::get("/").body(Empty::<Bytes>::new()).unwrap();
            running.spawn(async move { service.call(request).await.map(drop) });
        }
        let results = running.join_all().await;
        let kinds = results.into_iter().map(|result| result.unwrap_err().kind());
        kinds.filter(|kind| *kind == ErrorKind::Overflow).count()
    };
    let cluster = Cluster::new("orders").endpoints([address]);
    assert_eq!(overflows(cluster.clone().max_requests(3), 10).await, 7);
    assert_eq!(overflows(cluster.without_circuit_breakers(), 10).await, 0);
}

#[tokio::test]
async fn the_fleet_of_the_program_can_change() {
    let fleet = |zones: [(&str, u8); 2]| {
        let add = |cluster: Cluster, (zone, hosts): (&str, u8)| {
            let net = zone.len();
            cluster.zone(
                zone,
                (0..hosts).map(move |host| format!("10.{net}.0.{host}:80")),
            )
        };
        let cluster = zones.into_iter().fold(Cluster::new("fleet"), add);
        cluster.build_endpoints().unwrap().assignment
    };
    let orders = Cluster::new("orders")
        .zone("a", ["10.0.0.1:80"])
        .zone("bb", ["10.0.0.2:80"])
        .policy(Policy::zone_aware().min_cluster_size(1));
    let client = Client::builder()
        .zone("a")
        .cluster(orders)
        .originating(fleet([("a", 1), ("bb", 2)]))
        .build()
        .unwrap();
    client.ready().await.unwrap();
    let counts = async || {
        let localities = client.explain("orders").await.unwrap().localities;
        let counts: Vec<(String, u64)> = localities
            .into_iter()
            .map(|row| (row.zone, row.fleet_hosts))
            .collect();
        counts
    };
    let expected =
        |counts: [u64; 2]| vec![("a".to_owned(), counts[0]), ("bb".to_owned(), counts[1])];
    assert_eq!(counts().await, expected([1, 2]));
    let changed = fleet([("a", 3), ("bb", 1)]);
    client.update_originating(changed).await.unwrap();
    assert_eq!(counts().await, expected([3, 1]));
}
