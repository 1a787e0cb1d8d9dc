//! [`Endpoint`]: one upstream host of a cluster, by address or DNS name.

use std::net::SocketAddr;

use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::units::FieldError;
use plimsoll_xds::upstream::NamedEndpoint;

/// One upstream host: `10.0.0.1:8080`, `[::1]:8080` or a DNS name, `orders.svc:8080`.
///
/// Strings and socket addresses convert to it, so that it is needed only for the settings below.
///
/// ```
/// use plimsoll_client::{Cluster, Endpoint};
///
/// let large = Endpoint::from("10.0.0.2:8080").weight(2);
/// let cluster = Cluster::new("orders").zone("zone-a", ["10.0.0.1:8080".into(), large]);
/// # cluster.build()?;
/// # Ok::<(), plimsoll_client::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    pub(super) named: NamedEndpoint,
    pub(super) priority: u32,
    /// Why the text it was made from is no address; reported when the cluster is built.
    pub(super) error: Option<String>,
}

impl Endpoint {
    setters! {
        /// Sets the relative weight of the host; 1 by default.
        weight(weight: u32) => named.load_balancing_weight = Some(weight);
        /// Sets the health of the host, as the program knows it; usable by default.
        health(health: HealthStatus) => named.health_status = health;
        /// Sets the metadata of the host (`envoy.lb`), which forms subsets.
        metadata(metadata: Metadata) => named.metadata = metadata;
        /// Sets the priority; 0, the default, is the highest. Others serve when it lacks hosts.
        priority(priority: u32) => priority = priority;
        /// Sets the host name, for TLS and for hashing by name; a DNS name by default.
        hostname(name: &str) => named.hostname = name.into();
        /// Sets the key that hash policies place the host by, instead of its address.
        hash_key(key: &str) => named.hash_key = Some(key.into());
        /// Sets the port of active health checks, if it is not the port of requests.
        health_check_port(port: u16) => named.extras.health_check_port = Some(port);
        /// Exempts the host from active health checks: it always counts as healthy.
        without_health_checks() => named.extras.disable_active_health_check = true;
        /// Sets further addresses of the same host, which are tried in this order.
        additional_addresses(addresses: Vec<SocketAddr>) =>
            named.extras.additional_addresses = addresses;
    }

    pub(super) fn check(&self) -> Result<(), FieldError> {
        match &self.error {
            Some(reason) => Err(FieldError::new("endpoints", reason.as_str())),
            None => Ok(()),
        }
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            named: NamedEndpoint::new(address.ip().to_string(), address.port()),
            priority: 0,
            error: None,
        }
    }
}

impl From<&str> for Endpoint {
    fn from(text: &str) -> Self {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return address.into();
        }
        let (named, error) = match host_and_port(text) {
            Ok((host, port)) => (NamedEndpoint::new(host, port), None),
            Err(reason) => (NamedEndpoint::new(text, 0), Some(reason)),
        };
        Self {
            named,
            priority: 0,
            error,
        }
    }
}

impl From<String> for Endpoint {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

impl From<&String> for Endpoint {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

fn host_and_port(text: &str) -> Result<(&str, u16), String> {
    if text.contains("://") {
        return Err(format!(
            "{text:?} has a scheme; write host:port, and Cluster::tls for https"
        ));
    }
    let no_port = || format!("{text:?} has no port; write host:port");
    let (host, port) = text.rsplit_once(':').ok_or_else(no_port)?;
    let wrong = || format!("{text:?} is neither host:port nor ip:port");
    let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && !matches!(port.parse::<u16>(), Ok(1..)) {
        return Err(format!("{text:?}: the port is not in 1 to 65535"));
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    match port.parse() {
        Ok(port @ 1..) if !host.is_empty() && host.bytes().all(is_name) => Ok((host, port)),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_told_apart() {
        for (text, host, port) in [
            ("10.0.0.1:80", "10.0.0.1", 80),
            ("[::1]:8080", "::1", 8080),
            ("orders.svc:9000", "orders.svc", 9000),
        ] {
            let endpoint = Endpoint::from(text);
            endpoint.check().unwrap();
            assert_eq!((&*endpoint.named.host, endpoint.named.port), (host, port));
        }
        for wrong in [
            "orders",
            "orders:",
            ":80",
            "::1:80",
            "http://orders:80",
            "orders:0",
        ] {
            let error = Endpoint::from(wrong).check().unwrap_err();
            assert!(error.reason().contains(wrong), "{error}");
        }
        for (wrong, why) in [
            (
                "http://orders:80",
                "has a scheme; write host:port, and Cluster::tls for https",
            ),
            ("orders", "has no port; write host:port"),
            ("10.0.0.1:99999", "the port is not in 1 to 65535"),
            ("orders:0", "the port is not in 1 to 65535"),
        ] {
            let error = Endpoint::from(wrong).check().unwrap_err();
            assert!(error.reason().contains(why), "{error}");
        }
    }
}
