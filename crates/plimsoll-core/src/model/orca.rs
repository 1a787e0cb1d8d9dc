//! [`OrcaLoadReport`]: a backend's report of its own load, and the rule that derives one
//! utilization from it.
//!
//! Metric names are resolved once, when a configuration is read ([`MetricName`]); from then on
//! reading a report neither allocates nor compares field names. `plimsoll-xds` (`orca`) reads and
//! writes the wire formats; `host` stores the value and its age. Policies that follow utilization
//! call [`OrcaLoadReport::utilization`], load reporting calls [`OrcaLoadReport::lrs_metrics`].

mod metric_map;
mod metric_name;

pub use metric_map::MetricMap;
pub use metric_name::MetricName;

/// A load report of a backend, in-band or out-of-band (`xds.data.orca.v3.OrcaLoadReport`).
///
/// Values are kept as sent: negative, NaN and infinite ones survive, because load reporting
/// forwards them. [`Self::utilization`] skips those that do not count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OrcaLoadReport {
    /// Share of CPU in use; above 1 if the quota is exceeded.
    pub cpu_utilization: f64,
    pub mem_utilization: f64,
    pub application_utilization: f64,
    /// Deprecated integer requests per second; unused, kept to forward reports unchanged.
    pub rps: u64,
    pub rps_fractional: f64,
    /// Errors per second of the backend.
    pub eps: f64,
    pub named_metrics: MetricMap,
    pub utilization: MetricMap,
    pub request_cost: MetricMap,
    /// Keeps literals open for new fields: write `..Default::default()`.
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

/// Order in which utilization metrics are considered (decision 0025).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UtilizationPrecedence {
    /// `application_utilization`, then the configured names, then `cpu_utilization`.
    #[default]
    ApplicationFirst,
    /// The configured names, then `application_utilization`, then `cpu_utilization`: Envoy 1.40.
    NamedMetricsFirst,
}

/// Format in which requests ask hosts for load reports, for servers that report only when asked
/// (vLLM, Triton): the value of the request header `endpoint-load-metrics-format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointLoadMetricsFormat {
    /// Name-value pairs, as gRPC servers write them.
    Text,
    Json,
    /// Base64 of the protobuf message.
    Bin,
}

impl EndpointLoadMetricsFormat {
    /// Returns the value of the header.
    pub const fn header_value(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::Json => "JSON",
            Self::Bin => "BIN",
        }
    }
}

impl OrcaLoadReport {
    /// Returns the utilization that represents this report's load, 0 if it has none.
    ///
    /// Considers three candidates in the order of `precedence` (envoy-semantics §5.1): the largest
    /// of the metrics that `names` select, `application_utilization`, and last `cpu_utilization`. A
    /// value that is NaN, infinite, zero or negative counts as missing everywhere (0026). Envoy
    /// differs in two places: an infinite metric wins, and `cpu_utilization` is returned whatever
    /// it is. For `load_aware_locality` the result is the same, since it stores neither infinite
    /// values nor values that are not above 0. With an error penalty it differs: an invalid
    /// `cpu_utilization` is 0 here, so that the penalty alone may determine the weight.
    ///
    /// There is no upper bound: 1.7 is a valid utilization. Policies that need a share clamp it.
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
        match precedence {
            UtilizationPrecedence::ApplicationFirst => application.or_else(named),
            UtilizationPrecedence::NamedMetricsFirst => named().or(application),
        }
        .or_else(|| usable(self.cpu_utilization))
        .unwrap_or(0.0)
    }

    /// Calls `add` with every metric that `names` select for load reporting, under its reported
    /// name (envoy-semantics §6).
    ///
    /// A plain field is always reported, even if it is 0; a map entry only if the report has it;
    /// `*` becomes one metric per entry. A name that is configured twice is reported twice. Values
    /// are not checked. Only names expanded from `*` are built, in one buffer.
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

/// Returns `value` if it counts as a utilization: finite and above zero (decision 0026).
fn usable(value: f64) -> Option<f64> {
    // Both comparisons are false for NaN.
    (value > 0.0 && value < f64::INFINITY).then_some(value)
}

fn largest(values: impl Iterator<Item = f64>) -> Option<f64> {
    // Same test as `usable`, against the best so far: one comparison per value and no branch.
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
