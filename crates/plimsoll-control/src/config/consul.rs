//! Services of Consul: where the agent is, what is read from it, and defaults for what is found.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_consul::{Consistency, ConsulAccess, Datacenter, MergeOptions};
use plimsoll_core::units::FieldError;
use plimsoll_serve::http_client::HttpServer;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, ProtoEnum, Uint};
use serde::Deserialize;

use super::cost::CostYaml;
use super::discovered::{self, ServiceDefaults, check_cluster_name, source_section};
use super::security::RelayTlsYaml;

const DEFAULT_ADDRESS: &str = "http://127.0.0.1:8500";
const DEFAULT_CLUSTER_NAME: &str = "{service}";
const PLACEHOLDERS: [&str; 1] = ["{service}"];
const DEFAULT_ZONE_META: &str = "zone";
const DEFAULT_MAX_STALE: Duration = Duration::from_secs(10);
const DEFAULT_WAIT: Duration = Duration::from_secs(60);
/// Consul limits a query to 10 minutes.
const WAIT: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(600);
/// Half of what an agent allows a client (`http_max_conns_per_client`).
const DEFAULT_MAX_CONNECTIONS: u32 = 100;

source_section! {
/// Services of Consul, one cluster for each. The settings are those of all clusters; a service of a
/// file with the same name replaces the one that is found.
ConsulYaml as "consul" {
    /// URL of the agent. Default `http://127.0.0.1:8500`.
    address: Option<String>,
    /// Certificates for connections to the agent; needed for `https`.
    tls: Option<RelayTlsYaml>,
    /// File with an ACL token with the rights `service:read` and `node:read`, which is read for
    /// every request. Default none.
    token_file: Option<PathBuf>,
    /// Datacenters whose services are used. A service that several have is one cluster with
    /// endpoints in several regions. Default that of the agent.
    datacenters: Vec<DatacenterYaml>,
    /// Which server answers: any (`STALE`), the leader (`DEFAULT`), or the leader after it has
    /// asked a majority (`CONSISTENT`). Default `STALE`.
    consistency: Named<ConsistencyName>,
    /// Age from which a stale answer is asked for again, from the leader. Default `10s`.
    max_stale: Option<ProtoDuration>,
    /// Tags that services and their instances must have. Default none.
    tags: Vec<String>,
    /// Key of the metadata of an instance, or else of its node, with its zone. Default `zone`.
    zone_meta: Option<String>,
    /// What a tag starts with that has the zone of an instance without such metadata, for example
    /// `zone=`. Default none.
    zone_tag: Option<String>,
    /// Zone of instances that have none. Default empty: they are in no zone.
    fallback_zone: String,
    /// Name of the cluster of a service, with `{service}`. Default `{service}`.
    cluster_name: Option<String>,
    /// Longest time of a blocking query, 1s to 600s. An agent that hangs is found after it.
    /// Default `60s`.
    wait: Option<ProtoDuration>,
    /// Connections for the instances of services, at least 1; more services take turns of 10
    /// seconds in all. An agent allows a client 200 by default (`http_max_conns_per_client`).
    /// Default 100.
    max_connections: Option<Uint<u32>>,
    /// How long instances stay that the first answer after an outage lacks, if it lacks more than
    /// `reload.max_removed_percent` of a service, and how long a service without instances stays.
    /// Instances that are removed otherwise go at once. Default `300s`.
    removal_delay: Option<ProtoDuration>,
}
}

/// A datacenter of Consul.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct DatacenterYaml {
    /// Name of the datacenter.
    name: String,
    /// Region of its endpoints, as in the proxies' `node.locality`. Default the name.
    region: Option<String>,
}

/// Which server answers, as written in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ConsistencyName {
    #[default]
    Stale,
    Default,
    Consistent,
}

impl ProtoEnum for ConsistencyName {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("STALE", 0, Self::Stale),
        ("DEFAULT", 1, Self::Default),
        ("CONSISTENT", 2, Self::Consistent),
    ];
}

