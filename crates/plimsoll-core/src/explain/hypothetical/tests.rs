//! Tests of hypothetical hosts and demand, and of the names of zones.

use crate::model::zone_aware::FractionSource;

use super::*;

fn locality(name: &str) -> Locality {
    let parts: Vec<&str> = name.split('/').collect();
    match parts[..] {
        [zone] => Locality::zone_only(zone),
        [region, zone] => Locality::new(region, zone, ""),
        _ => panic!("{name}"),
    }
}

/// A locality of `hosts` endpoints at a priority.
fn entry((name, priority, hosts): (&str, u32, u8)) -> LocalityParts {
    let net = name.as_bytes()[name.len() - 1];
    let address = |host| SocketAddr::from(([10, 0, net, host], 80));
    LocalityParts {
        priority,
        ..LocalityParts::new(locality(name), (0..hosts).map(address))
    }
}

fn assignment(entries: &[(&str, u32, u8)]) -> ClusterLoadAssignment {
    let parts = AssignmentParts::new("orders", entries.iter().copied().map(entry));
    ClusterLoadAssignment::try_new(parts).unwrap()
}

fn hosts(zones: &[(&str, u32)]) -> BTreeMap<String, u32> {
    let zone = |&(zone, hosts): &(&str, u32)| (zone.to_owned(), hosts);
    zones.iter().map(zone).collect()
}

fn rates(zones: &[(&str, f64)]) -> BTreeMap<String, f64> {
    let zone = |&(zone, rate): &(&str, f64)| (zone.to_owned(), rate);
    zones.iter().map(zone).collect()
}

fn sizes(assignment: &ClusterLoadAssignment) -> Vec<(String, usize)> {
    let entries = assignment.endpoints().iter();
    let size = |entry: &LocalityLbEndpoints| (entry.locality.to_string(), entry.lb_endpoints.len());
    entries.map(size).collect()
}

fn rows<T: Copy>(rows: &[(&str, T)]) -> Vec<(String, T)> {
    rows.iter()
        .map(|&(zone, value)| (locality(zone).to_string(), value))
        .collect()
}

#[test]
fn hypothetical_hosts_replace_those_of_the_first_priority() {
    let upstream = assignment(&[("a", 0, 3), ("b", 0, 2), ("c", 1, 4)]);
    assert_eq!(resized(&upstream, &hosts(&[])).unwrap(), upstream);
    let changed = resized(&upstream, &hosts(&[("b", 5), ("d", 1)])).unwrap();
    assert_eq!(sizes(&changed), rows(&[("a", 3), ("b", 5), ("d", 1)]));
    assert_eq!(&**changed.cluster_name(), "orders");
    let entries = changed.endpoints().iter();
    let addresses = entries.flat_map(|entry| &entry.lb_endpoints);
    let expected = (0..9_u8).map(|host| SocketAddr::from(([240, 0, 0, host], 1)));
    assert!(addresses.map(|endpoint| endpoint.address).eq(expected));
}

#[test]
fn hypothetical_hosts_are_limited_in_sum() {
    let upstream = assignment(&[("a", 0, 1)]);
    let most = resized(&upstream, &hosts(&[("a", 60_000), ("b", 40_000)])).unwrap();
    assert_eq!(sizes(&most), rows(&[("a", 60_000), ("b", 40_000)]));
    let more = resized(&upstream, &hosts(&[("a", 60_000), ("b", 40_001)]));
    let reason = "100001 hosts exceed the limit of 100000";
    assert_eq!(more, Err(FieldError::new("hosts", reason)));
}

#[test]
fn hypothetical_demand_is_zero_in_zones_that_are_not_listed() {
    let fleet = assignment(&[("a", 0, 1), ("b", 0, 1)]);
    let fractions = |demand: &[(&str, f64)]| {
        let found = requested_demand(&fleet, &rates(demand))?;
        let row = |(zone, share): (Locality, u64)| (zone.to_string(), share);
        Ok(found.into_iter().map(row).collect::<Vec<_>>())
    };
    let error = |field: &str, reason: &str| Err(FieldError::new(field, reason));
    for (demand, expected) in [
        (
            &[("b", 1.0), ("c", 3.0)][..],
            Ok(rows(&[("a", 0), ("b", 2500), ("c", 7500)])),
        ),
        (
            &[("a", 0.0), ("b", 2.0)],
            Ok(rows(&[("a", 0), ("b", 10_000)])),
        ),
        (
            &[("a", 0.0)],
            error("demand", "must be above zero in at least one zone"),
        ),
        (
            &[("a", 1.0), ("b", -1.0)],
            error("demand.b", "must be a number of at least 0, not -1"),
        ),
        (
            &[("a", f64::INFINITY)],
            error("demand.a", "must be a number of at least 0, not inf"),
        ),
    ] {
        assert_eq!(fractions(demand), expected, "{demand:?}");
    }
    let named_twice = assignment(&[("r/a", 0, 1)]);
    let twice = requested_demand(&named_twice, &rates(&[("a", 1.0), ("r/a", 1.0)]));
    assert_eq!(
        twice,
        Err(FieldError::new(
            "demand.r/a",
            "is the same zone as another entry"
        ))
    );
}

#[test]
fn fractions_are_set_as_field_and_as_metadata_also_in_new_zones() {
    let fleet = assignment(&[("a", 0, 2), ("b", 0, 1)]);
    let zones = ["a", "c"].map(locality).into_iter().zip([4000, 6000]);
    let originating = originating(&fleet, zones.collect()).unwrap();
    assert_eq!(sizes(&originating), rows(&[("a", 2), ("b", 1), ("c", 0)]));
    assert_eq!(&**originating.cluster_name(), "fleet");
    for source in [FractionSource::EdsField, FractionSource::LocalityMetadata] {
        let fractions = originating.fractions(source);
        let found = fractions
            .iter()
            .map(|(zone, bp)| (zone.to_string(), bp.get()));
        assert_eq!(found.collect::<Vec<_>>(), rows(&[("a", 4000), ("c", 6000)]));
    }
}

#[test]
fn zones_are_found_by_name_or_created() {
    let one_region = ["r/a", "r/b"].map(locality);
    let two_regions = ["r/a", "s/a", "s/b"].map(locality);
    let error = |reason: &str| Err(FieldError::new("hosts.x", reason));
    for (known, name, expected) in [
        (&one_region[..], "a", Ok(locality("r/a"))),
        (&one_region, "r/b", Ok(locality("r/b"))),
        (&one_region, "c", Ok(locality("r/c"))),
        (&one_region, "s/c", Ok(locality("s/c"))),
        (&one_region, "s/c/1", Ok(Locality::new("s", "c", "1"))),
        (&one_region, "s/c/1/2", error("is not region/zone/sub_zone")),
        (&one_region, "s//1", error("has an empty part")),
        (&two_regions, "a", error("is ambiguous: r/a or s/a")),
        (&two_regions, "s/a", Ok(locality("s/a"))),
        (&two_regions, "b", Ok(locality("s/b"))),
        (&two_regions, "c", Ok(locality("c"))),
    ] {
        let known = KnownLocalities::new(known.iter());
        assert_eq!(known.find_or_create("hosts.x", name), expected, "{name}");
    }
}
