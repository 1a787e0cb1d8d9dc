//! Encodes listeners and routes: those of the file for proxies, and for gRPC clients one per
//! service. A node of Plimsoll may be either, so it gets both.
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
    let has_service_listeners = !matches!(class, NodeClass::Envoy | NodeClass::EnvoyModule);
    if class != NodeClass::Grpc {
        // Clients subscribe by name; of two listeners with one name that of the service is theirs.
        let is_free = |name: &str| !has_service_listeners || !config.services.contains_key(name);
        for listener in config.listeners.values().filter(|one| is_free(&one.name)) {
            let name = &listener.name;
            let body = encode_http_listener(name, listener.address, name, name);
            resources.push(Resource::new(name.clone(), body));
        }
    }
    if !has_service_listeners {
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
    if matches!(class, NodeClass::Envoy | NodeClass::EnvoyModule) {
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

#[cfg(test)]
mod tests {
    use plimsoll_serve::ConfigFile;

    use super::*;

    #[test]
    fn proxies_get_listeners_with_an_address_and_clients_one_per_service() {
        let text = "{services: [{cluster: {name: orders}}], listeners: [{name: in, address: \
                    '127.0.0.1:10000', virtual_hosts: [{name: all, routes: [{match: {prefix: /}, \
                    route: {cluster: orders}}]}]}]}";
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: text.to_owned(),
        };
        let config = ControlConfig::parse(&file, &[]).unwrap();
        let names = |class| {
            let listeners = listeners(&config, class).into_iter();
            listeners
                .map(|listener| listener.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(NodeClass::Envoy), ["in"]);
        assert_eq!(names(NodeClass::Grpc), ["orders"]);
        assert_eq!(names(NodeClass::Plimsoll), ["in", "orders"]);
    }
}
