//! Who may connect: certificates, rules of identities, limits of connections.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_serve::{ClientTlsSettings, ConnectionLimits, PemSource, ServerTlsSettings};
use plimsoll_xds::yaml::proto_json::{ProtoDuration, Uint};
use serde::Deserialize;

use super::limits::timeout_within;
use super::yaml::FileYaml;
use crate::identity::{Pattern, PatternError, Rule, Subject};

/// More connections than the 15,000 nodes that one process is measured with.
const DEFAULT_CONNECTIONS: u32 = 20_000;
/// Enough for the proxies behind one address translation.
const DEFAULT_CONNECTIONS_PER_PEER: u32 = 1_000;
const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// As Istiod: after a restart of one of several replicas, its proxies are spread again within this
/// time, and a client that has lost its identity is served no longer.
const DEFAULT_CONNECTION_AGE: Duration = Duration::from_secs(30 * 60);
const MAX_CONNECTION_AGE: Duration = Duration::from_secs(7 * 24 * 3600);

/// Certificates of a listener. The files are watched, and new connections use new certificates.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct TlsYaml {
    /// File with the certificate chain, in PEM format.
    certificate: PathBuf,
    /// File with the private key, in PEM format.
    private_key: PathBuf,
    /// File with the certificate authorities of clients, in PEM format. With it, clients of ADS and
    /// LRS must present a certificate, and clients of the admin API may, which needs
    /// `admin_identities`. Default none.
    client_ca: Option<PathBuf>,
}

/// Certificates for connections to the relayed server. The files are watched.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct RelayTlsYaml {
    /// File with the certificate authorities of the server, in PEM format.
    ca: PathBuf,
    /// File with the certificate chain to present, in PEM format. Default none.
    certificate: Option<PathBuf>,
    /// File with its private key, in PEM format. Default none.
    private_key: Option<PathBuf>,
    /// Name in the server's certificate. Default the host of `address`.
    server_name: Option<String>,
}

/// Which nodes clients may be that have a name in their certificate, and what they may do.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct IdentityYaml {
    /// Name of the rule in log lines. Default the position in the list.
    name: Option<String>,
    /// URI of the certificate, such as a SPIFFE ID. `*` stands for the characters up to the next
    /// `/`, `{word}` too, and the same `{word}` in the fields below for exactly these. One of `uri`
    /// and `dns` is required.
    uri: Option<String>,
    /// DNS name of the certificate; `*` and `{word}` as in `uri`, up to the next `.`.
    dns: Option<String>,
    /// Fleets (`node.cluster`) that the client may belong to; `*` stands for any characters, here
    /// and below. Default all.
    fleets: Option<Vec<String>>,
    /// Zones (`node.locality`) that it may be in, as `zone` or `region/zone`. Default all.
    zones: Option<Vec<String>>,
    /// Node ids (`node.id`) that it may have. Default all.
    node_ids: Option<Vec<String>>,
    /// Services that it may read. Default all.
    services: Option<Vec<String>>,
    /// Whether it may report load. Default true.
    report_load: Option<bool>,
}

/// A certificate that is an administrator's.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct AdminIdentityYaml {
    /// URI of the certificate, such as a SPIFFE ID. `*` stands for the characters up to the next
    /// `/`. One of `uri` and `dns` is required.
    uri: Option<String>,
    /// DNS name of the certificate; `*` stands for the characters up to the next `.`.
    dns: Option<String>,
}

/// Limits of connections to ADS and LRS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncomingLimits {
    pub connections: ConnectionLimits,
    /// Time from accepting a connection to its first request.
    pub handshake_timeout: Duration,
    /// Age at which connections end, with a tenth more or less; `None` for no limit.
    pub connection_age: Option<Duration>,
}

/// Certificates for connections to the relayed server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayTls {
    pub settings: ClientTlsSettings,
    /// Name in the server's certificate; unset means the host of the address.
    pub server_name: Option<String>,
}

impl TlsYaml {
    const fn has_client_ca(&self) -> bool {
        self.client_ca.is_some()
    }

