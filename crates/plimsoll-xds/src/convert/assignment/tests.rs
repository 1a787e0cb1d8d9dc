//! Assignments encoded by another implementation, round trips, errors and edits.

use std::collections::BTreeMap;

use plimsoll_core::model::zone_aware::FractionSource;
use proptest::prelude::*;

use super::*;
use crate::convert::hex::{hex, message};

fn endpoint(address: &str) -> EndpointOut {
    LbEndpoint::new(address.parse().unwrap())
}

/// Content of the message `cla`.
fn assignment() -> AssignmentOut {
    let first = EndpointOut {
        hostname: "h1".into(),
        health_status: HealthStatus::Healthy,
        load_balancing_weight: Some(7),
        hash_key: Some("k1".into()),
        metadata: [("hash_key", "k1".into())].into_iter().collect(),
        ..endpoint("10.0.0.1:80")
    };
    let second = EndpointOut {
        health_status: HealthStatus::Draining,
        ..endpoint("[::1]:8080")
    };
    AssignmentOut {
        cluster_name: "up".into(),
        localities: vec![LocalityOut {
            locality: Locality::new("r", "a", ""),
            priority: 1,
            load_balancing_weight: Some(50),
            endpoints: vec![first, second],
            observed_traffic_fraction: None,
            metadata_traffic_fraction: Some(5000),
        }],
        drop_overloads: vec![DropOverloadParts {
            category: "shed".into(),
            numerator: 20,
            denominator: 10_000,
        }],
        overprovisioning_factor: Some(150),
        weighted_priority_health: true,
        endpoint_stale_after: Some(Duration::from_secs(30)),
        extras: Arc::default(),
        draining_in_metadata: false,
    }
}

#[test]
fn an_assignment_matches_another_encoder() {
    assert_eq!(encode_assignment(&assignment()), message("cla"));
}

#[test]
fn an_assignment_of_another_encoder_is_decoded() {
    let read = decode_assignment(&message("cla")).unwrap();
    let expected = assignment();
    let locality = &read.endpoints()[0];
    assert_eq!(read.cluster_name().as_ref(), "up");
    assert_eq!(locality.locality, expected.localities[0].locality);
    assert_eq!((locality.priority, locality.load_balancing_weight), (1, 50));
    assert_eq!(locality.lb_endpoints, expected.localities[0].endpoints);
    assert_eq!(read.drop_overloads()[0].per_million, 2000);
    assert_eq!(read.overprovisioning_factor(), 150);
    assert!(read.weighted_priority_health());
    let fractions = read.fractions(FractionSource::LocalityMetadata);
    let shares: Vec<_> = fractions.values().map(|share| share.get()).collect();
    assert_eq!(shares, [5000]);
    assert!(read.fractions(FractionSource::EdsField).is_empty());
}

#[test]
fn the_fraction_is_field_ten_and_zero_differs_from_unset() {
    let mut out = assignment();
    for fraction in [0, 5000] {
        out.localities[0].observed_traffic_fraction = Some(fraction);
        let read = decode_assignment(&encode_assignment(&out)).unwrap();
        let fractions = read.fractions(FractionSource::EdsField);
        let shares: Vec<_> = fractions.values().map(|share| share.get()).collect();
        assert_eq!(shares, [u64::from(fraction)]);
    }
    // {locality {}, field 10: {}} in the endpoints of an assignment.
    let bytes = encode_assignment(&AssignmentOut {
        localities: vec![LocalityOut {
            observed_traffic_fraction: Some(0),
            ..Default::default()
        }],
        ..Default::default()
    });
    assert_eq!(bytes, hex("1204 0a00 5200"));
}

