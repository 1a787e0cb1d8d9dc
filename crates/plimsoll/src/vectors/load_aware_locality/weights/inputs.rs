//! Inputs of `kind.weights` and their translation to core types.

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::orca::OrcaLoadReport;
use serde::Deserialize;
use serde_json::{Value, json};

use super::own;
use super::settings::SettingsInput;
use crate::vectors::CaseError;
use crate::vectors::report::report;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::vectors::load_aware_locality) struct WeightsInputs {
    #[serde(default)]
    pub(super) config: SettingsInput,
    pub(super) topology: Vec<PriorityInput>,
    pub(super) steps: Vec<Step>,
    #[serde(default)]
    pub(super) hosts_without_policy_data: Vec<String>,
}

/// One priority.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PriorityInput {
    /// The first locality is the own one.
    #[serde(default)]
    has_local_locality: bool,
    pub(super) localities: Vec<LocalityInput>,
}

impl PriorityInput {
    /// The locality at an index. Only the own one is where the proxy is, whatever its name.
    pub(super) fn locality(&self, index: usize) -> Locality {
        if index == 0 && self.has_local_locality {
            return own();
        }
        Locality::new("other", &self.localities[index].name, "")
    }
}

/// One locality: names of hosts.
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
    /// Healthy unless there is a list of healthy hosts without it.
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

/// One step.
#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Step {
    Tick {},
    Report(ReportStep),
    AdvanceMs { ms: u64 },
    SetTopology { topology: Vec<PriorityInput> },
    AttachPolicyData(HostsStep),
}

/// A report of one host or several.
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

/// One host or several.
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
