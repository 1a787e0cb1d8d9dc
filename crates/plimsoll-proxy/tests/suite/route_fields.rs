//! Header rules of all levels are applied in Envoy's order; retry host predicates.

use crate::support::backend::{Backend, reply};
use crate::support::client;
use crate::support::{Proxy, config, route_all_to};
use http::header::HeaderName;

/// Header rules of one level, in flow style; `more` are headers to add, `remove` those to remove.
fn level(name: &str, more: &[&str], remove: &str) -> String {
    let add = |key: &str, value: &str, action: &str| {
        format!("{{header: {{key: {key}, value: '{value}'}}, append_action: {action}}}")
    };
    let append = "APPEND_IF_EXISTS_OR_ADD";
    let mut request = vec![
        add("x-all", name, append),
        add("x-over", name, "OVERWRITE_IF_EXISTS_OR_ADD"),
        add("x-absent", name, "ADD_IF_ABSENT"),
    ];
    request.extend(
        more.iter()
            .map(|key| add(key, &format!("by-{name}"), append)),
    );
    let response = [
        add("r-all", name, append),
        add("r-over", name, "OVERWRITE_IF_EXISTS_OR_ADD"),
        add("r-format", "%UPSTREAM_CLUSTER% %RESPONSE_CODE%", append),
    ];
    format!(
        "request_headers_to_add: [{}], request_headers_to_remove: [{remove}], \
         response_headers_to_add: [{}], response_headers_to_remove: [r-{name}]",
        request.join(", "),
        response.join(", "),
    )
}

/// A route with header rules on all four levels.
fn levels(backend: &Backend, most_specific_wins: bool) -> String {
    let more = ["x-own", "x-host-removes", "x-weighted-removes"];
    let route = format!(
        "- {{match: {{prefix: /}}, {}, route: {{weighted_clusters: {{clusters: [{{name: a, \
         weight: 1, {}}}]}}}}}}\n",
        level("route", &more, "x-own"),
        level("weighted", &[], "x-weighted-removes"),
    );
    let text = config(&route, &[("a", &[backend.address], "")]);
    let insert_before = |text: String, before: &str, fields: String| {
        let indent = " ".repeat(before.len() - before.trim_start().len());
        let fields = fields.replace("], re", &format!("]\n{indent}re"));
        text.replacen(before, &format!("{indent}{fields}\n{before}"), 1)
    };
    let text = insert_before(
        text,
        "              domains: ['*']",
        level("host", &[], "x-host-removes"),
    );
    let config = level("config", &[], "x-config-removes");
    let text = insert_before(text, "            virtual_hosts:", config);
    let wins = format!("most_specific_header_mutations_wins: {most_specific_wins}");
    insert_before(text, "            virtual_hosts:", wins)
}

/// Returns the values of a header in a list of header lines.
fn values<'t>(text: &'t str, name: &str) -> Vec<&'t str> {
    let name = format!("{name}: ");
    let lines = text.lines();
    lines
        .filter_map(|line| line.strip_prefix(name.as_str()))
        .collect()
}

/// Expected values are from a running Envoy 1.40 with the same rules.
#[tokio::test]
async fn header_rules_of_all_levels_are_applied_in_envoys_order() {
    let back: HeaderName = "r-weighted".parse().unwrap();
    let backend = Backend::start(move |request| {
        let mut seen = String::new();
        for (name, value) in request.headers() {
            seen.push_str(&format!("{name}: {}\n", value.to_str().unwrap()));
        }
        let mut response = reply(200, seen);
        response.headers_mut().insert(&back, "1".parse().unwrap());
        async move { response }
    })
    .await;
    let cases = [
        (
            false,
            ["weighted", "route", "host", "config"],
            "config",
            &[][..],
        ),
        (
            true,
            ["weighted", "config", "host", "route"],
            "route",
            &["by-route"][..],
        ),
    ];
    for (most_specific_wins, order, last, host_removes) in cases {
        let proxy = Proxy::start(&levels(&backend, most_specific_wins)).await;
        let request = "GET / HTTP/1.1\r\nhost: h\r\nx-own: old\r\nx-host-removes: c\r\n\
                       x-weighted-removes: c\r\n\r\n";
        let response = client::send(proxy.address(), request).await;
        let (seen, head) = (response.body.as_str(), response.head.as_str());
        assert_eq!(values(seen, "x-all"), order, "{response:?}");
        assert_eq!(values(seen, "x-over"), [last]);
        assert_eq!(values(seen, "x-absent"), ["weighted"]);
        assert_eq!(values(seen, "x-own"), ["by-route"]);
        assert_eq!(values(seen, "x-host-removes"), host_removes);
        assert_eq!(values(seen, "x-weighted-removes"), ["by-route"]);
        assert_eq!(values(head, "r-all"), order);
        assert_eq!(values(head, "r-over"), [last]);
        assert_eq!(values(head, "r-format"), ["a 200"; 4]);
        assert_eq!(values(head, "r-weighted"), [""; 0]);
        proxy.shut_down().await;
    }
}

#[tokio::test]
async fn previous_hosts_are_avoided_and_other_predicates_are_rejected() {
    let bad = Backend::start(async |_| reply(503, "")).await;
    let good = Backend::echo("good").await;
    let with = |predicate: &str| {
        let route = route_all_to("a").replace(
            "cluster: a",
            &format!(
                "cluster: a, retry_policy: {{retry_on: 5xx, num_retries: 1, \
                 retry_host_predicate: [{{name: {predicate}}}], \
                 host_selection_retry_max_attempts: 5}}"
            ),
        );
        config(&route, &[("a", &[bad.address, good.address], "")])
    };
    let proxy = Proxy::start(&with("envoy.retry_host_predicates.previous_hosts")).await;
    for _ in 0..20 {
        assert_eq!(client::get(proxy.address(), "/").await.status, 200);
    }
    assert!(bad.count() > 0, "some requests try the failing host first");
    let canary = with("envoy.retry_host_predicates.omit_canary_hosts");
    let error = plimsoll_proxy::config::ProxyConfig::parse(&canary)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("route.retry_policy.retry_host_predicate[0]: "),
        "{error}"
    );
    proxy.shut_down().await;
}
