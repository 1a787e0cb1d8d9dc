//! Tests of the writer and its streams, without sockets.

mod limits;

use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::ads::message::{ErrorDetail, NodeMessage};
use plimsoll_xds::ads::server::{Nack, StreamEvent};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Variant};
use plimsoll_xds::driver::{
    AdsHandler, AdsObserver as _, AdsOpening, AdsSession, ClientIdentity, ClientInfo, LrsHandler,
    LrsReporter,
};
use plimsoll_xds::lrs::message::{ClusterTraffic, LoadStatsRequest};
use plimsoll_xds::lrs::{LrsTraffic, ServerStream};
use plimsoll_xds::wire::encode_load_stats_response;

use super::handlers::Observer;
use super::*;
use crate::delivery::NodeClass;
use crate::services::Found;
use crate::sources::SourceId;
use crate::state::tests::driver::{config, fleet, node, parse, stats};
use crate::view::tests::walk;

/// Timeout that only failing tests reach.
const TIMEOUT: Duration = Duration::from_secs(30);

fn opening(info: &NodeInfo) -> AdsOpening {
    AdsOpening {
        node: NodeMessage {
            info: info.clone(),
            raw: Default::default(),
        },
        variant: Variant::Delta,
        peer: None,
        identity: None,
        returning: false,
    }
}

async fn discover(handle: &Handle, info: &NodeInfo) -> AdsSession<Observer> {
    let discovery = Discovery::new(handle.clone());
    discovery.open(opening(info)).await.unwrap()
}

/// Polls the state until `check` returns true.
async fn wait_until(handle: &Handle, check: impl Fn(&State) -> bool + Clone + Send + 'static) {
    let polling = tokio::time::timeout(TIMEOUT, async {
        loop {
            let check = check.clone();
            if handle.inspect(move |state, _| check(state)).await.unwrap() {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    polling.await.expect("the condition holds in time");
}

fn members(state: &State) -> usize {
    state.fleets().members("gateway").count()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Runs `test` with a writer, then checks that the writer exits once all handles are dropped.
fn with_writer<F: Future<Output = ()>>(test: impl FnOnce(Handle) -> F) {
    runtime().block_on(async {
        let (writer, handle) = start(config(""));
        let writer = tokio::spawn(writer.run());
        test(handle).await;
        tokio::time::timeout(TIMEOUT, writer)
            .await
            .expect("the writer exits without handles")
            .unwrap();
    });
}

#[test]
fn the_first_view_of_a_stream_is_complete() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let session = discover(&handle, &a).await;
        let view = Arc::clone(&session.views.borrow());
        assert_eq!(view.get(CLUSTER).unwrap().len(), 1);
        let assignments = view.get(CLUSTER_LOAD_ASSIGNMENT).unwrap();
        assert!(assignments.get("local_cluster").is_some());
        assert_eq!(handle.records().len(), 1);
        drop(session);
        assert!(handle.records().is_empty());
    });
}

#[test]
fn streams_of_one_class_and_zone_share_a_view() {
    with_writer(|handle| async move {
        let first = discover(&handle, &node(NodeClass::Envoy, "1", "a")).await;
        let second = discover(&handle, &node(NodeClass::Envoy, "2", "a")).await;
        let elsewhere = discover(&handle, &node(NodeClass::Envoy, "3", "b")).await;
        let grpc = discover(&handle, &node(NodeClass::Grpc, "4", "a")).await;
        let grpc_elsewhere = discover(&handle, &node(NodeClass::Grpc, "5", "b")).await;
        let view_of = |session: &AdsSession<Observer>| Arc::clone(&session.views.borrow());
        wait_until(&handle, |state| members(state) == 5).await;
        assert!(Arc::ptr_eq(&view_of(&first), &view_of(&second)));
        let same_content = |one: &AdsSession<Observer>, other: &AdsSession<Observer>| {
            view_of(one).has_same_content(&view_of(other))
        };
        assert!(
            same_content(&first, &elsewhere),
            "fleet weights are the same everywhere"
        );
        assert!(!same_content(&first, &grpc));
        assert!(
            !same_content(&grpc, &grpc_elsewhere),
            "locality weights are not"
        );
    });
}

#[test]
fn a_new_configuration_reaches_open_streams() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let mut session = discover(&handle, &a).await;
        session.views.mark_unchanged();
        let text = "services: [{cluster: {name: orders}}, {cluster: {name: carts}}]";
        let next = parse(text);
        handle.apply(next).await.unwrap();
        session.views.changed().await.unwrap();
        let clusters = session.views.borrow().get(CLUSTER).map(|all| all.len());
        assert_eq!(clusters, Some(2));
    });
}

