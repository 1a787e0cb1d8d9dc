//! Gauges of the current state. Gauges from one `inspect` call are consistent with each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::FleetView;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::KindSummary;
use plimsoll_xds::ads::Variant;
use plimsoll_xds::replica::ReplicaRecord;

use super::super::report::{class_name, mode_name};
use super::Values;
use super::load::Details;
use crate::delivery::NodeClass;
use crate::demand::Withheld;
use crate::load_line::{LoadLine, LoadLines, PlannedZone, target};
use crate::server::Handle;
use crate::sources::SourceId;
use crate::state::State;
use crate::store::StoreLink;
use crate::unreported::{Subscriptions, Unreported};

/// Most clusters without load line whose demand has series.
const MAX_UNKNOWN: usize = 50;

pub(super) fn of_state(
    state: &State,
    subscriptions: &Subscriptions,
    lines: &LoadLines,
    details: &Details<'_>,
    now: Instant,
) -> Values {
    let mut values = Values::default();
    for service in state.config().services.values() {
        values.add("clusters", &[mode_name(service.mode)], 1);
        let ramp = u64::from(service.ramp);
        values.add("cluster_ramp_percent", &[service.name()], ramp);
    }
    add_planned(&mut values, state);
    let max_utilization = state.config().operation.evacuation.max_utilization;
    values.add("zone_loss_limit_ratio", &[], max_utilization);
    super::zone_loss::add_states(&mut values, state, now);
    for source in SourceId::ALL {
        values.add("ignored_services", &[source.label()], 0);
    }
    for (source, _) in state.services().ignored() {
        values.add("ignored_services", &[source.label()], 1);
    }
    values.add("fleets", &[], 0);
    values.add("load_reporting_streams", &[], 0);
    for (fleet, members) in state.fleets().iter() {
        values.add("fleets", &[], 1);
        // Every fleet has a series, so that "all nodes report" (0) differs from "not measured".
        values.add("nodes_unreported", &[fleet], 0);
        values.add("nodes_in_unknown_zones", &[fleet], 0);
        let demand = state.planner().fleet(fleet, now);
        let dominated = demand.map_or(0, |demand| demand.dominant_nodes().len());
        values.add("dominated_zones", &[fleet], dominated as u64);
        for member in members.values() {
            let locality = &member.info.node.locality;
            // Zones that nobody configured come from the network: one series for all of them.
            let locality = if state.fleets().counts_zone(locality) {
                locality.to_string()
            } else {
                "other".to_owned()
            };
            let class = class_name(NodeClass::of(&member.info));
            values.add("nodes", &[fleet, &locality, class], 1);
            let streams = u64::from(member.lrs_streams + member.module_streams);
            values.add("load_reporting_streams", &[], streams);
        }
        // A gauge by fleet starts at zero as well.
        values.add("nodes_nacked", &[fleet], 0);
        add_demand(&mut values, state, fleet, lines, details, now);
        add_delivered(&mut values, state, fleet, details, now);
        let withheld = state.withheld(fleet, None, now).map(Withheld::label);
        for reason in Withheld::LABELS {
            let is_withheld = u64::from(withheld == Some(reason));
            values.add("demand_withheld", &[fleet, reason], is_withheld);
        }
    }
    for (fleet, _, nodes) in state.fleets().unknown_localities() {
        values.add("nodes_in_unknown_zones", &[fleet], nodes as u64);
    }
    for (fleet, ..) in Unreported::new(state, subscriptions, now).iter() {
        values.add("nodes_unreported", &[fleet], 1);
    }
    values
}

/// Adds what services with a target utilization plan, in SHADOW as well, and what is known of the
/// capacity of their hosts.
fn add_planned(values: &mut Values, state: &State) {
    for name in state.config().services.keys() {
        if let Some(learner) = state.capacity_of(name) {
            let estimator = learner.estimator();
            let (hosts, known) = estimator.hosts();
            values.add("capacity_hosts", &[name, "known"], known as u64);
            values.add("capacity_hosts", &[name, "unknown"], (hosts - known) as u64);
            let is_frozen = u64::from(estimator.frozen().is_some());
            values.add("capacity_frozen", &[name], is_frozen);
            if let Some(learned) = estimator.delivered() {
                let typical = learned.unit().of_typical_host();
                values.add("capacity_median_requests_per_second", &[name], typical);
            }
        }
        let Some(plan) = state.own_plan(name) else {
            continue;
        };
        if let Some(target) = target(plan) {
            values.add("cluster_target_utilization_ratio", &[name], target);
        }
        if let Some(plan) = plan.zone_plan() {
            let bill = plan.bill();
            for (objective, usd) in [("own", bill.objective), ("level", bill.level)] {
                values.add("cluster_planned_usd_per_month", &[name, objective], usd);
            }
        }
        let zones = plan.zone_plan().map_or(&[][..], |plan| plan.zones());
        for zone in zones {
            let Some(planned) = PlannedZone::of(plan, &zone.locality) else {
                continue;
            };
            let locality = zone.locality.to_string();
            let labels = [&**name, &*locality];
            if let Some(hosts) = planned.wanted_hosts {
                values.add("wanted_hosts", &labels, hosts);
            }
            if let Some(utilization) = planned.utilization {
                values.add("zone_planned_utilization_ratio", &labels, utilization);
            }
        }
    }
}

