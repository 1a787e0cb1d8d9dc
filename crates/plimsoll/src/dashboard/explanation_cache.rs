//! Cache of the cluster explanations in the control plane's dashboard document.
//!
//! An explanation builds a balancer, which costs more than the rest of the document. A limited
//! number is computed per document; the rest of a large configuration follows in later ones.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_control::config::{ControlConfig, Service};
use plimsoll_control::explain::{Question, explain};
use plimsoll_control::fleet_plan::FleetPlan;
use plimsoll_control::state::State;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;

const MAX_PER_DOCUMENT: usize = 16;
/// Maximum number of zones for which the document includes each zone's reason; beyond it, pages
/// request explanations of single zones.
const MAX_REASON_ZONES: usize = 12;
/// Maximum number of hosts for which the document includes reasons.
const MAX_REASON_HOSTS: u64 = 2000;

#[derive(Debug, Default)]
pub(super) struct ExplanationCache {
    entries: BTreeMap<(Arc<str>, Arc<str>), CacheEntry>,
    budget: usize,
}

#[derive(Debug)]
pub(super) struct ClusterExplanation {
    /// Explanation from the first zone; its shares and states cover every zone.
    pub(super) explanation: Explanation,
    /// Reasons by zone, if within [`MAX_REASON_ZONES`] and [`MAX_REASON_HOSTS`].
    pub(super) reasons: BTreeMap<Locality, String>,
}

#[derive(Debug)]
struct CacheEntry {
    config: Arc<ControlConfig>,
    inputs: Inputs,
    explanation: Arc<ClusterExplanation>,
}

/// Number of proxies and delivered fraction of each zone: together with the configuration, all
/// inputs of an explanation.
type Inputs = Vec<(Locality, Option<usize>, Option<u64>)>;

impl ExplanationCache {
    /// Starts a document: resets the budget and drops entries of removed fleets and services.
    pub(super) fn begin(&mut self, state: &State) {
        self.budget = MAX_PER_DOCUMENT;
        self.entries.retain(|(fleet, cluster), _| {
            state.fleet_plan(fleet).is_some() && state.service(cluster).is_some()
        });
    }

    /// Returns the explanation of a cluster. If the budget is used up, an outdated one or `None`.
    pub(super) fn of(
        &mut self,
        state: &State,
        fleet: &Arc<str>,
        service: &Service,
    ) -> Option<Arc<ClusterExplanation>> {
        let key = (Arc::clone(fleet), Arc::clone(service.name()));
        let inputs = inputs(state.fleet_plan(fleet)?, service);
        let entry = self.entries.get(&key);
        let is_current = |entry: &CacheEntry| {
            Arc::ptr_eq(&entry.config, state.config()) && entry.inputs == inputs
        };
        if self.budget == 0 || entry.is_some_and(is_current) {
            return entry.map(|entry| Arc::clone(&entry.explanation));
        }
        self.budget -= 1;
        let explanation = Arc::new(compute(state, fleet, service)?);
        let entry = CacheEntry {
            config: Arc::clone(state.config()),
            inputs,
            explanation: Arc::clone(&explanation),
        };
        self.entries.insert(key, entry);
        Some(explanation)
    }
}

fn inputs(plan: &FleetPlan, service: &Service) -> Inputs {
    let zones = match plan.services.get(service.name()) {
        Some(own) => &own.zones,
        None => &plan.zones,
    };
    let entries = plan.assignment.endpoints().iter();
    let counts =
        entries.map(|entry| (entry.locality.clone(), Some(entry.lb_endpoints.len()), None));
    let zones = zones.iter().chain(&plan.zones);
    let fractions = zones.map(|zone| (zone.locality.clone(), None, Some(zone.fraction.get())));
    counts.chain(fractions).collect()
}

/// Computes an explanation at the origin of time: the document does not show ages from it.
fn compute(state: &State, fleet: &Arc<str>, service: &Service) -> Option<ClusterExplanation> {
    let question = Question {
        cluster: service.name().to_string(),
        fleet: Some(fleet.to_string()),
        every_zone: true,
        ..Question::default()
    };
    let explanation = explain(state, &question, Instant::ORIGIN).ok()?;
    let hosts: u64 = explanation.localities.iter().map(|zone| zone.hosts).sum();
    let mut reasons = BTreeMap::new();
    if explanation.zones.len() <= MAX_REASON_ZONES && hosts <= MAX_REASON_HOSTS {
        for zone in &explanation.zones {
            let question = Question {
                locality: Some(zone.locality.clone()),
                every_zone: false,
                ..question.clone()
            };
            // A zone with demand but without a proxy has no explanation.
            if let Ok(own) = explain(state, &question, Instant::ORIGIN) {
                reasons.insert(zone.locality.clone(), own.reason);
            }
        }
    }
    Some(ClusterExplanation {
        explanation,
        reasons,
    })
}
