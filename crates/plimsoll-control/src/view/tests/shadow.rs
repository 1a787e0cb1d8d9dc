//! Tests that SHADOW acts on nothing: it sends what OFF sends, and nothing when demand moves.

use super::*;
use crate::state::tests::driver::{ENDPOINTS, HEAD, parse};

/// Endpoints in zones with weights of their own.
const WEIGHTED: &str = "endpoints: [\
    {locality: {zone: a}, load_balancing_weight: 7, lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80']}, \
    {locality: {zone: b}, load_balancing_weight: 2, lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80']}, \
    {locality: {zone: c}, load_balancing_weight: 1, lb_endpoints: ['10.0.2.1:80']}]";

/// Returns the cluster and the assignments that a proxy of each class and zone is sent.
fn sent(driver: &Driver, keys: &[ViewKey]) -> Vec<Vec<Vec<u8>>> {
    let of = |key: &ViewKey| {
        let view = driver.view(key);
        [CLUSTER, CLUSTER_LOAD_ASSIGNMENT]
            .into_iter()
            .flat_map(|kind| view.get(kind).unwrap().iter())
            .map(|one| one.body.to_vec())
            .collect()
    };
    keys.iter().map(of).collect()
}

/// A fleet of all classes whose demand is known.
fn measured(cluster: &str, mode: &str, endpoints: &str) -> (Driver, Vec<ViewKey>) {
    let mut driver = Driver::with_config(parse(&format!(
        "{HEAD}services: [{{cluster: {{name: orders, {cluster}}}, mode: {mode}, {endpoints}}}]"
    )));
    let nodes: Vec<_> = CLASSES.into_iter().flat_map(fleet).collect();
    let keys = nodes.iter().map(|node| driver.open(node)).collect();
    report(&mut driver, [500, 350, 150]);
    (driver, keys)
}

fn report(driver: &mut Driver, requests: [u64; 3]) {
    let nodes: Vec<_> = CLASSES.into_iter().flat_map(fleet).collect();
    let requests = requests.into_iter().cycle();
    let traffic: Vec<_> = nodes.iter().zip(requests).collect();
    driver.traffic(&traffic, 5);
}

#[test]
fn shadow_sends_what_off_sends() {
    for cluster in policies() {
        for endpoints in [ENDPOINTS, WEIGHTED] {
            let [shadow, off] = ["SHADOW", "'OFF'"].map(|mode| {
                let (driver, keys) = measured(&cluster, mode, endpoints);
                sent(&driver, &keys)
            });
            assert_eq!(shadow, off, "{cluster}");
        }
    }
}

#[test]
fn nothing_is_sent_in_shadow_when_demand_moves() {
    for cluster in policies() {
        let (mut driver, keys) = measured(&cluster, "SHADOW", WEIGHTED);
        let before = sent(&driver, &keys);
        let told = CLASSES.map(|class| driver.told(class));
        for key in &keys {
            driver.publications(key);
        }
        report(&mut driver, [50, 900, 400]);
        assert_eq!(sent(&driver, &keys), before, "{cluster}");
        for key in &keys {
            assert_eq!(driver.publications(key), 0, "{cluster} to {key:?}");
        }
        assert_eq!(CLASSES.map(|class| driver.told(class)), told, "{cluster}");
    }
}

#[test]
fn the_same_demand_is_sent_if_a_service_uses_it() {
    let (mut driver, keys) = measured("lb_policy: LEAST_REQUEST", "ENFORCE", WEIGHTED);
    let before = sent(&driver, &keys);
    report(&mut driver, [50, 900, 400]);
    assert_ne!(sent(&driver, &keys), before);
}
