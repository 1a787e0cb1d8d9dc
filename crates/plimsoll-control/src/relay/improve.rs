//! One cluster or assignment of another server, improved, all other bytes as they were.
//!
//! What cannot be read passes untouched, with the reason. Nothing is changed in shadow mode: a user
//! can look at what would happen before anything does.

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
use crate::config::{Delivery, Mode, Service};
use crate::delivery::{Class, Steering, steering};
use crate::view::assignment::locality_weights;
use crate::view::cluster::policy;

/// A cluster after we looked at it.
#[derive(Clone, Debug)]
pub(super) struct ClusterSeen {
    /// The service with the policy that is in force.
    pub(super) service: Arc<Service>,
    /// Name of its assignment; `None` when it has none of its own.
    pub(super) assignment: Option<Arc<str>>,
    /// What receivers get.
    pub(super) body: Bytes,
}

/// An assignment after we looked at it.
#[derive(Clone, Debug)]
pub(super) struct AssignmentSeen {
    pub(super) assignment: Arc<ClusterLoadAssignment>,
    /// What receivers get; `None` = nothing for now.
    pub(super) body: Option<Bytes>,
}

/// Improves a cluster.
pub(super) fn cluster(
    overlay: &Overlay,
    improvement: &Improvement,
    body: &Bytes,
) -> Result<ClusterSeen, DecodeError> {
    let written = &improvement.service;
    let read = decode_cluster(body)?;
    let name = written.name();
    let assignment = read
        .eds_service_name
        .map_or_else(|| Arc::clone(name), Arc::from);
    let service = if written.is_policy_written {
        with_subsets(written, &read.config)
    } else {
        // The data planes probe; here only the assignment says what is healthy.
        let config = read.config.with_health_checking(HealthChecking::default());
        Arc::new(Service {
            config: Arc::new(config),
            ..Service::clone(written)
        })
    };
    let steering = steering(&service, overlay.class, overlay.fleet_ramp);
    let by_weights = steering == Steering::Demand(Delivery::LocalityWeights);
    let ours = overlay.class == Class::Plimsoll;
    let rewrite = || {
        let (config, locality) = policy(&service, overlay.class, steering);
        rewrite_cluster_policy(body, &config, locality)
    };
    let mut improved = match steering {
        // Its endpoints are not ours to see: there is nothing to put weights on.
        Steering::Demand(_) if by_weights && !read.is_eds => body.clone(),
        Steering::Demand(_) => rewrite()?,
        Steering::FeedForward(_) if written.is_policy_written => rewrite()?,
        // Demand of other services is on the fleet's assignment, and would lead this one too.
        Steering::AsConfigured(_) if ours && service.config.uses_demand_feed_forward() => {
            rewrite()?
        }
        Steering::AsConfigured(_) | Steering::HostCounts | Steering::FeedForward(_) => body.clone(),
    };
    let reports = read.lrs_self || service.mode == Mode::Off;
    if overlay.class == Class::Grpc && !reports {
        improved = rewrite_load_reporting(&improved)?;
    }
    Ok(ClusterSeen {
        service,
        assignment: read.is_eds.then_some(assignment),
        body: improved,
    })
}

/// The service as it is written, with the subsets of the other server where the file says nothing
/// of subsets: a policy for the hosts of a subset is no reason to lose the subsets.
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

/// Improves an assignment of `service`.
pub(super) fn assignment(
    overlay: &Overlay,
    improvement: &Improvement,
    service: &Service,
    body: &Bytes,
) -> Result<AssignmentSeen, DecodeError> {
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
    Ok(AssignmentSeen {
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
