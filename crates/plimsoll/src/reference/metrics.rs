//! Page about metrics, from the tables beside the counters in the code. Names are as exported:
//! OpenMetrics appends `_total` to counters.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use plimsoll_client::metric_name;
use plimsoll_core::stats::Metric;
use plimsoll_proxy::stats::{HttpStats, ListenerStats, RouteStats, ServerStats};

pub(super) fn page() -> String {
    let mut text =
        "\n[observability.md](../observability.md) explains how to use them, and events.\n"
            .to_owned();
    text.push_str("\n## The control plane\n\nOn `/metrics` of the admin address.\n");
    head(&mut text);
    for metric in &plimsoll_control::admin::METRICS {
        row(&mut text, metric.name, metric, metric.help);
    }
    text.push_str(
        "\n## Clusters\n\nFrom the proxy, on `/stats/prometheus`, and from programs that embed the \
         client.\n",
    );
    head(&mut text);
    clusters(&mut text);
    text.push_str("\n## Listeners and process of the proxy\n\nOn `/stats/prometheus`.\n");
    head(&mut text);
    let tables = [
        ("plimsoll_http_", HttpStats::METRICS),
        ("plimsoll_http_rds_", RouteStats::METRICS),
        ("plimsoll_listener_", ListenerStats::METRICS),
        ("plimsoll_", ServerStats::METRICS),
    ];
    for (prefix, metrics) in tables {
        for metric in metrics {
            row(&mut text, &metric.exposed_name(prefix), metric, metric.help);
        }
    }
    text
}

/// Adds the metrics of clusters. Metrics with the same name are summed.
fn clusters(text: &mut String) {
    let mut seen = BTreeSet::new();
    for metric in plimsoll_client::metrics() {
        let name = metric_name(metric);
        if seen.insert(name.clone()) {
            let same = plimsoll_client::metrics().filter(|other| metric_name(other) == name);
            let help: Vec<&str> = same.map(|other| other.help).collect();
            row(text, &name, metric, &help.join(" "));
        }
    }
}

fn head(text: &mut String) {
    text.push_str("\n| name | type | labels | meaning |\n|---|---|---|---|\n");
}

fn row(text: &mut String, name: &str, metric: &Metric, help: &str) {
    let labels: Vec<_> = metric.labels.iter().map(|one| format!("`{one}`")).collect();
    let labels = labels.join(", ");
    let help = help.trim_end_matches('.').replace('|', "\\|");
    let kind = metric.kind.name();
    let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
}

#[cfg(test)]
mod tests {
    use plimsoll_core::stats::{BalancerStats, LoadAwareStats, OutlierStats, PickerStats};

    use super::*;

    #[test]
    fn every_counter_of_the_core_is_on_the_page() {
        let page = page();
        let tables = [
            PickerStats::METRICS,
            BalancerStats::METRICS,
            LoadAwareStats::METRICS,
            OutlierStats::METRICS,
        ];
        for metric in tables.into_iter().flatten() {
            let name = metric_name(metric);
            assert!(page.contains(&format!("| `{name}` |")), "{name}");
        }
    }
}
