//! Asking hosts for load reports: some (vLLM, Triton) report only in responses to requests with the
//! header `endpoint-load-metrics-format`. The upstream filter of the module adds it to requests of
//! clusters whose configuration names a format.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwap;

use crate::cluster::Cluster;

/// Request header that asks for a load report.
pub const HEADER: &str = "endpoint-load-metrics-format";
/// Values of the header.
const FORMATS: [&str; 3] = ["TEXT", "JSON", "BIN"];

/// Returns the value of the header, if it is one.
pub fn parse(text: &str) -> Option<&'static str> {
    FORMATS.into_iter().find(|format| *format == text)
}

/// Format by name of the cluster, with the cluster that asks.
type Asked = HashMap<Arc<str>, (Weak<Cluster>, &'static str)>;

/// Clusters whose hosts are asked; usually none.
#[derive(Debug, Default)]
pub struct ReportFormats {
    asked: ArcSwap<Asked>,
}

impl ReportFormats {
    /// Asks the hosts of a cluster for reports in this format, or stops asking.
    pub fn set(&self, cluster: &Arc<Cluster>, format: Option<&'static str>) {
        let current = self.asked.load();
        if format.is_none() && !current.contains_key(cluster.name()) {
            return;
        }
        let mut next = HashMap::clone(&current);
        next.retain(|_, (cluster, _)| cluster.strong_count() > 0);
        next.remove(cluster.name());
        if let Some(format) = format {
            let entry = (Arc::downgrade(cluster), format);
            next.insert(Arc::clone(cluster.name()), entry);
        }
        self.asked.store(Arc::new(next));
    }

    /// Returns the format that requests to a cluster ask for. `cluster_name` is called if any
    /// cluster has one.
    pub fn of<'a>(&self, cluster_name: impl FnOnce() -> &'a str) -> Option<&'static str> {
        let asked = self.asked.load();
        if asked.is_empty() {
            return None;
        }
        let (cluster, format) = asked.get(cluster_name())?;
        (cluster.strong_count() > 0).then_some(*format)
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;
    use plimsoll_core::time::Instant;

    use super::*;
    use crate::config::ModuleConfig;

    #[test]
    fn requests_ask_as_the_newest_configuration_of_their_cluster_says() {
        let cluster = |name: &str| {
            let config = ModuleConfig::parse("{}").unwrap().cluster(name).unwrap();
            let now = Instant::from_secs(1);
            Arc::new(Cluster::new(config, Locality::zone_only("a"), None, now))
        };
        let formats = ReportFormats::default();
        assert_eq!(formats.of(|| panic!("not looked up")), None);
        let (orders, carts) = (cluster("orders"), cluster("carts"));
        formats.set(&orders, Some("JSON"));
        formats.set(&carts, None);
        assert_eq!(formats.of(|| "orders"), Some("JSON"));
        assert_eq!(formats.of(|| "carts"), None);
        let replaced = cluster("orders");
        formats.set(&replaced, Some("TEXT"));
        drop(orders);
        assert_eq!(formats.of(|| "orders"), Some("TEXT"));
        drop(replaced);
        assert_eq!(formats.of(|| "orders"), None, "the cluster is gone");
        formats.set(&carts, Some("BIN"));
        formats.set(&carts, None);
        assert!(formats.asked.load().is_empty());
    }
}
