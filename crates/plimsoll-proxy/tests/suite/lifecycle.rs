//! A proxy over time: reloads, certificates, draining, restarts, changes of hosts.

use std::sync::Arc;
use std::time::Duration;

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, Raw, send_http2};
use crate::support::load::Load;
use crate::support::tls::{connect as tls, connector};
use crate::support::{Proxy, TIMEOUT, config, config_with, route_all_to, wait_until};
use http::Request;
use http_body_util::BodyExt as _;
use plimsoll_testing::Authority;
use tokio::net::TcpStream;

async fn page(proxy: &Proxy, path: &str) -> String {
    let response = client::get(proxy.admin(), path).await;
    assert_eq!(response.status, 200, "{path}: {response:?}");
    response.body
}

async fn counter(proxy: &Proxy, name: &str) -> u64 {
    let page = page(proxy, "/stats").await;
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_else(|| panic!("no {name} in {page}"))
        .parse()
        .unwrap()
}

#[tokio::test]
async fn valid_edits_are_applied_and_invalid_ones_are_rejected() {
    let (a, b) = (Backend::echo("a").await, Backend::echo("b").await);
    let with = |cluster: &str, hosts: &[_]| config(&route_all_to(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start(&with("one", &[a.address])).await;
    let mut kept = Raw::connect(proxy.address()).await;
    let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
    kept.send(request).await;
    assert!(kept.response().await.body.starts_with("backend: a\n"));
    // Without a signal: the file is polled.
    crate::support::replace(&proxy.file, "static_resources: {listners: []}");
    wait_until("the invalid edit is rejected", || async {
        counter(&proxy, "config.reload_failure").await == 1
    })
    .await;
    let info = page(&proxy, "/server_info").await;
    assert!(
        info.contains("static_resources.listners: unknown field"),
        "{info}"
    );
    kept.send(request).await;
    assert!(
        kept.response().await.body.starts_with("backend: a\n"),
        "the previous configuration stays active"
    );
    proxy.edit(&with("two", &[b.address])).await;
    wait_until("the valid edit is applied", || async {
        counter(&proxy, "config.reload_success").await == 1
    })
    .await;
    // Also on a connection that was open before.
    kept.send(request).await;
    assert!(kept.response().await.body.starts_with("backend: b\n"));
    assert!(!page(&proxy, "/server_info").await.contains("listners"));
    assert!(
        page(&proxy, "/config_dump")
            .await
            .contains("\"cluster\":\"two\"")
    );
    assert!(page(&proxy, "/explain?cluster=two").await.contains("two"));
    wait_until("unused clusters are removed", || async {
        !page(&proxy, "/clusters").await.starts_with("one::")
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn listeners_are_added_and_removed() {
    let a = Backend::echo("a").await;
    let clusters: &[(&str, &[_], &str)] = &[("a", &[a.address], "")];
    let before = config(&route_all_to("a"), clusters);
    let proxy = Proxy::start(&before).await;
    let address = proxy.address();
    proxy
        .edit(&before.replace("name: front", "name: other"))
        .await;
    wait_until("the new listener is active", || async {
        page(&proxy, "/listeners").await.starts_with("other::")
    })
    .await;
    let line = page(&proxy, "/listeners").await;
    let other = line.trim().trim_start_matches("other::").parse().unwrap();
    assert_eq!(client::get(other, "/").await.status, 200);
    wait_until("the old socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    proxy.shut_down().await;
}

/// A configuration whose listener has a fixed address.
fn fixed(address: std::net::SocketAddr, cluster: std::net::SocketAddr) -> String {
    let text = config(&route_all_to("a"), &[("a", &[cluster], "")]);
    let port = format!("port_value: {}}}", address.port());
    let (admin, rest) = text.split_once('\n').unwrap();
    format!("{admin}\n{}", rest.replacen("port_value: 0}", &port, 1))
}

/// P-3: an edit of the address moves the listener, and connections of the old one drain.
#[tokio::test(flavor = "multi_thread")]
async fn a_listener_moves_to_another_address() {
    let a = Backend::echo("a").await;
    let addresses = [
        crate::support::free_address(),
        crate::support::free_address(),
    ];
    let proxy = Proxy::start_with(&fixed(addresses[0], a.address), 2, TIMEOUT).await;
    for round in 1..5 {
        let [from, to] = [addresses[(round + 1) % 2], addresses[round % 2]];
        let mut kept = Raw::connect(from).await;
        let request = "GET / HTTP/1.1\r\nhost: h\r\n\r\n";
        kept.send(request).await;
        assert_eq!(kept.response().await.status, 200);
        proxy.edit(&fixed(to, a.address)).await;
        wait_until("the new address is open", || async {
            TcpStream::connect(to).await.is_ok()
        })
        .await;
        assert_eq!(client::get(to, "/").await.status, 200);
        wait_until("the old address is closed", || async {
            TcpStream::connect(from).await.is_err()
        })
        .await;
        assert_eq!(page(&proxy, "/listeners").await, format!("front::{to}\n"));
        kept.send(request).await;
        let last = kept.response().await;
        assert_eq!(last.status, 200);
        assert!(last.head.contains("connection: close"), "{last:?}");
        assert_eq!(kept.rest().await, "");
    }
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_listeners_exchange_their_addresses() {
    let addresses = [
        crate::support::free_address(),
        crate::support::free_address(),
    ];
    let with = |first: std::net::SocketAddr, second: std::net::SocketAddr| {
        let listener = |name: &str, address: std::net::SocketAddr| {
            format!(
                "{{name: {name}, address: {{socket_address: {{address: 127.0.0.1, \
                 port_value: {}}}}}, filter_chains: [{{filters: [{{typed_config: {{'@type': \
                 type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, \
                 stat_prefix: {name}, route_config: {{virtual_hosts: [{{name: all, domains: ['*'], \
                 routes: [{{match: {{prefix: /}}, direct_response: {{status: 200, body: \
                 {{inline_string: {name}}}}}}}]}}]}}}}}}]}}]}}",
                address.port()
            )
        };
        let admin = "{address: {socket_address: {address: 127.0.0.1, port_value: 0}}}";
        format!(
            "{{admin: {admin}, static_resources: {{listeners: [{}, {}]}}}}",
            listener("one", first),
            listener("two", second)
        )
    };
    let [a, b] = addresses;
    let proxy = Proxy::start_with(&with(a, b), 2, TIMEOUT).await;
    for (first, second) in [(b, a), (a, b), (b, a)] {
        proxy.edit(&with(first, second)).await;
        wait_until("the addresses are exchanged", || async {
            client::get(first, "/").await.body == "one"
                && client::get(second, "/").await.body == "two"
        })
        .await;
    }
    proxy.shut_down().await;
}

/// A renamed listener keeps its sockets, and connections of the old one drain without errors.
#[tokio::test(flavor = "multi_thread")]
async fn names_and_filters_of_a_listener_change_under_load() {
    let a = Backend::echo("a").await;
    let address = crate::support::free_address();
    let text = fixed(address, a.address);
    let proxy = Proxy::start_with(&text, 2, TIMEOUT).await;
    let load = Load::start(address, 4);
    for round in 0..4 {
        let edited = text
            .replace("name: front", &format!("name: front{round}"))
            .replace(
                "stat_prefix: front",
                &format!("stat_prefix: http\n          server_name: s{round}"),
            );
        proxy.edit(&edited).await;
        wait_until("the listener has its new name", || async {
            page(&proxy, "/listeners").await == format!("front{round}::{address}\n")
        })
        .await;
        load.wait_for(50).await;
    }
    assert_eq!(load.stop().await, [""; 0]);
    assert!(counter(&proxy, "http.http.downstream_cx_drain_close").await > 0);
    wait_until("all connections are closed", || async {
        counter(&proxy, "http.http.downstream_cx_active").await == 0
    })
    .await;
    proxy.shut_down().await;
}

#[tokio::test]
async fn tls_negotiates_alpn_and_reloads_certificates() {
    let backend = Backend::echo("a").await;
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let (chain, key) = (
        folder.path().join("chain.pem"),
        folder.path().join("key.pem"),
    );
    let write = |name: &str| {
        let (certificate, secret) = authority.issue(&[name]);
        crate::support::replace(&key, &secret);
        crate::support::replace(&chain, &certificate);
    };
    write("first.test");
    let socket = format!(
        "    - transport_socket:\n        typed_config:\n          '@type': type.googleapis.com/\
         envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext\n          \
         common_tls_context:\n            tls_certificates:\n            \
         - certificate_chain: {{filename: {}}}\n              private_key: {{filename: {}}}\n      \
         filters:\n",
        chain.display(),
        key.display()
    );
    let plain = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&plain.replace("    - filters:\n", &socket)).await;
    let http2_connector = connector(&authority, &["h2"]);
    let stream = tls(&proxy, &http2_connector, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut http2 = client::http2_over(stream).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("https://first.test/x").body(empty).unwrap();
    let response = send_http2(&mut http2, request).await;
    assert!(
        response.body.contains("x-forwarded-proto: https\n"),
        "{response:?}"
    );
    let http1_connector = connector(&authority, &["http/1.1"]);
    let stream = tls(&proxy, &http1_connector, "first.test").await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    write("second.test");
    wait_until("the new certificate is used", || async {
        tls(&proxy, &http1_connector, "second.test").await.is_ok()
    })
    .await;
    // An invalid certificate is rejected and the current one stays in use.
    crate::support::replace(&chain, "nonsense");
    wait_until("the invalid certificate is rejected", || async {
        counter(&proxy, "config.reload_failure").await > 0
    })
    .await;
    assert!(tls(&proxy, &http1_connector, "second.test").await.is_ok());
    proxy.shut_down().await;
}

#[tokio::test]
async fn draining_finishes_active_requests_and_stops_accepting() {
    let release = Arc::new(tokio::sync::Notify::new());
    let released = Arc::clone(&release);
    let backend = Backend::start(move |_| {
        let released = Arc::clone(&released);
        async move {
            released.notified().await;
            reply(200, "late")
        }
    })
    .await;
    let proxy = Proxy::start(&config(
        &route_all_to("a"),
        &[("a", &[backend.address], "")],
    ))
    .await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let mut http2 = client::http2(proxy.address()).await;
    let empty = http_body_util::Empty::new().boxed_unsync();
    let request = Request::get("http://h/").body(empty).unwrap();
    let second = tokio::spawn(async move { send_http2(&mut http2, request).await });
    wait_until("both requests have arrived", || async {
        backend.count() == 2
    })
    .await;
    let address = proxy.address();
    proxy.stop();
    wait_until("the socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    release.notify_one();
    release.notify_one();
    let response = raw.response().await;
    assert_eq!((response.status, response.body.as_str()), (200, "late"));
    assert_eq!(
        raw.rest().await,
        "",
        "the connection is closed after the response"
    );
    assert_eq!(second.await.unwrap().body, "late");
    proxy.shut_down().await;
}

#[tokio::test]
async fn requests_are_aborted_at_the_drain_deadline() {
    let backend = Backend::start(|_| async {
        std::future::pending::<()>().await;
        reply(200, "")
    })
    .await;
    let config = config(&route_all_to("a"), &[("a", &[backend.address], "")]);
    let proxy = Proxy::start_with(&config, 1, Duration::from_millis(200)).await;
    let mut raw = Raw::connect(proxy.address()).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    wait_until("the request has arrived", || async { backend.count() == 1 }).await;
    proxy.shut_down().await;
    assert_eq!(raw.rest().await, "");
}

/// P-7: the same file twice, with fixed addresses of listener and admin interface.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_the_same_file_drops_no_requests() {
    let backend = Backend::echo("a").await;
    let (address, admin) = (
        crate::support::free_address(),
        crate::support::free_address(),
    );
    let text = fixed(address, backend.address).replacen(
        "port_value: 0}",
        &format!("port_value: {}}}", admin.port()),
        1,
    );
    let mut old = Proxy::start_with(&text, 2, TIMEOUT).await;
    let load = Load::start(address, 4);
    for _ in 0..3 {
        load.wait_for(50).await;
        let new = Proxy::start_with(&text, 2, TIMEOUT).await;
        assert_eq!((new.address(), new.admin()), (address, admin));
        load.wait_for(50).await;
        old.stop();
        // The admin address belongs to the new process while the old one drains.
        let mut ready = 0;
        wait_until("only the new process answers", || {
            let last = ready;
            ready += 1;
            async move {
                let response = client::try_get(admin, "/ready").await;
                last > 0 && response.is_some_and(|response| response.body == "LIVE\n")
            }
        })
        .await;
        old.shut_down().await;
        for _ in 0..8 {
            assert_eq!(client::get(admin, "/ready").await.body, "LIVE\n");
        }
        load.wait_for(50).await;
        assert!(counter(&new, "http.front.downstream_rq_total").await > 0);
        old = new;
    }
    assert_eq!(load.stop().await, [""; 0]);
    old.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_epoch_takes_over_from_the_running_process() {
    let backend = Backend::echo("a").await;
    let (address, admin) = (
        crate::support::free_address(),
        crate::support::free_address(),
    );
    let text = fixed(address, backend.address).replacen(
        "port_value: 0}",
        &format!("port_value: {}}}", admin.port()),
        1,
    );
    let mut old = Proxy::start_with(&text, 2, TIMEOUT).await;
    let load = Load::start(address, 4);
    for epoch in 1..4 {
        load.wait_for(50).await;
        let new = Proxy::launch(&text, |options| {
            options.workers = 2;
            options.drain_time = TIMEOUT;
            options.restart_epoch = epoch;
        })
        .await;
        // Nobody tells the old process to stop but the new one.
        old.ended().await;
        wait_until("the new process has the admin address", || async {
            let response = client::try_get(admin, "/server_info").await;
            let expected = format!("\"restart_epoch\":{epoch}");
            response.is_some_and(|response| response.body.contains(&expected))
        })
        .await;
        old = new;
    }
    load.wait_for(50).await;
    assert_eq!(load.stop_without_resets().await, [""; 0]);
    old.shut_down().await;
}

#[tokio::test]
async fn inherited_sockets_are_used() {
    let backend = Backend::echo("a").await;
    let bind = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let sockets = [bind(), bind()];
    let [address, admin] = sockets.each_ref().map(|one| one.local_addr().unwrap());
    for socket in &sockets {
        socket.set_nonblocking(true).unwrap();
    }
    let text = fixed(address, backend.address).replacen(
        "port_value: 0}",
        &format!("port_value: {}}}", admin.port()),
        1,
    );
    let sockets: Arc<[std::net::TcpListener]> = sockets.into();
    for _ in 0..2 {
        let proxy = Proxy::launch(&text, |options| {
            options.workers = 2;
            options.sockets = Arc::clone(&sockets);
        })
        .await;
        assert_eq!(client::get(address, "/").await.status, 200);
        assert_eq!(client::get(admin, "/ready").await.body, "LIVE\n");
        proxy.shut_down().await;
        // The service manager keeps the sockets, so clients of a restart wait in their queues.
        assert!(TcpStream::connect(address).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_hosts_and_routes_cause_no_failures() {
    let backends = [
        Backend::echo("a").await,
        Backend::echo("b").await,
        Backend::echo("c").await,
    ];
    let [a, b, c] = backends.each_ref().map(|backend| backend.address);
    let with = |hosts: &[_], cluster: &str| config(&route_all_to(cluster), &[(cluster, hosts, "")]);
    let proxy = Proxy::start_with(&with(&[a, b, c], "one"), 2, TIMEOUT).await;
    let load = Load::start(proxy.address(), 4);
    for round in 0..12_u64 {
        let hosts: &[_] = match round % 4 {
            0 => &[a],
            1 => &[b, c],
            2 => &[c],
            _ => &[a, b, c],
        };
        let cluster = if round % 3 == 0 { "two" } else { "one" };
        proxy.edit(&with(hosts, cluster)).await;
        wait_until("the edit is applied", || async {
            counter(&proxy, "config.reload_success").await > round
        })
        .await;
        load.wait_for(20).await;
    }
    assert_eq!(load.stop().await, [""; 0]);
    assert_eq!(counter(&proxy, "http.front.downstream_rq_5xx").await, 0);
    proxy.shut_down().await;
}

#[tokio::test]
async fn requests_are_logged_when_they_end() {
    let backend = Backend::echo("a").await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let log = format!(
        "access_log: [{{typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
         access_loggers.file.v3.FileAccessLog, path: {}, log_format: {{json_format: \
         {{code: '%RESPONSE_CODE%', flags: '%RESPONSE_FLAGS%', in: '%BYTES_RECEIVED%', \
         out: '%BYTES_SENT%', cluster: '%UPSTREAM_CLUSTER%', host: '%UPSTREAM_HOST%', \
         peer: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%', protocol: '%PROTOCOL%', \
         route: '%ROUTE_NAME%', type: '%RESP(CONTENT-TYPE)%', path: '%REQ(:PATH)%'}}}}}}}}]",
        path.display()
    );
    let routes = "- name: first\n  match: {prefix: /a}\n  route: {cluster: a}\n\
                  - match: {prefix: /b}\n  route: {cluster: b}\n\
                  - match: {prefix: /slow}\n  route: {cluster: slow}\n";
    let slow = Backend::start(|_| std::future::pending()).await;
    let clusters: &[(&str, &[_], &str)] =
        &[("a", &[backend.address], ""), ("slow", &[slow.address], "")];
    let proxy = Proxy::start(&config_with(&log, routes, clusters)).await;
    let post = "POST /a HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\nabc";
    let echo = client::send(proxy.address(), post).await;
    let no_cluster = client::get(proxy.address(), "/b").await;
    let old = "GET /c HTTP/1.0\r\nhost: h\r\n\r\n";
    client::send(proxy.address(), old).await;
    let mut gone = Raw::connect(proxy.address()).await;
    gone.send("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    wait_until("the request has arrived", || async { slow.count() == 1 }).await;
    drop(gone);
    let read = || std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("four lines", || async { read().lines().count() == 4 }).await;
    let line = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let lines: Vec<_> = read().lines().map(line).collect();
    let (echoed, replied) = (echo.body.len(), no_cluster.body.len());
    assert!(echoed > 3, "{echo:?}");
    let expected = [
        serde_json::json!({
            "code": 200, "flags": null, "in": 3, "out": echoed, "cluster": "a",
            "host": backend.address.to_string(), "peer": "127.0.0.1", "protocol": "HTTP/1.1",
            "route": "first", "type": null, "path": "/a",
        }),
        serde_json::json!({
            "code": 503, "flags": "NC", "in": 0, "out": replied, "cluster": "b", "host": null,
            "peer": "127.0.0.1", "protocol": "HTTP/1.1", "route": null,
            "type": (replied > 0).then_some("text/plain"), "path": "/b",
        }),
        serde_json::json!({
            "code": 404, "flags": "NR", "in": 0, "out": 0, "cluster": null, "host": null,
            "peer": "127.0.0.1", "protocol": "HTTP/1.0", "route": null, "type": null, "path": "/c",
        }),
        serde_json::json!({
            "code": 0, "flags": "DC", "in": 0, "out": 0, "cluster": "slow", "host": null,
            "peer": "127.0.0.1", "protocol": "HTTP/1.1", "route": null, "type": null,
            "path": "/slow",
        }),
    ];
    assert_eq!(lines, expected);
    proxy.shut_down().await;
}

/// P-15: a full disk does not end the access log, and a rotated file is opened again.
#[tokio::test]
async fn access_logs_survive_a_full_disk_and_rotation() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let log = format!(
        "access_log: [{{typed_config: {{'@type': type.googleapis.com/envoy.extensions.\
         access_loggers.file.v3.FileAccessLog, path: {}, log_format: {{text_format_source: \
         {{inline_string: \"%REQ(:PATH)%\\n\"}}}}}}}}]",
        path.display()
    );
    let routes = "- match: {prefix: /}\n  direct_response: {status: 200}\n";
    let proxy = Proxy::start(&config_with(&log, routes, &[])).await;
    client::get(proxy.address(), "/full").await;
    wait_until("the write fails", || async {
        counter(&proxy, "access_log_file.write_failed").await > 0
    })
    .await;
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap_or_default();
    std::fs::remove_file(&path).unwrap();
    let reopen = "POST /reopen_logs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), reopen).await.status, 200);
    wait_until("the line is written", || async { read(&path) == "/full\n" }).await;
    let rotated = folder.path().join("access.log.1");
    std::fs::rename(&path, &rotated).unwrap();
    proxy.context.reopen_logs();
    client::get(proxy.address(), "/rotated").await;
    wait_until("the new file is written", || async {
        read(&path) == "/rotated\n"
    })
    .await;
    assert_eq!(read(&rotated), "/full\n");
    assert_eq!(counter(&proxy, "access_log_file.write_dropped").await, 0);
    proxy.shut_down().await;
}

#[tokio::test]
async fn cluster_statistics_are_in_both_formats() {
    let backend = Backend::echo("a").await;
    let hosts = [backend.address];
    let proxy = Proxy::start(&config(&route_all_to("orders"), &[("orders", &hosts, "")])).await;
    client::get(proxy.address(), "/").await;
    let name = "cluster.orders.upstream_rq_total";
    wait_until("the request is counted", || async {
        counter(&proxy, name).await == 1
    })
    .await;
    let metrics = page(&proxy, "/stats/prometheus").await;
    let line = "plimsoll_cluster_upstream_rq_total{cluster=\"orders\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    assert!(!metrics.contains("# EOF"), "{metrics}");
    proxy.shut_down().await;
}

#[tokio::test]
async fn the_admin_interface_is_compatible_with_envoy() {
    let proxy = Proxy::start(&config(
        "- match: {prefix: /}\n  direct_response: {status: 200}\n",
        &[],
    ))
    .await;
    client::get(proxy.address(), "/").await;
    assert_eq!(page(&proxy, "/ready").await, "LIVE\n");
    assert!(
        page(&proxy, "/server_info")
            .await
            .contains("\"state\":\"LIVE\"")
    );
    assert_eq!(counter(&proxy, "http.front.downstream_rq_2xx").await, 1);
    let metrics = page(&proxy, "/stats/prometheus").await;
    let line = "plimsoll_http_downstream_rq_2xx{plimsoll_http_conn_manager_prefix=\"front\"} 1\n";
    assert!(metrics.contains(line), "{metrics}");
    let post = |path: &str| format!("POST {path} HTTP/1.1\r\nhost: h\r\n\r\n");
    let logging = client::send(proxy.admin(), &post("/logging?level=debug")).await;
    assert_eq!(logging.status, 501);
    // Requests that a browser sends on behalf of other sites are rejected.
    let quit =
        "POST /quitquitquit HTTP/1.1\r\nhost: localhost\r\norigin: http://evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), quit).await.status, 403);
    let rebound = "GET /config_dump HTTP/1.1\r\nhost: rebound.evil.example\r\n\r\n";
    assert_eq!(client::send(proxy.admin(), rebound).await.status, 403);
    assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    let quit = client::send(proxy.admin(), &post("/quitquitquit")).await;
    assert_eq!((quit.status, quit.body.as_str()), (200, "OK\n"));
    let address = proxy.address();
    wait_until("the socket is closed", || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
    proxy.shut_down().await;
}
