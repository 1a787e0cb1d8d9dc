//! Listeners of a management server (LDS): updates, warming, NACKs, removal, certificates.

use std::net::SocketAddr;

use crate::support::ads::{VARIANTS, upstream};
use crate::support::backend::Backend;
use crate::support::chains;
use crate::support::client::{Raw, get, try_get};
use crate::support::load::Load;
use crate::support::management::Management;
use crate::support::resources::{Made, routed, routes};
use crate::support::tls::connector;
use crate::support::{Proxy, TIMEOUT, free_address, wait_until};
use bytes::Bytes;
use plimsoll_testing::Authority;
use plimsoll_xds::ads::LISTENER;
use plimsoll_xds::pb::listener::ListenerMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::encode_http_listener;
use plimsoll_xds::yaml::Document;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A proxy without listeners in its file.
fn config(server: SocketAddr, variant: &str) -> String {
    crate::support::ads::bootstrap(server, variant, crate::support::ads::LDS, &[])
}

fn listener(name: &str, address: SocketAddr, route_config: &str) -> Made {
    let body = encode_http_listener(name, address, route_config, name);
    (LISTENER, name.to_owned(), body)
}

/// A listener that is written in YAML as in a file.
fn written(name: &str, text: &str) -> Made {
    let document = Document::parse(text).unwrap();
    let message: FileMessage<ListenerMessage> = document.read().unwrap();
    let body = Bytes::copy_from_slice(message.bytes());
    (LISTENER, name.to_owned(), body)
}

/// A listener with a field that the proxy does not support: `transparent`, number 10.
fn unsupported(name: &str, address: SocketAddr) -> Made {
    let (kind, name, body) = listener(name, address, "r");
    (kind, name, Bytes::from([&body[..], &[0x52, 0]].concat()))
}

async fn answers(address: SocketAddr, backend: &str) -> bool {
    let response = try_get(address, "/").await;
    let expected = format!("backend: {backend}\n");
    response.is_some_and(|response| response.status == 200 && response.body.contains(&expected))
}

async fn answered_by(address: SocketAddr, backend: &str) {
    wait_until(&format!("{backend} answers at {address}"), || {
        answers(address, backend)
    })
    .await;
}

