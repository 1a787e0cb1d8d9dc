//! Tests of the control plane's dashboard document from startup to measured demand; no sockets.

use plimsoll_admin::STATE_PATH;
use plimsoll_admin::history::{History, HistoryQuery};
use plimsoll_admin::state::AckStatus;
use plimsoll_control::admin::openapi;
use plimsoll_control::config::{ConfigFile, ControlConfig};
use plimsoll_control::fleet::{Peer, StreamKind};
use plimsoll_control::run::Bound;
use plimsoll_control::server::{Discovery, Handle, LoadReporting};
use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
use plimsoll_serve::CancellationToken;
use plimsoll_testing::tasks::wait_for;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::server::{Limits, ServerStream, StreamEvent};
use plimsoll_xds::ads::{CLUSTER_LOAD_ASSIGNMENT, Variant};
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver, AdsOpening, AdsSession, ClientInfo, LrsHandler, LrsReporter as _,
    LrsSession,
};
use plimsoll_xds::node::NodeInfo;
use serde_json::json;

use super::*;

const CONFIG: &str = "
load_reporting: {interval: 0.1s}
demand: {smoothing_time_constant: 0.001s}
services:
- cluster: {name: orders}
  endpoints:
  - locality: {region: r1, zone: a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80']
";

type Session = LrsSession<<LoadReporting as LrsHandler>::Reporter>;

/// A control plane without sockets.
struct Control {
    source: ControlSource,
    handle: Handle,
    stopping: CancellationToken,
}

impl Control {
    fn start() -> Self {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: CONFIG.to_owned(),
        };
        let config = ControlConfig::parse(&file, &[]).unwrap();
        let (writer, handle) = plimsoll_control::server::start(Arc::new(config));
        tokio::spawn(writer.run());
        let bound = Bound {
            xds: "127.0.0.1:18000".parse().unwrap(),
            admin: None,
            read_only: None,
        };
        let context = Context::new(handle.clone(), bound);
        let stopping = context.stopping.clone();
        let source = ControlSource::new(context);
        Self {
            source,
            handle,
            stopping,
        }
    }

    async fn document(&self) -> Arc<DashboardState> {
        self.source.state().await.unwrap()
    }

    /// Opens the ADS and LRS streams of a node.
    async fn connect(&self, info: &NodeInfo) -> (AdsSession<impl AdsObserver + use<>>, Session) {
        let opening = AdsOpening {
            node: NodeMessage {
                info: info.clone(),
                raw: Default::default(),
            },
            variant: Variant::Delta,
            peer: None,
            identity: None,
            returning: false,
        };
        let discovery = Discovery::new(self.handle.clone());
        let discovery = AdsHandler::open(&discovery, opening).await.unwrap();
        let reporting = LoadReporting::new(self.handle.clone());
        let reporting = LrsHandler::open(&reporting, info, &ClientInfo::default())
            .await
            .unwrap();
        (discovery, reporting)
    }
}

fn node(id: &str, zone: &str) -> NodeInfo {
    NodeInfo {
        node: Node {
            id: id.into(),
            cluster: "gateway".into(),
            locality: Locality::new("r1", zone, ""),
        },
        user_agent_name: "envoy".to_owned(),
        user_agent_version: "1.40.0".to_owned(),
        client_features: Vec::new(),
    }
}

fn stats(sent: &[(&str, u64)]) -> ClusterStats {
    let sent = sent.iter().map(|&(zone, requests)| UpstreamLocalityStats {
        locality: Locality::new("r1", zone, ""),
        total_issued_requests: requests,
        total_successful_requests: requests,
        ..Default::default()
    });
    ClusterStats {
        cluster_name: "orders".into(),
        upstream_locality_stats: sent.collect(),
        total_dropped_requests: 0,
        load_report_interval: Duration::from_millis(100),
    }
}

/// Validates the document and the history of it by the OpenAPI description of the admin API.
fn validate(document: &DashboardState) {
    let history = History::default();
    history.record(document);
    let query = HistoryQuery {
        cluster: Some("orders".to_owned()),
        ..HistoryQuery::default()
    };
    let recorded = history.response(&query).unwrap();
    assert_eq!(recorded.clusters[0].zones.len(), 2);
    for (path, page) in [
        (STATE_PATH.0, json!(document)),
        (HISTORY_PATH.0, json!(recorded)),
    ] {
        let answer = &openapi()["paths"][path]["get"]["responses"]["200"];
        let mut schema = answer["content"]["application/json"]["schema"].clone();
        assert!(schema.is_object(), "{path}");
        schema["components"] = openapi()["components"].clone();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<_> = validator.iter_errors(&page).collect();
        assert!(errors.is_empty(), "{path}: {errors:#?}");
    }
}