#[test]
fn an_edit_is_audited_and_waits_for_the_streams_that_it_changes() {
    use crate::audit::{AuditKind, Delivered};

    with_writer(|handle| async move {
        let [a, b, _] = fleet(NodeClass::Envoy);
        let mut sessions = [discover(&handle, &a).await, discover(&handle, &b).await];
        let mut streams = sessions.each_mut().map(|session| {
            session.views.mark_unchanged();
            plimsoll_xds::ads::server::ServerStream::new(Variant::Delta, Default::default())
        });
        let by = "edit of the files";
        handle.apply_by(config("mode: SHADOW"), by).await.unwrap();
        for (session, stream) in sessions.iter_mut().zip(&mut streams) {
            session.views.changed().await.unwrap();
            // The client subscribes to nothing: it has everything as soon as it sees the view.
            stream.set_view(Arc::clone(&session.views.borrow()));
        }
        let entry = handle.audit().all().remove(0);
        assert_eq!((entry.kind, &*entry.by), (AuditKind::Changed, by));
        assert_eq!(entry.text(), "orders: mode ENFORCE → SHADOW, test:3");
        assert_eq!(entry.delivery.as_ref().unwrap().streams, 2);
        sessions[0].observer.handle_idle(&streams[0]);
        sessions[0].observer.handle_idle(&streams[0]);
        assert!(handle.audit().is_waiting());
        sessions[1].observer.handle_idle(&streams[1]);
        assert!(!handle.audit().is_waiting());
        let delivery = handle.audit().all().remove(0).delivery.unwrap();
        assert_eq!((delivery.accepted, delivery.closed), (2, 0));
        assert!(delivery.first_ack <= delivery.last_ack);
        let number = entry.number;
        let text = Delivered { number, delivery }.text();
        let events = handle.recent().all();
        assert_eq!(events[0].text, text);
        assert_eq!(events[1].text, entry.text());
        // A stream that closes is not waited for, and a refused edit is kept.
        handle.apply_by(config(""), by).await.unwrap();
        wait_until(&handle, |state| state.config().services.len() == 1).await;
        drop(sessions);
        assert!(!handle.audit().is_waiting());
        handle.refuse(by, "control.yaml: no", Instant::ORIGIN);
        let last = handle.audit().all().remove(0);
        assert_eq!(last.kind, AuditKind::Refused);
        assert_eq!(handle.recent().all()[0].text, last.text());
    });
}

#[test]
fn a_closed_stream_is_counted_once() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let silent = |state: &State| {
            let mut members = state.fleets().members("gateway");
            members.all(|member| member.disconnected_since.is_some())
        };
        let session = discover(&handle, &a).await;
        let second = discover(&handle, &a).await;
        drop(session);
        wait_until(&handle, |state| members(state) == 1).await;
        assert!(!handle.inspect(move |state, _| silent(state)).await.unwrap());
        drop(second);
        wait_until(&handle, silent).await;
    });
}

#[test]
fn a_stream_canceled_while_opening_leaves_no_state() {
    with_writer(|handle| async move {
        let [a, b, _] = fleet(NodeClass::Envoy);
        // The message is queued, but the caller no longer waits for the reply.
        let (reply, response) = oneshot::channel();
        let open = Message::OpenAds {
            node: Arc::new(a.clone()),
            returning: false,
            peer: Peer::default(),
            reply,
        };
        handle.send(open).await.unwrap();
        drop(response);
        // The reply has been sent, but the caller has not received it.
        let (reply, response) = oneshot::channel();
        let node = Arc::new(b.clone());
        let peer = Peer::default();
        let open = Message::OpenLrs { node, peer, reply };
        handle.send(open).await.unwrap();
        wait_until(&handle, |state| members(state) == 2).await;
        drop(response);
        wait_until(&handle, |state| {
            let mut members = state.fleets().members("gateway");
            members.all(|member| member.disconnected_since.is_some())
        })
        .await;
        let key = ViewKey::of(&a, false);
        wait_until(&handle, move |state| state.view(&key).is_none()).await;
    });
}

