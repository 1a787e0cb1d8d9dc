//! [`Inventory`]: the services of all datacenters by name, without IO.
//!
//! A service that several datacenters have is one service, with endpoints in several regions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::merge::Endpoints;

/// A service of Consul.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscoveredService {
    pub endpoints: Endpoints,
}

/// All services; datacenters are numbered.
#[derive(Debug, Default)]
pub struct Inventory {
    services: BTreeMap<Arc<str>, BTreeMap<usize, Endpoints>>,
    changed: BTreeSet<Arc<str>>,
}

impl Inventory {
    /// Replaces the endpoints of a service in a datacenter; `None` if it no longer has the service.
    pub fn handle_endpoints(
        &mut self,
        datacenter: usize,
        service: &Arc<str>,
        endpoints: Option<Endpoints>,
    ) {
        let found = self.services.entry(Arc::clone(service)).or_default();
        match endpoints {
            Some(endpoints) => drop(found.insert(datacenter, endpoints)),
            None => drop(found.remove(&datacenter)),
        }
        if found.is_empty() {
            self.services.remove(service);
        }
        self.changed.insert(Arc::clone(service));
    }

    /// Whether [`Self::poll_changed`] has something to return.
    pub fn has_changed(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Returns a service that changed; `None` in place of the service if it is gone.
    pub fn poll_changed(&mut self) -> Option<(Arc<str>, Option<DiscoveredService>)> {
        let name = self.changed.pop_first()?;
        let found = self.services.get(&name).map(|found| {
            let mut endpoints = Endpoints::new();
            // Of two datacenters with the same address, the first one has it.
            for (address, endpoint) in found.values().rev().flatten() {
                endpoints.insert(*address, endpoint.clone());
            }
            DiscoveredService { endpoints }
        });
        Some((name, found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merge::{Endpoint, EndpointState};

    fn endpoints(region: &str, addresses: &[&str]) -> Endpoints {
        let endpoint = Endpoint {
            region: region.into(),
            zone: None,
            state: EndpointState::Ready,
            weight: 1,
        };
        let parsed = addresses.iter().map(|address| address.parse().unwrap());
        parsed.map(|address| (address, endpoint.clone())).collect()
    }

    #[test]
    fn a_service_of_two_datacenters_is_one() {
        let mut inventory = Inventory::default();
        let name: Arc<str> = "orders".into();
        let both = "10.0.0.1:80";
        inventory.handle_endpoints(0, &name, Some(endpoints("a", &[both])));
        inventory.handle_endpoints(1, &name, Some(endpoints("b", &[both, "10.0.0.2:80"])));
        assert!(inventory.has_changed());
        let (changed, found) = inventory.poll_changed().unwrap();
        let regions: Vec<_> = found
            .iter()
            .flat_map(|found| found.endpoints.values())
            .map(|endpoint| &*endpoint.region)
            .collect();
        assert_eq!((&*changed, regions), ("orders", vec!["a", "b"]));
        assert!(inventory.poll_changed().is_none() && !inventory.has_changed());

        inventory.handle_endpoints(0, &name, None);
        let (_, found) = inventory.poll_changed().unwrap();
        assert_eq!(found.unwrap().endpoints.len(), 2);
        inventory.handle_endpoints(1, &name, None);
        assert_eq!(inventory.poll_changed(), Some((name, None)));
    }
}
