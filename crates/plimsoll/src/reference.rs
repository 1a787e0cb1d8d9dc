//! Pages of docs/reference, made of what the code itself has: schemas of the files that it reads,
//! tables of metrics and of admin paths, and the command line.
//!
//! One file per kind of page. `cmd::reference` writes them, and a test there compares them with
//! what is committed.

mod admin_api;
mod commands;
mod config;
mod deliveries;
mod metrics;

use config::Messages;

use crate::schema::Subject;

/// A page of docs/reference.
pub(crate) struct Page {
    /// Its name in the folder.
    pub(crate) file: &'static str,
    /// Markdown.
    pub(crate) text: String,
}

/// Below every heading: who writes these pages.
const NOTE: &str = "Made by `plimsoll reference docs/reference` from the code; a test compares it. \
                    Change the code, not this page.";

/// All pages.
pub(crate) fn pages(command: clap::Command) -> Vec<Page> {
    let mut messages = Messages::default();
    let files = [
        ("cluster.md", Subject::Cluster, CLUSTER),
        ("config-control.md", Subject::Control, CONTROL),
        ("config-proxy.md", Subject::Proxy, PROXY),
        ("explain.md", Subject::Explain, EXPLAIN),
        ("sim.md", Subject::Sim, SIM),
    ];
    let configs = files.into_iter().map(|(file, subject, about)| {
        let opening = format!("# {}\n\n{NOTE}\n\n{about}\n", subject.title());
        let fields = messages.page(file, &subject.schema());
        let text = format!("{opening}{fields}");
        Page { file, text }
    });
    let mut pages: Vec<Page> = configs.collect();
    let others = [
        ("admin-api.md", "Admin paths", admin_api::page()),
        ("commands.md", "Commands", commands::page(command)),
        (
            "deliveries.md",
            "Policies, deliveries, data planes",
            deliveries::page(),
        ),
        ("metrics.md", "Metrics", metrics::page()),
    ];
    pages.extend(others.map(|(file, title, text)| Page {
        file,
        text: format!("# {title}\n\n{NOTE}\n{text}"),
    }));
    pages
}

const CLUSTER: &str = "\
One entry of `static_resources.clusters` of [the proxy](config-proxy.md), also read by \
`plimsoll check --kind cluster`. A control plane delivers \
[some of its fields](config-control.md#servicecluster); scenarios of explain read \
[those about balancing](explain.md#cluster). Fields may be written in snake_case or \
lowerCamelCase, enums by name or number, durations in seconds: `10s`, `0.25s`.";

const CONTROL: &str = "\
What it means stands in [control.md](../control.md#the-file); `plimsoll schema control` prints \
the same for editors.";

const PROXY: &str = "\
What it means stands in [proxy.md](../proxy.md#the-file); `plimsoll schema proxy` prints the same \
for editors.";

const EXPLAIN: &str = "\
What it means stands in [explain.md](../explain.md); `plimsoll schema explain` prints the same \
for editors.";

const SIM: &str = "\
TOML. What it means stands in [simulator.md](../simulator.md#a-scenario); `plimsoll schema sim` \
prints the same for editors. Lengths of time are texts: `250ms`, `90s`, `10m`, `1h`.";
