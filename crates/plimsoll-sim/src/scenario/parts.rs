//! [`ScenarioParts`]: a scenario as its file spells it, unchecked, unknown fields refused.
//!
//! What may be left out is an `Option` or has a default; the defaults themselves live in `check`.
//! Tests that need many variants of one scenario fill these in and call `Scenario::try_new`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::span::Span;

/// A scenario, unchecked. `Default` is "everything unset".
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioParts {
    /// One line.
    pub title: String,
    /// What the scenario shows, a few sentences.
    pub description: String,
    /// Same seed, same bytes; default 1.
    pub seed: Option<u64>,
    /// Simulated time; default 120 s.
    pub duration: Option<Span>,
    /// Averages and peaks count from here; default the second half.
    pub measure_from: Option<Span>,
    /// Names of policies, in the order of the report; default all there are.
    pub policies: Vec<String>,
    /// How much traffic there is.
    pub traffic: TrafficParts,
    /// Where it arrives and where hosts are.
    pub zone: Vec<ZoneParts>,
    /// How hosts serve requests.
    pub host: HostParts,
    /// How long messages are under way.
    pub network: NetworkParts,
    /// How hosts report their load.
    pub reports: ReportsParts,
    /// How load reports of proxies become fractions.
    pub control_plane: ControlPlaneParts,
    /// Settings that all policies share.
    pub balancer: BalancerParts,
    /// Settings of the load-aware policies.
    pub load_aware_locality: LoadAwareLocalityParts,
    /// What is left out to be fast.
    pub scale: ScaleParts,
    /// What happens on the way.
    pub event: Vec<EventParts>,
    /// What must come out.
    pub expect: Vec<ExpectParts>,
}

/// `[traffic]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TrafficParts {
    /// Total demand as a share of the total capacity; this or `requests_per_second`.
    pub mean_utilization: Option<f64>,
    /// Total demand.
    pub requests_per_second: Option<f64>,
    /// `paced` (default) or `poisson`.
    pub arrivals: Option<String>,
    /// Slow waves, for example a day made short.
    pub wave: Vec<WaveParts>,
}

/// `[[traffic.wave]]`: demand × (1 + amplitude · sin(2π (t ÷ period + phase))).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WaveParts {
    /// A zone (or a group of zones); all when unset.
    pub zone: Option<String>,
    /// Length of one wave.
    pub period: Span,
    /// 0 to 1.
    pub amplitude: f64,
    /// Share of a period by which the wave is ahead.
    pub phase: f64,
}

/// `[[zone]]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZoneParts {
    /// Its name.
    pub name: String,
    /// That many alike, named with a number behind; default one, named without.
    pub count: Option<u32>,
    /// Demand that arrives here, relative to the other zones (each of `count`).
    pub demand: f64,
    /// Proxies here; default 1.
    pub proxies: Option<u32>,
    /// The first proxy issues that many times the requests of another.
    pub heavy_proxy: Option<f64>,
    /// Upstream hosts here.
    pub hosts: Vec<HostGroupParts>,
}

/// One group of equal hosts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostGroupParts {
    /// How many.
    pub count: u32,
    /// Requests per second each can serve.
    pub capacity: f64,
    /// `load_balancing_weight`; unset = none in the assignment.
    pub weight: Option<u32>,
}

/// `[host]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostParts {
    /// `exponential` (default), `constant`, or `instant` (no queue, overload is counted only).
    pub service: Option<String>,
    /// Requests one host works on at a time; default 3. A request takes servers ÷ capacity.
    pub servers: Option<u32>,
    /// Requests that may wait at one host; more are refused with a 5xx; default one second's worth.
    pub queue: Option<f64>,
    /// Time until a dead host is known to be dead (and a returned one to be back); default 3 s.
    pub detection: Option<Span>,
}

/// `[network]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NetworkParts {
    /// One way within a zone; default 0.25 ms.
    pub local: Option<Span>,
    /// One way between zones; default 1 ms.
    pub remote: Option<Span>,
}

/// `[reports]`: ORCA.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReportsParts {
    /// `in_band` (default) or `out_of_band`.
    pub mode: Option<String>,
    /// Period of out-of-band reports; default 1 s.
    pub period: Option<Span>,
    /// Over which time a host measures its own rate; default 1 s, 0.1 to 60 s.
    pub meter_window: Option<Span>,
    /// Relative error of each report (standard deviation); default 0.
    pub noise: f64,
    /// Share of reports that never arrive; default 0.
    pub loss: f64,
    /// How much later than its measurement a report arrives; default 0.
    pub delay: Option<Span>,
}

