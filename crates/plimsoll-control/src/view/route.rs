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

    use crate::view::tests::walk;

    fn config() -> ControlConfig {
        let routes = "virtual_hosts: [{name: all, routes: [{match: {prefix: /}, route: \
                      {cluster: orders}}]}]";
        let text = format!(
            "{{services: [{{cluster: {{name: orders}}}}, {{cluster: {{name: both}}}}], listeners: \
             [{{name: in, address: '127.0.0.1:10000', {routes}}}, \
             {{name: both, address: '127.0.0.1:10001', {routes}}}]}}"
        );
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text,
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    fn names(resources: &[Resource]) -> Vec<&str> {
        resources.iter().map(|one| one.name.as_ref()).collect()
    }

    #[test]
    fn proxies_get_listeners_with_an_address_and_clients_one_per_service() {
        let config = config();
        for (class, expected) in [
            (NodeClass::Envoy, &["both", "in"][..]),
            (NodeClass::EnvoyModule, &["both", "in"]),
            (NodeClass::Grpc, &["both", "orders"]),
            // Of two listeners with one name, a client needs that of the service.
            (NodeClass::Plimsoll, &["in", "both", "orders"]),
        ] {
            let listeners = listeners(&config, class);
            assert_eq!(names(&listeners), expected, "{class:?}");
        }
    }

    #[test]
    fn clients_get_a_route_to_the_cluster_of_each_service() {
        let config = config();
        let of_file = routes(&config, NodeClass::Envoy);
        assert_eq!(names(&of_file), ["both", "in"]);
        let all = routes(&config, NodeClass::Grpc);
        assert_eq!(names(&all), ["both", "in", "both", "orders"]);
        let body = &all[3].body;
        assert_eq!(walk::text(body, 1), "orders");
        let [host] = &walk::at(body, &[2])[..] else {
            panic!("{body:?}");
        };
        assert_eq!(
            (walk::text(host, 1), walk::text(host, 2)),
            ("orders".to_owned(), "*".to_owned())
        );
        assert_eq!(walk::at(host, &[3, 1, 1]), [Vec::<u8>::new()], "any path");
        assert_eq!(walk::at(host, &[3, 2, 1]), [b"orders"]);
    }
}
