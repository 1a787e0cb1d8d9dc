//! Routes: the virtual host with the most specific domain is used, and in it the first route that
//! matches. The bytes select domains, routes and requests from small sets, so that several match.

use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};

use super::MemoryLimit;
use crate::config::{ProxyConfig, RouteSource};
use crate::router::RequestView;

/// Generated routes, their text and the compiled table.
pub const MEMORY: MemoryLimit = MemoryLimit {
    base: 4 << 20,
    per_byte: 8 << 10,
};

const DOMAINS: [&str; 10] = [
    "a.com", "b.a.com", "*.a.com", "*.com", "*a.com", "a.*", "a.b.*", "b.*", "*", "A.com",
];
const HOSTS: [&str; 9] = [
    "a.com",
    "A.COM",
    "b.a.com",
    "c.b.a.com",
    "ba.com",
    "a.b.c",
    "b.x",
    "x",
    "a.com:80",
];
const PATHS: [&str; 7] = ["/", "/x", "/x/", "/x/y", "/xy", "/X", "/x?q"];

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % limit
    }
}

struct Route {
    path: &'static str,
    kind: usize,
    needs_header: bool,
}

struct Host {
    domains: Vec<&'static str>,
    routes: Vec<Route>,
}

/// Builds routes and requests from the input and compares the selected routes.
pub fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes.iter());
    let hosts = 0..bytes.below(4) + 1;
    let hosts: Vec<Host> = hosts.map(|_| host(&mut bytes)).collect();
    let config = match ProxyConfig::parse(&config(&hosts).to_string()) {
        Ok(config) => config,
        Err(error) => {
            assert!(error.path().contains("virtual_hosts"), "{error}");
            return;
        }
    };
    let chains = config.listeners.iter().flat_map(|own| &own.chains);
    let Some(RouteSource::Inline(table)) = chains.map(|chain| &chain.routes).next() else {
        return;
    };
    for _ in 0..8 {
        let host = HOSTS[bytes.below(HOSTS.len())];
        let path_and_query = PATHS[bytes.below(PATHS.len())];
        let path = path_and_query.trim_end_matches("?q");
        let has_header = bytes.below(2) == 1;
        let mut headers = HeaderMap::new();
        if has_header {
            headers.insert("x", HeaderValue::from_static("1"));
        }
        let view = RequestView {
            host,
            path,
            path_and_query,
            method: &Method::GET,
            scheme: "http",
            headers: &headers,
        };
        let found = table.route(&view, || 0).map(|route| route.name.to_string());
        assert_eq!(found, expected(&hosts, host, path, has_header), "{view:?}");
    }
}

fn host(bytes: &mut Bytes<'_>) -> Host {
    let domains = 0..bytes.below(3) + 1;
    let routes = 0..bytes.below(4);
    Host {
        domains: domains
            .map(|_| DOMAINS[bytes.below(DOMAINS.len())])
            .collect(),
        routes: routes
            .map(|_| Route {
                path: PATHS[bytes.below(PATHS.len() - 1)],
                kind: bytes.below(4),
                needs_header: bytes.below(4) == 0,
            })
            .collect(),
    }
}

fn config(hosts: &[Host]) -> Value {
    let filters = "type.googleapis.com/envoy.extensions.filters";
    let virtual_host = |(index, host): (usize, &Host)| {
        let routes = host.routes.iter().enumerate().map(|(number, route)| {
            let kinds = ["prefix", "path", "path_separated_prefix", "safe_regex"];
            let path = match route.kind {
                3 => json!({ "regex": format!("{}.*", route.path) }),
                2 => json!(separated(route.path)),
                _ => json!(route.path),
            };
            let mut matcher = json!({ kinds[route.kind]: path });
            if route.needs_header {
                matcher["headers"] = json!([{ "name": "x", "string_match": { "exact": "1" } }]);
            }
            let name = format!("{index}.{number}");
            json!({ "name": name, "match": matcher, "direct_response": { "status": 200 } })
        });
        let routes: Vec<_> = routes.collect();
        json!({ "name": format!("v{index}"), "domains": host.domains, "routes": routes })
    };
    let virtual_hosts: Vec<_> = hosts.iter().enumerate().map(virtual_host).collect();
    json!({ "static_resources": { "listeners": [{
        "name": "l",
        "address": { "socket_address": { "address": "127.0.0.1", "port_value": 0 } },
        "filter_chains": [{ "filters": [{ "name": "http", "typed_config": {
            "@type": format!("{filters}.network.http_connection_manager.v3.HttpConnectionManager"),
            "stat_prefix": "l",
            "http_filters": [{ "name": "router", "typed_config": {
                "@type": format!("{filters}.http.router.v3.Router") } }],
            "route_config": { "virtual_hosts": virtual_hosts },
        } }] }],
    }] } })
}

/// A separated prefix may not end with a slash.
fn separated(path: &str) -> &str {
    match path.trim_end_matches('/') {
        "" => "/x",
        path => path,
    }
}

fn expected(hosts: &[Host], host: &str, path: &str, has_header: bool) -> Option<String> {
    let host = host.to_ascii_lowercase();
    let domains = hosts.iter().enumerate();
    let domains = domains.flat_map(|(index, own)| own.domains.iter().map(move |d| (index, *d)));
    let ranked = domains.filter_map(|(index, domain)| Some((rank(domain, &host)?, index)));
    let (_, index) = ranked.max_by_key(|(rank, _)| *rank)?;
    let mut routes = hosts[index].routes.iter();
    let number = routes.position(|route| {
        let separated = separated(route.path);
        let matches = match route.kind {
            1 => path == route.path,
            2 => path
                .strip_prefix(separated)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            _ => path.starts_with(route.path),
        };
        matches && (has_header || !route.needs_header)
    })?;
    Some(format!("{index}.{number}"))
}

/// How specific a domain is that matches: exact, then the longest suffix, then the longest prefix.
fn rank(domain: &str, host: &str) -> Option<(u8, usize)> {
    let domain = domain.to_ascii_lowercase();
    if domain == host {
        return Some((3, 0));
    }
    if domain == "*" {
        return Some((0, 0));
    }
    if let Some(suffix) = domain.strip_prefix('*') {
        // The wildcard stands for at least one character.
        let matches = host.len() > suffix.len() && host.ends_with(suffix);
        return matches.then_some((2, suffix.len()));
    }
    let prefix = domain.strip_suffix('*')?;
    let matches = host.len() > prefix.len() && host.starts_with(prefix);
    matches.then_some((1, prefix.len()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::run_seeded;
    use super::*;

    #[test]
    fn routes_are_selected_by_specificity_and_order() {
        run_seeded(&["\u{1}", "\u{2}", "\u{3}", "\u{5}"], 1500, MEMORY, run);
    }
}