#[test]
fn errors_name_the_field() {
    let place = "endpoints[0].lb_endpoints[0]";
    for (bytes, path) in [
        // No address at all; a name; UDP; port 0; a port too large; an unknown health status.
        ("1202 1200", "endpoint.address.socket_address"),
        (
            "120f 120d 0a0b 0a09 0a07 1203 666f6f 1850",
            "endpoint.address.socket_address.address",
        ),
        (
            "1211 120f 0a0d 0a0b 0a09 0801 1203 3a3a31 1850",
            "endpoint.address.socket_address.protocol",
        ),
        (
            "120d 120b 0a09 0a07 0a05 1203 3a3a31",
            "endpoint.address.socket_address.port_value",
        ),
        (
            "1211 120f 0a0d 0a0b 0a09 1203 3a3a31 18808004",
            "endpoint.address.socket_address.port_value",
        ),
        (
            "1211 120f 0a0b 0a09 0a07 1203 3a3a31 1850 1009",
            "health_status",
        ),
        (
            "1213 1211 0a0b 0a09 0a07 1203 3a3a31 1850 2202 0800",
            "load_balancing_weight",
        ),
        ("1205 1203 2a0178", "endpoint_name"),
    ] {
        let error = decode_assignment(&hex(bytes)).unwrap_err();
        assert_eq!(error.path(), format!("{place}.{path}"), "{bytes}: {error}");
    }
    for (bytes, path) in [
        ("1202 4200", "endpoints[0].leds_cluster_locality_config"),
        ("1205 5203 08914e", "endpoints[0].observed_traffic_fraction"),
        ("2205 1203 0a0178 1202 1005", "endpoints[0]"),
        (
            "2209 1207 0a0178 1202 1005",
            "policy.drop_overloads[0].drop_percentage.denominator",
        ),
        ("2204 1a02 0800", "policy.overprovisioning_factor"),
    ] {
        let error = decode_assignment(&hex(bytes)).unwrap_err();
        assert_eq!(error.path(), path, "{bytes}: {error}");
    }
}

#[test]
fn a_fraction_in_metadata_must_be_a_number() {
    let text = KindMessage::String("5000".into()).into();
    let metadata = MetadataMessage::envoy_lb(StructMessage {
        fields: BTreeMap::from([(FRACTION.to_owned(), text)]),
    });
    let message = AssignmentMessage {
        endpoints: vec![LocalityLbEndpointsMessage {
            metadata: Some(metadata),
            ..Default::default()
        }],
        ..Default::default()
    };
    let error = decode_assignment(&message.encode_to_vec()).unwrap_err();
    let path = "endpoints[0].metadata.filter_metadata[envoy.lb].observed_traffic_fraction";
    assert_eq!(error.path(), path);
}

