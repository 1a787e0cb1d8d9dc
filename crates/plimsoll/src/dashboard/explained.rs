//! [`Explained`]: explanations of clusters, kept until what they explain has changed.
//!
//! An explanation builds a balancer, which is dear beside everything else on the page. A few are
//! made at a time; the rest of a large configuration follows in the next seconds.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_control::config::{ControlConfig, Service};
use plimsoll_control::explain::{Question, explain};
use plimsoll_control::fleet_plan::FleetPlan;
use plimsoll_control::state::State;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;

/// Clusters that are explained anew at a time.
const AT_A_TIME: usize = 16;
/// Zones up to which each is asked for its reason in words; of more, viewers ask one by one.
const REASONS: usize = 12;
/// Hosts up to which that is done.
const REASON_HOSTS: u64 = 2000;

/// Explanations by fleet and cluster.
#[derive(Debug, Default)]
pub(super) struct Explained {
    kept: BTreeMap<(Arc<str>, Arc<str>), Kept>,
    left: usize,
}

/// What is known of one cluster.
#[derive(Debug)]
pub(super) struct Words {
    /// As the first zone sees it; shares and states are those of every zone.
    pub(super) explanation: Explanation,
    /// Reasons by zone, as far as they were asked for.
    pub(super) reasons: BTreeMap<Locality, String>,
}

#[derive(Debug)]
struct Kept {
    config: Arc<ControlConfig>,
    stamp: Stamp,
    words: Arc<Words>,
}

/// Proxies and delivered fraction by zone: with the configuration, all that an explanation uses.
type Stamp = Vec<(Locality, Option<usize>, Option<u64>)>;

impl Explained {
    /// A new document begins: as many may be explained as at any other time, and fleets that are
    /// gone are forgotten.
    pub(super) fn begin(&mut self, state: &State) {
        self.left = AT_A_TIME;
        let services = &state.config().services;
        self.kept.retain(|(fleet, cluster), _| {
            state.fleet_plan(fleet).is_some() && services.contains_key(cluster)
        });
    }

    /// The explanation of a cluster; `None` when there is none yet.
    pub(super) fn of(
        &mut self,
        state: &State,
        fleet: &Arc<str>,
        service: &Service,
    ) -> Option<Arc<Words>> {
        let key = (Arc::clone(fleet), Arc::clone(service.name()));
        let stamp = stamp(state.fleet_plan(fleet)?, service);
        let kept = self.kept.get(&key);
        let fresh = |kept: &&Kept| Arc::ptr_eq(&kept.config, state.config()) && kept.stamp == stamp;
        if self.left == 0 || kept.is_some_and(|kept| fresh(&kept)) {
            return kept.map(|kept| Arc::clone(&kept.words));
        }
        self.left -= 1;
        let words = Arc::new(words(state, fleet, service)?);
        let kept = Kept {
            config: Arc::clone(state.config()),
            stamp,
            words: Arc::clone(&words),
        };
        self.kept.insert(key, kept);
        Some(words)
    }
}

fn stamp(plan: &FleetPlan, service: &Service) -> Stamp {
    let zones = match plan.services.get(service.name()) {
        Some(own) => &own.zones,
        None => &plan.zones,
    };
    let counts = plan.assignment.endpoints().iter();
    let counts = counts.map(|entry| (entry.locality.clone(), Some(entry.lb_endpoints.len()), None));
    let fractions = zones.iter().chain(&plan.zones);
    let fractions = fractions.map(|zone| (zone.locality.clone(), None, Some(zone.fraction.get())));
    counts.chain(fractions).collect()
}

/// Ages do not matter: what is kept is the rest.
fn words(state: &State, fleet: &Arc<str>, service: &Service) -> Option<Words> {
    let question = Question {
        cluster: service.name().to_string(),
        fleet: Some(fleet.to_string()),
        every_zone: true,
        ..Question::default()
    };
    let explanation = explain(state, &question, Instant::ORIGIN).ok()?;
    let hosts: u64 = explanation.localities.iter().map(|zone| zone.hosts).sum();
    let mut reasons = BTreeMap::new();
    if explanation.zones.len() <= REASONS && hosts <= REASON_HOSTS {
        for zone in &explanation.zones {
            let question = Question {
                locality: Some(zone.locality.clone()),
                every_zone: false,
                ..question.clone()
            };
            // A zone that has demand but no proxy has nobody to explain.
            if let Ok(own) = explain(state, &question, Instant::ORIGIN) {
                reasons.insert(zone.locality.clone(), own.reason);
            }
        }
    }
    Some(Words {
        explanation,
        reasons,
    })
}