/// Which services of Consul are used, and with which settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Consul {
    pub access: ConsulAccess,
    /// One without name if the file lists none: that of the agent.
    pub datacenters: Vec<Datacenter>,
    pub consistency: Consistency,
    pub max_stale: Duration,
    pub merge: MergeOptions,
    pub cluster_name: String,
    pub defaults: ServiceDefaults,
    pub wait: Duration,
    pub max_connections: usize,
    pub removal_delay: Duration,
}

impl ConsulYaml {
    pub(super) fn validate(&self, cost: &CostYaml) -> Result<Consul, FieldError> {
        let name = self.cluster_name.as_deref().unwrap_or(DEFAULT_CLUSTER_NAME);
        check_cluster_name(name, &PLACEHOLDERS)?;
        let wait = self.wait.map_or(DEFAULT_WAIT, |time| time.0);
        if !WAIT.contains(&wait) {
            let reason = format!("{wait:?} is outside 1 s to 10 min");
            return Err(FieldError::new("wait", reason));
        }
        let written = self.max_connections;
        let connections = written.map_or(DEFAULT_MAX_CONNECTIONS, |max| max.0);
        if connections == 0 {
            return Err(FieldError::new("max_connections", "must be at least 1"));
        }
        Ok(Consul {
            access: self.access()?,
            datacenters: self.datacenters()?,
            consistency: match self.consistency.0 {
                ConsistencyName::Stale => Consistency::Stale,
                ConsistencyName::Default => Consistency::Default,
                ConsistencyName::Consistent => Consistency::Consistent,
            },
            max_stale: self.max_stale.map_or(DEFAULT_MAX_STALE, |time| time.0),
            merge: MergeOptions {
                tags: self.tags.clone(),
                zone_meta: self
                    .zone_meta
                    .clone()
                    .unwrap_or_else(|| DEFAULT_ZONE_META.to_owned()),
                zone_tag: self.zone_tag.clone(),
                fallback_zone: discovered::zone(&self.fallback_zone),
            },
            cluster_name: name.to_owned(),
            defaults: self.defaults(cost)?,
            wait,
            max_connections: connections as usize,
            removal_delay: discovered::removal_delay(self.removal_delay),
        })
    }

    fn access(&self) -> Result<ConsulAccess, FieldError> {
        let tls = self.tls.as_ref().map(RelayTlsYaml::validate).transpose();
        let tls = tls.map_err(|error| error.under("tls"))?;
        let (settings, server_name) = tls.map(|tls| (tls.settings, tls.server_name)).unzip();
        let (ca, certificate) = settings.map(|one| (one.ca, one.certificate)).unzip();
        let address = self.address.as_deref().unwrap_or(DEFAULT_ADDRESS);
        let server = HttpServer::parse(address, ca, certificate.flatten());
        let server = server.map_err(|reason| FieldError::new("address", reason))?;
        if self.tls.is_some() && server.tls.is_none() {
            return Err(FieldError::new("tls", "requires an address with https"));
        }
        Ok(ConsulAccess {
            server: HttpServer {
                server_name: server_name.flatten(),
                ..server
            },
            token_file: self.token_file.clone(),
        })
    }

    fn datacenters(&self) -> Result<Vec<Datacenter>, FieldError> {
        let mut names = BTreeSet::new();
        for (index, DatacenterYaml { name, .. }) in self.datacenters.iter().enumerate() {
            let error = |reason| {
                let path = format!("datacenters[{index}].name");
                Err(FieldError::new(path, reason))
            };
            if name.is_empty() {
                return error("must not be empty");
            }
            if !names.insert(name) {
                return error("is already listed");
            }
        }
        let read = |written: &DatacenterYaml| Datacenter {
            name: Some(written.name.clone()),
            region: written.region.clone(),
        };
        let mut datacenters: Vec<_> = self.datacenters.iter().map(read).collect();
        if datacenters.is_empty() {
            datacenters.push(Datacenter {
                name: None,
                region: None,
            });
        }
        Ok(datacenters)
    }
}

