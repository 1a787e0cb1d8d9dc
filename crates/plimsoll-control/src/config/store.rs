//! The store that replicas of the control plane share.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoDuration;
use serde::Deserialize;

use super::security::{RelayTls, RelayTlsYaml};

/// Default time after which the records of a replica that is gone expire. Longer than an Envoy
/// needs to report to another replica: it retries a broken load reporting stream every 5 s.
pub(crate) const DEFAULT_LEASE_TTL: Duration = Duration::from_secs(30);
/// Range of the time to live of a lease. Shorter ones expire while etcd elects a leader.
const LEASE_TTL: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(5)..=Duration::from_secs(3600);
const DEFAULT_PREFIX: &str = "/plimsoll";
const DEFAULT_MAX_BYTES: u64 = 512 << 20;
const MAX_BYTES: std::ops::RangeInclusive<u64> = 16 << 20..=8 << 30;

/// The store that replicas share.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct StoreYaml {
    /// A cluster of etcd, version 3.4 or later.
    etcd: EtcdYaml,
}

/// A cluster of etcd.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct EtcdYaml {
    /// Addresses of its members as `host:port`. One is used at a time.
    endpoints: Vec<String>,
    /// Certificates for connections to the members. Default none: plain text, which needs
    /// `insecure: true` unless the members are on this machine.
    tls: Option<RelayTlsYaml>,
    /// Start of all keys, so that several control planes can share a cluster. Default `/plimsoll`.
    /// Compaction is not limited to it: it concerns all users of the cluster.
    prefix: Option<String>,
    /// Time after which the nodes of a replica that is gone do not count any more, unless they
    /// report to another replica, 5s to 3600s. Default `30s`.
    lease_ttl: Option<ProtoDuration>,
    /// Interval at which revisions older than the interval are removed from the history of etcd, of
    /// all its users and not only of `prefix`. Set it, for example to `300s`, for an etcd of its
    /// own that does not compact its history itself, which else grows without bound. Default `0s`:
    /// off.
    compaction_interval: Option<ProtoDuration>,
    /// Bytes of etcd that control planes may use, 16 MiB to 8 GiB: clearly below its quota, beyond
    /// which it refuses all writes of all its users. Records take at most a quarter, divided by
    /// the number of proxies; a replica writes a 256th per second; and with `compaction_interval`
    /// the history is compacted after a sixteenth, too. Default 536870912.
    max_bytes: Option<u64>,
}

/// Settings of the store that replicas share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Addresses of the members of etcd as `host:port`.
    pub endpoints: Vec<String>,
    /// `None` for plain text.
    pub tls: Option<Arc<RelayTls>>,
    /// Start of all keys, without a slash at the end.
    pub prefix: String,
    pub lease_ttl: Duration,
    /// `None` if the history of etcd is not compacted.
    pub compaction_interval: Option<Duration>,
    /// Bytes of etcd that all replicas may use together.
    pub max_bytes: u64,
}

impl StoreYaml {
    pub(super) fn validate(&self) -> Result<Store, FieldError> {
        self.etcd
            .validate()
            .map_err(|error| error.under("store.etcd"))
    }
}

impl Store {
    /// Returns the most bytes of the record of a proxy, if there are so many.
    pub(crate) fn max_record(&self, nodes: usize) -> usize {
        let each = self.max_bytes / 4 / (nodes as u64).max(1);
        usize::try_from(each).unwrap_or(usize::MAX)
    }

    #[cfg(feature = "etcd")]
    /// Returns how long a replica pauses after it has written so many bytes.
    pub(crate) fn pause_after(&self, bytes: usize) -> Duration {
        Duration::from_secs(1).mul_f64(bytes as f64 * 256.0 / self.max_bytes as f64)
    }

    #[cfg(feature = "etcd")]
    /// Returns the bytes of history after which it is compacted.
    pub(crate) const fn max_history(&self) -> u64 {
        self.max_bytes / 16
    }

