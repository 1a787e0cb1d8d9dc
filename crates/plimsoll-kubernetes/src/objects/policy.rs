//! [`ZoneRoutingPolicy`] of `plimsoll.dev/v1alpha1`: settings that do not fit an annotation, and
//! the status that the control plane writes. Shaped like a policy attachment of the Gateway API.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{ObjectKey, ObjectMeta, Resource, null_as_default};

/// A policy for Services of its namespace.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneRoutingPolicy {
    pub key: ObjectKey,
    pub resource_version: Arc<str>,
    pub generation: i64,
    pub created: Arc<str>,
    pub target_refs: Vec<TargetRef>,
    /// Fields of `spec` that are settings: `mode`, `ramp`, `delivery`, `objective`,
    /// `capacity`, `cost`, `cluster`, `istio`.
    pub settings: Map<String, Value>,
    pub status: PolicyStatus,
}

/// What a policy applies to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TargetRef {
    pub group: String,
    pub kind: String,
    pub name: String,
    /// Name of a port; all ports without it.
    pub section_name: Option<String>,
}

/// `status` of a policy.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicyStatus {
    pub observed_generation: i64,
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: Vec<Condition>,
    #[serde(deserialize_with = "null_as_default")]
    pub zones: Vec<ZoneStatus>,
}

/// A condition, as in `metav1.Condition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    pub observed_generation: i64,
    pub last_transition_time: String,
    pub reason: String,
    pub message: String,
}

/// Demand and load of one zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ZoneStatus {
    pub zone: String,
    pub demand_percent: u32,
    pub capacity_percent: u32,
    /// Load relative to the load line, as a decimal number: `"1.00"` is on the line.
    pub load: String,
}

#[doc(hidden)]
#[derive(Debug, Deserialize)]
pub struct PolicyJson {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SpecJson,
    #[serde(default, deserialize_with = "null_as_default")]
    status: PolicyStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct SpecJson {
    #[serde(deserialize_with = "null_as_default")]
    target_refs: Vec<TargetRef>,
    #[serde(flatten)]
    settings: Map<String, Value>,
}

impl Resource for ZoneRoutingPolicy {
    type Json = PolicyJson;
    const KIND: &'static str = "ZoneRoutingPolicy";
    const API: &'static str = "/apis/plimsoll.dev/v1alpha1";
    const PLURAL: &'static str = "zoneroutingpolicies";
    const IS_CUSTOM: bool = true;

    fn from_json(json: PolicyJson) -> Self {
        let PolicyJson {
            metadata,
            spec,
            status,
        } = json;
        Self {
            key: metadata.key(),
            resource_version: metadata.resource_version.as_str().into(),
            generation: metadata.generation,
            created: metadata.creation_timestamp.as_str().into(),
            target_refs: spec.target_refs,
            settings: spec.settings,
            status,
        }
    }

    fn key(&self) -> &ObjectKey {
        &self.key
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl ZoneRoutingPolicy {
    /// Whether the policy applies to a port of a Service of the same namespace.
    pub fn targets(&self, service: &str, port: &str) -> bool {
        self.rank(service, port).is_some()
    }

    /// Returns what decides between policies for the same port: one that names the port comes
    /// first, then the oldest, then the first by name, as with policies of the Gateway API.
    pub fn rank(&self, service: &str, port: &str) -> Option<(bool, &str, &str)> {
        let targets = self.target_refs.iter();
        let own = targets.filter(|target| target.is_service() && target.name == service);
        let of_port = own.filter_map(|target| match &target.section_name {
            None => Some(true),
            Some(name) => (name == port).then_some(false),
        });
        let is_whole = of_port.min()?;
        Some((is_whole, &self.created, &self.key.name))
    }
}

impl ZoneRoutingPolicy {
    /// Returns the fleets whose demand counts for `istio.distribute`; `*` is every fleet.
    pub fn istio_fleets(&self) -> BTreeSet<&str> {
        let istio = self.settings.get("istio");
        let fleets = istio.and_then(|istio| istio.get("fleets")?.as_array());
        fleets
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect()
    }
}

impl TargetRef {
    /// Whether this is a reference to a Service of the core API.
    pub fn is_service(&self) -> bool {
        matches!(&*self.group, "" | "core") && self.kind == "Service"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_read_and_knows_its_targets() {
        let json = serde_json::from_str(
            r#"{"metadata": {"namespace": "shop", "name": "p", "generation": 3},
                "spec": {"mode": "Enforce", "ramp": 20, "cluster": {"lb_policy": "RANDOM"},
                  "targetRefs": [{"group": "", "kind": "Service", "name": "orders"},
                    {"kind": "Service", "name": "users", "sectionName": "grpc"},
                    {"group": "x", "kind": "Service", "name": "foreign"}]},
                "status": {"observedGeneration": 2, "conditions": [{"type": "Accepted",
                  "status": "True", "reason": "Accepted"}]}}"#,
        );
        let policy = ZoneRoutingPolicy::from_json(json.unwrap());
        assert_eq!(policy.generation, 3);
        assert_eq!(policy.settings.len(), 3);
        assert!(policy.targets("orders", "") && policy.targets("orders", "http"));
        assert!(policy.targets("users", "grpc") && !policy.targets("users", "http"));
        assert!(!policy.targets("foreign", "") && !policy.targets("other", ""));
        assert_eq!(policy.status.conditions[0].kind, "Accepted");
    }
}
