//! [`Translator`]: Services of Kubernetes to services of the control plane.
//!
//! It keeps what it built, so that a change of endpoints does not parse settings again, and so that
//! a Service whose settings became invalid keeps those of before.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_kubernetes::Batch;
use plimsoll_kubernetes::merge::{Endpoint, EndpointState};
use plimsoll_kubernetes::objects::{ObjectKey, ZoneRoutingPolicy};
use plimsoll_kubernetes::settings::{Distribute, SettingError, Settings};
use plimsoll_kubernetes::{DiscoveredService as FoundService, ServicePort};
use plimsoll_xds::yaml::ConfigError;
use serde_json::{Map, Value};

use super::report::PolicyView;
use crate::config::{Kubernetes, Service};
use crate::state::{DiscoveredChanges, DiscoveredService};

/// A setting that is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Kind and key of the object.
    pub object: String,
    pub reason: String,
    /// Key and uid of the Service, for an event.
    pub service: Option<(ObjectKey, Arc<str>)>,
}

/// Converts Services of Kubernetes.
#[derive(Debug)]
pub struct Translator {
    settings: Kubernetes,
    /// Clusters of each Service.
    known: BTreeMap<ObjectKey, BTreeMap<Arc<str>, Known>>,
    /// Service of each cluster: names from a template may collide.
    owners: BTreeMap<Arc<str>, ObjectKey>,
}

/// What was built for one port.
#[derive(Clone, Debug)]
struct Known {
    /// What the settings were built from.
    written: Written,
    service: Arc<Service>,
    /// The latest error, so that it is reported once.
    error: Option<Refused>,
    /// The policy in force, and whether it distributes.
    policy: Option<ObjectKey>,
    distribute: Distribute,
}

#[derive(Clone, Debug, PartialEq)]
struct Written {
    is_http2: bool,
    settings: Map<String, Value>,
}

impl Translator {
    /// Creates a translator with the defaults of the configuration.
    pub const fn new(settings: Kubernetes) -> Self {
        Self {
            settings,
            known: BTreeMap::new(),
            owners: BTreeMap::new(),
        }
    }

    /// Converts a batch to changed services, and returns settings that are refused.
    pub fn handle_batch(&mut self, batch: Batch) -> (DiscoveredChanges, Vec<Refused>) {
        let mut changes = DiscoveredChanges {
            is_complete: batch.is_complete,
            ..DiscoveredChanges::default()
        };
        let mut refused = Vec::new();
        for (key, found) in batch.services {
            let before = self.known.remove(&key).unwrap_or_default();
            let mut after = BTreeMap::new();
            if let Some(found) = found {
                let origin: Arc<str> =
                    format!("Service {key}@{}", found.service.resource_version).into();
                after = self.ports(&key, &found, &before, &mut refused);
                for (name, known) in &after {
                    let service = Arc::clone(&known.service);
                    let origin = Arc::clone(&origin);
                    let discovered = DiscoveredService { service, origin };
                    changes.services.insert(Arc::clone(name), Some(discovered));
                }
            }
            for name in before.into_keys().filter(|name| !after.contains_key(name)) {
                self.owners.remove(&name);
                changes.services.insert(name, None);
            }
            if !after.is_empty() {
                self.known.insert(key, after);
            }
        }
        (changes, refused)
    }

    fn ports(
        &mut self,
        key: &ObjectKey,
        found: &FoundService,
        before: &BTreeMap<Arc<str>, Known>,
        refused: &mut Vec<Refused>,
    ) -> BTreeMap<Arc<str>, Known> {
        let mut built = BTreeMap::new();
        for port in &found.ports {
            let (number, port_name) = (port.endpoints.port, &port.endpoints.name);
            let name = self
                .settings
                .name(&key.namespace, &key.name, number, port_name);
            let name: Arc<str> = name.into();
            let owner = self.owners.get(&name);
            if built.contains_key(&name) || owner.is_some_and(|owner| owner != key) {
                let reason = format!("cluster {name} is already that of another port");
                refused.push(Refused {
                    object: format!("Service {key}"),
                    reason,
                    service: Some((key.clone(), Arc::clone(&found.service.uid))),
                });
                continue;
            }
            let owned = Some((key.clone(), Arc::clone(&found.service.uid)));
            let mut known = match self.port(&name, port, found.error.as_ref(), before.get(&name)) {
                Ok(known) => known,
                Err(mut error) => {
                    error.service = owned;
                    refused.push(error);
                    continue;
                }
            };
            if let Some(error) = &mut known.error {
                error.service = owned;
            }
            let is_new = before.get(&name).is_none_or(|old| old.error != known.error);
            refused.extend(known.error.clone().filter(|_| is_new));
            self.owners.insert(Arc::clone(&name), key.clone());
            built.insert(name, known);
        }
        built
    }

