//! [`Translator`]: services of Consul to services of the control plane.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_consul::{Batch, DiscoveredService, EndpointState};
use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use serde_json::Map;

use crate::config::{Consul, Service};
use crate::services::{Found, ServiceChanges};
use crate::sources::{SourceId, with_endpoints};

/// Converts services of Consul. It keeps what it built, so that a change of endpoints does not
/// parse settings again.
#[derive(Debug)]
pub(super) struct Translator {
    settings: Consul,
    known: BTreeMap<Arc<str>, Arc<Service>>,
}

impl Translator {
    pub(super) const fn new(settings: Consul) -> Self {
        Self {
            settings,
            known: BTreeMap::new(),
        }
    }

    /// Converts a batch to changed services.
    pub(super) fn handle_batch(&mut self, batch: Batch) -> ServiceChanges {
        let mut changes = ServiceChanges {
            is_complete: batch.is_complete,
            ..ServiceChanges::none(SourceId::Consul)
        };
        for (name, found) in batch.services {
            let cluster: Arc<str> = self.settings.name(&name).into();
            let service = match found {
                Some(found) => self.service(&cluster, &found),
                None => {
                    self.known.remove(&cluster);
                    None
                }
            };
            let object: Arc<str> = format!("Consul service {name}").into();
            let found = service.map(|service| Found {
                service,
                object: Some(object),
            });
            changes.services.insert(cluster, found);
        }
        changes
    }

    fn service(&mut self, cluster: &Arc<str>, found: &DiscoveredService) -> Option<Arc<Service>> {
        let known = self.known.get(cluster).cloned().or_else(|| {
            // The defaults have been checked; no name of a service makes them invalid.
            let built = self.settings.defaults.service(cluster, false, &Map::new());
            built.ok().map(Arc::new)
        })?;
        let endpoints = found.endpoints.iter().map(|(address, endpoint)| {
            let zone = endpoint.zone.as_deref().unwrap_or_default();
            let lb_endpoint = LbEndpoint {
                health_status: match endpoint.state {
                    EndpointState::Ready => HealthStatus::Unknown,
                    EndpointState::Draining => HealthStatus::Draining,
                    EndpointState::Unhealthy => HealthStatus::Unhealthy,
                },
                load_balancing_weight: Some(endpoint.weight).filter(|weight| *weight != 1),
                ..LbEndpoint::new(*address)
            };
            (Locality::new(&endpoint.region, zone, ""), lb_endpoint)
        });
        let service = with_endpoints(known, endpoints);
        self.known.insert(Arc::clone(cluster), Arc::clone(&service));
        Some(service)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_consul::Endpoint;

    use super::*;
    use crate::state::tests::driver::parse;

    fn translator(more: &str) -> Translator {
        let config = parse(&format!(
            "consul: {{cluster_name: 'c-{{service}}', {more}}}"
        ));
        Translator::new(config.sources.consul.clone().unwrap())
    }

    fn batch(endpoints: &[(&str, Option<&str>, EndpointState, u32)]) -> Batch {
        let endpoint = |(address, zone, state, weight): &(&str, Option<&str>, _, _)| {
            let endpoint = Endpoint {
                region: "dc1".into(),
                zone: zone.map(Arc::from),
                state: *state,
                weight: *weight,
            };
            (address.parse().unwrap(), endpoint)
        };
        let found = DiscoveredService {
            endpoints: endpoints.iter().map(endpoint).collect(),
        };
        Batch {
            is_complete: false,
            services: [("orders".into(), Some(found))].into(),
        }
    }

    fn only(changes: &ServiceChanges) -> &Found {
        let (name, found) = changes.services.first_key_value().unwrap();
        assert_eq!(&**name, "c-orders");
        found.as_ref().unwrap()
    }

    #[test]
    fn endpoints_have_region_zone_health_and_weight() {
        let mut translator = translator("mode: ENFORCE");
        let changes = translator.handle_batch(batch(&[
            ("10.0.0.1:80", Some("a"), EndpointState::Ready, 1),
            ("10.0.0.2:80", Some("a"), EndpointState::Draining, 5),
            ("10.0.0.3:80", None, EndpointState::Unhealthy, 1),
        ]));
        let found = only(&changes);
        assert_eq!(found.object.as_deref(), Some("Consul service orders"));
        let localities = found.service.assignment.endpoints();
        let shown: Vec<_> = localities
            .iter()
            .map(|one| {
                let hosts = one.lb_endpoints.iter();
                let hosts: Vec<_> = hosts
                    .map(|host| (host.health_status, host.load_balancing_weight))
                    .collect();
                (one.locality.to_string(), hosts)
            })
            .collect();
        let [healthy, draining, failing] = [
            (HealthStatus::Unknown, None),
            (HealthStatus::Draining, Some(5)),
            (HealthStatus::Unhealthy, None),
        ];
        let expected = [
            ("dc1".to_owned(), vec![failing]),
            ("dc1/a".to_owned(), vec![healthy, draining]),
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_batch_without_a_difference_keeps_the_service() {
        let mut translator = translator("");
        let ready = [("10.0.0.1:80", Some("a"), EndpointState::Ready, 1)];
        let first = translator.handle_batch(batch(&ready));
        let second = translator.handle_batch(batch(&ready));
        assert!(Arc::ptr_eq(&only(&first).service, &only(&second).service));
        let other = translator.handle_batch(batch(&[]));
        let (one, two) = (&only(&first).service, &only(&other).service);
        assert!(one.has_same_settings(two) && one != two);
        let gone = translator.handle_batch(Batch {
            is_complete: false,
            services: [("orders".into(), None)].into(),
        });
        assert_eq!(gone.services["c-orders"], None);
    }
}
