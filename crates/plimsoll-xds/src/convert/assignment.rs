//! Decoding and encoding of `envoy.config.endpoint.v3.ClusterLoadAssignment`.
//!
//! Decoding yields the checked type of the core, or an error with the field path. Encoding takes an
//! [`AssignmentOut`], because a control plane also writes what the core has no type for:
//! `endpoint_stale_after`, and traffic fractions as a field or as metadata. `rewrite` edits an
//! assignment of another server without losing unknown fields. Called through `wire`.

mod rewrite;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, DropOverloadParts, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_core::units::FieldError;
use prost::Message;

pub use rewrite::{AssignmentEdits, Edit, LocalityEdit, rewrite_assignment};

use super::load_assignment::{extras, extras_message};
use super::{named, trace_decode};
use crate::upstream::{ClusterEndpoints, EndpointExtras};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::field::{RawField, raw_fields};
use plimsoll_schema::metadata::{envoy_lb, metadata};
use plimsoll_schema::pb::AddressMessage;
use plimsoll_schema::pb::duration;
use plimsoll_schema::pb::endpoint::{
    AssignmentMessage, AssignmentPolicyMessage, DropOverloadMessage, EndpointMessage,
    FractionalPercentMessage, LbEndpointMessage, LocalityLbEndpointsMessage,
};
use plimsoll_schema::pb::enums::Denominator;
use plimsoll_schema::pb::metadata::{KindMessage, MetadataMessage, StructMessage, ValueMessage};
use plimsoll_schema::{Described, Impact, unsupported};

/// Locality metadata key of the traffic fraction.
const FRACTION: &str = "observed_traffic_fraction";
/// Endpoint metadata key that overrides the key of consistent hashing.
const HASH_KEY: &str = "hash_key";
/// Endpoint metadata for the module inside Envoy (`plimsoll-envoy`), and its key.
pub const MODULE_METADATA: &str = "plimsoll";
/// Key under [`MODULE_METADATA`] of the status that Envoy does not tell modules.
pub const HEALTH_STATUS: &str = "health_status";
/// Minimum size of an encoded endpoint; limits the capacity reserved for a message.
const MIN_ENDPOINT_BYTES: usize = 16;
/// Values of `FractionalPercent.DenominatorType`, by number.
const DENOMINATORS: [u32; 3] = [100, 10_000, 1_000_000];

/// Assignment to be encoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssignmentOut {
    /// Name of the cluster, or its EDS service name.
    pub cluster_name: Arc<str>,
    pub localities: Vec<LocalityOut>,
    pub drop_overloads: Vec<DropOverloadParts>,
    /// Percent; the default is 140.
    pub overprovisioning_factor: Option<u32>,
    pub weighted_priority_health: bool,
    /// Time without an update after which the client discards the endpoints.
    pub endpoint_stale_after: Option<Duration>,
    /// Settings of endpoints beside load balancing, by address.
    pub extras: Arc<BTreeMap<SocketAddr, EndpointExtras>>,
    /// Repeat in the metadata of draining endpoints that they are, as `plimsoll.health_status`:
    /// Envoy tells policies of modules only that a host is unhealthy.
    pub draining_in_metadata: bool,
}

/// `LocalityLbEndpoints` to be encoded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityOut {
    pub locality: Locality,
    pub priority: u32,
    /// At least 1 if set; gRPC ignores localities without a weight.
    pub load_balancing_weight: Option<u32>,
    pub endpoints: Vec<EndpointOut>,
    /// Field 10, in basis points. Only for clients that announce support for it (decision 0028).
    pub observed_traffic_fraction: Option<u32>,
    /// The same fraction, to be written to the locality's `envoy.lb` metadata.
    pub metadata_traffic_fraction: Option<u32>,
}

/// `LbEndpoint` to be encoded; the same type as decoding returns.
pub type EndpointOut = LbEndpoint;

/// Decodes the part of an assignment that load balancing needs.
pub fn decode_assignment(bytes: &[u8]) -> Result<ClusterLoadAssignment, DecodeError> {
    unsupported::refuse(bytes, AssignmentMessage::DESCRIPTOR, Impact::Host)?;
    assignment(bytes, &mut |_, _| Ok(()))
}

