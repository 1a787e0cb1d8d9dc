//! Decoding of the inline `load_assignment` of a cluster, and of endpoint settings beyond the
//! core's types. `assignment` decodes EDS resources.

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::units::FieldError;

use super::assignment::{drop_parts, endpoint_metadata, locality_parts_without, socket_address};
use crate::upstream::{EndpointExtras, LoadAssignment, NamedEndpoint, NamedLocality};
use plimsoll_schema::pb::endpoint::{
    AdditionalAddressMessage, AssignmentMessage, EndpointMessage, HealthCheckConfigMessage,
    LbEndpointMessage,
};

/// Decodes the endpoints of a cluster; error paths start inside the message.
pub(super) fn load_assignment(message: AssignmentMessage) -> Result<LoadAssignment, FieldError> {
    let policy = message.policy.unwrap_or_default();
    let mut endpoints = Vec::with_capacity(message.endpoints.len());
    for (index, mut entry) in message.endpoints.into_iter().enumerate() {
        let under = |error: FieldError| error.under(&format!("endpoints[{index}]"));
        let lb_endpoints = std::mem::take(&mut entry.lb_endpoints);
        let parts = locality_parts_without(entry).map_err(under)?;
        let mut named = Vec::with_capacity(lb_endpoints.len());
        for (position, endpoint) in lb_endpoints.into_iter().enumerate() {
            let path = || format!("lb_endpoints[{position}]");
            let endpoint = named_endpoint(endpoint);
            named.push(endpoint.map_err(|error| under(error.under(&path())))?);
        }
        endpoints.push(NamedLocality {
            parts,
            endpoints: named,
        });
    }
    let drops: Result<_, _> = policy.drop_overloads.into_iter().map(drop_parts).collect();
    Ok(LoadAssignment {
        cluster_name: message.cluster_name,
        endpoints,
        drop_overloads: drops.map_err(|error| error.under("policy.drop_overloads"))?,
        overprovisioning_factor: policy.overprovisioning_factor,
        weighted_priority_health: policy.weighted_priority_health,
    })
}

fn named_endpoint(message: LbEndpointMessage) -> Result<NamedEndpoint, FieldError> {
    let (metadata, hash_key) = endpoint_metadata(message.metadata)?;
    let mut endpoint = message.endpoint.unwrap_or_default();
    let address = endpoint
        .address
        .take()
        .and_then(|address| address.socket_address);
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
        hostname: std::mem::take(&mut endpoint.hostname).into(),
        health_status,
        load_balancing_weight: message.load_balancing_weight,
        hash_key,
        metadata,
        extras: extras(endpoint).map_err(|error| error.under("endpoint"))?,
    })
}

/// Encodes what [`extras`] reads.
pub(super) fn extras_message(extras: &EndpointExtras) -> EndpointMessage {
    let additional = extras.additional_addresses.iter();
    let check = HealthCheckConfigMessage {
        port_value: extras.health_check_port.map_or(0, u32::from),
        hostname: extras.health_check_hostname.clone(),
        disable_active_health_check: extras.disable_active_health_check,
    };
    EndpointMessage {
        additional_addresses: additional
            .map(|&address| AdditionalAddressMessage {
                address: Some(address.into()),
            })
            .collect(),
        health_check_config: (check != HealthCheckConfigMessage::default()).then_some(check),
        ..Default::default()
    }
}

pub(super) fn extras(message: EndpointMessage) -> Result<EndpointExtras, FieldError> {
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
        _non_exhaustive: (),
    })
}
