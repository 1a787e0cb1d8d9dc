//! Decoding and encoding of discovery requests and responses, both variants, both directions.
//!
//! Decoded resource bodies are slices of the input, without copying. Protobuf messages can be
//! concatenated, so [`encode_any`] and [`encode_delta_resource`] can run once for all clients; an
//! encoded response without resources is the head to put in front of them. Called through `wire`;
//! the server sends the parts of a response without joining them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use prost::Message;

use super::node::decode_node;
use crate::ads::message::{
    Any, DeltaDiscoveryRequest, DeltaDiscoveryResponse, DeltaResource, DiscoveryRequest,
    DiscoveryResponse, ErrorDetail, NodeMessage,
};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::field::{field_len, put_key_and_length, put_string, raw_fields, string_len};
use plimsoll_schema::pb::AnyMessage;
use plimsoll_schema::pb::discovery::{
    DeltaDiscoveryRequestMessage, DeltaDiscoveryResponseMessage, DiscoveryRequestMessage,
    DiscoveryResponseMessage, ResourceMessage, StatusMessage,
};

/// Type URL of the wrapper message around a resource.
const RESOURCE: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
/// Field number of the resources in both responses.
const RESOURCES: u32 = 2;

/// Decodes a SotW request.
pub fn decode_discovery_request(bytes: Bytes) -> Result<DiscoveryRequest, DecodeError> {
    let message = DiscoveryRequestMessage::decode(bytes)?;
    Ok(DiscoveryRequest {
        node: message.node.map(node).transpose()?,
        type_url: message.type_url.into(),
        version_info: message.version_info,
        response_nonce: message.response_nonce,
        resource_names: names(message.resource_names),
        error_detail: message.error_detail.map(error_detail),
    })
}

/// Encodes a SotW request; the node is written as its raw bytes.
pub fn encode_discovery_request(request: &DiscoveryRequest) -> Vec<u8> {
    let message = DiscoveryRequestMessage {
        version_info: request.version_info.clone(),
        node: request.node.as_ref().map(|node| node.raw.clone()),
        resource_names: strings(&request.resource_names),
        type_url: request.type_url.as_ref().to_owned(),
        response_nonce: request.response_nonce.clone(),
        error_detail: request.error_detail.as_ref().map(status),
    };
    message.encode_to_vec()
}

/// Decodes a SotW response. Wrapped resources stay wrapped: see [`unwrap_resource`].
pub fn decode_discovery_response(bytes: Bytes) -> Result<DiscoveryResponse, DecodeError> {
    let message = DiscoveryResponseMessage::decode(bytes)?;
    Ok(DiscoveryResponse {
        type_url: message.type_url.into(),
        version_info: message.version_info,
        nonce: message.nonce,
        resources: message.resources.into_iter().map(from_message).collect(),
    })
}

/// Encodes a SotW response.
pub fn encode_discovery_response(response: &DiscoveryResponse) -> Bytes {
    let (length, parts) = discovery_response_parts(response.clone());
    join(length, parts)
}

/// Encodes a SotW response in parts, of which the bodies of resources are not copied. Returns its
/// length as well.
pub(crate) fn discovery_response_parts(
    response: DiscoveryResponse,
) -> (usize, impl Iterator<Item = Bytes> + Send) {
    let head = DiscoveryResponseMessage {
        version_info: response.version_info,
        resources: Vec::new(),
        type_url: response.type_url.as_ref().to_owned(),
        nonce: response.nonce,
    }
    .encode_to_vec();
    let resources = response.resources;
    let body: usize = resources
        .iter()
        .map(|any| field_len(RESOURCES, any_len(any)))
        .sum();
    let length = head.len() + body;
    let parts = resources.into_iter().flat_map(|any| {
        let mut prefix = BytesMut::new();
        put_any_prefix(&mut prefix, RESOURCES, &any);
        [prefix.freeze(), any.value]
    });
    (length, std::iter::once(head.into()).chain(parts))
}

