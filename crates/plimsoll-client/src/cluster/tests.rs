//! Tests of a cluster: readiness and the fallback cluster, retry budget, events and counters.

use std::time::Duration;

use plimsoll_xds::upstream::RetryBudget as BudgetSettings;
use plimsoll_xds::yaml::parse_upstream_cluster;

use super::*;
use crate::cluster::manager::{ClusterManager, Update};
use crate::request::destination::pick;

const EDS: &str = "type: EDS, eds_cluster_config: {eds_config: {ads: {}}}";

/// A manager with the cluster `spare` as fallback.
fn manager() -> ClusterManager {
    let initial_fetch = InitialFetch::new(Duration::from_secs(1), Some("spare".into()));
    let settings = Settings {
        locality: Default::default(),
        pools: 1,
        preconnect: false,
        seed: 1,
        outlier_notify: Arc::default(),
        initial_fetch: Arc::new(initial_fetch),
        tracing: Tracing::default(),
    };
    ClusterManager::new(settings).0
}

fn add(manager: &mut ClusterManager, name: &str, fields: &str) -> Arc<Cluster> {
    let text = format!("{{name: {name}, {fields}}}");
    let cluster = parse_upstream_cluster(&text).unwrap();
    manager.handle(Update::Upstream(Arc::new(cluster)));
    Arc::clone(&manager.clusters().load()[name])
}

fn listed(name: &str) -> String {
    let host = "{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}";
    let endpoints = format!("[{{lb_endpoints: [{host}]}}]");
    let listed = format!("{{cluster_name: {name}, endpoints: {endpoints}}}");
    format!("type: STATIC, load_assignment: {listed}")
}

fn add_static(manager: &mut ClusterManager, name: &str) -> Arc<Cluster> {
    add(manager, name, &listed(name))
}

#[test]
fn counters_of_dropped_pickers_stay_in_the_sum() {
    let mut picks = PickCounters::default();
    for _ in 0..3 {
        let stats: Arc<PickerStats> = Arc::default();
        stats.drop_overload.increment();
        picks.add(stats);
    }
    assert_eq!(picks.live.len(), 1);
    let sums = picks.sum().into_iter();
    let dropped = sums.filter(|(metric, _)| metric.name == "drop_overload");
    assert_eq!(dropped.map(|(_, value)| value).sum::<u64>(), 3);
    let live: Arc<PickerStats> = Arc::default();
    picks.add(Arc::clone(&live));
    picks.add(Arc::default());
    assert_eq!(picks.live.len(), 2, "pickers in use stay");
}

#[tokio::test(start_paused = true)]
async fn the_fallback_cluster_serves_after_the_initial_fetch() {
    let mut manager = manager();
    let orders = add(&mut manager, "orders", EDS);
    assert!(orders.ready_or_fallback().await.is_err(), "no fallback yet");
    let spare = add_static(&mut manager, "spare");
    let fallback = orders.ready_or_fallback().await.unwrap();
    assert!(Arc::ptr_eq(&fallback.unwrap(), &spare));
    assert!(spare.ready_or_fallback().await.unwrap().is_none());
    manager.handle(Update::Remove("other".into()));
    assert!(orders.ready_or_fallback().await.unwrap().is_some());
    manager.handle(Update::Remove("spare".into()));
    let error = orders.ready_or_fallback().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Discovery);
}

#[tokio::test(start_paused = true)]
async fn a_fallback_cluster_without_endpoints_serves_nothing() {
    let mut manager = manager();
    let orders = add(&mut manager, "orders", EDS);
    let spare = add(&mut manager, "spare", EDS);
    assert!(!spare.is_ready());
    let error = orders.ready_or_fallback().await.unwrap_err();
    assert_eq!(error.cluster(), Some("orders"));
}

