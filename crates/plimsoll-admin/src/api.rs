//! Types that `/api/v1` of the control plane and the dashboard's document share: one name, unit and
//! meaning for one number. docs/glossary.md has the words.

use serde::{Deserialize, Serialize};

/// A month of cloud bills: 730 hours.
const SECONDS_PER_MONTH: f64 = 730.0 * 3600.0;

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
    /// One cent per gigabyte and direction, as large cloud providers charge; the bytes per request
    /// are an estimate.
    fn default() -> Self {
        Self {
            usd_per_gigabyte: 0.02,
            bytes_per_request: 10_000.0,
            assumed: true,
        }
    }
}

impl Cost {
    /// Returns the US dollars per month for this many requests per second between zones.
    pub fn usd_per_month(&self, requests_per_second: f64) -> f64 {
        let bytes = requests_per_second * self.bytes_per_request * SECONDS_PER_MONTH;
        bytes / 1e9 * self.usd_per_gigabyte
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
    /// How full zones may get before their requests go elsewhere, 0 to 1; `null` with `LEVEL`.
    pub target_utilization: Option<f64>,
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
    fn a_month_of_traffic_has_a_price() {
        let cost = Cost {
            usd_per_gigabyte: 0.5,
            bytes_per_request: 1000.0,
            assumed: false,
        };
        assert_eq!(rounded(cost.usd_per_month(1000.0)), 1314.0);
    }

    #[test]
    fn numbers_have_three_decimals() {
        assert_eq!(rounded(2.0 / 3.0), 0.667);
        assert!(rounded(-0.0).is_sign_positive());
    }
}
