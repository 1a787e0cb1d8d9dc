//! [`Capacities`]: what hosts can serve, learned for the services that ask for it.
//!
//! The arithmetic is that of `plimsoll_core::planner::capacity`; here are the services and their
//! timers. `Demand` passes reports and nodes in, and the state takes what was learned to the owner
//! of services, because it is a property of these: weights of endpoints, and capacity in plans.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::model::load_report::{ClusterHostStats, ClusterStats, Node};
use plimsoll_core::planner::capacity::{CapacityLearner, LearnedCapacity, NodeName};
use plimsoll_core::time::Instant;

use crate::config::ControlConfig;
use crate::replicas::NodeKey;

/// Learned capacity by service.
#[derive(Debug, Default)]
pub(super) struct Capacities {
    learners: BTreeMap<Arc<str>, CapacityLearner>,
}

impl Capacities {
    /// Takes services whose hosts or settings changed, by default all.
    pub(super) fn handle_services(
        &mut self,
        config: &ControlConfig,
        names: Option<&BTreeSet<Arc<str>>>,
        now: Instant,
    ) {
        match names {
            Some(names) => names
                .iter()
                .for_each(|name| self.handle_service(config, name, now)),
            None => {
                let services = &config.services;
                self.learners.retain(|name, _| services.contains_key(name));
                services
                    .keys()
                    .for_each(|name| self.handle_service(config, name, now));
            }
        }
    }

    fn handle_service(&mut self, config: &ControlConfig, name: &Arc<str>, now: Instant) {
        let service = config.services.get(name);
        let asking = service.and_then(|service| Some((service, service.learning.as_ref()?)));
        let Some((service, learning)) = asking else {
            self.learners.remove(name);
            return;
        };
        let interval = config.reporting.load_reporting_interval;
        let metric = learning.metric.clone();
        let new = || CapacityLearner::new(metric.clone(), interval, now);
        let learner = self.learners.entry(Arc::clone(name)).or_insert_with(new);
        learner.handle_settings(metric, interval);
        learner.handle_hosts(&service.assignment);
    }

    /// Takes the requests by locality of a node, of this replica or of another one.
    pub(super) fn handle_report(&mut self, node: &Node, counted: &[ClusterStats], now: Instant) {
        if self.learners.is_empty() {
            return;
        }
        for stats in counted {
            if let Some(learner) = self.learners.get_mut(&stats.cluster_name) {
                learner.handle_report(name_of(node), stats, now);
            }
        }
    }

    /// Takes what the report of a node says of hosts.
    pub(super) fn handle_host_stats(&mut self, node: &Node, stats: &[ClusterHostStats]) {
        for stats in stats {
            if let Some(learner) = self.learners.get_mut(&stats.cluster_name) {
                learner.handle_host_stats(&name_of(node), stats);
            }
        }
    }

    /// Forgets a node that left its fleet.
    pub(super) fn handle_left(&mut self, node: &NodeKey) {
        let name = (Arc::clone(&node.fleet), Arc::clone(&node.id));
        for learner in self.learners.values_mut() {
            learner.handle_left(&name);
        }
    }

    /// Ends windows that are due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        for learner in self.learners.values_mut() {
            learner.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.learners
            .values()
            .map(CapacityLearner::poll_timeout)
            .min()
    }

    /// Returns the next service whose hosts can serve something else than was known.
    pub(super) fn poll_learned(&mut self, now: Instant) -> Option<(Arc<str>, LearnedCapacity)> {
        self.learners.iter_mut().find_map(|(name, learner)| {
            let learned = learner.poll_learned(now)?;
            Some((Arc::clone(name), learned))
        })
    }

    /// Returns what is known of the hosts of a service; `None` if it does not ask for it.
    pub(super) fn learner(&self, service: &str) -> Option<&CapacityLearner> {
        self.learners.get(service)
    }
}

fn name_of(node: &Node) -> NodeName {
    (Arc::clone(&node.cluster), Arc::clone(&node.id))
}
