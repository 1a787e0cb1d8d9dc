//! Mirrored requests: what copies contain, and that they never affect the request.

use std::sync::{Arc, Mutex};

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, Raw};
use crate::support::{HTTP2, Proxy, config, counter, route_all_to, wait_until};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use plimsoll_proxy::config::ProxyConfig;

type Seen = Arc<Mutex<Vec<String>>>;

/// A backend that records requests: method, path, headers and body.
async fn recorder() -> (Backend, Seen) {
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    let backend = Backend::start(move |request| {
        let record = Arc::clone(&record);
        async move {
            let (head, body) = request.into_parts();
            let mut text = format!("{} {}\n", head.method, head.uri.path());
            for (name, value) in &head.headers {
                text.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
            }
            let collected = body.collect().await;
            let end = match collected {
                Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
                Err(_) => "cut off".to_owned(),
            };
            text.push_str(&format!("\n{end}"));
            record.lock().unwrap().push(text);
            reply(200, "ok")
        }
    })
    .await;
    (backend, seen)
}

async fn recorded(seen: &Seen, count: usize) -> Vec<String> {
    wait_until("the copies arrive", || async {
        seen.lock().unwrap().len() >= count
    })
    .await;
    std::mem::take(&mut *seen.lock().unwrap())
}

fn mirrored(policy: &str) -> String {
    format!(
        "- {{match: {{prefix: /}}, route: {{cluster: a, request_mirror_policies: [{{{policy}}}]}}}}"
    )
}

async fn send(proxy: &Proxy, text: &str) {
    let response = client::send(proxy.address(), text).await;
    assert_eq!(response.status, 200, "{response:?}");
}

#[tokio::test]
async fn copies_have_the_headers_and_body_of_the_request() {
    let (main, mirror) = (Backend::echo("a").await, recorder().await);
    for more in ["", HTTP2] {
        let routes = "- {match: {path: /rw}, route: {cluster: a, prefix_rewrite: /new, \
                      host_rewrite_literal: other, request_mirror_policies: [{cluster: m}]}}\n"
            .to_owned()
            + &mirrored("cluster: m");
        let clusters = [
            ("a", &[main.address][..], ""),
            ("m", &[mirror.0.address], more),
        ];
        let proxy = Proxy::start(&config(&routes, &clusters)).await;
        send(
            &proxy,
            "POST /x HTTP/1.1\r\nhost: h.com:88\r\nx-a: 1\r\ncontent-length: 4\r\n\r\nbody",
        )
        .await;
        send(&proxy, "GET /rw HTTP/1.1\r\nhost: h\r\n\r\n").await;
        send(
            &proxy,
            "POST /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n\
             3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
        )
        .await;
        let mut seen = recorded(&mirror.1, 3).await;
        seen.sort();
        let [get, chunked, post] = &seen[..] else {
            panic!("{seen:?}");
        };
        assert!(get.starts_with("GET /new\n"), "{get}");
        assert!(
            chunked.starts_with("POST /c\n") && chunked.ends_with("\n\nabcde"),
            "{chunked}"
        );
        assert!(
            post.starts_with("POST /x\n") && post.ends_with("\n\nbody"),
            "{post}"
        );
        assert!(
            post.contains("x-a: 1\n") && post.contains("x-envoy-internal: true\n"),
            "{post}"
        );
        if more.is_empty() {
            assert!(post.contains("\nhost: h.com-shadow:88\n"), "{post}");
            assert!(get.contains("\nhost: other-shadow\n"), "{get}");
        }
        assert_eq!(counter(&proxy, "http.front.rq_mirrored").await, 3);
        wait_until("the copies count in their cluster", || async {
            counter(&proxy, "cluster.m.upstream_rq_total").await == 3
        })
        .await;
        proxy.shut_down().await;
    }
}