/// Adds gauges and counters of the store that replicas share, if there is one.
pub(super) fn add_store(values: &mut Values, state: &State, stats: Option<&StoreLink>) {
    let (Some(replicas), Some(stats)) = (state.replicas(), stats) else {
        return;
    };
    let (nodes, own) = replicas.counts();
    values.add("store_connected", &[], u64::from(replicas.is_connected()));
    values.add("store_synced", &[], u64::from(replicas.is_synced()));
    values.add("plans_not_agreed", &[], state.not_agreed().count() as u64);
    values.add("store_failures_total", &[], stats.failures());
    values.add("store_nodes", &["this"], own as u64);
    values.add("store_nodes", &["other"], (nodes - own) as u64);
    values.add("store_pending_writes", &[], stats.pending() as u64);
    values.add("store_writes_total", &[], stats.written());
    values.add("store_write_failures_total", &[], stats.write_failures());
    let seconds = stats.last_write().as_secs_f64();
    values.add("store_write_seconds", &[], seconds);
    values.add("store_compactions_total", &[], stats.compactions());
    let own = state.fingerprint();
    for label in ["same", "other"] {
        let is_same = label == "same";
        let of = |(record, _): &&(ReplicaRecord, Instant)| (record.configuration == own) == is_same;
        let count = replicas.all().filter(of).count();
        values.add("replicas", &[label], count as u64);
    }
}

/// Adds the state of the sources of services beside the files.
pub(super) fn add_sources(values: &mut Values, handle: &Handle) {
    for source in handle.sources() {
        // Metrics of Kubernetes that are older than those of all sources.
        let with_own = source.id == SourceId::Kubernetes;
        let label = source.id.label();
        let synced = u64::from(source.is_synced);
        values.add("source_synced", &[label], synced);
        values.add("source_settings_refused_total", &[label], 0);
        if with_own {
            values.add("kubernetes_synced", &[], synced);
            values.add("kubernetes_settings_refused_total", &[], 0);
        }
        for KindSummary {
            kind,
            status,
            last_event_age,
        } in source.kinds
        {
            let counts = status.counts;
            let mut add = |name: &str, old: &str, value: u64| {
                values.add(&format!("source_{name}"), &[label, kind], value);
                if with_own {
                    values.add(&format!("kubernetes_{old}"), &[kind], value);
                }
            };
            add("connected", "connected", u64::from(status.is_connected));
            add("objects", "objects", status.objects as u64);
            add("held_objects", "held_objects", status.held as u64);
            add("lists_total", "lists_total", counts.lists);
            add("events_total", "events_total", counts.events);
            add("failures_total", "failures_total", counts.failures);
            add("resets_total", "gone_total", counts.resets);
            let age = last_event_age.as_secs_f64();
            values.add("source_last_event_age_seconds", &[label, kind], age);
            if with_own {
                values.add("kubernetes_last_event_age_seconds", &[kind], age);
            }
        }
    }
}

/// Adds the demand for each cluster; the demand of a fleet is the sum over its clusters.
fn add_demand(
    values: &mut Values,
    state: &State,
    fleet: &Arc<str>,
    lines: &LoadLines,
    details: &Details<'_>,
    now: Instant,
) {
    let own = |line: &&LoadLine| line.fleet == *fleet;
    for line in lines.iter().filter(own) {
        for zone in &line.zones {
            if details.has_all(&line.fleet, &line.cluster) {
                let labels = [&**fleet, &*line.cluster, &zone.locality.to_string()];
                values.add("demand_requests_per_second", &labels, 0.0);
            }
        }
    }
    // Clusters without load line: those of a relay whose endpoints are not known.
    let mut unknown = MAX_UNKNOWN;
    let view = state.planner().fleet(fleet, now);
    for scope in view.iter().flat_map(FleetView::scopes) {
        let Some(cluster) = scope.upstream_cluster() else {
            continue;
        };
        if lines.get(fleet, cluster).is_none() && unknown > 0 {
            unknown -= 1;
        } else if !details.has_all(fleet, cluster) {
            continue;
        }
        for zone in scope.demand() {
            let locality = zone.locality.to_string();
            let labels = [&**fleet, cluster, &locality];
            values.add("demand_requests_per_second", &labels, zone.raw_per_second);
            let smoothed = zone.smoothed_per_second;
            values.add("demand_smoothed_requests_per_second", &labels, smoothed);
        }
    }
}

