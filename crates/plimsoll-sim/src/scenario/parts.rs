//! [`ScenarioParts`]: a scenario file, deserialized but unchecked. Unknown fields are rejected.
//!
//! Optional fields are an `Option` or have a default; `check` defines the defaults. Tests that need
//! many variants of a scenario fill in these types and call `Scenario::try_new`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::duration::HumanDuration;

/// A scenario, unchecked. `Default` leaves everything unset.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ScenarioParts {
    /// Title in one line.
    pub title: String,
    /// A few sentences about what the scenario shows.
    pub description: String,
    /// Seed of the random numbers; the same seed gives the same bytes. Default 1.
    pub seed: Option<u64>,
    /// Simulated time; default 120 s.
    pub duration: Option<HumanDuration>,
    /// Start of the measured part, which averages and peaks cover; default the second half.
    pub measure_from: Option<HumanDuration>,
    /// Names of policies, in the order of the report; default all.
    pub policies: Vec<String>,
    /// Rate and arrival process of the traffic.
    pub traffic: TrafficParts,
    /// Zones with their demand, proxies and hosts.
    pub zone: Vec<ZoneParts>,
    /// Service settings of hosts.
    pub host: HostParts,
    /// Network delays between proxies and hosts.
    pub network: NetworkParts,
    /// Load reports of hosts (ORCA).
    pub reports: ReportsParts,
    /// Load reports of proxies (LRS), and the planner.
    pub control_plane: ControlPlaneParts,
    /// Settings that all policies share.
    pub balancer: BalancerParts,
    /// Outlier detection of the proxies; off without it.
    pub outlier_detection: Option<OutlierDetectionParts>,
    /// Settings of the load-aware policies.
    pub load_aware_locality: LoadAwareLocalityParts,
    /// Sampling that makes large scenarios fast.
    pub scale: ScaleParts,
    /// Changes and failures during the run.
    pub event: Vec<EventParts>,
    /// Bounds on the results.
    pub expect: Vec<ExpectParts>,
}

/// The section `[traffic]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct TrafficParts {
    /// Total demand as a share of the total capacity, at most 3; this or `requests_per_second`.
    #[serde(deserialize_with = "super::share::optional")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub mean_utilization: Option<f64>,
    /// Total demand in requests per second.
    pub requests_per_second: Option<f64>,
    /// `paced` (default) or `poisson`.
    pub arrivals: Option<String>,
    /// Slow sinusoidal changes, for example a day compressed to minutes.
    pub wave: Vec<WaveParts>,
}

/// `[[traffic.wave]]`: demand × (1 + amplitude · sin(2π (t ÷ period + phase))).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WaveParts {
    /// A zone or a group of zones; default all.
    pub zone: Option<String>,
    /// Length of one period.
    pub period: HumanDuration,
    /// Amplitude relative to the demand, 0 to 1.
    #[serde(deserialize_with = "super::share::share")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub amplitude: f64,
    /// Share of a period by which the wave is ahead.
    pub phase: f64,
}

/// An entry of `[[zone]]`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZoneParts {
    /// Name of the zone.
    pub name: String,
    /// Number of identical zones, named with a number appended; default one, without number.
    pub count: Option<u32>,
    /// Demand that arrives here, relative to the other zones (for each of `count`).
    pub demand: f64,
    /// Number of proxies; default 1.
    pub proxies: Option<u32>,
    /// The first proxy issues this many times the requests of another one.
    pub heavy_proxy: Option<f64>,
    /// The first proxy reports this many times the requests that it issues.
    pub liar: Option<f64>,
    /// Groups of upstream hosts.
    pub hosts: Vec<HostGroupParts>,
}

/// A group of identical hosts.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostGroupParts {
    /// Number of hosts in the group.
    pub count: u32,
    /// Requests per second that each host can serve.
    pub capacity: f64,
    /// `load_balancing_weight`; default none in the assignment.
    pub weight: Option<u32>,
}

/// The section `[host]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct HostParts {
    /// `exponential` (default), `constant`, or `instant` (no queue; overload is only counted).
    pub service: Option<String>,
    /// Requests that one host processes at a time; default 3. A request takes servers ÷ capacity.
    pub servers: Option<u32>,
    /// Queue length of one host in requests; more are refused with a 5xx. Default one second of
    /// capacity.
    pub queue: Option<f64>,
    /// Time until a failure or recovery of a host is detected; default 3 s.
    pub detection: Option<HumanDuration>,
    /// Health checks detect hosts that an event `fail` makes refuse, hang or answer every request
    /// with an error; default false. Hosts that are lost are detected in any case.
    pub health_checks: bool,
}

