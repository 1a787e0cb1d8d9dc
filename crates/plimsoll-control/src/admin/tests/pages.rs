//! Tests of pages whose content depends on rare settings, or on several fleets.

use bytes::Bytes;

use super::*;
use crate::admin::report;
use crate::delivery::NodeClass;
use crate::relay::RelayedResource;
use crate::services::ServiceChanges;
use crate::sources::SourceId;
use crate::state::tests::driver::{self, Driver, config, fleet, parse, stats};

/// One service in two zones.
const ONE: &str = "
load_reporting: {interval: 0.1s}
services:
- cluster: {name: orders}
  endpoints:
  - locality: {region: r1, zone: a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80']
";

/// Opens a discovery stream of a proxy of each of the fleets `edge` and `gateway`.
async fn two_fleets(control: &Control) -> impl Sized + use<> {
    let mut edge = node("1", "a");
    edge.node.cluster = "edge".into();
    let edge = discover(control, edge).await;
    (edge, discover(control, node("2", "b")).await)
}

#[tokio::test]
async fn the_runbook_has_a_section_for_an_alert() {
    let control = Control::new();
    let (status, all) = control.request(Method::GET, "/runbook", "").await;
    assert!(status.is_success() && all.starts_with("# Runbook"), "{all}");
    let path = "/runbook?alert=PlimsollZoneFails";
    let (_, section) = control.request(Method::GET, path, "").await;
    assert!(section.starts_with("Page. Many more requests"), "{section}");
    assert!(!section.contains("## "), "{section}");
    let (status, error, field) = control
        .rejection(Method::GET, "/runbook?alert=Zone", "")
        .await;
    assert!(
        status == 400 && error.contains("no alert is named"),
        "{error}"
    );
    assert_eq!(field, "alert");
}

#[tokio::test]
async fn the_index_marks_paths_that_are_posted() {
    let page = Control::new().get("/").await;
    let paths = page["paths"].as_array().unwrap();
    let posted: Vec<&str> = paths
        .iter()
        .filter_map(|path| path.as_str()?.strip_suffix(" (POST)"))
        .collect();
    let expected = [
        "/api/v1/zones/drain",
        "/api/v1/zones/return",
        "/api/v1/what-if",
        "/api/v1/reload?allow_removal=false",
    ];
    assert_eq!(posted, expected);
    assert!(paths.contains(&json!("/api/v1/fleets?fleet=FLEET")));
}

#[tokio::test]
async fn a_relay_is_shown() {
    let text = "{load_reporting: {interval: 0.1s}, relay: {address: 'h:1', api_type: DELTA_GRPC}}";
    let control = Control::with(text);
    let status = control.get("/api/v1/status").await;
    assert_eq!(status["load_reporting_interval_ms"], 100);
    assert_eq!(status["relay"]["address"], "h:1");
    assert_eq!(status["relay"]["api_type"], "DELTA_GRPC");
    let (_, ready) = control.request(Method::GET, "/readyz", "").await;
    assert_eq!(ready, "ready\nrelay: 0 of 0 streams connected\n");
}

#[tokio::test]
async fn a_control_plane_is_ready_once_services_of_kubernetes_are_listed() {
    let control = Control::with("kubernetes: {api_server: 'http://127.0.0.1:1'}");
    let (status, error, _) = control.rejection(Method::GET, "/readyz", "").await;
    let expected = "services of Kubernetes have not been listed";
    assert_eq!((status, &*error), (503, expected));
    let listed = ServiceChanges::none(SourceId::Kubernetes);
    control.handle.discover(listed).await.unwrap();
    let (status, ready) = control.request(Method::GET, "/readyz", "").await;
    assert_eq!((status, &*ready), (StatusCode::OK, "ready\n"));
}

#[tokio::test]
async fn pages_are_filtered_by_fleet_and_service() {
    let control = Control::new();
    let _streams = two_fleets(&control).await;
    let load = control.get("/api/v1/load?cluster=orders&fleet=gateway");
    let load = load.await;
    let line = &load["load_lines"][0];
    assert_eq!(load["total"], 1, "{load}");
    assert_eq!(
        (&line["fleet"], &line["cluster"]),
        (&json!("gateway"), &json!("orders"))
    );
    for fleet in ["edge", "gateway"] {
        let zone = if fleet == "edge" { "a" } else { "b" };
        let path = format!("/api/v1/explain?cluster=orders&fleet={fleet}&zone={zone}");
        let line = &control.get(&path).await["load_line"];
        assert_eq!(
            (&line["fleet"], &line["cluster"]),
            (&json!(fleet), &json!("orders"))
        );
    }
    let clusters = control.get("/api/v1/clusters?cluster=orders&fleet=edge");
    let clusters = clusters.await;
    let fleets = clusters["clusters"][0]["fleets"].as_array().unwrap();
    assert_eq!((fleets.len(), &fleets[0]["fleet"]), (1, &json!("edge")));
    let nodes = control.get("/api/v1/nodes?fleet=edge").await;
    assert_eq!(
        (&nodes["total"], &nodes["nodes"][0]["id"]),
        (&json!(1), &json!("1"))
    );
}

#[tokio::test]
async fn clusters_show_endpoints_weights_and_traffic_of_their_own() {
    let (control, _open) = with_demand().await;
    let page = control.get("/api/v1/clusters").await;
    let [_, orders, trial] = &page["clusters"].as_array().unwrap()[..] else {
        panic!("{page}");
    };
    let zone = |zone: &str| json!({ "region": "r1", "zone": zone, "sub_zone": "" });
    let endpoints =
        ["a", "b"].map(|name| json!({ "locality": zone(name), "priority": 0, "endpoints": 3 }));
    assert_eq!(orders["localities"], json!(endpoints));
    assert_eq!(trial["fleets"][0]["traffic"], json!([]));
    let weights = orders["fleets"][0]["locality_weights"].as_array().unwrap();
    let receivers: Vec<_> = weights.iter().map(|one| one["receiver"].clone()).collect();
    assert_eq!(receivers, [zone("a"), zone("b")]);
    assert_eq!(orders["delivery"][0].get("subsets"), None);
}

#[test]
fn a_fleet_is_warming_up_until_its_proxies_have_reported() {
    let mut driver = Driver::new("");
    let nodes = fleet(NodeClass::Plimsoll);
    nodes.iter().for_each(|node| drop(driver.open(node)));
    let shown = |driver: &Driver| {
        let page = json!(report::fleets(&driver.state, None, driver.now));
        let fleet = &page["fleets"][0];
        assert_eq!(fleet["warming_up"] == false, fleet["withheld"].is_null());
        (fleet["warming_up"].clone(), fleet["basis"].clone())
    };
    assert_eq!(shown(&driver), (json!(true), json!("host_counts")));
    let page = json!(report::fleets(&driver.state, None, driver.now));
    let expected = "no load report has arrived since the start";
    assert_eq!(page["fleets"][0]["withheld"], expected);
    let reports: Vec<_> = nodes.iter().map(|node| (node, 100)).collect();
    driver.traffic(&reports, 5);
    assert_eq!(shown(&driver), (json!(false), json!("measured_demand")));
}

#[tokio::test]
async fn grpc_clients_do_not_get_subsets() {
    let control = Control::with(
        "services: [{cluster: {name: orders, lb_policy: RANDOM, lb_subset_config: \
         {fallback_policy: ANY_ENDPOINT, subset_selectors: [{keys: [version]}]}}}]",
    );
    let page = control.get("/api/v1/clusters").await;
    let delivery = page["clusters"][0]["delivery"].as_array().unwrap();
    let subsets: Vec<_> = delivery
        .iter()
        .map(|one| (one["class"].clone(), one["subsets"].clone()))
        .collect();
    let expected = [
        ("plimsoll", "delivered"),
        ("envoy_module", "delivered"),
        ("grpc", "ignored"),
        ("envoy", "delivered"),
    ];
    assert_eq!(
        subsets,
        expected.map(|(class, way)| (json!(class), json!(way)))
    );
}

#[tokio::test]
async fn every_fleet_has_metrics_of_its_own() {
    let control = Control::with(ONE);
    let _first = discover(&control, node("2", "b")).await;
    control.get("/api/v1/load").await;
    let (_, text) = control.request(Method::GET, "/metrics", "").await;
    let own = r#"fleet="gateway",cluster="orders",locality="r1/a""#;
    let zero = format!("plimsoll_control_demand_requests_per_second{{{own}}} 0.0");
    assert!(text.lines().any(|line| line == zero), "{text}");
    for (reason, value) in [("starting", 1), ("incomplete", 0)] {
        let own = format!("fleet=\"gateway\",reason=\"{reason}\"");
        let withheld = format!("plimsoll_control_demand_withheld{{{own}}} {value}");
        assert!(text.lines().any(|line| line == withheld), "{text}");
    }
    let _both = two_fleets(&control).await;
    // Computes the load lines of all fleets, which a scrape may leave for the next one.
    control.get("/api/v1/load").await;
    let (_, text) = control.request(Method::GET, "/metrics", "").await;
    for fleet in ["edge", "gateway"] {
        let start = format!("plimsoll_control_edge_requests_per_second{{fleet=\"{fleet}\",");
        let edges = text.lines().filter(|line| line.starts_with(&start));
        assert_eq!(edges.count(), 6, "{text}");
    }
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn nodes_and_configurations_of_replicas_are_counted() {
    let (control, _open) = with_demand_at(Control::replica().await).await;
    let (_, text) = control.request(Method::GET, "/metrics", "").await;
    for (metric, values) in [
        ("store_nodes", [("this", 2), ("other", 0)]),
        ("replicas", [("same", 1), ("other", 2)]),
    ] {
        for (label, value) in values {
            let start = format!("plimsoll_control_{metric}{{");
            let end = format!("=\"{label}\"}} {value}");
            let is = |line: &str| line.starts_with(&start) && line.ends_with(&end);
            assert!(text.lines().any(is), "{metric} {label}:\n{text}");
        }
    }
}

/// What `/api/v1/nodes` and `/api/v1/clusters` say about `orders` for proxies of the fleet.
fn deliveries_of_orders(driver: &Driver) -> [(String, Option<String>); 2] {
    let query = report::ListQuery {
        limit: 100,
        ..report::ListQuery::default()
    };
    let page = report::node_page(&driver.state, &query);
    let nodes = report::nodes(&driver.state, &page, &[], driver.now);
    let clusters = report::clusters(&driver.state, &query, driver.now);
    let nodes = serde_json::to_value(nodes).unwrap();
    let clusters = serde_json::to_value(clusters).unwrap();
    let said = |one: &Value| {
        let reason = one["reason"].as_str().map(str::to_owned);
        (one["delivery"].as_str().unwrap().to_owned(), reason)
    };
    let of_fleet = &clusters["clusters"][0]["fleets"][0]["delivery"];
    [&nodes["nodes"][0]["delivery"][0], &of_fleet[0]].map(said)
}

#[test]
fn nodes_say_zone_fails_and_without_eds() {
    let said = |delivery: &str, reason: Option<&str>| {
        let one = (delivery.to_owned(), reason.map(str::to_owned));
        [one.clone(), one]
    };
    for (class, service, steered) in [
        (NodeClass::Envoy, "", "fleet_weights"),
        (
            NodeClass::Envoy,
            "delivery: LOCALITY_WEIGHTS",
            "locality_weights",
        ),
        (NodeClass::Plimsoll, "", "eds_field"),
        (NodeClass::EnvoyModule, "", "lrs_response"),
        (NodeClass::Grpc, "", "locality_weights"),
    ] {
        let mut driver = Driver::new(service);
        let nodes = fleet(class);
        for node in &nodes {
            driver.open(node);
        }
        let mut report = |failed: u64, seconds: usize| {
            for _ in 0..seconds {
                let requests = [("a", 700), ("b", 200), ("c", 100)];
                for (node, (zone, requests)) in nodes.iter().zip(requests) {
                    let failed = if zone == "b" { failed } else { 0 };
                    let mut orders = stats("orders", requests - failed);
                    let entry = &mut orders.upstream_locality_stats[0];
                    entry.locality = Locality::zone_only(zone);
                    entry.total_error_requests = failed;
                    driver.report_stats(node, orders);
                }
                driver.advance(1000);
            }
            deliveries_of_orders(&driver)
        };
        assert_eq!(report(0, 5), said(steered, None), "{class:?}");
        let failing = said("host_counts", Some("zone_fails"));
        assert_eq!(report(200, 3), failing, "{class:?} {service}");
        assert_eq!(report(0, 40), said(steered, None), "{class:?}");
    }
    let mut driver = Driver::with_config(parse(
        "{relay: {address: 'a:1'}, services: [{cluster: {name: orders}, \
         delivery: LOCALITY_WEIGHTS}]}",
    ));
    driver.open(&driver::node(NodeClass::Envoy, "1", "a"));
    assert_eq!(
        deliveries_of_orders(&driver),
        said("locality_weights", None)
    );
    let upstream = config("");
    let mut theirs = RelayedResource::cluster_of(&upstream.services["orders"], "1");
    if let RelayedResource::Cluster { body, .. } = &mut theirs {
        *body = Bytes::from_static(b"\x0a\x06orders");
    }
    driver.state.handle_relayed(theirs, driver.now);
    driver.drain();
    let without_eds = said("as_configured", Some("without_eds"));
    assert_eq!(deliveries_of_orders(&driver), without_eds);
}
