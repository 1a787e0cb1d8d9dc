//! `Budgets`: how much of the control plane and of every proxy one namespace may use; without IO.
//!
//! Each port of a Service is a cluster with all of its endpoints, at every proxy. The right to
//! create Services is that of every tenant, so what they add up to is limited per namespace. A
//! Service that would exceed a limit stays as it was last accepted, and is tried again when its
//! namespace uses less. Other namespaces do not notice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::objects::ObjectKey;

/// Limits of what is discovered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceLimits {
    pub ports_per_service: usize,
    /// Endpoints of a Service, counted once for each of its ports.
    pub endpoints_per_service: usize,
    pub ports_per_namespace: usize,
    pub endpoints_per_namespace: usize,
    pub zones_per_namespace: usize,
    /// Bytes of the name of a zone.
    pub zone_bytes: usize,
}

impl NamespaceLimits {
    /// Names of the limits, as in the file.
    pub const NAMES: [&str; 5] = [
        "ports_per_service",
        "endpoints_per_service",
        "ports_per_namespace",
        "endpoints_per_namespace",
        "zones_per_namespace",
    ];
}

impl Default for NamespaceLimits {
    fn default() -> Self {
        Self {
            ports_per_service: 64,
            endpoints_per_service: 10_000,
            ports_per_namespace: 2000,
            endpoints_per_namespace: 20_000,
            zones_per_namespace: 64,
            zone_bytes: 256,
        }
    }
}

/// A Service exceeds a limit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what} would be {value}, more than {limit} ({allowed}): the Service stays as it was last \
     accepted"
)]
pub struct OverLimit {
    /// Name of the limit.
    pub limit: &'static str,
    what: &'static str,
    value: usize,
    allowed: usize,
}

/// What a Service, or all of a namespace, use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) ports: usize,
    /// Endpoints of all ports.
    pub(crate) endpoints: usize,
    pub(crate) zones: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Namespace {
    accepted: BTreeMap<Arc<str>, Usage>,
    ports: usize,
    endpoints: usize,
    /// Number of Services in each zone.
    zones: BTreeMap<Arc<str>, usize>,
    /// Services that exceed a limit.
    refused: BTreeSet<Arc<str>>,
}

/// What the Services of each namespace use.
#[derive(Debug)]
pub(crate) struct Budgets {
    limits: NamespaceLimits,
    namespaces: BTreeMap<Arc<str>, Namespace>,
}

impl Budgets {
    pub(crate) const fn new(limits: NamespaceLimits) -> Self {
        Self {
            limits,
            namespaces: BTreeMap::new(),
        }
    }

    /// Checks the number of ports alone, which multiplies the cost of everything else.
    pub(crate) const fn check_ports(&self, ports: usize) -> Result<(), OverLimit> {
        let allowed = self.limits.ports_per_service;
        within("ports_per_service", allowed, "ports of the Service", ports)
    }

    /// Lets a Service use as much as this. After an error it uses what it did.
    pub(crate) fn admit(&mut self, key: &ObjectKey, usage: Usage) -> Result<(), OverLimit> {
        let limits = self.limits;
        let all = self
            .namespaces
            .entry(Arc::clone(&key.namespace))
            .or_default();
        let checked = all.check(&limits, &key.name, &usage);
        if checked.is_ok() {
            all.remove(&key.name);
            all.add(&key.name, usage);
        } else {
            all.refused.insert(Arc::clone(&key.name));
        }
        checked
    }

    /// Counts a Service that was refused by [`Self::check_ports`].
    pub(crate) fn refuse(&mut self, key: &ObjectKey) {
        let all = self
            .namespaces
            .entry(Arc::clone(&key.namespace))
            .or_default();
        all.refused.insert(Arc::clone(&key.name));
    }

    /// The Service is gone.
    pub(crate) fn release(&mut self, key: &ObjectKey) {
        if let Some(all) = self.namespaces.get_mut(&key.namespace) {
            all.remove(&key.name);
            if all.accepted.is_empty() && all.refused.is_empty() {
                self.namespaces.remove(&key.namespace);
            }
        }
    }

