//! [`AdminToken`] and the check of requests that change state: they must come from this machine,
//! carry the token, or come over a connection with a trusted client certificate. Requests of web
//! pages are refused before, by `http_guard`.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::header::AUTHORIZATION;

use crate::identity::PeerIdentity;

/// Secret that allows requests from other machines to change state.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken(String);

impl fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdminToken")
    }
}

impl AdminToken {
    /// Shortest accepted token: a shorter one can be guessed.
    const MIN_BYTES: usize = 16;

    /// Reads a token from a file; spaces and line breaks around it are ignored.
    pub fn read(path: &Path) -> io::Result<Self> {
        let text = crate::read_file(path)?;
        let token = text.trim();
        if token.len() < Self::MIN_BYTES || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            let reason = format!(
                "a token has at least {} visible ASCII characters",
                Self::MIN_BYTES
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
        }
        Ok(Self(token.to_owned()))
    }

    /// Returns the secret, for a request that carries it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// Whether a request carries the token.
    fn is_in(&self, request: &Request) -> bool {
        let given = request.headers().get(AUTHORIZATION).and_then(|value| {
            let value = value.as_bytes();
            let scheme = value.get(..7)?;
            scheme
                .eq_ignore_ascii_case(b"bearer ")
                .then(|| value[7..].trim_ascii())
        });
        given.is_some_and(|given| self.matches(given))
    }

    /// Compares in constant time, so that response times do not reveal the token.
    fn matches(&self, given: &[u8]) -> bool {
        let expected = self.0.as_bytes();
        let differences = expected
            .iter()
            .zip(given)
            .fold(0, |found, (one, other)| found | (one ^ other));
        expected.len() == given.len() && differences == 0
    }
}

/// Decides which client certificates are administrators'; by default none is.
#[derive(Clone, Default)]
pub struct Administrators(Option<Arc<Decide>>);

type Decide = dyn Fn(&PeerIdentity) -> bool + Send + Sync;

impl fmt::Debug for Administrators {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Administrators")
    }
}

impl Administrators {
    /// Asks `decide` for each request.
    pub fn new(decide: impl Fn(&PeerIdentity) -> bool + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }

    fn has(&self, identity: &PeerIdentity) -> bool {
        self.0.as_ref().is_some_and(|decide| decide(identity))
    }
}

/// Who may send the requests that are not open to every machine, beside loopback.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trusted {
    pub(crate) token: Option<AdminToken>,
    pub(crate) administrators: Administrators,
}

/// The peer of a connection, which `serve` adds to every request.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) address: SocketAddr,
    /// Names in its certificate, if it presented one that is trusted.
    pub(crate) identity: Option<Arc<PeerIdentity>>,
}

/// Caller of an action, for handlers of actions to record: certificate or address, and token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller(pub String);

/// Describes who sent a request: the name in its certificate or its address, and whether it has the
/// token. Another text in its place says nothing about the caller.
pub(crate) fn caller(request: &Request, token: Option<&AdminToken>) -> String {
    let name = match request.extensions().get::<Peer>() {
        Some(Peer {
            identity: Some(identity),
            address,
        }) => {
            let names = identity.uris.iter().chain(&identity.dns_names);
            let first = names.map(String::as_str).next();
            first.map_or_else(
                || address.to_string(),
                |name| format!("{name} at {address}"),
            )
        }
        Some(Peer { address, .. }) => address.to_string(),
        None => "unknown".to_owned(),
    };
    if token.is_some_and(|token| token.is_in(request)) {
        return format!("{name} with token");
    }
    name
}

