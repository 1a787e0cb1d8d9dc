//! [`Translator`]: Services of Kubernetes to services of the control plane.
//!
//! It keeps what it built, so that a change of endpoints does not parse settings again, and so that
//! a setting that became invalid keeps its last valid value. Each setting stands for itself: one
//! that is invalid leaves the others in force, also after a restart, which knows no last values.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use plimsoll_core::model::assignment::LbEndpoint;
use plimsoll_core::model::health::HealthStatus;
use plimsoll_core::model::locality::Locality;
use plimsoll_kubernetes::Batch;
use plimsoll_kubernetes::merge::{Endpoint, EndpointState};
use plimsoll_kubernetes::objects::{ObjectKey, ZoneRoutingPolicy};
use plimsoll_kubernetes::settings::{Distribute, Setting, SettingError, Settings};
use plimsoll_kubernetes::{DiscoveredService as FoundService, ServicePort};
use plimsoll_xds::yaml::ConfigError;
use serde_json::{Map, Value, json};

use super::report::PolicyView;
use crate::config::{Kubernetes, Service};
use crate::delivery::refuse_without_effect;
use crate::services::{Found, ServiceChanges};
use crate::sources::{SourceId, with_endpoints};

/// Reason of events about settings that are refused.
const INVALID_SETTING: &str = "InvalidSetting";
/// Reason of events about annotations without effect, as of the condition of a policy.
const NOT_STEERED: &str = "NotSteered";
/// Reason of events about Services that exceed a limit.
const LIMIT_EXCEEDED: &str = "LimitExceeded";

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
    /// Name of the limit that is exceeded.
    pub limit: Option<&'static str>,
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
    /// Services that exceed a limit.
    over_limit: BTreeMap<ObjectKey, Refused>,
}

