//! Requests and responses of the what-if panel and of explanations.
//!
//! The host provides two explanations of plimsoll-core, before and after a hypothetical change;
//! this module reduces them to the numbers that the panel shows.

use std::collections::BTreeMap;

use plimsoll_core::explain::Explanation;
use serde::{Deserialize, Serialize};

use crate::state::LocalityId;

/// Asks for the traffic shares of a cluster with other hosts or another demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct WhatIfQuestion {
    /// Name of the upstream cluster.
    pub cluster: String,
    /// Fleet of proxies; empty if the host has no fleets.
    pub fleet: String,
    /// Hypothetical number of healthy hosts by zone; other zones keep theirs.
    pub hosts: BTreeMap<String, u32>,
    /// Hypothetical demand by zone in any unit; the current demand if empty.
    pub demand: BTreeMap<String, f64>,
}

/// Asks how the proxies of one zone route to a cluster, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct ExplainQuestion {
    /// Name of the upstream cluster.
    pub cluster: String,
    /// Fleet of proxies; empty if the host has no fleets.
    pub fleet: String,
    /// Region of the proxies.
    pub region: String,
    /// Zone of the proxies.
    pub zone: String,
    /// Sub-zone of the proxies.
    pub sub_zone: String,
}

/// Traffic shares before and after the change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfAnswer {
    /// Shares with the current hosts and demand.
    pub before: WhatIfOutcome,
    /// Shares after the hypothetical change.
    pub after: WhatIfOutcome,
    /// Shares before and after the change, with `mode: ENFORCE` and `ramp: 100`; `None` if the host
    /// has no modes.
    pub enforce: Option<[WhatIfOutcome; 2]>,
}

/// Traffic shares of all zones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WhatIfOutcome {
    /// Every zone that has hosts, proxies or demand.
    pub zones: Vec<ZoneOutcome>,
    /// Share of all requests that leave their zone, 0 to 1.
    pub cross_zone_share: f64,
    /// Additional remarks for the viewer.
    pub notes: Vec<String>,
}

/// Traffic share of one zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneOutcome {
    /// Locality of the zone.
    pub locality: LocalityId,
    /// Number of healthy hosts.
    pub healthy_hosts: u64,
    /// Share of all requests that arrives at the proxies of the zone.
    pub demand_share: f64,
    /// Share of the capacity of all zones.
    pub capacity_share: f64,
    /// Share of all requests that is served by the hosts of the zone.
    pub traffic_share: f64,
    /// Load relative to the load line; `None` without hosts.
    pub load: Option<f64>,
    /// Share of the zone's demand that stays in the zone.
    pub kept_local: Option<f64>,
    /// Routing state of the proxies.
    pub state: Option<String>,
}

impl WhatIfAnswer {
    /// Creates an answer from the explanations before and after the hypothetical change.
    pub fn new(before: &Explanation, after: &Explanation) -> Self {
        Self {
            before: WhatIfOutcome::of(before),
            after: WhatIfOutcome::of(after),
            enforce: None,
        }
    }

    /// Adds the explanations before and after the change with `mode: ENFORCE`.
    #[must_use]
    pub fn with_enforce(mut self, before: &Explanation, after: &Explanation) -> Self {
        self.enforce = Some([before, after].map(WhatIfOutcome::of));
        self
    }
}

impl WhatIfOutcome {
    fn of(explanation: &Explanation) -> Self {
        let zones = explanation.localities.iter().map(|locality| {
            let id = locality.locality();
            let proxies = explanation.zones.iter().find(|zone| zone.locality == id);
            ZoneOutcome {
                locality: LocalityId::from(&id),
                healthy_hosts: locality.healthy,
                demand_share: rounded(locality.demand_share),
                capacity_share: rounded(locality.capacity_share),
                traffic_share: rounded(locality.traffic_share),
                load: locality.load_factor.map(rounded),
                kept_local: proxies.map(|zone| rounded(zone.kept_local)),
                state: proxies.map(|zone| zone.state.as_str().to_owned()),
            }
        });
        let spilled = |zone: &plimsoll_core::explain::ZoneExplanation| {
            zone.demand_share * (1.0 - zone.kept_local)
        };
        let cross: f64 = explanation.zones.iter().map(spilled).sum();
        let mut zones: Vec<ZoneOutcome> = zones.collect();
        // An explanation lists the proxy's own zone first; the panel sorts zones by name.
        zones.sort_by(|a, b| a.locality.cmp(&b.locality));
        Self {
            zones,
            cross_zone_share: rounded(cross),
            notes: explanation.notes.clone(),
        }
    }
}

/// Rounds to three decimals, and negative zero (the sum of no numbers) to zero.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0 + 0.0
}

#[cfg(test)]
mod tests;
