//! Tests of assignment validation: every error names its field, and the order is canonical.

use super::*;

fn endpoint(last: u8, port: u16) -> LbEndpoint {
    LbEndpoint::new(SocketAddr::from(([10, 0, 0, last], port)))
}

fn entry(zone: &str, priority: u32, hosts: &[u8]) -> LocalityParts {
    LocalityParts {
        locality: Locality::zone_only(zone),
        priority,
        lb_endpoints: hosts.iter().map(|&host| endpoint(host, 80)).collect(),
        ..Default::default()
    }
}

fn parts(endpoints: Vec<LocalityParts>) -> AssignmentParts {
    AssignmentParts {
        cluster_name: "orders".into(),
        endpoints,
        ..Default::default()
    }
}

fn error(endpoints: Vec<LocalityParts>) -> String {
    ClusterLoadAssignment::try_new(parts(endpoints))
        .unwrap_err()
        .to_string()
}

#[test]
fn order_of_entries_and_endpoints_does_not_matter() {
    let one = parts(vec![
        entry("b", 0, &[3, 1]),
        entry("a", 1, &[7]),
        entry("a", 0, &[5]),
    ]);
    let other = parts(vec![
        entry("a", 0, &[5]),
        entry("b", 0, &[1, 3]),
        entry("a", 1, &[7]),
    ]);
    let one = ClusterLoadAssignment::try_new(one).unwrap();
    assert_eq!(one, ClusterLoadAssignment::try_new(other).unwrap());
    let order: Vec<_> = one
        .endpoints()
        .iter()
        .map(|e| (e.priority, e.locality.to_string()))
        .collect();
    assert_eq!(order, [(0, "a".into()), (0, "b".into()), (1, "a".into())]);
}

#[test]
fn entries_of_one_locality_are_joined() {
    let entries = vec![entry("a", 0, &[2]), entry("a", 0, &[1])];
    let joined = ClusterLoadAssignment::try_new(parts(entries)).unwrap();
    assert_eq!(joined.endpoints().len(), 1);
    assert_eq!(joined.endpoints()[0].lb_endpoints.len(), 2);
    let mut heavy = entry("a", 0, &[2]);
    heavy.load_balancing_weight = Some(3);
    assert_eq!(
        error(vec![entry("a", 0, &[1]), heavy]),
        "endpoints[1].load_balancing_weight: 3 contradicts another entry of a"
    );
}

#[test]
fn duplicate_addresses_are_rejected() {
    assert_eq!(
        error(vec![entry("a", 0, &[1, 2]), entry("b", 1, &[9, 2])]),
        "endpoints[1].lb_endpoints[1].endpoint.address: 10.0.0.2:80 is already \
         endpoints[0].lb_endpoints[1]"
    );
    // Duplicates are found also if every entry is sorted: across entries and within one entry.
    assert_eq!(
        error(vec![entry("a", 0, &[1, 2, 7]), entry("b", 1, &[2, 9])]),
        "endpoints[1].lb_endpoints[0].endpoint.address: 10.0.0.2:80 is already \
         endpoints[0].lb_endpoints[1]"
    );
    assert_eq!(
        error(vec![entry("a", 0, &[]), entry("b", 0, &[1, 3, 3])]),
        "endpoints[1].lb_endpoints[2].endpoint.address: 10.0.0.3:80 is already \
         endpoints[1].lb_endpoints[1]"
    );
}

#[test]
fn weights_are_at_least_one_and_their_sums_fit() {
    let mut zero = entry("a", 0, &[1]);
    zero.load_balancing_weight = Some(0);
    assert_eq!(
        error(vec![zero]),
        "endpoints[0].load_balancing_weight: must be at least 1 when set"
    );
    let mut zero = entry("a", 0, &[1, 2]);
    zero.lb_endpoints[1].load_balancing_weight = Some(0);
    assert_eq!(
        error(vec![zero]),
        "endpoints[0].lb_endpoints[1].load_balancing_weight: must be at least 1 when set"
    );
    let mut hosts = entry("a", 0, &[1, 2]);
    for endpoint in &mut hosts.lb_endpoints {
        endpoint.load_balancing_weight = Some(u32::MAX);
    }
    assert!(error(vec![hosts]).starts_with("endpoints[a].lb_endpoints: sum"));
    let heavy = |zone, host| {
        let mut heavy = entry(zone, 0, &[host]);
        heavy.load_balancing_weight = Some(u32::MAX);
        heavy
    };
    assert!(error(vec![heavy("a", 1), heavy("b", 2)]).contains("does not fit 32 bits"));
}

