//! `peer-xds-server PORT NODE FILE`: serves the clusters of a file to one node with the crate
//! `xds-server`, until it is killed. That crate implements discovery; this file only reads the
//! configuration. The server responds to requests and does not push.
//!
//! The file has a `version` and `services`, each with a `name` and the addresses of its hosts by
//! zone (`zones`).

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use prost::Message;
use prost_types::Any;
use serde::Deserialize;
use xds_cache::{Cache, ShardedCache, Snapshot};
use xds_core::{BoxResource, NodeHash, Resource, TypeUrl};
use xds_server::XdsServerBuilder;
use xds_types::envoy::config::cluster::v3::{Cluster, cluster};
use xds_types::envoy::config::core::v3::{
    Address, AggregatedConfigSource, ApiVersion, ConfigSource, Locality, SocketAddress, address,
    config_source, socket_address,
};
use xds_types::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints, lb_endpoint,
};
use xds_types::google::protobuf::UInt32Value;

/// Service with its hosts by zone.
#[derive(Deserialize)]
struct Service {
    name: String,
    zones: BTreeMap<String, Vec<SocketAddr>>,
}

#[derive(Deserialize)]
struct File {
    version: String,
    services: Vec<Service>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let mut next = || args.next().context("peer-xds-server PORT NODE FILE");
    let (port, node, path) = (next()?.parse()?, next()?, next()?);
    let file: File = serde_json::from_slice(&std::fs::read(path)?)?;

    let cache = Arc::new(ShardedCache::new());
    let clusters = file.services.iter().map(|service| {
        let cluster = cluster_of(service);
        boxed(TypeUrl::CLUSTER, &service.name, &cluster)
    });
    let assignments = file.services.iter().map(|service| {
        let assignment = assignment_of(service);
        boxed(TypeUrl::ENDPOINT, &service.name, &assignment)
    });
    let snapshot = Snapshot::builder()
        .version(file.version.as_str())
        .resources(TypeUrl::new(TypeUrl::CLUSTER), clusters)
        .resources(TypeUrl::new(TypeUrl::ENDPOINT), assignments)
        .build();
    cache.set_snapshot(NodeHash::from_id(&node), snapshot);

    let server = XdsServerBuilder::new()
        .cache(cache)
        .enable_sotw()
        .enable_delta()
        .build()?;
    server
        .serve(SocketAddr::from(([127, 0, 0, 1], port)))
        .await?;
    Ok(())
}

/// Encoded resource of the cache.
#[derive(Debug)]
struct Encoded {
    name: String,
    any: Any,
}

impl Resource for Encoded {
    fn type_url(&self) -> &str {
        &self.any.type_url
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn encode(&self) -> Result<Any, Box<dyn Error + Send + Sync>> {
        Ok(self.any.clone())
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

fn boxed(type_url: &str, name: &str, message: &impl Message) -> BoxResource {
    Arc::new(Encoded {
        name: name.to_owned(),
        any: Any {
            type_url: type_url.to_owned(),
            value: message.encode_to_vec(),
        },
    })
}

fn cluster_of(service: &Service) -> Cluster {
    let ads = ConfigSource {
        resource_api_version: ApiVersion::V3.into(),
        config_source_specifier: Some(config_source::ConfigSourceSpecifier::Ads(
            AggregatedConfigSource {},
        )),
        ..ConfigSource::default()
    };
    Cluster {
        name: service.name.clone(),
        cluster_discovery_type: Some(cluster::ClusterDiscoveryType::Type(
            cluster::DiscoveryType::Eds.into(),
        )),
        eds_cluster_config: Some(cluster::EdsClusterConfig {
            eds_config: Some(ads),
            ..cluster::EdsClusterConfig::default()
        }),
        ..Cluster::default()
    }
}

fn assignment_of(service: &Service) -> ClusterLoadAssignment {
    let localities = service
        .zones
        .iter()
        .map(|(zone, hosts)| LocalityLbEndpoints {
            locality: Some(Locality {
                region: "r1".to_owned(),
                zone: zone.clone(),
                sub_zone: String::new(),
            }),
            load_balancing_weight: Some(UInt32Value { value: 1 }),
            lb_endpoints: hosts.iter().map(endpoint_of).collect(),
            ..LocalityLbEndpoints::default()
        });
    ClusterLoadAssignment {
        cluster_name: service.name.clone(),
        endpoints: localities.collect(),
        ..ClusterLoadAssignment::default()
    }
}

fn endpoint_of(host: &SocketAddr) -> LbEndpoint {
    let socket = SocketAddress {
        address: host.ip().to_string(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(host.port().into())),
        ..SocketAddress::default()
    };
    LbEndpoint {
        host_identifier: Some(lb_endpoint::HostIdentifier::Endpoint(Endpoint {
            address: Some(Address {
                address: Some(address::Address::SocketAddress(socket)),
            }),
            ..Endpoint::default()
        })),
        ..LbEndpoint::default()
    }
}