#[tokio::test]
async fn without_proxies_only_hosts_are_shown() {
    let control = Control::start();
    let document = control.document().await;
    validate(&document);
    let cluster = &document.clusters[0];
    assert_eq!(
        (cluster.cluster.as_str(), cluster.fleet.as_str()),
        ("orders", "")
    );
    assert_eq!(cluster.zones.len(), 2);
    assert_eq!(
        (cluster.zones[0].healthy_hosts, cluster.zones[0].hosts),
        (3, 3)
    );
    assert_eq!(cluster.zones[0].demand_requests_per_second, None);
    assert_eq!(cluster.zones[0].load, None);
    assert_eq!(cluster.flows, []);
    assert_eq!(document.nodes, Some(Vec::new()));
    control.stopping.cancel();
    assert_eq!(control.source.state().await, Err(ShuttingDown));
    control.source.closed().await;
}

#[tokio::test]
async fn measured_demand_flows_and_reasons_are_shown() {
    let control = Control::start();
    let (a, b) = (node("1", "a"), node("2", "b"));
    let (_discovery_a, mut report_a) = control.connect(&a).await;
    let (_discovery_b, mut report_b) = control.connect(&b).await;
    let work = async {
        loop {
            let sent = stats(&[("a", 20), ("b", 10)]);
            report_a.reporter.report(&a.node, vec![sent]).await;
            let sent = stats(&[("b", 10)]);
            report_b.reporter.report(&b.node, vec![sent]).await;
            let document = control.document().await;
            if document.clusters[0].basis == "measured_demand" {
                return document;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let document = tokio::time::timeout(Duration::from_secs(30), work)
        .await
        .expect("demand is delivered within 30 s");
    validate(&document);
    let cluster = &document.clusters[0];
    let [zone_a, zone_b] = &cluster.zones[..] else {
        panic!("{:?}", cluster.zones)
    };
    assert_eq!(zone_a.demand_requests_per_second, Some(300.0));
    assert_eq!(zone_a.kept_local, Some(0.667));
    assert_eq!(zone_a.delivered_bp, Some(7500));
    assert_eq!(zone_b.served_requests_per_second, Some(200.0));
    assert_eq!(zone_b.line_requests_per_second, Some(200.0));
    assert_eq!(zone_b.load, Some(1.0));
    assert_eq!(zone_a.state.as_deref(), Some("LocalityResidual"));
    let reason = zone_a.reason.as_deref().unwrap();
    assert!(reason.contains("75 % of the demand"), "{reason}");
    assert!(cluster.flows_measured);
    assert_eq!(cluster.flows.len(), 3);
    assert!(cluster.confirmed_unix_ms.unwrap() <= document.taken_unix_ms);
    let nodes = document.nodes.as_ref().unwrap();
    assert_eq!(nodes[0].requests_per_second, Some(300.0));
    assert_eq!(nodes[0].software, "envoy 1.40.0");
    assert_eq!(nodes[0].delivery, "fleet_weights");
    assert_eq!(
        nodes[0].answer,
        AckStatus::None,
        "no response was sent over a socket"
    );
    assert!(
        document
            .events
            .iter()
            .any(|event| event.text.contains("reports load"))
    );
    // Timestamps of past events do not jitter between two documents.
    let again = control.document().await;
    assert_eq!(again.nodes, document.nodes);
}

#[tokio::test]
async fn what_if_questions_are_answered() {
    let control = Control::start();
    let (_discovery, _report) = control.connect(&node("1", "a")).await;
    let question = WhatIfQuestion {
        cluster: "orders".to_owned(),
        hosts: [("a".to_owned(), 9)].into(),
        ..Default::default()
    };
    let answer = control.source.what_if(question.clone()).await.unwrap();
    assert_eq!(answer.before.localities[0].hosts, 3);
    assert_eq!(answer.after.localities[0].capacity_share, 0.75);
    let unknown = WhatIfQuestion {
        cluster: "order".to_owned(),
        ..question
    };
    let refused = control.source.what_if(unknown).await.unwrap_err();
    assert_eq!(refused.field.as_deref(), Some("cluster"));
    let question = ExplainQuestion {
        cluster: "orders".to_owned(),
        zone: "a".to_owned(),
        region: "r1".to_owned(),
        ..Default::default()
    };
    let explanation = control.source.explain(question).await.unwrap();
    assert_eq!(explanation.own_locality, Some(Locality::new("r1", "a", "")));
}

#[tokio::test]
async fn a_subscribed_service_without_load_reports_is_a_notice() {
    let control = Control::start();
    let (mut discovery, mut reporting) = control.connect(&node("1", "a")).await;
    let stream = ServerStream::new(Variant::Delta, Limits::default());
    let subscribed = StreamEvent::Subscribed {
        type_url: CLUSTER_LOAD_ASSIGNMENT.into(),
        names: vec!["orders".into()],
    };
    discovery.observer.handle_event(subscribed, &stream);
    let text = |document: &DashboardState| document.notices.first().map(|first| first.text.clone());
    let shown = wait_for("the notice appears after three intervals", async || {
        text(&*control.document().await)
    })
    .await;
    assert!(shown.contains("1 does not report orders"), "{shown}");
    let report = vec![stats(&[("a", 5)])];
    reporting
        .reporter
        .report(&node("1", "a").node, report)
        .await;
    assert_eq!(text(&*control.document().await), None);
}

#[tokio::test]
async fn nodes_that_may_not_be_what_they_say_are_notices() {
    let control = Control::start();
    let texts = |document: &DashboardState| -> Vec<String> {
        let notices = document.notices.iter();
        notices.map(|notice| notice.text.clone()).collect()
    };
    let mut sessions = Vec::new();
    for (id, requests) in [
        ("1", 10),
        ("2", 10),
        ("3", 10),
        ("heavy", 90),
        ("liar", 100_000),
    ] {
        let info = node(id, "a");
        let (discovery, mut reporting) = control.connect(&info).await;
        let report = vec![stats(&[("a", requests)])];
        reporting.reporter.report(&info.node, report).await;
        sessions.push((discovery, reporting));
    }
    let lost = node("lost", "nowhere");
    let (_discovery, mut reporting) = control.connect(&lost).await;
    let report = vec![stats(&[("a", 5)])];
    reporting.reporter.report(&lost.node, report).await;
    let duplicate = node("twice", "a");
    let reporting = LoadReporting::new(control.handle.clone());
    let [first, second] = ["10.0.0.1:1", "10.0.0.2:1"].map(|peer| peer.parse().ok());
    let _open = LrsHandler::open(
        &reporting,
        &duplicate,
        &ClientInfo {
            peer: first,
            identity: None,
        },
    )
    .await
    .unwrap();
    let refused = LrsHandler::open(
        &reporting,
        &duplicate,
        &ClientInfo {
            peer: second,
            identity: None,
        },
    )
    .await;
    assert!(refused.is_err());
    let shown = texts(&*control.document().await).join("\n");
    for expected in [
        "second is refused: twice of gateway",
        "1 node of gateway is in r1/nowhere, which no service has (see fleets.zones)",
        "only a part counts: liar of gateway",
        "liar of gateway carries ",
    ] {
        assert!(shown.contains(expected), "{expected} is not in\n{shown}");
    }
}

/// A node of each zone reports once per interval; after two seconds, no more requests to zone b.
#[test]
fn a_zone_to_which_requests_vanish_is_a_notice_that_does_not_say_that_it_fails() {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: CONFIG.to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let mut state = State::new(Arc::new(config), Instant::ORIGIN);
    let nodes = ["a", "b"].map(|zone| node(zone, zone));
    let mut now = Instant::ORIGIN;
    for node in &nodes {
        for kind in [StreamKind::Ads, StreamKind::Lrs] {
            let peer = Peer::default();
            state.handle_open(node, kind, false, &peer, now).unwrap();
        }
    }
    for interval in 0..40 {
        let [mut at_a, mut at_b] = ["a", "b"].map(|zone| stats(&[(zone, 200)]));
        if interval > 20 {
            at_b.upstream_locality_stats.clear();
            at_a.upstream_locality_stats[0].total_issued_requests = 900;
        }
        state.handle_report(&nodes[0], &[at_a], now);
        state.handle_report(&nodes[1], &[at_b], now);
        now = now.saturating_add(Duration::from_millis(100));
        state.handle_timeout(now);
        while state.poll_output().is_some() {}
    }
    let notices = failing_zones(&state);
    let texts: Vec<&str> = notices.iter().map(|notice| notice.text.as_str()).collect();
    let expected = "gateway reports no requests to orders in r1/b any more; host counts decide, \
                    and it is tried now and then";
    assert_eq!(texts, [expected]);
    assert_eq!(notices[0].severity, Severity::Warning);
}

#[test]
fn a_fleet_of_which_some_nodes_have_not_reported_is_a_notice() {
    let file = ConfigFile {
        name: "control.yaml".to_owned(),
        text: CONFIG.to_owned(),
    };
    let config = ControlConfig::parse(&file, &[]).unwrap();
    let now = Instant::ORIGIN;
    let mut state = State::new(Arc::new(config), now);
    let nodes = ["a", "b"].map(|zone| node(zone, zone));
    for node in &nodes {
        let peer = Peer::default();
        let opened = state.handle_open(node, StreamKind::Lrs, false, &peer, now);
        assert!(opened.is_ok());
    }
    let texts = |state: &State| -> Vec<String> {
        let notices = withheld::notices(state, now).into_iter();
        notices.map(|notice| notice.text).collect()
    };
    assert_eq!(texts(&state), [""; 0], "nothing is known yet");
    state.handle_report(&nodes[0], &[stats(&[("a", 200)])], now);
    let expected = "demand of gateway is not delivered yet: 1 of 2 proxies have reported load";
    assert_eq!(texts(&state), [expected]);
    state.handle_report(&nodes[1], &[stats(&[("b", 200)])], now);
    assert_eq!(texts(&state), [""; 0]);
}