/// The section `[network]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct NetworkParts {
    /// One-way delay within a zone; default 0.25 ms.
    pub local: Option<HumanDuration>,
    /// One-way delay between zones; default 1 ms.
    pub remote: Option<HumanDuration>,
    /// Time until a connection to an unreachable host fails; default 5 s (Envoy).
    pub connect_timeout: Option<HumanDuration>,
    /// Time until a request without a response fails; default 15 s (Envoy).
    pub request_timeout: Option<HumanDuration>,
}

/// The section `[reports]`: load reports of hosts (ORCA).
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ReportsParts {
    /// `in_band` (default) or `out_of_band`.
    pub mode: Option<String>,
    /// Period of out-of-band reports; default 1 s.
    pub period: Option<HumanDuration>,
    /// Window over which a host measures its request rate; default 1 s, 0.1 to 60 s.
    pub meter_window: Option<HumanDuration>,
    /// Relative error of each report (standard deviation); default 0.
    #[serde(deserialize_with = "super::share::share")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub noise: f64,
    /// Share of reports that are lost; default 0.
    #[serde(deserialize_with = "super::share::share")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub loss: f64,
    /// Delay between measurement and arrival of a report; default 0.
    pub delay: Option<HumanDuration>,
}

/// The section `[control_plane]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ControlPlaneParts {
    /// Interval between two load reports of a proxy; default 10 s.
    pub report_interval: Option<HumanDuration>,
    /// One-way delay between a proxy and the control plane; default 100 ms.
    pub delay: Option<HumanDuration>,
    /// Time constant of the planner's smoothing; default 20 s.
    pub tau: Option<HumanDuration>,
    /// Longest time between two updates; default 20 s.
    pub heartbeat: Option<HumanDuration>,
    /// Age at which fractions expire; default 60 s.
    pub staleness_threshold: Option<HumanDuration>,
    /// A proxy counts with at most this many times the median of all proxies; default 20.
    pub max_times_median: Option<u32>,
    /// Objective of the service with `lrs_by_reporter`: requests stay in their zone up to this
    /// utilization, above 0, to 1. Default none: all zones are equally full. The control plane
    /// knows the mean capacity of the hosts.
    #[serde(deserialize_with = "super::share::optional")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub target_utilization: Option<f64>,
    /// Whether the control plane learns with `lrs_by_reporter` what each host can serve, from rate
    /// and utilization in load reports, and sends it as endpoint weights; default false. Zones
    /// follow with `upstream_locality_basis = "weights"` in `[balancer]`.
    pub learned_capacity: bool,
}

/// The section `[balancer]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct BalancerParts {
    /// What the proxies are: `plimsoll` (default) or `envoy`. A stock Envoy gets measured demand as
    /// endpoint weights of the fleet, and reports requests whose connection failed as errors that
    /// were never issued. Plimsoll's data planes send these to another host, up to twice.
    pub data_plane: Option<String>,
    /// `round_robin` (default), `least_request` or `random`.
    pub endpoint_policy: Option<String>,
    /// `by_policy` (default: evenly spaced draws for Plimsoll's own policies, independent draws for
    /// the others, as in Envoy), `random` or `low_discrepancy`.
    pub locality_sampling: Option<String>,
    /// Fewer healthy hosts disable zone-aware routing. Default what is sent to proxies: 1 with
    /// measured demand, 6 (Envoy) otherwise.
    pub min_cluster_size: Option<u64>,
    /// Measure of capacity beside measured demand: `hosts` (default) or `weights`.
    pub upstream_locality_basis: Option<String>,
    /// Proxies start at random times within this period; default 1 s.
    pub start_spread: Option<HumanDuration>,
}

/// The section `[outlier_detection]`: fields of the cluster, with their own defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OutlierDetectionParts {
    /// Number of consecutive errors that eject a host; default 5.
    pub consecutive_5xx: Option<u32>,
    /// Time between two sweeps; default 10 s.
    pub interval: Option<HumanDuration>,
    /// Duration of a first ejection; default 30 s.
    pub base_ejection_time: Option<HumanDuration>,
    /// Percentage of hosts that may be ejected at a time; default 10.
    pub max_ejection_percent: Option<u32>,
}

/// The section `[load_aware_locality]`: fields of the policy, with its own defaults.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct LoadAwareLocalityParts {
    /// How often weights are recomputed.
    pub weight_update_period: Option<HumanDuration>,
    /// Time constant of the smoothing.
    pub smoothing_time_constant: Option<HumanDuration>,
    /// How far the local utilization may exceed that of the other zones before requests spill.
    pub utilization_variance_threshold: Option<f64>,
    /// Share of requests that always leaves, so that other zones keep reporting.
    pub remote_probe_fraction: Option<f64>,
    /// Share of requests that always stays local.
    pub local_probe_fraction: Option<f64>,
    /// Age at which a report expires.
    pub weight_expiration_period: Option<HumanDuration>,
}