impl Consul {
    /// Returns the name of the cluster of a service.
    pub fn name(&self, service: &str) -> String {
        self.cluster_name.replace("{service}", service)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::config::{ConfigFile, ControlConfig, Mode};

    fn parse(text: &str) -> Result<Consul, String> {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: format!("consul: {text}"),
        };
        let config = ControlConfig::parse(&file, &[]).map_err(|error| error.to_string())?;
        Ok(config.sources.consul.expect("there is a section"))
    }

    #[test]
    fn an_empty_section_measures_all_services_of_the_local_agent() {
        let consul = parse("{}").unwrap();
        assert_eq!(consul.access.server.authority(), "127.0.0.1:8500");
        let own = Datacenter {
            name: None,
            region: None,
        };
        assert_eq!(consul.datacenters, [own]);
        assert_eq!(consul.consistency, Consistency::Stale);
        assert_eq!(consul.name("orders"), "orders");
        assert_eq!(consul.merge.zone_meta, "zone");
        let service = consul.defaults.service("orders", false, &Map::new());
        assert_eq!(service.unwrap().mode, Mode::Shadow);
    }

    #[test]
    fn every_field_is_read() {
        let consul = parse(
            "{address: 'https://consul:8501/prefix', tls: {ca: ca.pem, server_name: s}, \
             token_file: t, datacenters: [{name: dc1}, {name: dc2, region: eu}], \
             consistency: CONSISTENT, max_stale: 1s, tags: [a], zone_meta: z, zone_tag: 'z=', \
             fallback_zone: f, cluster_name: 'c-{service}', mode: ENFORCE, ramp: 5, \
             delivery: LRS_RESPONSE, cluster: {connect_timeout: 3s}, wait: 9s, \
             max_connections: 7, removal_delay: 8s}",
        )
        .unwrap();
        let server = &consul.access.server;
        assert_eq!(server.server_name.as_deref(), Some("s"));
        assert!(server.tls.is_some());
        assert_eq!(server.path_prefix, "/prefix");
        assert_eq!(consul.access.token_file, Some("t".into()));
        assert_eq!(consul.datacenters[0].region, None);
        assert_eq!(consul.datacenters[1].region.as_deref(), Some("eu"));
        assert_eq!(consul.consistency, Consistency::Consistent);
        assert_eq!(consul.max_stale, Duration::from_secs(1));
        let merge = MergeOptions {
            tags: vec!["a".to_owned()],
            zone_meta: "z".to_owned(),
            zone_tag: Some("z=".to_owned()),
            fallback_zone: Some("f".into()),
        };
        assert_eq!(consul.merge, merge);
        assert_eq!(consul.name("x"), "c-x");
        let service = consul.defaults.service("x", false, &Map::new()).unwrap();
        assert_eq!((service.mode, service.ramp), (Mode::Enforce, 5));
        assert_eq!(consul.wait, Duration::from_secs(9));
        assert_eq!(consul.max_connections, 7);
        assert_eq!(consul.removal_delay, Duration::from_secs(8));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, part) in [
            ("{address: 'a:1'}", "consul.address"),
            ("{address: 'https://a'}", "consul.address: https needs"),
            (
                "{tls: {ca: a}}",
                "consul.tls: requires an address with https",
            ),
            ("{datacenters: [{name: ''}]}", "consul.datacenters[0].name"),
            (
                "{datacenters: [{name: a}, {name: a}]}",
                "consul.datacenters[1].name: is already listed",
            ),
            ("{consistency: BEST}", "consul.consistency"),
            ("{cluster_name: x}", "lacks {service}"),
            ("{cluster_name: '{service}.{dc}'}", "unknown placeholder"),
            (
                "{cluster: {name: x}}",
                "consul.cluster.name: must not be set: consul.cluster_name has the name",
            ),
            ("{wait: 0s}", "consul.wait"),
            ("{max_connections: 0}", "consul.max_connections"),
            ("{modes: OFF}", "consul.modes"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        let error = parse("{}\nrelay: {address: 'a:1'}").unwrap_err();
        assert!(
            error.contains("consul: cannot be combined with relay"),
            "{error}"
        );
    }
}
