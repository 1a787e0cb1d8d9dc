//! Metrics in OpenMetrics format. docs/reference/metrics.md is generated from [`METRICS`].
//!
//! Counters are kept where events occur (`counters`, `server::StreamRecords`, [`Reloads`]); gauges
//! are computed from `State` on request. Labels name fleets, clusters and localities, never nodes.
//!
//! [`Reloads`]: plimsoll_serve::Reloads

mod gauges;
mod load;
mod present;
mod zone_loss;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use plimsoll_core::stats::MetricKind::{Counter, Gauge, Info};
use plimsoll_core::stats::{Families, Metric, TextFormat, Value};

use crate::certificates::Certificate;
use crate::run::Context;
use crate::server::{Handle, Stopped};
use crate::state::State;
use crate::unreported::Subscriptions;

/// All metrics of the control plane.
#[rustfmt::skip]
pub static METRICS: [Metric; 115] = [
    Metric::new("plimsoll_control_build_info", Info, &["version"],
        "Version of the control plane; always 1"),
    Metric::new("plimsoll_control_fleets", Gauge, &[],
        "Fleets with at least one node"),
    Metric::new("plimsoll_control_nodes", Gauge, &["fleet", "locality", "class"],
        "Nodes by fleet, locality and class; `class` is `envoy`, `grpc` or `plimsoll`"),
    Metric::new("plimsoll_control_nodes_nacked", Gauge, &["fleet"],
        "Nodes that rejected an update (NACK) and keep the previous version"),
    Metric::new("plimsoll_control_nodes_in_unknown_zones", Gauge, &["fleet"],
        "Nodes whose demand does not count, because neither a service nor `fleets.zones` has their \
         locality, or because they have none"),
    Metric::new("plimsoll_control_nodes_unreported", Gauge, &["fleet"],
        "Nodes whose load reports have omitted a service that they subscribe to for three \
         intervals: either the client does not report it, or it has not sent it a request yet"),
    Metric::new("plimsoll_control_discovery_streams", Gauge, &["variant"],
        "Open discovery streams by protocol variant; `sotw` or `delta`"),
    Metric::new("plimsoll_control_load_reporting_streams", Gauge, &[],
        "Open load reporting streams"),
    Metric::new("plimsoll_control_discovery_responses_total", Counter, &["type"],
        "Discovery responses sent; counted when the receiver sends its next request"),
    Metric::new("plimsoll_control_discovery_acks_total", Counter, &["type"],
        "Discovery responses acknowledged (ACK)"),
    Metric::new("plimsoll_control_discovery_nacks_total", Counter, &["type"],
        "Discovery responses rejected (NACK)"),
    Metric::new("plimsoll_control_load_reports_total", Counter, &[],
        "Load reports received"),
    Metric::new("plimsoll_control_load_reports_ignored_total", Counter, &["reason"],
        "Reports about a cluster that were ignored: `unknown_cluster`, \
         `implausible_interval`, `implausible_rate`, `node_without_id`, `node_without_locality`, \
         `unknown_zone`, `too_many_clusters`, `not_readable` (`services` of a rule)"),
    Metric::new("plimsoll_control_reporters_joined_total", Counter, &[],
        "Nodes that began to report load"),
    Metric::new("plimsoll_control_reporters_left_total", Counter, &["reason"],
        "Nodes whose demand is no longer counted: `silent`, `disconnected`"),
    Metric::new("plimsoll_control_nodes_capped_total", Counter, &[],
        "Times that a node began to count with less than it reports, because that is more than \
         `demand.max_times_median` times the median of its fleet"),
    Metric::new("plimsoll_control_duplicate_nodes_total", Counter, &[],
        "Streams refused because a node with the same id is connected from another address"),
    Metric::new("plimsoll_control_identity_mistakes_total", Counter, &["kind"],
        "Nodes that probably have a wrong identity: `unknown_locality` (no service and no entry of \
         `fleets.zones` is there), `no_locality`, `shared_id` (two proxies with one id)"),
    Metric::new("plimsoll_control_dominated_zones", Gauge, &["fleet"],
        "Zones with at least three reporting nodes, one of which has more than half of the demand, \
         or with two, one of which has more than nine tenths"),
    Metric::new("plimsoll_control_limit_exceeded_total", Counter, &["limit"],
        "Streams and requests that were refused, and reports that were delayed (`queue_bytes`), \
         because of a limit; `limit` is the name of the setting under `limits`"),
    Metric::new("plimsoll_control_demand_requests_per_second", Gauge,
        &["fleet", "cluster", "locality"],
        "Demand by zone of the proxies, as last reported"),
    Metric::new("plimsoll_control_demand_smoothed_requests_per_second", Gauge,
        &["fleet", "cluster", "locality"],
        "Smoothed demand by zone of the proxies, from which fractions and loads are computed"),
    Metric::new("plimsoll_control_zone_failed_ratio", Gauge, &["fleet", "cluster", "locality"],
        "Share of the requests to a zone that failed, in the latest load reports; 0 without \
         requests"),
    Metric::new("plimsoll_control_zone_fails", Gauge, &["fleet", "cluster", "locality"],
        "1 if many more requests to the zone fail than to another zone; absent instead of 0 for \
         services that do not have all series"),
    Metric::new("plimsoll_control_cluster_failing_zones", Gauge, &["fleet", "cluster"],
        "Zones of a service to which many more requests fail than to another zone"),
    Metric::new("plimsoll_control_cluster_withheld_zones", Gauge,
        &["fleet", "cluster", "reason"],
        "Zones because of which host counts steer the service instead of demand: `zone_fails` \
         (requests to it fail), `zone_unseen` (no proxy reports requests to it any more)"),
    Metric::new("plimsoll_control_demand_withheld", Gauge, &["fleet", "reason"],
        "1 if the newest demand of a fleet is not delivered: `store_unread` (replicas: the store \
         has not been read since the start), `incomplete` (some proxies have not reported since \
         the start), `agreeing` (replicas agree on the first plan), `starting` (nothing is known \
         since the start)"),
    Metric::new("plimsoll_control_zone_failures_total", Counter, &[],
        "Times that a zone of a service began to fail"),
    Metric::new("plimsoll_control_zone_capacity_ratio", Gauge, &["fleet", "cluster", "locality"],
        "Share of the capacity of all zones, 0 to 1"),
    Metric::new("plimsoll_control_zone_served_requests_per_second", Gauge,
        &["fleet", "cluster", "locality", "routing"],
        "Requests that the hosts of a zone serve; `routing` is `seen` (as reported), `now` (as \
         proxies route measured demand) or `enforce` (as with `mode: ENFORCE` and `ramp: 100`)"),
    Metric::new("plimsoll_control_zone_load_ratio", Gauge,
        &["fleet", "cluster", "locality", "routing"],
        "Load of a zone relative to its load line, its share of the capacity: 1 is on the line; 0 \
         without requests"),
    Metric::new("plimsoll_control_zone_kept_local_ratio", Gauge,
        &["fleet", "cluster", "locality", "routing"],
        "Share of the requests of a zone's proxies that stays in the zone; 0 without requests"),
    Metric::new("plimsoll_control_cluster_demand_requests_per_second", Gauge,
        &["fleet", "cluster"],
        "Smoothed demand for a service in all zones"),
    Metric::new("plimsoll_control_cluster_highest_load_ratio", Gauge,
        &["fleet", "cluster", "routing"],
        "Load of the zone that is farthest above its load line"),
    Metric::new("plimsoll_control_cluster_kept_local_ratio", Gauge,
        &["fleet", "cluster", "routing"],
        "Share of all requests to a service that stays in its zone; 0 without requests"),
    Metric::new("plimsoll_control_cluster_cross_zone_requests_per_second", Gauge,
        &["fleet", "cluster", "routing"],
        "Requests to a service that leave their zone"),
    Metric::new("plimsoll_control_cluster_cross_zone_usd_per_month", Gauge,
        &["fleet", "cluster", "routing"],
        "Estimated cost of these requests, by the setting `cost`"),
    Metric::new("plimsoll_control_cluster_on_fallback", Gauge, &["fleet", "cluster"],
        "1 if demand should steer the service, but proxies use host counts because no load report \
         says where demand is"),
    Metric::new("plimsoll_control_cluster_target_utilization_ratio", Gauge, &["cluster"],
        "Target utilization of a service with an objective other than `LEVEL`, 0 to 1"),
    Metric::new("plimsoll_control_cluster_planned_usd_per_month", Gauge, &["cluster", "objective"],
        "Estimated cost of requests between zones by the plan of a service for the demand of all \
         fleets, with its `own` objective and with `level`; absent with `LEVEL` and one price"),
    Metric::new("plimsoll_control_zone_planned_utilization_ratio", Gauge,
        &["cluster", "locality"],
        "Utilization of a zone as planned for the demand of all fleets, for services with a target \
         utilization; absent without healthy hosts"),
    Metric::new("plimsoll_control_zone_loss_utilization_ratio", Gauge, &["cluster", "locality"],
        "Utilization of the fullest other zone of a service if this zone were lost, whatever its \
         clients do; absent if the capacity of a zone is not known"),
    Metric::new("plimsoll_control_zone_loss_load_ratio", Gauge, &["cluster", "locality"],
        "The same, relative to the utilization of all zones together today; absent where no zone \
         would be left"),
    Metric::new("plimsoll_control_zone_loss_limit_ratio", Gauge, &[],
        "Value of `evacuation.max_utilization`"),
    Metric::new("plimsoll_control_zone_drained_ratio", Gauge, &["zone"],
        "Part of the hosts of a zone that an order takes out of use, 0 to 1; absent in service"),
    Metric::new("plimsoll_control_zone_suspect", Gauge, &["locality", "of"],
        "1 if a zone is ill by the latest load reports; `of` is `backends` (requests to its hosts \
         fail) or `network` (those of its proxies fail everywhere)"),
    Metric::new("plimsoll_control_link_failed_ratio", Gauge, &["from", "to"],
        "Share of the requests from the proxies of one zone to the hosts of another that failed, \
         in the latest load reports, to all services"),
    Metric::new("plimsoll_control_wanted_hosts", Gauge, &["cluster", "locality"],
        "Hosts of weight 1, or hosts like most if capacity is learned, that a zone needs for its \
         own demand to be at the target utilization of the service"),
    Metric::new("plimsoll_control_capacity_hosts", Gauge, &["cluster", "state"],
        "Hosts of a service whose capacity is learned, `known` or `unknown`"),
    Metric::new("plimsoll_control_capacity_frozen", Gauge, &["cluster"],
        "1 if the latest load reports taught nothing about the capacity of hosts: too few of them \
         had requests and a utilization, or proxies do not report"),
    Metric::new("plimsoll_control_capacity_median_requests_per_second", Gauge, &["cluster"],
        "Requests that a host like most serves at utilization 1, as learned"),
    Metric::new("plimsoll_control_edge_requests_per_second", Gauge,
        &["fleet", "from", "to", "routing"],
        "Requests from the proxies of one zone to the hosts of another, to all services"),
    Metric::new("plimsoll_control_otlp_exports_total", Counter, &["result"],
        "Exports of these metrics to an OpenTelemetry collector: `ok`, `failed`"),
    Metric::new("plimsoll_control_load_lines_without_zones", Gauge, &[],
        "Services without series by zone, because there are too many zones of services"),
    Metric::new("plimsoll_control_load_lines_with_essential_series", Gauge, &[],
        "Services with three series by zone (demand, load and kept local as seen) instead of all, \
         because there are many zones of services"),
    Metric::new("plimsoll_control_fleet_fraction_basis_points", Gauge, &["fleet", "locality"],
        "Fraction of the fleet's demand in a zone, as delivered; absent with host counts"),
    Metric::new("plimsoll_control_fleet_fraction_age_seconds", Gauge, &["fleet"],
        "Time since the fleet's fractions were confirmed; stays below `demand.heartbeat`"),
    Metric::new("plimsoll_control_cluster_fraction_basis_points", Gauge,
        &["fleet", "cluster", "locality"],
        "Fraction of the demand for an upstream cluster in a zone, as delivered"),
    Metric::new("plimsoll_control_cluster_fraction_age_seconds", Gauge, &["fleet", "cluster"],
        "Time since the fractions of an upstream cluster were confirmed"),
    Metric::new("plimsoll_control_plans_total", Counter, &["cause"],
        "Plans of the planner by cause: `heartbeat`, `confirmation`, `fractions_moved`, \
         `zones_changed`, `first_data`, `warmed_up`, `no_data`"),
    Metric::new("plimsoll_control_clusters", Gauge, &["mode"],
        "Configured services by mode"),
    Metric::new("plimsoll_control_cluster_ramp_percent", Gauge, &["cluster"],
        "Value of `ramp` of a service, in percent"),
    Metric::new("plimsoll_control_config_reloads_total", Counter, &["result"],
        "Reloads of the configuration after an edit: `ok`, `failed`"),
    Metric::new("plimsoll_control_config_removals_refused_total", Counter, &[],
        "Edits refused because they remove more than `reload.max_removed_percent` allows"),
    Metric::new("plimsoll_control_config_in_force", Gauge, &[],
        "1 if the files on disk are active, 0 if the latest edit was rejected"),
    Metric::new("plimsoll_control_config_last_success_timestamp_seconds", Gauge, &[],
        "Unix time at which the active configuration was read"),
    Metric::new("plimsoll_control_relay_streams", Gauge, &["state"],
        "Streams to the relayed management server: `connected` or `lost`"),
    Metric::new("plimsoll_control_relay_failures_total", Counter, &[],
        "Streams to the relayed management server that were lost or could not be opened"),
    Metric::new("plimsoll_control_relay_streams_refused_total", Counter, &[],
        "Discovery streams refused because `relay.max_connections` streams to the relayed server \
         are open"),
    Metric::new("plimsoll_control_relay_unreadable_total", Counter, &[],
        "Relayed clusters and assignments that could not be decoded and were passed on unchanged"),
    Metric::new("plimsoll_control_store_connected", Gauge, &[],
        "1 if the store that replicas share is connected; absent without a store"),
    Metric::new("plimsoll_control_store_synced", Gauge, &[],
        "1 if the store has been read since the start; until then, demand counts as incomplete"),
    Metric::new("plimsoll_control_plans_not_agreed", Gauge, &[],
        "Plans that this replica delivers and others may not, because the store is away or slow"),
    Metric::new("plimsoll_control_store_failures_total", Counter, &[],
        "Sessions with a member of etcd that failed or ended; the next one uses another member"),
    Metric::new("plimsoll_control_store_nodes", Gauge, &["owner"],
        "Nodes that replicas share: `this`, if this replica writes their records, or `other`"),
    Metric::new("plimsoll_control_store_pending_writes", Gauge, &[],
        "Records of nodes that wait to be written to the store"),
    Metric::new("plimsoll_control_store_writes_total", Counter, &[],
        "Records of nodes written to the store, or deleted there"),
    Metric::new("plimsoll_control_store_write_failures_total", Counter, &[],
        "Batches that could not be written; their records are written again"),
    Metric::new("plimsoll_control_store_write_seconds", Gauge, &[],
        "Duration of the latest write to the store"),
    Metric::new("plimsoll_control_store_compactions_total", Counter, &[],
        "Compactions of the history of etcd"),
    Metric::new("plimsoll_control_replicas", Gauge, &["configuration"],
        "Replicas of the control plane, this one included: with the `same` configuration as this \
         one, or `other`"),
    Metric::new("plimsoll_control_ignored_services", Gauge, &["source"],
        "Services that are not in force, because a source of higher precedence has one of the same \
         name; `source` is `files` or the section of a source"),
    Metric::new("plimsoll_control_source_synced", Gauge, &["source"],
        "1 if all objects of a source of services have been read since the start; `source` is its \
         section in the file, such as `kubernetes`"),
    Metric::new("plimsoll_control_source_connected", Gauge, &["source", "kind"],
        "1 if changes of a kind of objects are followed, 0 if the server does not answer"),
    Metric::new("plimsoll_control_source_objects", Gauge, &["source", "kind"],
        "Objects that are known"),
    Metric::new("plimsoll_control_source_held_objects", Gauge, &["source", "kind"],
        "Objects that the server no longer has and that stay for `removal_delay`"),
    Metric::new("plimsoll_control_source_lists_total", Counter, &["source", "kind"],
        "Complete answers that took effect"),
    Metric::new("plimsoll_control_source_events_total", Counter, &["source", "kind"],
        "Changes that watches or blocking queries reported"),
    Metric::new("plimsoll_control_source_failures_total", Counter, &["source", "kind"],
        "Requests that the server did not answer with success, and watches that broke"),
    Metric::new("plimsoll_control_source_resets_total", Counter, &["source", "kind"],
        "Versions that the server no longer had, so that everything was read again"),
    Metric::new("plimsoll_control_source_last_event_age_seconds", Gauge, &["source", "kind"],
        "Time since the server last sent something"),
    Metric::new("plimsoll_control_source_settings_refused_total", Counter, &["source"],
        "Objects and settings that were refused; the audit names the objects"),
    Metric::new("plimsoll_control_kubernetes_synced", Gauge, &[],
        "1 if all kinds of Kubernetes objects have been listed since the start; absent without \
         `kubernetes`"),
    Metric::new("plimsoll_control_kubernetes_connected", Gauge, &["kind"],
        "1 if objects of a kind are watched, 0 if the API server does not answer; `kind` is \
         `EndpointSlice`, `Service` or `ZoneRoutingPolicy`"),
    Metric::new("plimsoll_control_kubernetes_objects", Gauge, &["kind"],
        "Objects that are known"),
    Metric::new("plimsoll_control_kubernetes_held_objects", Gauge, &["kind"],
        "Objects that a list lacked and that stay for `kubernetes.removal_delay`"),
    Metric::new("plimsoll_control_kubernetes_lists_total", Counter, &["kind"],
        "Complete lists of objects: one at the start, and one after each 410"),
    Metric::new("plimsoll_control_kubernetes_events_total", Counter, &["kind"],
        "Changes of objects that watches reported"),
    Metric::new("plimsoll_control_kubernetes_failures_total", Counter, &["kind"],
        "Requests that the API server did not answer with success, and watches that broke"),
    Metric::new("plimsoll_control_kubernetes_gone_total", Counter, &["kind"],
        "Versions that the API server no longer had (410), so that all objects were listed again"),
    Metric::new("plimsoll_control_kubernetes_last_event_age_seconds", Gauge, &["kind"],
        "Time since a change, a bookmark or a list arrived"),
    Metric::new("plimsoll_control_kubernetes_settings_refused_total", Counter, &[],
        "Annotations and policies that were refused; the audit names their objects"),
    Metric::new("plimsoll_control_nodes_refused_total", Counter, &["field"],
        "Streams refused by the rules of identities; `field` is the setting of the rule: \
         `identities` (no rule for the certificate), `fleets`, `zones`, `node_ids`, `report_load`"),
    Metric::new("plimsoll_control_connections", Gauge, &["listener"],
        "Open connections; `listener` is `xds`, `admin` or `read_only`"),
    Metric::new("plimsoll_control_connections_refused_total", Counter, &["listener", "reason"],
        "Connections closed before they were served: `limit`, `peer_limit`, `handshake_timeout` \
         (or no request in time), `handshake_failed` (TLS)"),
    Metric::new("plimsoll_control_handshakes_failed_total", Counter, &["listener", "reason"],
        "TLS handshakes that failed: `certificate_expired`, `unknown_issuer`, `no_certificate`, \
         `certificate_invalid` of the client, `not_tls`, `refused_by_client` (it does not trust \
         the certificate of the listener), `other`"),
    Metric::new("plimsoll_control_certificate_expiry_timestamp_seconds", Gauge, &["of", "file"],
        "Unix time at which the loaded certificates end; `of` is `xds`, `admin`, `relay`, `store` \
         or `otlp`, `file` is `certificate` or `ca` (authorities)"),
    Metric::new("plimsoll_control_accept_errors_total", Counter, &["listener"],
        "Failed attempts to accept a connection, for example without free descriptors"),
    Metric::new("plimsoll_control_certificate_reloads_total", Counter, &["of", "result"],
        "Changes of certificate files: `ok`, `failed`; `of` is `xds`, `admin` or `relay`"),
    Metric::new("plimsoll_control_audit_lost_total", Counter, &[],
        "Entries of the audit that could not be written to disk; absent without a state directory"),
    Metric::new("plimsoll_control_insecure", Gauge, &[],
        "1 if other machines can connect to ADS and LRS, or to the admin API, without TLS"),
    Metric::new("plimsoll_control_writer_queue_depth", Gauge, &[],
        "Messages in the queue of the writer task"),
    Metric::new("plimsoll_control_writer_queue_capacity", Gauge, &[],
        "Capacity of the queue of the writer task"),
    Metric::new("plimsoll_control_writer_queue_bytes", Gauge, &[],
        "Bytes of load reports in the queue of the writer task"),
    Metric::new("plimsoll_control_writer_queue_bytes_capacity", Gauge, &[],
        "Value of `limits.queue_bytes`"),
];

