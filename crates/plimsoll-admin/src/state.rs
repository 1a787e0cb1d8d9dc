//! [`DashboardState`]: the JSON document that the dashboard shows.
//!
//! Hosts (control plane, proxy, demo) fill in what they know; unknown values stay `None` or empty
//! and are shown as unknown, not as zero. Field names are stable, have their units, and are
//! documented in docs/dashboard.md (a test compares them). Instants are Unix milliseconds of the
//! host's clock, not ages, so that unchanged parts of the document are not sent every second.

use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_core::model::locality::Locality;
use serde::{Deserialize, Serialize};

use crate::api::{Cost, PlannedCost, TotalLoad, Verdict, ZoneLoad};
use crate::zone_loss::ZoneLoss;

/// The document that the dashboard shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct DashboardState {
    /// Name of the service, for example `plimsoll control`.
    pub title: String,
    /// Mode or location of the service.
    pub subtitle: String,
    /// Version of the program.
    pub version: String,
    /// When the document was created.
    pub taken_unix_ms: u64,
    /// What is worst, why, and what to do; `None` if the host does not judge.
    pub verdict: Option<Verdict>,
    /// Problems that need attention, most severe first.
    pub notices: Vec<Notice>,
    /// Default price of traffic between zones; viewers can change it.
    pub cost: Cost,
    /// Upstream clusters, each as one fleet of proxies uses it.
    pub clusters: Vec<ClusterState>,
    /// Connected proxies; `None` if the host has none.
    pub nodes: Option<Vec<NodeState>>,
    /// Replicas of the control plane; `None` if the host has no store that they share.
    pub replicas: Option<ReplicasState>,
    /// Zones with their state; `None` if the host cannot take zones out of use.
    pub evacuation: Option<Vec<ZoneOrder>>,
    /// What became of the requests between zones, to all services; empty if the host does not know.
    pub links: Vec<LinkErrors>,
    /// Recent events, newest first.
    pub events: Vec<EventState>,
    /// Actions that the viewer can trigger.
    pub actions: Vec<ActionState>,
    /// Whether the host is a single proxy, which knows only its own requests.
    pub one_proxy: bool,
    /// Whether the host supports what-ifs.
    pub what_if: bool,
    /// Whether the host can explain single zones.
    pub explain: bool,
}

/// Requests from the proxies of one zone to the hosts of another, in the latest load reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LinkErrors {
    pub from: Locality,
    pub to: Locality,
    pub requests: u64,
    pub failed: u64,
}

/// Whether a zone is in use, and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ZoneOrder {
    /// `REGION/ZONE`, or `ZONE` without region.
    pub zone: String,
    /// `in_service`, `suspect`, `draining`, `out` or `returning`.
    pub state: String,
    /// Percent of its hosts that are out of use by the order.
    pub drained_percent: u32,
    /// Hosts of all services there.
    pub hosts: usize,
    pub hosts_in_use: usize,
    /// Why it is not in service, and who said so.
    pub reason: Option<String>,
    /// Name of the zone in the order, to return it.
    pub ordered_as: Option<String>,
    /// When it returns by itself.
    pub until_unix_ms: Option<u64>,
}

/// A problem that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    pub severity: Severity,
    /// Message for the viewer.
    pub text: String,
}

/// Replicas of the control plane, and the store that they share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ReplicasState {
    /// Name of the replica that serves this document.
    pub this: String,
    pub store: StoreState,
    /// Replicas with a record in the store, as it was read last.
    pub list: Vec<ReplicaState>,
}

/// The store that replicas share, as the host sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StoreState {
    /// Whether the store can be reached.
    pub connected: bool,
    /// Whether the store has been read since the host started.
    pub synced: bool,
    /// Proxies of all replicas together.
    pub nodes: u64,
}

/// One replica of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ReplicaState {
    pub name: String,
    /// Whether it is the host of this document.
    pub this: bool,
    /// Address of ADS and LRS.
    pub listen: String,
    /// Version of its program.
    pub version: String,
    /// Proxies with a stream to it.
    pub nodes: u64,
    pub started_unix_ms: u64,
    /// When the host heard of it last.
    pub heard_unix_ms: u64,
    /// Whether it has the same configuration as the host.
    pub same_configuration: bool,
}

