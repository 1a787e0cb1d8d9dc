//! Metric descriptions, and the `counters!` macro that declares statistics once: the struct that
//! counts, the table of descriptions, and access to all values.

use std::sync::atomic::{AtomicU64, Ordering};

/// Type of a metric, in Prometheus' terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
    /// Always 1; the information is in its labels.
    Info,
}

impl MetricKind {
    /// Returns the keyword of a `# TYPE` line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// Description of one statistic, for documentation and every exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Prefix of the name in Envoy's statistics, such as `outlier_detection.`.
    pub group: &'static str,
    pub name: &'static str,
    pub kind: MetricKind,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl Metric {
    /// Describes a metric without a group.
    pub const fn new(
        name: &'static str,
        kind: MetricKind,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> Self {
        Self {
            group: "",
            name,
            kind,
            labels,
            help,
        }
    }

    /// Returns the name in Envoy's `/stats`, without the name of the cluster or listener.
    pub fn stat_name(&self) -> String {
        format!("{}{}", self.group, self.name)
    }

    /// Returns the name in Prometheus, with dots replaced by underscores as Envoy does.
    pub fn exposed_name(&self, prefix: &str) -> String {
        format!("{prefix}{}{}", self.group, self.name).replace('.', "_")
    }
}

/// A value that [`counters!`](crate::counters) can read.
pub trait MetricValue {
    /// Returns the current value.
    fn get(&self) -> u64;
}

impl MetricValue for u64 {
    fn get(&self) -> u64 {
        *self
    }
}

/// A counter with one writer and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the owner may call this: two writers would lose counts (but not memory
    /// safety).
    #[inline]
    pub fn increment(&self) {
        self.0
            .store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl MetricValue for Counter {
    fn get(&self) -> u64 {
        self.get()
    }
}

/// A counter or gauge with any number of writers.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds one to the counter.
    #[inline]
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts one from the gauge.
    #[inline]
    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl MetricValue for SharedCounter {
    fn get(&self) -> u64 {
        self.get()
    }
}

/// Declares a struct of statistics: group, labels, the counter type, and for every field its help
/// text as the doc comment. A field has the name of its statistic unless `= "name"` gives another
/// one, and is a counter unless `: gauge` follows. Fields after a `;` are not statistics.
///
/// ```
/// plimsoll_core::counters! {
///     /// Statistics of a listener.
///     pub struct ListenerStats("listener.", ["address"]): plimsoll_core::stats::SharedCounter {
///         /// Connections accepted.
///         downstream_cx_total,
///         /// Connections open now.
///         downstream_cx_active: gauge,
///     }
/// }
/// let stats = ListenerStats::default();
/// stats.downstream_cx_total.increment();
/// assert_eq!(stats.iter().next(), Some(("downstream_cx_total", 1)));
/// ```
#[macro_export]
macro_rules! counters {
    (@kind) => { $crate::stats::MetricKind::Counter };
    (@kind gauge) => { $crate::stats::MetricKind::Gauge };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $name:literal) => { $name };
    (
        $(#[$meta:meta])*
        $vis:vis struct $type:ident($group:literal, $labels:expr): $value:ty {
            $($(#[doc = $help:literal])+ $field:ident $(= $name:literal)? $(: $kind:ident)?),+
            $(,)?
            $(; $($(#[$plain_meta:meta])* $plain:ident: $plain_type:ty),+ $(,)?)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Default)]
        $vis struct $type {
            $($(#[doc = $help])+ $vis $field: $value,)+
            $($($(#[$plain_meta])* $vis $plain: $plain_type,)+)?
        }

        impl $type {
            /// Descriptions of all statistics.
            $vis const METRICS: &'static [$crate::stats::Metric] = &[$($crate::stats::Metric {
                group: $group,
                name: $crate::counters!(@name $field $($name)?),
                kind: $crate::counters!(@kind $($kind)?),
                labels: &$labels,
                help: concat!($($help),+).trim_ascii(),
            }),+];

            /// Returns every statistic with its value, in the order of `METRICS`.
            $vis fn samples(&self) -> impl Iterator<Item = $crate::stats::Sample> + use<> {
                let values = [$($crate::stats::MetricValue::get(&self.$field)),+];
                Self::METRICS.iter().zip(values)
            }

            /// Returns name and value of every statistic.
            #[allow(dead_code, reason = "some need the descriptions only")]
            $vis fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.samples().map(|(metric, value)| (metric.name, value))
            }
        }
    };
}

/// A statistic and its value.
pub type Sample = (&'static Metric, u64);

/// Adds samples to `totals`; both are of the same struct, for example of several workers.
pub fn add_samples(totals: &mut Vec<Sample>, samples: impl Iterator<Item = Sample>) {
    if totals.is_empty() {
        totals.extend(samples);
        return;
    }
    for (total, (_, value)) in totals.iter_mut().zip(samples) {
        total.1 += value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    crate::counters! {
        /// Counters and gauges with and without explicit names.
        struct Mixed("mixed.", ["cluster"]): SharedCounter {
            /// Things
            /// counted so far.
            things_total,
            /// Things that exist now.
            things_active = "active": gauge,
            ;
            /// A plain field, which is not a statistic.
            plain: bool,
        }
    }

    #[test]
    fn a_declaration_yields_descriptions_and_values() {
        let mixed = Mixed::default();
        mixed.things_total.increment();
        mixed.things_total.increment();
        mixed.things_active.increment();
        mixed.things_active.decrement();
        assert!(!mixed.plain);
        let things = Metric {
            group: "mixed.",
            ..Metric::new(
                "things_total",
                MetricKind::Counter,
                &["cluster"],
                "Things counted so far.",
            )
        };
        let active = Metric {
            group: "mixed.",
            ..Metric::new(
                "active",
                MetricKind::Gauge,
                &["cluster"],
                "Things that exist now.",
            )
        };
        assert_eq!(Mixed::METRICS, [things, active]);
        assert_eq!(
            mixed.samples().collect::<Vec<_>>(),
            [(&things, 2), (&active, 0)]
        );
        assert_eq!(
            mixed.iter().collect::<Vec<_>>(),
            [("things_total", 2), ("active", 0)]
        );
    }

    #[test]
    fn names_have_dots_in_envoys_statistics_and_underscores_in_prometheus() {
        let metric = &Mixed::METRICS[1];
        assert_eq!(metric.stat_name(), "mixed.active");
        assert_eq!(metric.exposed_name("plimsoll_"), "plimsoll_mixed_active");
    }

    #[test]
    fn samples_of_workers_add_up() {
        let workers = [Mixed::default(), Mixed::default()];
        workers[0].things_total.increment();
        workers[1].things_total.increment();
        workers[1].things_active.increment();
        let mut totals = Vec::new();
        for worker in &workers {
            add_samples(&mut totals, worker.samples());
        }
        let values: Vec<u64> = totals.iter().map(|(_, value)| *value).collect();
        assert_eq!(values, [2, 1]);
    }

    #[test]
    fn counters_and_numbers_are_read_alike() {
        let counter = Counter::default();
        counter.increment();
        let read: [&dyn MetricValue; 2] = [&counter, &7];
        assert_eq!(read.map(MetricValue::get), [1, 7]);
    }

    #[test]
    fn kinds_have_prometheus_keywords() {
        let kinds = [MetricKind::Histogram, MetricKind::Info];
        assert_eq!(kinds.map(MetricKind::name), ["histogram", "info"]);
        assert_eq!(Mixed::METRICS[0].kind.name(), "counter");
        assert_eq!(Mixed::METRICS[1].kind.name(), "gauge");
    }
}
