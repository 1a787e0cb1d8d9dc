//! [`MetricName`]: the configured name of a metric in a load report, resolved once.
//!
//! The set of names is closed (gRFC A114 requires no reflection): five plain fields and three maps.
//! Any other name selects nothing, so that a configuration for newer backends still loads.

use std::fmt;

use super::metric_map::Key;
use super::{MetricMap, OrcaLoadReport, largest};

/// Name of a metric, such as `cpu_utilization`, `named_metrics.queue` or `utilization.*`.
///
/// The key of a map is everything after the first dot and may contain dots itself; the key `*`
/// selects every entry. `rps` is not a name: the field is deprecated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricName {
    name: Box<str>,
    target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    CpuUtilization,
    MemUtilization,
    ApplicationUtilization,
    Eps,
    RpsFractional,
    Entry(Map, Key),
    /// The largest entry of a map, spelled `*`.
    EveryEntry(Map),
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    NamedMetrics,
    Utilization,
    RequestCost,
}

impl MetricName {
    /// Resolves `name`. Never fails; see [`Self::is_known`].
    pub fn new(name: &str) -> Self {
        let target = match name {
            "cpu_utilization" => Target::CpuUtilization,
            "mem_utilization" => Target::MemUtilization,
            "application_utilization" => Target::ApplicationUtilization,
            "eps" => Target::Eps,
            "rps_fractional" => Target::RpsFractional,
            _ => Target::in_a_map(name),
        };
        Self {
            name: name.into(),
            target,
        }
    }

    /// Returns the name as it was configured.
    pub fn as_str(&self) -> &str {
        &self.name
    }

    /// Whether reports can have this metric. An unknown name selects nothing and is worth a
    /// warning.
    pub fn is_known(&self) -> bool {
        self.target != Target::Unknown
    }

    /// Returns the metric's value in `report`, unchecked: plain fields always have one, map entries
    /// only if they were sent. For `*`, the largest entry that counts as a utilization.
    pub fn value(&self, report: &OrcaLoadReport) -> Option<f64> {
        match &self.target {
            Target::CpuUtilization => Some(report.cpu_utilization),
            Target::MemUtilization => Some(report.mem_utilization),
            Target::ApplicationUtilization => Some(report.application_utilization),
            Target::Eps => Some(report.eps),
            Target::RpsFractional => Some(report.rps_fractional),
            Target::Entry(map, key) => map.of(report).get_hashed(key),
            Target::EveryEntry(map) => largest(map.of(report).iter().map(|(_, value)| value)),
            Target::Unknown => None,
        }
    }

    pub(crate) const fn is_every_entry(&self) -> bool {
        matches!(self.target, Target::EveryEntry(_))
    }

    /// For `*`, returns the prefix of the map's names and the map itself.
    pub(crate) fn every_entry_of<'r>(
        &self,
        report: &'r OrcaLoadReport,
    ) -> Option<(&'static str, &'r MetricMap)> {
        match self.target {
            Target::EveryEntry(map) => Some((map.prefix(), map.of(report))),
            _ => None,
        }
    }
}

impl fmt::Display for MetricName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Target {
    /// Splits the name at its first dot, which ends every prefix.
    fn in_a_map(name: &str) -> Self {
        let maps = [Map::NamedMetrics, Map::Utilization, Map::RequestCost];
        let found = maps
            .into_iter()
            .find_map(|map| Some((map, name.strip_prefix(map.prefix())?)));
        match found {
            Some((map, "*")) => Self::EveryEntry(map),
            Some((map, key)) => Self::Entry(map, Key::new(key)),
            None => Self::Unknown,
        }
    }
}

