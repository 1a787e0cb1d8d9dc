//! [`Cost`]: price of traffic between zones, for estimates in the admin API and in metrics.

use plimsoll_core::units::FieldError;
use serde::Deserialize;

/// A month of cloud bills: 730 hours.
const SECONDS_PER_MONTH: f64 = 730.0 * 3600.0;

/// Price of traffic between zones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// US dollars per gigabyte (10⁹ bytes), both directions together.
    pub usd_per_gigabyte: f64,
    /// Bytes of a request and its response: load reports do not count bytes.
    pub bytes_per_request: f64,
    /// Whether a value is the default, not one of the file.
    pub is_assumed: bool,
}

/// Price of traffic between zones, for estimates of cost.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CostYaml {
    /// US dollars per gigabyte (10⁹ bytes), both directions together. Default 0.02, one cent per
    /// direction, as large cloud providers charge.
    usd_per_gigabyte: Option<f64>,
    /// Bytes of a request and its response. Default 10000.
    bytes_per_request: Option<f64>,
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            usd_per_gigabyte: 0.02,
            bytes_per_request: 10_000.0,
            is_assumed: true,
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

impl CostYaml {
    pub(super) fn validate(self) -> Result<Cost, FieldError> {
        let fields = [
            ("usd_per_gigabyte", self.usd_per_gigabyte),
            ("bytes_per_request", self.bytes_per_request),
        ];
        for (field, value) in fields {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
                let reason = format!("{value} is not a number of at least 0");
                return Err(FieldError::new(field, reason));
            }
        }
        let assumed = Cost::default();
        Ok(Cost {
            usd_per_gigabyte: self.usd_per_gigabyte.unwrap_or(assumed.usd_per_gigabyte),
            bytes_per_request: self.bytes_per_request.unwrap_or(assumed.bytes_per_request),
            is_assumed: self.usd_per_gigabyte.is_none() || self.bytes_per_request.is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_month_of_one_request_per_second() {
        let cost = Cost::default();
        // 730 h · 3600 s · 10 kB = 26.28 GB at two cents.
        assert!((cost.usd_per_month(1.0) - 0.5256).abs() < 1e-9);
        assert!(cost.is_assumed);
    }

    #[test]
    fn written_values_replace_the_assumed_ones() {
        let yaml = CostYaml {
            usd_per_gigabyte: Some(0.01),
            bytes_per_request: None,
        };
        let cost = yaml.validate().unwrap();
        assert!(cost.is_assumed, "the size is still assumed");
        let both = CostYaml {
            bytes_per_request: Some(0.0),
            ..yaml
        };
        assert!(!both.validate().unwrap().is_assumed);
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            let yaml = CostYaml {
                usd_per_gigabyte: Some(wrong),
                ..CostYaml::default()
            };
            assert_eq!(yaml.validate().unwrap_err().path(), "usd_per_gigabyte");
        }
    }
}
