//! The writer and its streams, without sockets.

use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::BasisPoints;
use plimsoll_xds::ads::message::NodeMessage;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, Variant};
use plimsoll_xds::driver::{AdsHandler, AdsOpening, AdsSession, LrsHandler, LrsReporter};
use plimsoll_xds::lrs::message::{ClusterTraffic, LoadStatsRequest};
use plimsoll_xds::lrs::{LrsTraffic, ServerStream};
use plimsoll_xds::wire::encode_load_stats_response;

use super::handlers::Observer;
use super::*;
use crate::delivery::Class;
use crate::state::tests::driver::{config, fleet, node, parse, stats};
use crate::view::tests::walk;

/// Reached only by a test that fails.
const DEADLINE: Duration = Duration::from_secs(30);

fn opening(info: &NodeInfo) -> AdsOpening {
    AdsOpening {
        node: NodeMessage {
            info: info.clone(),
            raw: Default::default(),
        },
        variant: Variant::Delta,
        peer: None,
        returning: false,
    }
}

async fn discover(handle: &Handle, info: &NodeInfo) -> AdsSession<Observer> {
    let discovery = Discovery::new(handle.clone());
    discovery.open(opening(info)).await.unwrap()
}

/// Lets the writer work until `check` holds.
async fn until(handle: &Handle, check: impl Fn(&State) -> bool + Clone + Send + 'static) {
    let patience = tokio::time::timeout(DEADLINE, async {
        loop {
            let check = check.clone();
            if handle.inspect(move |state, _| check(state)).await.unwrap() {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    patience.await.expect("it comes true");
}

fn members(state: &State) -> usize {
    state.fleets().members("gateway").count()
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

/// Runs `test` beside a writer, and then checks that the writer ends with its last handle.
fn with_writer<F: Future<Output = ()>>(test: impl FnOnce(Handle) -> F) {
    runtime().block_on(async {
        let (writer, handle) = start(config(""));
        let writer = tokio::spawn(writer.run());
        test(handle).await;
        tokio::time::timeout(DEADLINE, writer)
            .await
            .expect("without handles it ends")
            .unwrap();
    });
}

#[test]
fn a_stream_sees_a_whole_world_first() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(Class::Envoy);
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
fn streams_of_one_kind_share_what_they_see() {
    with_writer(|handle| async move {
        let first = discover(&handle, &node(Class::Envoy, "1", "a")).await;
        let second = discover(&handle, &node(Class::Envoy, "2", "a")).await;
        let elsewhere = discover(&handle, &node(Class::Envoy, "3", "b")).await;
        let see = |session: &AdsSession<Observer>| Arc::clone(&session.views.borrow());
        until(&handle, |state| members(state) == 3).await;
        assert!(Arc::ptr_eq(&see(&first), &see(&second)));
        assert!(!Arc::ptr_eq(&see(&first), &see(&elsewhere)));
    });
}

#[test]
fn a_new_configuration_reaches_open_streams() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(Class::Envoy);
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
fn who_leaves_is_counted_once_however_the_stream_ended() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(Class::Envoy);
        let silent = |state: &State| {
            let mut members = state.fleets().members("gateway");
            members.all(|member| member.silent_since.is_some())
        };
        let session = discover(&handle, &a).await;
        let again = discover(&handle, &a).await;
        drop(session);
        until(&handle, |state| members(state) == 1).await;
        assert!(!handle.inspect(move |state, _| silent(state)).await.unwrap());
        drop(again);
        until(&handle, silent).await;
    });
}

#[test]
fn a_stream_that_gives_up_while_it_opens_leaves_nothing_behind() {
    with_writer(|handle| async move {
        let [a, b, _] = fleet(Class::Envoy);
        // The message is on its way, and nobody waits for the answer any more.
        let (reply, answer) = oneshot::channel();
        let open = Message::OpenAds {
            node: Arc::new(a.clone()),
            returning: false,
            reply,
        };
        handle.send(open).await.unwrap();
        drop(answer);
        // The answer has arrived and nobody looks at it.
        let (reply, answer) = oneshot::channel();
        let node = Arc::new(b.clone());
        handle.send(Message::OpenLrs { node, reply }).await.unwrap();
        until(&handle, |state| members(state) == 2).await;
        drop(answer);
        until(&handle, |state| {
            let mut members = state.fleets().members("gateway");
            members.all(|member| member.silent_since.is_some())
        })
        .await;
        let key = ViewKey::of(&a, false);
        until(&handle, move |state| state.view(&key).is_none()).await;
    });
}

#[test]
fn reports_reach_the_planner_and_settings_the_reporters() {
    with_writer(|handle| async move {
        let [a, ..] = fleet(Class::Envoy);
        let reporting = LoadReporting::new(handle.clone());
        let mut session = reporting.open(&a, None).await.unwrap();
        let settings = Arc::clone(&session.instructions.borrow().settings);
        assert_eq!(settings.interval, Duration::from_secs(1));
        let report = vec![stats("orders", 500)];
        session.reporter.report(&a.node, report).await;
        until(&handle, |state| {
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
fn the_load_reporting_response_of_a_stock_receiver_has_no_field_of_ours() {
    with_writer(|handle| async move {
        for class in [Class::Envoy, Class::Grpc, Class::Plimsoll] {
            let [a, ..] = fleet(class);
            let reporting = LoadReporting::new(handle.clone());
            let session = reporting.open(&a, None).await.unwrap();
            let settings = Arc::clone(&session.instructions.borrow().settings);
            let mut stream = ServerStream::new(settings);
            stream.set_traffic(Arc::new(measured()));
            let hello = LoadStatsRequest {
                node: Some(a),
                ..Default::default()
            };
            stream.handle_request(hello).unwrap();
            let response = stream.poll_transmit().expect("the first answer");
            let bytes = encode_load_stats_response(&response);
            assert_eq!(walk::has(&bytes, 5), class == Class::Plimsoll, "{class:?}");
        }
    });
}

fn measured() -> LrsTraffic {
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
fn without_a_writer_everybody_is_told_so() {
    runtime().block_on(async {
        let (writer, handle) = start(config(""));
        drop(writer);
        let [a, ..] = fleet(Class::Envoy);
        let refused = Discovery::new(handle.clone()).open(opening(&a)).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Unavailable);
        let refused = LoadReporting::new(handle.clone()).open(&a, None).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::Unavailable);
        assert_eq!(handle.inspect(|_, _| ()).await, Err(Stopped));
        assert_eq!(handle.apply(config("")).await, Err(Stopped));
    });
}
