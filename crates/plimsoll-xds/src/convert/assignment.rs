//! `envoy.config.endpoint.v3.ClusterLoadAssignment` to and from bytes.
//!
//! Reading yields the checked noun of the core, or an error with the path to the field. Writing
//! takes an [`AssignmentOut`], because a control plane says what the core has no noun for: when
//! endpoints go stale, and a fraction by either road. Changing an assignment of somebody else
//! without losing what we do not know is done in `rewrite`. Called through `wire`.

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

use super::metadata::{envoy_lb, metadata};
use super::pb::AddressMessage;
use super::pb::duration;
use super::pb::endpoint::{
    AssignmentMessage, AssignmentPolicyMessage, DropOverloadMessage, EndpointMessage,
    FractionalPercentMessage, LbEndpointMessage, LocalityLbEndpointsMessage,
};
use super::pb::metadata::{KindMessage, MetadataMessage, StructMessage, ValueMessage};
use super::unhonoured::{self, ASSIGNMENT, Class};
use crate::error::DecodeError;

/// Key of the fraction in the metadata of a locality.
const FRACTION: &str = "observed_traffic_fraction";
/// Key of the override of consistent hashing in the metadata of an endpoint.
const HASH_KEY: &str = "hash_key";
/// `FractionalPercent.DenominatorType`, by number.
pub(super) const DENOMINATORS: [u32; 3] = [100, 10_000, 1_000_000];

/// An assignment, to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AssignmentOut {
    /// Name of the cluster, or its EDS service name.
    pub cluster_name: Arc<str>,
    /// The endpoints.
    pub localities: Vec<LocalityOut>,
    /// Shares of requests to drop.
    pub drop_overloads: Vec<DropOverloadParts>,
    /// Percent; unset is 140.
    pub overprovisioning_factor: Option<u32>,
    /// Health of a priority by host weights instead of host counts.
    pub weighted_priority_health: bool,
    /// After this time without an update the receiver forgets the endpoints.
    pub endpoint_stale_after: Option<Duration>,
}

/// `LocalityLbEndpoints`, to be written.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalityOut {
    /// Where.
    pub locality: Locality,
    /// At which priority.
    pub priority: u32,
    /// At least 1 when set; gRPC drops localities without it.
    pub load_balancing_weight: Option<u32>,
    /// The endpoints.
    pub endpoints: Vec<EndpointOut>,
    /// Field 10, basis points. Only for receivers that have announced it (decisions D9).
    pub observed_traffic_fraction: Option<u32>,
    /// The same in the metadata `envoy.lb` of the locality.
    pub metadata_traffic_fraction: Option<u32>,
}

/// `LbEndpoint`, to be written: the same fields as it is read with.
pub type EndpointOut = LbEndpoint;

/// Reads an assignment.
pub fn decode_assignment(bytes: &[u8]) -> Result<ClusterLoadAssignment, DecodeError> {
    let message = AssignmentMessage::decode(bytes)?;
    unhonoured::refuse(bytes, &ASSIGNMENT, Class::Host)?;
    let policy = message.policy.unwrap_or_default();
    let mut endpoints = Vec::with_capacity(message.endpoints.len());
    for (index, entry) in message.endpoints.into_iter().enumerate() {
        let parts = locality_parts(entry);
        endpoints.push(parts.map_err(|error| error.under(&format!("endpoints[{index}]")))?);
    }
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
    })?;
    Ok(assignment)
}

/// Writes an assignment.
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
        endpoints: assignment.localities.iter().map(locality_message).collect(),
        policy: (policy != AssignmentPolicyMessage::default()).then_some(policy),
    };
    message.encode_to_vec().into()
}

fn locality_parts(mut message: LocalityLbEndpointsMessage) -> Result<LocalityParts, FieldError> {
    let endpoints = std::mem::take(&mut message.lb_endpoints);
    let mut parts = locality_parts_without(message)?;
    parts.lb_endpoints.reserve_exact(endpoints.len());
    for (position, endpoint) in endpoints.into_iter().enumerate() {
        let endpoint = lb_endpoint(endpoint);
        let path = || format!("lb_endpoints[{position}]");
        let endpoint = endpoint.map_err(|error| error.under(&path()))?;
        parts.lb_endpoints.push(endpoint);
    }
    Ok(parts)
}

