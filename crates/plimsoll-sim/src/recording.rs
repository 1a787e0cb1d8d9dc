//! [`Recording`]: demand of zones over time as it was measured, in the place of the demand that a
//! scenario describes.
//!
//! The binary reads the formats; here the curves are checked and put in the order of the scenario's
//! zones. Between two samples demand changes linearly. `workload` reads the rates; waves and events
//! of the scenario change them further.

use std::collections::BTreeMap;

use plimsoll_core::units::FieldError;

use crate::num;
use crate::scenario::{HumanDuration, Scenario, Traffic};

/// Curves by zone: time in seconds from any moment on, and requests per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Recording {
    zones: BTreeMap<String, Vec<(f64, f64)>>,
}

/// How a recording is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Replay {
    /// Seconds of the recording in one simulated second, above 0.
    pub speed: f64,
    /// Factor on all rates, above 0.
    pub scale: f64,
}

/// Demand of the zones of a scenario, in simulated time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordedDemand {
    /// By zone, sorted by time; none is empty.
    curves: Vec<Vec<(u64, f64)>>,
}

impl Recording {
    /// Checks that every zone has two samples at least, in order of time, and that rates are rates.
    pub fn try_new(zones: BTreeMap<String, Vec<(f64, f64)>>) -> Result<Self, FieldError> {
        if zones.is_empty() {
            return Err(FieldError::new("zones", "has none"));
        }
        for (zone, curve) in &zones {
            let error = |reason: String| Err(FieldError::new(format!("zones[{zone}]"), reason));
            if curve.len() < 2 {
                return error("has less than two samples".to_owned());
            }
            if let Some(pair) = curve.windows(2).find(|pair| pair[0].0 >= pair[1].0) {
                let (one, next) = (pair[0].0, pair[1].0);
                return error(format!("has {next} s after {one} s: times must increase"));
            }
            if let Some((at, rate)) = curve.iter().find(|(_, rate)| !is_rate(*rate)) {
                return error(format!("is {rate} at {at} s, which is no rate"));
            }
        }
        Ok(Self { zones })
    }

    /// First and last moment of all curves.
    fn span(&self) -> (f64, f64) {
        let curves = self.zones.values();
        let ends = curves.filter_map(|curve| Some((curve.first()?.0, curve.last()?.0)));
        ends.fold((f64::INFINITY, f64::NEG_INFINITY), |(from, to), ends| {
            (from.min(ends.0), to.max(ends.1))
        })
    }
}

impl Scenario {
    /// Returns the scenario with the demand of a recording, for as long as that is. Its zones have
    /// the names of the scenario's, or the zone names of their localities.
    pub fn replaying(mut self, recording: &Recording, replay: Replay) -> Result<Self, FieldError> {
        for (field, value) in [("speed", replay.speed), ("scale", replay.scale)] {
            if !(value > 0.0 && value.is_finite()) {
                return Err(FieldError::new(field, format!("{value} is not above 0")));
            }
        }
        let (from, to) = recording.span();
        let mut curves = Vec::with_capacity(self.zones.len());
        for zone in &self.zones {
            let curve = recording.zones.get(&zone.name);
            let Some(curve) = curve.or_else(|| recording.zones.get(zone.locality.zone())) else {
                let known: Vec<&str> = recording.zones.keys().map(String::as_str).collect();
                let reason = format!("has no curve; there are {}", known.join(", "));
                return Err(FieldError::new(format!("zones[{}]", zone.name), reason));
            };
            let sample = |(at, rate): &(f64, f64)| {
                let at = num::from_seconds((at - from) / replay.speed);
                (at, rate * replay.scale)
            };
            curves.push(curve.iter().map(sample).collect());
        }
        let demand = RecordedDemand { curves };
        let length = std::time::Duration::try_from_secs_f64((to - from) / replay.speed);
        let length = length.map_err(|error| FieldError::new("speed", error.to_string()))?;
        self.duration = num::nanos(length);
        self.traffic = Traffic {
            requests_per_second: demand.mean(self.duration),
            recorded: Some(demand),
            ..self.traffic
        };
        if self.traffic.requests_per_second <= 0.0 {
            return Err(FieldError::new("zones", "have no requests"));
        }
        self.with_duration(HumanDuration(length))
    }
}