/// [`METRICS`] by name without `plimsoll_control_`: a page has thousands of samples.
static BY_NAME: LazyLock<HashMap<&str, &Metric>> = LazyLock::new(|| {
    let short = |metric: &'static Metric| {
        let name = metric.name.strip_prefix("plimsoll_control_")?;
        Some((name, metric))
    };
    METRICS.iter().filter_map(short).collect()
});

#[derive(Debug, Default)]
struct Values(Families);

impl Values {
    /// Adds to the value of a metric; `name` excludes the prefix `plimsoll_control_`.
    fn add(&mut self, name: &str, labels: &[&str], value: impl Into<Value>) {
        let metric = BY_NAME.get(name);
        debug_assert!(metric.is_some(), "{name} is not in the table");
        if let Some(metric) = metric {
            self.0.add(metric.name, metric, labels, value);
        }
    }
}

/// How long the shares of load lines may be computed for one scrape; the rest follows in the next.
const LOAD_BUDGET: Duration = Duration::from_millis(20);

pub(super) async fn page(context: &Context) -> Result<String, Stopped> {
    let values = families(context).await?;
    let render = move || values.text(TextFormat::OpenMetrics);
    // The thread only fails if it panics, or if the runtime shuts down.
    tokio::task::spawn_blocking(render)
        .await
        .map_err(|_| Stopped)
}

