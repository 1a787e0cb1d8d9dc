//! Services from SRV records: which names are looked up, and defaults for their clusters.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoDuration;
use serde::Deserialize;

use super::cost::CostYaml;
use super::discovered::{self, ServiceDefaults, source_section};

source_section! {
/// Services from SRV records, which are looked up again when they expire, at least every minute.
/// The settings are those of all clusters; a service of a file with the same name replaces the one
/// that is found.
DnsYaml as "dns" {
    /// Addresses of DNS servers, `IP:port`. Default those in `/etc/resolv.conf`.
    servers: Vec<String>,
    /// Names with SRV records; several with one `cluster` are its zones.
    names: Vec<SrvNameYaml>,
    /// How long endpoints stay whose name has no records any more, or does not exist. Others that
    /// are no longer among the records go at once. Default `300s`.
    removal_delay: Option<ProtoDuration>,
}
}

/// A name with SRV records.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct SrvNameYaml {
    /// The name, such as `_orders._tcp.zone-a.example.com`.
    name: String,
    /// Cluster of its endpoints.
    cluster: String,
    /// Region of its endpoints, as in the proxies' `node.locality`. Default empty.
    #[serde(default)]
    region: String,
    /// Zone of its endpoints. Default empty: they are in no zone.
    #[serde(default)]
    zone: String,
}

/// Which names are looked up, and with which settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Dns {
    /// Those of the machine if empty.
    pub servers: Vec<SocketAddr>,
    pub names: Vec<SrvName>,
    pub defaults: ServiceDefaults,
    pub removal_delay: Duration,
}

/// A name with SRV records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SrvName {
    pub name: String,
    pub cluster: String,
    pub locality: Locality,
}

impl DnsYaml {
    pub(super) fn validate(&self, cost: &CostYaml) -> Result<Dns, FieldError> {
        let server = |(index, written): (usize, &String)| {
            let parsed = written.parse::<SocketAddr>();
            parsed.map_err(|_| {
                let reason = format!("{written:?} is not an IP address and a port");
                FieldError::new(format!("servers[{index}]"), reason)
            })
        };
        Ok(Dns {
            servers: self
                .servers
                .iter()
                .enumerate()
                .map(server)
                .collect::<Result<_, _>>()?,
            names: self.names()?,
            defaults: self.defaults(cost)?,
            removal_delay: discovered::removal_delay(self.removal_delay),
        })
    }

    fn names(&self) -> Result<Vec<SrvName>, FieldError> {
        if self.names.is_empty() {
            return Err(FieldError::new("names", "must not be empty"));
        }
        let mut known = BTreeSet::new();
        let mut names = Vec::new();
        for (index, written) in self.names.iter().enumerate() {
            let error = |field: &str, reason: &str| {
                Err(FieldError::new(format!("names[{index}].{field}"), reason))
            };
            if !crate::sources::dns::is_name(&written.name) {
                return error("name", "is not a domain name");
            }
            if written.cluster.is_empty() {
                return error("cluster", "must not be empty");
            }
            if !known.insert((&written.name, &written.cluster)) {
                return error("name", "is already listed for the cluster");
            }
            names.push(SrvName {
                name: written.name.clone(),
                cluster: written.cluster.clone(),
                locality: Locality::new(&written.region, &written.zone, ""),
            });
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::config::{ConfigFile, ControlConfig, Mode};

    fn parse(text: &str) -> Result<Dns, String> {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!("dns: {text}"),
        };
        let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
        Ok(config.sources.dns.expect("there is a section"))
    }

    #[test]
    fn names_have_a_cluster_and_a_zone() {
        let dns = parse(
            "{servers: ['127.0.0.1:53', '[::1]:5353'], mode: ENFORCE, removal_delay: 9s, names: \
             [{name: _a._tcp.x.example, cluster: a, region: r, zone: x}, \
             {name: _a._tcp.y.example, cluster: a}]}",
        )
        .unwrap();
        assert_eq!(dns.servers[1], "[::1]:5353".parse().unwrap());
        assert_eq!(dns.names[0].locality, Locality::new("r", "x", ""));
        assert_eq!(dns.names[1].locality, Locality::default());
        assert_eq!(dns.removal_delay, Duration::from_secs(9));
        let service = dns.defaults.service("a", false, &Map::new()).unwrap();
        assert_eq!(service.mode, Mode::Enforce);
        let plain = parse("{names: [{name: _a._tcp.example, cluster: a}]}").unwrap();
        assert!(plain.servers.is_empty());
        let service = plain.defaults.service("a", false, &Map::new()).unwrap();
        assert_eq!(service.mode, Mode::Shadow);
    }

    #[test]
    fn errors_name_the_field() {
        let name = "{name: _a._tcp.example, cluster: a}";
        let long = "x".repeat(64);
        for (text, part) in [
            ("{}", "dns.names: must not be empty"),
            (
                &*format!("{{servers: [localhost], names: [{name}]}}"),
                "dns.servers[0]: \"localhost\"",
            ),
            (
                &*format!("{{names: [{{name: {long}, cluster: a}}]}}"),
                "dns.names[0].name: is not a domain",
            ),
            (
                "{names: [{name: '', cluster: a}]}",
                "dns.names[0].name: is not a domain",
            ),
            ("{names: [{name: a, cluster: ''}]}", "dns.names[0].cluster"),
            (
                &*format!("{{names: [{name}, {name}]}}"),
                "dns.names[1].name: is already listed",
            ),
            (
                &*format!("{{names: [{name}], cluster: {{name: x}}}}"),
                "dns.cluster.name",
            ),
            ("{nams: []}", "dns.nams"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let relayed = format!("{{names: [{name}]}}\nrelay: {{address: 'a:1'}}");
        let error = parse(&relayed).unwrap_err();
        assert!(
            error.contains("dns: cannot be combined with relay"),
            "{error}"
        );
    }
}
