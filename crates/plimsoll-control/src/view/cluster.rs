//! Clusters as bytes, in the words that each class of receivers knows.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_xds::wire::{ClassicBasis, ClusterOut, LocalityDelivery, encode_cluster};

use crate::config::{Delivery, Protocol, Service};
use crate::delivery::{Class, Steering, steered_config};

/// The cluster of a service for one class of receivers.
pub(super) fn encode(service: &Service, class: Class, steering: Steering) -> Bytes {
    let (config, locality) = policy(service, class, steering);
    encode_cluster(&ClusterOut {
        connect_timeout: service.connect_timeout,
        // gRPC reports load only where it is told to.
        load_reporting: class != Class::Envoy,
        lrs_report_endpoint_metrics: &service.report_metrics,
        http2: service.protocol == Protocol::Http2,
        // Without this, Envoys before 1.40 hold a second update of weights back for 1 s.
        update_merge_window: Some(Duration::ZERO),
        ..ClusterOut::new(&config, locality)
    })
}

/// The policy of a service for one class of receivers, and how it is said.
pub(crate) fn policy(
    service: &Service,
    class: Class,
    steering: Steering,
) -> (ClusterConfig, LocalityDelivery) {
    // The basis that only plimsoll data planes know is replaced for all others.
    let config = steered_config(service, steering);
    (config, locality(class, steering))
}

const fn locality(class: Class, steering: Steering) -> LocalityDelivery {
    match (class, steering) {
        (Class::Grpc, _) => LocalityDelivery::Grpc,
        (_, Steering::Demand(Delivery::LocalityWeights)) => LocalityDelivery::LocalityWeighted,
        (Class::Plimsoll, _) => LocalityDelivery::AsConfigured,
        (Class::Envoy, Steering::AsConfigured(_) | Steering::FeedForward(_)) => {
            LocalityDelivery::Stock
        }
        (Class::Envoy, Steering::HostCounts) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsNum)
        }
        (Class::Envoy, Steering::Demand(_)) => {
            LocalityDelivery::ZoneAware(ClassicBasis::HealthyHostsWeight)
        }
    }
}