/// Severity of a notice or event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// An operator must act.
    Error,
    /// The service works, but not as intended.
    Warning,
    Info,
}

/// One upstream cluster as one fleet of proxies uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ClusterState {
    /// Name of the upstream cluster.
    pub cluster: String,
    /// Fleet of proxies; empty if the host has no fleets.
    pub fleet: String,
    /// `ENFORCE`, `SHADOW` or `OFF`, if the host has modes.
    pub mode: Option<String>,
    /// Percentage of requests that measured demand sends.
    pub ramp_percent: Option<u32>,
    /// Policies for zones and hosts, for example `zone_aware, least_request`.
    pub policy: String,
    /// Input of routing decisions: `measured_demand`, `host_counts`, `utilization`,
    /// `observed_load`.
    pub basis: String,
    /// When that input was last confirmed; `None` with host counts.
    pub confirmed_unix_ms: Option<u64>,
    /// Age at which data planes consider the input stale.
    pub staleness_threshold_ms: Option<u64>,
    /// Whether some proxies have not reported load yet.
    pub warming_up: bool,
    /// Zones with proxies or hosts.
    pub zones: Vec<ZoneState>,
    /// Traffic from zone to zone.
    pub flows: Vec<Flow>,
    /// Whether flows were reported by proxies instead of computed from the plan.
    pub flows_measured: bool,
    /// Traffic of all zones as proxies route measured demand with the resources that they are sent;
    /// `None` if the host does not know.
    pub now: Option<TotalLoad>,
    /// Why `now` is `None`, as a clause.
    pub now_unknown: Option<String>,
    /// Like `now`, with `mode: ENFORCE` and `ramp: 100`.
    pub enforce: Option<TotalLoad>,
    /// Why `enforce` is `None`, as a clause.
    pub enforce_unknown: Option<String>,
    /// What the plan of the service costs for the demand of all fleets; `None` without an objective
    /// other than `LEVEL` and without prices that differ.
    pub planned: Option<PlannedCost>,
    /// How full zones may get before their requests go elsewhere, 0 to 1; `None` with `LEVEL`.
    pub target_utilization: Option<f64>,
    /// Price of each of `flows`, in US dollars per gigabyte; empty if all have the price of the
    /// host.
    pub flow_usd_per_gigabyte: Vec<f64>,
    /// Bytes of a request and its response, if the service says.
    pub bytes_per_request: Option<f64>,
    /// Bytes per second between zones, if measured.
    pub cross_zone_bytes_per_second: Option<f64>,
    /// Additional remarks for operators.
    pub notes: Vec<String>,
}

/// One zone: the proxies and the hosts of the upstream cluster there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ZoneState {
    pub locality: Locality,
    /// Proxies of the fleet in this zone.
    pub proxies: Option<u64>,
    pub healthy_hosts: u64,
    /// All upstream hosts in this zone, healthy or not.
    pub hosts: u64,
    /// Share of the capacity of all zones, 0 to 1.
    pub capacity_share: Option<f64>,
    /// Requests that arrive at the proxies of the zone.
    pub demand_requests_per_second: Option<f64>,
    /// Whether the demand is estimated from other zones.
    pub demand_estimated: bool,
    /// Requests served by the hosts of the zone.
    pub served_requests_per_second: Option<f64>,
    /// Load line: requests that the zone should serve according to its share of the capacity.
    pub line_requests_per_second: Option<f64>,
    /// Utilization reported by the hosts, 0 to 1.
    pub utilization: Option<f64>,
    /// Utilization as planned for the demand of all fleets; `None` if the service has no objective
    /// other than `LEVEL`.
    pub planned_utilization: Option<f64>,
    /// What the service would be without this zone, all fleets together; `None` without requests or
    /// hosts.
    pub loss: Option<ZoneLoss>,
    /// Load relative to the load line: 1 is on the line, more is overload.
    pub load: Option<f64>,
    /// Share of the requests to the zone that failed, in the latest load reports, 0 to 1.
    pub failed_share: Option<f64>,
    /// Whether many more requests fail here than in another zone: demand does not steer then.
    pub fails: bool,
    /// Measured share of the zone's demand that stays in the zone, 0 to 1.
    pub kept_local: Option<f64>,
    /// Planned share of the zone's demand that stays in the zone, 0 to 1.
    pub kept_local_planned: Option<f64>,
    /// As proxies route measured demand with the resources that they are sent; `None` if the host
    /// does not know.
    pub now: Option<ZoneLoad>,
    /// Like `now`, with `mode: ENFORCE` and `ramp: 100`.
    pub enforce: Option<ZoneLoad>,
    /// Measured share of the total demand, in basis points.
    pub measured_bp: Option<u64>,
    /// Share of the total demand as delivered to proxies, in basis points.
    pub delivered_bp: Option<u64>,
    /// Routing state: `NoLocalityRouting`, `LocalityDirect`, `LocalityResidual`,
    /// `LoadAwareLocality` or `LocalityWeighted`.
    pub state: Option<String>,
    /// Reason for the state; omitted if it is expensive to compute, see
    /// [`DashboardState::explain`].
    pub reason: Option<String>,
    /// Why the zone is above its load line; `None` if it is not, or if the reason is not known.
    pub above_line: Option<String>,
}

