//! [`DashboardState`]: everything the page shows, as one document.
//!
//! Hosts fill what they know; what they do not know stays `None` or empty and is shown as unknown,
//! never as zero. Names of fields are stable and documented in docs/dashboard.md (a test of the
//! house checks that); units are part of the names. Moments are milliseconds since 1970 by the
//! host's clock, not ages: what has not changed must not look changed, or every viewer would be
//! sent everything every second.

use std::fmt;

use plimsoll_core::model::locality::Locality;
use serde::{Deserialize, Serialize};

/// Everything the page shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DashboardState {
    /// What this is, for example `plimsoll control`.
    pub title: String,
    /// In which mode it runs, or where.
    pub subtitle: String,
    /// Of the program.
    pub version: String,
    /// When the document was made.
    pub taken_unix_ms: u64,
    /// What needs attention, worst first.
    pub notices: Vec<Notice>,
    /// What traffic between zones costs, until the viewer says otherwise.
    pub cost: Cost,
    /// Upstream clusters, each as one fleet of proxies uses it.
    pub clusters: Vec<ClusterState>,
    /// Proxies; `None` when the host has no nodes of its own.
    pub nodes: Option<Vec<NodeState>>,
    /// What happened, newest first.
    pub events: Vec<EventState>,
    /// What the viewer may do.
    pub actions: Vec<ActionState>,
    /// The host is one proxy: requests are its own, and what others do is not known.
    pub one_proxy: bool,
    /// Whether the host answers what-ifs.
    pub what_if: bool,
    /// Whether the host explains single zones.
    pub explain: bool,
}

/// Where something is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// Region.
    pub region: String,
    /// Zone.
    pub zone: String,
    /// Sub-zone.
    pub sub_zone: String,
}

/// Something that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub text: String,
}

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Somebody must act.
    Error,
    /// Works, but not as it should.
    Warning,
    /// Good to know.
    Info,
}

/// What traffic between zones costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cost {
    /// US dollars for a gigabyte (10⁹ bytes), both directions together.
    pub usd_per_gigabyte: f64,
    /// Bytes of a request and its answer, where nobody measures them.
    pub bytes_per_request: f64,
}

impl Default for Cost {
    /// A cent per gigabyte and direction, as the large clouds ask; the size is a guess.
    fn default() -> Self {
        Self {
            usd_per_gigabyte: 0.02,
            bytes_per_request: 10_000.0,
        }
    }
}

/// One upstream cluster as one fleet of proxies uses it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterState {
    /// The upstream cluster.
    pub cluster: String,
    /// The fleet; empty where there are none.
    pub fleet: String,
    /// `ENFORCE`, `SHADOW` or `OFF`, where there are modes.
    pub mode: Option<String>,
    /// Percent of the way from host counts to measured demand.
    pub ramp_percent: Option<u32>,
    /// How zones and hosts are chosen, for example `zone_aware, least_request`.
    pub policy: String,
    /// What routing goes by: `measured_demand`, `host_counts`, `utilization`.
    pub basis: String,
    /// When what it goes by was last confirmed; `None` with host counts.
    pub confirmed_unix_ms: Option<u64>,
    /// Age at which data planes stop trusting it.
    pub staleness_threshold_ms: Option<u64>,
    /// Not every proxy had the time to report once.
    pub warming_up: bool,
    /// Zones of proxies and hosts.
    pub zones: Vec<ZoneState>,
    /// Who sends how much to whom.
    pub flows: Vec<Flow>,
    /// Whether flows were reported by proxies; if not they follow from the plan.
    pub flows_measured: bool,
    /// Bytes per second that cross zones, if somebody measures them.
    pub cross_zone_bytes_per_second: Option<f64>,
    /// What else an operator should know.
    pub notes: Vec<String>,
}

