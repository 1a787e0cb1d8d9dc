//! [`Service`] of the core API `v1`: ports, protocol and settings.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use super::{AddressType, ObjectKey, ObjectMeta, Resource, null_as_default};
use crate::settings::ANNOTATION_PREFIX;

/// A Service: which ports it has, and what its owner set.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    pub key: ObjectKey,
    pub resource_version: Arc<str>,
    pub uid: Arc<str>,
    pub created: Arc<str>,
    pub ports: Vec<ServicePortSpec>,
    /// Family of the first address; `None` for a Service that the API server has not completed.
    pub address_family: Option<AddressType>,
    pub publish_not_ready_addresses: bool,
    /// `type: ExternalName`: an alias in DNS without endpoints.
    pub is_external_name: bool,
    /// Annotations with our prefix, without it.
    pub annotations: BTreeMap<String, String>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePortSpec {
    /// Empty for the only port of a Service.
    pub name: Arc<str>,
    pub port: u16,
    pub is_tcp: bool,
    pub app_protocol: Option<Arc<str>>,
}

#[doc(hidden)]
#[derive(Debug, Deserialize)]
pub struct ServiceJson {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecJson,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpecJson {
    #[serde(rename = "type")]
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    ports: Vec<PortJson>,
    #[serde(deserialize_with = "null_as_default")]
    ip_families: Vec<String>,
    publish_not_ready_addresses: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PortJson {
    name: Option<String>,
    port: u16,
    protocol: Option<String>,
    app_protocol: Option<String>,
}

impl Resource for Service {
    type Json = ServiceJson;
    const KIND: &'static str = "Service";
    const API: &'static str = "/api/v1";
    const PLURAL: &'static str = "services";

    fn from_json(json: ServiceJson) -> Self {
        let ServiceJson { metadata, spec } = json;
        let families = spec.ip_families.first().map(String::as_str);
        let ports = spec.ports.into_iter().map(|port| ServicePortSpec {
            name: port.name.unwrap_or_default().into(),
            port: port.port,
            is_tcp: port.protocol.is_none_or(|protocol| protocol == "TCP"),
            app_protocol: port.app_protocol.map(Into::into),
        });
        let own = metadata.annotations.iter().filter_map(|(name, value)| {
            let name = name.strip_prefix(ANNOTATION_PREFIX)?;
            Some((name.to_owned(), value.clone()))
        });
        Self {
            key: metadata.key(),
            resource_version: metadata.resource_version.as_str().into(),
            uid: metadata.uid.as_str().into(),
            created: metadata.creation_timestamp.as_str().into(),
            ports: ports.collect(),
            address_family: match families {
                Some("IPv4") => Some(AddressType::Ipv4),
                Some("IPv6") => Some(AddressType::Ipv6),
                _ => None,
            },
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            is_external_name: spec.kind == "ExternalName",
            annotations: own.collect(),
        }
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_read_with_the_fields_that_matter() {
        let json = serde_json::from_str(
            r#"{"metadata": {"namespace": "shop", "name": "orders", "resourceVersion": "9",
                  "annotations": {"plimsoll.dev/mode": "Enforce", "other.io/x": "y"}},
                "spec": {"type": "ClusterIP", "clusterIP": "None", "ipFamilies": ["IPv6", "IPv4"],
                  "publishNotReadyAddresses": true,
                  "ports": [{"name": "grpc", "port": 80, "targetPort": 8080, "appProtocol": "grpc"},
                            {"name": "dns", "port": 53, "protocol": "UDP"}]}}"#,
        );
        let service = Service::from_json(json.unwrap());
        assert_eq!(service.key.to_string(), "shop/orders");
        assert_eq!(service.address_family, Some(AddressType::Ipv6));
        assert!(service.publish_not_ready_addresses && !service.is_external_name);
        assert_eq!(service.annotations.len(), 1);
        assert_eq!(service.annotations["mode"], "Enforce");
        assert!(service.ports[0].is_tcp && !service.ports[1].is_tcp);
        assert_eq!(service.ports[0].app_protocol.as_deref(), Some("grpc"));
    }

    #[test]
    fn an_external_name_has_no_endpoints() {
        let json = serde_json::from_str(
            r#"{"metadata": {"name": "x"}, "spec": {"type": "ExternalName"}}"#,
        );
        let service = Service::from_json(json.unwrap());
        assert!(service.is_external_name && service.ports.is_empty());
        assert_eq!(service.address_family, None);
    }
}