#[test]
fn fractions_keep_presence_and_are_range_checked() {
    let mut zero = entry("a", 0, &[1]);
    zero.observed_traffic_fraction = Some(0);
    let assignment =
        ClusterLoadAssignment::try_new(parts(vec![zero.clone(), entry("b", 0, &[2])])).unwrap();
    let fractions = assignment.fractions(FractionSource::EdsField);
    assert_eq!(
        fractions.get(&Locality::zone_only("a")),
        Some(&BasisPoints::ZERO)
    );
    assert_eq!(fractions.get(&Locality::zone_only("b")), None);
    assert!(
        assignment
            .fractions(FractionSource::LocalityMetadata)
            .is_empty()
    );

    zero.observed_traffic_fraction = Some(10_001);
    assert_eq!(
        error(vec![zero.clone()]),
        "endpoints[0].observed_traffic_fraction: 10001 is above 10000 basis points"
    );
    let mut other = entry("a", 1, &[2]);
    zero.observed_traffic_fraction = Some(1);
    other.observed_traffic_fraction = Some(2);
    assert!(error(vec![zero, other]).contains("contradicts 1 of another entry of a"));
}

#[test]
fn metadata_fractions_are_whole_numbers() {
    let with = |value| {
        let mut entry = entry("a", 0, &[1]);
        entry.metadata_traffic_fraction = Some(value);
        ClusterLoadAssignment::try_new(parts(vec![entry]))
    };
    let good = with(3500.0).unwrap();
    let fractions = good.fractions(FractionSource::LocalityMetadata);
    assert_eq!(fractions[&Locality::zone_only("a")].get(), 3500);
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.5, 1e300, 10_001.0] {
        let error = with(bad).unwrap_err();
        assert!(
            error.path().starts_with("endpoints[0].metadata"),
            "{bad}: {error}"
        );
    }
}

#[test]
fn policy_and_ports_are_checked() {
    let with = |change: &dyn Fn(&mut AssignmentParts)| {
        let mut parts = parts(vec![entry("a", 0, &[1])]);
        change(&mut parts);
        ClusterLoadAssignment::try_new(parts).map(|a| a.drop_overloads().to_vec())
    };
    let error = with(&|p| p.overprovisioning_factor = Some(0)).unwrap_err();
    assert_eq!(error.path(), "policy.overprovisioning_factor");
    let error = with(&|p| p.endpoints[0].priority = 129).unwrap_err();
    assert_eq!(error.to_string(), "endpoints[0].priority: 129 is above 128");
    let error = with(&|p| p.endpoints[0].lb_endpoints[0].address.set_port(0)).unwrap_err();
    assert_eq!(
        error.path(),
        "endpoints[0].lb_endpoints[0].endpoint.address"
    );

    let drop = |category: &str, numerator, denominator| DropOverloadParts {
        category: category.into(),
        numerator,
        denominator,
    };
    let drops = with(&|p| p.drop_overloads = vec![drop("lb", 5, 100), drop("x", 300, 100)]);
    let per_million: Vec<_> = drops.unwrap().iter().map(|d| d.per_million).collect();
    assert_eq!(per_million, [50_000, 1_000_000]);
    let error = with(&|p| p.drop_overloads = vec![drop("", 5, 100)]).unwrap_err();
    assert_eq!(error.path(), "policy.drop_overloads[0].category");
    let error = with(&|p| p.drop_overloads = vec![drop("lb", 5, 7)]).unwrap_err();
    assert_eq!(
        error.path(),
        "policy.drop_overloads[0].drop_percentage.denominator"
    );
}

#[test]
fn an_empty_assignment_is_valid() {
    let empty = ClusterLoadAssignment::try_new(AssignmentParts::default()).unwrap();
    assert!(empty.endpoints().is_empty());
    assert_eq!(empty.overprovisioning_factor(), 140);
}

#[test]
fn fraction_changes_leave_hosts_unchanged() {
    let mut with = entry("a", 0, &[1]);
    with.observed_traffic_fraction = Some(5000);
    let with = ClusterLoadAssignment::try_new(parts(vec![with])).unwrap();
    let without = ClusterLoadAssignment::try_new(parts(vec![entry("a", 0, &[1])])).unwrap();
    assert!(with.same_hosts(&without));
    assert_ne!(with, without);
    let moved = ClusterLoadAssignment::try_new(parts(vec![entry("b", 0, &[1])])).unwrap();
    assert!(!with.same_hosts(&moved));
}
