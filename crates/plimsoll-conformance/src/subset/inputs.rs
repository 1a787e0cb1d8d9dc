//! Inputs of the suite `subset` and their translation: metadata, settings, hosts by priority and
//! locality.

use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::metadata::{Metadata, MetadataValue};
use plimsoll_xds::yaml::parse_cluster;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::CaseError;
use crate::policies::{NAME, cluster_with, policy};

pub(super) type Json = Map<String, Value>;

pub(super) fn metadata(fields: &Json) -> Result<Metadata, CaseError> {
    fields
        .iter()
        .map(|(key, json)| Ok((&**key, value(json)?)))
        .collect()
}

pub(super) fn value(json: &Value) -> Result<MetadataValue, CaseError> {
    Ok(match json {
        Value::Null => MetadataValue::Null,
        Value::Bool(value) => (*value).into(),
        Value::Number(number) => {
            let number = number.as_f64().unwrap_or(f64::NAN);
            MetadataValue::number(number)?
        }
        Value::String(text) => (&**text).into(),
        Value::Array(values) => {
            let values = values.iter().map(value);
            MetadataValue::list(values.collect::<Result<Vec<_>, CaseError>>()?)
        }
        Value::Object(fields) => metadata(fields)?.into(),
    })
}

pub(super) fn to_json(value: &MetadataValue) -> Value {
    match value {
        MetadataValue::Null => Value::Null,
        MetadataValue::Bool(value) => json!(value),
        MetadataValue::Number(number) => json!(number.get()),
        MetadataValue::String(text) => json!(&**text),
        MetadataValue::List(values) => values.iter().map(to_json).collect(),
        MetadataValue::Struct(fields) => fields_to_json(fields),
    }
}

pub(super) fn fields_to_json(fields: &Metadata) -> Value {
    let members = fields
        .iter()
        .map(|(key, value)| (key.to_string(), to_json(value)));
    Value::Object(members.collect())
}

pub(super) fn subset_cluster(
    mut config: Json,
    children: &[String],
) -> Result<ClusterConfig, String> {
    let child = |name: &String| policy(name, name, Map::new());
    let children: Vec<Value> = children.iter().map(child).collect();
    config.insert("subset_lb_policy".into(), json!({"policies": children}));
    let name = format!("{NAME}subset");
    cluster_of(&cluster_with(policy(&name, &name, config)))
}

pub(super) fn cluster_of(cluster: &Value) -> Result<ClusterConfig, String> {
    parse_cluster(&cluster.to_string()).map_err(|error| error.to_string())
}

/// Hosts of one priority or of the local cluster, in one locality or several.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct PriorityInput {
    pub(super) hosts: Option<Vec<HostInput>>,
    pub(super) localities: Option<Vec<LocalityInput>>,
    pub(super) has_local_locality: bool,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct LocalityInput {
    pub(super) zone: String,
    pub(super) weight: Option<u32>,
    pub(super) hosts: Vec<HostInput>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostInput {
    pub(super) id: String,
    pub(super) metadata: Option<Json>,
    #[serde(default)]
    pub(super) health: Health,
    /// Zone of the host; only used in `add` lists.
    pub(super) zone: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Health {
    #[default]
    Healthy,
    Degraded,
    Unhealthy,
}

impl PriorityInput {
    /// Returns the localities; hosts that the case lists without locality form one of their own.
    pub(super) fn into_localities(self) -> Vec<LocalityInput> {
        let single = self.hosts.map(|hosts| LocalityInput {
            hosts,
            ..LocalityInput::default()
        });
        let localities = self.localities.into_iter().flatten();
        single.into_iter().chain(localities).collect()
    }
}
