//! Discovery in both variants.

use super::*;
use crate::ads;
use crate::ads::message::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use crate::ads::view::{Resource, TypeResources};
use crate::wire;

pub(super) fn node_message(id: &str) -> NodeMessage {
    let info = node(id, &[]);
    NodeMessage {
        raw: wire::encode_node(&info),
        info,
    }
}

/// View with one cluster of `size` bytes, filled with its generation.
fn view(generation: u8, size: usize) -> Arc<View> {
    let body = Bytes::from(vec![generation; size]);
    let clusters = TypeResources::new([Resource::new("orders", body)]);
    Arc::new(View::new(generation.into()).with(ads::CLUSTER, Arc::new(clusters)))
}

fn request(node: Option<NodeMessage>, answers: Option<&DiscoveryResponse>) -> Vec<u8> {
    let mut request = DiscoveryRequest {
        node,
        type_url: ads::CLUSTER.into(),
        ..Default::default()
    };
    if let Some(response) = answers {
        request.version_info.clone_from(&response.version_info);
        request.response_nonce.clone_from(&response.nonce);
    }
    wire::encode_discovery_request(&request)
}

async fn receive(peer: &mut Peer) -> DiscoveryResponse {
    wire::decode_discovery_response(peer.receive().await).unwrap()
}

fn generation(response: &DiscoveryResponse) -> u8 {
    response.resources[0].value[0]
}

fn is_ack(seen: Event) -> Option<()> {
    matches!(seen, Event::Ads(StreamEvent::Acked { .. })).then_some(())
}

#[tokio::test]
async fn sotw_follows_the_view() {
    let mut server = Server::start().await;
    server.control.views.send_replace(view(1, 8));
    let mut peer = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    peer.send(request(Some(node_message("n1")), None)).await;
    let opened = Event::AdsOpened("n1".into(), Variant::Sotw);
    assert_eq!(server.seen().await, opened);
    for next in 2..5 {
        let response = receive(&mut peer).await;
        assert_eq!(generation(&response), next - 1);
        peer.send(request(Some(node_message("n1")), Some(&response)))
            .await;
        server.find(is_ack).await;
        server.control.views.send_replace(view(next, 8));
    }
    drop(peer);
    let closed = |seen| (seen == Event::AdsClosed("n1".into())).then_some(());
    server.find(closed).await;
}

#[tokio::test]
async fn incremental_discovery_sends_changes_and_removals() {
    let mut server = Server::start().await;
    server.control.views.send_replace(view(1, 8));
    let mut peer = server.dial(DELTA_AGGREGATED_RESOURCES).await;
    let mut request = DeltaDiscoveryRequest {
        node: Some(node_message("n1")),
        type_url: ads::CLUSTER.into(),
        ..Default::default()
    };
    peer.send(wire::encode_delta_discovery_request(&request))
        .await;
    let opened = Event::AdsOpened("n1".into(), Variant::Delta);
    assert_eq!(server.seen().await, opened);
    let read = wire::decode_delta_discovery_response;
    let response: DeltaDiscoveryResponse = read(peer.receive().await).unwrap();
    assert_eq!(&*response.resources[0].name, "orders");
    request.node = None;
    request.response_nonce = response.nonce;
    peer.send(wire::encode_delta_discovery_request(&request))
        .await;
    let empty = Arc::new(TypeResources::new([]));
    let gone = View::new(2).with(ads::CLUSTER, empty);
    server.control.views.send_replace(Arc::new(gone));
    let response = read(peer.receive().await).unwrap();
    assert_eq!(response.removed_resources, ["orders".into()]);
}

#[tokio::test]
async fn the_handler_may_reject_a_node() {
    let server = Server::start().await;
    let mut peer = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    peer.send(request(Some(node_message("unknown")), None))
        .await;
    assert_eq!(peer.status().await.code(), Code::PermissionDenied);
}

/// Other clients on the same connection and on others are not affected.
#[tokio::test]
async fn a_slow_client_delays_no_others_and_skips_to_the_newest_view() {
    const SIZE: usize = 1 << 20;
    const LAST: u8 = 20;
    let mut server = Server::start().await;
    server.control.views.send_replace(view(1, SIZE));
    let mut slow = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    slow.send(request(Some(node_message("slow")), None)).await;
    let mut fast = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    fast.send(request(Some(node_message("fast")), None)).await;
    let opened = |seen| matches!(seen, Event::AdsOpened(..)).then_some(());
    server.find(opened).await;
    server.find(opened).await;
    for next in 1..=LAST {
        server.control.views.send_replace(view(next, SIZE));
        let response = loop {
            let response = receive(&mut fast).await;
            fast.send(request(None, Some(&response))).await;
            if generation(&response) == next {
                break response;
            }
        };
        assert_eq!(response.resources[0].value.len(), SIZE);
    }
    let first = receive(&mut slow).await;
    assert!(generation(&first) < LAST);
    slow.send(request(None, Some(&first))).await;
    assert_eq!(generation(&receive(&mut slow).await), LAST);
}

#[tokio::test]
async fn streams_end_when_the_view_sender_is_dropped() {
    let server = Server::start().await;
    let mut peer = server.dial(STREAM_AGGREGATED_RESOURCES).await;
    peer.send(request(Some(node_message("orphan")), None)).await;
    assert_eq!(peer.status().await.code(), Code::Unavailable);
}

#[tokio::test]
async fn subscriptions_beyond_a_limit_end_their_stream_and_are_told_to_the_handler() {
    let mut options = ServerOptions::default();
    options.ads.types = 1;
    options.ads.subscription_bytes = 300;
    options.subscription_bytes = 250;
    let mut server = Server::start_with(options, "127.0.0.1:0").await;
    server.control.views.send_replace(view(1, 8));
    let subscribe = |type_url: &str, names: &[&str]| {
        wire::encode_discovery_request(&DiscoveryRequest {
            node: Some(node_message("n1")),
            type_url: type_url.into(),
            resource_names: names.iter().map(|&name| name.into()).collect(),
            ..Default::default()
        })
    };
    let cases = [
        (
            subscribe(ads::LISTENER, &["a"]),
            "types",
            "more than 1 types on one stream",
        ),
        (
            subscribe(ads::CLUSTER, &["orders", "a", "b", "c"]),
            "subscription_bytes",
            "subscribed names of all streams: more than 250 bytes",
        ),
        (
            subscribe(ads::CLUSTER, &["a", "b", "c", "d"]),
            "subscription_bytes",
            "subscribed names: more than 300 bytes",
        ),
    ];
    for (beyond, limit, reason) in cases {
        let mut peer = server.dial(STREAM_AGGREGATED_RESOURCES).await;
        peer.send(subscribe(ads::CLUSTER, &["orders", "a"])).await;
        assert_eq!(generation(&receive(&mut peer).await), 1);
        peer.send(beyond).await;
        let status = peer.status().await;
        assert_eq!(status.code(), Code::ResourceExhausted);
        let told = |seen| match seen {
            Event::Refused(limit, reason) => Some((limit, reason)),
            _ => None,
        };
        assert_eq!(
            server.find(told).await,
            (limit, status.message().to_owned())
        );
        let message = status.message().replace(" without resources", "");
        assert!(message.starts_with(reason), "{message}");
    }
}