/// Collects all metrics with their values.
pub(crate) async fn families(context: &Context) -> Result<Families, Stopped> {
    let lines = Arc::new(context.load_lines(LOAD_BUDGET).await?);
    let subscriptions = Subscriptions::of(context.handle.records());
    let inspected = Arc::clone(&lines);
    let store = context.handle.store_stats().cloned();
    let inspect = move |state: &State, now| {
        let details = load::Details::new(&inspected);
        let mut values = gauges::of_state(state, &subscriptions, &inspected, &details, now);
        gauges::add_store(&mut values, state, store.as_deref());
        values
    };
    let mut values = context.handle.inspect(inspect).await?;
    present::add_zeros(&mut values);
    load::add(&mut values, &lines, &load::Details::new(&lines));
    zone_loss::add(&mut values, &context.losses(lines).await?);
    values.add("build_info", &[env!("CARGO_PKG_VERSION")], 1);
    gauges::add_streams(&mut values, &context.handle);
    add_counters(&mut values, &context.handle);
    add_reloads(&mut values, context);
    gauges::add_sources(&mut values, &context.handle);
    add_listeners(&mut values, context);
    Ok(values.0)
}

fn add_counters(values: &mut Values, handle: &Handle) {
    for (type_url, totals) in handle.records().totals() {
        let name = [type_url.rsplit(['.', '/']).next().unwrap_or_default()];
        values.add("discovery_responses_total", &name, totals.responses);
        values.add("discovery_acks_total", &name, totals.acks);
        values.add("discovery_nacks_total", &name, totals.nacks);
    }
    for ((name, label), count) in handle.counters().values() {
        let label = (!label.is_empty()).then_some(label);
        values.add(name, label.as_slice(), count);
    }
}

