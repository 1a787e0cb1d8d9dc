//! Differences between two configurations, in the words of the configuration file.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::locality::Locality;

use crate::admin::mode_name;
use crate::config::{ControlConfig, SETTINGS, Service, cost, objective};

/// Endpoints of a service that an entry names; a rollout changes hundreds.
const MAX_ENDPOINTS: usize = 20;

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Change {
    /// The service; `None` for settings of the control plane.
    pub service: Option<Arc<str>>,
    /// Name of the setting in the file; `service` if the service was added or removed.
    pub field: String,
    /// Value before; `None` if there was none, or if it is not shown.
    pub before: Option<String>,
    pub after: Option<String>,
    /// Where the new value is written, as `file:line`, or the resource of a relayed server with
    /// its version.
    pub source: Option<String>,
}

/// Returns what differs between two configurations; everything is new without `before`.
pub fn changes(before: Option<&ControlConfig>, after: &ControlConfig) -> Vec<Change> {
    let mut found = Vec::new();
    if let Some(before) = before {
        found.extend(settings(before, after));
        let removed = before.services.keys();
        for name in removed.filter(|name| !after.services.contains_key(*name)) {
            found.push(Change {
                service: Some(Arc::clone(name)),
                field: "service".to_owned(),
                before: Some("present".to_owned()),
                after: None,
                source: before.origins.place(name, ""),
            });
        }
    }
    for (name, service) in &*after.services {
        let old = before.and_then(|before| before.services.get(name));
        match old {
            Some(old) if old == service => {}
            Some(old) => found.extend(service_changes(old, service, |at| {
                after.origins.place(name, at)
            })),
            None => found.push(Change {
                service: Some(Arc::clone(name)),
                field: "service".to_owned(),
                before: None,
                after: Some(summary(service)),
                source: after.origins.place(name, ""),
            }),
        }
    }
    found
}

/// Returns what differs in the settings of some services. Endpoints of discovered services change
/// all the time, and by themselves: they are not audited.
pub(crate) fn discovered_changes<'a>(
    before: &ControlConfig,
    after: &ControlConfig,
    names: impl Iterator<Item = &'a Arc<str>>,
) -> Vec<Change> {
    let mut found = Vec::new();
    for name in names {
        let services = [before, after].map(|config| config.services.get(name));
        let added = |service: &Service| Change {
            service: Some(Arc::clone(name)),
            field: "service".to_owned(),
            before: None,
            after: Some(summary(service)),
            source: after.origins.place(name, ""),
        };
        match services {
            [None, None] => {}
            [None, Some(service)] => found.push(added(service)),
            [Some(_), None] => found.push(Change {
                service: Some(Arc::clone(name)),
                field: "service".to_owned(),
                before: Some("present".to_owned()),
                after: None,
                source: before.origins.place(name, ""),
            }),
            [Some(old), Some(new)] if old.has_same_settings(new) => {}
            [Some(old), Some(new)] => found.extend(service_changes(old, new, |at| {
                after.origins.place(name, at)
            })),
        }
    }
    found
}

/// Describes changes of one service, or of the control plane, with their places.
pub(super) fn sentence(changes: &[Change]) -> String {
    let mut text = String::new();
    let mut places: Vec<&str> = Vec::new();
    if let Some(service) = changes.first().and_then(|change| change.service.as_ref()) {
        let _ = write!(text, "{service}: ");
    }
    for (index, change) in changes.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        let _ = write!(text, "{separator}{}", change.words());
        places.extend(change.source.as_deref());
    }
    places.dedup();
    for place in places {
        let _ = write!(text, ", {place}");
    }
    text
}

impl Change {
    fn words(&self) -> String {
        match (self.field.as_str(), &self.before, &self.after) {
            ("service", _, Some(after)) => format!("added ({after})"),
            ("service", _, None) => "removed".to_owned(),
            (field, Some(before), Some(after)) => format!("{field} {before} → {after}"),
            (field, None, Some(after)) => format!("{field} {after} added"),
            (field, Some(before), None) => format!("{field} {before} removed"),
            (field, None, None) => format!("{field} changed"),
        }
    }
}

fn summary(service: &Service) -> String {
    let endpoints: usize = counts(&service.assignment).values().sum();
    let plural = if endpoints == 1 { "" } else { "s" };
    let (mode, ramp) = (mode_name(service.mode), service.ramp);
    let ramp = if ramp == 100 {
        String::new()
    } else {
        format!(", ramp {ramp}")
    };
    format!("{mode}{ramp}, {endpoints} endpoint{plural}")
}

