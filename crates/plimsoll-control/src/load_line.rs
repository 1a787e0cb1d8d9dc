//! [`LoadLine`]: where requests of one fleet to one service arrive and where they are served,
//! relative to capacity: as reported (`seen`), as routed by what is delivered (`now`), and as
//! `mode: ENFORCE` with `ramp: 100` would route them (`enforce`).
//!
//! The one computation behind the admin API, the dashboard, `plimsoll top` and metrics, so that all
//! show the same numbers. Routing shares come from explanations, that is from the production
//! balancer with the resources that proxies are sent; demand is measured and smoothed. `collect`
//! reads the state, `shares` holds routing shares and caches them, `enforced` builds the
//! hypothetical resources, `unknown` says why there is no number.

mod collect;
mod compute;
pub(crate) mod enforced;
mod failing_zones;
mod planned;
mod shares;
mod unknown;

use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost::Cost;
use plimsoll_core::planner::transport::Objective;
use plimsoll_core::planner::zone_plan::PlanBill;

use crate::config::Mode;
use crate::demand::Withheld;

pub(crate) use collect::measured_demand;
pub use compute::LoadLines;
pub use failing_zones::FailingZones;
pub(crate) use failing_zones::link_fails;
pub use planned::PlannedZone;
pub(crate) use planned::target;
pub(crate) use shares::ShareCache;
pub use unknown::Unknown;

/// Demand and load of every zone for one fleet and one service.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadLine {
    pub fleet: Arc<str>,
    pub cluster: Arc<str>,
    pub mode: Mode,
    /// How far traffic moves from host counts (0 %) to measured demand (100 %).
    pub ramp: u32,
    /// What routing decisions of the proxies are based on: see [`State::basis`].
    ///
    /// [`State::basis`]: crate::state::State::basis
    pub basis: &'static str,
    /// Whether demand should steer the service, but proxies use host counts because no load report
    /// says where demand is.
    pub on_fallback: bool,
    /// Whether demand is not complete yet: some proxies have not reported since they connected, or
    /// since the control plane started.
    pub warming_up: bool,
    pub objective: Objective,
    /// Target utilization of the service's objective; `None` if it is `LEVEL`.
    pub target_utilization: Option<f64>,
    /// What the requests between zones cost by the plan for all fleets; `None` without one.
    pub bill: Option<PlanBill>,
    /// Prices of requests between its zones.
    pub cost: Arc<Cost>,
    /// Zones that keep demand from steering the service.
    pub withheld: FailingZones,
    /// Why demand is not delivered although it should steer the service, and no zone keeps it from
    /// that; `None` as well if there is no demand.
    pub undelivered: Option<Withheld>,
    /// Every zone with proxies, hosts or requests, sorted.
    pub zones: Vec<ZoneLine>,
    /// As the proxies reported; `None` without load reports.
    pub seen: Option<Traffic>,
    /// As the proxies route measured demand with the resources that they are sent; with policies
    /// that choose by what proxies observe, in the shares that they report.
    pub now: Result<Traffic, Unknown>,
    /// Like `now`, if the service had `mode: ENFORCE` and `ramp: 100`.
    pub enforce: Result<Traffic, Unknown>,
}

/// One zone of a [`LoadLine`].
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneLine {
    pub locality: Locality,
    /// Requests per second that arrive at the proxies of the zone, smoothed.
    pub demand: f64,
    /// Proxies of the fleet in the zone.
    pub proxies: u64,
    /// Share of the capacity of all zones, 0 to 1.
    pub capacity_share: f64,
    /// Requests per second that its healthy hosts serve at utilization 1; `None` if nobody says.
    pub capacity: Option<f64>,
    /// Requests per second that the zone should serve according to its share of the capacity.
    pub line: f64,
    /// Why the zone is above its line in [`LoadLine::now`]; `None` if it is not.
    pub above_line: Option<Arc<str>>,
    /// Share of the requests to the zone that failed, in the latest reports, 0 to 1; `None` without
    /// requests.
    pub failed_share: Option<f64>,
    /// Whether so many more requests fail here than in another zone that demand does not steer.
    pub fails: bool,
    /// Zones of the proxies whose requests here fail, if those of others do not.
    pub fails_only_from: Vec<Locality>,
    /// What the objective of the service plans for the zone, whatever its mode.
    pub planned: Option<PlannedZone>,
}

/// Requests per second between the zones of a [`LoadLine`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Traffic {
    /// In the order of [`LoadLine::zones`].
    pub zones: Vec<ZoneTraffic>,
    /// Source and destination as indexes of [`LoadLine::zones`], and requests per second.
    pub flows: Vec<(usize, usize, f64)>,
    pub requests: f64,
    /// Requests per second that leave their zone.
    pub cross_zone: f64,
}

/// What one zone serves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ZoneTraffic {
    pub served: f64,
    /// Relative to the load line: 1 is on the line. `None` without capacity or requests.
    pub load: Option<f64>,
    /// Share of the zone's own requests that stays in the zone, 0 to 1. `None` without requests.
    pub kept_local: Option<f64>,
}

impl Traffic {
    /// Returns the share of all requests that stays in its zone; `None` without requests.
    pub fn kept_local(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| 1.0 - self.cross_zone / self.requests)
    }

    /// Returns the load of the zone that is farthest above its line.
    pub fn highest_load(&self) -> Option<f64> {
        let loads = self.zones.iter().filter_map(|zone| zone.load);
        loads.reduce(f64::max)
    }
}

impl LoadLine {
    /// Returns why host counts decide although demand should steer, as a clause.
    pub fn withheld_text(&self) -> Option<String> {
        let undelivered = || self.undelivered.map(|reason| reason.to_string());
        self.withheld.text().or_else(undelivered)
    }

    /// Returns the US dollars per month for these requests between zones.
    pub fn usd_per_month(&self, traffic: &Traffic) -> f64 {
        let named = |&(from, to, rate): &(usize, usize, f64)| {
            let zone = |index: usize| Some(&self.zones.get(index)?.locality);
            Some((zone(from)?, zone(to)?, rate))
        };
        self.cost
            .usd_per_month(traffic.flows.iter().filter_map(named))
    }

    /// Returns the demand of all zones, in requests per second.
    pub fn demand(&self) -> f64 {
        self.zones.iter().map(|zone| zone.demand).sum()
    }

    /// Returns the three kinds of traffic with the names that they have everywhere.
    pub fn kinds(&self) -> [(&'static str, Option<&Traffic>); 3] {
        [
            ("seen", self.seen.as_ref()),
            ("now", self.now.as_ref().ok()),
            ("enforce", self.enforce.as_ref().ok()),
        ]
    }
}

#[cfg(test)]
pub(crate) mod tests;
