//! Encodes clusters for each class of nodes.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::wire::{ClassicBasis, ClusterOut, LocalityDelivery, encode_cluster};

use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, Steering, steered_config};

pub(super) fn encode(service: &Service, class: NodeClass, steering: Steering) -> Bytes {
    let (config, locality) = policy(service, class, steering);
    encode_cluster(&ClusterOut {
        connect_timeout: service.connect_timeout,
        // gRPC clients only report load if the cluster requests it.
        load_reporting: class != NodeClass::Envoy,
        lrs_report_endpoint_metrics: &service.report_metrics,
        http2: service.http2.as_ref(),
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
    (config, locality(class, steering))
}

const fn locality(class: NodeClass, steering: Steering) -> LocalityDelivery {
    match (class, steering) {
        (NodeClass::Grpc, _) => LocalityDelivery::Grpc,
        (_, Steering::Demand(Delivery::LocalityWeights)) => LocalityDelivery::LocalityWeighted,
        (NodeClass::Plimsoll, _) => LocalityDelivery::AsConfigured,
        (NodeClass::Envoy, Steering::AsConfigured(_) | Steering::FeedForward(_)) => {
            LocalityDelivery::Stock
        }
        (NodeClass::Envoy, Steering::HostCounts) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsNum)
        }
        (NodeClass::Envoy, Steering::Demand(_)) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight)
        }
    }
}