#[test]
fn reports_reach_the_planner_and_settings_reach_reporters() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let reporting = LoadReporting::new(handle.clone());
        let mut session = reporting.open(&a, &ClientInfo::default()).await.unwrap();
        let settings = Arc::clone(&session.instructions.borrow().settings);
        assert_eq!(settings.interval, Duration::from_secs(1));
        let report = vec![stats("orders", 500)];
        session.reporter.report(&a.node, report).await;
        wait_until(&handle, |state| {
            let now = Instant::ORIGIN;
            state.planner().fleet("gateway", now).is_some()
        })
        .await;
        session.instructions.mark_unchanged();
        let text = "load_reporting: {interval: 7s}\nservices: [{cluster: {name: orders}}]";
        let next = parse(text);
        handle.apply(next).await.unwrap();
        session.instructions.changed().await.unwrap();
        let settings = Arc::clone(&session.instructions.borrow().settings);
        assert_eq!(settings.interval, Duration::from_secs(7));
    });
}

#[test]
fn stock_clients_get_no_plimsoll_fields_in_load_stats_responses() {
    with_writer(|handle| async move {
        for class in [NodeClass::Envoy, NodeClass::Grpc, NodeClass::Plimsoll] {
            let [a, ..] = fleet(class);
            let reporting = LoadReporting::new(handle.clone());
            let session = reporting.open(&a, &ClientInfo::default()).await.unwrap();
            let settings = Arc::clone(&session.instructions.borrow().settings);
            let mut stream = ServerStream::new(settings);
            stream.set_traffic(Arc::new(measured_traffic()));
            let request = LoadStatsRequest {
                node: Some(a),
                ..Default::default()
            };
            stream.handle_request(request, Instant::ORIGIN).unwrap();
            let response = stream.poll_transmit().expect("the first response");
            let bytes = encode_load_stats_response(&response);
            assert_eq!(
                walk::has(&bytes, 5),
                class == NodeClass::Plimsoll,
                "{class:?}"
            );
        }
    });
}

fn measured_traffic() -> LrsTraffic {
    let half = BasisPoints::new(5000, "half").unwrap();
    LrsTraffic {
        epoch: 1,
        clusters: vec![ClusterTraffic {
            cluster_name: "orders".into(),
            fractions: vec![(Locality::zone_only("a"), half)],
            observation_time: None,
        }],
    }
}

#[test]
fn without_a_writer_streams_are_unavailable() {
    runtime().block_on(async {
        let (writer, handle) = start(config(""));
        drop(writer);
        let [a, ..] = fleet(NodeClass::Envoy);
        let rejected = Discovery::new(handle.clone()).open(opening(&a)).await;
        assert_eq!(rejected.unwrap_err().code(), tonic::Code::Unavailable);
        let rejected = LoadReporting::new(handle.clone())
            .open(&a, &ClientInfo::default())
            .await;
        assert_eq!(rejected.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(handle.inspect(|_, _| ()).await, Err(Stopped));
        assert_eq!(handle.apply(config("")).await, Err(Stopped));
    });
}

fn from(peer: Option<std::net::SocketAddr>) -> ClientInfo {
    ClientInfo {
        peer,
        identity: None,
    }
}

#[test]
fn a_second_peer_with_the_same_id_is_refused_with_the_reason() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let reporting = LoadReporting::new(handle.clone());
        let [first, second] = ["10.0.0.1:1000", "10.0.0.2:1000"].map(|peer| peer.parse().ok());
        let session = reporting.open(&a, &from(first)).await.unwrap();
        let refused = reporting.open(&a, &from(second)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::AlreadyExists);
        assert!(refused.message().starts_with("node.id: "), "{refused}");
        // From the same address, another port: a reconnect.
        let again = "10.0.0.1:2000".parse().ok();
        let again = reporting.open(&a, &from(again)).await.unwrap();
        drop((session, again));
        wait_until(&handle, |state| {
            let mut members = state.fleets().members("gateway");
            members.all(|member| member.lrs_streams == 0)
        })
        .await;
        let session = reporting.open(&a, &from(second)).await.unwrap();
        // The other kind of stream belongs to the same peer.
        for (peer, is_own) in [(first, false), (second, true)] {
            let mut discovery = opening(&a);
            discovery.peer = peer;
            let opened = Discovery::new(handle.clone()).open(discovery).await;
            let code = opened.err().map(|refused| refused.code());
            assert_eq!(code, (!is_own).then_some(tonic::Code::AlreadyExists));
        }
        drop(session);
        let values = handle.counters().values();
        assert_eq!(values[&("duplicate_nodes_total", "")], 2);
    });
}