async fn closed(address: SocketAddr) {
    wait_until(&format!("{address} is closed"), || async {
        TcpStream::connect(address).await.is_err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_come_change_and_go() {
    let backend = Backend::echo("one").await;
    let one = upstream("c1", &backend);
    for variant in VARIANTS {
        let [first, second] = [free_address(), free_address()];
        let with = |listeners: &[Made]| {
            let routes = [routes("r", "c1")];
            [listeners, one.as_slice(), &routes].concat()
        };
        let server = Management::start(&with(&[listener("l1", first, "r")]));
        let proxy = Proxy::start_with(&config(server.address, variant), 2, TIMEOUT).await;
        // The proxy is live with all that the listener needs.
        assert!(answers(first, "one").await, "{variant}");
        let listeners = get(proxy.admin(), "/listeners").await.body;
        assert_eq!(listeners, format!("l1::{first}\n"));

        server.set(&with(&[
            listener("l1", first, "r"),
            listener("l2", second, "r"),
        ]));
        answered_by(second, "one").await;
        let dump = get(proxy.admin(), "/config_dump?resource=dynamic_listeners").await;
        let dump: serde_json::Value = serde_json::from_str(&dump.body).unwrap();
        assert_eq!(dump["configs"][1]["name"], "l2");
        let active = &dump["configs"][1]["active_state"]["listener"];
        assert_eq!(active["name"], "l2", "{dump}");

        let mut kept = Raw::connect(first).await;
        kept.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        assert_eq!(kept.response().await.status, 200);
        server.set(&with(&[listener("l2", second, "r")]));
        closed(first).await;
        kept.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
        let last = kept.response().await;
        assert!(last.head.contains("connection: close"), "{last:?}");

        // The name stays and the address changes.
        server.set(&with(&[listener("l2", first, "r")]));
        answered_by(first, "one").await;
        closed(second).await;
        assert_eq!(server.rejections(), [""; 0], "{variant}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_listeners_are_nacked_by_name_and_the_old_ones_stay() {
    let backend = Backend::echo("one").await;
    let one = upstream("c1", &backend);
    for variant in VARIANTS {
        let [good, bad] = [free_address(), free_address()];
        let with = |listeners: &[Made]| {
            let routes = [routes("r", "c1")];
            [listeners, one.as_slice(), &routes].concat()
        };
        let server = Management::start(&with(&[
            listener("good", good, "r"),
            listener("bad", bad, "r"),
        ]));
        let proxy = Proxy::start(&config(server.address, variant)).await;
        answered_by(bad, "one").await;
        let load = Load::start(bad, 2);
        let moved = free_address();
        server.set(&with(&[
            listener("good", moved, "r"),
            unsupported("bad", free_address()),
        ]));
        // A valid listener of the same response is used.
        answered_by(moved, "one").await;
        wait_until("the listener is rejected", || async {
            !server.rejections().is_empty()
        })
        .await;
        let refusal = server.rejections()[0].clone();
        assert!(
            refusal.contains("bad: transparent: is not supported"),
            "{refusal}"
        );
        assert!(!refusal.contains("good"), "{refusal}");
        load.wait_for(20).await;
        assert_eq!(load.stop().await, [""; 0], "{variant}");
        let listeners = get(proxy.admin(), "/listeners").await.body;
        assert!(listeners.contains(&format!("bad::{bad}\n")), "{listeners}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_wait_for_their_routes() {
    let backends = [Backend::echo("one").await, Backend::echo("two").await];
    let clusters = [upstream("c1", &backends[0]), upstream("c2", &backends[1])].concat();
    for variant in VARIANTS {
        let address = free_address();
        let with = |own: &[Made]| [own, clusters.as_slice()].concat();
        let server = Management::start(&with(&[listener("l", address, "r1")]));
        let proxy = Proxy::launch(&config(server.address, variant), |_| ()).await;
        wait_until("the routes are awaited", || async {
            let ready = get(proxy.admin(), "/ready").await;
            ready.body == "INITIALIZING\nawaiting route configuration r1\n"
        })
        .await;
        assert!(TcpStream::connect(address).await.is_err());
        server.set(&with(&[listener("l", address, "r1"), routes("r1", "c1")]));
        answered_by(address, "one").await;
        answered_by(address, "one").await;
        let load = Load::start(address, 4);
        load.wait_for(20).await;
        // The new version refers to routes that come later: the old one serves until then.
        server.set(&with(&[listener("l", address, "r2"), routes("r1", "c1")]));
        wait_until("the new version waits", || async {
            let dump = get(proxy.admin(), "/config_dump?resource=dynamic_listeners").await;
            dump.body.contains("warming_state")
        })
        .await;
        load.wait_for(20).await;
        assert!(answers(address, "one").await);
        server.set(&with(&[
            listener("l", address, "r2"),
            routes("r1", "c1"),
            routes("r2", "c2"),
        ]));
        answered_by(address, "two").await;
        assert_eq!(load.stop().await, [""; 0], "{variant}");
        assert_eq!(server.rejections(), [""; 0], "{variant}");
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_survive_the_server_and_its_restart() {
    let backend = Backend::echo("one").await;
    let one = upstream("c1", &backend);
    for variant in VARIANTS {
        let address = free_address();
        let resources = |address| {
            let own = [listener("l", address, "r"), routes("r", "c1")];
            [own.as_slice(), one.as_slice()].concat()
        };
        let mut server = Management::start(&resources(address));
        let proxy = Proxy::start_with(&config(server.address, variant), 2, TIMEOUT).await;
        answered_by(address, "one").await;
        let load = Load::start(address, 4);
        load.wait_for(20).await;
        server.kill();
        load.wait_for(50).await;
        server.restart();
        assert_eq!(load.stop().await, [""; 0], "{variant}");
        let moved = free_address();
        server.set(&resources(moved));
        answered_by(moved, "one").await;
        closed(address).await;
        proxy.shut_down().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_setting_of_a_listener_can_come_from_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let address = free_address();
    let text = format!(
        "name: l
address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}
enable_reuse_port: true
filter_chains:
- name: chain
  filters:
  - name: http
    typed_config:
      '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.\
         HttpConnectionManager
      stat_prefix: dynamic
      codec_type: HTTP1
      server_name: edge
      server_header_transformation: OVERWRITE
      use_remote_address: true
      generate_request_id: false
      always_set_request_id_in_response: true
      stream_idle_timeout: 2.5s
      request_headers_timeout: 3s
      max_request_headers_kb: 8
      common_http_protocol_options: {{idle_timeout: 7s, max_headers_count: 20}}
      http2_protocol_options: {{max_concurrent_streams: 9}}
      upgrade_configs: [{{upgrade_type: websocket, enabled: true}}]
      http_filters:
      - name: buffer
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
          max_request_bytes: 4
      - name: router
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
      access_log:
      - name: file
        typed_config:
          '@type': type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
          path: {}
          log_format: {{json_format: {{code: '%RESPONSE_CODE%'}}}}
      route_config:
        virtual_hosts:
        - name: all
          domains: ['*']
          routes: [{{match: {{prefix: /}}, direct_response: {{status: 201}}}}]
",
        address.port(),
        log.display()
    );
    let server = Management::start(&[written("l", &text)]);
    let proxy = Proxy::start(&config(server.address, "GRPC")).await;
    assert_eq!(server.rejections(), [""; 0]);
    let response = get(address, "/").await;
    assert_eq!(response.status, 201);
    assert!(response.head.contains("server: edge\r\n"), "{response:?}");
    let many: String = (0..21).map(|number| format!("x-{number}: 1\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nhost: h\r\n{many}\r\n");
    assert_eq!(
        crate::support::client::send(address, &many).await.status,
        431
    );
    wait_until("the request is logged", || async {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        text.starts_with("{\"code\":201}\n")
    })
    .await;
    let stats = get(proxy.admin(), "/stats").await.body;
    assert!(
        stats.contains("http.dynamic.downstream_rq_2xx: 1\n"),
        "{stats}"
    );
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_the_server_stay_secret() {
    let key = rcgen::generate_simple_self_signed(vec!["edge.test".to_owned()]).unwrap();
    let pem = key.signing_key.serialize_pem();
    let address = free_address();
    let text = format!(
        "{{name: l, address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}, \
         filter_chains: [{{transport_socket: {{name: tls, typed_config: {{'@type': \
         type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext, \
         common_tls_context: {{tls_certificates: [{{certificate_chain: {{inline_string: {}}}, \
         private_key: {{inline_string: {}}}}}]}}}}}}, filters: [{{name: http, typed_config: \
         {{'@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.\
         v3.HttpConnectionManager, stat_prefix: l, route_config: {{virtual_hosts: []}}}}}}]}}]}}",
        address.port(),
        serde_json::json!(key.cert.pem()),
        serde_json::json!(pem),
    );
    let server = Management::start(&[written("l", &text)]);
    let proxy = Proxy::start(&config(server.address, "DELTA_GRPC")).await;
    assert_eq!(server.rejections(), [""; 0]);
    let mut raw = Raw::connect(address).await;
    raw.send("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    let answer = raw.rest().await;
    assert!(
        !answer.contains("HTTP/1.1"),
        "plain text is refused: {answer}"
    );
    let dump = get(proxy.admin(), "/config_dump").await.body;
    assert!(dump.contains("[redacted]"), "{dump}");
    let secret = pem.lines().nth(1).unwrap();
    assert!(!dump.contains(secret), "{dump}");
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_chains_of_the_server_are_selected_by_server_name() {
    let authority = Authority::new();
    let address = free_address();
    let backend = Backend::echo("one").await;
    let [a, b] = ["a.test", "b.test"].map(|name| authority.issue(&[name]));
    let text = chains::listener(
        address,
        &[
            chains::chain(
                "server_names: [a.test]",
                &chains::from_rds("first", "r1"),
                &chains::tls(&a),
            ),
            chains::chain(
                "server_names: ['*.test'], transport_protocol: tls",
                &chains::answer("second"),
                &chains::tls(&b),
            ),
        ],
        &format!(
            "{}, default_filter_chain: {}",
            chains::INSPECTOR,
            chains::chain("", &chains::from_rds("rest", "r2"), "")
        ),
    );
    let with = |routes_of_first: &str| {
        let made = [
            written("front", &text),
            routes("r1", routes_of_first),
            routes("r2", "c1"),
        ];
        [made.as_slice(), upstream("c1", &backend).as_slice()].concat()
    };
    let server = Management::start(&with("c1"));
    let proxy = Proxy::start(&config(server.address, "DELTA_GRPC")).await;
    assert_eq!(server.rejections(), [""; 0]);
    let get_tls = async |name: &'static str| {
        let connector = connector(&authority, &["http/1.1"]);
        let stream = TcpStream::connect(address).await.unwrap();
        let name = rustls::pki_types::ServerName::try_from(name).unwrap();
        let mut stream = connector.connect(name, stream).await.unwrap();
        let request = "GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        let _ = stream.read_to_end(&mut text).await;
        String::from_utf8_lossy(&text).into_owned()
    };
    assert!(get_tls("a.test").await.contains("backend: one\n"));
    assert!(get_tls("b.test").await.ends_with("by second"));
    answered_by(address, "one").await;
    // Routes of one chain change.
    server.set(&with("unknown"));
    wait_until("the new routes of the first chain", || async {
        get_tls("a.test").await.starts_with("HTTP/1.1 503")
    })
    .await;
    assert!(get_tls("b.test").await.ends_with("by second"));
    assert!(answers(address, "one").await);
    let dump = get(proxy.admin(), "/config_dump").await.body;
    for (_, key) in [&a, &b] {
        let secret = key.lines().nth(1).unwrap();
        assert!(!dump.contains(secret), "{dump}");
    }
    proxy.shut_down().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cors_and_mirrors_come_from_the_server() {
    let address = free_address();
    let (main, mirror) = (Backend::echo("one").await, Backend::echo("copy").await);
    let manager = chains::from_rds("front", "r").replace(
        "stat_prefix",
        "http_filters: [{name: envoy.filters.http.cors, typed_config: {'@type': type.googleapis.com/\
         envoy.extensions.filters.http.cors.v3.Cors}}, {name: router, typed_config: {'@type': \
         type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}], stat_prefix",
    );
    let text = chains::listener(address, &[chains::chain("", &manager, "")], "");
    let route = |policy_type: &str| {
        format!(
            "{{match: {{prefix: /}}, route: {{cluster: c1, request_mirror_policies: [{{cluster: \
             c2}}]}}, typed_per_filter_config: {{envoy.filters.http.cors: {{'@type': \
             type.googleapis.com/{policy_type}, allow_origin_string_match: [{{exact: 'http://o'}}]\
             }}}}}}"
        )
    };
    let policy = route("envoy.extensions.filters.http.cors.v3.CorsPolicy");
    let with = |routes: Made| {
        let clusters = [upstream("c1", &main), upstream("c2", &mirror)].concat();
        [&[written("front", &text), routes][..], &clusters].concat()
    };
    let server = Management::start(&with(routed("r", &[&policy])));
    let proxy = Proxy::start(&config(server.address, "GRPC")).await;
    assert_eq!(server.rejections(), [""; 0]);
    let request = "GET / HTTP/1.1\r\nhost: h\r\norigin: http://o\r\n\r\n";
    let response = crate::support::client::send(address, request).await;
    assert!(response.body.contains("backend: one\n"), "{response:?}");
    let header = "access-control-allow-origin: http://o\r\n";
    assert!(response.head.contains(header), "{response:?}");
    wait_until("the request is mirrored", || async { mirror.count() == 1 }).await;
    let other = route("envoy.extensions.filters.http.lua.v3.LuaPerRoute");
    server.set(&with(routed("r", &[&other])));
    wait_until("the unsupported policy is rejected", || async {
        let rejections = server.rejections();
        let path = "typed_per_filter_config[envoy.filters.http.cors]";
        rejections.iter().any(|reason| reason.contains(path))
    })
    .await;
    assert!(answers(address, "one").await, "the old routes stay");
    proxy.shut_down().await;
}

/// The filters answer without a host, and connections share the bucket of their filter chain.
#[tokio::test(flavor = "multi_thread")]
async fn health_checks_and_rate_limits_come_from_the_server() {
    let filters = |tokens: u32| {
        let filter = |name: &str, fields: &str| {
            format!(
                "{{name: f, typed_config: {{'@type': type.googleapis.com/envoy.extensions.filters.\
                 http.{name}, {fields}}}}}"
            )
        };
        let all = "{runtime_key: k, default_value: {numerator: 100}}";
        [
            filter(
                "health_check.v3.HealthCheck",
                "pass_through_mode: false, \
                 headers: [{name: ':path', string_match: {exact: /healthz}}]",
            ),
            filter(
                "local_ratelimit.v3.LocalRateLimit",
                &format!(
                    "stat_prefix: l, filter_enabled: {all}, filter_enforced: {all}, token_bucket: \
                     {{max_tokens: {tokens}, fill_interval: 3600s}}"
                ),
            ),
            filter("router.v3.Router", ""),
        ]
        .join(", ")
    };
    let backend = Backend::echo("one").await;
    for variant in VARIANTS {
        let address = free_address();
        let with = |tokens: u32| {
            let manager = chains::from_rds("front", "r").replace(
                "stat_prefix",
                &format!("http_filters: [{}], stat_prefix", filters(tokens)),
            );
            let text = chains::listener(address, &[chains::chain("", &manager, "")], "");
            let own = [written("front", &text), routes("r", "c1")];
            [own.as_slice(), upstream("c1", &backend).as_slice()].concat()
        };
        let server = Management::start(&with(2));
        let proxy = Proxy::start(&config(server.address, variant)).await;
        assert_eq!(server.rejections(), [""; 0], "{variant}");
        for expected in [200, 200, 429, 429] {
            assert_eq!(get(address, "/").await.status, expected, "{variant}");
            assert_eq!(get(address, "/healthz").await.status, 200, "{variant}");
        }
        // A bucket that can never have a token is refused, and the old listener stays.
        server.set(&with(0));
        wait_until("the listener is rejected", || async {
            !server.rejections().is_empty()
        })
        .await;
        let refusal = server.rejections()[0].clone();
        let path = "filter_chains[0].filters[0].typed_config.http_filters[1].typed_config.\
                    token_bucket: needs at least one token";
        assert!(refusal.contains(path), "{refusal}");
        assert_eq!(get(address, "/").await.status, 429, "{variant}");
        proxy.shut_down().await;
    }
    assert_eq!(backend.count(), 2 * VARIANTS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_of_the_file_take_precedence() {
    let [own, other] = [free_address(), free_address()];
    let inline = format!(
        "  listeners:
  - name: own
    address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}
    filter_chains:
    - filters:
      - typed_config:
          '@type': type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.\
         v3.HttpConnectionManager
          stat_prefix: own
          route_config: {{virtual_hosts: [{{name: all, domains: ['*'], routes: [{{match: \
         {{prefix: /}}, direct_response: {{status: 202}}}}]}}]}}
",
        own.port()
    );
    let backend = Backend::echo("one").await;
    let one = upstream("c1", &backend);
    let listeners = [
        listener("own", free_address(), "r"),
        listener("same-address", own, "r"),
        listener("valid", other, "r"),
        listener("twice", other, "r"),
        routes("r", "c1"),
    ];
    let server = Management::start(&[listeners.as_slice(), one.as_slice()].concat());
    let text = config(server.address, "GRPC");
    let proxy = Proxy::start(&(text + &inline)).await;
    answered_by(other, "one").await;
    for _ in 0..8 {
        assert_eq!(get(own, "/").await.status, 202);
    }
    let listeners = get(proxy.admin(), "/listeners").await.body;
    // Of two listeners with one address the first by name is used.
    assert_eq!(listeners, format!("own::{own}\ntwice::{other}\n"));
    proxy.shut_down().await;
}
