//! [`OrcaLoadReport`]: what a backend says about its own load, and the rule that makes one
//! utilization of it.
//!
//! Names of metrics are resolved once, when a configuration is read ([`MetricName`]); from then on
//! a report is looked at without allocating and without comparing field names. Reading and writing
//! the wire forms does not live here but in `plimsoll-xds` (`orca`); the value and its age are kept
//! by `host`. Policies that follow utilization call [`OrcaLoadReport::utilization`], load reporting
//! calls [`OrcaLoadReport::lrs_metrics`].

mod metric_map;
mod metric_name;

pub use metric_map::MetricMap;
pub use metric_name::MetricName;

/// One report, in-band or out-of-band (`xds.data.orca.v3.OrcaLoadReport`).
///
/// Values are as they were sent: negative, NaN and infinite ones survive, because load reporting
/// passes them on; [`Self::utilization`] knows which of them count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrcaLoadReport {
    /// Share of the processor in use; above 1 when the quota is exceeded.
    pub cpu_utilization: f64,
    /// Share of the memory in use.
    pub mem_utilization: f64,
    /// What the application itself calls its utilization.
    pub application_utilization: f64,
    /// Requests per second as a whole number. Deprecated (field 3), decides nothing, kept so that a
    /// report can be passed on as it came.
    pub rps: u64,
    /// Requests per second.
    pub rps_fractional: f64,
    /// Errors per second.
    pub eps: f64,
    /// Metrics of the application, by name.
    pub named_metrics: MetricMap,
    /// Shares of resources in use, by name.
    pub utilization: MetricMap,
    /// Costs of the request that the report came with, by name.
    pub request_cost: MetricMap,
}

/// Which utilization is looked for first (decisions D6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtilizationPrecedence {
    /// `application_utilization`, then the configured names, then `cpu_utilization`.
    #[default]
    ApplicationFirst,
    /// The configured names, then `application_utilization`, then `cpu_utilization`: Envoy 1.40.
    NamedMetricsFirst,
}

impl OrcaLoadReport {
    /// The one number that stands for this report's load, 0 when it has none.
    ///
    /// Three candidates in the order of `precedence` (envoy-semantics §5.1): the largest of the
    /// metrics that `names` select, `application_utilization`, and last `cpu_utilization`. A value
    /// that is NaN, infinite, zero or negative is missing, wherever it stands (decisions D7). Envoy
    /// differs in two places: it lets an infinite metric win, and it returns `cpu_utilization`
    /// whatever it is. For load_aware_locality that is the same, since it stores neither what is
    /// infinite nor what is not above 0. Where an error penalty is added it is not: a broken
    /// `cpu_utilization` is a 0 here, so that the penalty alone may make a weight.
    ///
    /// There is no upper bound: 1.7 is a utilization. Policies that need a share clamp it.
    ///
    /// ```
    /// use plimsoll_core::model::orca::{MetricName, OrcaLoadReport, UtilizationPrecedence};
    ///
    /// let names = [MetricName::new("named_metrics.queue")];
    /// let report = OrcaLoadReport {
    ///     application_utilization: 0.4,
    ///     named_metrics: [("queue", 0.7)].into_iter().collect(),
    ///     ..Default::default()
    /// };
    /// let utilization = |precedence| report.utilization(&names, precedence);
    /// assert_eq!(utilization(UtilizationPrecedence::ApplicationFirst), 0.4);
    /// assert_eq!(utilization(UtilizationPrecedence::NamedMetricsFirst), 0.7);
    /// ```
    pub fn utilization(&self, names: &[MetricName], precedence: UtilizationPrecedence) -> f64 {
        let application = usable(self.application_utilization);
        let named = || largest(names.iter().filter_map(|name| name.value(self)));
        let chosen = match precedence {
            UtilizationPrecedence::ApplicationFirst => application.or_else(named),
            UtilizationPrecedence::NamedMetricsFirst => named().or(application),
        };
        let chosen = chosen.or_else(|| usable(self.cpu_utilization));
        chosen.unwrap_or(0.0)
    }

    /// Calls `add` with every metric that `names` select for load reporting, under the name it is
    /// reported by (envoy-semantics §6).
    ///
    /// A plain field is always there, even at 0; an entry of a map only when the report has it; `*`
    /// becomes one metric per entry. A name that is configured twice is reported twice. Values are
    /// not judged. Only the names that `*` makes are built, in one buffer.
    pub fn lrs_metrics(&self, names: &[MetricName], mut add: impl FnMut(&str, f64)) {
        let mut expanded = String::new();
        for name in names {
            let Some((prefix, map)) = name.every_entry_of(self) else {
                if let Some(value) = name.value(self) {
                    add(name.as_str(), value);
                }
                continue;
            };
            for (key, value) in map.iter() {
                expanded.clear();
                expanded.push_str(prefix);
                expanded.push_str(key);
                add(&expanded, value);
            }
        }
    }
}

/// `value` if it counts as a utilization: finite and above zero (decisions D7).
fn usable(value: f64) -> Option<f64> {
    // Both comparisons are false for NaN.
    (value > 0.0 && value < f64::INFINITY).then_some(value)
}

/// The largest usable one of `values`.
fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    // As `usable`, against the best so far: a comparison each, no branch per value.
    let larger = |best, value| {
        if value > best && value < f64::INFINITY {
            value
        } else {
            best
        }
    };
    usable(values.fold(0.0, larger))
}

#[cfg(test)]
mod tests;
