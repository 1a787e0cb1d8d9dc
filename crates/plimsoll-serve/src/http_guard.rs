//! [`HttpGuard`]: protects admin listeners from web pages (DNS rebinding and cross-site requests).
//!
//! An admin listener has no password; only its address protects it. A browser on the same machine
//! undermines that: a web page can post to loopback, and with a name whose address changes (DNS
//! rebinding) it can read responses too. So a request must be addressed to an IP address or to a
//! name that nobody else can own, and a request that changes something must not come from another
//! page. Programs such as curl send no `Origin` header and are accepted. Used by the admin
//! listeners of the control plane, the proxy and the demo.

use std::net::IpAddr;

use axum::http::header::{HOST, HeaderName, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, Request};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Checks the headers `Host`, `Origin` and `Sec-Fetch-Site`.
#[derive(Clone, Debug, Default)]
pub(crate) struct HttpGuard {
    /// Additional host names that are accepted, in lower case.
    names: Vec<String>,
}

impl HttpGuard {
    /// Accepts requests for IP addresses, `localhost`, names without dots and the given `names`;
    /// `*.example.org` matches every name that ends with `.example.org`.
    pub(crate) fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        Self {
            names: names
                .into_iter()
                .map(|name| name.as_ref().trim_end_matches('.').to_ascii_lowercase())
                .collect(),
        }
    }

    /// Checks a request; the error is the reason for refusing it.
    pub(crate) fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        let headers = request.headers();
        let mut hosts: Vec<Authority> = Vec::new();
        hosts.extend(request.uri().authority().cloned());
        for host in headers.get_all(HOST) {
            let host = Authority::try_from(host.as_bytes());
            hosts.push(host.map_err(|error| format!("invalid host header: {error}"))?);
        }
        if let Some(unknown) = hosts.iter().find(|host| !self.is_allowed(host.host())) {
            return Err(format!(
                "host {:?} is not allowed; allow it with --admin-host",
                unknown.host()
            ));
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        check_origin(headers, &hosts)
    }

    /// Whether a host name is accepted. Others may be public DNS names of an attacker.
    fn is_allowed(&self, host: &str) -> bool {
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        if bare.parse::<IpAddr>().is_ok() {
            return true;
        }
        let name = host.trim_end_matches('.').to_ascii_lowercase();
        let below = |suffix: &str| {
            let rest = name.strip_suffix(suffix);
            rest.is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
        };
        let allowed = |allowed: &String| match allowed.strip_prefix("*.") {
            Some(suffix) => below(suffix),
            None => *allowed == name,
        };
        !name.contains('.') || below("localhost") || self.names.iter().any(allowed)
    }
}

/// Refuses requests that a browser sends on behalf of a page of another origin.
fn check_origin(headers: &HeaderMap, hosts: &[Authority]) -> Result<(), String> {
    if let Some(site) = headers.get(SEC_FETCH_SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err("cross-origin requests are not allowed".to_owned());
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
    if hosts.iter().any(|host| host.as_str() == authority) {
        Ok(())
    } else {
        Err(format!("requests from origin {origin:?} are not allowed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().method(method).uri("/quitquitquit");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    fn read(guard: &HttpGuard, host: &str) -> bool {
        guard
            .check(&request(Method::GET, &[("host", host)]))
            .is_ok()
    }

    #[test]
    fn ip_addresses_and_local_names_are_allowed() {
        let guard = HttpGuard::default();
        let allowed = [
            "127.0.0.1:9901",
            "[::1]:9901",
            "10.0.0.7",
            "localhost",
            "localhost:9901",
            "LOCALHOST.:9901",
            "proxy.localhost:9901",
            "plimsoll-control:18001",
        ];
        for host in allowed {
            assert!(read(&guard, host), "{host}");
        }
        assert!(guard.check(&request(Method::GET, &[])).is_ok(), "HTTP/1.0");
    }

    #[test]
    fn public_names_are_refused_unless_configured() {
        let names = ["Admin.Example.org", "*.svc.cluster.local"];
        let (default, configured) = (HttpGuard::default(), HttpGuard::new(names));
        for host in ["admin.example.org:9901", "control.svc.cluster.local"] {
            assert!(!read(&default, host), "{host}");
            assert!(read(&configured, host), "{host}");
        }
        let refused = [
            "rebind.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evillocalhost.example",
            "svc.cluster.local",
            "evilsvc.cluster.local",
            "x.admin.example.org",
        ];
        for host in refused {
            assert!(!read(&configured, host), "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(configured.check(&request(Method::GET, &two)).is_err());
    }

    #[test]
    fn posts_from_other_origins_are_refused() {
        let guard = HttpGuard::default();
        let post = |headers: &[(&str, &str)]| {
            let host = ("host", "localhost:9901");
            let all: Vec<_> = [host].into_iter().chain(headers.iter().copied()).collect();
            guard.check(&request(Method::POST, &all)).is_ok()
        };
        assert!(post(&[]), "curl sends no origin");
        assert!(post(&[("origin", "http://localhost:9901")]));
        assert!(post(&[("sec-fetch-site", "same-origin")]));
        assert!(!post(&[("sec-fetch-site", "cross-site")]));
        // Another port of the same machine is another origin.
        assert!(!post(&[("sec-fetch-site", "same-site")]));
        for origin in ["https://evil.example", "http://localhost:9902", "null"] {
            assert!(!post(&[("origin", origin)]), "{origin}");
        }
        let origin = ("origin", "https://evil.example");
        let read = request(Method::GET, &[("host", "localhost"), origin]);
        assert!(
            guard.check(&read).is_ok(),
            "the browser does not let the page read the response"
        );
    }
}
