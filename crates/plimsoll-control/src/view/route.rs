//! Listeners and routes as bytes: those of the file for Envoys, one per service for gRPC.
//!
//! `xds:///orders` asks for a listener `orders`; it leads to a route `orders` and from there to the
//! cluster `orders`.

use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::wire::{
    ClusterWeightOut, PathMatch, RouteEntryOut, RouteOut, RouteTarget, VirtualHostOut,
    encode_api_listener, encode_http_listener, encode_route_configuration,
};

use crate::config::{ControlConfig, Listener, Match, Route, Target};
use crate::delivery::Class;

/// The listeners that a class of receivers sees.
pub(super) fn listeners(config: &ControlConfig, class: Class) -> Vec<Resource> {
    let mut resources = Vec::new();
    if class == Class::Envoy {
        for listener in config.listeners.values() {
            let name = &listener.name;
            let body = encode_http_listener(name, listener.address, name, name);
            resources.push(Resource::new(name.clone(), body));
        }
        return resources;
    }
    for name in config.services.keys() {
        resources.push(Resource::new(name.clone(), encode_api_listener(name, name)));
    }
    resources
}

/// The routes that a class of receivers sees.
pub(super) fn routes(config: &ControlConfig, class: Class) -> Vec<Resource> {
    let mut resources = Vec::new();
    for listener in config.listeners.values() {
        let body = encode_route_configuration(&of_listener(listener));
        resources.push(Resource::new(listener.name.clone(), body));
    }
    if class == Class::Envoy {
        return resources;
    }
    for name in config.services.keys() {
        let body = encode_route_configuration(&to_cluster(name));
        resources.push(Resource::new(name.clone(), body));
    }
    resources
}

fn to_cluster(name: &str) -> RouteOut {
    RouteOut {
        name: name.to_owned(),
        virtual_hosts: vec![VirtualHostOut {
            name: name.to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![RouteEntryOut {
                path: PathMatch::Prefix(String::new()),
                target: RouteTarget::Cluster(name.to_owned()),
                metadata_match: None,
                timeout: None,
                retry: None,
            }],
        }],
    }
}

fn of_listener(listener: &Listener) -> RouteOut {
    let hosts = listener.virtual_hosts.iter().map(|host| VirtualHostOut {
        name: host.name.clone(),
        domains: host.domains.clone(),
        routes: host.routes.iter().map(entry).collect(),
    });
    RouteOut {
        name: listener.name.to_string(),
        virtual_hosts: hosts.collect(),
    }
}

fn entry(route: &Route) -> RouteEntryOut {
    let target = match route.targets.as_slice() {
        // One of several has criteria of its own, which only an entry with a weight can have.
        [only] if only.metadata_match.is_none() => RouteTarget::Cluster(only.cluster.to_string()),
        several => RouteTarget::Weighted(several.iter().map(weighted).collect()),
    };
    RouteEntryOut {
        path: match &route.matches {
            Match::Prefix(prefix) => PathMatch::Prefix(prefix.clone()),
            Match::Path(path) => PathMatch::Path(path.clone()),
        },
        target,
        metadata_match: route.metadata_match.clone(),
        timeout: route.timeout,
        retry: None,
    }
}

fn weighted(target: &Target) -> ClusterWeightOut {
    ClusterWeightOut {
        name: target.cluster.to_string(),
        weight: target.weight,
        metadata_match: target.metadata_match.clone(),
    }
}