/// Checks a request that is not open to every machine; the error is the reason for refusing it.
pub(crate) fn check(request: &Request, trusted: &Trusted) -> Result<(), String> {
    let peer = request.extensions().get::<Peer>();
    let identity = peer.and_then(|peer| peer.identity.as_deref());
    let is_local = |peer: &Peer| peer.address.ip().to_canonical().is_loopback();
    if peer.is_some_and(is_local) || identity.is_some_and(|it| trusted.administrators.has(it)) {
        return Ok(());
    }
    match &trusted.token {
        Some(token) if token.is_in(request) => Ok(()),
        _ if identity.is_some() => {
            Err("the client certificate is not an administrator's (admin_identities)".into())
        }
        Some(_) => Err("from another machine this needs `Authorization: Bearer TOKEN`".into()),
        None => {
            Err("allowed from loopback only; --admin-token-file sets a token for others".into())
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn request(peer: &str, authorization: Option<&str>) -> Request {
        let mut request = Request::post("/quitquitquit").body(Body::empty()).unwrap();
        let peer = Peer {
            address: SocketAddr::new(peer.parse().unwrap(), 1),
            identity: None,
        };
        request.extensions_mut().insert(peer);
        if let Some(value) = authorization {
            let value = value.parse().unwrap();
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        request
    }

    #[test]
    fn a_caller_is_named_by_certificate_or_address() {
        let mut request = request("10.0.0.7", Some("Bearer 0123456789abcdef"));
        let token = AdminToken("0123456789abcdef".to_owned());
        assert_eq!(caller(&request, Some(&token)), "10.0.0.7:1 with token");
        let other = AdminToken("0123456789abcdeg".to_owned());
        assert_eq!(caller(&request, Some(&other)), "10.0.0.7:1");
        assert_eq!(caller(&request, None), "10.0.0.7:1", "no token is set");
        let identity = PeerIdentity {
            uris: vec!["spiffe://example.org/ops".to_owned()],
            dns_names: vec!["ops".to_owned()],
        };
        request.extensions_mut().insert(Peer {
            address: "10.0.0.8:2".parse().unwrap(),
            identity: Some(Arc::new(identity)),
        });
        request.headers_mut().clear();
        assert_eq!(
            caller(&request, Some(&token)),
            "spiffe://example.org/ops at 10.0.0.8:2"
        );
    }

    #[test]
    fn changes_need_loopback_or_the_token() {
        let trusted = Trusted {
            token: Some(AdminToken("0123456789abcdef".to_owned())),
            ..Trusted::default()
        };
        let allowed = |peer: &str, given: Option<&str>| {
            let request = request(peer, given);
            check(&request, &trusted).is_ok()
        };
        for local in ["127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"] {
            assert!(allowed(local, None), "{local}");
        }
        assert!(allowed("10.0.0.7", Some("Bearer 0123456789abcdef")));
        assert!(allowed("10.0.0.7", Some("bearer  0123456789abcdef")));
        for wrong in [
            None,
            Some("Bearer 0123456789abcdeg"),
            Some("Bearer 0123456789abcde"),
            Some("Bearer 0123456789abcdef0"),
            Some("Basic 0123456789abcdef"),
            Some("Bearer"),
            Some(""),
        ] {
            assert!(!allowed("10.0.0.7", wrong), "{wrong:?}");
        }
        assert!(check(&request("10.0.0.7", Some("Bearer ")), &Trusted::default()).is_err());
        let unknown = Request::post("/").body(Body::empty()).unwrap();
        assert!(check(&unknown, &trusted).is_err());
    }

    #[test]
    fn only_the_certificate_of_an_administrator_serves_as_well_as_the_token() {
        let from = |name: &str, given: Option<&str>| {
            let mut request = request("10.0.0.7", given);
            let identity = PeerIdentity {
                uris: vec![name.to_owned()],
                ..PeerIdentity::default()
            };
            request.extensions_mut().insert(Peer {
                address: "10.0.0.7:1".parse().unwrap(),
                identity: Some(Arc::new(identity)),
            });
            request
        };
        let trusted = Trusted {
            token: Some(AdminToken("0123456789abcdef".to_owned())),
            administrators: Administrators::new(|identity| identity.uris == ["spiffe://td/ops"]),
        };
        assert!(check(&from("spiffe://td/ops", None), &trusted).is_ok());
        let refused = check(&from("spiffe://td/gateway", None), &trusted).unwrap_err();
        assert!(refused.contains("admin_identities"), "{refused}");
        let with_token = from("spiffe://td/gateway", Some("Bearer 0123456789abcdef"));
        assert!(check(&with_token, &trusted).is_ok());
        // By default no certificate is an administrator's.
        assert!(check(&from("spiffe://td/ops", None), &Trusted::default()).is_err());
        assert!(check(&request("10.0.0.7", None), &trusted).is_err());
    }

    #[test]
    fn short_tokens_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, valid) in [
            ("", false),
            ("short\n", false),
            ("0123456789 abcdef", false),
            (" 0123456789abcdef\n", true),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(AdminToken::read(file.path()).is_ok(), valid, "{text:?}");
        }
    }
}
