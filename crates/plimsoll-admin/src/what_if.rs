//! Requests and responses of what-ifs and explanations, on the admin API of the control plane
//! and on the dashboard.
//!
//! The host provides two explanations of plimsoll-core, before and after a hypothetical change;
//! this module reduces them to the numbers that are shown.

use std::collections::BTreeMap;

use plimsoll_core::explain::{Explanation, LocalityExplanation, ZoneExplanation};
use plimsoll_core::model::locality::Locality;
use serde::{Deserialize, Serialize};

use crate::api::rounded;

/// Asks for the traffic shares of a cluster with other hosts or another demand.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct WhatIfQuestion {
    /// Name of the upstream cluster.
    pub cluster: String,
    /// Fleet of proxies; by default the first one by name.
    #[serde(default)]
    pub fleet: Option<String>,
    /// Hypothetical number of healthy hosts by zone; other zones keep theirs.
    #[serde(default)]
    pub hosts: BTreeMap<String, u32>,
    /// Hypothetical demand by zone in any unit, or, with an objective other than `LEVEL`, in
    /// requests per second; the current demand if empty.
    #[serde(default)]
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
pub struct WhatIf {
    /// Name of the upstream cluster.
    pub cluster: String,
    /// Shares with the current hosts and demand.
    pub before: Shares,
    /// Shares after the hypothetical change.
    pub after: Shares,
    /// The same with `mode: ENFORCE` and `ramp: 100`; `null` if the host has no modes.
    pub enforce: Option<EnforcedShares>,
}

/// Traffic shares before and after the change, with `mode: ENFORCE` and `ramp: 100`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnforcedShares {
    pub before: Shares,
    pub after: Shares,
}

/// Traffic shares of all zones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shares {
    /// Every zone that has hosts, proxies or demand.
    pub localities: Vec<LocalityShares>,
    /// Every zone with proxies.
    pub zones: Vec<ZoneShares>,
    /// Share of all requests that leave their zone, 0 to 1.
    pub cross_zone_share: f64,
    /// Additional remarks for the viewer.
    pub notes: Vec<String>,
}

/// What the hosts of one zone serve.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LocalityShares {
    pub locality: Locality,
    /// Number of healthy hosts.
    pub hosts: u64,
    /// Share of all requests that arrives at the proxies of the zone.
    pub demand_share: f64,
    /// Share of the capacity of all zones.
    pub capacity_share: f64,
    /// Share of all requests that is served by the hosts of the zone.
    pub traffic_share: f64,
    /// Load relative to the load line; `null` without hosts.
    pub load_factor: Option<f64>,
}

/// Where the proxies of one zone send requests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneShares {
    pub locality: Locality,
    /// Routing state of the proxies.
    pub state: String,
    /// Share of the zone's demand that stays in the zone.
    pub kept_local: f64,
    /// Share of the zone's demand by receiving zone, in the order of `localities`.
    pub shares: Vec<f64>,
}

impl WhatIf {
    /// Creates an answer from the explanations before and after the hypothetical change.
    pub fn new([before, after]: [&Explanation; 2]) -> Self {
        Self {
            cluster: before.cluster.clone(),
            before: before.into(),
            after: after.into(),
            enforce: None,
        }
    }

    /// Adds the explanations before and after the change with `mode: ENFORCE`.
    #[must_use]
    pub fn with_enforce(mut self, [before, after]: [&Explanation; 2]) -> Self {
        self.enforce = Some(EnforcedShares {
            before: before.into(),
            after: after.into(),
        });
        self
    }
}

impl From<&Explanation> for Shares {
    fn from(explanation: &Explanation) -> Self {
        let spilled = |zone: &ZoneExplanation| zone.demand_share * (1.0 - zone.kept_local);
        let cross_zone: f64 = explanation.zones.iter().map(spilled).sum();
        Self {
            localities: explanation.localities.iter().map(Into::into).collect(),
            zones: explanation.zones.iter().map(Into::into).collect(),
            cross_zone_share: rounded(cross_zone),
            notes: explanation.notes.clone(),
        }
    }
}

impl From<&LocalityExplanation> for LocalityShares {
    fn from(entry: &LocalityExplanation) -> Self {
        Self {
            locality: entry.locality(),
            hosts: entry.healthy,
            demand_share: rounded(entry.demand_share),
            capacity_share: rounded(entry.capacity_share),
            traffic_share: rounded(entry.traffic_share),
            load_factor: entry.load_factor.map(rounded),
        }
    }
}

impl From<&ZoneExplanation> for ZoneShares {
    fn from(zone: &ZoneExplanation) -> Self {
        Self {
            locality: zone.locality.clone(),
            state: zone.state.as_str().to_owned(),
            kept_local: rounded(zone.kept_local),
            shares: zone.shares.iter().copied().map(rounded).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