/// One zone: the proxies and the hosts of the upstream cluster there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ZoneState {
    /// Where.
    pub locality: Place,
    /// Proxies of the fleet there.
    pub proxies: Option<u64>,
    /// Healthy upstream hosts.
    pub healthy_hosts: u64,
    /// All upstream hosts.
    pub hosts: u64,
    /// Share of the capacity of all zones, 0 to 1.
    pub capacity_share: Option<f64>,
    /// Requests that arrive at the proxies there.
    pub demand_requests_per_second: Option<f64>,
    /// The demand is a guess from other zones.
    pub demand_estimated: bool,
    /// Requests that its hosts serve.
    pub served_requests_per_second: Option<f64>,
    /// The load line: as many requests as the zone should serve, its capacity share of the whole.
    pub line_requests_per_second: Option<f64>,
    /// Utilization that its hosts report, 0 to 1.
    pub utilization: Option<f64>,
    /// Load against the load line: 1 is at the line, above is too much.
    pub load: Option<f64>,
    /// Share of the demand that stays, as measured, 0 to 1.
    pub kept_local: Option<f64>,
    /// The same as planned.
    pub kept_local_planned: Option<f64>,
    /// Measured share of the demand, basis points.
    pub measured_bp: Option<u64>,
    /// Share of the demand as it is told to proxies, basis points.
    pub delivered_bp: Option<u64>,
    /// `NoLocalityRouting`, `LocalityDirect` or `LocalityResidual`.
    pub state: Option<String>,
    /// Why, in words; left out where asking is dear, see [`DashboardState::explain`].
    pub reason: Option<String>,
}

/// Traffic from the proxies of one zone to the hosts of another, written as an array of three: both
/// as places in [`ClusterState::zones`], then requests per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Flow(pub usize, pub usize, pub f64);

/// One proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeState {
    /// `node.id`.
    pub id: String,
    /// `node.cluster`.
    pub fleet: String,
    /// Where.
    pub locality: Place,
    /// What it says it is, with its version.
    pub software: String,
    /// How demand reaches it.
    pub delivery: String,
    /// Whether a stream is open.
    pub connected: bool,
    /// What it said to the last update.
    pub answer: Answer,
    /// Why it refused, in its words.
    pub refusal: Option<String>,
    /// When it answered last.
    pub answered_unix_ms: Option<u64>,
    /// The version of its endpoints that it accepted last.
    pub accepted_version: Option<String>,
    /// When it reported load last; `None` when it does not count.
    pub reported_unix_ms: Option<u64>,
    /// How often it reports.
    pub report_interval_ms: Option<u64>,
    /// Requests that arrive there.
    pub requests_per_second: Option<f64>,
}

/// What a node said to the last update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// It was never sent one.
    #[default]
    None,
    /// Nothing yet.
    Waiting,
    /// It took it (ACK).
    Accepted,
    /// It keeps what it had (NACK).
    Refused,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventState {
    /// When.
    pub at_unix_ms: u64,
    /// How bad it is.
    pub severity: Severity,
    /// In words.
    pub text: String,
}

/// Something the viewer may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ActionState {
    /// For the host.
    pub name: String,
    /// For the button.
    pub label: String,
    /// What it does, in a sentence.
    pub help: String,
    /// Whether it is in force already.
    pub pressed: bool,
    /// Buttons of a group stand together.
    pub group: String,
    /// Why it cannot be done here, if it cannot.
    pub unavailable: Option<String>,
}

impl ClusterState {
    /// Unique in the document.
    pub fn key(&self) -> String {
        format!("{}\u{1f}{}", self.fleet, self.cluster)
    }
}

impl NodeState {
    /// Unique in the document.
    pub fn key(&self) -> String {
        format!("{}\u{1f}{}", self.fleet, self.id)
    }
}

impl From<&Locality> for Place {
    fn from(locality: &Locality) -> Self {
        Self {
            region: locality.region().to_owned(),
            zone: locality.zone().to_owned(),
            sub_zone: locality.sub_zone().to_owned(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Locality::new(&self.region, &self.zone, &self.sub_zone).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_written_as_a_locality() {
        let locality = Locality::new("r1", "a", "");
        assert_eq!(Place::from(&locality).to_string(), "r1/a");
        assert_eq!(Place::default().to_string(), "(none)");
    }

    #[test]
    fn keys_tell_fleets_and_names_apart() {
        let node = |fleet: &str, id: &str| NodeState {
            fleet: fleet.to_owned(),
            id: id.to_owned(),
            ..Default::default()
        };
        assert_ne!(node("a", "bc").key(), node("ab", "c").key());
    }

    #[test]
    fn what_a_host_does_not_know_may_be_left_out() {
        let read: DashboardState = serde_json::from_str(r#"{"title": "x"}"#).unwrap();
        assert_eq!(read.cost, Cost::default());
        assert_eq!(read.nodes, None);
        let flow: Flow = serde_json::from_str("[1, 0, 2.5]").unwrap();
        assert_eq!(flow, Flow(1, 0, 2.5));
    }
}
