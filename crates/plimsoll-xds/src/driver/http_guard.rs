//! [`HttpGuard`]: keeps pages of the web away from admin addresses.
//!
//! An admin address has no password; what protects it is where it listens. A browser on the same
//! machine undermines that: a page can post to loopback, and with a name whose address changes (DNS
//! rebinding) it can read there too. So a request must be addressed to us by an address or by a
//! name that nobody else can own, and what changes something must not come from another page.
//! Programs such as curl say nothing about pages and are let through. Used by the admin listeners
//! of the control plane, the proxy and the demo.

use std::net::IpAddr;

use http::header::{HOST, HeaderName, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, Method, Request};

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Who may ask.
#[derive(Clone, Debug, Default)]
pub struct HttpGuard {
    /// Further names, in lower case.
    names: Vec<String>,
}

impl HttpGuard {
    /// Lets in what is addressed to an IP address, to `localhost`, to a name without dots or to one
    /// of `names`; `*.example.org` is every name below it.
    pub fn new(names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let names = names.into_iter();
        Self {
            names: names
                .map(|name| name.as_ref().trim_end_matches('.').to_ascii_lowercase())
                .collect(),
        }
    }

    /// Why a request is refused, in words.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), String> {
        let headers = request.headers();
        let mut hosts: Vec<Authority> = Vec::new();
        hosts.extend(request.uri().authority().cloned());
        for host in headers.get_all(HOST) {
            let host = Authority::try_from(host.as_bytes());
            hosts.push(host.map_err(|error| format!("the host cannot be read: {error}"))?);
        }
        if let Some(stranger) = hosts.iter().find(|host| !self.is_ours(host.host())) {
            return Err(format!(
                "{:?} is not a name of this address; --admin-host adds one",
                stranger.host()
            ));
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return Ok(());
        }
        from_here(headers, &hosts)
    }

    /// Names of the web have dots, and what has a name of the web may be somebody else's.
    fn is_ours(&self, host: &str) -> bool {
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

/// Browsers say which page a request comes from; it must be one of ours.
fn from_here(headers: &HeaderMap, hosts: &[Authority]) -> Result<(), String> {
    if let Some(site) = headers.get(SEC_FETCH_SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err("pages of other origins may not do that".to_owned());
    }
    let Some(origin) = headers.get(ORIGIN) else {
        return Ok(());
    };
    let origin = origin.to_str().unwrap_or_default();
    let authority = origin.split_once("://").map_or("", |(_, rest)| rest);
    match hosts.iter().any(|host| host.as_str() == authority) {
        true => Ok(()),
        false => Err(format!("pages of {origin:?} may not do that")),
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
    fn addresses_and_names_of_the_own_network_are_ours() {
        let guard = HttpGuard::default();
        let ours = [
            "127.0.0.1:9901",
            "[::1]:9901",
            "10.0.0.7",
            "localhost",
            "localhost:9901",
            "LOCALHOST.:9901",
            "proxy.localhost:9901",
            "plimsoll-control:18001",
        ];
        for host in ours {
            assert!(read(&guard, host), "{host}");
        }
        assert!(guard.check(&request(Method::GET, &[])).is_ok(), "HTTP/1.0");
    }

    #[test]
    fn names_of_the_web_are_not_ours_unless_somebody_says_so() {
        let names = ["Admin.Example.org", "*.svc.cluster.local"];
        let (nobody, told) = (HttpGuard::default(), HttpGuard::new(names));
        for host in ["admin.example.org:9901", "control.svc.cluster.local"] {
            assert!(!read(&nobody, host), "{host}");
            assert!(read(&told, host), "{host}");
        }
        let strangers = [
            "rebind.evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evillocalhost.example",
            "svc.cluster.local",
            "evilsvc.cluster.local",
            "x.admin.example.org",
        ];
        for host in strangers {
            assert!(!read(&told, host), "{host}");
        }
        let two = [("host", "localhost"), ("host", "evil.example")];
        assert!(told.check(&request(Method::GET, &two)).is_err());
    }

    #[test]
    fn other_pages_may_not_change_anything() {
        let guard = HttpGuard::default();
        let post = |headers: &[(&str, &str)]| {
            let host = ("host", "localhost:9901");
            let all: Vec<_> = [host].into_iter().chain(headers.iter().copied()).collect();
            guard.check(&request(Method::POST, &all)).is_ok()
        };
        assert!(post(&[]), "curl says nothing of pages");
        assert!(post(&[("origin", "http://localhost:9901")]));
        assert!(post(&[("sec-fetch-site", "same-origin")]));
        assert!(!post(&[("sec-fetch-site", "cross-site")]));
        // Another port of the same machine is another page.
        assert!(!post(&[("sec-fetch-site", "same-site")]));
        for origin in ["https://evil.example", "http://localhost:9902", "null"] {
            assert!(!post(&[("origin", origin)]), "{origin}");
        }
        let origin = ("origin", "https://evil.example");
        let read = request(Method::GET, &[("host", "localhost"), origin]);
        assert!(
            guard.check(&read).is_ok(),
            "it is not told what the answer is"
        );
    }
}
