//! [`Rules`]: which node a client may be, decided by the names in its certificate.
//!
//! Pure functions: the handlers of ADS and LRS ask them when a stream names its node, and again
//! when the file changes. `pattern` matches names. The first rule whose pattern matches a name of
//! the certificate decides; a client that no rule matches is refused.

mod pattern;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use plimsoll_core::model::load_report::Node;
use plimsoll_core::model::locality::Locality;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::ads::{CLUSTER, CLUSTER_LOAD_ASSIGNMENT, LISTENER, ROUTE_CONFIGURATION};
use plimsoll_xds::driver::{ClientIdentity, LrsInstructions};
use plimsoll_xds::lrs::message::ClusterTraffic;

pub use pattern::{Captures, Pattern, PatternError};

/// Settings of a rule that can refuse a node, and `identities` if there is no rule.
pub(crate) const FIELDS: [&str; 5] = ["identities", "fleets", "zones", "node_ids", "report_load"];

/// Rules of the configuration file, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// `None` without `identities` in the file: every client may be any node.
    pub rules: Option<Vec<Arc<Rule>>>,
    /// Names of the fleet's own assignment, which every node may read.
    pub local_cluster_names: Vec<Arc<str>>,
    /// Names of all services.
    pub services: BTreeSet<Arc<str>>,
    /// Who may use the admin API from another machine by a certificate.
    pub administrators: Vec<Subject>,
    /// Clusters of a relayed server are served beside `services`, so any name may be a service.
    pub relays: bool,
}

/// Which nodes the clients with certain names may be, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Name of the rule in log lines.
    pub name: String,
    pub subject: Subject,
    /// Allowed values of `node.cluster`; `None` allows all, here and below.
    pub fleets: Option<Vec<Pattern>>,
    /// Allowed zones; a pattern with a `/` is compared with `region/zone`.
    pub zones: Option<Vec<Pattern>>,
    pub node_ids: Option<Vec<Pattern>>,
    /// Services that the node may read.
    pub services: Option<Vec<Pattern>>,
    pub report_load: bool,
}

/// Name of a certificate that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    Uri(Pattern),
    Dns(Pattern),
}

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Discovery,
    LoadReporting,
}

/// Why a client may not be the node that it says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Name of the rule that refused it; `None` if there is no rule for the client.
    pub rule: Option<String>,
    /// Setting of the rule that refused it, such as `fleets`.
    pub field: &'static str,
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rule {
            Some(rule) => write!(f, "rule {rule:?}, {}: {}", self.field, self.reason),
            None => f.write_str(&self.reason),
        }
    }
}

/// What a client may do that may be the node it says it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Permission {
    /// Services that it may read; `None` if it may read all.
    services: Option<ReadableServices>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ReadableServices {
    rule: Arc<Rule>,
    captures: Captures,
    fleet: Arc<str>,
    local_cluster_names: Vec<Arc<str>>,
}

impl Rules {
    /// Whether other rules differ in the names of services at most.
    pub(crate) fn has_same_settings(&self, other: &Self) -> bool {
        let Self {
            rules,
            local_cluster_names,
            services: _,
            administrators,
            relays,
        } = self;
        *rules == other.rules
            && *local_cluster_names == other.local_cluster_names
            && *administrators == other.administrators
            && *relays == other.relays
    }

    /// Whether a client is an administrator, by the names in its certificate.
    pub fn is_administrator(&self, identity: &ClientIdentity) -> bool {
        // Like a SPIFFE ID: of several URIs, which one would be ambiguous.
        let is_ambiguous = identity.uris.len() > 1;
        let mut subjects = self.administrators.iter();
        !is_ambiguous && subjects.any(|subject| subject.captures(identity).is_some())
    }

    /// Iterates over the zones that rules name without placeholders; those without a region are
    /// zones of nodes without a region.
    pub fn zones(&self) -> impl Iterator<Item = Locality> {
        let rules = self.rules.iter().flatten();
        let zones = rules.flat_map(|rule| rule.zones.iter().flatten());
        zones.filter_map(Pattern::literal).map(|zone| {
            let (region, zone) = zone.split_once('/').unwrap_or(("", zone));
            Locality::new(region, zone, "")
        })
    }

    /// Decides whether a client may be `node`.
    pub fn check(
        &self,
        identity: Option<&ClientIdentity>,
        node: &Node,
        purpose: Purpose,
    ) -> Result<Permission, Refusal> {
        let Some(rules) = &self.rules else {
            return Ok(Permission::default());
        };
        let nobody = |reason| Refusal {
            rule: None,
            field: "identities",
            reason,
        };
        let identity = identity.ok_or_else(|| nobody("no client certificate".to_owned()))?;
        if identity.uris.len() > 1 {
            // As a SPIFFE ID, which one would be ambiguous (X509-SVID, section 2).
            let count = identity.uris.len();
            return Err(nobody(format!("the certificate has {count} URIs, not one")));
        }
        let mut matching = rules.iter().filter_map(|rule| {
            let captures = rule.subject.captures(identity)?;
            Some((rule, captures))
        });
        let (rule, captures) = matching
            .next()
            .ok_or_else(|| nobody(format!("no rule for {}", describe(identity))))?;
        rule.check(&captures, node, purpose)?;
        let services = rule.services.is_some().then(|| ReadableServices {
            rule: Arc::clone(rule),
            captures,
            fleet: Arc::clone(&node.cluster),
            local_cluster_names: self.local_cluster_names.clone(),
        });
        Ok(Permission { services })
    }
}