#[test]
fn the_queue_is_limited_by_bytes() {
    runtime().block_on(async {
        let text = "limits: {queue_bytes: 65536}\nservices: [{cluster: {name: orders}}]";
        let (writer, handle) = start(parse(text));
        assert_eq!(
            (handle.queue_bytes_capacity(), handle.queued_bytes()),
            (65_536, 0)
        );
        let large = || report_of(&handle, 40_000);
        // The writer does not run yet: the first report waits in the queue, a second has no room.
        let first = large().await;
        assert_eq!(handle.queued_bytes(), 40_000);
        let mut second = Box::pin(large());
        let waiting = tokio::time::timeout(Duration::ZERO, &mut second).await;
        assert!(waiting.is_err(), "it has to wait");
        let counted = handle.counters().values();
        assert_eq!(counted[&("limit_exceeded_total", "queue_bytes")], 1);
        drop(first);
        let second = second.await;
        assert_eq!(handle.queued_bytes(), 40_000);
        drop(second);
        // A report that is larger than the queue takes all of it.
        let huge = report_of(&handle, 1 << 40).await;
        assert_eq!(handle.queued_bytes(), 65_536);
        drop(huge);
        // Processed reports free their bytes.
        let writer = tokio::spawn(writer.run());
        let [a, ..] = fleet(NodeClass::Envoy);
        let reporting = LoadReporting::new(handle.clone());
        let mut session = reporting.open(&a, &ClientInfo::default()).await.unwrap();
        session
            .reporter
            .report(&a.node, vec![stats("orders", 1); 300])
            .await;
        wait_until(&handle, |state| {
            state.planner().fleet("gateway", Instant::ORIGIN).is_some()
        })
        .await;
        assert_eq!(handle.queued_bytes(), 0);
        drop((session, reporting, handle));
        writer.await.unwrap();
    });
}

async fn report_of(handle: &Handle, bytes: usize) -> OwnedSemaphorePermit {
    handle.reserve(bytes).await.unwrap()
}

#[test]
fn a_writer_that_has_ended_or_hangs_does_not_respond() {
    runtime().block_on(async {
        let (writer, handle) = start(config(""));
        assert!(
            !handle.responds(Duration::from_millis(10)).await,
            "it does not run"
        );
        let writer = tokio::spawn(writer.run());
        assert!(handle.responds(TIMEOUT).await);
        writer.abort();
        assert!(writer.await.unwrap_err().is_cancelled());
        assert!(!handle.responds(TIMEOUT).await);
    });
}

/// The test's configuration with rules for `spiffe://td/gateway`, and more of a rule.
fn with_rules(more: &str) -> Arc<ControlConfig> {
    let rule = format!("{{name: gateways, uri: 'spiffe://td/gateway', {more}}}");
    let tls = "tls: {certificate: a, private_key: b, client_ca: c}";
    let text = format!("{tls}\nidentities: [{rule}]\nservices: [{{cluster: {{name: orders}}}}]");
    let file = crate::config::ConfigFile {
        name: "control.yaml".to_owned(),
        text,
    };
    Arc::new(ControlConfig::parse(&file, &[]).unwrap())
}

fn client(uri: &str) -> ClientInfo {
    let identity = ClientIdentity {
        uris: vec![uri.to_owned()],
        dns_names: Vec::new(),
    };
    ClientInfo {
        peer: None,
        identity: Some(Arc::new(identity)),
    }
}

async fn discover_as(
    handle: &Handle,
    info: &NodeInfo,
    client: &ClientInfo,
) -> Result<AdsSession<Observer>, Status> {
    let opening = AdsOpening {
        identity: client.identity.clone(),
        ..opening(info)
    };
    Discovery::new(handle.clone()).open(opening).await
}

fn refused(handle: &Handle, field: &'static str) -> u64 {
    let values = handle.counters().values();
    let count = values.get(&("nodes_refused_total", field));
    count.copied().unwrap_or_default()
}

