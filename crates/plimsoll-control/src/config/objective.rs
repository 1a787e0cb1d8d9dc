//! Objective and capacity of a service in a file: how full its zones may get before their requests
//! go elsewhere, and what a host can serve, as it is declared or as it is to be learned.

use std::fmt;
use std::sync::Arc;

use plimsoll_core::model::orca::MetricName;
use plimsoll_core::planner::capacity::UTILIZATION;
use plimsoll_core::planner::cost::Cost;
use plimsoll_core::planner::transport::Objective;
use plimsoll_core::planner::zone_plan::{HostCapacity, ZoneGoal};
use plimsoll_core::units::FieldError;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};

/// Name of the objective that is the default.
const LEVEL: &str = "LEVEL";

/// What the service wants of its zones, if not `LEVEL`.
#[derive(Clone, Copy, Debug, Default, serde::Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Objective"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct ObjectiveFields {
    /// Requests stay in their zone until it is full.
    waterfall: Option<WaterfallYaml>,
}

/// Requests stay in their zone until it is full.
#[derive(Clone, Copy, Debug, serde::Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Waterfall"))]
#[serde(deny_unknown_fields)]
pub(super) struct WaterfallYaml {
    /// How full a zone may get before its requests go to zones with headroom, above 0, to 1. If
    /// demand exceeds it in all zones together, all are equally full.
    target_utilization: f64,
}

/// An objective as a string or an object; [`LEVEL`] is the one without fields.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ObjectiveYaml(pub(super) ObjectiveFields);

/// What a host can serve: one of the two.
#[derive(Clone, Debug, Default, serde::Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Capacity"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CapacityYaml {
    /// Requests per second that a host of weight 1 serves at utilization 1, above 0, to 1000000.
    /// A host of weight 2 counts twice.
    requests_per_second: Option<f64>,
    /// Capacity of each host is learned from load reports, and sets the weights of endpoints.
    learned: Option<LearnedYaml>,
}

/// Capacity that is learned from load reports.
#[derive(Clone, Debug, Default, serde::Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "LearnedCapacity"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct LearnedYaml {
    /// Metric in ORCA load reports of hosts that is their utilization, such as `cpu_utilization` or
    /// `named_metrics.gpu`. Default `application_utilization`, or `cpu_utilization` of hosts
    /// without it.
    metric: Option<String>,
}

/// How the capacity of the hosts of a service is learned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learning {
    /// The metric that is the utilization of a host; `None` for those of [`UTILIZATION`].
    pub metric: Option<Arc<str>>,
}

impl Learning {
    /// Returns the metrics that data planes must report.
    pub(crate) fn metrics(&self) -> Vec<&str> {
        match &self.metric {
            Some(metric) => vec![metric],
            None => UTILIZATION.to_vec(),
        }
    }
}

impl<'de> Deserialize<'de> for ObjectiveYaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectiveVisitor;

        impl<'de> Visitor<'de> for ObjectiveVisitor {
            type Value = ObjectiveFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("LEVEL or {waterfall: {target_utilization: 0.8}}")
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<ObjectiveFields, E> {
                if name == LEVEL {
                    return Ok(ObjectiveFields::default());
                }
                let expected = "LEVEL or {waterfall: {target_utilization: 0.8}}";
                Err(E::custom(format!("{name:?} is not {expected}")))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ObjectiveFields, A::Error> {
                let fields = ObjectiveFields::deserialize(MapAccessDeserializer::new(map))?;
                if fields.waterfall.is_none() {
                    return Err(A::Error::custom("has no waterfall"));
                }
                Ok(fields)
            }
        }

        deserializer.deserialize_any(ObjectiveVisitor).map(Self)
    }
}

/// Checks the objective of a service with the capacity of its hosts. Capacity that is learned is
/// `None` in the goal until it is known.
pub(super) fn goal(
    objective: Option<ObjectiveYaml>,
    capacity: Option<&CapacityYaml>,
    cost: Cost,
) -> Result<(ZoneGoal, Option<Learning>), FieldError> {
    let waterfall = objective.and_then(|objective| objective.0.waterfall);
    let objective = waterfall.map_or(Ok(Objective::LEVEL), |waterfall| {
        Objective::waterfall(waterfall.target_utilization)
            .map_err(|error| error.under("waterfall").under("objective"))
    })?;
    let capacity = capacity.map(CapacityYaml::validate).transpose();
    let (capacity, learning) = capacity
        .map_err(|error| error.under("capacity"))?
        .unwrap_or_default();
    if !objective.is_level() && capacity.is_none() && learning.is_none() {
        let reason = "a target of utilization needs capacity: {requests_per_second: …}, of a host \
                      of weight 1, or capacity: {learned: {}}";
        return Err(FieldError::new("objective", reason));
    }
    let goal = ZoneGoal {
        objective,
        capacity,
        cost: Arc::new(cost),
    };
    Ok((goal, learning))
}

impl CapacityYaml {
    pub(super) const fn is_learned(&self) -> bool {
        self.learned.is_some()
    }

    fn validate(&self) -> Result<(Option<HostCapacity>, Option<Learning>), FieldError> {
        match (self.requests_per_second, &self.learned) {
            (Some(rate), None) => Ok((Some(HostCapacity::requests_per_second(rate)?), None)),
            (None, Some(learned)) => {
                let learning = learned.validate().map_err(|error| error.under("learned"))?;
                Ok((None, Some(learning)))
            }
            (None, None) => {
                let reason = "is not set, and neither is learned";
                Err(FieldError::new("requests_per_second", reason))
            }
            (Some(_), Some(_)) => {
                let reason = "is set beside requests_per_second; remove one of the two";
                Err(FieldError::new("learned", reason))
            }
        }
    }
}

