//! The CORS filter: preflight requests, headers of responses, levels of policies.

use crate::support::backend::{Backend, reply};
use crate::support::client::{self, RawResponse};
use crate::support::{Proxy, config_with, counter};
use plimsoll_proxy::config::ProxyConfig;

const FILTERS: &str = "http_filters:
- name: envoy.filters.http.cors
  typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}
- name: router
  typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
";

fn policy(fields: &str) -> String {
    format!(
        "typed_per_filter_config: {{envoy.filters.http.cors: {{'@type': type.googleapis.com/\
         envoy.extensions.filters.http.cors.v3.CorsPolicy, {fields}}}}}"
    )
}

/// Policies on all levels, as they were given to a running Envoy 1.40.
fn levels(backend: &Backend) -> String {
    let route = |path: &str, action: &str, fields: &str| {
        let own = match fields {
            "" => String::new(),
            fields => format!(", {}", policy(fields)),
        };
        format!("- {{match: {{path: {path}}}, {action}{own}}}\n")
    };
    let forward = "route: {cluster: a}";
    let own = "allow_origin_string_match: [{exact: 'http://own'}]";
    let none = "{default_value: {numerator: 0}}";
    let all = "{default_value: {numerator: 100}}";
    let routes = [
        route("/partial", forward, "allow_methods: ROUTE"),
        route(
            "/own",
            forward,
            &format!("{own}, allow_private_network_access: true"),
        ),
        route(
            "/nofwd",
            forward,
            &format!("{own}, forward_not_matching_preflights: false"),
        ),
        route(
            "/shadow",
            forward,
            &format!("filter_enabled: {none}, shadow_enabled: {all}"),
        ),
        route("/off", forward, &format!("filter_enabled: {none}")),
        route(
            "/star",
            forward,
            "allow_origin_string_match: [{exact: '*'}]",
        ),
        route("/direct", "direct_response: {status: 201}", ""),
        route("/dead", "route: {cluster: dead}", ""),
        route("/x", forward, ""),
    ];
    let clusters = [
        ("a", &[backend.address][..], ""),
        ("dead", &[crate::support::free_address()], ""),
    ];
    let text = config_with(FILTERS, &routes.concat(), &clusters);
    let host = policy(
        "allow_origin_string_match: [{exact: 'http://host'}, {safe_regex: {regex: \
         'http://r[0-9]+'}}], allow_methods: 'GET,PUT', allow_headers: x-h, expose_headers: x-e, \
         allow_credentials: true",
    );
    let config = policy(
        "allow_origin_string_match: [{exact: 'http://config'}], max_age: '7', \
         allow_methods: CONFIG",
    );
    let rules = "response_headers_to_add: [{header: {key: x-rule, value: 'on'}}, {header: {key: \
                 access-control-allow-origin, value: rule}, append_action: \
                 OVERWRITE_IF_EXISTS_OR_ADD}]";
    text.replacen(
        "              domains: ['*']\n",
        &format!("              domains: ['*']\n              {host}\n"),
        1,
    )
    .replacen(
        "            virtual_hosts:\n",
        &format!("            {config}\n            {rules}\n            virtual_hosts:\n"),
        1,
    )
}

async fn started() -> (Backend, Proxy) {
    let backend = Backend::start(|_| async {
        let mut response = reply(200, "up");
        let upstream = "upstream".parse().unwrap();
        let name = "access-control-allow-origin";
        response.headers_mut().insert(name, upstream);
        response
    })
    .await;
    let proxy = Proxy::start(&levels(&backend)).await;
    (backend, proxy)
}

async fn ask(proxy: &Proxy, method: &str, path: &str, headers: &str) -> RawResponse {
    let headers = headers.replace('|', "\r\n");
    let text = format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{headers}\r\n\r\n");
    client::send(proxy.address(), &text).await
}

