//! `overload_manager` of the bootstrap: limits of connections, and what the proxy does when memory
//! or time runs short.

use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{ProtoDuration, Uint};
use serde::Deserialize;

use super::MaxConnections;

const DOWNSTREAM_CONNECTIONS: &str =
    "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig";
const CONNECTIONS_PER_ADDRESS: &str = "plimsoll.resource_monitors.v1.ConnectionsPerAddressConfig";
const FIXED_HEAP: &str = "envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig";
const CGROUP_MEMORY: &str =
    "envoy.extensions.resource_monitors.cgroup_memory.v3.CgroupMemoryConfig";
const WORKER_LAG: &str = "plimsoll.resource_monitors.v1.WorkerLagConfig";

const REFRESH_INTERVAL: Duration = Duration::from_millis(250);

/// Settings of the overload manager.
#[derive(Clone, Debug, PartialEq)]
pub struct OverloadConfig {
    /// Time between two readings of the monitors.
    pub refresh_interval: Duration,
    pub monitors: Vec<ResourceMonitor>,
    pub triggers: Vec<OverloadTrigger>,
}

impl Default for OverloadConfig {
    fn default() -> Self {
        Self {
            refresh_interval: REFRESH_INTERVAL,
            monitors: Vec::new(),
            triggers: Vec::new(),
        }
    }
}

/// A resource, and how much of it is a pressure of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResourceMonitor {
    /// Resident memory of the process.
    FixedHeap { max_bytes: u64 },
    /// Memory of the control group that cannot be reclaimed; without a maximum its limit counts.
    CgroupMemory { max_bytes: Option<u64> },
    /// Time by which the slowest worker is behind.
    WorkerLag { max: Duration },
}

/// An action, the monitor that begins it, and the pressure at which it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OverloadTrigger {
    pub action: OverloadAction,
    /// Index among the monitors.
    pub monitor: usize,
    pub threshold: f64,
}

/// What the proxy does while a resource is short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OverloadAction {
    /// Close connections with their next response.
    DisableHttpKeepalive = 1,
    /// Answer new requests with 503.
    StopAcceptingRequests = 2,
    /// Close connections that have had no request for a second.
    CloseIdleConnections = 4,
    /// Leave new connections in the queue of the kernel.
    StopAcceptingConnections = 8,
    /// Close new connections at once.
    RejectIncomingConnections = 16,
}

impl OverloadAction {
    pub const ALL: [Self; 5] = [
        Self::DisableHttpKeepalive,
        Self::StopAcceptingRequests,
        Self::CloseIdleConnections,
        Self::StopAcceptingConnections,
        Self::RejectIncomingConnections,
    ];

    /// Returns the name in configuration files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DisableHttpKeepalive => "envoy.overload_actions.disable_http_keepalive",
            Self::StopAcceptingRequests => "envoy.overload_actions.stop_accepting_requests",
            Self::CloseIdleConnections => "plimsoll.overload_actions.close_idle_connections",
            Self::StopAcceptingConnections => "envoy.overload_actions.stop_accepting_connections",
            Self::RejectIncomingConnections => "envoy.overload_actions.reject_incoming_connections",
        }
    }
}