/// The section `[scale]` of a scenario.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ScaleParts {
    /// Number of requests that each simulated one represents; default 1.
    pub requests_per_sample: Option<u32>,
    /// Limit of simulated balancers per zone; each represents several proxies. Default no limit.
    pub balancers_per_zone: Option<u32>,
}

/// An entry of `[[event]]`: a time and one effect.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct EventParts {
    /// Time of the event.
    pub at: HumanDuration,
    /// Changes the demand of zones.
    pub demand: Option<DemandEventParts>,
    /// Redistributes the total demand: zone (or group) to relative demand.
    pub shares: Option<BTreeMap<String, f64>>,
    /// All hosts of a zone fail; its proxies stay up.
    pub lose_hosts: Option<ZoneEventParts>,
    /// Hosts and proxies of a zone fail; its demand arrives in the other zones.
    pub lose_zone: Option<ZoneEventParts>,
    /// Requests to hosts of a zone fail.
    pub fail: Option<FailEventParts>,
    /// Some hosts of a zone fail their health checks.
    pub unhealthy: Option<UnhealthyEventParts>,
    /// Changes the capacity of the hosts of a zone.
    pub capacity: Option<CapacityEventParts>,
    /// Hosts stop reporting their load.
    pub stop_reports: Option<StopReportsEventParts>,
    /// The control plane neither receives nor sends anything.
    pub control_plane_outage: Option<OutageEventParts>,
    /// Proxies are replaced by new ones, which know nothing.
    pub restart_proxies: Option<RestartEventParts>,
}

/// The table `demand = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct DemandEventParts {
    /// A zone or a group of zones; default all.
    pub zone: Option<String>,
    /// Factor on the demand.
    pub factor: f64,
    /// Ramps to the factor over this time; default at once.
    pub over: Option<HumanDuration>,
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The tables `lose_hosts = { … }` and `lose_zone = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ZoneEventParts {
    /// A zone or a group of zones.
    pub zone: String,
    /// Duration of the failure; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The table `fail = { … }` of an event. Nobody tells the proxies, unless `host.health_checks` or
/// `[outlier_detection]` is set.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct FailEventParts {
    /// A zone or a group of zones.
    pub zone: String,
    /// `refuse` (connections are refused), `unreachable` (connections time out), `hang` (requests
    /// time out), `error` (a 500 at once) or `slow` (requests take longer).
    pub how: String,
    /// A zone or a group of zones whose proxies alone fail to reach these hosts: the links between
    /// zones are cut, or lose a part. Default all proxies. Not with `slow`.
    pub from: Option<String>,
    /// Number of failing hosts per zone, counted from the first; default all.
    pub hosts: Option<u32>,
    /// Share of the requests to these hosts that fail; default all. Not with `slow`.
    #[serde(deserialize_with = "super::share::optional")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "super::share::schema"))]
    pub share: Option<f64>,
    /// Factor on the service time with `slow`; default 10.
    pub factor: Option<f64>,
    /// Period of hosts that flap: they fail in the first half of each. Default without pause.
    pub every: Option<HumanDuration>,
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The table `unhealthy = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct UnhealthyEventParts {
    /// A zone or a group of zones.
    pub zone: String,
    /// Number of unhealthy hosts per zone.
    pub hosts: u32,
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The table `capacity = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct CapacityEventParts {
    /// A zone or a group of zones.
    pub zone: String,
    /// Factor on the capacity.
    pub factor: f64,
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The table `stop_reports = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct StopReportsEventParts {
    /// A zone or a group of zones; default all.
    pub zone: Option<String>,
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
}

/// The table `control_plane_outage = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct OutageEventParts {
    /// Duration; default until the end.
    pub r#for: Option<HumanDuration>,
    /// Whether it is restarted at the end, and has to measure demand again; default false.
    pub forgets: bool,
}

/// The table `restart_proxies = { … }` of an event.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct RestartEventParts {
    /// A zone or a group of zones; default all.
    pub zone: Option<String>,
}

/// An entry of `[[expect]]`: bounds on metrics of one policy, by the names of the JSON report.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ExpectParts {
    /// Name of the policy.
    pub policy: String,
    /// Name of another policy: bounds are on the difference to its values.
    pub compared_to: Option<String>,
    /// Largest allowed value by metric.
    pub at_most: BTreeMap<String, f64>,
    /// Smallest allowed value by metric.
    pub at_least: BTreeMap<String, f64>,
}