#[tokio::test]
async fn policies_decide_which_requests_are_copied_and_under_which_host() {
    let (main, mirror) = (Backend::echo("a").await, recorder().await);
    let route = |path: &str, policies: &str| {
        format!(
            "- {{match: {{path: {path}}}, route: {{cluster: a, request_mirror_policies: \
             [{policies}]}}}}\n"
        )
    };
    let none = "runtime_fraction: {default_value: {numerator: 0}}";
    let routes = [
        route("/none", &format!("{{cluster: m, {none}}}")),
        route(
            "/same",
            "{cluster: m, disable_shadow_host_suffix_append: true}",
        ),
        route("/header", "{cluster_header: x-m}"),
        route("/twice", "{cluster: m}, {cluster: m}"),
        "- {match: {path: /direct}, direct_response: {status: 200}}\n".to_owned(),
        route_all_to("a"),
    ]
    .concat();
    let clusters = [
        ("a", &[main.address][..], ""),
        ("m", &[mirror.0.address], ""),
    ];
    // The virtual host's policies apply to routes without their own.
    let host = "domains: ['*']\n              request_mirror_policies: [{cluster: m}]\n";
    let text = config(&routes, &clusters).replacen("domains: ['*']\n", host, 1);
    let outer = "            request_mirror_policies: [{cluster: unknown}]\n            \
                 virtual_hosts:\n";
    let text = text.replacen("            virtual_hosts:\n", outer, 1);
    let proxy = Proxy::start(&text).await;
    for (path, header, copies) in [
        ("/none", "x: y", 0),
        ("/same", "x: y", 1),
        ("/header", "x-m: m", 1),
        ("/header", "x: y", 0),
        ("/header", "x-m: unknown", 0),
        ("/twice", "x: y", 2),
        ("/direct", "x: y", 0),
        ("/x", "x: y", 1),
    ] {
        let text = format!("GET {path} HTTP/1.1\r\nhost: h\r\n{header}\r\n\r\n");
        send(&proxy, &text).await;
        // Copies of later requests cannot overtake: wait for these before the next request.
        let seen = recorded(&mirror.1, copies).await;
        assert_eq!(seen.len(), copies, "{path} {seen:?}");
        let expected = if path == "/same" { "h" } else { "h-shadow" };
        for copy in seen {
            assert!(copy.contains(&format!("\nhost: {expected}\n")), "{copy}");
        }
    }
    let copied = "cluster.m.upstream_rq_total";
    assert_eq!(counter(&proxy, copied).await, 5);
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_mirror_that_fails_or_hangs_does_not_affect_the_request() {
    let main = Backend::echo("a").await;
    let hanging = Backend::start(|_| std::future::pending()).await;
    let clusters = [
        ("a", &[main.address][..], ""),
        ("hanging", &[hanging.address], ""),
        ("dead", &[crate::support::free_address()], ""),
        (
            "full",
            &[hanging.address],
            "circuit_breakers: {thresholds: [{max_requests: 1}]}\n",
        ),
    ];
    let policies = "cluster: hanging}, {cluster: dead}, {cluster: unknown}, {cluster: full";
    let proxy = Proxy::start(&config(&mirrored(policies), &clusters)).await;
    for _ in 0..3 {
        send(
            &proxy,
            "POST /x HTTP/1.1\r\nhost: h\r\ncontent-length: 4\r\n\r\nbody",
        )
        .await;
    }
    wait_until("copies wait for the hanging cluster", || async {
        counter(&proxy, "cluster.hanging.upstream_rq_active").await == 3
    })
    .await;
    assert_eq!(counter(&proxy, "cluster.full.upstream_rq_active").await, 1);
    assert_eq!(counter(&proxy, "http.front.downstream_rq_5xx").await, 0);
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_mirror_that_lags_behind_is_aborted() {
    let main = Backend::echo("a").await;
    // Does not read the body, so that the sockets fill up and then the queue of the proxy.
    let stuck = Backend::start(|request| async {
        let _request = request;
        std::future::pending().await
    })
    .await;
    let clusters = [
        ("a", &[main.address][..], ""),
        ("m", &[stuck.address], HTTP2),
    ];
    let proxy = Proxy::start(&config(&mirrored("cluster: m"), &clusters)).await;
    let size = 8 << 20;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send(format!(
        "POST / HTTP/1.1\r\nhost: h\r\ncontent-length: {size}\r\n\r\n"
    ))
    .await;
    raw.send(Bytes::from(vec![b'x'; size])).await;
    let response = raw.response().await;
    assert_eq!(response.status, 200);
    assert!(response.body.len() > size);
    assert_eq!(counter(&proxy, "http.front.rq_mirror_aborted").await, 1);
    proxy.shut_down().await;
}

#[tokio::test]
async fn a_request_that_is_cut_off_cuts_off_its_copy() {
    let main = Backend::echo("a").await;
    let mirror = recorder().await;
    let clusters = [
        ("a", &[main.address][..], ""),
        ("m", &[mirror.0.address], ""),
    ];
    let proxy = Proxy::start(&config(&mirrored("cluster: m"), &clusters)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nhalf")
        .await;
    wait_until("the copy has begun", || async { mirror.0.count() == 1 }).await;
    drop(raw);
    let seen = recorded(&mirror.1, 1).await;
    assert!(seen[0].ends_with("\n\ncut off"), "{seen:?}");
    proxy.shut_down().await;
}

#[test]
fn mirror_policies_are_checked() {
    for (policy, expected) in [
        ("", "must have cluster or cluster_header"),
        (
            "cluster: a, cluster_header: b",
            "cluster_header: cannot be combined with cluster",
        ),
        (
            "cluster_header: 'a b'",
            "request_mirror_policies[0].cluster_header: ",
        ),
        (
            "cluster: a, trace_sampled: true",
            "request_mirror_policies[0].trace_sampled: is not supported",
        ),
    ] {
        let parsed = ProxyConfig::parse(&config(&mirrored(policy), &[("a", &[], "")]));
        let error = parsed.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}