    pub(super) fn validate(&self, require_client_certificate: bool) -> ServerTlsSettings {
        let alpn = if require_client_certificate {
            "h2"
        } else {
            "http/1.1"
        };
        ServerTlsSettings {
            certificate: PemSource::File(self.certificate.clone()),
            key: PemSource::File(self.private_key.clone()),
            client_ca: self.client_ca.clone().map(PemSource::File),
            require_client_certificate,
            alpn: vec![alpn.to_owned()],
        }
    }
}

impl RelayTlsYaml {
    pub(super) fn validate(&self) -> Result<RelayTls, FieldError> {
        let certificate = match (&self.certificate, &self.private_key) {
            (None, None) => None,
            (Some(certificate), Some(key)) => Some((
                PemSource::File(certificate.clone()),
                PemSource::File(key.clone()),
            )),
            (Some(_), None) => return Err(FieldError::new("certificate", "needs private_key")),
            (None, Some(_)) => return Err(FieldError::new("private_key", "needs certificate")),
        };
        Ok(RelayTls {
            settings: ClientTlsSettings {
                ca: PemSource::File(self.ca.clone()),
                certificate,
                alpn: vec!["h2".to_owned()],
            },
            server_name: self.server_name.clone(),
        })
    }
}

impl IncomingLimits {
    /// Validates the fields of `limits` that are about connections.
    pub(super) fn validate(
        connections: Option<Uint<u32>>,
        per_peer: Option<Uint<u32>>,
        handshake_timeout: Option<ProtoDuration>,
        connection_age: Option<ProtoDuration>,
    ) -> Result<Self, FieldError> {
        let at_least_one = |field, written: Option<Uint<u32>>, default: u32| {
            let value = written.map_or(default, |written| written.0);
            if value == 0 {
                return Err(FieldError::new(field, "must be at least 1"));
            }
            Ok(value as usize)
        };
        let timeout = handshake_timeout.map_or(DEFAULT_HANDSHAKE_TIMEOUT, |timeout| timeout.0);
        let timeout = timeout_within("handshake_timeout", timeout)?;
        let (all, each) = (DEFAULT_CONNECTIONS, DEFAULT_CONNECTIONS_PER_PEER);
        Ok(Self {
            connections: ConnectionLimits {
                connections: at_least_one("connections", connections, all)?,
                per_peer: at_least_one("connections_per_peer", per_peer, each)?,
            },
            handshake_timeout: timeout,
            connection_age: validate_age(connection_age)?,
        })
    }
}

impl Default for IncomingLimits {
    fn default() -> Self {
        Self {
            connections: ConnectionLimits {
                connections: DEFAULT_CONNECTIONS as usize,
                per_peer: DEFAULT_CONNECTIONS_PER_PEER as usize,
            },
            handshake_timeout: DEFAULT_HANDSHAKE_TIMEOUT,
            connection_age: Some(DEFAULT_CONNECTION_AGE),
        }
    }
}

/// Validates `limits.connection_age`; zero means no limit.
fn validate_age(written: Option<ProtoDuration>) -> Result<Option<Duration>, FieldError> {
    let age = written.map_or(DEFAULT_CONNECTION_AGE, |age| age.0);
    if !age.is_zero() && !(Duration::from_secs(1)..=MAX_CONNECTION_AGE).contains(&age) {
        let reason = format!("{age:?} is neither 0 s (no limit) nor 1 s to 7 days");
        return Err(FieldError::new("connection_age", reason));
    }
    Ok((!age.is_zero()).then_some(age))
}

impl IdentityYaml {
    pub(super) fn validate(&self, index: usize) -> Result<Rule, FieldError> {
        let subject = subject(self.uri.as_deref(), self.dns.as_deref())?;
        let (Subject::Uri(names) | Subject::Dns(names)) = &subject;
        let patterns = |field: &str, written: &Option<Vec<String>>| {
            let list = written.as_deref().map(|written| patterns(written, names));
            list.transpose().map_err(|(index, error)| {
                FieldError::new(format!("{field}[{index}]"), error.to_string())
            })
        };
        Ok(Rule {
            name: self
                .name
                .clone()
                .unwrap_or_else(|| format!("identities[{index}]")),
            fleets: patterns("fleets", &self.fleets)?,
            zones: patterns("zones", &self.zones)?,
            node_ids: patterns("node_ids", &self.node_ids)?,
            services: patterns("services", &self.services)?,
            report_load: self.report_load.unwrap_or(true),
            subject,
        })
    }
}

