//! Prometheus metrics, in OpenMetrics text. docs/reference/metrics.md is made of [`METRICS`].
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
use crate::state::State;
use crate::unreported::Subscriptions;

/// What all names begin with.
const PREFIX: &str = "plimsoll_control";

/// A metric, for documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// As Prometheus sees it.
    pub name: &'static str,
    /// `counter`, `gauge` or `info`.
    pub kind: &'static str,
    /// Names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

const fn metric(
    name: &'static str,
    kind: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        labels,
        help,
    }
}

/// Every metric.
#[rustfmt::skip]
pub const METRICS: [Metric; 31] = [
    metric("plimsoll_control_build_info", "info", &["version"],
        "The version that runs; always 1"),
    metric("plimsoll_control_fleets", "gauge", &[],
        "Fleets with a node"),
    metric("plimsoll_control_nodes", "gauge", &["fleet", "locality", "class"],
        "Nodes known; `class` is `envoy`, `grpc` or `plimsoll`"),
    metric("plimsoll_control_nodes_nacked", "gauge", &["fleet"],
        "Nodes that refused an update and keep what they had"),
    metric("plimsoll_control_nodes_unreported", "gauge", &["fleet"],
        "Nodes that subscribe to a service, have a load reporting stream, and named the service \
         in no report on it for three intervals: their client does not report it, or sent it \
         no request yet"),
    metric("plimsoll_control_discovery_streams", "gauge", &["variant"],
        "Discovery streams open; `sotw` or `delta`"),
    metric("plimsoll_control_load_reporting_streams", "gauge", &[],
        "Load reporting streams open"),
    metric("plimsoll_control_discovery_responses_total", "counter", &["type"],
        "Responses sent; one is counted when its receiver speaks next"),
    metric("plimsoll_control_discovery_acks_total", "counter", &["type"],
        "Responses accepted"),
    metric("plimsoll_control_discovery_nacks_total", "counter", &["type"],
        "Responses refused"),
    metric("plimsoll_control_load_reports_total", "counter", &[],
        "Load reports received"),
    metric("plimsoll_control_load_reports_ignored_total", "counter", &["reason"],
        "Reports about one cluster that were not used: `unknown_cluster`, \
         `implausible_interval`, `implausible_rate`, `node_without_id`, `node_without_locality`"),
    metric("plimsoll_control_reporters_joined_total", "counter", &[],
        "Nodes whose demand began to count"),
    metric("plimsoll_control_reporters_left_total", "counter", &["reason"],
        "Nodes whose demand no longer counts: `silent`, `disconnected`"),
    metric("plimsoll_control_demand_requests_per_second", "gauge",
        &["fleet", "cluster", "locality"],
        "Demand by zone of the proxies, as last reported"),
    metric("plimsoll_control_demand_smoothed_requests_per_second", "gauge",
        &["fleet", "cluster", "locality"],
        "The same, smoothed; fractions are made of it"),
    metric("plimsoll_control_fleet_fraction_basis_points", "gauge", &["fleet", "locality"],
        "Share of a zone in the fleet's demand, as delivered; absent while host counts are"),
    metric("plimsoll_control_fleet_fraction_age_seconds", "gauge", &["fleet"],
        "Time since that share was confirmed; stays below `demand.heartbeat`"),
    metric("plimsoll_control_cluster_fraction_basis_points", "gauge",
        &["fleet", "cluster", "locality"],
        "The same for one upstream cluster"),
    metric("plimsoll_control_cluster_fraction_age_seconds", "gauge", &["fleet", "cluster"],
        "The same"),
    metric("plimsoll_control_plans_total", "counter", &["cause"],
        "Plans made: `heartbeat`, `fractions_moved`, `zones_changed`, `endpoints_changed`, \
         `first_data`, `warmed_up`, `no_data`"),
    metric("plimsoll_control_clusters", "gauge", &["mode"],
        "Services configured"),
    metric("plimsoll_control_cluster_ramp_percent", "gauge", &["cluster"],
        "`ramp`"),
    metric("plimsoll_control_config_reloads_total", "counter", &["result"],
        "Edits of the configuration: `ok`, `failed`"),
    metric("plimsoll_control_config_in_force", "gauge", &[],
        "1 when the files on disk are in force, 0 when the newest edit was refused"),
    metric("plimsoll_control_config_last_success_timestamp_seconds", "gauge", &[],
        "When the configuration in force was read"),
    metric("plimsoll_control_relay_streams", "gauge", &["state"],
        "Streams to the server behind a relay: `connected` or `lost`"),
    metric("plimsoll_control_relay_failures_total", "counter", &[],
        "Such streams that were lost or could not be opened"),
    metric("plimsoll_control_relay_unreadable_total", "counter", &[],
        "Relayed clusters and assignments that were to be improved, could not be read and \
         passed untouched"),
    metric("plimsoll_control_writer_queue_depth", "gauge", &[],
        "Messages that wait for the writer"),
    metric("plimsoll_control_writer_queue_capacity", "gauge", &[],
        "Messages that may wait"),
];

/// What the metric says that is registered as `name`.
fn help(name: &str) -> &'static str {
    let of = |metric: &&Metric| {
        let full = metric.name.strip_prefix(PREFIX)?.strip_prefix('_')?;
        let ending = full.strip_prefix(name)?;
        ["", "_total", "_info"].contains(&ending).then_some(())
    };
    let found = METRICS.iter().find(|metric| of(metric).is_some());
    found.map_or("", |metric| metric.help)
}

/// The page.
pub(super) async fn page(admin: &Admin) -> Result<String, Stopped> {
    let subscriptions = Subscriptions::of(admin.handle.records());
    let look = move |state: &State, now| OfState::new(state, &subscriptions, now);
    let of_state = admin.handle.inspect(look).await?;
    let mut registry = Registry::with_prefix(PREFIX);
    let version = vec![("version", env!("CARGO_PKG_VERSION"))];
    registry.register("build", help("build"), Info::new(version));
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
        help("discovery_responses"),
        responses,
    );
    registry.register("discovery_acks", help("discovery_acks"), acks);
    registry.register("discovery_nacks", help("discovery_nacks"), nacks);
}

fn register_counters(registry: &mut Registry, counters: &Counters) {
    let counters = counters.clone();
    registry.register("load_reports", help("load_reports"), counters.load_reports);
    registry.register(
        "load_reports_ignored",
        help("load_reports_ignored"),
        counters.load_reports_ignored,
    );
    registry.register(
        "reporters_joined",
        help("reporters_joined"),
        counters.reporters_joined,
    );
    registry.register(
        "reporters_left",
        help("reporters_left"),
        counters.reporters_left,
    );
    registry.register("plans", help("plans"), counters.plans);
}

fn register_reloads(registry: &mut Registry, admin: &Admin) {
    let counts = admin.reloads.counts();
    let reloads = Family::<Label, Counter>::default();
    for (result, count) in [("ok", counts.succeeded), ("failed", counts.failed)] {
        reloads.get_or_create(&[("result", result)]).inc_by(count);
    }
    registry.register("config_reloads", help("config_reloads"), reloads);
    let in_force: Gauge = Gauge::default();
    in_force.set(i64::from(counts.error.is_none()));
    registry.register("config_in_force", help("config_in_force"), in_force);
    let last: Gauge = Gauge::default();
    last.set(i64::try_from(counts.last_success_unix_seconds).unwrap_or(i64::MAX));
    registry.register(
        "config_last_success_timestamp_seconds",
        help("config_last_success_timestamp_seconds"),
        last,
    );
}