    /// Whether records are sent to other machines in plain text.
    pub(crate) fn is_exposed(&self) -> bool {
        self.tls.is_none() && !self.endpoints.iter().all(|endpoint| is_local(endpoint))
    }
}

/// Whether `host:port` is this machine.
fn is_local(endpoint: &str) -> bool {
    let host = endpoint
        .rsplit_once(':')
        .map_or(endpoint, |(host, _)| host)
        .trim_start_matches('[')
        .trim_end_matches(']');
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

impl EtcdYaml {
    fn validate(&self) -> Result<Store, FieldError> {
        if cfg!(not(feature = "etcd")) {
            let reason = "this build has no etcd client: build it with the Cargo feature etcd";
            return Err(FieldError::new("endpoints", reason));
        }
        if self.endpoints.is_empty() {
            return Err(FieldError::new("endpoints", "is empty"));
        }
        for (index, endpoint) in self.endpoints.iter().enumerate() {
            let parts = endpoint.rsplit_once(':');
            let is_valid = parts.is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|p| p > 0)
            });
            if !is_valid {
                let reason = format!("{endpoint:?} is not host:port");
                return Err(FieldError::new(format!("endpoints[{index}]"), reason));
            }
        }
        let tls = self.tls.as_ref().map(RelayTlsYaml::validate).transpose();
        let tls = tls.map_err(|error| error.under("tls"))?;
        let prefix = self.prefix.as_deref().unwrap_or(DEFAULT_PREFIX);
        if !prefix.starts_with('/') || prefix.len() > 256 || prefix.trim_matches('/').is_empty() {
            let reason = "must start with / and have 2 to 256 bytes";
            return Err(FieldError::new("prefix", reason));
        }
        let lease_ttl = self.lease_ttl.map_or(DEFAULT_LEASE_TTL, |ttl| ttl.0);
        if !LEASE_TTL.contains(&lease_ttl) {
            let reason = format!("{lease_ttl:?} is outside 5 s to 1 h");
            return Err(FieldError::new("lease_ttl", reason));
        }
        let max_bytes = self.max_bytes.unwrap_or(DEFAULT_MAX_BYTES);
        if !MAX_BYTES.contains(&max_bytes) {
            let reason = format!("{max_bytes} is outside 16777216 to 8589934592");
            return Err(FieldError::new("max_bytes", reason));
        }
        let compaction = self.compaction_interval.map(|interval| interval.0);
        Ok(Store {
            endpoints: self.endpoints.clone(),
            tls: tls.map(Arc::new),
            prefix: prefix.trim_end_matches('/').to_owned(),
            lease_ttl,
            compaction_interval: compaction.filter(|interval| !interval.is_zero()),
            max_bytes,
        })
    }
}

#[cfg(all(test, feature = "etcd"))]
mod tests {
    use super::*;
    use crate::config::{ConfigFile, ControlConfig};

