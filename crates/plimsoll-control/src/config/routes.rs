//! Listeners and routes for stock Envoys, in the words of `RouteConfiguration`.
//!
//! The part of Envoy's routing that a service mesh of one team needs: hosts, prefixes, paths and
//! weighted clusters. Everything else comes through a relay. Encoding lives in plimsoll-xds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::metadata::Metadata;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{ProtoDuration, Uint};

use super::endpoints::LbMetadataYaml;

/// One listener and its routes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Name of the listener and of its route configuration.
    pub name: Arc<str>,
    /// Where Envoys listen.
    pub address: SocketAddr,
    /// Routes, by host.
    pub virtual_hosts: Vec<VirtualHost>,
}

/// Routes of some hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHost {
    /// Its name.
    pub name: String,
    /// The hosts; `*` is any.
    pub domains: Vec<String>,
    /// The first that matches wins.
    pub routes: Vec<Route>,
}

/// One route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Which requests.
    pub matches: Match,
    /// Where to, with weights.
    pub targets: Vec<Target>,
    /// `route.metadata_match`: which hosts, in clusters with subsets.
    pub metadata_match: Option<Metadata>,
    /// `route.timeout`; zero = none.
    pub timeout: Option<Duration>,
}

/// Which requests a route takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Match {
    /// The path begins so.
    Prefix(String),
    /// The path is this.
    Path(String),
}

/// A cluster and its share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// The cluster.
    pub cluster: Arc<str>,
    /// Its share among its siblings, at least 1.
    pub weight: u32,
    /// `metadata_match`, over that of the route.
    pub metadata_match: Option<Metadata>,
}

impl Listener {
    /// Every cluster that a route leads to.
    pub fn clusters(&self) -> impl Iterator<Item = &Arc<str>> {
        let routes = self.virtual_hosts.iter().flat_map(|host| &host.routes);
        routes.flat_map(|route| route.targets.iter().map(|target| &target.cluster))
    }
}

/// A listener in a file.
#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct ListenerYaml {
    /// Name of the listener and of its route configuration.
    name: String,
    /// Where the Envoys listen, IP address and port, the same for all of them.
    address: String,
    /// Routes, by host.
    virtual_hosts: Vec<VirtualHostYaml>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct VirtualHostYaml {
    /// Its name.
    name: String,
    /// The hosts; `*` is any. Default `['*']`.
    #[serde(default = "any_domain")]
    domains: Vec<String>,
    /// The first that matches wins.
    routes: Vec<RouteYaml>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct RouteYaml {
    /// Which requests: `prefix` or `path`.
    #[serde(rename = "match")]
    matches: MatchYaml,
    /// Where to.
    route: ActionYaml,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct MatchYaml {
    /// The path begins so.
    prefix: Option<String>,
    /// The path is this.
    path: Option<String>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ActionYaml {
    /// One cluster.
    cluster: Option<String>,
    /// Several clusters, with weights.
    weighted_clusters: Option<WeightedClustersYaml>,
    /// The metadata that hosts must have, in clusters with subsets.
    #[serde(default)]
    metadata_match: LbMetadataYaml,
    /// How long an answer may take; `0s` is no limit. Default Envoy's.
    timeout: Option<ProtoDuration>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct WeightedClustersYaml {
    /// The clusters.
    clusters: Vec<ClusterWeightYaml>,
}

#[derive(Clone, Debug, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct ClusterWeightYaml {
    /// The cluster.
    name: String,
    /// Its share among its siblings, at least 1.
    weight: Uint<u32>,
    /// The metadata that its hosts must have, over that of the route.
    #[serde(default)]
    metadata_match: LbMetadataYaml,
}

fn any_domain() -> Vec<String> {
    vec!["*".to_owned()]
}

impl ListenerYaml {
    /// Checks everything; the error is relative to the listener.
    pub(super) fn checked(self) -> Result<Listener, FieldError> {
        if self.name.is_empty() {
            return Err(FieldError::new("name", "must not be empty"));
        }
        let address = self.address.parse().map_err(|_| {
            let reason = format!("{:?} is not an IP address and port", self.address);
            FieldError::new("address", reason)
        })?;
        let hosts = self.virtual_hosts.into_iter().enumerate();
        let hosts = hosts.map(|(index, host)| {
            let path = format!("virtual_hosts[{index}]");
            host.checked().map_err(|error| error.under(&path))
        });
        Ok(Listener {
            name: self.name.into(),
            address,
            virtual_hosts: hosts.collect::<Result<_, _>>()?,
        })
    }
}

impl VirtualHostYaml {
    fn checked(self) -> Result<VirtualHost, FieldError> {
        if self.domains.is_empty() {
            return Err(FieldError::new("domains", "must not be empty"));
        }
        let routes = self.routes.into_iter().enumerate().map(|(index, route)| {
            let path = format!("routes[{index}]");
            route.checked().map_err(|error| error.under(&path))
        });
        Ok(VirtualHost {
            name: self.name,
            domains: self.domains,
            routes: routes.collect::<Result<_, _>>()?,
        })
    }
}

impl RouteYaml {
    fn checked(self) -> Result<Route, FieldError> {
        let matches = match (self.matches.prefix, self.matches.path) {
            (Some(prefix), None) => Match::Prefix(prefix),
            (None, Some(path)) => Match::Path(path),
            _ => return Err(FieldError::new("match", "needs either prefix or path")),
        };
        let targets = match (self.route.cluster, self.route.weighted_clusters) {
            (Some(cluster), None) => vec![Target {
                cluster: cluster.into(),
                weight: 1,
                metadata_match: None,
            }],
            (None, Some(weighted)) => weighted.checked()?,
            _ => {
                let reason = "needs either cluster or weighted_clusters";
                return Err(FieldError::new("route", reason));
            }
        };
        Ok(Route {
            matches,
            targets,
            metadata_match: self.route.metadata_match.into_envoy_lb(),
            timeout: self.route.timeout.map(|timeout| timeout.0),
        })
    }
}

impl WeightedClustersYaml {
    fn checked(self) -> Result<Vec<Target>, FieldError> {
        let path = "route.weighted_clusters.clusters";
        if self.clusters.is_empty() {
            return Err(FieldError::new(path, "must not be empty"));
        }
        if let Some(index) = self.clusters.iter().position(|entry| entry.weight.0 == 0) {
            let path = format!("{path}[{index}].weight");
            return Err(FieldError::new(path, "must be at least 1"));
        }
        let target = |entry: ClusterWeightYaml| Target {
            cluster: entry.name.into(),
            weight: entry.weight.0,
            metadata_match: entry.metadata_match.into_envoy_lb(),
        };
        Ok(self.clusters.into_iter().map(target).collect())
    }
}
