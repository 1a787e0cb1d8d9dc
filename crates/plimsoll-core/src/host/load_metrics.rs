//! Backend metrics that are summed for load reports, each in its slot.
//!
//! Names are mapped to slots when the configuration is read, so that a report is added without
//! locking or allocating. Only `*` cannot be resolved in advance: a name seen for the first time
//! gets a slot then, once per cluster. Slots are never reused for another name. Rules for names are
//! in `model::orca`; the sums are in each host, read by `balancer::load_stats`.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::metric_sum::MetricSum;
use crate::model::orca::{MetricName, OrcaLoadReport};

/// Limit of metric names of a cluster over its lifetime; each costs every host 16 bytes.
pub(crate) const MAX_METRICS: usize = 64;

pub(crate) type MetricSums = Box<[MetricSum]>;

#[derive(Debug, Default)]
pub(crate) struct LoadMetrics {
    slots: ArcSwap<Slots>,
}

#[derive(Clone, Debug, Default)]
struct Slots {
    /// Configured names and their slots; `None` for `*`.
    configured: Vec<(MetricName, Option<usize>)>,
    names: Vec<Arc<str>>,
}

pub(crate) fn empty_sums() -> MetricSums {
    (0..MAX_METRICS).map(|_| MetricSum::new()).collect()
}

impl LoadMetrics {
    /// Replaces the configured metrics. Earlier metrics keep their slots and are still reported.
    pub(crate) fn configure(&self, names: &[MetricName]) {
        self.slots.rcu(|before| {
            let mut slots = Slots {
                configured: Vec::with_capacity(names.len()),
                names: before.names.clone(),
            };
            for name in names.iter().filter(|name| name.is_known()) {
                if name.is_every_entry() {
                    slots.configured.push((name.clone(), None));
                } else if let Some(slot) = slots.slot_of("", name.as_str()) {
                    slots.configured.push((name.clone(), Some(slot)));
                }
            }
            slots
        });
    }

    pub(crate) fn add(&self, report: &OrcaLoadReport, sums: &MetricSums) {
        let slots = self.slots.load();
        for (name, slot) in &slots.configured {
            if let Some(slot) = slot {
                if let Some(value) = name.value(report) {
                    sums[*slot].add(value);
                }
                continue;
            }
            let Some((prefix, map)) = name.every_entry_of(report) else {
                continue;
            };
            for (key, value) in map.iter() {
                let known = slots.find(prefix, key);
                if let Some(slot) = known.or_else(|| self.learn(prefix, key)) {
                    sums[slot].add(value);
                }
            }
        }
    }

    pub(crate) fn names(&self) -> Vec<Arc<str>> {
        self.slots.load().names.clone()
    }

    #[cold]
    fn learn(&self, prefix: &str, key: &str) -> Option<usize> {
        let full = |slots: &Slots| slots.names.len() >= MAX_METRICS;
        if full(&self.slots.load()) {
            return self.slots.load().find(prefix, key);
        }
        self.slots.rcu(|before| {
            let mut slots = Slots::clone(before);
            slots.slot_of(prefix, key);
            slots
        });
        self.slots.load().find(prefix, key)
    }
}

impl Slots {
    fn find(&self, prefix: &str, key: &str) -> Option<usize> {
        let length = prefix.len() + key.len();
        self.names.iter().position(|name| {
            name.len() == length && name.ends_with(key) && name.starts_with(prefix)
        })
    }

    /// Finds the slot of `prefix` + `key`, or allocates one if any is free.
    fn slot_of(&mut self, prefix: &str, key: &str) -> Option<usize> {
        let known = self.find(prefix, key);
        if known.is_none() && self.names.len() < MAX_METRICS {
            self.names.push(format!("{prefix}{key}").into());
            return Some(self.names.len() - 1);
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<MetricName> {
        names.iter().map(|name| MetricName::new(name)).collect()
    }

    fn report(named: &[(&str, f64)]) -> OrcaLoadReport {
        OrcaLoadReport {
            cpu_utilization: 0.5,
            named_metrics: named.iter().copied().collect(),
            request_cost: [("a", 7.0)].into_iter().collect(),
            ..Default::default()
        }
    }

    /// Takes the sums that are not empty, by name.
    fn taken(metrics: &LoadMetrics, sums: &MetricSums) -> Vec<(String, u64, f64)> {
        let names = metrics.names();
        let taken = names.iter().zip(sums).map(|(name, sum)| (name, sum.take()));
        taken
            .filter(|(_, (count, _))| *count > 0)
            .map(|(name, (count, total))| (name.to_string(), count, total))
            .collect()
    }

    #[test]
    fn configured_metrics_are_summed_under_their_names() {
        let metrics = LoadMetrics::default();
        let sums = empty_sums();
        metrics.add(&report(&[("a", 1.0)]), &sums);
        assert!(taken(&metrics, &sums).is_empty(), "nothing is configured");
        metrics.configure(&names(&[
            "cpu_utilization",
            "named_metrics.a",
            "nonsense",
            "named_metrics.missing",
        ]));
        metrics.add(&report(&[("a", 1.0), ("b", 9.0)]), &sums);
        metrics.add(&report(&[("a", 0.5)]), &sums);
        let expected = [
            ("cpu_utilization".to_owned(), 2, 1.0),
            ("named_metrics.a".to_owned(), 2, 1.5),
        ];
        assert_eq!(taken(&metrics, &sums), expected);
        assert!(taken(&metrics, &sums).is_empty(), "taken once");
    }

    #[test]
    fn a_wildcard_learns_names_and_shares_slots() {
        let metrics = LoadMetrics::default();
        let sums = empty_sums();
        metrics.configure(&names(&["named_metrics.*", "request_cost.*"]));
        metrics.add(&report(&[("a", 1.0), ("a.b", 2.0)]), &sums);
        metrics.add(&report(&[("a", 1.0)]), &sums);
        let expected = [
            ("named_metrics.a".to_owned(), 2, 2.0),
            ("named_metrics.a.b".to_owned(), 1, 2.0),
            ("request_cost.a".to_owned(), 2, 14.0),
        ];
        assert_eq!(taken(&metrics, &sums), expected);
        metrics.configure(&names(&["named_metrics.a"]));
        metrics.add(&report(&[("a", 1.0), ("c", 5.0)]), &sums);
        assert_eq!(taken(&metrics, &sums), [("named_metrics.a".into(), 1, 1.0)]);
    }

    #[test]
    fn names_beyond_the_limit_are_ignored() {
        let metrics = LoadMetrics::default();
        let sums = empty_sums();
        metrics.configure(&names(&["named_metrics.*", "cpu_utilization"]));
        let many: OrcaLoadReport = OrcaLoadReport {
            named_metrics: (0..2 * MAX_METRICS)
                .map(|n| (format!("m{n:03}"), 1.0))
                .collect(),
            ..Default::default()
        };
        metrics.add(&many, &sums);
        metrics.add(&many, &sums);
        let taken = taken(&metrics, &sums);
        assert_eq!(taken.len(), MAX_METRICS);
        assert!(taken.iter().all(|(_, count, _)| *count == 2));
    }
}
