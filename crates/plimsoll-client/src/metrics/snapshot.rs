//! [`Stats`]: counters and gauges at one moment, for programs with their own way to export them.

use std::sync::Arc;

use plimsoll_core::stats::{Metric, MetricKind};

/// Counters and gauges of all clusters at one moment; from [`Client::stats`]. Sorted by cluster.
///
/// [`Client::stats`]: crate::Client::stats
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats(Vec<Stat>);

/// One counter or gauge of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stat {
    pub cluster: Arc<str>,
    /// Name as in Envoy's `/stats`, without `cluster.<name>.`: `upstream_rq_total`.
    pub name: String,
    /// Whether the value only grows ([`MetricKind::Counter`]) or may fall ([`MetricKind::Gauge`]).
    pub kind: MetricKind,
    pub value: u64,
}

impl Stat {
    pub(super) fn new(cluster: &Arc<str>, metric: &Metric, value: u64) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            name: metric.stat_name(),
            kind: metric.kind,
            value,
        }
    }
}

impl Stats {
    /// Returns the value of a counter or gauge, with its name as in Envoy's `/stats`; the sum if a
    /// cluster has several of this name.
    pub fn get(&self, cluster: &str, name: &str) -> Option<u64> {
        let mut values = self
            .iter()
            .filter(|stat| *stat.cluster == *cluster && stat.name == name)
            .map(|stat| stat.value);
        let first = values.next()?;
        Some(values.fold(first, u64::saturating_add))
    }

    /// Iterates over all values.
    pub fn iter(&self) -> std::slice::Iter<'_, Stat> {
        self.0.iter()
    }
}

impl FromIterator<Stat> for Stats {
    fn from_iter<I: IntoIterator<Item = Stat>>(stats: I) -> Self {
        Self(stats.into_iter().collect())
    }
}

impl IntoIterator for Stats {
    type Item = Stat;
    type IntoIter = std::vec::IntoIter<Stat>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a> IntoIterator for &'a Stats {
    type Item = &'a Stat;
    type IntoIter = std::slice::Iter<'a, Stat>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_cluster_and_name() {
        let stat = |cluster: &str, name: &str, value| Stat {
            cluster: cluster.into(),
            name: name.to_owned(),
            kind: MetricKind::Counter,
            value,
        };
        let all = [
            stat("orders", "upstream_rq_total", 3),
            stat("orders", "upstream_rq_retry", 5),
            stat("users", "upstream_rq_total", 7),
            // The same name twice, such as a counter per zone, is summed.
            stat("orders", "upstream_rq_total", 10),
        ];
        let stats: Stats = all.iter().cloned().collect();
        assert_eq!(stats.get("orders", "upstream_rq_total"), Some(13));
        assert_eq!(stats.get("orders", "upstream_rq_retry"), Some(5));
        assert_eq!(stats.get("users", "upstream_rq_total"), Some(7));
        assert_eq!(stats.get("users", "upstream_rq_retry"), None);
        assert_eq!(stats.iter().count(), 4);
        assert_eq!((&stats).into_iter().next(), Some(&all[0]));
        assert_eq!(stats.into_iter().collect::<Vec<_>>(), all);
    }
}
