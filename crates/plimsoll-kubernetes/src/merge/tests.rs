//! Runs the cases of `vectors/kubernetes/endpoints.json`, and properties of the merge.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::Resource;

const VECTORS: &str = include_str!("../../../../vectors/kubernetes/endpoints.json");

fn slice(json: &Value) -> EndpointSlice {
    EndpointSlice::from_json(serde_json::from_value(json.clone()).unwrap())
}

fn service(json: &Value) -> Service {
    Service::from_json(serde_json::from_value(json.clone()).unwrap())
}

fn shown(ports: &[PortEndpoints]) -> Value {
    let endpoint = |one: &Endpoint| {
        let state = match one.state {
            EndpointState::Ready => "ready",
            EndpointState::Draining => "draining",
        };
        json!({"address": one.address.to_string(), "zone": one.zone.as_deref(), "state": state})
    };
    let port = |port: &PortEndpoints| {
        let endpoints: Vec<Value> = port.endpoints.iter().map(endpoint).collect();
        json!({"name": &*port.name, "port": port.port, "http2": port.is_http2,
               "endpoints": endpoints})
    };
    ports.iter().map(port).collect()
}

#[test]
fn every_case_of_the_vectors_holds_in_any_order_of_slices() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let cases = vectors["cases"].as_array().unwrap();
    assert!(cases.len() >= 18, "{}", cases.len());
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let service = service(&case["service"]);
        let mut slices: Vec<_> = case["slices"]
            .as_array()
            .unwrap()
            .iter()
            .map(slice)
            .collect();
        let family = match case["address_family"].as_str() {
            None => AddressFamily::Auto,
            Some("IPV4") => AddressFamily::Ipv4,
            Some(_) => AddressFamily::Ipv6,
        };
        let fallback = case["fallback_zone"].as_str().map(Arc::from);
        for _ in 0..2 {
            let merged = merge(
                &service,
                slices.iter(),
                family,
                fallback.as_ref(),
                &FormerNames::new(),
            );
            assert_eq!(shown(&merged), case["ports"], "{name}");
            slices.reverse();
        }
    }
}

fn endpoints() -> impl Strategy<Value = Vec<(u8, Option<bool>, bool, bool)>> {
    let condition = prop::option::of(any::<bool>());
    prop::collection::vec((0_u8..6, condition, any::<bool>(), any::<bool>()), 0..12)
}

proptest! {
    /// Splitting endpoints over slices, and the order of slices, have no effect; addresses are
    /// distinct, and there is a ready endpoint whenever there is any.
    #[test]
    fn slices_are_one_set(written in endpoints(), cut in 0_usize..12) {
        let json = |part: &[(u8, Option<bool>, bool, bool)], name: &str| {
            let endpoints: Vec<Value> = part
                .iter()
                .map(|(host, ready, serving, terminating)| {
                    json!({"addresses": [format!("10.0.0.{host}")],
                           "conditions": {"ready": ready, "serving": serving,
                                          "terminating": terminating}})
                })
                .collect();
            slice(&json!({"metadata": {"name": name}, "addressType": "IPv4",
                          "ports": [{"name": "", "port": 80}], "endpoints": endpoints}))
        };
        let service = service(&json!({"metadata": {"name": "s"},
                                      "spec": {"ports": [{"port": 80}]}}));
        let whole = [json(&written, "all")];
        let (front, back) = written.split_at(cut.min(written.len()));
        let halves = [json(back, "b"), json(front, "a")];
        let merged = |slices: &[EndpointSlice]| {
            merge(&service, slices.iter(), AddressFamily::Auto, None, &FormerNames::new())
        };
        let together = merged(&whole);
        prop_assert_eq!(&together, &merged(&halves));
        let endpoints = &together[0].endpoints;
        prop_assert!(endpoints.windows(2).all(|two| two[0].address < two[1].address));
        let ready = |one: &Endpoint| one.state == EndpointState::Ready;
        prop_assert!(endpoints.is_empty() || endpoints.iter().any(ready));
    }
}
