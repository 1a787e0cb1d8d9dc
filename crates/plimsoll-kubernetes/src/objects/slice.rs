//! [`EndpointSlice`] of `discovery.k8s.io/v1`, in compact form.

use std::net::IpAddr;
use std::sync::Arc;

use serde::Deserialize;

use super::{ObjectKey, ObjectMeta, Resource, null_as_default};

/// Label of a slice with the name of its Service.
pub const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";

/// Type of the addresses of a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AddressType {
    #[default]
    Ipv4,
    Ipv6,
    /// Names, which are not endpoints of a cluster of type EDS: ignored.
    Fqdn,
}

/// The endpoints of one slice.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointSlice {
    pub key: ObjectKey,
    pub resource_version: Arc<str>,
    /// Name of the Service in the same namespace; `None` without the label.
    pub service: Option<Arc<str>>,
    pub address_type: AddressType,
    pub ports: Vec<SlicePort>,
    pub endpoints: Vec<SliceEndpoint>,
}

/// A port of a slice: all its endpoints have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlicePort {
    /// Name of the Service's port; empty for the only port of a Service.
    pub name: Arc<str>,
    /// `None` if the ports are not restricted.
    pub port: Option<u16>,
    pub is_tcp: bool,
    pub app_protocol: Option<Arc<str>>,
}

/// An endpoint of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    pub address: IpAddr,
    pub conditions: Conditions,
    pub zone: Option<Arc<str>>,
}

/// Conditions of an endpoint as they are written; `None` where they are unset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Conditions {
    pub ready: Option<bool>,
    pub serving: Option<bool>,
    pub terminating: Option<bool>,
}

#[doc(hidden)]
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceJson {
    metadata: ObjectMeta,
    #[serde(default)]
    address_type: String,
    #[serde(default, deserialize_with = "null_as_default")]
    ports: Vec<PortJson>,
    #[serde(default, deserialize_with = "null_as_default")]
    endpoints: Vec<EndpointJson>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PortJson {
    name: Option<String>,
    port: Option<u16>,
    protocol: Option<String>,
    app_protocol: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointJson {
    #[serde(deserialize_with = "null_as_default")]
    addresses: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    conditions: Conditions,
    zone: Option<String>,
}

impl Resource for EndpointSlice {
    type Json = SliceJson;
    const KIND: &'static str = "EndpointSlice";
    const API: &'static str = "/apis/discovery.k8s.io/v1";
    const PLURAL: &'static str = "endpointslices";

    fn from_json(json: SliceJson) -> Self {
        let address_type = match json.address_type.as_str() {
            "IPv6" => AddressType::Ipv6,
            "FQDN" => AddressType::Fqdn,
            _ => AddressType::Ipv4,
        };
        let service = json.metadata.labels.get(SERVICE_NAME_LABEL);
        // Zones repeat: each is stored once per slice.
        let mut zones: Vec<Arc<str>> = Vec::new();
        let mut endpoints = Vec::with_capacity(json.endpoints.len());
        for endpoint in &json.endpoints {
            // All addresses of an endpoint are the same backend; consumers use the first.
            let Some(address) = endpoint
                .addresses
                .first()
                .and_then(|text| text.parse().ok())
            else {
                continue;
            };
            endpoints.push(SliceEndpoint {
                address,
                conditions: endpoint.conditions,
                zone: intern(&mut zones, endpoint.zone.as_deref()),
            });
        }
        endpoints.shrink_to_fit();
        Self {
            key: json.metadata.key(),
            resource_version: json.metadata.resource_version.as_str().into(),
            service: service.map(|name| name.as_str().into()),
            address_type,
            ports: json.ports.into_iter().map(PortJson::into_port).collect(),
            endpoints,
        }
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl PortJson {
    fn into_port(self) -> SlicePort {
        SlicePort {
            name: self.name.unwrap_or_default().into(),
            port: self.port,
            is_tcp: self.protocol.is_none_or(|protocol| protocol == "TCP"),
            app_protocol: self.app_protocol.map(Into::into),
        }
    }
}

fn intern(known: &mut Vec<Arc<str>>, zone: Option<&str>) -> Option<Arc<str>> {
    let zone = zone.filter(|zone| !zone.is_empty())?;
    if let Some(found) = known.iter().find(|known| &***known == zone) {
        return Some(Arc::clone(found));
    }
    let zone: Arc<str> = zone.into();
    known.push(Arc::clone(&zone));
    Some(zone)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(text: &str) -> EndpointSlice {
        EndpointSlice::from_json(serde_json::from_str(text).unwrap())
    }

    #[test]
    fn a_slice_is_read_with_the_fields_that_matter() {
        let slice = slice(
            r#"{"metadata": {"namespace": "shop", "name": "orders-1", "resourceVersion": "5",
                "labels": {"kubernetes.io/service-name": "orders"}},
                "addressType": "IPv4",
                "ports": [{"name": "http", "port": 8080, "protocol": "TCP",
                           "appProtocol": "kubernetes.io/h2c"}, {"port": null}],
                "endpoints": [
                  {"addresses": ["10.0.0.1", "10.9.9.9"], "conditions": {"ready": true},
                   "zone": "a", "nodeName": "n1", "targetRef": {"kind": "Pod"}},
                  {"addresses": ["10.0.0.2"], "conditions": {}, "zone": "a"},
                  {"addresses": ["not an address"]},
                  {"addresses": []}]}"#,
        );
        assert_eq!(slice.key.to_string(), "shop/orders-1");
        assert_eq!(slice.service.as_deref(), Some("orders"));
        assert_eq!(slice.ports[0].port, Some(8080));
        assert_eq!(slice.ports[1].port, None);
        assert!(slice.ports[1].is_tcp, "TCP is the default");
        assert_eq!(slice.endpoints.len(), 2);
        assert_eq!(slice.endpoints[0].conditions.ready, Some(true));
        assert_eq!(slice.endpoints[1].conditions, Conditions::default());
        let zones: Vec<_> = slice.endpoints.iter().flat_map(|one| &one.zone).collect();
        assert!(Arc::ptr_eq(zones[0], zones[1]), "stored once");
    }

    #[test]
    fn null_lists_are_empty() {
        let slice = slice(
            r#"{"metadata": {"name": "x"}, "addressType": "FQDN", "endpoints": null,
                "ports": null}"#,
        );
        assert_eq!(slice.address_type, AddressType::Fqdn);
        assert!(slice.endpoints.is_empty() && slice.ports.is_empty());
        assert_eq!(slice.service, None);
    }
}
