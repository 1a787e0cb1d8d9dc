//! Tests of limits of streams, requests, log lines and the queue of the writer.

use plimsoll_xds::ads::client::{Client, ClientSettings};
use plimsoll_xds::driver::ads_client::{self, AdsClientChannels, AdsCommand};
use plimsoll_xds::driver::lrs_client::{self, LrsClientChannels};
use plimsoll_xds::driver::{ConnectOptions, ServerOptions, serve};
use plimsoll_xds::wire;

use super::*;

#[test]
fn relayed_streams_are_limited() {
    runtime().block_on(async {
        let relay = "relay: {address: '127.0.0.1:1', max_connections: 1}";
        let (writer, handle) = start(parse(relay));
        tokio::spawn(writer.run());
        let [a, b, _] = fleet(NodeClass::Envoy);
        let session = discover(&handle, &a).await;
        let refused = Discovery::new(handle.clone()).open(opening(&b)).await;
        assert_eq!(refused.unwrap_err().code(), tonic::Code::ResourceExhausted);
        let counted = handle.counters().values();
        assert_eq!(counted[&("relay_streams_refused_total", "")], 1);
        assert_eq!(handle.upstreams().status().streams, 1);
        drop(session);
        wait_until(&handle, {
            let upstreams = Arc::clone(handle.upstreams());
            move |_| upstreams.status().streams == 0
        })
        .await;
        discover(&handle, &b).await;
    });
}

#[test]
fn messages_that_wait_for_the_writer_are_counted() {
    runtime().block_on(async {
        let (_writer, handle) = start(config(""));
        assert_eq!(
            (handle.queued(), handle.queue_capacity()),
            (0, QUEUE_CAPACITY)
        );
        for _ in 0..2 {
            handle.apply(config("")).await.unwrap();
        }
        assert_eq!(handle.queued(), 2);
    });
}

#[cfg(feature = "etcd")]
#[test]
fn frequent_log_lines_are_limited_and_counted() {
    let (_writer, handle) = start(config(""));
    for _ in 0..10 {
        assert_eq!(handle.admit("store", Instant::ORIGIN), Some(0));
    }
    for _ in 0..2 {
        assert_eq!(handle.admit("store", Instant::ORIGIN), None);
    }
    assert_eq!(handle.admit("store", Instant::from_secs(10)), Some(2));
}

/// Waits until a limit of requests was exceeded.
async fn wait_for_refusal(handle: &Handle, limit: &'static str) {
    let counters = handle.counters().clone();
    let key = ("limit_exceeded_total", limit);
    let exceeded = move |_: &State| counters.values().contains_key(&key);
    wait_until(handle, exceeded).await;
}

#[test]
fn requests_beyond_a_limit_are_counted_and_listed() {
    with_writer(|handle| async move {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let discovery = Discovery::new(handle.clone());
        let reporting = LoadReporting::new(handle.clone());
        let options = ServerOptions::default();
        let forever = std::future::pending();
        let server = tokio::spawn(serve(listener, discovery, reporting, options, forever));
        let options = ConnectOptions::new(format!("http://{address}"));

        let info = node(NodeClass::Envoy, &"x".repeat(1000), "a");
        let raw = wire::encode_node(&info);
        let message = NodeMessage { info, raw };
        let settings = ClientSettings::default();
        let client = Client::new(Variant::Sotw, message, wire::resource_name, settings);
        let (events, _events) = mpsc::channel(16);
        let (subscriptions, commands) = mpsc::channel(16);
        let (type_url, name) = (CLUSTER.into(), "*".into());
        let subscribe = AdsCommand::Subscribe { type_url, name };
        subscriptions.send(subscribe).await.unwrap();
        let channels = AdsClientChannels { events, commands };
        let undecoded = ads_client::pass_through;
        let ads = tokio::spawn(ads_client::run(
            options.clone(),
            client,
            undecoded,
            channels,
        ));
        wait_for_refusal(&handle, "node_string_bytes").await;

        let mut info = node(NodeClass::Envoy, "2", "a");
        info.client_features = (0..100).map(|number| number.to_string()).collect();
        let (events, _events) = mpsc::channel(16);
        let (_stats, stats) = mpsc::channel(16);
        let client = plimsoll_xds::lrs::Client::new(info);
        let channels = LrsClientChannels {
            events,
            stats,
            end: None,
        };
        let lrs = tokio::spawn(lrs_client::run(options, client, channels));
        wait_for_refusal(&handle, "client_features").await;
        let listed = handle.recent().all();
        let refused = listed
            .iter()
            .filter(|event| event.text.starts_with("request of 127.0.0.1:"));
        assert!(refused.count() >= 2, "{listed:?}");
        for task in [ads, lrs] {
            task.abort();
            assert!(task.await.unwrap_err().is_cancelled());
        }
        server.abort();
        assert!(server.await.is_err());
    });
}
