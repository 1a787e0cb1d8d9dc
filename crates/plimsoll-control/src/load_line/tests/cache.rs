//! Tests of the cache of routing shares: when they are computed again, and when they are dropped.

use std::time::Duration;

use plimsoll_xds::ads::Variant;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::driver::{AdsHandler, AdsOpening};

use super::*;
use crate::config::ControlConfig;
use crate::run::{Bound, Context};
use crate::server::{Discovery, start};

/// Two services with this mode, and a cache of their shares.
fn two_services(mode: &str) -> Driver {
    let service = |name| {
        format!(
            "{{cluster: {{name: {name}, common_lb_config: {{zone_aware_lb_config: \
             {{min_cluster_size: 1}}}}}}, mode: {mode}, {}}}",
            driver::ENDPOINTS
        )
    };
    let [carts, orders] = ["carts", "orders"].map(service);
    let head = driver::HEAD;
    Driver::with_config(driver::parse(&format!(
        "{head}services: [{carts}, {orders}]"
    )))
}

/// Reports requests of zones a, b and c to each service.
fn report(driver: &mut Driver, carts: [u64; 3], orders: [u64; 3]) {
    let nodes = fleet(NodeClass::Envoy);
    for _ in 0..5 {
        driver.advance(1000);
        for (node, (carts, orders)) in nodes.iter().zip(carts.into_iter().zip(orders)) {
            driver.report(node, "carts", carts);
            driver.report(node, "orders", orders);
        }
    }
}

/// Checks that cached shares are those of an empty cache, and returns the lines.
fn current(driver: &Driver, cache: &ShareCache) -> Vec<LoadLine> {
    let cached = lines(driver, cache);
    assert_eq!(cached, lines(driver, &ShareCache::default()));
    cached
}

#[test]
fn shares_follow_demand_proxies_and_settings() {
    let mut driver = two_services("SHADOW");
    for node in &fleet(NodeClass::Envoy) {
        driver.open(node);
    }
    let cache = ShareCache::default();
    let mut seen = vec![current(&driver, &cache)];
    report(&mut driver, [50, 35, 15], [40, 40, 40]);
    seen.push(current(&driver, &cache));
    // The demand of the fleet stays the same, that of its services does not.
    report(&mut driver, [20, 35, 45], [70, 40, 10]);
    seen.push(current(&driver, &cache));
    // More proxies in one zone.
    for id in 0..3 {
        driver.open(&driver::node(NodeClass::Envoy, &id.to_string(), "c"));
    }
    driver.advance(1000);
    report(&mut driver, [20, 35, 45], [70, 40, 10]);
    seen.push(current(&driver, &cache));
    let mut config = ControlConfig::clone(driver.state.config());
    let service = Arc::make_mut(&mut config.services)
        .get_mut("orders")
        .unwrap();
    Arc::make_mut(service).mode = Mode::Enforce;
    driver.reload(Arc::new(config));
    seen.push(current(&driver, &cache));
    let changes = seen.windows(2).filter(|pair| pair[0] != pair[1]);
    assert_eq!(changes.count(), seen.len() - 1);
}

#[test]
fn shares_of_fleets_and_services_that_are_gone_are_dropped() {
    let mut driver = two_services("SHADOW");
    let mut keys = Vec::new();
    for fleet in ["edge", "gateway"] {
        let mut info = driver::node(NodeClass::Envoy, fleet, "a");
        info.node.cluster = fleet.into();
        keys.push((driver.open(&info), info));
    }
    let cache = ShareCache::default();
    let known = |driver: &Driver| {
        cache.refresh_now(&driver.state, driver.now);
        let pairs = ["edge", "gateway"]
            .into_iter()
            .flat_map(|fleet| ["carts", "orders"].map(|name| (fleet, name)));
        let is_known =
            |(fleet, name): &(&str, &str)| cache.get(&((*fleet).into(), (*name).into())).is_some();
        pairs.filter(is_known).collect::<Vec<_>>()
    };
    assert_eq!(known(&driver).len(), 4);
    let mut config = ControlConfig::clone(driver.state.config());
    Arc::make_mut(&mut config.services).remove("carts");
    driver.reload(Arc::new(config));
    assert_eq!(known(&driver), [("edge", "orders"), ("gateway", "orders")]);
    let (key, info) = &keys[0];
    driver.close(info);
    driver.state.handle_output_unused(key);
    driver.advance(60_000);
    assert_eq!(known(&driver), [("gateway", "orders")]);
}