fn add_listeners(values: &mut Values, context: &Context) {
    let listeners = &context.listeners;
    let names = [
        ("xds", &listeners.xds, Some(context.bound.xds)),
        ("admin", &listeners.admin, context.bound.admin),
        ("read_only", &listeners.read_only, context.bound.read_only),
    ];
    for (name, stats, _) in names.into_iter().filter(|(_, _, bound)| bound.is_some()) {
        values.add("connections", &[name], stats.open());
        values.add("accept_errors_total", &[name], stats.accept_errors());
        for (reason, count) in stats.refused() {
            values.add("connections_refused_total", &[name, reason], count);
        }
        for (failure, count) in stats.failed_handshakes() {
            let labels = [name, failure.label()];
            values.add("handshakes_failed_total", &labels, count);
        }
    }
    let relay = context.handle.upstreams().connector();
    let reloads = [
        ("xds", listeners.xds_tls.as_ref().map(|tls| tls.reloads())),
        (
            "admin",
            listeners.admin_tls.as_ref().map(|tls| tls.reloads()),
        ),
        ("relay", relay.map(|connector| connector.reloads())),
    ];
    for (of, counts) in reloads {
        let (succeeded, failed) = counts.unwrap_or_default();
        values.add("certificate_reloads_total", &[of, "ok"], succeeded);
        values.add("certificate_reloads_total", &[of, "failed"], failed);
    }
    for Certificate { of, expiry } in context.handle.certificates().all() {
        let labels = [of, expiry.usage.label()];
        let end = u64::try_from(expiry.unix_seconds).unwrap_or_default();
        values.add("certificate_expiry_timestamp_seconds", &labels, end);
    }
    if let Some(lost) = context.handle.audit().lost() {
        values.add("audit_lost_total", &[], lost);
    }
    values.add("insecure", &[], u64::from(listeners.insecure.any()));
}

fn add_reloads(values: &mut Values, context: &Context) {
    let counts = context.reloads.counts();
    values.add("config_reloads_total", &["ok"], counts.succeeded);
    values.add("config_reloads_total", &["failed"], counts.failed);
    values.add("config_in_force", &[], u64::from(counts.error.is_none()));
    let last = counts.last_success_unix_seconds;
    values.add("config_last_success_timestamp_seconds", &[], last);
}