    fn store(text: &str) -> Result<Store, String> {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!("store: {{etcd: {text}}}"),
        };
        let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
        Ok(config.store.expect("there is a store"))
    }

    #[test]
    fn the_space_is_divided_between_records_writes_and_history() {
        let of = |bytes: u64| {
            store(&format!(
                "{{endpoints: ['127.0.0.1:1'], max_bytes: {bytes}}}"
            ))
        };
        let store = of(48 << 20).unwrap();
        assert_eq!(store.max_record(0), 12 << 20);
        assert_eq!(store.max_record(12 << 10), 1024);
        assert_eq!(store.max_history(), 3 << 20);
        assert_eq!(store.pause_after(48 << 12), Duration::from_secs(1));
        assert_eq!(store.pause_after(0), Duration::ZERO);
        for outside in [(16 << 20) - 1, (8 << 30) + 1] {
            let error = of(outside).unwrap_err();
            assert!(error.contains("store.etcd.max_bytes: "), "{error}");
        }
        of(16 << 20).unwrap();
        of(8 << 30).unwrap();
    }

    #[test]
    fn a_store_needs_endpoints_only() {
        let store = store("{endpoints: ['localhost:2379', '[::1]:2379']}").unwrap();
        assert_eq!(store.endpoints, ["localhost:2379", "[::1]:2379"]);
        assert_eq!(store.prefix, "/plimsoll");
        assert_eq!(store.lease_ttl, Duration::from_secs(30));
        // It would remove the history of other users of the cluster.
        assert_eq!(store.compaction_interval, None);
        assert_eq!(store.tls, None);
    }

    #[test]
    fn every_field_is_read() {
        let written = store(
            "{endpoints: ['localhost:1'], prefix: /x/y/, lease_ttl: 5s, compaction_interval: 300s, \
             tls: {ca: ca.pem}}",
        )
        .unwrap();
        assert_eq!(written.prefix, "/x/y");
        assert_eq!(written.lease_ttl, Duration::from_secs(5));
        assert_eq!(written.compaction_interval, Some(Duration::from_secs(300)));
        assert!(written.tls.is_some());
        let store = store("{endpoints: ['localhost:1'], compaction_interval: 0s}").unwrap();
        assert_eq!(store.compaction_interval, None);
    }

    #[test]
    fn a_store_on_other_machines_needs_tls_or_consent() {
        for (endpoints, exposed) in [
            ("['127.0.0.1:1', 'localhost:1', '[::1]:1']", false),
            ("['127.0.0.1:1', 'etcd:1']", true),
            ("['10.0.0.1:1']", true),
            ("['localhost.example:1']", true),
        ] {
            let check = |more: &str, file: &str| {
                let file = ConfigFile {
                    name: "control.yaml".to_owned(),
                    text: format!("{{store: {{etcd: {{endpoints: {endpoints}{more}}}}}{file}}}"),
                };
                let config = ControlConfig::parse(&file, &[]);
                let is_exposed = config.map(|config| config.insecure_listeners().store);
                is_exposed.map_err(|error| error.to_string())
            };
            match check("", "") {
                Ok(shown) => assert!(!exposed && !shown, "{endpoints}"),
                Err(error) => assert!(exposed && error.contains("store.etcd: "), "{error}"),
            }
            assert_eq!(check("", ", insecure: true"), Ok(exposed));
            assert_eq!(check(", tls: {ca: ca.pem}", ""), Ok(false));
        }
    }

    #[test]
    fn a_prefix_has_at_most_256_bytes() {
        let with = |bytes: usize| {
            let prefix = "x".repeat(bytes - 1);
            store(&format!(
                "{{endpoints: ['localhost:1'], prefix: /{prefix}}}"
            ))
        };
        assert_eq!(with(256).unwrap().prefix.len(), 256);
        let error = with(257).unwrap_err();
        assert!(error.contains("store.etcd.prefix: must start with /"));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, part) in [
            ("{endpoints: []}", "store.etcd.endpoints: is empty"),
            (
                "{endpoints: [a]}",
                "store.etcd.endpoints[0]: \"a\" is not host:port",
            ),
            (
                "{endpoints: ['localhost:1', 'http://b:1']}",
                "store.etcd.endpoints[1]",
            ),
            ("{endpoints: ['a:0']}", "store.etcd.endpoints[0]"),
            ("{endpoints: [':1']}", "store.etcd.endpoints[0]"),
            (
                "{endpoints: ['localhost:1'], prefix: x}",
                "store.etcd.prefix",
            ),
            (
                "{endpoints: ['localhost:1'], prefix: //}",
                "store.etcd.prefix",
            ),
            (
                "{endpoints: ['localhost:1'], lease_ttl: 4s}",
                "store.etcd.lease_ttl",
            ),
            (
                "{endpoints: ['localhost:1'], tls: {ca: a, certificate: b}}",
                "store.etcd.tls.certificate",
            ),
        ] {
            let error = store(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
