//! Read-only views of a planner for administrators: fleets, nodes, demand and plans.
//!
//! Views borrow the planner and compute lazily, for the control plane to render.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Planner;
use super::fleet::{Fleet, ScopeKey};
use super::plan::Plan;
use super::scope::ScopeState;
use crate::evacuation::ErrorMatrix;
use crate::model::locality::Locality;
use crate::time::Instant;

/// View of one fleet at one moment, `as_of`.
#[derive(Clone, Copy, Debug)]
pub struct FleetView<'a> {
    name: &'a Arc<str>,
    fleet: &'a Fleet,
    as_of: AsOf,
}

/// View of one node of a fleet, with its latest report.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NodeView<'a> {
    pub id: &'a Arc<str>,
    /// The zone that the node's demand counts for.
    pub locality: &'a Locality,
    /// Requests per second to all upstream clusters together, as last reported.
    pub rate_per_second: f64,
    /// The part of `rate_per_second` that counts as demand: all of it, unless it is too many times
    /// the median of the fleet (decision 0032).
    pub counted_per_second: f64,
    pub upstream_clusters: usize,
    pub last_report_age: Duration,
    /// The longest interval at which one of the node's reports is expected.
    pub report_interval: Duration,
    /// The node's latest reports were all zero, so it may stay silent without expiring.
    pub idle: bool,
    /// The node's last stream closed and the node has not reported since.
    pub disconnected: bool,
}

/// A node that carries more than half of the demand of its zone, beside at least two others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DominantNode<'a> {
    pub id: &'a Arc<str>,
    pub locality: &'a Locality,
    /// Requests per second of the node that count.
    pub counted_per_second: f64,
    /// Requests per second of all nodes of the zone that count.
    pub zone_per_second: f64,
}

impl DominantNode<'_> {
    /// Returns the node's share of the demand of its zone, 0 to 1.
    pub fn share(&self) -> f64 {
        if self.zone_per_second > 0.0 {
            self.counted_per_second / self.zone_per_second
        } else {
            0.0
        }
    }
}

/// View of one fleet, or of one fleet and one upstream cluster, at one moment, `as_of`.
#[derive(Clone, Copy, Debug)]
pub struct ScopeView<'a> {
    key: &'a ScopeKey,
    fleet: &'a Fleet,
    scope: &'a ScopeState,
    as_of: AsOf,
}

/// Demand of one zone with reporters.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ZoneDemand<'a> {
    pub locality: &'a Locality,
    /// Nodes of the zone that report, about any upstream cluster.
    pub reporters: u64,
    /// Requests per second, as the nodes of the zone last reported.
    pub raw_per_second: f64,
    /// The smoothed request rate, from which fractions are computed.
    pub smoothed_per_second: f64,
}

/// Request rate from the nodes of one zone to the hosts of another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Flow<'a> {
    /// The zone of the nodes, where the requests arrived.
    pub from: &'a Locality,
    pub to: &'a Locality,
    pub rate_per_second: f64,
}

#[derive(Clone, Copy, Debug)]
struct AsOf {
    tau: Duration,
    now: Instant,
}

impl Planner {
    /// Iterates over all fleets with at least one node, by name, as of `now`.
    pub fn fleets(&self, now: Instant) -> impl Iterator<Item = FleetView<'_>> {
        let as_of = self.as_of(now);
        self.fleets
            .iter()
            .map(move |(name, fleet)| FleetView { name, fleet, as_of })
    }

    /// Returns one fleet as of `now`; `None` if it has no node.
    pub fn fleet(&self, name: &str, now: Instant) -> Option<FleetView<'_>> {
        let as_of = self.as_of(now);
        let (name, fleet) = self.fleets.get_key_value(name)?;
        Some(FleetView { name, fleet, as_of })
    }

    fn as_of(&self, now: Instant) -> AsOf {
        AsOf {
            tau: self.config.tau(),
            now: self.clock.peek(now),
        }
    }
}

