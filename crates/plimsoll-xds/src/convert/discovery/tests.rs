//! Discovery messages encoded by protobuf for Python, and round trips.

use proptest::prelude::*;

use super::*;
use crate::convert::hex::hex;

/// Node with metadata, extensions and a build version.
const NODE: &str = "0a026e31 1205666c656574 1a0a0a080a016b12031a0176 2203120161 3205656e766f79 \
                    42060a0408011028 4a060a0178120179 520166";

fn bytes(parts: &[&str]) -> Bytes {
    hex(&parts.concat()).into()
}

fn arcs(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|&name| name.into()).collect()
}

fn nack() -> Option<ErrorDetail> {
    Some(ErrorDetail {
        code: 3,
        message: "no".into(),
    })
}

#[test]
fn a_sotw_request_of_another_encoder() {
    let input = bytes(&[
        "0a027631 1236",
        NODE,
        "1a0161 1a0162 220174 2a0137 3206080312026e6f",
    ]);
    let read = decode_discovery_request(input.clone()).unwrap();
    let node = read.node.clone().unwrap();
    assert_eq!(node.raw, hex(NODE), "kept for passing on");
    assert_eq!(node.info.node.id.as_ref(), "n1");
    assert_eq!(node.info.node.locality.zone(), "a");
    assert_eq!(node.info.user_agent_version, "1.40.0");
    let wanted = DiscoveryRequest {
        node: Some(node),
        type_url: "t".into(),
        version_info: "v1".into(),
        response_nonce: "7".into(),
        resource_names: arcs(&["a", "b"]),
        error_detail: nack(),
    };
    assert_eq!(read, wanted);
    assert_eq!(encode_discovery_request(&read), input, "byte for byte");
}

#[test]
fn a_sotw_response_of_another_encoder() {
    // With `canary` and `control_plane`, which are ignored.
    let input = bytes(&["0a027631 12080a017412030a0161 1801 220174 2a0137 32040a026370"]);
    let read = decode_discovery_response(input.clone()).unwrap();
    let body = read.resources[0].value.clone();
    assert_eq!(body, [0x0a, 1, b'a'][..]);
    let inside = input.as_ptr_range().contains(&body.as_ptr());
    assert!(inside, "a slice of the input, not a copy");
    let written = encode_discovery_response(&read);
    assert_eq!(written, hex("0a027631 220174 2a0137 12080a017412030a0161"));
    assert_eq!(decode_discovery_response(written).unwrap(), read);
}

#[test]
fn a_response_is_the_concatenation_of_head_and_resources() {
    let any = |name: &str| Any {
        type_url: "t".into(),
        value: Bytes::copy_from_slice(name.as_bytes()),
    };
    let mut response = DiscoveryResponse {
        type_url: "t".into(),
        version_info: "v".into(),
        nonce: "n".into(),
        resources: Vec::new(),
    };
    let head = encode_discovery_response(&response);
    response.resources = vec![any("x"), any("")];
    let elements = response.resources.iter().map(encode_any);
    let sum: Vec<u8> = [head].into_iter().chain(elements).flatten().collect();
    assert_eq!(encode_discovery_response(&response), sum);
    assert_eq!(decode_discovery_response(sum.into()).unwrap(), response);
}

#[test]
fn an_incremental_request_of_another_encoder() {
    let input = bytes(&[
        "0a040a026e31 120174 1a0161 220162 2a070a016312027630 2a070a016412027631 320137 \
         3a06080312026e6f",
    ]);
    let read = decode_delta_discovery_request(input.clone()).unwrap();
    assert_eq!(read.resource_names_subscribe, arcs(&["a"]));
    assert_eq!(read.resource_names_unsubscribe, arcs(&["b"]));
    let versions: Vec<_> = read.initial_resource_versions.iter().collect();
    assert_eq!(
        versions,
        [
            (&"c".into(), &"v0".to_owned()),
            (&"d".into(), &"v1".to_owned())
        ]
    );
    assert_eq!(read.error_detail, nack());
    assert_eq!(encode_delta_discovery_request(&read), input);
}