/// Overload manager (`OverloadManager`): limits of downstream connections, and actions against
/// overload.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct OverloadManagerYaml {
    /// Time between two readings of the monitors, from 10 ms to 10 s. Default `0.25s`.
    refresh_interval: Option<ProtoDuration>,
    /// Limits of connections, and resources that actions depend on.
    resource_monitors: Vec<ResourceMonitorYaml>,
    /// What happens while a resource is short.
    actions: Vec<OverloadActionYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ResourceMonitorYaml {
    /// Name by which triggers refer to the monitor.
    name: String,
    /// Type and limit of the monitor.
    typed_config: MonitorConfigYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct MonitorConfigYaml {
    /// Type of the monitor, which needs the field in brackets:
    /// `type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig`
    /// (`max_active_downstream_connections`),
    /// `type.googleapis.com/plimsoll.resource_monitors.v1.ConnectionsPerAddressConfig` (the same,
    /// for each client address; an IPv6 network of 64 bits counts as one),
    /// `type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig`
    /// (`max_heap_size_bytes`),
    /// `type.googleapis.com/envoy.extensions.resource_monitors.cgroup_memory.v3.CgroupMemoryConfig`
    /// (`max_memory_bytes` is optional),
    /// `type.googleapis.com/plimsoll.resource_monitors.v1.WorkerLagConfig` (`max_lag`).
    #[serde(rename = "@type")]
    type_url: String,
    /// Limit of open downstream connections over all listeners; further ones are closed at once.
    /// Default unlimited if there is no such monitor.
    max_active_downstream_connections: Option<Uint<u64>>,
    /// Resident memory of the process that is a pressure of 1.
    max_heap_size_bytes: Option<Uint<u64>>,
    /// Memory of the control group that is a pressure of 1. Default, and at most, its limit.
    max_memory_bytes: Option<Uint<u64>>,
    /// Time by which a worker is behind that is a pressure of 1.
    max_lag: Option<ProtoDuration>,
}

/// An action against overload (`OverloadAction`).
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct OverloadActionYaml {
    /// `envoy.overload_actions.disable_http_keepalive`,
    /// `envoy.overload_actions.stop_accepting_requests`,
    /// `plimsoll.overload_actions.close_idle_connections`,
    /// `envoy.overload_actions.stop_accepting_connections` or
    /// `envoy.overload_actions.reject_incoming_connections`.
    name: String,
    /// When the action is in force: while any of them applies.
    triggers: Vec<TriggerYaml>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TriggerYaml {
    /// Name of a monitor of memory or lag.
    name: String,
    /// Pressure from which on the trigger applies.
    threshold: ThresholdYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ThresholdYaml {
    /// From 0 to 1.
    value: f64,
}

/// What a monitor is for.
enum Monitor {
    MaxTotal(u64),
    MaxPerAddress(u64),
    Resource(ResourceMonitor),
}

impl OverloadManagerYaml {
    pub(super) fn validate(&self) -> Result<(MaxConnections, OverloadConfig), FieldError> {
        let mut limits = MaxConnections::default();
        let mut config = OverloadConfig::default();
        if let Some(interval) = &self.refresh_interval {
            config.refresh_interval = interval.0;
        }
        let allowed = Duration::from_millis(10)..=Duration::from_secs(10);
        if !allowed.contains(&config.refresh_interval) {
            return Err(FieldError::new(
                "refresh_interval",
                "must be from 0.01s to 10s",
            ));
        }
        let mut names = Vec::new();
        for (index, monitor) in self.resource_monitors.iter().enumerate() {
            let under = |error: FieldError| {
                error.under(&format!("resource_monitors[{index}].typed_config"))
            };
            match monitor.typed_config.validate().map_err(under)? {
                Monitor::MaxTotal(max) => limits.total = Some(max),
                Monitor::MaxPerAddress(max) => limits.per_address = Some(max),
                Monitor::Resource(resource) => {
                    names.push(monitor.name.as_str());
                    config.monitors.push(resource);
                }
            }
        }
        for (index, action) in self.actions.iter().enumerate() {
            let triggers = action.validate(&names);
            let triggers = triggers.map_err(|error| error.under(&format!("actions[{index}]")))?;
            config.triggers.extend(triggers);
        }
        Ok((limits, config))
    }
}

impl MonitorConfigYaml {
    fn validate(&self) -> Result<Monitor, FieldError> {
        let connections = self.max_active_downstream_connections.as_ref();
        let (heap, memory) = (
            self.max_heap_size_bytes.as_ref(),
            self.max_memory_bytes.as_ref(),
        );
        let lag = self.max_lag.as_ref();
        let fields = [
            ("max_active_downstream_connections", connections.is_some()),
            ("max_heap_size_bytes", heap.is_some()),
            ("max_memory_bytes", memory.is_some()),
            ("max_lag", lag.is_some()),
        ];
        let is_positive = |max: &&Uint<u64>| max.0 > 0;
        let positive = "must be set, and more than 0";
        let full_name = self.type_url.rsplit('/').next().unwrap_or_default();
        let (own, monitor) = match full_name {
            DOWNSTREAM_CONNECTIONS => (0, connections.map(|max| Monitor::MaxTotal(max.0))),
            CONNECTIONS_PER_ADDRESS => (0, connections.map(|max| Monitor::MaxPerAddress(max.0))),
            FIXED_HEAP => (
                1,
                heap.filter(is_positive)
                    .map(|max| Monitor::Resource(ResourceMonitor::FixedHeap { max_bytes: max.0 })),
            ),
            CGROUP_MEMORY => {
                let max_bytes = memory.map(|max| max.0).filter(|max| *max > 0);
                (
                    2,
                    Some(Monitor::Resource(ResourceMonitor::CgroupMemory {
                        max_bytes,
                    })),
                )
            }
            WORKER_LAG => (
                3,
                lag.filter(|max| !max.0.is_zero())
                    .map(|max| Monitor::Resource(ResourceMonitor::WorkerLag { max: max.0 })),
            ),
            _ => {
                let reason = format!(
                    "{:?} is not supported here; supported: {DOWNSTREAM_CONNECTIONS}, \
                     {CONNECTIONS_PER_ADDRESS}, {FIXED_HEAP}, {CGROUP_MEMORY}, {WORKER_LAG}",
                    self.type_url
                );
                return Err(FieldError::new("@type", reason));
            }
        };
        for (index, (name, is_set)) in fields.into_iter().enumerate() {
            if is_set && index != own {
                return Err(FieldError::new(name, "is no field of this type"));
            }
        }
        monitor.ok_or_else(|| FieldError::new(fields[own].0, positive))
    }
}

impl OverloadActionYaml {
    fn validate(&self, monitors: &[&str]) -> Result<Vec<OverloadTrigger>, FieldError> {
        let mut known = OverloadAction::ALL.into_iter();
        let Some(action) = known.find(|action| action.name() == self.name) else {
            let names = OverloadAction::ALL.map(OverloadAction::name).join(", ");
            let reason = format!("{:?} is not supported; supported: {names}", self.name);
            return Err(FieldError::new("name", reason));
        };
        let mut triggers = Vec::new();
        for (index, trigger) in self.triggers.iter().enumerate() {
            let field = |field: &str| format!("triggers[{index}].{field}");
            let Some(monitor) = monitors.iter().position(|name| *name == trigger.name) else {
                let reason = format!("{:?} is no monitor of memory or lag", trigger.name);
                return Err(FieldError::new(field("name"), reason));
            };
            let threshold = trigger.threshold.value;
            if !(0.0..=1.0).contains(&threshold) {
                return Err(FieldError::new(
                    field("threshold.value"),
                    "must be from 0 to 1",
                ));
            }
            triggers.push(OverloadTrigger {
                action,
                monitor,
                threshold,
            });
        }
        Ok(triggers)
    }
}