/// `[control_plane]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ControlPlaneParts {
    /// Time between two load reports of a proxy; default 10 s.
    pub report_interval: Option<Span>,
    /// From a proxy to the control plane, and back; default 100 ms each.
    pub delay: Option<Span>,
    /// Time constant of the planner; default its own (20 s).
    pub tau: Option<Span>,
    /// Longest silence between two updates; default the planner's (20 s).
    pub heartbeat: Option<Span>,
    /// Age at which fractions stop counting; default the core's (60 s).
    pub staleness_threshold: Option<Span>,
}

/// `[balancer]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BalancerParts {
    /// `round_robin` (default), `least_request` or `random`.
    pub endpoint_policy: Option<String>,
    /// `by_policy` (default: evenly for the policies that are ours, independent draws for the
    /// others, as Envoy does), `random` or `low_discrepancy`.
    pub locality_sampling: Option<String>,
    /// Fewer healthy hosts switch zone-aware routing off; default 6 (Envoy).
    pub min_cluster_size: Option<u64>,
    /// What stands for capacity beside measured demand: `hosts` (default) or `weights`.
    pub upstream_locality_basis: Option<String>,
    /// Proxies start within this time, each at its own moment; default 1 s.
    pub start_spread: Option<Span>,
}

/// `[load_aware_locality]`: fields of the policy, with its own defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct LoadAwareLocalityParts {
    /// How often weights are recomputed.
    pub weight_update_period: Option<Span>,
    /// Time constant of the smoothing.
    pub smoothing_time_constant: Option<Span>,
    /// How far above the others the own locality may be.
    pub utilization_variance_threshold: Option<f64>,
    /// Share of requests that always leaves, so that the others keep reporting.
    pub remote_probe_fraction: Option<f64>,
    /// Share of requests that always stays.
    pub local_probe_fraction: Option<f64>,
    /// Age at which a report stops counting.
    pub weight_expiration_period: Option<Span>,
}

/// `[scale]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ScaleParts {
    /// Each simulated request stands for that many; default 1.
    pub requests_per_sample: Option<u32>,
    /// At most that many balancers per zone; each stands for several proxies. Default no limit.
    pub balancers_per_zone: Option<u32>,
}

/// `[[event]]`: a moment and one thing that happens then.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EventParts {
    /// When.
    pub at: Span,
    /// Demand changes.
    pub demand: Option<DemandEventParts>,
    /// The whole demand is split in another way: zone (or group) to relative demand.
    pub shares: Option<BTreeMap<String, f64>>,
    /// All hosts of a zone die; its proxies live on.
    pub lose_hosts: Option<ZoneEventParts>,
    /// Hosts and proxies of a zone die; its demand arrives in the other zones.
    pub lose_zone: Option<ZoneEventParts>,
    /// Some hosts of a zone fail their health checks.
    pub unhealthy: Option<UnhealthyEventParts>,
    /// Hosts of a zone can serve more or less than before.
    pub capacity: Option<CapacityEventParts>,
    /// Hosts stop reporting their load.
    pub stop_reports: Option<StopReportsEventParts>,
    /// Nothing gets to the control plane, and nothing from it.
    pub control_plane_outage: Option<OutageEventParts>,
}

/// `demand = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DemandEventParts {
    /// A zone (or a group of zones); all when unset.
    pub zone: Option<String>,
    /// Demand is multiplied by this.
    pub factor: f64,
    /// Grows or falls to it over this time; default at once.
    pub over: Option<Span>,
    /// Ends after this time; default never.
    pub r#for: Option<Span>,
}

/// `lose_hosts = { … }`, `lose_zone = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZoneEventParts {
    /// The zone.
    pub zone: String,
    /// Comes back after this time; default never.
    pub r#for: Option<Span>,
}

/// `unhealthy = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UnhealthyEventParts {
    /// The zone.
    pub zone: String,
    /// How many of its hosts.
    pub hosts: u32,
    /// Recover after this time; default never.
    pub r#for: Option<Span>,
}

/// `capacity = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CapacityEventParts {
    /// The zone.
    pub zone: String,
    /// Capacity is multiplied by this.
    pub factor: f64,
    /// Ends after this time; default never.
    pub r#for: Option<Span>,
}

/// `stop_reports = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StopReportsEventParts {
    /// Hosts of this zone (or group); all when unset.
    pub zone: Option<String>,
    /// Ends after this time; default never.
    pub r#for: Option<Span>,
}

/// `control_plane_outage = { … }`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OutageEventParts {
    /// Ends after this time; default never.
    pub r#for: Option<Span>,
}

/// `[[expect]]`: bounds on metrics of one policy, by the names of the JSON report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ExpectParts {
    /// The policy.
    pub policy: String,
    /// Metric to largest allowed value.
    pub at_most: BTreeMap<String, f64>,
    /// Metric to smallest allowed value.
    pub at_least: BTreeMap<String, f64>,
}
