//! Section `evacuation`: when a zone may be taken out of use.

use plimsoll_core::units::FieldError;
use serde::Deserialize;

/// Utilization up to which the other zones may be filled, by default.
const DEFAULT_MAX_UTILIZATION: f64 = 0.9;

/// When a zone may be taken out of use.
#[derive(Clone, Debug, PartialEq)]
pub struct Evacuation {
    /// How full the fullest of the other zones may get. Also what the loss of a zone is compared
    /// with.
    pub max_utilization: f64,
}

impl Default for Evacuation {
    fn default() -> Self {
        Self {
            max_utilization: DEFAULT_MAX_UTILIZATION,
        }
    }
}

/// When a zone may be taken out of use.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Evacuation"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct EvacuationYaml {
    /// How full the fullest of the other zones may get without one zone, above 0, to 2: what the
    /// loss of every zone is compared with. Needs `capacity` of the service. Default 0.9.
    max_utilization: Option<f64>,
}

impl EvacuationYaml {
    pub(super) fn validate(&self) -> Result<Evacuation, FieldError> {
        let max_utilization = self.max_utilization.unwrap_or(DEFAULT_MAX_UTILIZATION);
        if !(max_utilization > 0.0 && max_utilization <= 2.0) {
            let reason = format!("{max_utilization} is not above 0 and at most 2");
            return Err(FieldError::new("max_utilization", reason));
        }
        Ok(Evacuation { max_utilization })
    }
}