/// Everything of a locality but its endpoints.
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
    })
}

/// A fraction that is there but no number is refused: presence means something (decisions D2).
fn number(value: &ValueMessage) -> Result<f64, FieldError> {
    match value.kind {
        Some(KindMessage::Number(number)) => Ok(number),
        _ => {
            let path = format!("metadata.filter_metadata[envoy.lb].{FRACTION}");
            Err(FieldError::new(path, "is not a number"))
        }
    }
}

/// What subsets are made of, and the override of consistent hashing in it.
pub(super) fn endpoint_metadata(
    message: Option<MetadataMessage>,
) -> Result<(Metadata, Option<Arc<str>>), FieldError> {
    let metadata = envoy_lb(message).map_err(|error| error.under("metadata"))?;
    let metadata = metadata.unwrap_or_default();
    let hash_key = match metadata.get(HASH_KEY) {
        Some(MetadataValue::String(key)) => Some(Arc::clone(key)),
        _ => None,
    };
    Ok((metadata, hash_key))
}

fn lb_endpoint(message: LbEndpointMessage) -> Result<LbEndpoint, FieldError> {
    let (metadata, hash_key) = endpoint_metadata(message.metadata)?;
    let endpoint = message.endpoint.unwrap_or_default();
    let address = socket_address(endpoint.address.unwrap_or_default())
        .map_err(|error| error.under("endpoint.address"))?;
    let Some(health_status) = HealthStatus::from_number(message.health_status) else {
        let reason = format!("{} is not a health status", message.health_status);
        return Err(FieldError::new("health_status", reason));
    };
    Ok(LbEndpoint {
        address,
        hostname: endpoint.hostname.into(),
        health_status,
        load_balancing_weight: message.load_balancing_weight,
        hash_key,
        metadata,
    })
}

/// The address, if it is an IP address with a port over TCP.
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
    let kind = usize::try_from(percentage.denominator).ok();
    let Some(&denominator) = kind.and_then(|kind| DENOMINATORS.get(kind)) else {
        let reason = format!("{} is not a denominator", percentage.denominator);
        return Err(FieldError::new("drop_percentage.denominator", reason));
    };
    Ok(DropOverloadParts {
        category: message.category,
        numerator: percentage.numerator,
        denominator,
    })
}

/// A denominator that the message has no number for becomes a million, the finest there is.
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

fn locality_message(entry: &LocalityOut) -> LocalityLbEndpointsMessage {
    let metadata = entry.metadata_traffic_fraction.map(|fraction| {
        let value = KindMessage::Number(f64::from(fraction)).into();
        let fields = BTreeMap::from([(FRACTION.to_owned(), value)]);
        MetadataMessage::envoy_lb(StructMessage { fields })
    });
    LocalityLbEndpointsMessage {
        locality: Some((&entry.locality).into()),
        lb_endpoints: entry.endpoints.iter().map(endpoint_message).collect(),
        load_balancing_weight: entry.load_balancing_weight,
        priority: entry.priority,
        metadata,
        observed_traffic_fraction: entry.observed_traffic_fraction,
    }
}

fn endpoint_message(endpoint: &EndpointOut) -> LbEndpointMessage {
    let all = endpoint_metadata_out(endpoint);
    LbEndpointMessage {
        endpoint: Some(EndpointMessage {
            address: Some(endpoint.address.into()),
            hostname: endpoint.hostname.as_ref().to_owned(),
        }),
        // The variants are declared in the order of their numbers.
        health_status: endpoint.health_status as i32,
        metadata: (!all.is_empty()).then(|| metadata(&all)),
        load_balancing_weight: endpoint.load_balancing_weight,
    }
}

/// All metadata of an endpoint, with the hash key wherever that came from.
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