/// Decodes an assignment including the settings for connecting to its endpoints.
pub fn decode_endpoints(bytes: &[u8]) -> Result<ClusterEndpoints, DecodeError> {
    unsupported::refuse(bytes, AssignmentMessage::DESCRIPTOR, Impact::Request)?;
    let mut all = BTreeMap::new();
    let assignment = assignment(bytes, &mut |address, endpoint| {
        let extras = extras(endpoint)?;
        if extras != EndpointExtras::default() {
            all.insert(address, extras);
        }
        Ok(())
    })?;
    Ok(ClusterEndpoints {
        assignment,
        extras: Arc::new(all),
    })
}

type OnEndpoint<'a> = &'a mut dyn FnMut(SocketAddr, EndpointMessage) -> Result<(), FieldError>;

/// Decodes endpoints one by one: 10,000 decoded messages take twice the memory of the result.
fn assignment(
    bytes: &[u8],
    on_endpoint: OnEndpoint<'_>,
) -> Result<ClusterLoadAssignment, DecodeError> {
    trace_decode::<AssignmentMessage>(bytes);
    let mut message = AssignmentMessage::default();
    let mut endpoints = Vec::new();
    for field in raw_fields(bytes) {
        let field = field?;
        if !is_element(&field) {
            message.merge(field.raw)?;
            continue;
        }
        let parts = locality_parts(field.value, on_endpoint);
        let index = endpoints.len();
        endpoints.push(parts.map_err(|error| error.under(&format!("endpoints[{index}]")))?);
    }
    let policy = message.policy.unwrap_or_default();
    let mut drop_overloads = Vec::with_capacity(policy.drop_overloads.len());
    for (index, drop) in policy.drop_overloads.into_iter().enumerate() {
        let path = || format!("policy.drop_overloads[{index}]");
        drop_overloads.push(drop_parts(drop).map_err(|error| error.under(&path()))?);
    }
    let assignment = ClusterLoadAssignment::try_new(AssignmentParts {
        cluster_name: message.cluster_name,
        endpoints,
        drop_overloads,
        overprovisioning_factor: policy.overprovisioning_factor,
        weighted_priority_health: policy.weighted_priority_health,
        endpoint_stale_after: duration(policy.endpoint_stale_after, "policy.endpoint_stale_after")?,
        _non_exhaustive: (),
    })?;
    Ok(assignment)
}

/// Returns whether a field is `ClusterLoadAssignment.endpoints` or, within one,
/// `LocalityLbEndpoints.lb_endpoints`: both have number 2.
const fn is_element(field: &RawField<'_>) -> bool {
    field.number == 2 && field.is_length_delimited
}

/// Encodes an assignment resource.
pub fn encode_assignment(assignment: &AssignmentOut) -> Bytes {
    let drops = assignment.drop_overloads.iter();
    let policy = AssignmentPolicyMessage {
        drop_overloads: drops.map(drop_message).collect(),
        overprovisioning_factor: assignment.overprovisioning_factor,
        endpoint_stale_after: assignment.endpoint_stale_after.map(Into::into),
        weighted_priority_health: assignment.weighted_priority_health,
    };
    let message = AssignmentMessage {
        cluster_name: assignment.cluster_name.as_ref().to_owned(),
        endpoints: assignment
            .localities
            .iter()
            .map(|entry| locality_message(entry, assignment))
            .collect(),
        policy: (policy != AssignmentPolicyMessage::default()).then_some(policy),
    };
    message.encode_to_vec().into()
}

fn locality_parts(bytes: &[u8], on_endpoint: OnEndpoint<'_>) -> Result<LocalityParts, DecodeError> {
    let count = raw_fields(bytes).flatten().filter(is_element).count();
    let mut message = LocalityLbEndpointsMessage::default();
    let mut lb_endpoints = Vec::with_capacity(count.min(bytes.len() / MIN_ENDPOINT_BYTES));
    for field in raw_fields(bytes) {
        let field = field?;
        if !is_element(&field) {
            message.merge(field.raw)?;
            continue;
        }
        let endpoint = LbEndpointMessage::decode(field.value)
            .map_err(DecodeError::from)
            .and_then(|message| Ok(lb_endpoint(message, on_endpoint)?));
        let position = lb_endpoints.len();
        let path = || format!("lb_endpoints[{position}]");
        lb_endpoints.push(endpoint.map_err(|error| error.under(&path()))?);
    }
    Ok(LocalityParts {
        lb_endpoints,
        ..locality_parts_without(message)?
    })
}

