//! Rewrites a single cluster or assignment of the relayed server; all other bytes stay unchanged.
//!
//! Resources that cannot be decoded are passed on unchanged, with an error. A policy in the file
//! replaces that of the relayed server in every mode. In shadow mode demand changes no policy or
//! weight: operators can see its effect before it is enforced.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use plimsoll_core::model::assignment::{ClusterLoadAssignment, LocalityLbEndpoints};
use plimsoll_core::model::cluster::{ClusterConfig, HealthChecking};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_xds::error::DecodeError;
use plimsoll_xds::wire::{
    AssignmentEdits, Edit, LocalityEdit, decode_assignment, decode_cluster, rewrite_assignment,
    rewrite_cluster_policy, rewrite_extensions, rewrite_load_reporting, rewrite_panic_threshold,
};

use super::{Patch, Rewrite};
use crate::config::{BesidePolicy, Delivery, Mode, Service};
use crate::delivery::{
    NodeClass, NotSteeredReason, Steering, steering, uses_module, while_a_zone_fails,
};
use crate::view::assignment::{Placed, placed};
use crate::view::cluster::policy;

#[derive(Clone, Debug)]
pub(crate) struct ImprovedCluster {
    /// The service with its policy, from the file or from the relayed server.
    pub(crate) service: Arc<Service>,
    pub(crate) steering: Steering,
    /// Whether the policy of the relayed server is replaced.
    pub(crate) is_rewritten: bool,
    pub(crate) body: Bytes,
}

#[derive(Clone, Debug)]
pub(super) struct ImprovedAssignment {
    pub(super) assignment: Arc<ClusterLoadAssignment>,
    /// Encoded assignment for receivers; `None` while it is withheld.
    pub(super) body: Option<Bytes>,
}

/// Rewrites a cluster of the relayed server for nodes of `class`, for which `written` is in the
/// file. Explanations call this as well, so that they describe the bytes that receivers get.
/// `shares_endpoints` says whether another cluster has the same assignment.
pub(crate) fn cluster(
    written: &Arc<Service>,
    class: NodeClass,
    zone_fails: bool,
    shares_endpoints: bool,
    body: &Bytes,
) -> Result<ImprovedCluster, DecodeError> {
    let read = decode_cluster(body)?;
    let no_weights = no_weights(read.is_eds, shares_endpoints);
    let service = completed(written, &read.config, no_weights);
    let regular = steering(&service, class);
    let steering = if zone_fails {
        while_a_zone_fails(regular, class)
    } else {
        regular
    };
    let is_rewritten = replaces_policy(&service, class, steering);
    let mut improved = if is_rewritten {
        let (config, locality) = policy(&service, class, steering);
        rewrite_cluster_policy(body, &config, locality)?
    } else {
        body.clone()
    };
    if service.beside_policy.extensions && class == NodeClass::Plimsoll {
        improved = rewrite_extensions(&improved, &service.config)?;
    }
    if service.beside_policy.panic_threshold {
        improved = rewrite_panic_threshold(&improved, service.config.panic_threshold())?;
    }
    let reports = service.mode != Mode::Off;
    if class == NodeClass::Grpc && reports && !read.lrs_self {
        improved = rewrite_load_reporting(&improved)?;
    }
    Ok(ImprovedCluster {
        service,
        steering,
        is_rewritten,
        body: improved,
    })
}

/// Whether a policy of the relayed server is replaced for nodes of `class`: by that of the file, or
/// by their own in a form that carries demand.
fn replaces_policy(service: &Service, class: NodeClass, steering: Steering) -> bool {
    if service.has_explicit_policy {
        return true;
    }
    let is_engine = matches!(class, NodeClass::Plimsoll | NodeClass::EnvoyModule);
    match steering {
        Steering::Demand(_) | Steering::ZoneFails => true,
        // Envoy's own policy in the cluster does not know the controller; a ramp is in the policy.
        Steering::FeedForward(_) => class == NodeClass::EnvoyModule || service.ramp < 100,
        // The fleet's assignment has demand for other services, which must not influence this one.
        Steering::AsConfigured(_) => is_engine && service.config.uses_demand_feed_forward(),
        Steering::HostCounts => false,
    }
}

