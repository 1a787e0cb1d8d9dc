//! [`Translator`]: SRV records to services of the control plane.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::{Instances, RemovalGuard};
use serde_json::Map;

use super::super::{SourceId, with_endpoints};
use super::lookup::Targets;
use crate::config::{Dns, Service};
use crate::services::{Found, ServiceChanges};

/// Joins the names of each cluster. A cluster appears when all of its names have been answered: it
/// never lacks a zone because that of another one came first.
#[derive(Debug)]
pub(super) struct Translator {
    dns: Dns,
    /// Endpoints of each name; `None` before its first answer.
    names: Vec<Option<Instances<SocketAddr, u32>>>,
    guard: RemovalGuard,
    known: BTreeMap<Arc<str>, Arc<Service>>,
}

impl Translator {
    pub(super) fn new(dns: Dns, guard: RemovalGuard) -> Self {
        Self {
            names: dns.names.iter().map(|_| None).collect(),
            dns,
            guard,
            known: BTreeMap::new(),
        }
    }

    /// Whether every name has been answered.
    pub(super) fn is_complete(&self) -> bool {
        self.names.iter().all(Option::is_some)
    }

    /// Returns the number of endpoints in force of a name.
    pub(super) fn endpoints(&self, index: usize) -> usize {
        let instances = self.names[index].as_ref();
        instances.map_or(0, |instances| instances.in_force().len())
    }

    /// Returns the number of endpoints of a name that it no longer has.
    pub(super) fn held(&self, index: usize) -> usize {
        self.names[index].as_ref().map_or(0, Instances::held)
    }

    /// Takes the records of a name. Returns the changed services: all of them when the last name
    /// has been answered, for the first time.
    pub(super) fn handle_answer(
        &mut self,
        index: usize,
        targets: Targets,
        now: Instant,
    ) -> Option<ServiceChanges> {
        let was_complete = self.is_complete();
        let guard = self.guard;
        self.names[index]
            .get_or_insert_with(|| Instances::new(guard))
            .handle_answer(targets, false, now);
        let cluster: Arc<str> = self.dns.names[index].cluster.as_str().into();
        let changed = self.update(&cluster);
        let is_complete = !was_complete && self.is_complete();
        if !is_complete && !changed {
            return None;
        }
        let wanted = |name: &Arc<str>| is_complete || *name == cluster;
        let services = self.known.iter().filter(|(name, _)| wanted(name));
        let found = |service: &Arc<Service>| Found {
            service: Arc::clone(service),
            object: Some(format!("SRV records of {}", service.name()).into()),
        };
        Some(ServiceChanges {
            is_complete,
            services: services
                .map(|(name, service)| (Arc::clone(name), Some(found(service))))
                .collect(),
            ..ServiceChanges::none(SourceId::Dns)
        })
    }

    /// Builds the service of a cluster again. Returns whether it changed.
    fn update(&mut self, cluster: &Arc<str>) -> bool {
        let names = self.dns.names.iter().zip(&self.names);
        let mut endpoints = BTreeMap::new();
        for (name, instances) in names.filter(|(name, _)| *name.cluster == **cluster) {
            let Some(instances) = instances else {
                return false;
            };
            // An address with two names is in the zone of the first.
            for (address, weight) in instances.in_force() {
                endpoints
                    .entry(*address)
                    .or_insert((name.locality.clone(), *weight));
            }
        }
        let before = self.known.get(cluster).cloned();
        let known = before.clone().or_else(|| {
            // The defaults have been checked; no name of a cluster makes them invalid.
            let built = self.dns.defaults.service(cluster, false, &Map::new());
            built.ok().map(Arc::new)
        });
        let Some(known) = known else {
            return false;
        };
        let endpoints = endpoints.into_iter().map(|(address, (locality, weight))| {
            let load_balancing_weight = Some(weight).filter(|weight| *weight != 1);
            let endpoint = LbEndpoint {
                load_balancing_weight,
                ..LbEndpoint::new(address)
            };
            (locality, endpoint)
        });
        let service = with_endpoints(known, endpoints);
        let is_same = before.is_some_and(|before| Arc::ptr_eq(&before, &service));
        self.known.insert(Arc::clone(cluster), service);
        !is_same
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::state::tests::driver::parse;

    const DELAY: Duration = Duration::from_secs(300);

    fn translator() -> Translator {
        let config = parse(
            "dns: {names: [{name: a.example, cluster: orders, zone: a}, {name: b.example, cluster: \
             orders, zone: b}, {name: c.example, cluster: other}]}",
        );
        let guard = RemovalGuard {
            max_removed_percent: 99,
            delay: DELAY,
        };
        Translator::new(config.sources.dns.clone().unwrap(), guard)
    }

    fn targets(ports: &[u16]) -> Targets {
        let address = |port: &u16| SocketAddr::from(([127, 0, 0, 1], *port));
        let targets = ports.iter().map(|port| (address(port), u32::from(*port)));
        targets.collect()
    }

    fn shown(changes: Option<&ServiceChanges>, cluster: &str) -> Vec<(String, usize)> {
        let found = changes.unwrap().services[cluster].as_ref().unwrap();
        let localities = found.service.assignment.endpoints().iter();
        localities
            .map(|one| (one.locality.to_string(), one.lb_endpoints.len()))
            .collect()
    }

    fn after(time: Duration) -> Instant {
        Instant::ORIGIN.saturating_add(time)
    }

    #[test]
    fn a_cluster_appears_with_all_of_its_zones_and_the_last_name_completes_all() {
        let mut translator = translator();
        let now = Instant::ORIGIN;
        assert!(translator.handle_answer(0, targets(&[1, 2]), now).is_none());
        let changes = translator.handle_answer(1, targets(&[3]), now);
        let both = [("a".to_owned(), 2), ("b".to_owned(), 1)];
        assert_eq!(shown(changes.as_ref(), "orders"), both);
        assert!(!changes.unwrap().is_complete);
        let changes = translator.handle_answer(2, targets(&[]), now).unwrap();
        assert!(changes.is_complete && changes.services.len() == 2);
        assert!(
            translator.handle_answer(2, targets(&[]), now).is_none(),
            "nothing changed"
        );
    }

    #[test]
    fn fewer_records_are_followed_and_a_name_without_any_keeps_its_endpoints() {
        let mut translator = translator();
        let now = Instant::ORIGIN;
        for (index, ports) in [&[1, 2][..], &[3], &[]].into_iter().enumerate() {
            let _ = translator.handle_answer(index, targets(ports), now);
        }
        let changes = translator.handle_answer(0, targets(&[2]), now);
        let fewer = [("a".to_owned(), 1), ("b".to_owned(), 1)];
        assert_eq!(shown(changes.as_ref(), "orders"), fewer);
        assert!(translator.handle_answer(0, targets(&[]), now).is_none());
        assert_eq!((translator.endpoints(0), translator.held(0)), (1, 1));
        let gone = translator.handle_answer(0, targets(&[]), after(DELAY));
        assert_eq!(shown(gone.as_ref(), "orders"), [("b".to_owned(), 1)]);
        assert_eq!(translator.held(0), 0);
    }
}
