//! Tests of subsets: clusters, endpoint metadata and route criteria, from the file to the encoding.

use plimsoll_core::model::metadata::{MatchCriteria, Metadata};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, ROUTE_CONFIGURATION};
use plimsoll_xds::route::Action;
use plimsoll_xds::wire::{decode_assignment, decode_cluster, decode_route_configuration};

use super::{CLASSES, NodeClass};
use crate::state::tests::driver::{Driver, fleet, parse};

const FILE: &str = "
services:
- cluster:
    name: orders
    lb_policy: RANDOM
    lb_subset_config:
      fallback_policy: ANY_ENDPOINT
      subset_selectors: [{keys: [version, stage]}]
  endpoints:
  - locality: {region: r, zone: a}
    lb_endpoints:
    - {address: '10.0.0.1:80', metadata: {filter_metadata: {envoy.lb: {version: '1', stage: prod}}}}
    - '10.0.0.2:80'
listeners:
- name: entrance
  address: 127.0.0.1:10000
  virtual_hosts:
  - name: all
    routes:
    - match: {prefix: /one}
      route:
        weighted_clusters:
          clusters:
          - {name: orders, weight: 1, metadata_match: {filter_metadata: {envoy.lb: {version: '1'}}}}
        metadata_match: &prod {filter_metadata: {envoy.lb: {stage: prod}}}
    - match: {prefix: /two}
      route: {cluster: orders, metadata_match: *prod}
    - match: {prefix: /}
      route: {cluster: orders}
";

fn metadata(pairs: &[(&str, &str)]) -> Metadata {
    let pairs = pairs.iter();
    pairs.map(|&(key, value)| (key, value.into())).collect()
}

#[test]
fn subsets_metadata_and_criteria_are_delivered() {
    let config = parse(FILE);
    let subsets = config.services["orders"].config.lb_subset_config().cloned();
    assert!(subsets.is_some());
    let mut driver = Driver::with_config(config);
    for class in CLASSES {
        let [node, ..] = fleet(class);
        let key = driver.open(&node);
        let view = driver.view(&key);
        let body = |kind, name| view.get(kind).unwrap().get(name).unwrap().body.clone();
        let cluster = decode_cluster(&body(CLUSTER, "orders")).unwrap().config;
        match class {
            // gRPC clients would reject the cluster or ignore its `lb_subset_config`.
            NodeClass::Grpc => assert_eq!(cluster.lb_subset_config(), None),
            NodeClass::Plimsoll | NodeClass::EnvoyModule | NodeClass::Envoy => {
                assert_eq!(cluster.lb_subset_config(), subsets.as_ref());
                assert_eq!(cluster.endpoint_policy().name(), "random");
            }
        }
        let assignment = body(CLUSTER_LOAD_ASSIGNMENT, "orders");
        let assignment = decode_assignment(&assignment).unwrap();
        let endpoints = &assignment.endpoints()[0].lb_endpoints;
        let both = metadata(&[("version", "1"), ("stage", "prod")]);
        assert_eq!(endpoints[0].metadata, both, "{class:?}");
        assert!(endpoints[1].metadata.is_empty());
        let routes = body(ROUTE_CONFIGURATION, "entrance");
        let routes = decode_route_configuration(&routes).unwrap();
        assert_eq!(routes.unread, [""; 0]);
        let routes = &routes.virtual_hosts()[0].routes;
        let criteria = routes.iter().map(|route| match &route.action {
            Action::Forward(action) => action.criteria(0).cloned(),
            other => panic!("{other:?}"),
        });
        let prod = MatchCriteria::new(metadata(&[("stage", "prod")]));
        let wanted = [Some(MatchCriteria::new(both)), Some(prod), None];
        assert!(criteria.eq(wanted), "{class:?}");
    }
}
