//! Encodes listeners and routes: for Envoys those of the file, for gRPC clients one per service.
//!
//! A gRPC client with the target `xds:///orders` subscribes to the listener `orders`, which refers
//! to the route `orders` and thereby to the cluster `orders`.

use bytes::Bytes;
use plimsoll_xds::ads::view::Resource;
use plimsoll_xds::pb::route::{
    RouteActionMessage, RouteConfigurationMessage, RouteMatchMessage, RouteMessage,
    VirtualHostMessage,
};
use plimsoll_xds::schema::file::FileMessage;
use plimsoll_xds::wire::{encode_api_listener, encode_http_listener};

use crate::config::ControlConfig;
use crate::delivery::NodeClass;

pub(super) fn listeners(config: &ControlConfig, class: NodeClass) -> Vec<Resource> {
    let mut resources = Vec::new();
    if class == NodeClass::Envoy {
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

pub(super) fn routes(config: &ControlConfig, class: NodeClass) -> Vec<Resource> {
    let mut resources = Vec::new();
    for listener in config.listeners.values() {
        let body = listener.routes.message.0.clone();
        resources.push(Resource::new(listener.name.clone(), body));
    }
    if class == NodeClass::Envoy {
        return resources;
    }
    for name in config.services.keys() {
        resources.push(Resource::new(name.clone(), route_to_cluster(name)));
    }
    resources
}

fn route_to_cluster(name: &str) -> Bytes {
    let route = RouteMessage {
        route_match: Some(RouteMatchMessage {
            prefix: Some(String::new()),
            ..Default::default()
        }),
        route: Some(RouteActionMessage {
            cluster: Some(name.to_owned()),
            ..Default::default()
        }),
        ..Default::default()
    };
    let message = RouteConfigurationMessage {
        name: name.to_owned(),
        virtual_hosts: vec![VirtualHostMessage {
            name: name.to_owned(),
            domains: vec!["*".to_owned()],
            routes: vec![route],
            ..Default::default()
        }],
        ..Default::default()
    };
    FileMessage::from(&message).bytes().clone()
}
