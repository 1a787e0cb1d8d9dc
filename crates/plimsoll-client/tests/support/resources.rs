//! Encoded xDS resources of test servers.

use std::net::SocketAddr;

use bytes::Bytes;
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::message::{Any, DeltaDiscoveryResponse, DeltaResource, DiscoveryResponse};
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION, Variant};
use plimsoll_xds::pb::route::RouteConfigurationMessage;
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::{self, AssignmentOut, ClusterOut, LocalityDelivery, LocalityOut};
use plimsoll_xds::yaml::{Document, parse_cluster};

/// A resource: type, name and body.
pub(crate) type Made = (&'static str, String, Bytes);

/// A listener whose routes have the name `routes`.
pub(crate) fn listener(name: &str, routes: &str) -> Made {
    let body = wire::encode_api_listener(name, routes);
    (LISTENER, name.to_owned(), body)
}

/// Routes that send all requests to `cluster`.
pub(crate) fn routes(name: &str, cluster: &str) -> Made {
    let route = format!("{{match: {{prefix: ''}}, route: {{cluster: '{cluster}'}}}}");
    routed(name, &[&route])
}

/// Routes for every host, in YAML.
pub(crate) fn routed(name: &str, routes: &[&str]) -> Made {
    let routes = routes.join(", ");
    let text = format!(
        "{{name: '{name}', virtual_hosts: [{{name: all, domains: ['*'], routes: [{routes}]}}]}}"
    );
    let written: FileMessage<RouteConfigurationMessage> =
        Document::parse(&text).unwrap().read().unwrap();
    (
        ROUTE_CONFIGURATION,
        name.to_owned(),
        written.bytes().clone(),
    )
}

/// A cluster with `lrs_server` and further lines of YAML.
pub(crate) fn cluster(name: &str, more: &str) -> Made {
    let config = parse_cluster(&format!("name: {name}\n{more}")).unwrap();
    let mut out = ClusterOut::new(&config, LocalityDelivery::AsConfigured);
    out.load_reporting = true;
    (CLUSTER, name.to_owned(), wire::encode_cluster(&out))
}

/// An assignment with endpoints by zone.
pub(crate) fn assignment(name: &str, zones: &[(&str, &[SocketAddr])]) -> Made {
    let localities = zones.iter().map(|(zone, addresses)| LocalityOut {
        locality: Locality::zone_only(zone),
        load_balancing_weight: Some(1),
        endpoints: addresses.iter().copied().map(LbEndpoint::new).collect(),
        ..LocalityOut::default()
    });
    let body = wire::encode_assignment(&AssignmentOut {
        cluster_name: name.into(),
        localities: localities.collect(),
        ..AssignmentOut::default()
    });
    (CLUSTER_LOAD_ASSIGNMENT, name.to_owned(), body)
}

/// All resources of the target `xds:///name`.
pub(crate) fn whole(name: &str, zones: &[(&str, &[SocketAddr])]) -> Vec<Made> {
    vec![
        listener(name, name),
        routes(name, name),
        cluster(name, "lb_policy: ROUND_ROBIN"),
        assignment(name, zones),
    ]
}

/// A discovery response with these resources, whatever their types.
pub(crate) fn response(variant: Variant, type_url: &str, nonce: &str, resources: &[Made]) -> Bytes {
    let any = |(type_url, _, body): &Made| Any {
        type_url: (*type_url).into(),
        value: body.clone(),
    };
    match variant {
        Variant::Sotw => wire::encode_discovery_response(&DiscoveryResponse {
            type_url: type_url.into(),
            version_info: nonce.to_owned(),
            nonce: nonce.to_owned(),
            resources: resources.iter().map(any).collect(),
        }),
        Variant::Delta => {
            let named = resources.iter().map(|made| DeltaResource {
                name: made.1.as_str().into(),
                version: nonce.to_owned(),
                resource: Some(any(made)),
            });
            wire::encode_delta_discovery_response(&DeltaDiscoveryResponse {
                type_url: type_url.into(),
                system_version_info: String::new(),
                nonce: nonce.to_owned(),
                resources: named.collect(),
                removed_resources: Vec::new(),
            })
        }
    }
}
