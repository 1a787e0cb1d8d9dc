//! Inputs of `kind.weights` and their translation to core types.

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use serde::Deserialize;
use serde_json::{Value, json};

use super::own;
use super::settings::SettingsInput;
use crate::CaseError;
use crate::report::report;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::load_aware_locality) struct WeightsInputs {
    #[serde(default)]
    pub(super) config: SettingsInput,
    pub(super) topology: Vec<PriorityInput>,
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    pub(super) hosts_without_policy_data: Vec<String>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriorityInput {
    /// Whether the first locality is the locality of the proxy.
    #[serde(default)]
    has_local_locality: bool,
    pub(super) localities: Vec<LocalityInput>,
}

impl PriorityInput {
    /// Returns the locality at an index. The local one is the locality of the proxy, whatever its
    /// name in the case is.
    pub(super) fn locality(&self, index: usize) -> Locality {
        if index == 0 && self.has_local_locality {
            return own();
        }
        Locality::new("other", &self.localities[index].name, "")
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocalityInput {
    pub(super) name: String,
    pub(super) hosts: Vec<String>,
    healthy: Option<Vec<String>>,
    #[serde(default)]
    degraded: Vec<String>,
}

impl LocalityInput {
    /// Returns the health of a host; hosts are healthy unless `healthy` is a list without them.
    pub(super) fn health(&self, host: &String) -> Result<HealthStatus, CaseError> {
        let healthy = self.healthy.as_ref().unwrap_or(&self.hosts).contains(host);
        match (healthy, self.degraded.contains(host)) {
            (true, true) => Err(CaseError::inputs(format!(
                "{host} cannot be both healthy and degraded"
            ))),
            (true, false) => Ok(HealthStatus::Healthy),
            (false, true) => Ok(HealthStatus::Degraded),
            (false, false) => Ok(HealthStatus::Unhealthy),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    Tick {},
    Report(ReportStep),
    AdvanceMs { ms: u64 },
    SetTopology { topology: Vec<PriorityInput> },
    AttachPolicyData(HostsStep),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReportStep {
    host: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
    application_utilization: Option<Value>,
    report: Option<Value>,
}

impl ReportStep {
    pub(super) fn hosts(&self) -> Vec<String> {
        self.host.iter().chain(&self.hosts).cloned().collect()
    }

    pub(super) fn report(&self) -> Result<OrcaLoadReport, CaseError> {
        match (&self.report, &self.application_utilization) {
            (Some(json), None) => report(json),
            (None, Some(value)) => report(&json!({"application_utilization": value})),
            _ => Err(CaseError::inputs(
                "a report has either application_utilization or report",
            )),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostsStep {
    host: Option<String>,
    #[serde(default)]
    hosts: Vec<String>,
}

impl HostsStep {
    pub(super) fn hosts(&self) -> Vec<String> {
        self.host.iter().chain(&self.hosts).cloned().collect()
    }
}
