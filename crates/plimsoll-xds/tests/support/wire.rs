//! Interpreter of byte strings as messages from the network, with invariant checks.
//!
//! The first byte selects the message type. Accepted messages must survive a round trip, and
//! rewriting a resource must not change anything else in it. Used by the tests of this crate and by
//! the fuzz target `wire`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt::Debug;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::zone_aware::LocalityBasis;
use plimsoll_xds::ads::CLUSTER_LOAD_ASSIGNMENT;
use plimsoll_xds::ads::message::Any;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::route::{Action, RequestHead};
use plimsoll_xds::wire::{
    AssignmentEdits, ClassicBasis, ClusterOut, Edit, LocalityDelivery, LocalityEdit,
    decode_assignment, decode_cluster, decode_delta_discovery_request,
    decode_delta_discovery_response, decode_discovery_request, decode_discovery_response,
    decode_endpoints, decode_listener, decode_load_stats_request, decode_load_stats_response,
    decode_node, decode_route_configuration, decode_upstream_cluster, encode_cluster,
    encode_delta_discovery_request, encode_delta_discovery_response, encode_discovery_request,
    encode_discovery_response, encode_load_stats_request, encode_load_stats_response, encode_node,
    resource_name, rewrite_assignment, rewrite_cluster_policy, unwrap_resource,
};

/// Number of input kinds: the first byte modulo this selects one.
pub(crate) const KINDS: u8 = 14;

/// Memory that an input may use at a time, in bytes: [`MEMORY_BASE`], and [`MEMORY_PER_BYTE`] for
/// each of its bytes. A repeated message of two bytes becomes a value of some hundred bytes, of
/// which the checks keep several copies.
pub(crate) const MEMORY_BASE: u64 = 256 << 10;
pub(crate) const MEMORY_PER_BYTE: u64 = 4 << 10;

/// Locality bases that a stock Envoy supports.
const CLASSIC: [LocalityBasis; 2] = [
    LocalityBasis::HealthyHostsNum,
    LocalityBasis::HealthyHostsWeight,
];
const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

/// Result of an input, so that tests can check that both occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Nothing,
    Message,
    Rejected,
}

/// Decodes `bytes`; panics if an invariant is violated.
pub(crate) fn run(bytes: &[u8]) -> Outcome {
    let Some((&kind, rest)) = bytes.split_first() else {
        return Outcome::Nothing;
    };
    let owned = || Bytes::copy_from_slice(rest);
    match kind % KINDS {
        0 => round_trip(decode_discovery_request(owned()), |message| {
            decode_discovery_request(encode_discovery_request(message).into())
        }),
        1 => round_trip(decode_delta_discovery_request(owned()), |message| {
            decode_delta_discovery_request(encode_delta_discovery_request(message).into())
        }),
        2 => round_trip(decode_discovery_response(owned()), |message| {
            decode_discovery_response(encode_discovery_response(message))
        }),
        3 => round_trip(decode_delta_discovery_response(owned()), |message| {
            decode_delta_discovery_response(encode_delta_discovery_response(message))
        }),
        4 => round_trip(decode_load_stats_request(owned()), |message| {
            decode_load_stats_request(encode_load_stats_request(message).into())
        }),
        5 => round_trip(decode_load_stats_response(rest), |message| {
            decode_load_stats_response(&encode_load_stats_response(message))
        }),
        6 => round_trip(decode_node(rest), |node| decode_node(&encode_node(node))),
        7 => assignment(rest),
        8 => cluster(rest),
        9 => endpoints(rest),
        10 => upstream_cluster(rest),
        11 => seen(decode_listener(rest)),
        12 => routes(rest),
        _ => resource(rest),
    }
}

fn round_trip<T: Debug + PartialEq>(
    read: Result<T, DecodeError>,
    again: impl FnOnce(&T) -> Result<T, DecodeError>,
) -> Outcome {
    match read {
        Ok(message) => {
            assert_eq!(again(&message).as_ref(), Ok(&message));
            Outcome::Message
        }
        Err(error) => rejected(&error),
    }
}

fn seen<T>(read: Result<T, DecodeError>) -> Outcome {
    match read {
        Ok(_) => Outcome::Message,
        Err(error) => rejected(&error),
    }
}

/// The full and the partial decoder agree, and extras belong to existing endpoints.
fn endpoints(bytes: &[u8]) -> Outcome {
    let read = match decode_endpoints(bytes) {
        Ok(read) => read,
        Err(error) => return rejected(&error),
    };
    let part = decode_assignment(bytes).expect("what is read in full is read in part");
    assert_eq!(read.assignment, part);
    let hosts = part
        .endpoints()
        .iter()
        .flat_map(|entry| &entry.lb_endpoints);
    let known: BTreeSet<_> = hosts.map(|endpoint| endpoint.address).collect();
    assert!(read.extras.keys().all(|address| known.contains(address)));
    Outcome::Message
}

/// The full and the partial decoder agree, and endpoints resolve.
fn upstream_cluster(bytes: &[u8]) -> Outcome {
    let read = match decode_upstream_cluster(bytes) {
        Ok(read) => read,
        Err(error) => return rejected(&error),
    };
    let part = decode_cluster(bytes).expect("what is read in full is read in part");
    assert_eq!(read.config, part.config);
    assert_eq!(read.eds_name().is_some(), part.is_eds);
    if let Some(list) = &read.load_assignment {
        let resolved = list.resolve(|_| &[]);
        resolved.expect("what was checked resolves");
    }
    Outcome::Message
}