/// What was built for one port.
#[derive(Clone, Debug)]
struct Known {
    /// What the settings were built from.
    written: Written,
    /// Name of the port.
    port: Arc<str>,
    /// The settings in force: of those that are invalid, the last valid ones.
    values: BTreeMap<&'static str, Setting>,
    service: Arc<Service>,
    /// What is invalid, so that it is reported once.
    errors: Vec<Refused>,
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
            over_limit: BTreeMap::new(),
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
            if self.exceeds_limit(&key, found.as_ref(), &mut refused) {
                continue;
            }
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
                    limit: None,
                });
                continue;
            }
            let owned = Some((key.clone(), Arc::clone(&found.service.uid)));
            let port = Port {
                name: &name,
                namespace: &key.namespace,
                found: port,
            };
            let mut known = match self.port(port, found.error.as_ref(), before.get(&name)) {
                Ok(known) => known,
                Err(mut error) => {
                    error.service = owned;
                    refused.push(*error);
                    continue;
                }
            };
            for one in known.errors.iter_mut().chain(&mut known.without_effect) {
                one.service.clone_from(&owned);
            }
            let before = before.get(&name);
            let old = before.map_or(&[][..], |old| &old.errors[..]);
            let new = known.errors.iter().filter(|error| !old.contains(error));
            // All ports have the same annotations.
            let new: Vec<_> = new
                .filter(|error| !refused.contains(error))
                .cloned()
                .collect();
            refused.extend(new);
            let is_new = before.is_none_or(|old| old.without_effect != known.without_effect);
            let without_effect = known.without_effect.clone().filter(|_| is_new);
            self.without_effect.extend(without_effect);
            self.owners.insert(Arc::clone(&name), key.clone());
            built.insert(name, known);
        }
        built
    }

    /// Whether a Service exceeds a limit: what is known of it stays in force.
    fn exceeds_limit(
        &mut self,
        key: &ObjectKey,
        found: Option<&FoundService>,
        refused: &mut Vec<Refused>,
    ) -> bool {
        let over = found.and_then(|found| Some((found, found.over_limit.as_ref()?)));
        let Some((found, over)) = over else {
            self.over_limit.remove(key);
            return false;
        };
        let one = Refused {
            event: LIMIT_EXCEEDED,
            object: format!("Service {key}"),
            reason: over.to_string(),
            service: Some((key.clone(), Arc::clone(&found.service.uid))),
            limit: Some(over.limit),
        };
        let before = self.over_limit.insert(key.clone(), one.clone());
        if before.is_none_or(|before| before.limit != one.limit) {
            refused.push(one);
        }
        true
    }

    fn port(
        &self,
        port: Port<'_>,
        error: Option<&SettingError>,
        before: Option<&Known>,
    ) -> Result<Known, Box<Refused>> {
        let mut valid = self.valid(port, before)?;
        let port = port.found;
        let found = &port.settings;
        valid.errors.extend(error.map(refused));
        let in_force = Settings {
            values: valid.values,
            ..found.clone()
        };
        let policy = found.policy.as_ref().map(|policy| policy.key.clone());
        let is_kept = found.errors.iter().any(|one| one.setting == Some("istio"));
        let same = before.filter(|before| is_kept && before.policy == policy);
        Ok(Known {
            written: valid.written,
            port: Arc::clone(&port.endpoints.name),
            without_effect: without_effect(&in_force, &valid.service),
            service: self.with_endpoints(valid.service, &port.endpoints.endpoints),
            errors: valid.errors,
            values: in_force.values,
            policy,
            distribute: same.map_or(found.distribute, |before| before.distribute),
        })
    }

    /// Builds a service from the settings that are valid. Those that are not have their last valid
    /// value, or the default.
    fn valid(&self, port: Port<'_>, before: Option<&Known>) -> Result<Valid, Box<Refused>> {
        let mut settings = port.found.settings.clone();
        let last = |setting| before.and_then(|before| before.values.get(setting));
        let mut errors: Vec<Refused> = settings.errors.iter().map(refused).collect();
        for setting in settings.errors.iter().filter_map(|error| error.setting) {
            if let Some(value) = last(setting) {
                settings.values.insert(setting, value.clone());
            }
        }
        let mut restored = BTreeSet::new();
        loop {
            let error = match self.build(port, &settings, before) {
                Ok((written, service)) => {
                    return Ok(Valid {
                        written,
                        values: settings.values,
                        service,
                        errors,
                    });
                }
                Err(error) => error,
            };
            let refused = located(&settings, &error);
            if settings.values.is_empty() {
                // The defaults are valid by themselves, but not for this name or protocol.
                return Err(Box::new(refused));
            }
            match settings.setting_of(error.path()) {
                Some(setting) if restored.insert(setting) => {
                    errors.push(refused);
                    match last(setting) {
                        Some(value) => settings.values.insert(setting, value.clone()),
                        None => settings.values.remove(setting),
                    };
                }
                // The last value is not valid beside the others.
                Some(setting) => drop(settings.values.remove(setting)),
                None => {
                    errors.push(refused);
                    settings.values.clear();
                }
            }
        }
    }

    /// Builds a service from settings, unless it was built from the same ones before.
    fn build(
        &self,
        port: Port<'_>,
        settings: &Settings,
        before: Option<&Known>,
    ) -> Result<(Written, Arc<Service>), ConfigError> {
        let is_http2 = port.found.endpoints.is_http2;
        let mut written = Written {
            is_http2,
            settings: as_in_file(settings),
        };
        if let Some(fleets) = self.settings.visible_to(port.namespace) {
            let own = written.settings.entry("visible_to");
            own.or_insert_with(|| json!(fleets));
        }
        if let Some(before) = before.filter(|before| before.written == written) {
            let service = Arc::clone(&before.service);
            return Ok((written, service));
        }
        let defaults = &self.settings.defaults;
        let service = defaults.service(port.name, is_http2, &written.settings)?;
        Ok((written, Arc::new(service)))
    }

    /// Returns what a policy applies to.
    pub(super) fn view(&self, policy: &Arc<ZoneRoutingPolicy>) -> PolicyView {
        let mut view = PolicyView {
            policy: Arc::clone(policy),
            clusters: Vec::new(),
            missing: Vec::new(),
            preferred: BTreeSet::new(),
            error: None,
            notes: BTreeSet::new(),
            distribute: Distribute::Off,
        };
        for target in policy.target_refs.iter().filter(|one| one.is_service()) {
            let key = ObjectKey::new(&policy.key.namespace, &target.name);
            if let Some(over) = self.over_limit.get(&key) {
                view.notes
                    .insert(format!("{}: {}", over.object, over.reason));
            }
            let Some(ports) = self.known.get(&key) else {
                view.missing.push(format!("Service {}", target.name));
                continue;
            };
            let is_meant = |known: &&Known| {
                let section = target.section_name.as_deref();
                section.is_none_or(|section| section == &*known.port)
            };
            if !ports.values().any(|known| is_meant(&known)) {
                let section = target.section_name.as_deref().unwrap_or_default();
                view.missing
                    .push(format!("port {section} of Service {}", target.name));
            }
            for (name, known) in ports {
                view.add(&key, name, known, is_meant(&known));
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

impl PolicyView {
    /// Adds a port of a target; `is_meant` is one that the reference is about.
    fn add(&mut self, service: &ObjectKey, name: &Arc<str>, known: &Known, is_meant: bool) {
        let object = format!("ZoneRoutingPolicy {}", self.policy.key);
        if known.policy.as_ref() == Some(&self.policy.key) {
            let (own, others): (Vec<_>, _) =
                known.errors.iter().partition(|one| one.object == object);
            self.error = own
                .first()
                .map(|one| one.reason.clone())
                .or(self.error.take());
            let text = |one: &Refused| format!("{} {}", one.object, one.reason);
            self.notes.extend(others.into_iter().map(text));
            self.clusters.push((service.clone(), Arc::clone(name)));
            self.distribute = known.distribute;
        } else if is_meant {
            self.preferred.extend(known.policy.clone());
        }
    }
}

/// A port of a Service, and the name of its cluster.
#[derive(Clone, Copy)]
struct Port<'a> {
    name: &'a Arc<str>,
    namespace: &'a str,
    found: &'a ServicePort,
}

/// What is valid of the settings of a port.
struct Valid {
    written: Written,
    values: BTreeMap<&'static str, Setting>,
    service: Arc<Service>,
    errors: Vec<Refused>,
}

/// Returns the settings in the shape of a service in a file.
fn as_in_file(settings: &Settings) -> Map<String, Value> {
    let mut written = Map::new();
    for field in [
        "mode",
        "ramp",
        "delivery",
        "objective",
        "capacity",
        "visible_to",
        "cost",
    ] {
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
        limit: None,
    })
}

/// Settings whose values are words, which annotations and policies spell as Kubernetes does.
const WORDS: [&str; 3] = ["mode", "delivery", "cluster.lb_policy"];

/// Rewrites the words of the file in a reason as owners of Services write them: `FLEET_WEIGHTS` as
/// `FleetWeights`.
fn in_words_of_kubernetes(reason: &str) -> String {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut written = String::with_capacity(reason.len());
    let mut rest = reason;
    while let Some(start) = rest.find(is_part) {
        let (before, from) = rest.split_at(start);
        let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
        written.push_str(before);
        let is_word = word.len() > 1
            && word.starts_with(|first: char| first.is_ascii_uppercase())
            && !word.contains(|letter: char| letter.is_ascii_lowercase());
        if is_word {
            for part in word.split('_') {
                written.push_str(part.get(..1).unwrap_or_default());
                written.push_str(&part.get(1..).unwrap_or_default().to_ascii_lowercase());
            }
        } else {
            written.push_str(word);
        }
        rest = after;
    }
    written + rest
}

fn refused(error: &SettingError) -> Refused {
    Refused {
        event: INVALID_SETTING,
        object: error.origin.object.clone(),
        reason: format!("{}: {}", error.origin.field, error.reason),
        service: None,
        limit: None,
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
    let is_word = settings
        .setting_of(path)
        .is_some_and(|it| WORDS.contains(&it));
    let words = if is_word {
        in_words_of_kubernetes(reason)
    } else {
        reason.to_owned()
    };
    // `spec.cluster` has fields of its own.
    let inner = path
        .strip_prefix("cluster")
        .filter(|_| field == "spec.cluster");
    Refused {
        event: INVALID_SETTING,
        object,
        reason: format!("{field}{}: {words}", inner.unwrap_or_default()),
        service: None,
        limit: None,
    }
}

#[cfg(test)]
mod tests;
