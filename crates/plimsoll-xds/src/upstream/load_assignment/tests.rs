//! DNS names, addresses, and validation.

use super::*;
use crate::upstream::DnsOptions;

fn endpoint(host: &str, port: u16) -> NamedEndpoint {
    NamedEndpoint {
        host: host.to_owned(),
        port,
        hostname: "".into(),
        health_status: HealthStatus::Unknown,
        load_balancing_weight: None,
        hash_key: None,
        metadata: Metadata::default(),
        extras: EndpointExtras::default(),
    }
}

fn assignment(endpoints: Vec<NamedEndpoint>) -> LoadAssignment {
    LoadAssignment {
        cluster_name: "c".into(),
        endpoints: vec![NamedLocality {
            endpoints,
            ..NamedLocality::new(Locality::default())
        }],
        ..Default::default()
    }
}

fn ip(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

#[test]
fn every_address_of_a_name_is_one_endpoint() {
    let list = assignment(vec![
        endpoint("a.example", 80),
        endpoint("b.example", 80),
        endpoint("10.0.0.9", 80),
        endpoint("gone.example", 80),
    ]);
    let names: Vec<_> = list.names().into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["a.example", "b.example", "gone.example"]);
    let (a, b) = ([ip(1), ip(2)], [ip(2), ip(3)]);
    let resolved = list
        .resolve(|name| match name {
            "a.example" => &a,
            "b.example" => &b,
            _ => &[],
        })
        .unwrap();
    let hosts: Vec<_> = resolved.assignment.endpoints()[0]
        .lb_endpoints
        .iter()
        .map(|endpoint| (endpoint.address.ip(), endpoint.hostname.as_ref()))
        .collect();
    let expected = [
        (ip(1), "a.example"),
        (ip(2), "a.example"),
        (ip(3), "b.example"),
        (ip(9), ""),
    ];
    assert_eq!(hosts, expected);
}

#[test]
fn the_discovery_type_decides_which_hosts_are_valid() {
    let dns = || DnsOptions::default();
    let named = assignment(vec![endpoint("a.example", 80)]);
    assert!(named.check(&Discovery::StrictDns(dns())).is_ok());
    assert!(named.check(&Discovery::LogicalDns(dns())).is_ok());
    assert_eq!(
        named.check(&Discovery::Static).unwrap_err().path(),
        "endpoints[0].lb_endpoints[0].endpoint.address.socket_address.address"
    );
    let two = assignment(vec![endpoint("a.example", 80), endpoint("b.example", 80)]);
    assert!(two.check(&Discovery::StrictDns(dns())).is_ok());
    let error = two.check(&Discovery::LogicalDns(dns())).unwrap_err();
    assert_eq!(error.path(), "endpoints");
    let twice = assignment(vec![endpoint("10.0.0.1", 80), endpoint("10.0.0.1", 80)]);
    assert!(twice.check(&Discovery::Static).is_err());
    let error = LoadAssignment::default().check(&Discovery::Static);
    assert_eq!(error.unwrap_err().path(), "cluster_name");
}

#[test]
fn extras_are_kept_by_resolved_address() {
    let (mut listed, mut named) = (endpoint("10.0.0.1", 80), endpoint("a.example", 80));
    listed.extras.health_check_port = Some(81);
    named.extras.health_check_port = Some(82);
    let list = assignment(vec![listed, named, endpoint("10.0.0.9", 80)]);
    let found = [ip(2), ip(3)];
    let extras = list.resolve(|_| &found).unwrap().extras;
    let ports: Vec<_> = extras
        .iter()
        .map(|(address, extras)| (address.ip(), extras.health_check_port))
        .collect();
    let expected = [(ip(1), Some(81)), (ip(2), Some(82)), (ip(3), Some(82))];
    assert_eq!(ports, expected);
}
