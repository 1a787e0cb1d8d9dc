//! What a planner knows, for an administrator to read: fleets, nodes, demand and plans.
//!
//! Views borrow the planner and compute nothing until asked; nothing here changes anything. What is
//! to be told to proxies is a [`Plan`], not a view. Rendering lives with the control plane.

use std::sync::Arc;
use std::time::Duration;

use super::Planner;
use super::fleet::{Fleet, GrainKey};
use super::grain::GrainState;
use super::plan::Plan;
use crate::model::locality::Locality;
use crate::time::Instant;

/// One fleet at one moment.
#[derive(Clone, Copy, Debug)]
pub struct FleetView<'a> {
    name: &'a Arc<str>,
    fleet: &'a Fleet,
    moment: Moment,
}

/// One node of a fleet: where it is and what it said last.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeView<'a> {
    /// `node.id`.
    pub id: &'a Arc<str>,
    /// Where its demand counts.
    pub locality: &'a Locality,
    /// Requests per second to all upstream clusters together, as last reported.
    pub rate_per_second: f64,
    /// Upstream clusters it reports about.
    pub upstream_clusters: usize,
    /// Time since its last report.
    pub last_report_age: Duration,
    /// The longest interval at which one of its reports is expected.
    pub report_interval: Duration,
    /// All it said last was zero, so that silence is no sign of trouble.
    pub idle: bool,
    /// Its last stream closed and it has not reported since.
    pub disconnected: bool,
}

/// The sums of one fleet, or of one fleet and one upstream cluster, at one moment.
#[derive(Clone, Copy, Debug)]
pub struct GrainView<'a> {
    key: &'a GrainKey,
    fleet: &'a Fleet,
    grain: &'a GrainState,
    moment: Moment,
}

/// Demand of one zone that reports.
#[derive(Clone, Debug, PartialEq)]
pub struct ZoneDemand<'a> {
    /// The zone.
    pub locality: &'a Locality,
    /// Nodes that report there, about whatever upstream cluster.
    pub reporters: u64,
    /// Requests per second, as its nodes reported last.
    pub raw_per_second: f64,
    /// The same, smoothed: what fractions are made of.
    pub smoothed_per_second: f64,
}

/// Traffic from the nodes of one zone to the hosts of another.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow<'a> {
    /// Where the requests arrived: the zone of the nodes.
    pub from: &'a Locality,
    /// Where they were sent.
    pub to: &'a Locality,
    /// Requests per second, as last reported.
    pub rate_per_second: f64,
}

/// When a view is taken, and by which time constant.
#[derive(Clone, Copy, Debug)]
struct Moment {
    tau: Duration,
    now: Instant,
}

impl Planner {
    /// Every fleet with a node that counts, in order of name, as of `now`.
    pub fn fleets(&self, now: Instant) -> impl Iterator<Item = FleetView<'_>> {
        let moment = self.moment(now);
        self.fleets.iter().map(move |(name, fleet)| FleetView {
            name,
            fleet,
            moment,
        })
    }

    /// One fleet as of `now`; `None` when none of its nodes counts.
    pub fn fleet(&self, name: &str, now: Instant) -> Option<FleetView<'_>> {
        let moment = self.moment(now);
        let (name, fleet) = self.fleets.get_key_value(name)?;
        Some(FleetView {
            name,
            fleet,
            moment,
        })
    }

    fn moment(&self, now: Instant) -> Moment {
        Moment {
            tau: self.config.tau(),
            now: self.clock.peek(now),
        }
    }
}

impl<'a> FleetView<'a> {
    /// `node.cluster` of its nodes.
    pub const fn name(&self) -> &'a Arc<str> {
        self.name
    }

    /// Its nodes that count, in order of id.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'a>> + use<'a> {
        self.fleet.reports.views(self.moment.now)
    }

    /// Its grains: the fleet as a whole first, then its upstream clusters in order of name.
    pub fn grains(&self) -> impl Iterator<Item = GrainView<'a>> + use<'a> {
        let Self { fleet, moment, .. } = *self;
        fleet.grains().map(move |(key, grain)| GrainView {
            key,
            fleet,
            grain,
            moment,
        })
    }
}

impl<'a> GrainView<'a> {
    /// The upstream cluster; `None` for the sum over all of them.
    pub const fn upstream_cluster(&self) -> Option<&'a Arc<str>> {
        self.key.as_ref()
    }

    /// Demand of every zone where a node of the fleet reports, in order of locality. Zones whose
    /// demand can only be estimated are in [`Plan::zones`].
    pub fn demand(&self) -> impl Iterator<Item = ZoneDemand<'a>> + use<'a> {
        let Self {
            fleet,
            grain,
            moment,
            ..
        } = *self;
        fleet
            .zone_reporters()
            .map(move |(locality, reporters)| ZoneDemand {
                locality,
                reporters,
                raw_per_second: grain.target(locality),
                smoothed_per_second: grain.smoothed(locality, moment.tau, moment.now),
            })
    }

    /// Who sent how much to whom, in order of locality, without those that sent nothing. An outcome
    /// to look at: fractions are made of [`GrainView::demand`] alone (decisions D1).
    pub fn flows(&self) -> impl Iterator<Item = Flow<'a>> + use<'a> {
        let flows = self.fleet.reports.flows(self.key.as_ref()).into_iter();
        flows.map(|((from, to), rate_per_second)| Flow {
            from,
            to,
            rate_per_second,
        })
    }

    /// Not every node had the time to report once.
    pub fn is_warming_up(&self) -> bool {
        self.grain.is_warming_up(self.moment.now)
    }

    /// The plan in force, with its fractions; `None` while there never was one.
    pub fn plan(&self) -> Option<&'a Arc<Plan>> {
        self.grain.plan()
    }

    /// Time since that plan was made.
    pub fn plan_age(&self) -> Option<Duration> {
        let at = self.grain.published_at()?;
        Some(self.moment.now.saturating_duration_since(at))
    }
}
