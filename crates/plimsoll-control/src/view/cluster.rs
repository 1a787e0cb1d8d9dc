//! Encodes clusters for each class of nodes.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::wire::{ClassicBasis, ClusterOut, LocalityDelivery, encode_cluster};

use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, Steering, steered_config, uses_module};

pub(crate) fn encode(service: &Service, class: NodeClass, steering: Steering) -> Bytes {
    let (config, locality) = policy(service, class, steering);
    let settings = service.settings.for_class(class);
    encode_cluster(&ClusterOut {
        settings: Some(&settings),
        // gRPC clients only report load if the cluster requests it.
        load_reporting: !matches!(class, NodeClass::Envoy | NodeClass::EnvoyModule),
        // By default, Envoys before 1.40 delay a second update of weights by 1 s.
        update_merge_window: Some(Duration::ZERO),
        ..ClusterOut::new(&config, locality)
    })
}

/// Returns the policy of a service for one class of nodes, and how to encode its locality policy.
pub(crate) fn policy(
    service: &Service,
    class: NodeClass,
    steering: Steering,
) -> (ClusterConfig, LocalityDelivery) {
    // `locality` replaces the measured basis for nodes that do not support it.
    let config = steered_config(service, steering);
    if uses_module(service, class, steering) {
        return (config, LocalityDelivery::Module);
    }
    (config, locality(class, steering))
}

/// Encodes the settings that the module inside an Envoy gets as a cluster.
pub(super) fn encode_for_module(service: &Service, steering: Steering) -> Bytes {
    let config = steered_config(service, steering);
    encode_cluster(&ClusterOut::new(&config, LocalityDelivery::AsConfigured))
}

const fn locality(class: NodeClass, steering: Steering) -> LocalityDelivery {
    match (class, steering) {
        (NodeClass::Grpc, _) => LocalityDelivery::Grpc,
        (_, Steering::Demand(Delivery::LocalityWeights)) => LocalityDelivery::LocalityWeighted,
        (NodeClass::Plimsoll, _) => LocalityDelivery::AsConfigured,
        (
            NodeClass::Envoy | NodeClass::EnvoyModule,
            Steering::AsConfigured(_) | Steering::HostCounts | Steering::FeedForward(_),
        ) => LocalityDelivery::Stock,
        (NodeClass::Envoy | NodeClass::EnvoyModule, Steering::ZoneFails) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsNum)
        }
        (NodeClass::Envoy | NodeClass::EnvoyModule, Steering::Demand(_)) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight)
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::wire::decode_cluster;

    use super::*;
    use crate::delivery::steering;
    use crate::state::tests::driver::parse;
    use crate::view::tests::walk;

    #[test]
    fn settings_of_the_service_are_sent_to_every_class() {
        let config = parse(
            "services: [{cluster: {name: orders, connect_timeout: 7s, http2_protocol_options: \
             {max_concurrent_streams: 9}, lrs_report_endpoint_metrics: [cpu_utilization]}}, \
             {cluster: {name: plain}}]",
        );
        let [orders, plain] = ["orders", "plain"].map(|name| &config.services[name]);
        for class in NodeClass::ALL {
            let sent = |service| encode(service, class, steering(service, class));
            let body = sent(orders);
            let cluster = decode_cluster(&body).unwrap();
            let timeout = (class != NodeClass::Grpc).then_some(Duration::from_secs(7));
            assert_eq!(cluster.connect_timeout, timeout, "{class:?}");
            assert_eq!(cluster.lrs_report_endpoint_metrics, ["cpu_utilization"]);
            let reports = matches!(class, NodeClass::Plimsoll | NodeClass::Grpc);
            assert_eq!(cluster.lrs_self, reports, "{class:?}");
            // `typed_extension_protocol_options` has the HTTP/2 settings.
            assert_eq!(walk::has(&body, 36), class != NodeClass::Grpc);
            assert!(!walk::has(&sent(plain), 36));
            let merge_window = walk::at(&body, &[27, 4]);
            assert_eq!(merge_window, [Vec::<u8>::new()], "zero, not absent");
        }
    }
}
