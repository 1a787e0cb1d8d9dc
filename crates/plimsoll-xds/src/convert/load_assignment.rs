//! The `load_assignment` of a cluster from bytes, and what any assignment says beyond the core's
//! noun. Assignments of EDS are read in `assignment`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::units::FieldError;
use prost::Message;

use super::assignment::{drop_parts, endpoint_metadata, locality_parts_without, socket_address};
use super::pb::endpoint::{
    AssignmentMessage, EndpointExtrasMessage, ExtrasMessage, LbEndpointMessage,
};
use super::unhonoured::{self, ASSIGNMENT, Class};
use crate::error::DecodeError;
use crate::upstream::{EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality};

/// What an assignment says about connections and checks of its endpoints; those of which it says
/// nothing are left out.
pub fn decode_endpoint_extras(
    bytes: &[u8],
) -> Result<BTreeMap<SocketAddr, EndpointExtras>, DecodeError> {
    let message = ExtrasMessage::decode(bytes)?;
    unhonoured::refuse(bytes, &ASSIGNMENT, Class::Request)?;
    let mut all = BTreeMap::new();
    for (index, entry) in message.endpoints.into_iter().enumerate() {
        for (position, lb_endpoint) in entry.lb_endpoints.into_iter().enumerate() {
            let path = format!("endpoints[{index}].lb_endpoints[{position}].endpoint");
            let endpoint = lb_endpoint.endpoint.unwrap_or_default();
            let address = endpoint.address.clone().unwrap_or_default();
            let extras = extras(endpoint).map_err(|error| error.under(&path))?;
            if extras != EndpointExtras::default() {
                let address = socket_address(address);
                let address = address.map_err(|error| error.under("address").under(&path))?;
                all.insert(address, extras);
            }
        }
    }
    Ok(all)
}

/// The endpoints of a cluster; the path of an error starts inside the message.
pub(super) fn load_assignment(bytes: &[u8]) -> Result<LoadAssignment, FieldError> {
    let broken = |error: prost::DecodeError| FieldError::new("", error.to_string());
    let message = AssignmentMessage::decode(bytes).map_err(broken)?;
    let mut all_extras = ExtrasMessage::decode(bytes).map_err(broken)?.endpoints;
    let policy = message.policy.unwrap_or_default();
    let mut endpoints = Vec::with_capacity(message.endpoints.len());
    for (index, mut entry) in message.endpoints.into_iter().enumerate() {
        let under = |error: FieldError| error.under(&format!("endpoints[{index}]"));
        let lb_endpoints = std::mem::take(&mut entry.lb_endpoints);
        let parts = locality_parts_without(entry).map_err(under)?;
        let extras = all_extras
            .get_mut(index)
            .map(|entry| &mut entry.lb_endpoints);
        let mut extras = extras.map(std::mem::take).unwrap_or_default().into_iter();
        let mut named = Vec::with_capacity(lb_endpoints.len());
        for (position, endpoint) in lb_endpoints.into_iter().enumerate() {
            let more = extras.next().and_then(|more| more.endpoint);
            let endpoint = named_endpoint(endpoint, more.unwrap_or_default());
            let path = format!("lb_endpoints[{position}]");
            named.push(endpoint.map_err(|error| under(error.under(&path)))?);
        }
        endpoints.push(NamedLocality {
            parts,
            endpoints: named,
        });
    }
    let drops = policy.drop_overloads.into_iter().map(drop_parts);
    let drops = drops.collect::<Result<_, _>>();
    Ok(LoadAssignment {
        cluster_name: message.cluster_name,
        endpoints,
        drop_overloads: drops.map_err(|error| error.under("policy.drop_overloads"))?,
        overprovisioning_factor: policy.overprovisioning_factor,
        weighted_priority_health: policy.weighted_priority_health,
    })
}

fn named_endpoint(
    message: LbEndpointMessage,
    more: EndpointExtrasMessage,
) -> Result<NamedEndpoint, FieldError> {
    let (metadata, hash_key) = endpoint_metadata(message.metadata)?;
    let endpoint = message.endpoint.unwrap_or_default();
    let address = endpoint.address.and_then(|address| address.socket_address);
    let error = |field: &str, reason: String| {
        let path = format!("endpoint.address.socket_address{field}");
        Err(FieldError::new(path, reason))
    };
    let Some(address) = address else {
        return error("", "must be set".to_owned());
    };
    if address.protocol != 0 {
        return error(".protocol", "only TCP is supported".to_owned());
    }
    let Some(Ok(port @ 1..)) = address.port_value.map(u16::try_from) else {
        return error(".port_value", "must be a port from 1 to 65535".to_owned());
    };
    let Some(health_status) = HealthStatus::from_number(message.health_status) else {
        let reason = format!("{} is not a health status", message.health_status);
        return Err(FieldError::new("health_status", reason));
    };
    Ok(NamedEndpoint {
        host: address.address,
        port,
        hostname: endpoint.hostname.into(),
        health_status,
        load_balancing_weight: message.load_balancing_weight,
        hash_key,
        metadata,
        extras: extras(more).map_err(|error| error.under("endpoint"))?,
    })
}

fn extras(message: EndpointExtrasMessage) -> Result<EndpointExtras, FieldError> {
    let mut additional_addresses = Vec::with_capacity(message.additional_addresses.len());
    for (index, additional) in message.additional_addresses.into_iter().enumerate() {
        let path = format!("additional_addresses[{index}].address");
        let address = socket_address(additional.address.unwrap_or_default());
        additional_addresses.push(address.map_err(|error| error.under(&path))?);
    }
    let check = message.health_check_config.unwrap_or_default();
    let under = |error: FieldError| error.under("health_check_config");
    let health_check_port = match u16::try_from(check.port_value) {
        Ok(0) => None,
        Ok(port) => Some(port),
        Err(_) => {
            let reason = "must be a port from 1 to 65535";
            return Err(under(FieldError::new("port_value", reason)));
        }
    };
    Ok(EndpointExtras {
        additional_addresses,
        health_check_port,
        health_check_hostname: check.hostname,
        disable_active_health_check: check.disable_active_health_check,
    })
}