/// Decodes an incremental request.
pub fn decode_delta_discovery_request(bytes: Bytes) -> Result<DeltaDiscoveryRequest, DecodeError> {
    let message = DeltaDiscoveryRequestMessage::decode(bytes)?;
    let versions = message.initial_resource_versions.into_iter();
    Ok(DeltaDiscoveryRequest {
        node: message.node.map(node).transpose()?,
        type_url: message.type_url.into(),
        resource_names_subscribe: names(message.resource_names_subscribe),
        resource_names_unsubscribe: names(message.resource_names_unsubscribe),
        initial_resource_versions: versions
            .map(|(name, version)| (name.into(), version))
            .collect(),
        response_nonce: message.response_nonce,
        error_detail: message.error_detail.map(error_detail),
    })
}

/// Encodes an incremental request; the node is written as its raw bytes.
pub fn encode_delta_discovery_request(request: &DeltaDiscoveryRequest) -> Vec<u8> {
    let versions: BTreeMap<String, String> = request
        .initial_resource_versions
        .iter()
        .map(|(name, version)| (name.as_ref().to_owned(), version.clone()))
        .collect();
    let message = DeltaDiscoveryRequestMessage {
        node: request.node.as_ref().map(|node| node.raw.clone()),
        type_url: request.type_url.as_ref().to_owned(),
        resource_names_subscribe: strings(&request.resource_names_subscribe),
        resource_names_unsubscribe: strings(&request.resource_names_unsubscribe),
        initial_resource_versions: versions,
        response_nonce: request.response_nonce.clone(),
        error_detail: request.error_detail.as_ref().map(status),
    };
    message.encode_to_vec()
}

/// Decodes an incremental response.
pub fn decode_delta_discovery_response(
    bytes: Bytes,
) -> Result<DeltaDiscoveryResponse, DecodeError> {
    let message = DeltaDiscoveryResponseMessage::decode(bytes)?;
    let resources = message.resources.into_iter().map(|resource| DeltaResource {
        name: resource.name.into(),
        version: resource.version,
        resource: resource.resource.map(from_message),
    });
    Ok(DeltaDiscoveryResponse {
        type_url: message.type_url.into(),
        system_version_info: message.system_version_info,
        nonce: message.nonce,
        resources: resources.collect(),
        removed_resources: names(message.removed_resources),
    })
}

/// Encodes an incremental response.
pub fn encode_delta_discovery_response(response: &DeltaDiscoveryResponse) -> Bytes {
    let (length, parts) = delta_discovery_response_parts(response.clone());
    join(length, parts)
}

/// Encodes an incremental response in parts, as [`discovery_response_parts`] does.
pub(crate) fn delta_discovery_response_parts(
    response: DeltaDiscoveryResponse,
) -> (usize, impl Iterator<Item = Bytes> + Send) {
    let head = DeltaDiscoveryResponseMessage {
        system_version_info: response.system_version_info,
        resources: Vec::new(),
        type_url: response.type_url.as_ref().to_owned(),
        nonce: response.nonce,
        removed_resources: strings(&response.removed_resources),
    }
    .encode_to_vec();
    let resources = response.resources;
    let body: usize = resources
        .iter()
        .map(|resource| field_len(RESOURCES, resource_len(resource)))
        .sum();
    let length = head.len() + body;
    let parts = resources.into_iter().flat_map(|resource| {
        let (mut prefix, mut suffix) = (BytesMut::new(), BytesMut::new());
        put_resource_prefix(&mut prefix, &resource);
        put_string(&mut suffix, 3, &resource.name);
        let body = resource.resource.map(|any| any.value).unwrap_or_default();
        [prefix.freeze(), body, suffix.freeze()]
    });
    (length, std::iter::once(head.into()).chain(parts))
}

fn join(length: usize, parts: impl Iterator<Item = Bytes>) -> Bytes {
    let mut out = BytesMut::with_capacity(length);
    parts.for_each(|part| out.extend_from_slice(&part));
    out.freeze()
}

/// Encodes one element of `DiscoveryResponse.resources`, with tag and length, for concatenation.
pub fn encode_any(any: &Any) -> Bytes {
    let mut out = BytesMut::with_capacity(field_len(RESOURCES, any_len(any)));
    put_any_prefix(&mut out, RESOURCES, any);
    out.extend_from_slice(&any.value);
    out.freeze()
}

