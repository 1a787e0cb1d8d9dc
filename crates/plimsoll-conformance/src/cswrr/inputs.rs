//! Inputs of the suite `cswrr` and their translation to core types.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

use plimsoll_core::endpoint_picking::client_side_weighted_round_robin::{
    ClientWeight, OrcaWeightSlot,
};
use plimsoll_core::model::client_side_weighted_round_robin::{
    ClientSideWeightedRoundRobin, ClientSideWeightedRoundRobinParts,
};
use plimsoll_core::time::Instant;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::report::{Number, metric_rules};
use crate::{Case, CaseError};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ValidityInputs {
    #[serde(default = "yes")]
    pub(super) has_data: bool,
    #[serde(default)]
    pub(super) weight: u32,
    pub(super) non_empty_since_s: Option<Seconds>,
    pub(super) last_update_s: Option<Seconds>,
    pub(super) max_non_empty_since_s: Seconds,
    pub(super) min_last_update_s: Seconds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateInputs {
    pub(super) priorities: Vec<Vec<HostInput>>,
    pub(super) now_s: Ticks,
    pub(super) blackout_s: Seconds,
    pub(super) expiration_s: Seconds,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostInput {
    #[serde(default = "yes")]
    has_data: bool,
    #[serde(default)]
    weight: u32,
    non_empty_since_s: Option<Seconds>,
    last_update_s: Option<Seconds>,
    /// Weight of the host before weights are updated.
    #[serde(default = "one")]
    lb_weight: u32,
}

impl HostInput {
    /// Returns the slot with the host's reported weight, and the host's current weight.
    pub(super) fn host(&self) -> (OrcaWeightSlot, AtomicU32) {
        let times = (self.non_empty_since_s, self.last_update_s);
        let slot = if self.has_data {
            slot(self.weight, times)
        } else {
            OrcaWeightSlot::default()
        };
        (slot, AtomicU32::new(self.lb_weight))
    }
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Ticks {
    One(Seconds),
    Several(Vec<Seconds>),
}

impl Ticks {
    pub(super) fn all(&self) -> &[Seconds] {
        match self {
            Self::One(tick) => std::slice::from_ref(tick),
            Self::Several(ticks) => ticks,
        }
    }
}

/// An instant or a duration, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds(pub(super) Duration);

impl<'de> Deserialize<'de> for Seconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds)
            .map(Self)
            .map_err(|error| D::Error::custom(format!("{seconds} seconds: {error}")))
    }
}

impl Seconds {
    pub(super) fn instant(self) -> Instant {
        Instant::ORIGIN.saturating_add(self.0)
    }
}

/// Formats an instant as in cases, in seconds; null if there is none.
pub(super) fn seconds(time: Option<Instant>) -> Value {
    time.map(|time| time.saturating_duration_since(Instant::ORIGIN))
        .map(|since| since.as_secs_f64())
        .into()
}

/// Reads the settings that turn a load report into a weight.
pub(super) fn rules(case: &Case) -> Result<ClientSideWeightedRoundRobin, CaseError> {
    let (metric_names, utilization_precedence) = metric_rules(case)?;
    let parts = ClientSideWeightedRoundRobinParts {
        error_utilization_penalty: Some(case.input::<Number>("error_utilization_penalty")?.0),
        metric_names_for_computing_utilization: metric_names,
        utilization_precedence,
        ..ClientSideWeightedRoundRobinParts::default()
    };
    Ok(ClientSideWeightedRoundRobin::try_new(parts)?)
}

/// Creates the weight slot of a host; `times` are when the host first reported a weight (start of
/// the blackout period) and when it last did.
pub(super) fn slot(weight: u32, times: (Option<Seconds>, Option<Seconds>)) -> OrcaWeightSlot {
    OrcaWeightSlot::from(ClientWeight {
        weight,
        non_empty_since: times.0.map(Seconds::instant),
        last_update: times.1.map(Seconds::instant),
    })
}

/// Converts milliseconds; negative durations, which mean the default for Envoy, become 0.
pub(super) fn not_negative_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

const fn yes() -> bool {
    true
}

const fn one() -> u32 {
    1
}
