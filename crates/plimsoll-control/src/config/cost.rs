//! Price of traffic between zones ([`Cost`]), for estimates in the admin API and in metrics.

use plimsoll_admin::api::Cost;
use plimsoll_core::units::FieldError;
use serde::Deserialize;

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
        let default = Cost::default();
        Ok(Cost {
            usd_per_gigabyte: self.usd_per_gigabyte.unwrap_or(default.usd_per_gigabyte),
            bytes_per_request: self.bytes_per_request.unwrap_or(default.bytes_per_request),
            assumed: self.usd_per_gigabyte.is_none() || self.bytes_per_request.is_none(),
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
        assert!(cost.assumed);
    }

    #[test]
    fn written_values_replace_the_assumed_ones() {
        let yaml = CostYaml {
            usd_per_gigabyte: Some(0.01),
            bytes_per_request: None,
        };
        let cost = yaml.validate().unwrap();
        assert!(cost.assumed, "the size is still assumed");
        let both = CostYaml {
            bytes_per_request: Some(0.0),
            ..yaml
        };
        assert!(!both.validate().unwrap().assumed);
        for wrong in [-1.0, f64::NAN, f64::INFINITY] {
            let yaml = CostYaml {
                usd_per_gigabyte: Some(wrong),
                ..CostYaml::default()
            };
            assert_eq!(yaml.validate().unwrap_err().path(), "usd_per_gigabyte");
        }
    }
}