/// A request matches at most one route, and its cluster is listed.
fn routes(bytes: &[u8]) -> Outcome {
    let read = match decode_route_configuration(bytes) {
        Ok(read) => read,
        Err(error) => return rejected(&error),
    };
    let header = |name: &str| (name != "x-missing").then_some(Cow::Borrowed(&b"1"[..]));
    let clusters = read.clusters();
    for (authority, path) in [("shop.example", "/cart?k=v"), ("", ""), ("a:80", "*")] {
        let request = RequestHead {
            method: "GET",
            authority,
            path,
            scheme: "http",
            header: &header,
        };
        let host = read.virtual_host(authority);
        for draw in [0, u64::MAX] {
            let route = host.and_then(|host| host.route(&request, draw));
            if let Some(Action::Forward(action)) = route.map(|route| &route.action) {
                let cluster = action.target.cluster(draw);
                assert!(cluster.is_none_or(|cluster| clusters.contains(cluster)));
            }
        }
    }
    Outcome::Message
}

fn rejected(error: &DecodeError) -> Outcome {
    assert!(!error.to_string().is_empty());
    Outcome::Rejected
}

/// A relay changes weights and fractions and nothing else.
fn assignment(bytes: &[u8]) -> Outcome {
    let read = decode_assignment(bytes);
    let kept = rewrite_assignment(bytes, &AssignmentEdits::default());
    let edits = AssignmentEdits {
        other_localities: LocalityEdit {
            load_balancing_weight: Edit::Set(7),
            observed_traffic_fraction: Edit::Remove,
            ..LocalityEdit::default()
        },
        ..Default::default()
    };
    let edited = rewrite_assignment(bytes, &edits);
    let read = match read {
        Ok(read) => read,
        Err(error) => return rejected(&error),
    };
    let kept = kept.expect("what can be read can be passed on");
    assert_eq!(decode_assignment(&kept).as_ref(), Ok(&read));
    let edited = edited.expect("what can be read can be edited");
    let twice = rewrite_assignment(&edited, &edits).expect("what was edited can be edited");
    assert_eq!(twice, edited, "the same edit again");
    // Equal weights cannot exceed the limit of the sum, unless there are very many localities.
    if let Ok(edited) = decode_assignment(&edited) {
        same_endpoints(&read, &edited);
    }
    Outcome::Message
}

fn same_endpoints(read: &ClusterLoadAssignment, edited: &ClusterLoadAssignment) {
    assert_eq!(read.cluster_name(), edited.cluster_name());
    assert_eq!(read.endpoints().len(), edited.endpoints().len());
    for (before, after) in read.endpoints().iter().zip(edited.endpoints()) {
        assert_eq!(before.locality, after.locality);
        assert_eq!(before.lb_endpoints, after.lb_endpoints);
        assert_eq!(after.load_balancing_weight, 7);
    }
}

/// Every decoded cluster can be encoded for every kind of client, and a stock Envoy never gets an
/// unsupported basis.
fn cluster(bytes: &[u8]) -> Outcome {
    let read = match decode_cluster(bytes) {
        Ok(read) => read,
        Err(error) => return rejected(&error),
    };
    for locality in [
        LocalityDelivery::AsConfigured,
        LocalityDelivery::Stock,
        LocalityDelivery::Grpc,
        LocalityDelivery::LocalityWeighted,
        LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsNum),
        LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight),
    ] {
        let written = encode_cluster(&ClusterOut::new(&read.config, locality));
        let again = decode_cluster(&written).expect("what we write can be read");
        let rewritten = rewrite_cluster_policy(bytes, &read.config, locality);
        let rewritten = rewritten.expect("what can be read can be rewritten");
        let relayed = decode_cluster(&rewritten).expect("what we rewrote can be read");
        assert_eq!(relayed.config.name(), read.config.name());
        assert_eq!(relayed.eds_service_name, read.eds_service_name);
        assert_eq!(relayed.connect_timeout, read.connect_timeout);
        for said in [&again, &relayed] {
            if locality == LocalityDelivery::AsConfigured {
                assert_eq!(said.config.endpoint_policy(), read.config.endpoint_policy());
                assert_eq!(said.config.locality_policy(), read.config.locality_policy());
            } else if let Some(zone_aware) = said.config.zone_aware() {
                assert!(
                    CLASSIC.contains(&zone_aware.locality_basis()),
                    "{locality:?}"
                );
            }
        }
    }
    Outcome::Message
}

fn resource(bytes: &[u8]) -> Outcome {
    let name = resource_name(CLUSTER_LOAD_ASSIGNMENT, bytes);
    if let Ok(read) = decode_assignment(bytes) {
        assert_eq!(name.as_deref().unwrap_or_default(), &**read.cluster_name());
    }
    assert!(name.as_ref().is_none_or(|name| !name.is_empty()));
    let wrapped = resource_name(WRAPPER, bytes);
    assert!(wrapped.is_none_or(|name| !name.is_empty()));
    let any = Any {
        type_url: WRAPPER.into(),
        value: Bytes::copy_from_slice(bytes),
    };
    if let Some(inner) = unwrap_resource(&any) {
        assert!(inner.value.len() <= bytes.len());
    }
    if name.is_some() {
        Outcome::Message
    } else {
        Outcome::Rejected
    }
}