#[tokio::test]
async fn a_client_that_is_shut_down_uses_no_fallback() {
    let mut manager = manager();
    let orders = add(&mut manager, "orders", EDS);
    let spare = add_static(&mut manager, "spare");
    drop(manager);
    assert!(spare.is_ready());
    let error = orders.ready_or_fallback().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn the_reason_for_missing_endpoints_depends_on_their_source() {
    let mut manager = manager();
    let path = "type: EDS, eds_cluster_config: {eds_config: {path: /tmp/eds.yaml}}";
    let listed = listed("given");
    let none = "no management server: see ClientBuilder::xds";
    for (name, fields, reason, side) in [
        (
            "given",
            listed.as_str(),
            "they are set with Client::update_endpoints",
            Side::Upstream,
        ),
        (
            "file",
            path,
            "they are read from \"/tmp/eds.yaml\"",
            Side::ManagementServer,
        ),
        ("server", EDS, none, Side::ManagementServer),
    ] {
        let cluster = add(&mut manager, name, fields);
        assert_eq!(cluster.pending_reason(), reason);
        let error = cluster.not_ready();
        let text = format!("cluster {name}: no endpoints within 1s; {reason}");
        assert_eq!(error.to_string(), text);
        assert_eq!(error.side(), side, "{name}");
        assert_eq!(cluster.waiting(), format!("cluster {name}"));
        cluster.set_problem(Some("a problem".to_owned()));
        assert_eq!(cluster.pending_reason(), "a problem");
        assert_eq!(*cluster.problem().unwrap(), "a problem");
    }
}

#[tokio::test]
async fn the_newest_events_are_kept() {
    let cluster = add_static(&mut manager(), "orders");
    let count = MAX_EVENTS as u64 + 2;
    for nanos in 1..=count {
        let event = Event::MembershipChanged {
            added: 1,
            removed: 0,
            total: 1,
        };
        cluster.record_event(event, Instant::from_nanos(nanos));
    }
    let events = cluster.events();
    assert_eq!(events.len(), MAX_EVENTS);
    assert_eq!(events[0].0, Instant::from_nanos(count));
    assert_eq!(events[MAX_EVENTS - 1].0, Instant::from_nanos(3));
}

#[tokio::test]
async fn retries_are_bounded_by_max_retries_or_the_budget() {
    let mut manager = manager();
    let cluster = add_static(&mut manager, "orders");
    let acquired = |options: &UpstreamOptions| {
        let permits: Vec<_> = (0..10)
            .filter_map(|_| RetryBudget::try_acquire(&cluster, options))
            .collect();
        assert_eq!(cluster.retries.in_flight(), permits.len() as u64);
        permits.len()
    };
    let mut options = UpstreamOptions::default();
    for max_retries in [0, 1, 2] {
        options.circuit_breakers.max_retries = max_retries;
        assert_eq!(acquired(&options), max_retries as usize);
        assert_eq!(cluster.retries.in_flight(), 0);
    }
    // The budget replaces `max_retries`: half of the active requests, and at least 2.
    options.circuit_breakers.retry_budget = BudgetSettings::try_new(Some(50.0), Some(2)).ok();
    assert_eq!(acquired(&options), 2);
    let args = Default::default();
    let picked = pick(&cluster, &mut cluster.checkout_picker(), &options, args);
    let host = picked.unwrap().host().unwrap().host;
    let active: Vec<_> = (0..7).map(|_| host.begin_request()).collect();
    assert_eq!(acquired(&options), 3);
    drop(active);
    assert_eq!(acquired(&options), 2);
}

#[tokio::test]
async fn pickers_are_used_again_and_counted_together() {
    let mut manager = manager();
    let cluster = add_static(&mut manager, "orders");
    let pickers = [cluster.checkout_picker(), cluster.checkout_picker()];
    for picker in pickers {
        picker.stats().drop_overload.increment();
        cluster.return_picker(picker);
    }
    let samples = cluster.picker_samples().into_iter();
    let dropped = samples.filter(|(metric, _)| metric.name == "drop_overload");
    assert_eq!(dropped.map(|(_, value)| value).sum::<u64>(), 2);
    assert_eq!(cluster.pickers.len(), 2);
    let _again = cluster.checkout_picker();
    assert_eq!(cluster.pickers.len(), 1);
    assert_ne!(cluster.next_draw(), cluster.next_draw());
}