    fn port(
        &self,
        name: &Arc<str>,
        port: &ServicePort,
        error: Option<&SettingError>,
        before: Option<&Known>,
    ) -> Result<Known, Refused> {
        let is_http2 = port.endpoints.is_http2;
        let read = match (&port.settings, error) {
            (_, Some(error)) | (Err(error), None) => Err(refused(error)),
            (Ok(settings), None) => Ok(settings),
        };
        let built = read.and_then(|settings| {
            let written = Written {
                is_http2,
                settings: as_in_file(settings),
            };
            match before {
                Some(before) if before.written == written => {
                    Ok((written, Arc::clone(&before.service)))
                }
                _ => {
                    let service = self.settings.service(name, is_http2, &written.settings);
                    let service = service.map_err(|error| located(settings, &error))?;
                    Ok((written, Arc::new(service)))
                }
            }
        });
        let settings = port.settings.as_ref().ok();
        let (written, service, error) = match (built, before) {
            (Ok((written, service)), _) => (written, service, None),
            (Err(error), Some(before)) => (
                before.written.clone(),
                Arc::clone(&before.service),
                Some(error),
            ),
            (Err(error), None) => {
                // A Service that was never valid has the defaults of the file.
                let settings = Map::new();
                let service = self.settings.service(name, is_http2, &settings);
                let service = service.map_err(|_| error.clone())?;
                (
                    Written { is_http2, settings },
                    Arc::new(service),
                    Some(error),
                )
            }
        };
        Ok(Known {
            written,
            service: self.with_endpoints(service, &port.endpoints.endpoints),
            error,
            policy: settings.and_then(|one| one.policy.as_ref().map(|policy| policy.key.clone())),
            distribute: settings.map_or(Distribute::Off, |settings| settings.distribute),
        })
    }

    /// Returns what a policy applies to.
    pub(super) fn view(&self, policy: &Arc<ZoneRoutingPolicy>) -> PolicyView {
        let mut view = PolicyView {
            policy: Arc::clone(policy),
            clusters: Vec::new(),
            has_target: false,
            error: None,
            distribute: Distribute::Off,
        };
        let object = format!("ZoneRoutingPolicy {}", policy.key);
        for target in policy.target_refs.iter().filter(|one| one.is_service()) {
            let key = ObjectKey::new(&policy.key.namespace, &target.name);
            let Some(ports) = self.known.get(&key) else {
                continue;
            };
            view.has_target = true;
            for (name, known) in ports {
                if let Some(error) = known.error.as_ref().filter(|one| one.object == object) {
                    view.error = Some(error.reason.clone());
                } else if known.policy.as_ref() == Some(&policy.key) {
                    view.clusters.push((key.clone(), Arc::clone(name)));
                    view.distribute = known.distribute;
                }
            }
        }
        view.clusters.dedup();
        view
    }

    /// Returns the service with other endpoints; the same one if they are the same.
    fn with_endpoints(&self, service: Arc<Service>, endpoints: &[Endpoint]) -> Arc<Service> {
        let mut zones: BTreeMap<Option<&Arc<str>>, Vec<LbEndpoint>> = BTreeMap::new();
        for endpoint in endpoints {
            let health_status = match endpoint.state {
                EndpointState::Ready => HealthStatus::Unknown,
                EndpointState::Draining => HealthStatus::Draining,
            };
            zones
                .entry(endpoint.zone.as_ref())
                .or_default()
                .push(LbEndpoint {
                    health_status,
                    ..LbEndpoint::new(endpoint.address)
                });
        }
        let localities = zones.into_iter().map(|(zone, lb_endpoints)| LocalityParts {
            locality: zone.map_or_else(Locality::default, |zone| {
                Locality::new(&self.settings.region, zone, "")
            }),
            lb_endpoints,
            ..LocalityParts::default()
        });
        let parts = AssignmentParts {
            overprovisioning_factor: Some(service.assignment.overprovisioning_factor()),
            ..AssignmentParts::new(service.name().to_string(), localities)
        };
        // Addresses are distinct and ports above 0; should the API server allow others, the last
        // assignment stays.
        let Ok(assignment) = ClusterLoadAssignment::try_new(parts) else {
            return service;
        };
        if assignment == *service.assignment {
            return service;
        }
        Arc::new(Service {
            assignment: Arc::new(assignment),
            ..Service::clone(&service)
        })
    }
}

/// Returns the settings in the shape of a service in a file.
fn as_in_file(settings: &Settings) -> Map<String, Value> {
    let mut written = Map::new();
    for field in ["mode", "ramp", "delivery"] {
        if let Some(setting) = settings.values.get(field) {
            written.insert(field.to_owned(), setting.value.clone());
        }
    }
    let cluster = settings.cluster();
    if !cluster.is_empty() {
        written.insert("cluster".to_owned(), Value::Object(cluster));
    }
    written
}

fn refused(error: &SettingError) -> Refused {
    Refused {
        object: error.origin.object.clone(),
        reason: format!("{}: {}", error.origin.field, error.reason),
        service: None,
    }
}

/// Translates an error about a setting to the object that has it.
fn located(settings: &Settings, error: &ConfigError) -> Refused {
    let origin = settings.origin_of(error.path());
    let (path, reason) = (error.path(), error.reason());
    let (object, field) = match origin {
        Some(origin) => (origin.object.clone(), origin.field.clone()),
        None => ("Kubernetes".to_owned(), path.to_owned()),
    };
    // `spec.cluster` has fields of its own.
    let inner = path
        .strip_prefix("cluster")
        .filter(|_| field == "spec.cluster");
    Refused {
        object,
        reason: format!("{field}{}: {reason}", inner.unwrap_or_default()),
        service: None,
    }
}

#[cfg(test)]
mod tests;
