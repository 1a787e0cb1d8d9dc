//! Section `evacuation`: when and how zones are taken out of use.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{RETURN_MS, STEP_MS, ZoneName};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::{Named, ProtoDuration, Uint};
use serde::Deserialize;

use super::Mode;

/// Utilization up to which the other zones may be filled, by default.
const DEFAULT_MAX_UTILIZATION: f64 = 0.9;
/// Percent of the hosts of a service that may be out of use, by default.
const DEFAULT_MAX_CAPACITY: u32 = 50;
/// How long a zone that the control plane has drained stays out, by default: longer than the
/// restart of its hosts.
const DEFAULT_AUTOMATIC_TIME: Duration = Duration::from_secs(1800);
/// Longest time between two steps, and a tenth of the longest return.
const MAX_STEP: Duration = Duration::from_secs(3600);

/// When and how zones are taken out of use.
#[derive(Clone, Debug, PartialEq)]
pub struct Evacuation {
    /// How full the fullest of the other zones may get. Also what the loss of a zone is compared
    /// with.
    pub max_utilization: f64,
    /// Largest part of the hosts of a service that may be out of use.
    pub max_capacity_share: f64,
    /// Time between two steps of ten percent.
    pub step_interval: Duration,
    /// Duration of the return of a whole zone.
    pub return_time: Duration,
    /// Where orders survive a restart without a store.
    pub state_file: Option<PathBuf>,
    /// Zones that are out of use, with the reason.
    pub drained: BTreeMap<ZoneName, Arc<str>>,
    /// Whether an ill zone is drained, only told, or neither.
    pub automatic: Mode,
    /// How long such a zone stays out before it is tried again.
    pub automatic_time: Duration,
}

impl Default for Evacuation {
    fn default() -> Self {
        Self {
            max_utilization: DEFAULT_MAX_UTILIZATION,
            max_capacity_share: f64::from(DEFAULT_MAX_CAPACITY) / 100.0,
            step_interval: Duration::from_millis(STEP_MS),
            return_time: Duration::from_millis(RETURN_MS),
            state_file: None,
            drained: BTreeMap::new(),
            automatic: Mode::Shadow,
            automatic_time: DEFAULT_AUTOMATIC_TIME,
        }
    }
}

/// When and how zones are taken out of use.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Evacuation"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct EvacuationYaml {
    /// How full the fullest of the other zones may get without one zone, above 0, to 2: what a
    /// drain, and the loss of every zone, is compared with. Needs `capacity` of the service.
    /// Default 0.9.
    max_utilization: Option<f64>,
    /// Largest percentage of the hosts of a service that drains may take out of use, 1 to 100.
    /// Default 50.
    max_capacity_percent: Option<Uint<u32>>,
    /// Time between two steps of a drain, each of ten percent of the hosts of the zone, 0s to
    /// 3600s; 0s drains at once. Default `10s`.
    step_interval: Option<ProtoDuration>,
    /// Duration of the return of a whole zone, 0s to 36000s. Default `300s`.
    return_time: Option<ProtoDuration>,
    /// File in which orders survive a restart, if there is no `store`. Default none.
    state_file: Option<String>,
    /// Zones that are out of use. An edit drains and returns them by steps; at a start they are out
    /// at once. Default none.
    pub(super) drained: Vec<DrainedZoneYaml>,
    /// Whether a zone whose backends are ill is drained (`ENFORCE`), only told that it would have
    /// been (`SHADOW`), or neither (`OFF`). Default `SHADOW`.
    automatic: Option<Named<Mode>>,
    /// How long a zone that was drained so stays out before it returns and is judged again, 60s to
    /// 86400s. Default `1800s`.
    automatic_time: Option<ProtoDuration>,
}

/// A zone that is out of use.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "DrainedZone"))]
#[serde(deny_unknown_fields)]
pub(super) struct DrainedZoneYaml {
    /// Name of the zone, `ZONE` or `REGION/ZONE`, as in localities of endpoints.
    zone: String,
    /// Why it is out of use, for others.
    reason: String,
}

impl EvacuationYaml {
    pub(super) fn validate(&self) -> Result<Evacuation, FieldError> {
        let defaults = Evacuation::default();
        let max_utilization = self.max_utilization.unwrap_or(defaults.max_utilization);
        if !(max_utilization > 0.0 && max_utilization <= 2.0) {
            let reason = format!("{max_utilization} is not above 0 and at most 2");
            return Err(FieldError::new("max_utilization", reason));
        }
        let percent = self
            .max_capacity_percent
            .map_or(DEFAULT_MAX_CAPACITY, |most| most.0);
        if !(1..=100).contains(&percent) {
            let reason = format!("{percent} is outside 1 to 100");
            return Err(FieldError::new("max_capacity_percent", reason));
        }
        let time = |field, written: Option<ProtoDuration>, default: Duration, most: Duration| {
            let time = written.map_or(default, |time| time.0);
            let too_long = || FieldError::new(field, format!("{time:?} is above {most:?}"));
            (time <= most).then_some(time).ok_or_else(too_long)
        };
        Ok(Evacuation {
            max_utilization,
            max_capacity_share: f64::from(percent) / 100.0,
            step_interval: time(
                "step_interval",
                self.step_interval,
                defaults.step_interval,
                MAX_STEP,
            )?,
            return_time: time(
                "return_time",
                self.return_time,
                defaults.return_time,
                10 * MAX_STEP,
            )?,
            state_file: self.state_file.as_ref().map(PathBuf::from),
            drained: self.drained()?,
            automatic: self.automatic.map_or(defaults.automatic, |mode| mode.0),
            automatic_time: self.automatic_time()?,
        })
    }

    fn automatic_time(&self) -> Result<Duration, FieldError> {
        let time = self
            .automatic_time
            .map_or(DEFAULT_AUTOMATIC_TIME, |time| time.0);
        if !(Duration::from_secs(60)..=Duration::from_secs(86_400)).contains(&time) {
            let reason = format!("{time:?} is outside 60 s to 1 day");
            return Err(FieldError::new("automatic_time", reason));
        }
        Ok(time)
    }

    fn drained(&self) -> Result<BTreeMap<ZoneName, Arc<str>>, FieldError> {
        let mut drained = BTreeMap::new();
        for (index, one) in self.drained.iter().enumerate() {
            let path = format!("drained[{index}]");
            let zone = ZoneName::try_new(&one.zone).map_err(|error| error.under(&path))?;
            if one.reason.trim().is_empty() || one.reason.len() > 256 {
                let reason = "must have 1 to 256 bytes";
                return Err(FieldError::new(format!("{path}.reason"), reason));
            }
            if drained.insert(zone, one.reason.as_str().into()).is_some() {
                return Err(FieldError::new(path, "is already listed"));
            }
        }
        Ok(drained)
    }
}
