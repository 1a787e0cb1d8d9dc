//! Route configurations to bytes. Called through `wire`.
//!
//! The part of Envoy's message that clusters of endpoints need: hosts, paths, one or several
//! clusters, a timeout, retries. Reading route configurations is in `route_in`.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::metadata::Metadata;
use prost::Message;

use super::metadata::metadata;
use super::pb::route::{
    ClusterWeightMessage, RetryPolicyMessage, RouteActionMessage, RouteConfigurationMessage,
    RouteMatchMessage, RouteMessage, VirtualHostMessage, WeightedClusterMessage,
};

/// `RouteConfiguration`, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteOut {
    /// Its name.
    pub name: String,
    /// Who is asked for.
    pub virtual_hosts: Vec<VirtualHostOut>,
}

/// `VirtualHost`, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHostOut {
    /// Its name, unique in the configuration.
    pub name: String,
    /// Authorities it answers to; `*` is all.
    pub domains: Vec<String>,
    /// The first match wins.
    pub routes: Vec<RouteEntryOut>,
}

/// `Route`, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteEntryOut {
    /// Which requests.
    pub path: PathMatch,
    /// Where to.
    pub target: RouteTarget,
    /// `metadata_match`: which hosts, where the cluster has subsets.
    pub metadata_match: Option<Metadata>,
    /// `timeout`; zero is none at all, unset is Envoy's 15 s.
    pub timeout: Option<Duration>,
    /// Retries.
    pub retry: Option<RetryOut>,
}

/// `RouteMatch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// Paths that start so; empty matches everything, also for gRPC.
    Prefix(String),
    /// This path.
    Path(String),
    /// Whole segments of a path.
    PathSeparatedPrefix(String),
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// One cluster.
    Cluster(String),
    /// Several, by weight; the sum must be above 0.
    Weighted(Vec<ClusterWeightOut>),
}

/// `WeightedCluster.ClusterWeight`, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterWeightOut {
    /// Name of the cluster.
    pub name: String,
    /// Its share of the sum.
    pub weight: u32,
    /// `metadata_match`, over that of the route.
    pub metadata_match: Option<Metadata>,
}

/// `RetryPolicy`, to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryOut {
    /// Conditions, for example `connect-failure,refused-stream`.
    pub retry_on: String,
    /// How often.
    pub num_retries: u32,
}

/// Writes a route configuration.
pub fn encode_route_configuration(route: &RouteOut) -> Bytes {
    let message = RouteConfigurationMessage {
        name: route.name.clone(),
        virtual_hosts: route.virtual_hosts.iter().map(virtual_host).collect(),
        ..Default::default()
    };
    message.encode_to_vec().into()
}

fn virtual_host(host: &VirtualHostOut) -> VirtualHostMessage {
    VirtualHostMessage {
        name: host.name.clone(),
        domains: host.domains.clone(),
        routes: host.routes.iter().map(entry).collect(),
        ..Default::default()
    }
}

fn entry(entry: &RouteEntryOut) -> RouteMessage {
    let mut route_match = RouteMatchMessage::default();
    match &entry.path {
        PathMatch::Prefix(prefix) => route_match.prefix = Some(prefix.clone()),
        PathMatch::Path(path) => route_match.path = Some(path.clone()),
        PathMatch::PathSeparatedPrefix(prefix) => {
            route_match.path_separated_prefix = Some(prefix.clone());
        }
    }
    let mut route = RouteActionMessage {
        metadata_match: entry.metadata_match.as_ref().map(metadata),
        timeout: entry.timeout.map(Into::into),
        retry_policy: entry.retry.as_ref().map(|retry| RetryPolicyMessage {
            retry_on: retry.retry_on.clone(),
            num_retries: Some(retry.num_retries),
            ..Default::default()
        }),
        ..Default::default()
    };
    match &entry.target {
        RouteTarget::Cluster(name) => route.cluster = Some(name.clone()),
        RouteTarget::Weighted(clusters) => {
            let clusters = clusters.iter().map(|cluster| ClusterWeightMessage {
                name: cluster.name.clone(),
                weight: Some(cluster.weight),
                metadata_match: cluster.metadata_match.as_ref().map(metadata),
                ..Default::default()
            });
            route.weighted_clusters = Some(WeightedClusterMessage {
                clusters: clusters.collect(),
            });
        }
    }
    RouteMessage {
        route_match: Some(route_match),
        route: Some(route),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::convert::hex::message;

    fn route(path: PathMatch, target: RouteTarget) -> RouteEntryOut {
        RouteEntryOut {
            path,
            target,
            metadata_match: None,
            timeout: None,
            retry: None,
        }
    }

    #[test]
    fn routes_are_written_as_others_write_them() {
        let cluster = || RouteTarget::Cluster("c".into());
        let weight = |name: &str, weight| ClusterWeightOut {
            name: name.into(),
            weight,
            metadata_match: None,
        };
        let weighted = RouteTarget::Weighted(vec![weight("a", 1), weight("b", 3)]);
        let first = RouteEntryOut {
            timeout: Some(Duration::from_millis(500)),
            retry: Some(RetryOut {
                retry_on: "connect-failure".into(),
                num_retries: 2,
            }),
            ..route(PathMatch::Prefix(String::new()), cluster())
        };
        let host = VirtualHostOut {
            name: "v".into(),
            domains: vec!["*".into()],
            routes: vec![
                first,
                route(PathMatch::Path("/x".into()), weighted),
                route(PathMatch::PathSeparatedPrefix("/y".into()), cluster()),
            ],
        };
        let out = RouteOut {
            name: "rc".into(),
            virtual_hosts: vec![host],
        };
        assert_eq!(encode_route_configuration(&out), message("route"));
    }
}