/// Returns the names and values of the headers that CORS is about, and of `x-rule`.
fn relevant(response: &RawResponse) -> Vec<&str> {
    let lines = response.head.lines();
    let mut found: Vec<&str> = lines
        .filter_map(|line| {
            line.strip_prefix("access-control-")
                .or_else(|| line.starts_with("x-rule").then_some(line))
        })
        .collect();
    found.sort_unstable();
    found
}

const PREFLIGHT: &str = "|access-control-request-method: PUT";

/// Expected headers are those of a running Envoy 1.40 with the same configuration.
#[tokio::test]
async fn responses_of_allowed_origins_get_headers() {
    let (_backend, proxy) = started().await;
    let from = |origin: &str| format!("origin: {origin}");
    let allowed = |origin: &str| {
        [
            "allow-credentials: true".to_owned(),
            format!("allow-origin: {origin}"),
            "expose-headers: x-e".to_owned(),
            "x-rule: on".to_owned(),
        ]
    };
    let other = ["allow-origin: rule", "x-rule: on"];
    for (method, path, origin) in [
        ("GET", "/x", "http://host"),
        ("GET", "/x", "http://r12"),
        ("OPTIONS", "/x", "http://host"),
        ("GET", "/own", "http://own"),
        ("GET", "/star", "http://any"),
    ] {
        let response = ask(&proxy, method, path, &from(origin)).await;
        assert_eq!(response.body, "up");
        assert_eq!(relevant(&response), allowed(origin), "{path} {origin}");
    }
    for (path, headers) in [
        ("/x", from("http://bad")),
        ("/x", "x: y".to_owned()),
        ("/x", from("http://config")),
        ("/own", from("http://host")),
        ("/off", from("http://host")),
        ("/shadow", from("http://host")),
        ("/nofwd", from("http://bad")),
        ("/direct", from("http://host")),
    ] {
        let response = ask(&proxy, "GET", path, &headers).await;
        assert_eq!(relevant(&response), other, "{path} {headers}");
    }
    let local = ask(&proxy, "GET", "/dead", &from("http://host")).await;
    assert_eq!(local.status, 503);
    assert_eq!(relevant(&local), allowed("http://host"));
    assert_eq!(counter(&proxy, "http.front.cors.origin_valid").await, 7);
    assert_eq!(counter(&proxy, "http.front.cors.origin_invalid").await, 4);
    proxy.shut_down().await;
}

/// Expected headers are those of a running Envoy 1.40 with the same configuration.
#[tokio::test]
async fn preflight_requests_are_answered() {
    let (backend, proxy) = started().await;
    let preflight = |origin: &str| format!("origin: {origin}{PREFLIGHT}");
    let with = |methods: &str, origin: &str, more: &[&str]| {
        let mut all = vec![
            "allow-credentials: true".to_owned(),
            "allow-headers: x-h".to_owned(),
            format!("allow-methods: {methods}"),
            format!("allow-origin: {origin}"),
            "expose-headers: x-e".to_owned(),
            "max-age: 7".to_owned(),
        ];
        all.extend(more.iter().map(|&line| line.to_owned()));
        all.sort_unstable();
        all
    };
    for (path, headers, expected) in [
        (
            "/x",
            preflight("http://host"),
            with("get,put", "http://host", &[]),
        ),
        (
            "/partial",
            preflight("http://host"),
            with("route", "http://host", &[]),
        ),
        (
            "/own",
            preflight("http://own") + "|access-control-request-private-network: true",
            with("get,put", "http://own", &["allow-private-network: true"]),
        ),
    ] {
        let response = ask(&proxy, "OPTIONS", path, &headers).await;
        assert_eq!((response.status, &*response.body), (200, ""));
        assert_eq!(relevant(&response), expected, "{path}");
    }
    let refused = ask(&proxy, "OPTIONS", "/nofwd", &preflight("http://bad")).await;
    let expected = [
        "allow-credentials: true",
        "allow-headers: x-h",
        "allow-methods: get,put",
        "max-age: 7",
    ];
    assert_eq!(relevant(&refused), expected);
    assert_eq!(backend.count(), 0, "answered by the proxy");
    for (path, origin) in [
        ("/x", "http://bad"),
        ("/partial", "http://config"),
        ("/shadow", "http://host"),
    ] {
        let response = ask(&proxy, "OPTIONS", path, &preflight(origin)).await;
        assert_eq!(response.body, "up", "{path} is forwarded");
    }
    let direct = ask(&proxy, "OPTIONS", "/direct", &preflight("http://host")).await;
    assert_eq!(direct.status, 201);
    proxy.shut_down().await;
}

