//! JSON of Consul's HTTP API, with the fields that matter. Lists and maps without entries may be
//! `null`.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Answer of `/v1/catalog/services`: the tags of all instances by service.
pub type CatalogJson = BTreeMap<String, Option<Vec<String>>>;

/// An entry of `/v1/health/service/NAME`: an instance with its checks.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct EntryJson {
    pub node: NodeJson,
    pub service: ServiceJson,
    pub checks: Option<Vec<CheckJson>>,
}

/// The machine that an instance runs on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct NodeJson {
    pub node: String,
    pub address: String,
    pub datacenter: String,
    pub meta: Option<BTreeMap<String, String>>,
}

/// An instance of a service.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct ServiceJson {
    #[serde(rename = "ID")]
    pub id: String,
    /// Empty for a service, or such as `connect-proxy`.
    pub kind: String,
    pub tags: Option<Vec<String>>,
    /// Empty for the address of the node.
    pub address: String,
    pub port: i64,
    pub meta: Option<BTreeMap<String, String>>,
    pub weights: Option<WeightsJson>,
}

/// Weights of an instance by the status of its checks.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct WeightsJson {
    pub passing: i64,
    pub warning: i64,
}

impl Default for WeightsJson {
    fn default() -> Self {
        Self {
            passing: 1,
            warning: 1,
        }
    }
}

/// The outcome of a health check of an instance or its node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct CheckJson {
    #[serde(rename = "CheckID")]
    pub id: String,
    /// `passing`, `warning` or `critical`.
    pub status: String,
}
