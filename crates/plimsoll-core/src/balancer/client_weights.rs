//! Timer of client_side_weighted_round_robin: updates host weights from load reports every
//! `weight_update_period` and after every change of the hosts (envoy-semantics §5.4).
//!
//! The rules are in `endpoint_picking::client_side_weighted_round_robin`.

use super::members::Members;
use crate::endpoint_picking::client_side_weighted_round_robin::WeightUpdater;
use crate::host::Host;
use crate::model::cluster::ClusterConfig;
use crate::model::endpoint_policy::EndpointPolicy;
use crate::time::Instant;

#[derive(Debug, Default)]
pub(super) struct ClientWeights {
    updater: WeightUpdater,
    next_tick: Option<Instant>,
}

impl ClientWeights {
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.next_tick
    }

    /// Updates the weights of all hosts. Returns whether any changed: host lists must be rebuilt.
    pub(super) fn refresh(
        &mut self,
        config: &ClusterConfig,
        members: &mut Members,
        now: Instant,
    ) -> bool {
        let EndpointPolicy::ClientSideWeightedRoundRobin(settings) = config.endpoint_policy()
        else {
            self.next_tick = None;
            return false;
        };
        self.next_tick = Some(now.saturating_add(settings.weight_update_period()));
        members.use_reported_weights();
        let mut changed = false;
        for priority in 0..members.priorities() {
            let hosts = members.hosts_of(priority).map(Host::client_weight);
            changed |= self.updater.update(hosts, settings, now);
        }
        changed
    }
}