impl Subject {
    fn captures(&self, identity: &ClientIdentity) -> Option<Captures> {
        match self {
            Self::Uri(pattern) => identity.uris.iter().find_map(|name| pattern.captures(name)),
            Self::Dns(pattern) => {
                let mut names = identity.dns_names.iter();
                names.find_map(|name| pattern.captures(&name.to_ascii_lowercase()))
            }
        }
    }
}

impl Rule {
    fn check(&self, captures: &Captures, node: &Node, purpose: Purpose) -> Result<(), Refusal> {
        let refuse = |field, reason| Refusal {
            rule: Some(self.name.clone()),
            field,
            reason,
        };
        if !allows(self.fleets.as_deref(), captures, &node.cluster) {
            let reason = format!("fleet {:?} is not allowed", node.cluster);
            return Err(refuse("fleets", reason));
        }
        let zone = |pattern: &Pattern| zone_matches(pattern, captures, &node.locality);
        if !self
            .zones
            .as_deref()
            .is_none_or(|zones| zones.iter().any(zone))
        {
            let reason = format!("zone {:?} is not allowed", node.locality.to_string());
            return Err(refuse("zones", reason));
        }
        if !allows(self.node_ids.as_deref(), captures, &node.id) {
            let reason = format!("node id {:?} is not allowed", node.id);
            return Err(refuse("node_ids", reason));
        }
        if purpose == Purpose::LoadReporting && !self.report_load {
            return Err(refuse("report_load", "may not report load".to_owned()));
        }
        Ok(())
    }
}

fn allows(patterns: Option<&[Pattern]>, captures: &Captures, value: &str) -> bool {
    patterns.is_none_or(|patterns| {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| pattern.matches(captures, value))
    })
}

fn zone_matches(pattern: &Pattern, captures: &Captures, locality: &Locality) -> bool {
    if pattern.has_slash() {
        let zone = format!("{}/{}", locality.region(), locality.zone());
        pattern.matches(captures, &zone)
    } else {
        pattern.matches(captures, locality.zone())
    }
}

fn describe(identity: &ClientIdentity) -> String {
    let names = identity.uris.iter().chain(&identity.dns_names);
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    if names.is_empty() {
        return "a certificate without names".to_owned();
    }
    names.join(", ")
}

impl Permission {
    /// Whether the client may read a service.
    pub fn reads(&self, service: &str) -> bool {
        self.services.as_ref().is_none_or(|services| {
            let patterns = services.rule.services.as_deref();
            allows(patterns, &services.captures, service)
        })
    }

    /// Whether load reports of the client about a service count: demand moves requests of others,
    /// so a client that may not read a service has no say. Names that are no service are left to
    /// the checks of all reports.
    pub fn may_report(&self, service: &str, rules: &Rules) -> bool {
        let may_be_service = rules.relays || rules.services.contains(service);
        !may_be_service || self.reads(service)
    }

    /// Whether a resource is the assignment of the client's own fleet. The client chooses the name
    /// of its fleet, so a service of that name stays a service.
    fn is_own_fleet(&self, name: &str, rules: &Rules) -> bool {
        self.services.as_ref().is_some_and(|services| {
            let mut local = services.local_cluster_names.iter();
            !rules.services.contains(name)
                && (*name == *services.fleet && !rules.relays || local.any(|one| **one == *name))
        })
    }

    /// Returns the part of a view that the client may read. Clusters, assignments, and the
    /// listeners and routes with the name of a service, which gRPC clients ask for, are left out
    /// if they are of another service.
    pub fn readable(&self, view: Arc<View>, rules: &Rules) -> Arc<View> {
        if self.services.is_none() {
            return view;
        }
        let mut readable = View::clone(&view);
        // The rules change before the view does. Until then, a service that has been removed is
        // known by its cluster.
        let clusters = view.get(CLUSTER);
        let is_service = |name: &str| {
            let has_cluster = || clusters.is_some_and(|clusters| clusters.get(name).is_some());
            rules.services.contains(name) || has_cluster()
        };
        for (type_url, resources) in view.iter() {
            let may_read = |name: &str| match &**type_url {
                CLUSTER | CLUSTER_LOAD_ASSIGNMENT => {
                    self.reads(name) || self.is_own_fleet(name, rules)
                }
                LISTENER | ROUTE_CONFIGURATION => self.reads(name) || !is_service(name),
                _ => true,
            };
            if resources.iter().any(|resource| !may_read(&resource.name)) {
                let resources = resources.retain(may_read);
                readable = readable.with(Arc::clone(type_url), Arc::new(resources));
            }
        }
        Arc::new(readable)
    }

    /// Returns instructions of load reporting without services that the client may not read.
    pub fn readable_instructions(&self, mut all: LrsInstructions) -> LrsInstructions {
        if self.services.is_none() {
            return all;
        }
        if all.settings.clusters.iter().any(|name| !self.reads(name)) {
            let settings = Arc::make_mut(&mut all.settings);
            settings.clusters.retain(|name| self.reads(name));
        }
        let hidden = |traffic: &ClusterTraffic| !self.reads(&traffic.cluster_name);
        if all.traffic.clusters.iter().any(hidden) {
            let traffic = Arc::make_mut(&mut all.traffic);
            traffic.clusters.retain(|traffic| !hidden(traffic));
        }
        all
    }
}

#[cfg(test)]
mod tests;
