//! Gauges: how things are now. Taken from the state in one look, so that they belong together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_xds::ads::Variant;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::super::report::{class_name, mode_name};
use crate::delivery::Class;
use crate::server::Handle;
use crate::state::State;
use crate::unreported::{Subscriptions, Unreported};

/// Labels of one series.
type Labels = Vec<(&'static str, String)>;
/// Whole numbers by labels.
type Counts = Family<Labels, Gauge>;
/// Other numbers by labels.
type Reals = Family<Labels, Gauge<f64, AtomicU64>>;

/// Gauges of the state.
#[derive(Debug, Default)]
pub(super) struct OfState {
    fleets: Gauge,
    nodes: Counts,
    unreported: Counts,
    load_reporting_streams: Gauge,
    demand: Reals,
    smoothed: Reals,
    fleet_fraction: Counts,
    fleet_age: Reals,
    cluster_fraction: Counts,
    cluster_age: Reals,
    clusters: Counts,
    ramp: Counts,
}

/// All gauges.
#[derive(Debug)]
pub(super) struct Gauges {
    state: OfState,
    streams: Counts,
    nacked: Counts,
    queued: Gauge,
    capacity: Gauge,
    relay: Counts,
    relay_failures: Counter,
    relay_unreadable: Counter,
}

impl OfState {
    /// How things are.
    pub(super) fn new(state: &State, subscriptions: &Subscriptions, now: Instant) -> Self {
        let gauges = Self::default();
        gauges.unreported_by(state, subscriptions, now);
        for service in state.config().services.values() {
            let mode = vec![("mode", mode_name(service.mode).to_owned())];
            gauges.clusters.get_or_create(&mode).inc();
            let cluster = vec![("cluster", service.name().to_string())];
            gauges
                .ramp
                .get_or_create(&cluster)
                .set(i64::from(service.ramp));
        }
        for (fleet, members) in state.fleets().iter() {
            gauges.fleets.inc();
            for member in members.values() {
                let labels = vec![
                    ("fleet", fleet.to_string()),
                    ("locality", member.info.node.locality.to_string()),
                    ("class", class_name(Class::of(&member.info)).to_owned()),
                ];
                gauges.nodes.get_or_create(&labels).inc();
                gauges
                    .load_reporting_streams
                    .inc_by(i64::from(member.lrs_streams));
            }
            gauges.demand_of(state, fleet, now);
            gauges.delivered_to(state, fleet, now);
        }
        gauges
    }

    /// Every fleet has a series, so that 0 can be told from "not measured".
    fn unreported_by(&self, state: &State, subscriptions: &Subscriptions, now: Instant) {
        let of = |fleet: &Arc<str>| vec![("fleet", fleet.to_string())];
        for (fleet, _) in state.fleets().iter() {
            self.unreported.get_or_create(&of(fleet)).set(0);
        }
        for (fleet, ..) in Unreported::new(state, subscriptions, now).iter() {
            self.unreported.get_or_create(&of(fleet)).inc();
        }
    }

    /// Demand for each cluster; the whole is their sum.
    fn demand_of(&self, state: &State, fleet: &Arc<str>, now: Instant) {
        let Some(view) = state.planner().fleet(fleet, now) else {
            return;
        };
        for grain in view.grains() {
            let Some(cluster) = grain.upstream_cluster() else {
                continue;
            };
            for zone in grain.demand() {
                let mut labels = vec![("fleet", fleet.to_string())];
                labels.push(("cluster", cluster.to_string()));
                labels.push(("locality", zone.locality.to_string()));
                self.demand.get_or_create(&labels).set(zone.raw_per_second);
                self.smoothed
                    .get_or_create(&labels)
                    .set(zone.smoothed_per_second);
            }
        }
    }

    fn delivered_to(&self, state: &State, fleet: &Arc<str>, now: Instant) {
        let Some(plan) = state.fleet_plan(fleet) else {
            return;
        };
        let labels = vec![("fleet", fleet.to_string())];
        let age = state.delivered_age(fleet, None, now);
        put(
            (&self.fleet_fraction, &self.fleet_age),
            (&plan.zones, age),
            &labels,
        );
        for (cluster, service) in &plan.services {
            let mut labels = labels.clone();
            labels.push(("cluster", cluster.to_string()));
            let age = state.delivered_age(fleet, Some(cluster), now);
            put(
                (&self.cluster_fraction, &self.cluster_age),
                (&service.zones, age),
                &labels,
            );
        }
    }
}

fn put(
    (fractions, ages): (&Counts, &Reals),
    (zones, age): (&[ZoneFraction], Option<Duration>),
    labels: &Labels,
) {
    for zone in zones {
        let mut labels = labels.clone();
        labels.push(("locality", zone.locality.to_string()));
        let fraction = i64::try_from(zone.fraction.get()).unwrap_or(i64::MAX);
        fractions.get_or_create(&labels).set(fraction);
    }
    if let Some(age) = age {
        ages.get_or_create(labels).set(age.as_secs_f64());
    }
}

impl Gauges {
    /// Those of the state, and those of streams and queues.
    pub(super) fn new(state: OfState, handle: &Handle) -> Self {
        let streams = Counts::default();
        let variant = |variant| match variant {
            Variant::Sotw => "sotw",
            Variant::Delta => "delta",
        };
        for each in [Variant::Sotw, Variant::Delta] {
            let label = vec![("variant", variant(each).to_owned())];
            streams.get_or_create(&label).set(0);
        }
        let mut refusing: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
        handle.records().for_each(|record| {
            let label = vec![("variant", variant(record.variant).to_owned())];
            streams.get_or_create(&label).inc();
            if record.types.iter().any(|kind| kind.nacked.is_some()) {
                let node = &record.node.node;
                let nodes = refusing.entry(Arc::clone(&node.cluster)).or_default();
                nodes.insert(Arc::clone(&node.id));
            }
        });
        let nacked = Counts::default();
        for (fleet, nodes) in refusing {
            let count = i64::try_from(nodes.len()).unwrap_or(i64::MAX);
            nacked
                .get_or_create(&vec![("fleet", fleet.to_string())])
                .set(count);
        }
        let (queued, capacity) = (Gauge::default(), Gauge::default());
        queued.set(i64::try_from(handle.queued()).unwrap_or(i64::MAX));
        capacity.set(i64::try_from(handle.queue_capacity()).unwrap_or(i64::MAX));
        let upstream = handle.upstreams().status();
        let relay = Counts::default();
        let lost = upstream.streams.saturating_sub(upstream.connected);
        for (name, count) in [("connected", upstream.connected), ("lost", lost)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            relay
                .get_or_create(&vec![("state", name.to_owned())])
                .set(count);
        }
        let counted = |count| {
            let counter = Counter::default();
            counter.inc_by(count);
            counter
        };
        Self {
            state,
            streams,
            nacked,
            queued,
            capacity,
            relay,
            relay_failures: counted(upstream.failures),
            relay_unreadable: counted(upstream.unreadable),
        }
    }

    /// Puts all of them into `to`.
    pub(super) fn register(self, to: &mut Registry) {
        let state = self.state;
        state.register_demand(to);
        to.register("relay_streams", super::help("relay_streams"), self.relay);
        to.register(
            "relay_failures",
            super::help("relay_failures"),
            self.relay_failures,
        );
        to.register(
            "relay_unreadable",
            super::help("relay_unreadable"),
            self.relay_unreadable,
        );
        to.register("fleets", super::help("fleets"), state.fleets);
        to.register("nodes", super::help("nodes"), state.nodes);
        to.register(
            "nodes_unreported",
            super::help("nodes_unreported"),
            state.unreported,
        );
        to.register("nodes_nacked", super::help("nodes_nacked"), self.nacked);
        to.register(
            "discovery_streams",
            super::help("discovery_streams"),
            self.streams,
        );
        to.register(
            "load_reporting_streams",
            super::help("load_reporting_streams"),
            state.load_reporting_streams,
        );
        to.register("clusters", super::help("clusters"), state.clusters);
        to.register(
            "cluster_ramp_percent",
            super::help("cluster_ramp_percent"),
            state.ramp,
        );
        to.register(
            "writer_queue_depth",
            super::help("writer_queue_depth"),
            self.queued,
        );
        to.register(
            "writer_queue_capacity",
            super::help("writer_queue_capacity"),
            self.capacity,
        );
    }
}

impl OfState {
    fn register_demand(&self, to: &mut Registry) {
        to.register(
            "demand_requests_per_second",
            super::help("demand_requests_per_second"),
            self.demand.clone(),
        );
        to.register(
            "demand_smoothed_requests_per_second",
            super::help("demand_smoothed_requests_per_second"),
            self.smoothed.clone(),
        );
        to.register(
            "fleet_fraction_basis_points",
            super::help("fleet_fraction_basis_points"),
            self.fleet_fraction.clone(),
        );
        to.register(
            "fleet_fraction_age_seconds",
            super::help("fleet_fraction_age_seconds"),
            self.fleet_age.clone(),
        );
        to.register(
            "cluster_fraction_basis_points",
            super::help("cluster_fraction_basis_points"),
            self.cluster_fraction.clone(),
        );
        to.register(
            "cluster_fraction_age_seconds",
            super::help("cluster_fraction_age_seconds"),
            self.cluster_age.clone(),
        );
    }
}