/// Returns why locality weights cannot be set on the endpoints of a cluster: they do not pass
/// through the relay, or would be those of another cluster, too.
pub(crate) fn no_weights(is_eds: bool, shares_endpoints: bool) -> Option<NotSteeredReason> {
    if !is_eds {
        return Some(NotSteeredReason::WithoutEds);
    }
    shares_endpoints.then_some(NotSteeredReason::SharedEndpoints)
}

/// Returns the service of the file with what comes from the relayed server: the policy, or, if the
/// file has one, subsets and the panic threshold, unless the file has these as well.
pub(crate) fn completed(
    written: &Arc<Service>,
    theirs: &ClusterConfig,
    no_weights: Option<NotSteeredReason>,
) -> Arc<Service> {
    let own = &written.config;
    let BesidePolicy {
        panic_threshold,
        extensions,
    } = written.beside_policy;
    let mut config = if !written.has_explicit_policy {
        // Data planes run health checks; the control plane uses the health in the assignment only.
        theirs.with_health_checking(HealthChecking::default())
    } else if own.lb_subset_config().is_none() {
        own.with_subsets_of(theirs)
    } else {
        ClusterConfig::clone(own)
    };
    if extensions {
        config = config.with_extensions_of(own);
    }
    let threshold = if panic_threshold { own } else { theirs };
    Arc::new(Service {
        config: Arc::new(config.with_panic_threshold_of(threshold)),
        no_weights,
        ..Service::clone(written)
    })
}

/// A service whose cluster has an assignment.
#[derive(Debug)]
pub(super) struct User<'a> {
    pub(super) rewrite: &'a Rewrite,
    pub(super) service: Arc<Service>,
    pub(super) steering: Steering,
}

/// Rewrites an assignment of the relayed server for its users. Only one that no other cluster has
/// gets weights.
pub(super) fn assignment(
    patch: &Patch,
    users: &[User<'_>],
    body: &Bytes,
) -> Result<ImprovedAssignment, DecodeError> {
    let assignment = decode_assignment(body)?;
    let by_weights = Steering::Demand(Delivery::LocalityWeights);
    let weighted = users.iter().find(|user| user.steering == by_weights);
    let is_draining = |entry: &LocalityLbEndpoints| {
        let mut hosts = entry.lb_endpoints.iter();
        hosts.any(|host| host.health_status == HealthStatus::Draining)
    };
    let is_for_module = |user: &User<'_>| {
        uses_module(&user.service, patch.class, user.steering)
            && replaces_policy(&user.service, patch.class, user.steering)
    };
    // Envoy does not tell the module.
    let tells_draining =
        users.iter().any(is_for_module) && assignment.endpoints().iter().any(is_draining);
    let body = if weighted.is_some() && patch.held {
        None
    } else if weighted.is_some() || tells_draining {
        let localities = weighted.map(|user| {
            let own = user.rewrite.weights.as_ref();
            edits(&assignment, own, patch.class)
        });
        let edits = AssignmentEdits {
            localities: localities.unwrap_or_default(),
            draining_in_metadata: tells_draining,
            ..AssignmentEdits::default()
        };
        Some(rewrite_assignment(body, &edits)?)
    } else {
        Some(body.clone())
    };
    Ok(ImprovedAssignment {
        assignment: Arc::new(assignment),
        body,
    })
}

/// Returns what is changed in an assignment of the relayed server so that it has these weights.
pub(crate) fn edits(
    assignment: &ClusterLoadAssignment,
    weights: Option<&ReceiverWeights>,
    class: NodeClass,
) -> BTreeMap<(u32, Locality), LocalityEdit> {
    let place = placed(assignment, weights, class);
    let localities = assignment.endpoints().iter().map(|entry| {
        let Placed { priority, weight } = place(entry);
        let edit = LocalityEdit {
            load_balancing_weight: weight.map_or(Edit::Remove, Edit::Set),
            priority: if priority == entry.priority {
                Edit::Keep
            } else {
                Edit::Set(priority)
            },
            ..LocalityEdit::default()
        };
        ((entry.priority, entry.locality.clone()), edit)
    });
    localities.collect()
}
