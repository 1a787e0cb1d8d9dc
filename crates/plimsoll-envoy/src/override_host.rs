//! Hosts that a policy may not return: Envoy accepts healthy ones only, so degraded hosts and panic
//! mode are out of its reach. A downstream HTTP filter of this library may ask for any host of the
//! cluster instead (`set_upstream_override_host`).
//!
//! The filter lets the engine pick before the policy is asked. If the pick is not healthy, it asks
//! for that host; otherwise the policy picks as always. A host that Envoy does not accept in this
//! way (`common_lb_config.override_host_status`) is ignored, and the policy picks.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::picker::{PickArgs, Picker};

use crate::cluster::Cluster;

/// A cluster with hosts that are not healthy.
#[derive(Debug)]
struct Impaired {
    cluster: Weak<Cluster>,
    not_healthy: HashSet<SocketAddr>,
}

/// Clusters by name whose requests may go to hosts that are not healthy; usually none.
#[derive(Debug, Default)]
pub struct Overrides {
    impaired: ArcSwap<HashMap<Arc<str>, Arc<Impaired>>>,
}

/// Pickers of a thread by name of the cluster, with the cluster that each belongs to.
type Pickers = HashMap<Arc<str>, (Weak<Cluster>, Picker)>;

thread_local! {
    static PICKERS: RefCell<Pickers> = RefCell::default();
}

impl Overrides {
    /// Applies the hosts of a cluster.
    pub fn handle_hosts(&self, cluster: &Arc<Cluster>, hosts: &ClusterLoadAssignment) {
        let endpoints = hosts
            .endpoints()
            .iter()
            .flat_map(|entry| &entry.lb_endpoints);
        let not_healthy: HashSet<_> = endpoints
            .filter(|endpoint| endpoint.health_status != HealthStatus::Healthy)
            .map(|endpoint| endpoint.address)
            .collect();
        // The hash of a request is known to the policy only.
        let is_impaired = !not_healthy.is_empty() && !cluster.config().endpoint_policy().is_hash();
        let current = self.impaired.load();
        if !is_impaired && !current.contains_key(cluster.name()) {
            return;
        }
        let mut next = HashMap::clone(&current);
        next.retain(|_, impaired| impaired.cluster.strong_count() > 0);
        if is_impaired {
            let impaired = Impaired {
                cluster: Arc::downgrade(cluster),
                not_healthy,
            };
            next.insert(Arc::clone(cluster.name()), Arc::new(impaired));
        } else {
            next.remove(cluster.name());
        }
        self.impaired.store(Arc::new(next));
    }

    /// Returns the host to ask for, if the next request to the cluster shall go to one that the
    /// policy may not return. `cluster_name` is called if any cluster has such hosts.
    pub fn choose<'a>(&self, cluster_name: impl FnOnce() -> &'a str) -> Option<SocketAddr> {
        let all = self.impaired.load();
        if all.is_empty() {
            return None;
        }
        let (name, impaired) = all.get_key_value(cluster_name())?;
        if impaired.cluster.strong_count() == 0 {
            return None;
        }
        PICKERS.with_borrow_mut(|pickers| {
            let current = pickers.get(name).map(|(cluster, _)| cluster);
            if !current.is_some_and(|cluster| cluster.ptr_eq(&impaired.cluster)) {
                pickers.retain(|_, (cluster, _)| cluster.strong_count() > 0);
                let picker = impaired.cluster.upgrade()?.picker();
                let entry = (impaired.cluster.clone(), picker);
                pickers.insert(Arc::clone(name), entry);
            }
            let (_, picker) = pickers.get_mut(name)?;
            let picked = picker.pick(PickArgs::default());
            let address = picked.host()?.address();
            impaired.not_healthy.contains(&address).then_some(address)
        })
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::time::Instant;

    use super::*;
    use crate::config::ModuleConfig;
    use crate::host_sets::assignment;
    use crate::host_sets::tests::Fake;

    const NOW: Instant = Instant::from_secs(1);

    fn cluster(name: &str, text: &str) -> Arc<Cluster> {
        let config = ModuleConfig::parse(text).unwrap().cluster(name).unwrap();
        Arc::new(Cluster::new(config, Locality::zone_only("a"), None, NOW))
    }

    /// Applies ten hosts of which the first have this health; returns how many of 2,000 requests
    /// ask for one of them.
    fn overridden(
        overrides: &Overrides,
        cluster: &Arc<Cluster>,
        count: usize,
        health: HealthStatus,
    ) -> usize {
        let mut hosts = Fake::zones(&[("a", 10)]);
        for host in &mut hosts.priorities[0][..count] {
            host.health = health;
        }
        let hosts = assignment(&hosts, cluster.name()).unwrap();
        overrides.handle_hosts(cluster, &hosts);
        cluster.handle_hosts(hosts, NOW);
        let name = Arc::clone(cluster.name());
        let choices = (0..2000).filter(|_| overrides.choose(|| &name).is_some());
        choices.count()
    }

    #[test]
    fn panic_asks_for_unhealthy_hosts() {
        let overrides = Overrides::default();
        let orders = cluster("override.panic", "{}");
        assert_eq!(
            overridden(&overrides, &orders, 0, HealthStatus::Unhealthy),
            0
        );
        // Above the threshold of 50 %, unhealthy hosts get nothing.
        assert_eq!(
            overridden(&overrides, &orders, 4, HealthStatus::Unhealthy),
            0
        );
        let panic = overridden(&overrides, &orders, 6, HealthStatus::Unhealthy);
        assert!((1100..1300).contains(&panic), "{panic} of 2,000");
        let all = overridden(&overrides, &orders, 10, HealthStatus::Unhealthy);
        assert_eq!(all, 2000);
        assert_eq!(
            overridden(&overrides, &orders, 0, HealthStatus::Unhealthy),
            0
        );
        assert!(overrides.impaired.load().is_empty(), "nothing to look up");
    }

    #[test]
    fn degraded_hosts_serve_what_healthy_ones_cannot() {
        let overrides = Overrides::default();
        let orders = cluster("override.degraded", "{}");
        // Four healthy hosts of ten serve 4 × 1.4 of 10.
        let degraded = overridden(&overrides, &orders, 6, HealthStatus::Degraded);
        assert!((780..980).contains(&degraded), "{degraded} of 2,000");
        assert_eq!(
            overridden(&overrides, &orders, 10, HealthStatus::Degraded),
            2000
        );
        assert_eq!(overrides.choose(|| "other"), None);
    }

    #[test]
    fn a_cluster_that_is_replaced_gets_a_new_picker_and_hashing_is_left_alone() {
        let overrides = Overrides::default();
        let first = cluster("override.replaced", "{}");
        assert_eq!(
            overridden(&overrides, &first, 10, HealthStatus::Unhealthy),
            2000
        );
        let second = cluster("override.replaced", "{}");
        assert_eq!(
            overridden(&overrides, &second, 10, HealthStatus::Degraded),
            2000
        );
        drop((first, second));
        assert_eq!(overrides.choose(|| "override.replaced"), None);
        let hashed = cluster("override.hash", "cluster: {lb_policy: MAGLEV}");
        assert_eq!(
            overridden(&overrides, &hashed, 10, HealthStatus::Unhealthy),
            0
        );
    }
}
