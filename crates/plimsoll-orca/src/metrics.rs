//! [`Metrics`]: metrics set by the application, validated; they override measured values.
//!
//! Held by `handle` for the process and by `recorder` for a request.

use std::collections::BTreeMap;

use plimsoll_core::model::orca::{MetricMap, OrcaLoadReport};
use plimsoll_core::units::FieldError;

/// Longest name of a metric: names are sent with every response, and headers are limited.
const MAX_NAME_LENGTH: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Field {
    Application,
    Cpu,
    Eps,
    Mem,
    Rps,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    Named,
    RequestCost,
    Utilization,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Metrics {
    fields: [Option<f64>; 5],
    maps: [BTreeMap<Box<str>, f64>; 3],
}

impl Metrics {
    /// Sets a field; `None` unsets it, so that the measured value is reported.
    pub(crate) fn set(&mut self, field: Field, value: Option<f64>) -> Result<(), FieldError> {
        if let Some(value) = value {
            check_value(field.name(), value)?;
        }
        self.fields[field as usize] = value;
        Ok(())
    }

    pub(crate) fn put(
        &mut self,
        map: Map,
        name: &str,
        value: Option<f64>,
    ) -> Result<(), FieldError> {
        check_name(map.name(), name)?;
        let entries = &mut self.maps[map as usize];
        let Some(value) = value else {
            entries.remove(name);
            return Ok(());
        };
        check_value(&format!("{}.{name}", map.name()), value)?;
        match entries.get_mut(name) {
            Some(entry) => *entry = value,
            None => _ = entries.insert(name.into(), value),
        }
        Ok(())
    }

    pub(crate) fn apply(&self, report: &mut OrcaLoadReport) {
        for field in Field::ALL {
            if let Some(value) = self.fields[field as usize] {
                *field.of(report) = value;
            }
        }
        for map in Map::ALL {
            let target = map.of(report);
            for (name, value) in &self.maps[map as usize] {
                target.insert(name.clone(), *value);
            }
        }
    }
}

impl Field {
    const ALL: [Self; 5] = [
        Self::Application,
        Self::Cpu,
        Self::Eps,
        Self::Mem,
        Self::Rps,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::Application => "application_utilization",
            Self::Cpu => "cpu_utilization",
            Self::Eps => "eps",
            Self::Mem => "mem_utilization",
            Self::Rps => "rps_fractional",
        }
    }

    const fn of(self, report: &mut OrcaLoadReport) -> &mut f64 {
        match self {
            Self::Application => &mut report.application_utilization,
            Self::Cpu => &mut report.cpu_utilization,
            Self::Eps => &mut report.eps,
            Self::Mem => &mut report.mem_utilization,
            Self::Rps => &mut report.rps_fractional,
        }
    }
}

impl Map {
    const ALL: [Self; 3] = [Self::Named, Self::RequestCost, Self::Utilization];

    const fn name(self) -> &'static str {
        match self {
            Self::Named => "named_metrics",
            Self::RequestCost => "request_cost",
            Self::Utilization => "utilization",
        }
    }

    const fn of(self, report: &mut OrcaLoadReport) -> &mut MetricMap {
        match self {
            Self::Named => &mut report.named_metrics,
            Self::RequestCost => &mut report.request_cost,
            Self::Utilization => &mut report.utilization,
        }
    }
}

/// Rejects values that balancers would treat as not reported and that text cannot express.
fn check_value(path: &str, value: f64) -> Result<(), FieldError> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    let reason = format!("must be a finite number of at least 0, is {value}");
    Err(FieldError::new(path, reason))
}

/// Accepts only names that every format can express: printable ASCII without spaces and separators.
fn check_name(map: &str, name: &str) -> Result<(), FieldError> {
    let allowed = |byte: u8| byte.is_ascii_graphic() && !b",=:".contains(&byte);
    let reason = if name.is_empty() {
        "the name is empty".to_owned()
    } else if name.len() > MAX_NAME_LENGTH {
        format!("the name is longer than {MAX_NAME_LENGTH} bytes")
    } else if !name.bytes().all(allowed) {
        let name = name.escape_debug();
        format!("`{name}` has a character that is not printable ASCII, or a space, `,`, `=` or `:`")
    } else {
        return Ok(());
    };
    Err(FieldError::new(map, reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_metrics_override_measured_ones() {
        let mut metrics = Metrics::default();
        metrics.set(Field::Cpu, Some(0.5)).unwrap();
        metrics.set(Field::Eps, Some(0.0)).unwrap();
        metrics.put(Map::Named, "queue", Some(3.0)).unwrap();
        metrics.put(Map::RequestCost, "rows", Some(7.0)).unwrap();
        metrics.put(Map::Utilization, "disk", Some(0.1)).unwrap();
        let mut report = OrcaLoadReport {
            cpu_utilization: 0.9,
            mem_utilization: 0.4,
            eps: 2.0,
            ..Default::default()
        };
        metrics.apply(&mut report);
        let expected = OrcaLoadReport {
            cpu_utilization: 0.5,
            mem_utilization: 0.4,
            named_metrics: [("queue", 3.0)].into_iter().collect(),
            request_cost: [("rows", 7.0)].into_iter().collect(),
            utilization: [("disk", 0.1)].into_iter().collect(),
            ..Default::default()
        };
        assert_eq!(
            report, expected,
            "an explicit zero overrides the measured value"
        );
    }

    #[test]
    fn fields_and_maps_are_independent() {
        for field in Field::ALL {
            let mut metrics = Metrics::default();
            metrics.set(field, Some(0.25)).unwrap();
            let mut report = OrcaLoadReport::default();
            metrics.apply(&mut report);
            assert_eq!(*field.of(&mut report), 0.25);
            let text = format!("{report:?}");
            assert!(text.contains(&format!("{}: 0.25", field.name())), "{text}");
            metrics.set(field, None).unwrap();
            assert_eq!(metrics, Metrics::default());
        }
        for map in Map::ALL {
            let mut metrics = Metrics::default();
            metrics.put(map, "a", Some(1.0)).unwrap();
            metrics.put(map, "a", Some(2.0)).unwrap();
            let mut report = OrcaLoadReport::default();
            metrics.apply(&mut report);
            assert_eq!(map.of(&mut report).get("a"), Some(2.0));
            metrics.put(map, "a", None).unwrap();
            assert_eq!(metrics, Metrics::default());
        }
    }

    #[test]
    fn errors_name_the_field_and_change_nothing() {
        let mut metrics = Metrics::default();
        let mut refused = |field, value| metrics.set(field, Some(value)).unwrap_err().to_string();
        let nan = "cpu_utilization: must be a finite number of at least 0, is NaN";
        assert_eq!(refused(Field::Cpu, f64::NAN), nan);
        assert!(refused(Field::Mem, -0.1).starts_with("mem_utilization: "));
        assert!(refused(Field::Rps, f64::INFINITY).starts_with("rps_fractional: "));
        let mut refused = |name: &str, value| {
            let refusal = metrics.put(Map::Named, name, Some(value));
            refusal.unwrap_err().to_string()
        };
        assert_eq!(refused("", 1.0), "named_metrics: the name is empty");
        assert!(refused("a=b", 1.0).starts_with("named_metrics: `a=b` has a character"));
        assert!(refused("a b", 1.0).starts_with("named_metrics: `a b`"));
        assert!(refused("é", 1.0).starts_with("named_metrics: "));
        assert!(refused(&"x".repeat(129), 1.0).contains("longer than 128"));
        assert!(refused("queue", f64::NAN).starts_with("named_metrics.queue: must be"));
        assert_eq!(metrics, Metrics::default());
    }
}
