//! Rewrites a single cluster or assignment of the relayed server; all other bytes stay unchanged.
//!
//! Resources that cannot be decoded are passed on unchanged, with an error. In shadow mode demand
//! changes no policy or weight: operators can see its effect before it is enforced.

use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::wire::{
    AssignmentEdits, Edit, LocalityEdit, decode_assignment, decode_cluster, rewrite_assignment,
    rewrite_cluster_policy, rewrite_load_reporting,
};

use super::{Improvement, Overlay};
use crate::config::{Delivery, Service};
use crate::delivery::{NodeClass, Steering, steering};
use crate::view::assignment::locality_weights;
use crate::view::cluster::policy;

#[derive(Clone, Debug)]
pub(super) struct ImprovedCluster {
    /// The service with its policy, from the file or from the relayed server.
    pub(super) service: Arc<Service>,
    /// Name of the cluster's assignment; `None` if the cluster does not use EDS.
    pub(super) assignment: Option<Arc<str>>,
    pub(super) body: Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct ImprovedAssignment {
    pub(super) assignment: Arc<ClusterLoadAssignment>,
    /// Encoded assignment for receivers; `None` while it is withheld.
    pub(super) body: Option<Bytes>,
}

pub(super) fn cluster(
    overlay: &Overlay,
    improvement: &Improvement,
    body: &Bytes,
) -> Result<ImprovedCluster, DecodeError> {
    let written = &improvement.service;
    let read = decode_cluster(body)?;
    let name = written.name();
    let assignment = read
        .eds_service_name
        .map_or_else(|| Arc::clone(name), Arc::from);
    let service = if written.has_explicit_policy {
        with_subsets(written, &read.config)
    } else {
        // Data planes run health checks; the control plane uses the health in the assignment only.
        let config = read.config.with_health_checking(HealthChecking::default());
        Arc::new(Service {
            config: Arc::new(config),
            ..Service::clone(written)
        })
    };
    let steering = steering(&service, overlay.class, overlay.fleet_ramp);
    let uses_weights = steering == Steering::Demand(Delivery::LocalityWeights);
    let is_engine = matches!(overlay.class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
    let rewrite = || {
        let (config, locality) = policy(&service, overlay.class, steering);
        rewrite_cluster_policy(body, &config, locality)
    };
    let mut improved = match steering {
        // Endpoints of non-EDS clusters do not pass through the relay: no weights can be set.
        Steering::Demand(_) if uses_weights && !read.is_eds => body.clone(),
        Steering::Demand(_) => rewrite()?,
        Steering::FeedForward(_) if written.has_explicit_policy => rewrite()?,
        // The fleet's assignment has demand for other services, which must not influence this one.
        Steering::AsConfigured(_) if is_engine && service.config.uses_demand_feed_forward() => {
            rewrite()?
        }
        // Envoy's own policy in the cluster does not know the controller.
        Steering::FeedForward(_) if overlay.class == NodeClass::EnvoyModule => rewrite()?,
        Steering::AsConfigured(_) | Steering::HostCounts | Steering::FeedForward(_) => body.clone(),
    };
    if overlay.class == NodeClass::Grpc && !read.lrs_self {
        improved = rewrite_load_reporting(&improved)?;
    }
    Ok(ImprovedCluster {
        service,
        assignment: read.is_eds.then_some(assignment),
        body: improved,
    })
}

/// Returns the service with the subsets of the relayed server if the file has no subsets: a policy
/// in the file must not disable them.
fn with_subsets(written: &Arc<Service>, read: &ClusterConfig) -> Arc<Service> {
    let own = written.config.lb_subset_config();
    if own.is_some() || read.lb_subset_config().is_none() {
        return Arc::clone(written);
    }
    Arc::new(Service {
        config: Arc::new(written.config.with_subsets_of(read)),
        ..Service::clone(written)
    })
}

pub(super) fn assignment(
    overlay: &Overlay,
    improvement: &Improvement,
    service: &Service,
    body: &Bytes,
) -> Result<ImprovedAssignment, DecodeError> {
    let assignment = decode_assignment(body)?;
    let steering = steering(service, overlay.class, overlay.fleet_ramp);
    let body = match steering {
        Steering::Demand(Delivery::LocalityWeights) if overlay.held => None,
        Steering::Demand(Delivery::LocalityWeights) => {
            let edits = edits(&assignment, improvement);
            Some(rewrite_assignment(body, &edits)?)
        }
        _ => Some(body.clone()),
    };
    Ok(ImprovedAssignment {
        assignment: Arc::new(assignment),
        body,
    })
}

fn edits(assignment: &ClusterLoadAssignment, improvement: &Improvement) -> AssignmentEdits {
    let weight = locality_weights(assignment, improvement.weights.as_ref());
    let localities = assignment.endpoints().iter().map(|entry| {
        let edit = LocalityEdit {
            load_balancing_weight: weight(entry).map_or(Edit::Remove, Edit::Set),
            ..LocalityEdit::default()
        };
        ((entry.priority, entry.locality.clone()), edit)
    });
    AssignmentEdits {
        localities: localities.collect(),
        ..AssignmentEdits::default()
    }
}