    /// Returns the ports, endpoints and zones that a namespace uses.
    pub(crate) fn used(&self, namespace: &str) -> [usize; 3] {
        let all = self.namespaces.get(namespace);
        all.map_or([0; 3], |all| [all.ports, all.endpoints, all.zones.len()])
    }

    /// Returns the Services of a namespace that exceed a limit.
    pub(crate) fn refused(&self, namespace: &str) -> impl Iterator<Item = &Arc<str>> {
        let all = self.namespaces.get(namespace);
        all.into_iter().flat_map(|all| &all.refused)
    }
}

impl Namespace {
    fn check(
        &self,
        limits: &NamespaceLimits,
        name: &Arc<str>,
        usage: &Usage,
    ) -> Result<(), OverLimit> {
        within(
            "ports_per_service",
            limits.ports_per_service,
            "ports of the Service",
            usage.ports,
        )?;
        within(
            "endpoints_per_service",
            limits.endpoints_per_service,
            "endpoints of all ports of the Service",
            usage.endpoints,
        )?;
        let longest = usage.zones.iter().map(|zone| zone.len()).max();
        within(
            "node_string_bytes",
            limits.zone_bytes,
            "bytes of a zone's name",
            longest.unwrap_or_default(),
        )?;
        let none = Usage::default();
        let before = self.accepted.get(name).unwrap_or(&none);
        // A Service that uses less than before is accepted, whatever others use.
        if usage.ports > before.ports {
            within(
                "ports_per_namespace",
                limits.ports_per_namespace,
                "ports of all Services of the namespace",
                self.ports - before.ports + usage.ports,
            )?;
        }
        if usage.endpoints > before.endpoints {
            within(
                "endpoints_per_namespace",
                limits.endpoints_per_namespace,
                "endpoints of all Services of the namespace",
                self.endpoints - before.endpoints + usage.endpoints,
            )?;
        }
        let is_new = |zone: &&Arc<str>| !self.zones.contains_key(*zone);
        let new = usage.zones.iter().filter(is_new).count();
        if new > 0 {
            let own = |zone: &&Arc<str>| {
                self.zones.get(*zone) == Some(&1) && !usage.zones.contains(*zone)
            };
            let left = before.zones.iter().filter(own).count();
            within(
                "zones_per_namespace",
                limits.zones_per_namespace,
                "zones of all Services of the namespace",
                self.zones.len() - left + new,
            )?;
        }
        Ok(())
    }

    fn add(&mut self, name: &Arc<str>, usage: Usage) {
        self.ports += usage.ports;
        self.endpoints += usage.endpoints;
        for zone in &usage.zones {
            *self.zones.entry(Arc::clone(zone)).or_default() += 1;
        }
        self.accepted.insert(Arc::clone(name), usage);
    }

    fn remove(&mut self, name: &Arc<str>) {
        self.refused.remove(name);
        let Some(usage) = self.accepted.remove(name) else {
            return;
        };
        self.ports -= usage.ports;
        self.endpoints -= usage.endpoints;
        for zone in &usage.zones {
            if let Some(count) = self.zones.get_mut(zone) {
                *count -= 1;
                if *count == 0 {
                    self.zones.remove(zone);
                }
            }
        }
    }
}