impl RecordedDemand {
    /// Returns the requests per second of each zone at a moment.
    pub(crate) fn rates(&self, at: u64) -> Vec<f64> {
        self.curves.iter().map(|curve| rate(curve, at)).collect()
    }

    /// Returns the requests per second of all zones, on average from the start to the `end`.
    fn mean(&self, end: u64) -> f64 {
        const STEPS: u64 = 1000;
        let sum: f64 = (0..STEPS)
            .map(|step| self.rates(end / STEPS * step).iter().sum::<f64>())
            .sum();
        sum / STEPS as f64
    }
}

/// Returns the rate between two samples; before the first and after the last, that of these.
fn rate(curve: &[(u64, f64)], at: u64) -> f64 {
    let next = curve.partition_point(|(time, _)| *time <= at);
    let before = curve[next.saturating_sub(1)];
    let Some(after) = curve.get(next).filter(|_| next > 0) else {
        return before.1;
    };
    let part = (at - before.0) as f64 / (after.0 - before.0) as f64;
    before.1 + part * (after.1 - before.1)
}

const fn is_rate(rate: f64) -> bool {
    rate.is_finite() && rate >= 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Policy;
    use crate::testing::three_zones;

    fn recording(zones: &[(&str, &[(f64, f64)])]) -> Result<Recording, String> {
        let curve = |(zone, curve): &(&str, &[(f64, f64)])| ((*zone).to_owned(), curve.to_vec());
        Recording::try_new(zones.iter().map(curve).collect()).map_err(|error| error.to_string())
    }

    const ONCE: Replay = Replay {
        speed: 1.0,
        scale: 1.0,
    };

    fn flat() -> Recording {
        let curve: &[(f64, f64)] = &[(1000.0, 50.0), (1040.0, 50.0)];
        recording(&[
            ("a", &[(1000.0, 0.0), (1040.0, 200.0)]),
            ("b", curve),
            ("c", curve),
        ])
        .unwrap()
    }

    #[test]
    fn demand_is_that_of_the_recording() {
        let scenario = Scenario::try_new(three_zones()).unwrap();
        let replay = Replay {
            speed: 2.0,
            scale: 0.5,
        };
        let replayed = scenario.replaying(&flat(), replay).unwrap();
        assert_eq!(replayed.duration, 20 * num::SECOND);
        let demand = replayed.traffic.recorded.as_ref().unwrap();
        assert_eq!(demand.rates(0), [0.0, 25.0, 25.0]);
        assert_eq!(demand.rates(5 * num::SECOND), [25.0, 25.0, 25.0]);
        assert_eq!(demand.rates(20 * num::SECOND), [100.0, 25.0, 25.0]);
        assert_eq!(demand.rates(30 * num::SECOND), [100.0, 25.0, 25.0]);
        let report = crate::run(&replayed.with_policies(vec![Policy::None]), |_| {}).unwrap();
        // Half of 100, and 50: 100 requests per second for 20 s. Those in flight at the end do not
        // count.
        let requests = report.policies[0].metrics.requests;
        assert!(requests.abs_diff(2000) < 50, "{requests}");
    }

    #[test]
    fn what_is_no_curve_is_refused() {
        let [one, two] = [(0.0, 1.0), (1.0, 1.0)];
        for (curve, reason) in [
            (&[one][..], "zones[a]: has less than two samples"),
            (&[two, one], "zones[a]: has 0 s after 1 s"),
            (&[one, (1.0, -1.0)], "is -1 at 1 s, which is no rate"),
            (&[one, (1.0, f64::NAN)], "is NaN at 1 s"),
        ] {
            let error = recording(&[("a", curve)]).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        assert!(recording(&[]).unwrap_err().contains("has none"));
        let scenario = || Scenario::try_new(three_zones()).unwrap();
        let alone = recording(&[("a", &[one, two])]).unwrap();
        let error = scenario().replaying(&alone, ONCE).unwrap_err().to_string();
        assert_eq!(error, "zones[b]: has no curve; there are a");
        let fast = Replay { speed: 0.0, ..ONCE };
        let error = scenario().replaying(&flat(), fast).unwrap_err();
        assert_eq!(error.path(), "speed");
    }
}
