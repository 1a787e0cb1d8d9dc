//! [`Known`]: what the state knows of relayed clusters, and the configuration that follows.
//!
//! Everything else in the state goes by one configuration; here the policies and endpoints that
//! another server has are put into the services that the file only names. If that server says
//! different things to different proxies, what was said last counts for plans and explanations.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;

use super::Relayed;
use crate::config::{ControlConfig, Service};

/// What is known of relayed clusters, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    configs: BTreeMap<Arc<str>, Arc<ClusterConfig>>,
    assignments: BTreeMap<Arc<str>, Arc<ClusterLoadAssignment>>,
}

impl Known {
    /// Takes news; whether they are any.
    pub(crate) fn learn(&mut self, relayed: Relayed) -> bool {
        match relayed {
            Relayed::Cluster { cluster, config } => {
                let before = self.configs.insert(cluster, Arc::clone(&config));
                before.is_none_or(|before| before != config)
            }
            Relayed::Assignment {
                cluster,
                assignment,
            } => {
                let before = self.assignments.insert(cluster, Arc::clone(&assignment));
                before.is_none_or(|before| before != assignment)
            }
        }
    }

    /// Forgets everything: another server, or none.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// `written` with all that is known.
    pub(crate) fn complete(&self, written: &Arc<ControlConfig>) -> Arc<ControlConfig> {
        if self.configs.is_empty() && self.assignments.is_empty() {
            return Arc::clone(written);
        }
        let mut config = ControlConfig::clone(written);
        for (name, service) in &mut config.services {
            let mut complete = Service::clone(service);
            if let Some(assignment) = self.assignments.get(name) {
                complete.assignment = Arc::clone(assignment);
            }
            if let Some(policy) = self.configs.get(name)
                && !service.is_policy_written
            {
                complete.config = Arc::clone(policy);
            }
            *service = Arc::new(complete);
        }
        Arc::new(config)
    }
}