#[test]
fn an_incremental_response_of_another_encoder() {
    let input = bytes(&[
        "0a0173 12110a02763112080a017412030a01611a0161 12070a0276321a0165 220174 2a0137 32017a",
    ]);
    let read = decode_delta_discovery_response(input).unwrap();
    assert_eq!(read.resources[0].name.as_ref(), "a");
    assert_eq!(read.resources[1].resource, None);
    assert_eq!(read.removed_resources, arcs(&["z"]));
    let written = encode_delta_discovery_response(&read);
    assert_eq!(
        decode_delta_discovery_response(written.clone()).unwrap(),
        read
    );
    let head = DeltaDiscoveryResponse {
        resources: Vec::new(),
        ..read.clone()
    };
    let head = encode_delta_discovery_response(&head);
    let elements = read.resources.iter().map(encode_delta_resource);
    let sum: Vec<u8> = [head].into_iter().chain(elements).flatten().collect();
    assert_eq!(written, sum);
}

#[test]
fn names_are_field_one_also_inside_wrappers() {
    let wrapped = hex("0a0176 12090a017412040a026162");
    assert_eq!(
        resource_name("t", &[0x0a, 2, b'a', b'b']).as_deref(),
        Some("ab")
    );
    assert_eq!(resource_name(RESOURCE, &wrapped).as_deref(), Some("ab"));
    let named = hex("0a0176 1a0178 12090a017412040a026162");
    assert_eq!(resource_name(RESOURCE, &named).as_deref(), Some("x"));
    for nameless in [
        &[][..],
        &[0x0a, 0],
        &[0x08, 1],
        &[0x0a, 1, 0xff],
        &[0x0a, 9, 1],
    ] {
        assert_eq!(resource_name("t", nameless), None, "{nameless:?}");
    }
    let any = Any {
        type_url: RESOURCE.into(),
        value: wrapped.into(),
    };
    let inner = unwrap_resource(&any).unwrap();
    assert_eq!(
        (inner.type_url.as_ref(), inner.value.as_ref()),
        ("t", &b"\x0a\x02ab"[..])
    );
    assert_eq!(unwrap_resource(&inner), Some(inner.clone()));
}

#[test]
fn a_malformed_node_is_an_error_with_a_path() {
    let error = decode_discovery_request(hex("12030a05ff").into()).unwrap_err();
    assert_eq!(error.path(), "node");
}

proptest! {
    #[test]
    fn random_bytes_never_panic(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        let noise = Bytes::from(noise);
        let _ = decode_discovery_request(noise.clone());
        let _ = decode_discovery_response(noise.clone());
        let _ = decode_delta_discovery_request(noise.clone());
        let _ = decode_delta_discovery_response(noise.clone());
        let _ = resource_name("t", &noise);
        let _ = resource_name(RESOURCE, &noise);
    }

    #[test]
    fn responses_survive_a_round_trip(
        bodies in prop::collection::vec(
            (".{0,9}", prop::collection::vec(any::<u8>(), 0..300)),
            0..5,
        ),
        (version, nonce, type_url) in (".{0,9}", ".{0,9}", ".{0,9}"),
    ) {
        let any = |body: &Vec<u8>| Any {
            type_url: type_url.as_str().into(),
            value: body.clone().into(),
        };
        let response = DiscoveryResponse {
            type_url: type_url.as_str().into(),
            version_info: version.clone(),
            nonce: nonce.clone(),
            resources: bodies.iter().map(|(_, body)| any(body)).collect(),
        };
        let again = decode_discovery_response(encode_discovery_response(&response));
        prop_assert_eq!(again.unwrap(), response);
        let resources = bodies.iter().map(|(name, body)| DeltaResource {
            name: name.as_str().into(),
            version: version.clone(),
            resource: Some(any(body)),
        });
        let delta = DeltaDiscoveryResponse {
            type_url: type_url.as_str().into(),
            system_version_info: version.clone(),
            nonce,
            resources: resources.collect(),
            removed_resources: bodies.iter().map(|(name, _)| name.as_str().into()).collect(),
        };
        let again = decode_delta_discovery_response(encode_delta_discovery_response(&delta));
        prop_assert_eq!(again.unwrap(), delta);
    }
}