pub(super) fn locality_parts_without(
    message: LocalityLbEndpointsMessage,
) -> Result<LocalityParts, FieldError> {
    let metadata = message.metadata.as_ref();
    let fraction = metadata.and_then(|metadata| metadata.in_envoy_lb(FRACTION));
    Ok(LocalityParts {
        locality: message.locality.map(Into::into).unwrap_or_default(),
        priority: message.priority,
        load_balancing_weight: message.load_balancing_weight,
        lb_endpoints: Vec::new(),
        observed_traffic_fraction: message.observed_traffic_fraction.map(u64::from),
        metadata_traffic_fraction: fraction.map(number).transpose()?,
        _non_exhaustive: (),
    })
}

/// Rejects a fraction that is not a number, instead of reading it as unset (decision 0023).
fn number(value: &ValueMessage) -> Result<f64, FieldError> {
    match value.kind {
        Some(KindMessage::Number(number)) => Ok(number),
        _ => {
            let path = format!("metadata.filter_metadata[envoy.lb].{FRACTION}");
            Err(FieldError::new(path, "is not a number"))
        }
    }
}

/// Returns the `envoy.lb` metadata, and the hash key override in it.
pub(super) fn endpoint_metadata(
    message: Option<MetadataMessage>,
) -> Result<(Metadata, Option<Arc<str>>), FieldError> {
    let metadata = envoy_lb(message)
        .map_err(|error| error.under("metadata"))?
        .unwrap_or_default();
    let hash_key = match metadata.get(HASH_KEY) {
        Some(MetadataValue::String(key)) => Some(Arc::clone(key)),
        _ => None,
    };
    Ok((metadata, hash_key))
}

fn lb_endpoint(
    message: LbEndpointMessage,
    on_endpoint: OnEndpoint<'_>,
) -> Result<LbEndpoint, FieldError> {
    let (metadata, hash_key) = endpoint_metadata(message.metadata)?;
    let mut endpoint = message.endpoint.unwrap_or_default();
    let address = socket_address(endpoint.address.take().unwrap_or_default())
        .map_err(|error| error.under("endpoint.address"))?;
    let hostname = match std::mem::take(&mut endpoint.hostname) {
        // An empty `Arc<str>` does not allocate, and most endpoints have no hostname.
        none if none.is_empty() => Arc::default(),
        hostname => hostname.into(),
    };
    on_endpoint(address, endpoint).map_err(|error| error.under("endpoint"))?;
    let Some(health_status) = HealthStatus::from_number(message.health_status) else {
        let reason = format!("{} is not a health status", message.health_status);
        return Err(FieldError::new("health_status", reason));
    };
    Ok(LbEndpoint {
        address,
        hostname,
        health_status,
        load_balancing_weight: message.load_balancing_weight,
        hash_key,
        metadata,
    })
}

/// Returns the socket address, which must be an IP address with a TCP port.
pub(super) fn socket_address(message: AddressMessage) -> Result<SocketAddr, FieldError> {
    let Some(address) = message.socket_address else {
        let reason = "must be set: only addresses of sockets are supported";
        return Err(FieldError::new("socket_address", reason));
    };
    let error =
        |field: &str, reason| Err(FieldError::new(format!("socket_address.{field}"), reason));
    if address.protocol != 0 {
        return error("protocol", "only TCP is supported".to_owned());
    }
    let Ok(ip) = address.address.parse::<IpAddr>() else {
        let reason = format!("{:?} is not an IP address", address.address);
        return error("address", reason);
    };
    match address.port_value.map(u16::try_from) {
        Some(Ok(port @ 1..)) => Ok(SocketAddr::new(ip, port)),
        _ => error("port_value", "must be a port from 1 to 65535".to_owned()),
    }
}