/// Traffic from the proxies of one zone to the hosts of another, serialized as an array: indexes of
/// both in [`ClusterState::zones`], then requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Flow(pub usize, pub usize, pub f64);

/// State of one proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct NodeState {
    pub id: String,
    /// Fleet of the proxy: `node.cluster`.
    pub fleet: String,
    pub locality: Locality,
    /// Name and version of the proxy software.
    pub software: String,
    /// Class of the node: `envoy`, `envoy_module`, `grpc` or `plimsoll`.
    pub class: String,
    /// How measured demand is delivered to the proxy.
    pub delivery: String,
    /// Whether a stream to the proxy is open.
    pub connected: bool,
    /// Whether it accepted the last update.
    pub answer: AckStatus,
    /// Error of the proxy, if it refused the last update.
    pub refusal: Option<String>,
    /// When it last accepted or refused an update.
    pub answered_unix_ms: Option<u64>,
    /// Version of the endpoints that it accepted last.
    pub accepted_version: Option<String>,
    /// When it last reported load; `None` if it does not report.
    pub reported_unix_ms: Option<u64>,
    /// Interval of its load reports.
    pub report_interval_ms: Option<u64>,
    /// Requests that arrive at the proxy.
    pub requests_per_second: Option<f64>,
}

/// Response of a node to the last update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AckStatus {
    /// No update was sent.
    #[default]
    None,
    /// An update was sent and not answered yet.
    Waiting,
    /// The node accepted the update (ACK).
    Accepted,
    /// The node refused the update (NACK) and keeps the previous one.
    Refused,
}

/// An entry of the event list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventState {
    pub at_unix_ms: u64,
    pub severity: Severity,
    /// Message for the viewer.
    pub text: String,
}

/// An action that the viewer can trigger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ActionState {
    /// Identifier passed to the host.
    pub name: String,
    /// Text of the button.
    pub label: String,
    /// Description of the effect, one sentence.
    pub help: String,
    /// Whether the action is in effect already.
    pub pressed: bool,
    /// Heading under which buttons are grouped.
    pub group: String,
    /// Why the action is not available; `None` if it is.
    pub unavailable: Option<String>,
}

impl ClusterState {
    /// Returns a key that is unique within the document.
    pub fn key(&self) -> String {
        format!("{}\u{1f}{}", self.fleet, self.cluster)
    }
}

impl NodeState {
    /// Returns a key that is unique within the document.
    pub fn key(&self) -> String {
        format!("{}\u{1f}{}", self.fleet, self.id)
    }
}

/// Returns the current time as Unix milliseconds.
pub fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_distinguish_fleet_and_name() {
        let node = |fleet: &str, id: &str| NodeState {
            fleet: fleet.to_owned(),
            id: id.to_owned(),
            ..Default::default()
        };
        assert_ne!(node("a", "bc").key(), node("ab", "c").key());
    }

    #[test]
    fn unknown_fields_may_be_omitted() {
        let read: DashboardState = serde_json::from_str(r#"{"title": "x"}"#).unwrap();
        assert_eq!(read.cost, Cost::default());
        assert_eq!(read.nodes, None);
        let flow: Flow = serde_json::from_str("[1, 0, 2.5]").unwrap();
        assert_eq!(flow, Flow(1, 0, 2.5));
    }
}
