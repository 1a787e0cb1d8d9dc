//! Generator of docs/reference: pages from the schemas of configuration files, the tables of
//! metrics and admin paths, and the command line. One module per kind of page.
//!
//! For developers, so it is compiled with the tests and not shipped. The test here compares the
//! pages with the files in the repository; `make reference` has it write them.

mod admin_api;
mod commands;
mod config;
mod deliveries;
mod log_lines;
mod metrics;

use std::fs;
use std::path::Path;

use clap::CommandFactory as _;

use config::Messages;

use crate::cmd::Cli;
use crate::schema::Subject;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
/// Set to write the pages instead.
const ACCEPT: &str = "PLIMSOLL_REFERENCE_ACCEPT";

struct Page {
    file: &'static str,
    text: String,
}

const NOTE: &str = "For people who look something up. \
                    Generated from the code by `make reference` and compared by a test. \
                    Change the code, not this page.";

fn pages(command: clap::Command) -> Vec<Page> {
    let mut messages = Messages::default();
    let files = [
        ("cluster.md", Subject::Cluster, CLUSTER),
        ("config-proxy.md", Subject::Proxy, PROXY),
        ("config-control.md", Subject::Control, CONTROL),
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
        ("log-lines.md", "Log lines", log_lines::page()),
        ("metrics.md", "Metrics", metrics::page()),
    ];
    pages.extend(others.map(|(file, title, text)| Page {
        file,
        text: format!("# {title}\n\n{NOTE}\n{text}"),
    }));
    // In order of names, whatever features of serde_json other crates in a build choose.
    let mut description = plimsoll_control::admin::openapi().clone();
    description.sort_all_objects();
    pages.push(Page {
        file: "openapi.json",
        text: format!("{description:#}\n"),
    });
    pages
}

const CLUSTER: &str = "\
One entry of `static_resources.clusters` of [the proxy](config-proxy.md); `plimsoll check --kind \
cluster` validates it. A control plane delivers [some of its \
fields](config-control.md#servicecluster); scenarios of explain use those about load balancing. \
Field names may be in snake_case or lowerCamelCase, enums are names or numbers, durations are in \
seconds: `10s`, `0.25s`.";

const CONTROL: &str = "\
[control.md](../control.md#the-file) explains the file; `plimsoll schema control` prints its JSON \
Schema for editors.";

const PROXY: &str = "\
[proxy.md](../proxy.md#the-file) explains the file; `plimsoll schema proxy` prints its JSON Schema \
for editors.";

const EXPLAIN: &str = "\
[explain.md](../explain.md) explains scenarios; `plimsoll schema explain` prints their JSON Schema \
for editors.";

const SIM: &str = "\
TOML. [simulator.md](../simulator.md#a-scenario) explains scenarios; `plimsoll schema sim` prints \
their JSON Schema for editors. Durations are strings: `250ms`, `90s`, `10m`, `1h`.";

#[test]
fn the_pages_in_the_repository_are_current() {
    let pages = pages(Cli::command());
    let accepts = std::env::var_os(ACCEPT).is_some();
    for page in &pages {
        let path = Path::new(DIRECTORY).join(page.file);
        if accepts {
            fs::write(&path, &page.text).unwrap();
        }
        let found = fs::read_to_string(path).unwrap_or_default();
        let different = found.lines().zip(page.text.lines()).find(|(a, b)| a != b);
        assert!(
            found == page.text,
            "docs/reference/{} is not current, first difference {different:?}: refresh it with \
             `make reference`",
            page.file
        );
    }
    let mut written: Vec<_> = fs::read_dir(DIRECTORY)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    written.sort();
    let mut known: Vec<_> = pages.iter().map(|page| page.file.to_owned()).collect();
    known.sort();
    assert_eq!(written, known, "a file that the generator does not write");
}
