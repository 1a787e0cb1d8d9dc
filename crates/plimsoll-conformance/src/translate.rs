//! Inputs and outcomes shared by several suites: localities with counts, availability, host
//! sources.

use std::time::Duration;

use plimsoll_core::counts::{ClassCounts, LocalityCounts};
use plimsoll_core::host_source::HostSource;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::priority::Availability;
use serde::Deserialize;
use serde_json::{Value, json};

use super::CaseError;

/// Limit on hosts, picks and random numbers, so that a typo does not exhaust memory.
const LIMIT: u64 = 10_000_000;

/// One locality of a host set with its host counts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocalityInput {
    #[serde(default)]
    region: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    sub_zone: String,
    hosts: u64,
    healthy: Option<u64>,
    #[serde(default)]
    degraded: u64,
    #[serde(default)]
    excluded: u64,
    /// Weights of the healthy hosts; 1 each if missing.
    healthy_weights: Option<Vec<u32>>,
    /// Weight of the locality, for locality-weighted balancing only; 0 if missing.
    pub(super) weight: Option<u32>,
}

impl LocalityInput {
    /// Weights of the healthy hosts, if they differ from 1.
    pub(super) fn healthy_weights(&self) -> Option<&[u32]> {
        self.healthy_weights.as_deref()
    }

    pub(super) fn counts(&self) -> LocalityCounts {
        let healthy = self.healthy.unwrap_or(self.hosts);
        // A host weighs at least 1 (envoy-semantics §1.1).
        let sum = |weights: &Vec<u32>| weights.iter().map(|&w| u64::from(w.max(1))).sum();
        LocalityCounts {
            locality: Locality::new(&self.region, &self.zone, &self.sub_zone),
            all: self.hosts,
            healthy,
            degraded: self.degraded,
            excluded: self.excluded,
            healthy_weight: self.healthy_weights.as_ref().map_or(healthy, sum),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LocalityName {
    #[serde(default)]
    region: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    sub_zone: String,
}

impl From<&LocalityName> for Locality {
    fn from(name: &LocalityName) -> Self {
        Self::new(&name.region, &name.zone, &name.sub_zone)
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) enum AvailabilityName {
    #[serde(alias = "healthy")]
    Healthy,
    #[serde(alias = "degraded")]
    Degraded,
}

impl From<AvailabilityName> for Availability {
    fn from(name: AvailabilityName) -> Self {
        match name {
            AvailabilityName::Healthy => Self::Healthy,
            AvailabilityName::Degraded => Self::Degraded,
        }
    }
}

pub(super) fn sums(slots: &[LocalityCounts]) -> ClassCounts {
    let sum = |of: fn(&LocalityCounts) -> u64| slots.iter().map(of).sum();
    ClassCounts {
        all: sum(|slot| slot.all),
        healthy: sum(|slot| slot.healthy),
        degraded: sum(|slot| slot.degraded),
        excluded: sum(|slot| slot.excluded),
    }
}

pub(super) fn availability(availability: Availability) -> &'static str {
    match availability {
        Availability::Healthy => "Healthy",
        Availability::Degraded => "Degraded",
    }
}

/// Returns the name of a host source and, for the hosts of one locality, the locality's index.
pub(super) fn source(source: HostSource) -> (&'static str, Option<usize>) {
    match source {
        HostSource::AllHosts => ("AllHosts", None),
        HostSource::HealthyHosts => ("HealthyHosts", None),
        HostSource::DegradedHosts => ("DegradedHosts", None),
        HostSource::LocalityHealthyHosts(index) => ("LocalityHealthyHosts", Some(index)),
        HostSource::LocalityDegradedHosts(index) => ("LocalityDegradedHosts", Some(index)),
        HostSource::LocalityAllHosts(index) => ("LocalityAllHosts", Some(index)),
    }
}

/// Formats a locality as a list of region, zone and sub-zone.
pub(super) fn triple(locality: &Locality) -> Value {
    json!([locality.region(), locality.zone(), locality.sub_zone()])
}

pub(super) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Converts a number of hosts or picks to `usize`; an error if it exceeds `LIMIT`.
pub(super) fn length(number: u64, field: &str) -> Result<usize, CaseError> {
    match usize::try_from(number) {
        Ok(length) if number <= LIMIT => Ok(length),
        _ => Err(CaseError::inputs(format!(
            "{field}: {number} is above {LIMIT}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(json: Value) -> LocalityCounts {
        LocalityInput::deserialize(json).unwrap().counts()
    }

    #[test]
    fn healthy_defaults_to_all_and_weights_to_one_each() {
        let slot = counts(json!({"zone": "a", "hosts": 3}));
        assert_eq!((slot.healthy, slot.healthy_weight), (3, 3));
        let slot = counts(json!({"zone": "a", "hosts": 3, "healthy": 2}));
        assert_eq!((slot.all, slot.healthy, slot.healthy_weight), (3, 2, 2));
        let slot = counts(json!({"zone": "a", "hosts": 2, "healthy_weights": [7, 0]}));
        assert_eq!(slot.healthy_weight, 8, "a host weighs at least 1");
    }

    #[test]
    fn counts_of_localities_are_summed() {
        let slot = counts(json!({
            "region": "r", "zone": "z", "sub_zone": "s",
            "hosts": 5, "healthy": 1, "degraded": 2, "excluded": 1, "weight": 9,
        }));
        assert_eq!(slot.locality, Locality::new("r", "z", "s"));
        let expected = ClassCounts {
            all: 10,
            healthy: 2,
            degraded: 4,
            excluded: 2,
        };
        assert_eq!(sums(&[slot.clone(), slot]), expected);
    }

    #[test]
    fn unknown_keys_are_named() {
        let error = LocalityInput::deserialize(json!({"zone": "a", "hosts": 3, "helthy": 2}));
        assert!(error.unwrap_err().to_string().contains("`helthy`"));
        let error = LocalityName::deserialize(json!({"zonne": "a"}));
        assert!(error.unwrap_err().to_string().contains("`zonne`"));
    }

    #[test]
    fn excessive_lengths_are_refused() {
        assert_eq!(length(5, "hosts"), Ok(5));
        let error = length(u64::MAX, "hosts").unwrap_err();
        assert!(
            error
                .reason()
                .starts_with("hosts: 18446744073709551615 is above")
        );
    }
}