#[test]
fn both_kinds_of_streams_are_refused_by_the_rules() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        handle.apply(with_rules("fleets: [other]")).await.unwrap();
        let own = client("spiffe://td/gateway");
        let refusal = discover_as(&handle, &a, &own).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::PermissionDenied);
        let expected = r#"rule "gateways", fleets: fleet "gateway" is not allowed"#;
        assert_eq!(refusal.message(), expected);
        let reporting = LoadReporting::new(handle.clone());
        let refusal = reporting.open(&a, &own).await.unwrap_err();
        assert_eq!(refusal.message(), expected);
        assert_eq!(refused(&handle, "fleets"), 2);
        let unknown = client("spiffe://td/other");
        let refusal = discover_as(&handle, &a, &unknown).await.unwrap_err();
        assert_eq!(refusal.message(), r#"no rule for "spiffe://td/other""#);
        assert_eq!(refused(&handle, "identities"), 1);
        assert_eq!(members_now(&handle).await, 0);

        handle
            .apply(with_rules("report_load: false"))
            .await
            .unwrap();
        let _session = discover_as(&handle, &a, &own).await.unwrap();
        let refusal = reporting.open(&a, &own).await.unwrap_err();
        assert_eq!(refusal.code(), tonic::Code::PermissionDenied);
        assert_eq!(refused(&handle, "report_load"), 1);
        assert_eq!(members_now(&handle).await, 1);
    });
}

async fn members_now(handle: &Handle) -> usize {
    handle.inspect(|state, _| members(state)).await.unwrap()
}

#[test]
fn open_streams_end_when_the_rules_no_longer_allow_them() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        handle.apply(with_rules("fleets: [gateway]")).await.unwrap();
        let own = client("spiffe://td/gateway");
        let mut session = discover_as(&handle, &a, &own).await.unwrap();
        let reporting = LoadReporting::new(handle.clone());
        let mut report = reporting.open(&a, &own).await.unwrap();
        // A change that still allows the same keeps the streams.
        let same = with_rules("fleets: [gateway, other]");
        handle.apply(same).await.unwrap();
        assert!(is_pending(session.observer.revoked()).await);
        assert!(is_pending(report.reporter.revoked()).await);
        // Other services: the client has to ask again.
        handle
            .apply(with_rules("services: [orders]"))
            .await
            .unwrap();
        let status = session.observer.revoked().await;
        assert_eq!(status.code(), tonic::Code::Unavailable);
        handle.apply(with_rules("fleets: [other]")).await.unwrap();
        let status = report.reporter.revoked().await;
        assert_eq!(status.code(), tonic::Code::PermissionDenied);
    });
}

/// Whether a future does not resolve at once.
async fn is_pending(future: impl Future) -> bool {
    tokio::select! {
        biased;
        _ = future => false,
        () = tokio::task::yield_now() => true,
    }
}

#[test]
fn sessions_show_what_the_client_may_read() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        handle.apply(with_rules("services: [none]")).await.unwrap();
        let own = client("spiffe://td/gateway");
        let session = discover_as(&handle, &a, &own).await.unwrap();
        let view = Arc::clone(&session.views.borrow());
        assert!(view.get(CLUSTER).unwrap().get("orders").is_some());
        let readable = plimsoll_xds::driver::AdsObserver::readable(&session.observer, view);
        assert!(readable.get(CLUSTER).unwrap().is_empty());
        let reporting = LoadReporting::new(handle.clone());
        let report = reporting.open(&a, &own).await.unwrap();
        let instructions = report.instructions.borrow().clone();
        let readable = report.reporter.readable(instructions);
        assert!(readable.settings.clusters.is_empty());
    });
}

#[test]
fn reports_about_services_that_a_client_may_not_read_are_dropped_and_counted() {
    let ignored = |handle: &Handle, reason| {
        let counted = handle.counters().values();
        counted
            .get(&("load_reports_ignored_total", reason))
            .copied()
    };
    for (services, counts, denied) in [("carts", false, Some(1)), ("orders", true, None)] {
        runtime().block_on(async {
            let (writer, handle) = start(with_rules(&format!("services: [{services}]")));
            let writer = tokio::spawn(writer.run());
            let info = node(NodeClass::Envoy, "1", "a");
            let handler = LoadReporting::new(handle.clone());
            let opened = handler.open(&info, &client("spiffe://td/gateway")).await;
            let mut session = opened.unwrap();
            let reported = ["orders", "else"].map(|name| stats(name, 100)).to_vec();
            session.reporter.report(&info.node, reported).await;
            let seen = handle.inspect(|state, now| state.planner().fleet("gateway", now).is_some());
            assert_eq!(seen.await, Ok(counts), "{services}");
            assert_eq!(ignored(&handle, "not_readable"), denied);
            assert_eq!(ignored(&handle, "unknown_cluster"), Some(1));
            drop((session, handler, handle));
            writer.await.unwrap();
        });
    }
}