#[test]
fn every_fleet_has_its_own_shares() {
    let mut driver = two_services("SHADOW");
    let in_fleet = |(fleet, zone): (&str, &str)| {
        let mut info = driver::node(NodeClass::Envoy, zone, zone);
        info.node.cluster = fleet.into();
        info
    };
    let edge = ("edge", "a");
    let nodes = [edge, ("gateway", "a"), ("gateway", "b"), ("gateway", "c")].map(in_fleet);
    for node in &nodes {
        driver.open(node);
    }
    driver.traffic(&nodes.each_ref().map(|node| (node, 50)), 3);
    let all = lines(&driver, &ShareCache::default());
    let local = |fleet: &str| {
        let of = |line: &&LoadLine| &*line.fleet == fleet && &*line.cluster == "orders";
        let line = all.iter().find(of).unwrap();
        let zones = &line.now.as_ref().unwrap().zones;
        zones
            .iter()
            .filter_map(|zone| zone.kept_local)
            .collect::<Vec<_>>()
    };
    // The only zone with proxies has 30 % of the capacity.
    let [edge] = local("edge")[..] else {
        panic!("{all:?}");
    };
    assert!((edge - 0.3).abs() < 0.01, "{edge}");
    assert!(
        local("gateway")
            .iter()
            .any(|kept| (kept - 0.9).abs() < 0.01)
    );
}

/// A control plane with six services; returns it with the stream of a proxy.
async fn context() -> (Context, impl Sized) {
    let names = ["s1", "s2", "s3", "s4", "s5", "s6"];
    let service = |name| format!("{{cluster: {{name: {name}}}, {}}}", driver::ENDPOINTS);
    let text = format!("services: [{}]", names.map(service).join(", "));
    let (writer, handle) = start(driver::parse(&text));
    tokio::spawn(writer.run());
    let opening = AdsOpening {
        node: NodeMessage {
            info: driver::node(NodeClass::Envoy, "1", "a"),
            raw: Default::default(),
        },
        variant: Variant::Delta,
        peer: None,
        identity: None,
        returning: false,
    };
    let discovery = Discovery::new(handle.clone());
    let stream = AdsHandler::open(&discovery, opening).await.unwrap();
    let bound = Bound {
        xds: "127.0.0.1:18000".parse().unwrap(),
        admin: None,
        read_only: None,
    };
    (Context::new(handle, bound), stream)
}

#[tokio::test]
async fn at_least_one_service_is_computed_within_any_budget() {
    let (context, _stream) = context().await;
    let computed = || {
        let names = (1..=6).map(|number| format!("s{number}"));
        let key = |name: String| ("gateway".into(), name.into());
        let known = names.filter(|name| context.shares.get(&key(name.clone())).is_some());
        known.count()
    };
    for expected in 1..=2 {
        context.load_lines(Duration::ZERO).await.unwrap();
        assert_eq!(computed(), expected);
    }
    let lines = context.load_lines(Duration::from_secs(600)).await.unwrap();
    assert_eq!(computed(), 6);
    assert_eq!(lines.iter().count(), 6);
    for (name, found) in [("s3", Some("s3")), ("s7", None)] {
        let line = lines.get("gateway", name);
        assert_eq!(line.map(|line| &*line.cluster), found);
    }
    assert_eq!(lines.get("edge", "s3"), None);
}
