//! Types that `/api/v1` of the control plane and the dashboard's document share: one name, unit and
//! meaning for one number. docs/glossary.md has the words.

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost;
use serde::{Deserialize, Serialize};

/// What is worst, why, and what to do: one sentence in three parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Verdict {
    /// `error`, `warning`, `info` or `fine`.
    pub severity: String,
    /// Stable name of the kind of problem, for scripts.
    pub kind: String,
    /// All three parts, as one sentence.
    pub text: String,
    /// What is wrong, as a clause.
    pub what: String,
    /// Why, as a clause.
    pub why: Option<String>,
    /// What to do, as a clause.
    pub remedy: Option<String>,
    /// Fleet and cluster that it is about, if it is about some.
    pub fleet: Option<String>,
    pub cluster: Option<String>,
    pub locality: Option<Locality>,
    /// Path of the API that says more.
    pub see: Option<String>,
    /// Number of other problems that are errors or warnings.
    pub others: u64,
}

/// Price of traffic between zones.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Cost {
    /// US dollars per gigabyte (10⁹ bytes), both directions together.
    pub usd_per_gigabyte: f64,
    /// Bytes of a request and its response, used where bytes are not measured.
    pub bytes_per_request: f64,
    /// Whether a value is the default of the program, not a setting of the host.
    pub assumed: bool,
}

impl Default for Cost {
    fn default() -> Self {
        Self::from(&cost::Cost::default())
    }
}

impl From<&cost::Cost> for Cost {
    /// Returns the price between zones, without those of regions and pairs.
    fn from(cost: &cost::Cost) -> Self {
        Self {
            usd_per_gigabyte: cost.usd_per_gigabyte(),
            bytes_per_request: cost.bytes_per_request(),
            assumed: cost.is_assumed(),
        }
    }
}

/// Traffic of all zones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct TotalLoad {
    /// Requests of all zones together.
    pub requests_per_second: f64,
    /// Requests that leave their zone.
    pub cross_zone_requests_per_second: f64,
    /// Share of all requests that stays in its zone, 0 to 1; `null` without requests.
    pub kept_local: Option<f64>,
    /// Load of the zone that is farthest above its load line.
    pub highest_load: Option<f64>,
    /// Estimated cost of requests that leave their zone.
    pub usd_per_month: f64,
}

/// What the requests between zones cost by the plan of a service, for the demand of all fleets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct PlannedCost {
    pub usd_per_month: f64,
    /// If all zones were equally full.
    pub level_usd_per_month: f64,
    /// So much less would it be with a target one percent higher; `null` with `LEVEL`, and where
    /// demand exceeds the target.
    pub last_percent_usd_per_month: Option<f64>,
}

/// Traffic of one zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ZoneLoad {
    /// Requests served by the hosts of the zone.
    pub served_requests_per_second: f64,
    /// Load relative to the load line: 1 is on the line, more is overload.
    pub load: Option<f64>,
    /// Share of the zone's demand that stays in the zone, 0 to 1.
    pub kept_local: Option<f64>,
}

/// Rounds to three decimals, which is more than the precision of any rate or share, and negative
/// zero (the sum of no numbers) to zero.
pub fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_decimals() {
        assert_eq!(rounded(2.0 / 3.0), 0.667);
        assert!(rounded(-0.0).is_sign_positive());
    }
}
