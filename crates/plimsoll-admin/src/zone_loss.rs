//! What a service would be without one of its zones: types that `/api/v1/zone-loss`, the dashboard
//! and `plimsoll report` share.

use plimsoll_core::model::locality::Locality;
use serde::{Deserialize, Serialize};

/// The fullest zone of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct LossFigure {
    /// Served requests ÷ capacity; `null` if the capacity of a zone is not known.
    pub utilization: Option<f64>,
    /// The same, relative to that of all zones together today: 1 is as full as they are on average.
    pub load: f64,
    /// The zone that is so full.
    pub fullest: Locality,
}

/// What a service would be without one zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ZoneLoss {
    pub locality: Locality,
    /// If its proxies keep getting their requests and send them elsewhere; `null` if no other zone
    /// has hosts.
    pub clients_stay: Option<LossFigure>,
    /// If its requests arrive at the proxies of the other zones; `null` if no other zone has hosts.
    pub clients_move: Option<LossFigure>,
    /// Whether a utilization is above `max_utilization`, or no zone would be left.
    pub exceeds: bool,
    /// The worse of both cases, as a sentence.
    pub text: String,
}

/// What a service would be without each of its zones, all fleets together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ServiceZoneLoss {
    pub cluster: String,
    /// Requests of all fleets and zones.
    pub demand_requests_per_second: f64,
    /// What all healthy hosts serve at utilization 1; `null` if it is not known of a zone.
    pub capacity_requests_per_second: Option<f64>,
    /// The fullest zone as it is.
    pub now: Option<LossFigure>,
    /// What utilization is compared with: setting `evacuation.max_utilization`.
    pub max_utilization: f64,
    /// Zones with healthy hosts.
    pub zones: Vec<ZoneLoss>,
}

/// Response to requests for `/api/v1/zone-loss`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct ZoneLosses {
    /// Services with requests that match the query.
    pub total: usize,
    pub offset: usize,
    pub services: Vec<ServiceZoneLoss>,
}

impl ServiceZoneLoss {
    /// Returns the zone whose loss would be worst.
    pub fn worst(&self) -> Option<&ZoneLoss> {
        self.zones
            .iter()
            .max_by(|a, b| a.severity().total_cmp(&b.severity()))
    }
}

impl ZoneLoss {
    /// Returns the higher load of both cases; infinite if no zone would be left.
    pub fn severity(&self) -> f64 {
        match (&self.clients_stay, &self.clients_move) {
            (Some(stay), Some(moved)) => stay.load.max(moved.load),
            _ => f64::INFINITY,
        }
    }

    /// Returns the higher utilization of both cases; `None` if it is not known.
    pub fn utilization(&self) -> Option<f64> {
        let (stay, moved) = (self.clients_stay.as_ref()?, self.clients_move.as_ref()?);
        Some(stay.utilization?.max(moved.utilization?))
    }
}