/// Name of a setting, the field at whose line it is written, and its values.
type Difference = (String, &'static str, [Option<String>; 2]);

/// Compares two states of a service; `place` says where a field of it is written.
pub(super) fn service_changes(
    old: &Service,
    new: &Service,
    place: impl Fn(&str) -> Option<String>,
) -> Vec<Change> {
    let name = new.name();
    let differences = steering(old, new)
        .into_iter()
        .chain(endpoints(old, new))
        .chain(cluster(old, new));
    differences
        .map(|(field, at, [before, after])| Change {
            service: Some(Arc::clone(name)),
            field,
            before,
            after,
            source: place(at),
        })
        .collect()
}

/// Compares how measured demand steers a service, and for whom.
fn steering(old: &Service, new: &Service) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut add = |field: &'static str, values| found.push((field.to_owned(), field, values));
    if old.mode != new.mode {
        let values = [old.mode, new.mode].map(|mode| Some(mode_name(mode).to_owned()));
        add("mode", values);
    }
    if old.ramp != new.ramp {
        add(
            "ramp",
            [old.ramp, new.ramp].map(|ramp| Some(ramp.to_string())),
        );
    }
    if old.delivery != new.delivery {
        let values = [old.delivery, new.delivery].map(|one| Some(format!("{one:?}")));
        add("delivery", values);
    }
    let objectives = [&old.goal, &new.goal].map(objective::shown);
    if objectives[0] != objectives[1] {
        add("objective", objectives);
    }
    let capacities =
        [old, new].map(|one| objective::shown_capacity(&one.goal, one.learning.as_ref()));
    if capacities[0] != capacities[1] {
        add("capacity", capacities);
    }
    let fleets = [old, new].map(|service| {
        let fleets = service.visible_to.as_ref()?;
        Some(
            fleets
                .iter()
                .map(String::as_str)
                .collect::<Vec<_>>()
                .join(", "),
        )
    });
    if fleets[0] != fleets[1] {
        add("visible_to", fleets);
    }
    if old.goal.cost != new.goal.cost {
        let costs = [old, new].map(|service| Some(cost::shown(&service.goal.cost)));
        add("cost", costs);
    }
    found
}

/// Compares the number of endpoints by locality, and endpoints by address.
fn endpoints(old: &Service, new: &Service) -> Vec<Difference> {
    let at = "endpoints";
    let mut found = Vec::new();
    let (before, after) = (counts(&old.assignment), counts(&new.assignment));
    let localities: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    for locality in localities {
        let counted = [&before, &after].map(|counts| counts.get(locality).copied());
        if counted[0] != counted[1] {
            let values = counted.map(|count| Some(count.unwrap_or(0).to_string()));
            found.push((format!("endpoints in {locality}"), at, values));
        }
    }
    let shown = [old, new].map(shown_endpoints);
    let addresses: BTreeSet<_> = shown.iter().flat_map(BTreeMap::keys).collect();
    let differing: Vec<_> = addresses
        .into_iter()
        .filter(|address| shown[0].get(*address) != shown[1].get(*address))
        .collect();
    for address in differing.iter().take(MAX_ENDPOINTS) {
        let values = [&shown[0], &shown[1]].map(|all| all.get(*address).cloned());
        found.push((format!("endpoint {address}"), at, values));
    }
    if let Some(more) = differing
        .len()
        .checked_sub(MAX_ENDPOINTS)
        .filter(|more| *more > 0)
    {
        found.push((format!("{more} more endpoints"), at, [None, None]));
    }
    if old.assignment != new.assignment && found.is_empty() {
        // Metadata, names, or settings of the whole assignment.
        found.push((at.to_owned(), at, [None, None]));
    }
    found
}

/// Returns what an operator would look for in an endpoint, by address.
fn shown_endpoints(service: &Service) -> BTreeMap<SocketAddr, String> {
    let mut shown = BTreeMap::new();
    for entry in service.assignment.endpoints() {
        for endpoint in &entry.lb_endpoints {
            let health = format!("{:?}", endpoint.health_status).to_uppercase();
            let mut text = format!("{} {health} weight {}", entry.locality, endpoint.weight());
            if entry.priority > 0 {
                let _ = write!(text, " priority {}", entry.priority);
            }
            shown.insert(endpoint.address, text);
        }
    }
    shown
}

/// Compares the policies and the other settings of the cluster.
fn cluster(old: &Service, new: &Service) -> Vec<Difference> {
    let at = "cluster";
    let mut found = Vec::new();
    let policy = |service: &Service| {
        let config = &service.config;
        let (zones, hosts) = (config.locality_policy(), config.endpoint_policy());
        format!("{}, {}", zones.name(), hosts.name())
    };
    if old.config != new.config {
        let [before, after] = [old, new].map(policy);
        let differ = before != after;
        let values = [before, after].map(|policy| differ.then_some(policy));
        found.push(("policy".to_owned(), at, values));
    }
    // Values may be long, and may be secret.
    let differing = old.settings.differing(&new.settings);
    found.extend(differing.into_iter().map(|name| {
        let field = format!("cluster.{name}");
        (field, at, [None, None])
    }));
    found
}

fn counts(assignment: &ClusterLoadAssignment) -> BTreeMap<Locality, usize> {
    let mut counts = BTreeMap::new();
    for entry in assignment.endpoints() {
        *counts.entry(entry.locality.clone()).or_default() += entry.lb_endpoints.len();
    }
    counts
}

/// Compares the settings of the control plane itself.
fn settings(before: &ControlConfig, after: &ControlConfig) -> Vec<Change> {
    let differing = SETTINGS.iter().filter(|one| one.differs(before, after));
    let found = differing.map(|setting| {
        let [before, after] = setting.shown_values(before, after);
        Change {
            service: None,
            field: setting.name.to_owned(),
            before,
            after,
            source: None,
        }
    });
    let mut changes: Vec<_> = found.collect();
    // Settings of a section may share its name.
    changes.dedup();
    changes
}