impl Map {
    const fn prefix(self) -> &'static str {
        match self {
            Self::NamedMetrics => "named_metrics.",
            Self::Utilization => "utilization.",
            Self::RequestCost => "request_cost.",
        }
    }

    const fn of(self, report: &OrcaLoadReport) -> &MetricMap {
        match self {
            Self::NamedMetrics => &report.named_metrics,
            Self::Utilization => &report.utilization,
            Self::RequestCost => &report.request_cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str, report: &OrcaLoadReport) -> Option<f64> {
        MetricName::new(name).value(report)
    }

    /// Returns a report in which every number is different.
    fn report() -> OrcaLoadReport {
        OrcaLoadReport {
            cpu_utilization: 0.1,
            mem_utilization: 0.2,
            application_utilization: 0.3,
            rps: 4,
            rps_fractional: 0.5,
            eps: 0.6,
            named_metrics: [("k", 1.0), ("a.b", 1.1), ("*", 1.2)].into_iter().collect(),
            utilization: [("k", 2.0)].into_iter().collect(),
            request_cost: [("k", 3.0), ("", 3.1)].into_iter().collect(),
            ..Default::default()
        }
    }

    #[test]
    fn every_field_has_its_name() {
        let report = report();
        assert_eq!(value("cpu_utilization", &report), Some(0.1));
        assert_eq!(value("mem_utilization", &report), Some(0.2));
        assert_eq!(value("application_utilization", &report), Some(0.3));
        assert_eq!(value("rps_fractional", &report), Some(0.5));
        assert_eq!(value("eps", &report), Some(0.6));
        assert_eq!(value("named_metrics.k", &report), Some(1.0));
        assert_eq!(value("utilization.k", &report), Some(2.0));
        assert_eq!(value("request_cost.k", &report), Some(3.0));
    }

    #[test]
    fn the_key_is_what_follows_the_first_dot() {
        let report = report();
        assert_eq!(value("named_metrics.a.b", &report), Some(1.1));
        assert_eq!(value("named_metrics.a", &report), None);
        assert_eq!(value("request_cost.", &report), Some(3.1), "an empty key");
        assert_eq!(value("utilization.", &report), None);
        assert_eq!(value("named_metrics.named_metrics.k", &report), None);
        assert_eq!(value("named_metrics.*.k", &report), None, "only `*` alone");
    }

    #[test]
    fn a_star_selects_the_largest_usable_entry() {
        let mut report = report();
        assert_eq!(value("named_metrics.*", &report), Some(1.2));
        for bad in [f64::NAN, f64::INFINITY, -5.0] {
            report.named_metrics.insert("bad", bad);
            assert_eq!(value("named_metrics.*", &report), Some(1.2), "{bad}");
        }
        assert_eq!(value("utilization.*", &OrcaLoadReport::default()), None);
        report.utilization = [("a", 0.0), ("b", -1.0)].into_iter().collect();
        assert_eq!(value("utilization.*", &report), None);
    }

    #[test]
    fn unknown_names_are_kept_and_select_nothing() {
        let report = report();
        for name in [
            "",
            "*",
            ".",
            "rps",
            "named_metrics",
            "utilization",
            "request_cost",
            "Cpu_utilization",
            "cpu_utilization ",
            "cpu_utilization.k",
            " named_metrics.k",
            "namedMetrics.k",
            "metrics.named_metrics.k",
        ] {
            let resolved = MetricName::new(name);
            assert_eq!(resolved.value(&report), None, "{name:?}");
            assert!(!resolved.is_known(), "{name:?}");
            assert_eq!(resolved.as_str(), name);
        }
        for name in ["eps", "named_metrics.*", "request_cost.", "utilization.a.b"] {
            assert!(MetricName::new(name).is_known(), "{name:?}");
        }
        assert_eq!(MetricName::new("a.b").to_string(), "a.b");
    }

    #[test]
    fn plain_fields_are_returned_at_any_value() {
        let report = OrcaLoadReport {
            cpu_utilization: -0.5,
            mem_utilization: f64::INFINITY,
            ..Default::default()
        };
        assert_eq!(value("cpu_utilization", &report), Some(-0.5));
        assert_eq!(value("mem_utilization", &report), Some(f64::INFINITY));
        assert_eq!(value("eps", &report), Some(0.0));
    }
}