impl LearnedYaml {
    fn validate(&self) -> Result<Learning, FieldError> {
        let Some(metric) = &self.metric else {
            return Ok(Learning::default());
        };
        // The sum of several metrics is no utilization.
        if !MetricName::new(metric).is_known() || metric.ends_with(".*") {
            let reason = format!(
                "{metric:?} is no metric of a load report, such as cpu_utilization or \
                 named_metrics.gpu"
            );
            return Err(FieldError::new("metric", reason));
        }
        let metric = Some(metric.as_str().into());
        Ok(Learning { metric })
    }
}

/// Returns the objective as in a file, for the audit.
pub(crate) fn shown(goal: &ZoneGoal) -> Option<String> {
    let target = goal.objective.target_utilization();
    (!goal.objective.is_level()).then(|| format!("waterfall {target}"))
}

/// Returns the capacity of a host as in a file, for the audit.
pub(crate) fn shown_capacity(goal: &ZoneGoal, learning: Option<&Learning>) -> Option<String> {
    match learning {
        Some(Learning { metric: None }) => Some("learned".to_owned()),
        Some(Learning {
            metric: Some(metric),
        }) => Some(format!("learned from {metric}")),
        None => goal
            .capacity
            .map(|capacity| format!("{} requests/s", capacity.rate())),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::planner::zone_plan::HostCapacity;

    use crate::state::tests::driver::{config, try_config_of};

    #[test]
    fn objectives_are_read() {
        let waterfall = "objective: {waterfall: {target_utilization: 0.8}}, \
                         capacity: {requests_per_second: 30}";
        let camel = "objective: {waterfall: {targetUtilization: 0.8}}, \
                     capacity: {requestsPerSecond: 30}";
        let learned = "objective: {waterfall: {target_utilization: 0.8}}, \
                       capacity: {learned: {metric: named_metrics.gpu}}";
        for (written, target, capacity) in [
            ("", 0.0, None),
            ("objective: LEVEL", 0.0, None),
            ("capacity: {requests_per_second: 2.5}", 0.0, Some(2.5)),
            (waterfall, 0.8, Some(30.0)),
            (camel, 0.8, Some(30.0)),
            ("capacity: {learned: {}}", 0.0, None),
            (learned, 0.8, None),
        ] {
            let config = config(written);
            let goal = &config.services["orders"].goal;
            let found = goal.objective.target_utilization();
            assert!((found - target).abs() < 1e-9, "{written}: {goal:?}");
            assert_eq!(goal.capacity.map(HostCapacity::rate), capacity, "{written}");
        }
    }

    /// Every error names the field.
    #[test]
    fn objectives_that_cannot_be_followed_are_refused() {
        let target = |target: &str| {
            format!(
                "objective: {{waterfall: {{target_utilization: {target}}}}}, \
                 capacity: {{requests_per_second: 30}}"
            )
        };
        let alone = "objective: {waterfall: {target_utilization: 0.8}}";
        for (written, path, reason) in [
            (alone.to_owned(), "objective", "needs capacity"),
            (
                target("0"),
                "objective.waterfall.target_utilization",
                "above 0",
            ),
            (
                target("1.5"),
                "objective.waterfall.target_utilization",
                "at most 1",
            ),
            ("objective: FULL".to_owned(), "objective", "LEVEL or"),
            ("objective: {}".to_owned(), "objective", "has no waterfall"),
            ("objective: {rings: {}}".to_owned(), "objective", "rings"),
            (
                format!("{alone}, capacity: {{}}"),
                "capacity.requests_per_second",
                "is not set",
            ),
            (
                format!("{alone}, capacity: {{requests_per_second: -1}}"),
                "capacity.requests_per_second",
                "above 0",
            ),
            (
                "capacity: {requests_per_second: 30, learned: {}}".to_owned(),
                "capacity.learned",
                "remove one of the two",
            ),
            (
                "capacity: {learned: {metric: gpu}}".to_owned(),
                "capacity.learned.metric",
                "named_metrics.gpu",
            ),
            (
                "capacity: {learned: {metric: 'named_metrics.*'}}".to_owned(),
                "capacity.learned.metric",
                "is no metric",
            ),
        ] {
            let error = try_config_of("", &written).unwrap_err();
            assert!(
                error.contains(path) && error.contains(reason),
                "{written}: {error}"
            );
        }
    }

    #[test]
    fn an_objective_asks_for_measured_demand() {
        let objective = "objective: {waterfall: {target_utilization: 0.8}}, \
                         capacity: {requests_per_second: 30}";
        let subset = "lb_subset_config: {subset_selectors: [{keys: [stage]}]}";
        for (cluster, reason) in [
            ("lb_policy: RING_HASH", "consistent hashing"),
            (subset, "locality_weight_aware"),
        ] {
            let error = try_config_of(cluster, objective).unwrap_err();
            assert!(
                error.contains("objective") && error.contains(reason),
                "{error}"
            );
            let off = format!("{objective}, mode: 'OFF'");
            assert!(try_config_of(cluster, &off).is_ok(), "{cluster}");
        }
    }
}
