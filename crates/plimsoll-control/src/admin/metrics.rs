//! Prometheus metrics, in OpenMetrics text. Every name is in docs/observability.md (a test of the
//! house checks that).
//!
//! Counters are kept where things happen (`counters`, `server::Records`, [`Reloads`]); gauges are
//! taken from the state when somebody asks. Each page has a registry of its own. Labels name
//! fleets, clusters and localities, never nodes.
//!
//! [`Reloads`]: super::Reloads

mod gauges;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use self::gauges::{Gauges, OfState};
use super::Admin;
use crate::counters::{Counters, Label};
use crate::server::{Handle, Stopped};

/// What all names begin with.
const PREFIX: &str = "plimsoll_control";

/// Every metric, as Prometheus sees it.
pub const NAMES: [&str; 30] = [
    "plimsoll_control_build_info",
    "plimsoll_control_fleets",
    "plimsoll_control_nodes",
    "plimsoll_control_nodes_nacked",
    "plimsoll_control_discovery_streams",
    "plimsoll_control_load_reporting_streams",
    "plimsoll_control_discovery_responses_total",
    "plimsoll_control_discovery_acks_total",
    "plimsoll_control_discovery_nacks_total",
    "plimsoll_control_load_reports_total",
    "plimsoll_control_load_reports_ignored_total",
    "plimsoll_control_reporters_joined_total",
    "plimsoll_control_reporters_left_total",
    "plimsoll_control_demand_requests_per_second",
    "plimsoll_control_demand_smoothed_requests_per_second",
    "plimsoll_control_fleet_fraction_basis_points",
    "plimsoll_control_fleet_fraction_age_seconds",
    "plimsoll_control_cluster_fraction_basis_points",
    "plimsoll_control_cluster_fraction_age_seconds",
    "plimsoll_control_plans_total",
    "plimsoll_control_clusters",
    "plimsoll_control_cluster_ramp_percent",
    "plimsoll_control_config_reloads_total",
    "plimsoll_control_config_in_force",
    "plimsoll_control_config_last_success_timestamp_seconds",
    "plimsoll_control_relay_streams",
    "plimsoll_control_relay_failures_total",
    "plimsoll_control_relay_unreadable_total",
    "plimsoll_control_writer_queue_depth",
    "plimsoll_control_writer_queue_capacity",
];

/// The page.
pub(super) async fn page(admin: &Admin) -> Result<String, Stopped> {
    let of_state = admin.handle.inspect(OfState::new).await?;
    let mut registry = Registry::with_prefix(PREFIX);
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", "The version that runs", Info::new(version));
    Gauges::new(of_state, &admin.handle).register(&mut registry);
    register_discovery(&mut registry, &admin.handle);
    register_counters(&mut registry, admin.handle.counters());
    register_reloads(&mut registry, admin);
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes everything");
    Ok(text)
}

fn register_discovery(registry: &mut Registry, handle: &Handle) {
    type ByType = Family<[(&'static str, String); 1], Counter>;
    let [responses, acks, nacks] = [(); 3].map(|()| ByType::default());
    for (type_url, totals) in handle.records().totals() {
        let name = type_url.rsplit(['.', '/']).next().unwrap_or_default();
        let label = [("type", name.to_owned())];
        responses.get_or_create(&label).inc_by(totals.responses);
        acks.get_or_create(&label).inc_by(totals.acks);
        nacks.get_or_create(&label).inc_by(totals.nacks);
    }
    registry.register(
        "discovery_responses",
        "Responses sent, by type of resource",
        responses,
    );
    registry.register("discovery_acks", "Responses that nodes accepted", acks);
    registry.register("discovery_nacks", "Responses that nodes refused", nacks);
}

fn register_counters(registry: &mut Registry, counters: &Counters) {
    let counters = counters.clone();
    registry.register(
        "load_reports",
        "Load reports received",
        counters.load_reports,
    );
    registry.register(
        "load_reports_ignored",
        "Reports about one cluster that were not used, by reason",
        counters.load_reports_ignored,
    );
    registry.register(
        "reporters_joined",
        "Nodes whose demand began to count",
        counters.reporters_joined,
    );
    registry.register(
        "reporters_left",
        "Nodes whose demand no longer counts, by reason",
        counters.reporters_left,
    );
    registry.register("plans", "Plans made, by cause", counters.plans);
}

fn register_reloads(registry: &mut Registry, admin: &Admin) {
    let counts = admin.reloads.counts();
    let reloads = Family::<Label, Counter>::default();
    for (result, count) in [("ok", counts.succeeded), ("failed", counts.failed)] {
        reloads.get_or_create(&[("result", result)]).inc_by(count);
    }
    registry.register("config_reloads", "Edits of the configuration", reloads);
    let in_force: Gauge = Gauge::default();
    in_force.set(i64::from(counts.error.is_none()));
    registry.register(
        "config_in_force",
        "1 when the files on disk are in force, 0 when the newest edit was refused",
        in_force,
    );
    let last: Gauge = Gauge::default();
    last.set(i64::try_from(counts.last_success_unix_seconds).unwrap_or(i64::MAX));
    registry.register(
        "config_last_success_timestamp_seconds",
        "When the configuration in force was read",
        last,
    );
}