impl<'a> FleetView<'a> {
    /// Returns the `node.cluster` of the fleet's nodes.
    pub const fn name(&self) -> &'a Arc<str> {
        self.name
    }

    /// Iterates over the fleet's nodes, by id.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        self.fleet.reports.views(self.as_of.now)
    }

    /// Returns the number of nodes whose latest reports have demand.
    pub fn nodes_with_demand(&self) -> usize {
        self.fleet.reports.nodes_with_demand()
    }

    /// Returns the nodes that carry more than half of the demand of their zone, in zones where at
    /// least three nodes report; more than nine tenths where two have demand.
    pub fn dominant_nodes(&self) -> Vec<DominantNode<'a>> {
        self.fleet.reports.dominant_nodes()
    }

    /// Returns the request rates of every upstream cluster like [`ScopeView::flows`], by source,
    /// with destinations in order of locality. Less work than asking each scope.
    pub fn flows_by_cluster(&self) -> BTreeMap<&'a Arc<str>, FlowsBySource<'a>> {
        self.fleet.reports.flows_by_cluster()
    }

    /// Returns what became of the requests between zones, to all upstream clusters together, in the
    /// latest reports.
    pub fn errors(&self) -> ErrorMatrix {
        self.fleet.errors()
    }

    /// Iterates over the fleet's scopes: first the whole fleet, then upstream clusters by name.
    pub fn scopes(&self) -> impl Iterator<Item = ScopeView<'a>> + use<'a> {
        let Self { fleet, as_of, .. } = *self;
        fleet.scopes().map(move |(key, scope)| ScopeView {
            key,
            fleet,
            scope,
            as_of,
        })
    }
}

/// Destinations of requests with their rates, by zone that sends them.
pub type FlowsBySource<'a> = BTreeMap<&'a Locality, Vec<(&'a Locality, f64)>>;

impl<'a> ScopeView<'a> {
    /// Returns the upstream cluster of the scope; `None` for the sum over all of them.
    pub const fn upstream_cluster(&self) -> Option<&'a Arc<str>> {
        self.key.as_ref()
    }

    /// Iterates over the demand of every zone with reporters, by locality. Zones whose demand can
    /// only be estimated are in [`Plan::zones`].
    pub fn demand(&self) -> impl Iterator<Item = ZoneDemand<'a>> + use<'a> {
        let Self {
            fleet,
            scope,
            as_of,
            ..
        } = *self;
        fleet
            .zone_reporters()
            .map(move |(locality, reporters)| ZoneDemand {
                locality,
                reporters,
                raw_per_second: scope.target(locality),
                smoothed_per_second: scope.smoothed(locality, as_of.tau, as_of.now),
            })
    }

    /// Iterates over nonzero request rates by source and destination, smoothed over a few reports,
    /// in order of locality. For display only: fractions derive from [`ScopeView::demand`] alone
    /// (decision 0022).
    pub fn flows(&self) -> impl Iterator<Item = Flow<'a>> + use<'a> {
        let flows = self.fleet.reports.flows(self.key.as_ref()).into_iter();
        flows.map(|((from, to), rate_per_second)| Flow {
            from,
            to,
            rate_per_second,
        })
    }

    /// Returns the share of failed requests in the latest reports, by upstream zone, 0 to 1.
    pub fn failed_shares(&self) -> BTreeMap<&'a Locality, f64> {
        self.fleet.failed_shares(self.key)
    }

    /// Whether some node has not had the time for its first report.
    pub fn is_warming_up(&self) -> bool {
        self.scope.is_warming_up(self.as_of.now)
    }

    /// Returns the plan in force; `None` if there never was one.
    pub fn plan(&self) -> Option<&'a Arc<Plan>> {
        self.scope.plan()
    }

    /// Returns the time since the plan in force was published.
    pub fn plan_age(&self) -> Option<Duration> {
        let at = self.scope.published_at()?;
        Some(self.as_of.now.saturating_duration_since(at))
    }
}