pub(super) fn drop_parts(message: DropOverloadMessage) -> Result<DropOverloadParts, FieldError> {
    let percentage = message.drop_percentage.unwrap_or_default();
    let denominator =
        denominator(percentage.denominator).map_err(|error| error.under("drop_percentage"))?;
    Ok(DropOverloadParts {
        category: message.category,
        numerator: percentage.numerator,
        denominator,
    })
}

pub(super) fn denominator(number: i32) -> Result<u32, FieldError> {
    Ok(match named(number, "denominator")? {
        Denominator::Hundred => 100,
        Denominator::TenThousand => 10_000,
        Denominator::Million => 1_000_000,
    })
}

/// Encodes a drop category. Unsupported denominators become one million, the finest.
fn drop_message(drop: &DropOverloadParts) -> DropOverloadMessage {
    let kind = DENOMINATORS
        .iter()
        .position(|&known| known == drop.denominator);
    let (numerator, denominator) = match kind.map(i32::try_from) {
        Some(Ok(kind)) => (drop.numerator, kind),
        _ => {
            let exact = u64::from(drop.numerator) * 1_000_000 / u64::from(drop.denominator.max(1));
            (u32::try_from(exact).unwrap_or(u32::MAX), 2)
        }
    };
    DropOverloadMessage {
        category: drop.category.clone(),
        drop_percentage: Some(FractionalPercentMessage {
            numerator,
            denominator,
        }),
    }
}

fn locality_message(entry: &LocalityOut, assignment: &AssignmentOut) -> LocalityLbEndpointsMessage {
    let endpoint = |endpoint: &EndpointOut| {
        let mut message = endpoint_message(endpoint, assignment.extras.get(&endpoint.address));
        if assignment.draining_in_metadata && endpoint.health_status == HealthStatus::Draining {
            put_draining(message.metadata.get_or_insert_default());
        }
        message
    };
    let metadata = entry.metadata_traffic_fraction.map(|fraction| {
        let value = KindMessage::Number(f64::from(fraction)).into();
        let fields = BTreeMap::from([(FRACTION.to_owned(), value)]);
        MetadataMessage::envoy_lb(StructMessage { fields })
    });
    LocalityLbEndpointsMessage {
        locality: Some((&entry.locality).into()),
        lb_endpoints: entry.endpoints.iter().map(endpoint).collect(),
        load_balancing_weight: entry.load_balancing_weight,
        priority: entry.priority,
        metadata,
        observed_traffic_fraction: entry.observed_traffic_fraction,
    }
}

/// Adds to the metadata of an endpoint that it is draining.
fn put_draining(metadata: &mut MetadataMessage) {
    let status = KindMessage::String("DRAINING".to_owned()).into();
    let fields = BTreeMap::from([(HEALTH_STATUS.to_owned(), status)]);
    let all = &mut metadata.filter_metadata;
    all.insert(MODULE_METADATA.to_owned(), StructMessage { fields });
}

fn endpoint_message(endpoint: &EndpointOut, extras: Option<&EndpointExtras>) -> LbEndpointMessage {
    let all = endpoint_metadata_out(endpoint);
    let beside = extras.map(extras_message).unwrap_or_default();
    LbEndpointMessage {
        endpoint: Some(EndpointMessage {
            address: Some(endpoint.address.into()),
            hostname: endpoint.hostname.as_ref().to_owned(),
            ..beside
        }),
        // The variants are declared in the order of their numbers.
        health_status: endpoint.health_status as i32,
        metadata: (!all.is_empty()).then(|| metadata(&all)),
        load_balancing_weight: endpoint.load_balancing_weight,
    }
}

/// Returns all metadata of an endpoint, including the hash key.
fn endpoint_metadata_out(endpoint: &EndpointOut) -> Metadata {
    let own = &endpoint.metadata;
    let Some(key) = endpoint.hash_key.as_ref() else {
        return own.clone();
    };
    let pairs = own
        .iter()
        .map(|(key, value)| (Arc::clone(key), value.clone()));
    let hash_key = (Arc::from(HASH_KEY), MetadataValue::String(Arc::clone(key)));
    pairs.chain([hash_key]).collect()
}

#[cfg(test)]
mod tests;