#[test]
fn metadata_of_an_endpoint_must_have_values() {
    let value = ValueMessage::default();
    let message = AssignmentMessage {
        endpoints: vec![LocalityLbEndpointsMessage {
            lb_endpoints: vec![LbEndpointMessage {
                metadata: Some(MetadataMessage::envoy_lb(StructMessage {
                    fields: BTreeMap::from([("k".to_owned(), value)]),
                })),
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let error = decode_assignment(&message.encode_to_vec()).unwrap_err();
    let path = "endpoints[0].lb_endpoints[0].metadata.filter_metadata[envoy.lb].k";
    assert_eq!(error.path(), path);
}

/// [`assignment`] with an unknown field 77 at every level.
fn with_unknown_fields() -> Vec<u8> {
    let unknown = hex("ea0403616263");
    let mut lb_endpoint = hex("0a0b 0a09 0a07 1203 3a3a31 1850 2202 0807");
    lb_endpoint.extend_from_slice(&unknown);
    let mut locality = hex("0a03 120161 1a02 0832");
    locality.extend_from_slice(&unknown);
    plimsoll_schema::field::put_field(&mut locality, 2, &lb_endpoint);
    let mut out = hex("0a027570");
    plimsoll_schema::field::put_field(&mut out, 2, &locality);
    out.extend_from_slice(&unknown);
    out
}

#[test]
fn without_edits_nothing_changes() {
    for original in [with_unknown_fields(), message("cla")] {
        let same = rewrite_assignment(&original, &AssignmentEdits::default()).unwrap();
        assert_eq!(same, original);
    }
}

#[test]
fn edits_change_only_their_fields_and_keep_unknown_ones() {
    let edits = AssignmentEdits {
        localities: BTreeMap::from([(
            (0, Locality::zone_only("a")),
            LocalityEdit {
                load_balancing_weight: Edit::Set(9),
                observed_traffic_fraction: Edit::Set(0),
                ..Default::default()
            },
        )]),
        endpoint_weights: BTreeMap::from([("[::1]:80".parse().unwrap(), 300)]),
        ..Default::default()
    };
    let written = rewrite_assignment(&with_unknown_fields(), &edits).unwrap();
    let expected = "0a027570 122b 0a03120161 ea0403616263 1218 0a0b0a090a0712033a3a311850 \
                  ea0403616263 220308ac02 1a020809 5200 ea0403616263";
    assert_eq!(written, hex(expected));
    let read = decode_assignment(&written).unwrap();
    assert_eq!(read.endpoints()[0].load_balancing_weight, 9);
    assert_eq!(
        read.endpoints()[0].lb_endpoints[0].load_balancing_weight,
        Some(300)
    );

    let gone = AssignmentEdits {
        other_localities: LocalityEdit {
            load_balancing_weight: Edit::Remove,
            observed_traffic_fraction: Edit::Remove,
            ..Default::default()
        },
        ..Default::default()
    };
    let read = decode_assignment(&rewrite_assignment(&written, &gone).unwrap()).unwrap();
    assert_eq!(read.endpoints()[0].load_balancing_weight, 0);
    assert!(read.fractions(FractionSource::EdsField).is_empty());
}

/// The module inside Envoy reads the status there; the rest of the metadata stays.
#[test]
fn draining_endpoints_of_another_server_say_so_in_their_metadata() {
    let endpoint = |last: u8, health_status| EndpointOut {
        health_status,
        metadata: [("stage", "canary".into())].into_iter().collect(),
        ..LbEndpoint::new(([10, 0, 0, last], 80).into())
    };
    let out = |draining_in_metadata| AssignmentOut {
        cluster_name: "orders".into(),
        localities: vec![LocalityOut {
            endpoints: vec![
                endpoint(1, HealthStatus::Draining),
                endpoint(2, HealthStatus::Unhealthy),
            ],
            ..Default::default()
        }],
        draining_in_metadata,
        ..Default::default()
    };
    let original = encode_assignment(&out(false));
    let edits = AssignmentEdits {
        draining_in_metadata: true,
        ..Default::default()
    };
    let written = rewrite_assignment(&original, &edits).unwrap();
    let read = |bytes: &[u8]| AssignmentMessage::decode(bytes).unwrap();
    assert_eq!(read(&written), read(&encode_assignment(&out(true))));
    assert_ne!(written, original);
    let healthy = encode_assignment(&AssignmentOut {
        localities: Vec::new(),
        ..out(false)
    });
    assert_eq!(rewrite_assignment(&healthy, &edits).unwrap(), healthy);
}

#[test]
fn a_locality_can_get_another_priority() {
    let zone = |name: &str, priority| LocalityOut {
        locality: Locality::zone_only(name),
        priority,
        ..Default::default()
    };
    let with = |b, c| {
        let localities = vec![zone("a", 0), zone("b", b), zone("c", c)];
        let out = AssignmentOut {
            localities,
            ..assignment()
        };
        encode_assignment(&out)
    };
    let to = |priority| LocalityEdit {
        priority: Edit::Set(priority),
        ..Default::default()
    };
    let edits = AssignmentEdits {
        localities: BTreeMap::from([
            ((0, Locality::zone_only("b")), to(1)),
            ((1, Locality::zone_only("c")), to(2)),
        ]),
        ..Default::default()
    };
    let moved = rewrite_assignment(&with(0, 1), &edits).unwrap();
    let read = |bytes: &[u8]| decode_assignment(bytes).unwrap();
    assert_eq!(read(&moved), read(&with(1, 2)));
}

#[test]
fn editing_malformed_bytes_is_an_error_with_a_path() {
    let edits = AssignmentEdits::default();
    let error = rewrite_assignment(&hex("1204 1202 0aff"), &edits).unwrap_err();
    assert_eq!(error.path(), "endpoints[0].lb_endpoints[0]");
    assert!(rewrite_assignment(&[0x0a, 9], &edits).is_err());
}

/// Keys, and values of every kind.
fn metadata_of_endpoint() -> impl Strategy<Value = Vec<(Arc<str>, MetadataValue)>> {
    let leaf = prop_oneof![
        Just(MetadataValue::Null),
        any::<bool>().prop_map(MetadataValue::from),
        (-1e9..1e9).prop_map(|number| MetadataValue::number(number).unwrap()),
        "[a-z]{0,3}".prop_map(|text| MetadataValue::from(text.as_str())),
    ];
    let value = leaf.prop_recursive(2, 8, 3, |inner| {
        let fields = prop::collection::vec(("[a-zA-Z]{1,3}", inner.clone()), 0..3);
        prop_oneof![
            prop::collection::vec(inner, 0..3).prop_map(MetadataValue::list),
            fields.prop_map(|fields| MetadataValue::Struct(fields.into_iter().collect())),
        ]
    });
    let key = "[a-zA-Z]{1,3}".prop_map(Arc::from);
    prop::collection::vec((key, value), 0..3)
}

prop_compose! {
    fn localities()(
        entries in prop::collection::vec((
            0u32..3,
            prop::option::of(1u32..1000),
            prop::option::of(0u32..=10_000),
            prop::option::of(0u32..=10_000),
            prop::collection::vec(
                (
                    0i32..6,
                    prop::option::of(1u32..1000),
                    prop::option::of("[a-z]{1,4}"),
                    metadata_of_endpoint(),
                ),
                0..4,
            ),
        ), 0..5),
    ) -> Vec<LocalityOut> {
        let mut port = 0;
        entries.into_iter().enumerate().map(|(index, (priority, weight, field, metadata, hosts))| {
            LocalityOut {
                locality: Locality::new("r", &index.to_string(), ""),
                priority,
                load_balancing_weight: weight,
                endpoints: hosts.into_iter().map(|(health, weight, key, pairs)| {
                    port += 1;
                    let key = key.as_deref();
                    let hash_key = key.map(|key| (Arc::from("hash_key"), key.into()));
                    EndpointOut {
                        health_status: HealthStatus::from_number(health).unwrap(),
                        load_balancing_weight: weight,
                        hash_key: key.map(Into::into),
                        metadata: pairs.into_iter().chain(hash_key).collect(),
                        ..LbEndpoint::new(SocketAddr::from(([10, 0, 0, 1], port)))
                    }
                }).collect(),
                observed_traffic_fraction: field,
                metadata_traffic_fraction: metadata,
            }
        }).collect()
    }
}

/// Builds the core type without encoding.
fn core(out: &AssignmentOut) -> ClusterLoadAssignment {
    let endpoints = out.localities.iter().map(|entry| LocalityParts {
        locality: entry.locality.clone(),
        priority: entry.priority,
        load_balancing_weight: entry.load_balancing_weight,
        lb_endpoints: entry.endpoints.clone(),
        observed_traffic_fraction: entry.observed_traffic_fraction.map(u64::from),
        metadata_traffic_fraction: entry.metadata_traffic_fraction.map(f64::from),
        ..Default::default()
    });
    ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: out.cluster_name.to_string(),
        endpoints: endpoints.collect(),
        drop_overloads: out.drop_overloads.clone(),
        overprovisioning_factor: out.overprovisioning_factor,
        weighted_priority_health: out.weighted_priority_health,
        endpoint_stale_after: out.endpoint_stale_after,
        ..Default::default()
    })
    .unwrap()
}

proptest! {
    #[test]
    fn assignments_survive_a_round_trip(localities in localities()) {
        let out = AssignmentOut { localities, ..assignment() };
        prop_assert_eq!(decode_assignment(&encode_assignment(&out)).unwrap(), core(&out));
    }

    #[test]
    fn editing_equals_encoding_the_edited_assignment(
        localities in localities(),
        weight in 1u32..9,
        share in 0u32..=10_000,
    ) {
        let mut out = AssignmentOut { localities, ..assignment() };
        let original = encode_assignment(&out);
        let edit = LocalityEdit {
            load_balancing_weight: Edit::Set(weight),
            observed_traffic_fraction: Edit::Set(share),
            ..Default::default()
        };
        let mut edits = AssignmentEdits { other_localities: edit, ..Default::default() };
        for entry in &mut out.localities {
            entry.load_balancing_weight = Some(weight);
            entry.observed_traffic_fraction = Some(share);
            for endpoint in &mut entry.endpoints {
                endpoint.load_balancing_weight = Some(weight);
                edits.endpoint_weights.insert(endpoint.address, weight);
            }
        }
        let written = rewrite_assignment(&original, &edits).unwrap();
        prop_assert_eq!(decode_assignment(&written).unwrap(), core(&out));
    }

    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode_assignment(&noise);
        let _ = rewrite_assignment(&noise, &AssignmentEdits::default());
    }

    #[test]
    fn damaged_assignments_never_panic(at in 0usize..150, byte: u8) {
        let mut bytes = message("cla");
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = decode_assignment(&bytes);
        let _ = rewrite_assignment(&bytes, &AssignmentEdits::default());
    }
}
