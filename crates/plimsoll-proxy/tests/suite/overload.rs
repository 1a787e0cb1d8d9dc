//! Actions of the overload manager, begun by a monitor of memory whose limit any process exceeds.

use http_body_util::BodyExt as _;

use crate::support::backend::Backend;
use crate::support::client::{self, Raw};
use crate::support::{Proxy, config, config_with, counter, route_all_to, wait_until};

const GET: &str = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";

struct Overloaded {
    proxy: Proxy,
    backend: Backend,
}

impl Overloaded {
    async fn start() -> Self {
        let backend = Backend::echo("a").await;
        let proxy = Proxy::start(&config_of(&backend, None)).await;
        Self { proxy, backend }
    }

    /// Waits until this action, and no other, is in force.
    async fn begin(&self, action: &str) {
        let text = config_of(&self.backend, Some(action));
        self.proxy.edit(&text).await;
        self.wait_for_actions(1).await;
    }

    async fn end(&self) {
        self.proxy.edit(&config_of(&self.backend, None)).await;
        self.wait_for_actions(0).await;
    }

    async fn wait_for_actions(&self, active: u64) {
        wait_until("the action begins or ends", || async {
            counter(&self.proxy, "overload.actions_active").await == active
        })
        .await;
    }
}

fn config_of(backend: &Backend, action: Option<&str>) -> String {
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let base = config(&route_all_to("a"), clusters);
    let Some(action) = action else {
        return base;
    };
    format!(
        "overload_manager:\n  refresh_interval: 0.01s\n  resource_monitors:\n  - name: heap\n    \
         typed_config:\n      '@type': type.googleapis.com/envoy.extensions.resource_monitors.\
         fixed_heap.v3.FixedHeapConfig\n      max_heap_size_bytes: 1\n  actions:\n  \
         - name: {action}\n    triggers: [{{name: heap, threshold: {{value: 0.9}}}}]\n{base}"
    )
}

async fn exchange(raw: &mut Raw) -> client::RawResponse {
    raw.send(GET).await;
    raw.response().await
}

#[tokio::test]
async fn requests_are_refused_and_accepted_again() {
    let overloaded = Overloaded::start().await;
    let proxy = &overloaded.proxy;
    let mut raw = Raw::connect(proxy.address()).await;
    assert_eq!(exchange(&mut raw).await.status, 200);
    overloaded
        .begin("envoy.overload_actions.stop_accepting_requests")
        .await;
    let refused = exchange(&mut raw).await;
    assert_eq!((refused.status, &*refused.body), (503, "envoy overloaded"));
    let name = "http.front.downstream_rq_overload_close";
    assert_eq!(counter(proxy, name).await, 1);
    assert_eq!(overloaded.backend.count(), 1);
    overloaded.end().await;
    assert_eq!(exchange(&mut raw).await.status, 200);
    overloaded.proxy.shut_down().await;
}

#[tokio::test]
async fn connections_are_closed_with_their_next_response() {
    let overloaded = Overloaded::start().await;
    let address = overloaded.proxy.address();
    let mut raw = Raw::connect(address).await;
    assert!(!exchange(&mut raw).await.head.contains("connection: close"));
    let mut http2 = client::http2(address).await;
    overloaded
        .begin("envoy.overload_actions.disable_http_keepalive")
        .await;
    assert!(exchange(&mut raw).await.head.contains("connection: close"));
    assert_eq!(raw.rest().await, "");
    let request = http::Request::get("http://h/").body(http_body_util::Empty::new().boxed_unsync());
    let response = client::send_http2(&mut http2, request.unwrap()).await;
    assert_eq!(response.head.status(), 200);
    wait_until("GOAWAY", || async { http2.is_closed() }).await;
    let name = "http.front.downstream_cx_overload_disable_keepalive";
    assert_eq!(counter(&overloaded.proxy, name).await, 2);
    overloaded.proxy.shut_down().await;
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let overloaded = Overloaded::start().await;
    let mut idle = Raw::connect(overloaded.proxy.address()).await;
    assert_eq!(exchange(&mut idle).await.status, 200);
    overloaded
        .begin("plimsoll.overload_actions.close_idle_connections")
        .await;
    assert_eq!(idle.rest().await, "");
    let served = client::get(overloaded.proxy.address(), "/").await;
    assert_eq!(served.status, 200, "others are served");
    overloaded.proxy.shut_down().await;
}

#[tokio::test]
async fn new_connections_wait_or_are_refused() {
    let overloaded = Overloaded::start().await;
    let address = overloaded.proxy.address();
    let mut open = Raw::connect(address).await;
    assert_eq!(exchange(&mut open).await.status, 200);
    overloaded
        .begin("envoy.overload_actions.reject_incoming_connections")
        .await;
    assert_eq!(Raw::connect(address).await.rest().await, "");
    assert_eq!(exchange(&mut open).await.status, 200, "it was open before");
    overloaded.end().await;
    overloaded
        .begin("envoy.overload_actions.stop_accepting_connections")
        .await;
    let total = counter(&overloaded.proxy, "http.front.downstream_cx_total").await;
    let mut waiting = Raw::connect(address).await;
    waiting.send(GET).await;
    assert_eq!(exchange(&mut open).await.status, 200, "it was open before");
    let name = "http.front.downstream_cx_total";
    assert_eq!(counter(&overloaded.proxy, name).await, total);
    overloaded.end().await;
    assert_eq!(waiting.response().await.status, 200);
    overloaded.proxy.shut_down().await;
}

#[tokio::test]
async fn a_connection_ends_after_its_last_request() {
    let backend = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[backend.address], "")];
    let manager = "common_http_protocol_options: {max_requests_per_connection: 2}\n";
    let proxy = Proxy::start(&config_with(manager, &route_all_to("a"), clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    assert!(!exchange(&mut raw).await.head.contains("connection: close"));
    assert!(exchange(&mut raw).await.head.contains("connection: close"));
    assert_eq!(raw.rest().await, "");
    let name = "http.front.downstream_cx_max_requests_reached";
    assert_eq!(counter(&proxy, name).await, 1);
    proxy.shut_down().await;
}
