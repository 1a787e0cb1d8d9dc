//! [`Translator`]: Services of Kubernetes to services of the control plane.
//!
//! It keeps what it built, so that a change of endpoints does not parse settings again, and so that
//! a Service whose settings became invalid keeps the previous ones.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use plimsoll_core::model::assignment::LbEndpoint;
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
use crate::delivery::refuse_without_effect;
use crate::services::{Found, ServiceChanges};
use crate::sources::{SourceId, with_endpoints};

/// Reason of events about settings that are refused.
const INVALID_SETTING: &str = "InvalidSetting";
/// Reason of events about annotations without effect, as of the condition of a policy.
const NOT_STEERED: &str = "NotSteered";

/// A setting that is not in force, or has no effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Reason of the event.
    pub event: &'static str,
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
    /// Annotations that are in force without effect.
    without_effect: VecDeque<Refused>,
}

/// What was built for one port.
#[derive(Clone, Debug)]
struct Known {
    /// What the settings were built from.
    written: Written,
    service: Arc<Service>,
    /// The latest error, so that it is reported once.
    error: Option<Refused>,
    /// The annotation that asks for demand which cannot steer the service, likewise.
    without_effect: Option<Refused>,
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
            without_effect: VecDeque::new(),
        }
    }

    /// Converts a batch to changed services, and returns settings that are refused.
    pub fn handle_batch(&mut self, batch: Batch) -> (ServiceChanges, Vec<Refused>) {
        let mut changes = ServiceChanges {
            is_complete: batch.is_complete,
            ..ServiceChanges::none(SourceId::Kubernetes)
        };
        let mut refused = Vec::new();
        for (key, found) in batch.services {
            let before = self.known.remove(&key).unwrap_or_default();
            let mut after = BTreeMap::new();
            if let Some(found) = found {
                let object: Arc<str> =
                    format!("Service {key}@{}", found.service.resource_version).into();
                after = self.ports(&key, &found, &before, &mut refused);
                for (name, known) in &after {
                    let service = Arc::clone(&known.service);
                    let object = Some(Arc::clone(&object));
                    let found = Found { service, object };
                    changes.services.insert(Arc::clone(name), Some(found));
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

    /// Returns the next annotation that asks for demand which cannot steer its Service. Conditions
    /// say so about a ZoneRoutingPolicy.
    pub fn poll_without_effect(&mut self) -> Option<Refused> {
        self.without_effect.pop_front()
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
                    event: INVALID_SETTING,
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
            let found = [&mut known.error, &mut known.without_effect];
            for one in found.into_iter().flatten() {
                one.service.clone_from(&owned);
            }
            let before = before.get(&name);
            let is_new = before.is_none_or(|old| old.error != known.error);
            refused.extend(known.error.clone().filter(|_| is_new));
            let is_new = before.is_none_or(|old| old.without_effect != known.without_effect);
            let without_effect = known.without_effect.clone().filter(|_| is_new);
            self.without_effect.extend(without_effect);
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
                    let service = self
                        .settings
                        .defaults
                        .service(name, is_http2, &written.settings);
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
                let service = self.settings.defaults.service(name, is_http2, &settings);
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
            without_effect: settings.and_then(|settings| without_effect(settings, &service)),
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

    fn with_endpoints(&self, service: Arc<Service>, endpoints: &[Endpoint]) -> Arc<Service> {
        let placed = endpoints.iter().map(|endpoint| {
            let health_status = match endpoint.state {
                EndpointState::Ready => HealthStatus::Unknown,
                EndpointState::Draining => HealthStatus::Draining,
            };
            let lb_endpoint = LbEndpoint {
                health_status,
                ..LbEndpoint::new(endpoint.address)
            };
            let zone = endpoint.zone.as_ref();
            let locality = zone.map_or_else(Locality::default, |zone| {
                Locality::new(&self.settings.region, zone, "")
            });
            (locality, lb_endpoint)
        });
        with_endpoints(service, placed)
    }
}

/// Returns the settings in the shape of a service in a file.
fn as_in_file(settings: &Settings) -> Map<String, Value> {
    let mut written = Map::new();
    for field in ["mode", "ramp", "delivery", "objective", "capacity", "cost"] {
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

/// Returns the annotation that asks for demand which cannot steer the service.
fn without_effect(settings: &Settings, service: &Service) -> Option<Refused> {
    let error = refuse_without_effect(service).err()?;
    let origin = settings.origin_of(error.path());
    let own = origin.filter(|_| settings.policy.is_none())?;
    Some(Refused {
        event: NOT_STEERED,
        object: own.object.clone(),
        reason: format!("{}: {}", own.field, error.reason()),
        service: None,
    })
}

fn refused(error: &SettingError) -> Refused {
    Refused {
        event: INVALID_SETTING,
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
        event: INVALID_SETTING,
        object,
        reason: format!("{field}{}: {reason}", inner.unwrap_or_default()),
        service: None,
    }
}

#[cfg(test)]
mod tests;