fn add_delivered(
    values: &mut Values,
    state: &State,
    fleet: &Arc<str>,
    details: &Details<'_>,
    now: Instant,
) {
    let age = state.delivered_age(fleet, None, now);
    let zones = state.delivered(fleet);
    add_fractions(values, "fleet", &[fleet], zones, age);
    for service in state.config().services.values() {
        let cluster = service.name();
        if details.has_all(fleet, cluster) {
            let age = state.delivered_age(fleet, Some(cluster), now);
            let zones = state.delivered_for(fleet, service);
            add_fractions(values, "cluster", &[fleet, cluster], zones, age);
        }
    }
}

fn add_fractions(
    values: &mut Values,
    kind: &str,
    labels: &[&str],
    zones: &[ZoneFraction],
    age: Option<Duration>,
) {
    for zone in zones {
        let locality = zone.locality.to_string();
        let labels = [labels, &[&locality]].concat();
        let name = format!("{kind}_fraction_basis_points");
        values.add(&name, &labels, zone.fraction.get());
    }
    if let Some(age) = age {
        let name = format!("{kind}_fraction_age_seconds");
        values.add(&name, labels, age.as_secs_f64());
    }
}

/// Adds gauges of streams and queues, and counters of the relay.
pub(super) fn add_streams(values: &mut Values, handle: &Handle) {
    for variant in ["sotw", "delta"] {
        values.add("discovery_streams", &[variant], 0);
    }
    let mut nacking: BTreeMap<Arc<str>, BTreeSet<Arc<str>>> = BTreeMap::new();
    handle.records().for_each(|record| {
        let variant = match record.variant {
            Variant::Sotw => "sotw",
            Variant::Delta => "delta",
        };
        values.add("discovery_streams", &[variant], 1);
        if record.types.iter().any(|kind| kind.nacked.is_some()) {
            let node = &record.node.node;
            let nodes = nacking.entry(Arc::clone(&node.cluster)).or_default();
            nodes.insert(Arc::clone(&node.id));
        }
    });
    for (fleet, nodes) in nacking {
        values.add("nodes_nacked", &[&fleet], nodes.len() as u64);
    }
    values.add("writer_queue_depth", &[], handle.queued() as u64);
    values.add("writer_queue_capacity", &[], handle.queue_capacity() as u64);
    let bytes = handle.queue_bytes_capacity() as u64;
    values.add("writer_queue_bytes", &[], handle.queued_bytes() as u64);
    values.add("writer_queue_bytes_capacity", &[], bytes);
    let upstream = handle.upstreams().status();
    let lost = upstream.streams.saturating_sub(upstream.connected);
    values.add("relay_streams", &["connected"], upstream.connected);
    values.add("relay_streams", &["lost"], lost);
    values.add("relay_failures_total", &[], upstream.failures);
    values.add("relay_unreadable_total", &[], upstream.unreadable);
}

#[cfg(test)]
mod tests {
    use plimsoll_core::stats::TextFormat;

    use super::*;
    use crate::fleet::StreamKind;
    use crate::state::tests::driver::{Driver, HEAD, node, parse, stats};

    fn page(driver: &Driver) -> String {
        let subscriptions = Subscriptions::default();
        let (lines, details) = (LoadLines::default(), Details::default());
        let values = of_state(&driver.state, &subscriptions, &lines, &details, driver.now);
        values.0.text(TextFormat::OpenMetrics)
    }

    #[test]
    fn streams_of_the_module_report_load_too() {
        let mut driver = Driver::new("");
        let proxy = node(NodeClass::EnvoyModule, "1", "a");
        driver.open(&proxy);
        let opened = driver.state.handle_open(
            &proxy,
            StreamKind::Module,
            false,
            &crate::fleet::Peer::default(),
            driver.now,
        );
        assert!(opened.is_ok());
        driver.open(&node(NodeClass::Envoy, "2", "b"));
        let page = page(&driver);
        let line = "plimsoll_control_load_reporting_streams 3";
        assert!(page.lines().any(|l| l == line), "{page}");
    }

    #[test]
    fn the_demand_of_some_clusters_without_load_line_is_shown() {
        let names: Vec<String> = (0..=MAX_UNKNOWN).map(|n| format!("c{n:02}")).collect();
        let services = names
            .iter()
            .map(|name| format!("{{cluster: {{name: {name}}}}}"))
            .collect::<Vec<_>>()
            .join(", ");
        let zones = "fleets: {zones: [{zone: a}]}";
        let config = parse(&format!("{HEAD}{zones}\nservices: [{services}]"));
        let mut driver = Driver::with_config(config);
        let proxy = node(NodeClass::Envoy, "1", "a");
        driver.open(&proxy);
        driver.advance(1000);
        let reports: Vec<_> = names.iter().map(|name| stats(name, 7)).collect();
        driver.state.handle_report(&proxy, &reports, driver.now);
        let page = page(&driver);
        for name in [
            "demand_requests_per_second",
            "demand_smoothed_requests_per_second",
        ] {
            let start = format!("plimsoll_control_{name}{{");
            let series = page.lines().filter(|line| line.starts_with(&start));
            assert_eq!(series.count(), MAX_UNKNOWN, "{page}");
        }
    }
}