/// Encodes one element of `DeltaDiscoveryResponse.resources`, with tag and length.
pub fn encode_delta_resource(resource: &DeltaResource) -> Bytes {
    let mut out = BytesMut::with_capacity(field_len(RESOURCES, resource_len(resource)));
    put_resource_prefix(&mut out, resource);
    if let Some(any) = &resource.resource {
        out.extend_from_slice(&any.value);
    }
    put_string(&mut out, 3, &resource.name);
    out.freeze()
}

/// Unwraps `envoy.service.discovery.v3.Resource`; returns any other `any` unchanged. Returns `None`
/// if the wrapper is empty (a heartbeat) or cannot be decoded.
pub fn unwrap_resource(any: &Any) -> Option<Any> {
    if any.type_url.as_ref() != RESOURCE {
        return Some(any.clone());
    }
    let wrapper = ResourceMessage::decode(any.value.clone()).ok()?;
    wrapper.resource.map(from_message)
}

/// Returns the name of a resource, which is field 1 in every type, or the name in the wrapper
/// `envoy.service.discovery.v3.Resource`. `None` if the name is missing or cannot be decoded.
pub fn resource_name(type_url: &str, body: &[u8]) -> Option<String> {
    if type_url == RESOURCE {
        let wrapper = ResourceMessage::decode(body).ok()?;
        if !wrapper.name.is_empty() {
            return Some(wrapper.name);
        }
        let inner = wrapper.resource?;
        // One level only: wrappers are never nested.
        return first_string(&inner.value);
    }
    first_string(body)
}

/// Returns field 1 as a string; the last occurrence wins, as protobuf requires.
fn first_string(body: &[u8]) -> Option<String> {
    let mut name = None;
    for field in raw_fields(body) {
        let field = field.ok()?;
        if field.number == 1 && field.is_length_delimited {
            name = Some(field.value);
        }
    }
    let name = std::str::from_utf8(name?).ok()?;
    (!name.is_empty()).then(|| name.to_owned())
}

fn from_message(message: AnyMessage) -> Any {
    Any {
        type_url: message.type_url.into(),
        value: message.value,
    }
}

fn any_len(any: &Any) -> usize {
    string_len(1, &any.type_url) + field_len(2, any.value.len())
}

/// Writes all of a message before its `value`, which is the last field.
fn put_any_prefix(out: &mut BytesMut, number: u32, any: &Any) {
    put_key_and_length(out, number, any_len(any));
    put_string(out, 1, &any.type_url);
    put_key_and_length(out, 2, any.value.len());
}

fn resource_len(resource: &DeltaResource) -> usize {
    let body = resource.resource.as_ref();
    string_len(1, &resource.version)
        + body.map_or(0, |any| field_len(2, any_len(any)))
        + string_len(3, &resource.name)
}

/// Writes all of a resource before its body. Its name comes after it.
fn put_resource_prefix(out: &mut BytesMut, resource: &DeltaResource) {
    put_key_and_length(out, RESOURCES, resource_len(resource));
    put_string(out, 1, &resource.version);
    if let Some(any) = &resource.resource {
        put_any_prefix(out, 2, any);
    }
}

fn node(raw: Bytes) -> Result<NodeMessage, DecodeError> {
    let info = decode_node(&raw).map_err(|error| error.under("node"))?;
    Ok(NodeMessage { info, raw })
}

fn names(strings: Vec<String>) -> Vec<Arc<str>> {
    strings.into_iter().map(Into::into).collect()
}

fn strings(names: &[Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.as_ref().to_owned()).collect()
}

fn error_detail(status: StatusMessage) -> ErrorDetail {
    ErrorDetail {
        code: status.code,
        message: status.message,
    }
}

fn status(detail: &ErrorDetail) -> StatusMessage {
    StatusMessage {
        code: detail.code,
        message: detail.message.clone(),
    }
}

#[cfg(test)]
mod tests;
