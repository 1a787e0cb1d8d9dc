//! What would happen if: the question of the what-if panel, and the answer to it.
//!
//! The host answers with two explanations of the core, before and after; here they are shortened to
//! what the panel shows. Nothing is computed.

use std::collections::BTreeMap;

use plimsoll_core::explain::{Explanation, StateName};
use serde::{Deserialize, Serialize};

use crate::state::Place;

/// What would happen if a cluster had these hosts and this demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfQuestion {
    /// The upstream cluster.
    pub cluster: String,
    /// The fleet; empty where there are none.
    pub fleet: String,
    /// Healthy hosts by zone, instead of those there are; zones that are left out stay.
    pub hosts: BTreeMap<String, u32>,
    /// Demand by zone in any unit; empty = as it is.
    pub demand: BTreeMap<String, f64>,
}

/// Why does the proxy of a zone send where it sends?
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExplainQuestion {
    /// The upstream cluster.
    pub cluster: String,
    /// The fleet; empty where there are none.
    pub fleet: String,
    /// The zone.
    pub region: String,
    /// The zone.
    pub zone: String,
    /// The zone.
    pub sub_zone: String,
}

/// Both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WhatIfAnswer {
    /// As it is.
    pub before: Outcome,
    /// As it would be.
    pub after: Outcome,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Every zone that has hosts, proxies or demand.
    pub zones: Vec<ZoneOutcome>,
    /// Share of all requests that leave their zone, 0 to 1.
    pub cross_zone_share: f64,
    /// What else matters.
    pub notes: Vec<String>,
}

/// One zone of one side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneOutcome {
    /// Where.
    pub locality: Place,
    /// Healthy hosts.
    pub healthy_hosts: u64,
    /// Requests that arrive there, of all.
    pub demand_share: f64,
    /// Hosts there, of all.
    pub capacity_share: f64,
    /// Requests that its hosts serve, of all.
    pub traffic_share: f64,
    /// Load against the load line; `None` without hosts.
    pub load: Option<f64>,
    /// Share of its own demand that stays.
    pub kept_local: Option<f64>,
    /// How its proxies route.
    pub state: Option<String>,
}

impl WhatIfAnswer {
    /// From two explanations.
    pub fn new(before: &Explanation, after: &Explanation) -> Self {
        Self {
            before: Outcome::of(before),
            after: Outcome::of(after),
        }
    }
}

impl Outcome {
    fn of(explanation: &Explanation) -> Self {
        let zones = explanation.localities.iter().map(|locality| {
            let place = Place {
                region: locality.region.clone(),
                zone: locality.zone.clone(),
                sub_zone: locality.sub_zone.clone(),
            };
            let mut proxies = explanation.zones.iter();
            let proxies = proxies.find(|zone| Place::from(&zone.locality) == place);
            ZoneOutcome {
                locality: place,
                healthy_hosts: locality.healthy,
                demand_share: rounded(locality.demand_share),
                capacity_share: rounded(locality.capacity_share),
                traffic_share: rounded(locality.traffic_share),
                load: locality.load_factor.map(rounded),
                kept_local: proxies.map(|zone| rounded(zone.kept_local)),
                state: proxies.map(|zone| state_name(zone.state).to_owned()),
            }
        });
        let left = |zone: &plimsoll_core::explain::ZoneExplanation| {
            zone.demand_share * (1.0 - zone.kept_local)
        };
        let cross: f64 = explanation.zones.iter().map(left).sum();
        let mut zones: Vec<ZoneOutcome> = zones.collect();
        // The own zone comes first in an explanation; here none is more own than others.
        zones.sort_by(|a, b| a.locality.cmp(&b.locality));
        Self {
            zones,
            cross_zone_share: rounded(cross),
            notes: explanation.notes.clone(),
        }
    }
}

/// The name of a routing state, as Envoy spells it.
pub const fn state_name(state: StateName) -> &'static str {
    match state {
        StateName::NoLocalityRouting => "NoLocalityRouting",
        StateName::LocalityDirect => "LocalityDirect",
        StateName::LocalityResidual => "LocalityResidual",
    }
}

/// Three decimals are more than any rate or share is worth on a page. The sum of nothing, which is
/// negative zero, is zero.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0 + 0.0
}

#[cfg(test)]
mod tests;
