//! The page about metrics, from the tables beside the counters.
//!
//! Names are those that Prometheus sees: OpenMetrics ends every counter with `_total`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use plimsoll_proxy::stats::{HttpStats, RDS, SERVER};

/// A table per process.
pub(super) fn page() -> String {
    let mut text =
        "\nWhat they mean together, and events: [observability.md](../observability.md).\n"
            .to_owned();
    text.push_str("\n## The control plane\n\nOn `/metrics` of the admin address.\n");
    head(&mut text);
    for metric in plimsoll_control::admin::METRICS {
        row(
            &mut text,
            metric.name,
            metric.kind,
            metric.labels,
            metric.help,
        );
    }
    text.push_str(
        "\n## Clusters\n\nOf the proxy, on `/stats/prometheus`, and of programs with the embedded \
         client.\n",
    );
    head(&mut text);
    clusters(&mut text);
    text.push_str("\n## Listeners and process of the proxy\n\nOn `/stats/prometheus`.\n");
    head(&mut text);
    let listeners = HttpStats::NAMES.iter().zip(HttpStats::HELP);
    for (name, help) in listeners {
        let labels = ["plimsoll_http_conn_manager_prefix"];
        let full = format!("plimsoll_http_{name}");
        row(&mut text, &full, HttpStats::kind(name), &labels, help);
    }
    for (name, kind, help) in RDS {
        let labels = [
            "plimsoll_rds_route_config",
            "plimsoll_http_conn_manager_prefix",
        ];
        let full = format!("plimsoll_http_rds_{name}");
        row(&mut text, &full, kind, &labels, help);
    }
    for (name, kind, help) in SERVER {
        let full = format!("plimsoll_{}", name.replace('.', "_"));
        row(&mut text, &full, kind, &[], help);
    }
    text
}

/// The client's own, and those of the core and of out-of-band reporting. A name that two of them
/// share is their sum.
fn clusters(text: &mut String) {
    for metric in plimsoll_client::METRICS {
        let name = exposed(metric.name, metric.kind);
        row(text, &name, metric.kind, metric.labels, metric.help);
    }
    let mut seen = BTreeSet::new();
    let others: Vec<_> = plimsoll_client::counters_of_others().collect();
    for (prefix, name, _) in &others {
        if !seen.insert((prefix, name)) {
            continue;
        }
        let same = others.iter().filter(|(p, n, _)| (p, n) == (prefix, name));
        let help: Vec<&str> = same.map(|(_, _, help)| *help).collect();
        let full = exposed(&format!("{prefix}{name}"), "counter");
        row(text, &full, "counter", &["cluster"], &help.join(" "));
    }
}

fn exposed(name: &str, kind: &str) -> String {
    let ending = if kind == "counter" { "_total" } else { "" };
    let name = match kind {
        "counter" => name.strip_suffix("_total").unwrap_or(name),
        _ => name,
    };
    format!("plimsoll_cluster_{name}{ending}")
}

fn head(text: &mut String) {
    text.push_str("\n| name | type | labels | says |\n|---|---|---|---|\n");
}

fn row(text: &mut String, name: &str, kind: &str, labels: &[&str], help: &str) {
    let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
    let labels = labels.join(", ");
    let help = help.trim_end_matches('.').replace('|', "\\|");
    let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
}