const fn within(
    limit: &'static str,
    allowed: usize,
    what: &'static str,
    value: usize,
) -> Result<(), OverLimit> {
    if value <= allowed {
        return Ok(());
    }
    Err(OverLimit {
        limit,
        what,
        value,
        allowed,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: NamespaceLimits = NamespaceLimits {
        ports_per_service: 4,
        endpoints_per_service: 10,
        ports_per_namespace: 6,
        endpoints_per_namespace: 15,
        zones_per_namespace: 3,
        zone_bytes: 8,
    };

    fn usage(ports: usize, endpoints: usize, zones: &[&str]) -> Usage {
        Usage {
            ports,
            endpoints,
            zones: zones.iter().map(|zone| Arc::from(*zone)).collect(),
        }
    }

    fn key(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey::new(namespace, name)
    }

    #[test]
    fn every_limit_refuses_one_more_and_names_itself() {
        let mut budgets = Budgets::new(LIMITS);
        let (a, b) = (key("n", "a"), key("n", "b"));
        for (one, limit) in [
            (usage(5, 0, &[]), "ports_per_service"),
            (usage(1, 11, &[]), "endpoints_per_service"),
            (usage(1, 1, &["too-long-"]), "node_string_bytes"),
            (usage(1, 1, &["a", "b", "c", "d"]), "zones_per_namespace"),
        ] {
            assert_eq!(budgets.admit(&a, one).unwrap_err().limit, limit);
        }
        assert_eq!(budgets.used("n"), [0; 3]);
        assert_eq!(budgets.admit(&a, usage(4, 10, &["a", "b"])), Ok(()));
        for (one, limit) in [
            (usage(3, 5, &[]), "ports_per_namespace"),
            (usage(2, 6, &[]), "endpoints_per_namespace"),
            (usage(2, 5, &["c", "d"]), "zones_per_namespace"),
        ] {
            assert_eq!(budgets.admit(&b, one).unwrap_err().limit, limit);
        }
        assert_eq!(budgets.admit(&b, usage(2, 5, &["a", "c"])), Ok(()));
        assert_eq!(budgets.used("n"), [6, 15, 3]);
        let error = budgets.admit(&b, usage(3, 5, &["a", "c"])).unwrap_err();
        let text = "ports of all Services of the namespace would be 7, more than \
                    ports_per_namespace (6): the Service stays as it was last accepted";
        assert_eq!(error.to_string(), text);
        assert_eq!(budgets.used("n"), [6, 15, 3], "as before");
        // Another namespace does not notice.
        assert_eq!(budgets.admit(&key("m", "a"), usage(4, 10, &["x"])), Ok(()));
    }

    #[test]
    fn a_service_may_always_use_less_and_is_known_until_it_fits() {
        let mut budgets = Budgets::new(LIMITS);
        let (a, b) = (key("n", "a"), key("n", "b"));
        budgets.admit(&a, usage(4, 10, &[])).unwrap();
        budgets.admit(&b, usage(3, 1, &[])).unwrap_err();
        let refused = |budgets: &Budgets| -> Vec<String> {
            budgets.refused("n").map(ToString::to_string).collect()
        };
        assert_eq!(refused(&budgets), ["b"]);
        budgets.limits.ports_per_namespace = 1;
        assert_eq!(budgets.admit(&a, usage(3, 9, &[])), Ok(()), "less");
        budgets.limits.ports_per_namespace = 6;
        assert_eq!(budgets.admit(&b, usage(3, 1, &[])), Ok(()));
        assert_eq!(refused(&budgets), [""; 0]);
        budgets.release(&a);
        budgets.release(&b);
        assert!(budgets.namespaces.is_empty());
    }

    proptest! {
        /// Whatever comes and goes: what is used is the sum of what is accepted, within limits.
        #[test]
        fn the_sums_are_those_of_the_accepted(
            steps in prop::collection::vec((0_u8..4, 0_usize..6, 0_usize..12, 0_u8..5), 0..60)
        ) {
            let mut budgets = Budgets::new(LIMITS);
            for (name, ports, endpoints, zones) in steps {
                let key = key("n", &name.to_string());
                let zones: Vec<_> = (0..zones).map(|zone| zone.to_string()).collect();
                let zones: Vec<_> = zones.iter().map(String::as_str).collect();
                if ports == 0 {
                    budgets.release(&key);
                } else {
                    let _ = budgets.admit(&key, usage(ports, endpoints, &zones));
                }
                let [ports, endpoints, zones] = budgets.used("n");
                prop_assert!(ports <= 6 && endpoints <= 15 && zones <= 3);
                let Some(all) = budgets.namespaces.get("n") else { continue };
                let accepted = all.accepted.values();
                let union: BTreeSet<_> = accepted.clone().flat_map(|one| &one.zones).collect();
                prop_assert_eq!(accepted.clone().map(|one| one.ports).sum::<usize>(), ports);
                prop_assert_eq!(accepted.map(|one| one.endpoints).sum::<usize>(), endpoints);
                prop_assert_eq!(union.len(), zones);
            }
        }
    }
}