#[test]
fn reports_beyond_the_rate_of_a_stream_are_dropped_and_counted() {
    with_writer(|handle| async move {
        let info = node(NodeClass::Envoy, "1", "a");
        let handler = LoadReporting::new(handle.clone());
        let open = async || handler.open(&info, &ClientInfo::default()).await.unwrap();
        handle
            .apply(parse("load_reporting: {interval: 3600s}"))
            .await
            .unwrap();
        let (mut noisy, mut other) = (open().await, open().await);
        for _ in 0..5 {
            // Without clusters it says that the node lives, which costs nothing.
            noisy.reporter.report(&info.node, Vec::new()).await;
            noisy.reporter.report(&info.node, vec![stats("x", 1)]).await;
        }
        let counted = || handle.counters().values();
        assert_eq!(counted()[&("limit_exceeded_total", "report_rate")], 2);
        other.reporter.report(&info.node, vec![stats("x", 1)]).await;
        assert_eq!(counted()[&("limit_exceeded_total", "report_rate")], 2);
        assert_eq!(counted()[&("load_reports_total", "")], 11);
        handle.inspect(|_, _| ()).await.unwrap();
        let ignored = counted()[&("load_reports_ignored_total", "unknown_cluster")];
        assert_eq!(ignored, 4, "those that reached the writer");
    });
}

#[test]
fn events_of_a_stream_are_recorded_and_listed() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(NodeClass::Envoy);
        let mut session = discover(&handle, &a).await;
        let limits = Default::default();
        let stream = plimsoll_xds::ads::server::ServerStream::new(Variant::Delta, limits);
        let subscribed = |type_url: &str, names: &[&str]| StreamEvent::Subscribed {
            type_url: type_url.into(),
            names: names.iter().map(|&name| name.into()).collect(),
        };
        let unsubscribed = |type_url: &str, name: &str| StreamEvent::Unsubscribed {
            type_url: type_url.into(),
            names: vec![name.into()],
        };
        for event in [
            subscribed(CLUSTER_LOAD_ASSIGNMENT, &["orders", "carts"]),
            subscribed(CLUSTER, &["others"]),
            unsubscribed(CLUSTER_LOAD_ASSIGNMENT, "carts"),
            unsubscribed(CLUSTER, "orders"),
        ] {
            session.observer.handle_event(event, &stream);
        }
        let key = (Arc::clone(&a.node.cluster), Arc::clone(&a.node.id));
        let record = handle.records().of_nodes(&[key].into()).remove(0);
        let names: Vec<_> = record.assignments.keys().map(|name| &**name).collect();
        assert_eq!(names, ["orders"], "assignments only");
        let nack = Nack {
            version: "1".into(),
            names: vec!["orders".into()],
            detail: ErrorDetail {
                code: 3,
                message: "why".to_owned(),
            },
        };
        let type_url = CLUSTER.into();
        let rejected = StreamEvent::Nacked { type_url, nack };
        session.observer.handle_event(rejected, &stream);
        let newest = handle.recent().all().remove(0);
        let text = "Envoy-a rejected Cluster and keeps its previous version: why";
        assert_eq!(newest.text, text);
    });
}

#[test]
fn discovery_streams_wait_for_the_services_of_kubernetes() {
    runtime().block_on(async {
        let (writer, handle) = start(parse("{kubernetes: {}, services: []}"));
        tokio::spawn(writer.run());
        let [a, ..] = fleet(NodeClass::Envoy);
        let discovery = Discovery::new(handle.clone());
        let refused = discovery.open(opening(&a)).await.unwrap_err();
        assert_eq!(refused.code(), tonic::Code::Unavailable);
        let reason = "services of Kubernetes have not been listed since the start";
        assert_eq!(refused.message(), reason);
        let orders = Found {
            service: Arc::clone(&config("").services["orders"]),
            object: Some("Service n/orders".into()),
        };
        let changes = ServiceChanges {
            services: [("orders".into(), Some(orders))].into(),
            ..ServiceChanges::none(SourceId::Kubernetes)
        };
        handle.discover(changes).await.unwrap();
        let session = discover(&handle, &a).await;
        let view = Arc::clone(&session.views.borrow());
        assert!(view.get(CLUSTER).unwrap().get("orders").is_some());
    });
}