/// Parses the name of a certificate that a rule is about.
fn subject(uri: Option<&str>, dns: Option<&str>) -> Result<Subject, FieldError> {
    let invalid =
        |field: &'static str| move |error: PatternError| FieldError::new(field, error.to_string());
    match (uri, dns) {
        (Some(uri), None) => {
            let uri = Pattern::parse(uri, Some('/'));
            uri.map(Subject::Uri).map_err(invalid("uri"))
        }
        (None, Some(dns)) => {
            let dns = Pattern::parse(&dns.to_ascii_lowercase(), Some('.'));
            dns.map(Subject::Dns).map_err(invalid("dns"))
        }
        _ => Err(FieldError::new(
            "uri",
            "exactly one of uri and dns is required",
        )),
    }
}

/// Validates who is an administrator. One authority often signs all workloads, so its certificates
/// alone are not enough.
pub(super) fn administrators(yaml: &FileYaml) -> Result<Vec<Subject>, FieldError> {
    let has_ca = yaml.admin_tls.as_ref().is_some_and(TlsYaml::has_client_ca);
    let Some(written) = &yaml.admin_identities else {
        if has_ca {
            let reason = "needs admin_identities: which of its certificates are administrators'";
            return Err(FieldError::new("admin_tls.client_ca", reason));
        }
        return Ok(Vec::new());
    };
    if !has_ca {
        let reason = "needs admin_tls.client_ca: administrators are known by their certificates";
        return Err(FieldError::new("admin_identities", reason));
    }
    let parse = |(index, one): (usize, &AdminIdentityYaml)| {
        let subject = subject(one.uri.as_deref(), one.dns.as_deref());
        subject.map_err(|error| error.under(&format!("admin_identities[{index}]")))
    };
    written.iter().enumerate().map(parse).collect()
}

/// Parses patterns that may use the names of `subject`; the error has the index of the pattern.
fn patterns(written: &[String], subject: &Pattern) -> Result<Vec<Pattern>, (usize, PatternError)> {
    let parse = |(index, text): (usize, &String)| {
        let pattern = Pattern::parse(text, None).map_err(|error| (index, error))?;
        pattern
            .check_names(subject)
            .map_err(|error| (index, error))?;
        Ok(pattern)
    };
    written.iter().enumerate().map(parse).collect()
}

/// Validates the rules; `None` without the field.
pub(super) fn rules(
    written: Option<&[IdentityYaml]>,
    tls: Option<&ServerTlsSettings>,
) -> Result<Option<Vec<Arc<Rule>>>, FieldError> {
    let Some(written) = written else {
        return Ok(None);
    };
    if tls.is_none_or(|tls| tls.client_ca.is_none()) {
        let reason = "needs tls.client_ca: identities come from client certificates";
        return Err(FieldError::new("identities", reason));
    }
    let mut rules = Vec::new();
    for (index, rule) in written.iter().enumerate() {
        let rule = rule.validate(index);
        let rule = rule.map_err(|error| error.under(&format!("identities[{index}]")))?;
        rules.push(Arc::new(rule));
    }
    Ok(Some(rules))
}

/// Whether an address can be reached from other machines.
/// Which listeners other machines reach without TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Insecure {
    /// ADS and LRS: every client may be any node.
    pub xds: bool,
    /// The admin API: its token is sent in plain text.
    pub admin: bool,
    /// Connections to the store: who writes there sets the demand of all services.
    pub store: bool,
}

impl Insecure {
    /// Whether there is one.
    pub const fn any(self) -> bool {
        self.xds || self.admin || self.store
    }
}

pub(super) fn is_exposed(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

#[cfg(test)]
mod tests;
