//! Kubernetes objects, with the fields that are read and no others.
//!
//! The types mirror `discovery.k8s.io/v1` EndpointSlice, core `v1` Service and our own
//! `plimsoll.dev/v1alpha1` ZoneRoutingPolicy. EndpointSlices are kept in a compact form: a cluster
//! has tens of thousands of endpoints, of which only address, zone and conditions matter here.

mod policy;
mod service;
mod slice;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

pub use policy::{Condition, PolicyStatus, TargetRef, ZoneRoutingPolicy, ZoneStatus};
pub use service::{Service, ServicePortSpec};
pub use slice::{
    AddressType, Conditions, EndpointSlice, SERVICE_NAME_LABEL, SliceEndpoint, SlicePort,
};

/// Namespace and name of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectKey {
    /// Creates a key from its two parts.
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The part of `ObjectMeta` that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    pub namespace: String,
    pub name: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    /// RFC 3339 in UTC, which sorts as text.
    #[serde(deserialize_with = "null_as_default")]
    pub creation_timestamp: String,
    #[serde(deserialize_with = "null_as_default")]
    pub labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    pub annotations: BTreeMap<String, String>,
}

impl ObjectMeta {
    /// Returns namespace and name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(&self.namespace, &self.name)
    }
}

/// A kind of object that can be listed and watched.
pub trait Resource: Sized + Send + Sync + PartialEq + 'static {
    /// JSON form of the object.
    type Json: DeserializeOwned;
    /// Kind, for log lines and metrics.
    const KIND: &'static str;
    /// Path of the API group and version, such as `/api/v1`.
    const API: &'static str;
    /// Plural name in paths.
    const PLURAL: &'static str;
    /// Whether the API server may not know the kind, because its CRD is not installed.
    const IS_CUSTOM: bool = false;

    /// Converts the JSON form.
    fn from_json(json: Self::Json) -> Self;
    /// Identity of the object among those of its kind.
    fn key(&self) -> &ObjectKey;
    /// `metadata.resourceVersion`, an opaque string.
    fn resource_version(&self) -> &str;
}

/// Only the metadata of an object: of bookmarks, and of objects that cannot be decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PartialObject {
    pub metadata: ObjectMeta,
}

/// One page of a list, with items that are decoded one by one.
#[derive(Debug, Deserialize)]
pub struct ListJson {
    #[serde(default)]
    pub metadata: ListMeta,
    #[serde(default, deserialize_with = "null_as_default")]
    pub items: Vec<Box<RawValue>>,
}

/// `ListMeta` of a page.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    pub resource_version: String,
    /// Token of the next page; empty on the last.
    #[serde(rename = "continue")]
    pub continue_token: String,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub struct WatchEventJson {
    /// `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`.
    #[serde(rename = "type")]
    pub kind: String,
    pub object: Box<RawValue>,
}

/// `Status`: body of errors, and object of `ERROR` events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    pub code: u16,
    pub reason: String,
    pub message: String,
}

/// Reads `null`, which Go writes for an empty list or map, as the default.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_may_have_null_items_and_unknown_fields() {
        let page: ListJson = serde_json::from_str(
            r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": null}"#,
        )
        .unwrap();
        assert!(page.items.is_empty());
        assert_eq!(page.metadata.resource_version, "7");
        assert_eq!(page.metadata.continue_token, "");
    }

    #[test]
    fn metadata_without_labels_is_read() {
        let object: PartialObject = serde_json::from_str(
            r#"{"metadata": {"name": "a", "namespace": "n", "labels": null}}"#,
        )
        .unwrap();
        assert_eq!(object.metadata.key().to_string(), "n/a");
    }
}