#[tokio::test]
async fn rate_limited_responses_get_headers_and_preflight_requests_are_not_limited() {
    let limit = "- typed_config:
    '@type': type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
    token_bucket: {max_tokens: 1, fill_interval: 3600s}
    filter_enabled: {default_value: {numerator: 100}}
    filter_enforced: {default_value: {numerator: 100}}
- name: router";
    let filters = FILTERS.replace("- name: router", limit);
    let backend = Backend::echo("a").await;
    let route = format!(
        "- {{match: {{prefix: /}}, route: {{cluster: a}}, {}}}",
        policy("allow_origin_string_match: [{prefix: http}]")
    );
    let text = config_with(&filters, &route, &[("a", &[backend.address], "")]);
    let proxy = Proxy::start(&text).await;
    let origin = "origin: http://o";
    for expected in [200, 429] {
        let response = ask(&proxy, "GET", "/", origin).await;
        assert_eq!(response.status, expected);
        assert_eq!(relevant(&response), ["allow-origin: http://o"]);
    }
    let preflight = ask(&proxy, "OPTIONS", "/", &format!("{origin}{PREFLIGHT}")).await;
    assert_eq!(preflight.status, 200);
    proxy.shut_down().await;
}

#[test]
fn policies_that_would_have_no_effect_are_rejected_by_name() {
    let route = |more: &str| format!("- {{match: {{prefix: /}}, route: {{cluster: a}}, {more}}}");
    let rejection = |manager: &str, more: &str| {
        let text = config_with(manager, &route(more), &[("a", &[], "")]);
        ProxyConfig::parse(&text).unwrap_err().to_string()
    };
    let lua = "typed_per_filter_config: {envoy.filters.http.lua: {'@type': \
               type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute}}";
    let error = rejection(FILTERS, lua);
    let path = "routes[0].typed_per_filter_config[envoy.filters.http.lua]: ";
    assert!(
        error.contains(path) && error.contains("LuaPerRoute\" is not supported"),
        "{error}"
    );
    let renamed = policy("max_age: '1'").replace("envoy.filters.http.cors:", "cors:");
    let error = rejection(FILTERS, &renamed);
    assert!(
        error.contains("typed_per_filter_config[cors]: is not the name"),
        "{error}"
    );
    let keyed = policy("filter_enabled: {runtime_key: k, default_value: {numerator: 1}}");
    let error = rejection(FILTERS, &keyed);
    assert!(
        error.contains("filter_enabled.runtime_key: is not supported"),
        "{error}"
    );
    let regex = policy("allow_origin_string_match: [{safe_regex: {regex: '('}}]");
    let error = rejection(FILTERS, &regex);
    assert!(
        error.contains("allow_origin_string_match[0].safe_regex.regex: "),
        "{error}"
    );
    let error = rejection("", &policy("max_age: '1'"));
    assert!(
        error.contains("route_config: has typed_per_filter_config"),
        "{error}"
    );
    let misnamed = FILTERS.replace("- name: envoy.filters.http.cors", "- name: cors");
    let error = rejection(&misnamed, &policy("max_age: '1'"));
    assert!(
        error.contains("http_filters[0].name: must be envoy.filters.http.cors"),
        "{error}"
    );
}
