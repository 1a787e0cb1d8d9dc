//! `plimsoll explain SCENARIO…`: shows where a proxy would send requests in a scenario, and why.
//!
//! Scenarios are parsed in `scenario` and drawn in `render`. All scenario files are read and
//! validated before the first line is written.

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use plimsoll_core::explain::Explanation;

use super::{Exit, ignore_broken_pipe, input_name, read};
use crate::render::{self, Heading, Style};
use crate::scenario::Scenario;

/// Show where a proxy would send requests in a given situation, and why
///
/// A scenario is a YAML file: where the proxy is, how many hosts the fleet and the upstream cluster
/// have in each locality, and the cluster as in an Envoy configuration. The output shows the
/// routing state, each precondition with its numbers, where requests go, and the load factor of
/// each locality (its share of the traffic divided by its share of the capacity) if the proxies of
/// every zone decide the same way.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Scenario files; - reads standard input
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Print JSON: an object for one scenario, an array in the given order for several
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll explain examples/explain/zone-aware-typed.yaml
  plimsoll explain --json examples/explain/host-weights.yaml

Fields of a scenario:
  title, description   free text
  own_locality         {region, zone, sub_zone}; a plain string is the zone
  fleet                localities: [{locality, hosts, healthy, weights,
                       observed_traffic_fraction, metadata_traffic_fraction}];
                       without `fleet` there is no local cluster
  upstream             localities: [{locality, priority, hosts, healthy, degraded, draining,
                       weights, load_balancing_weight, utilization, metadata}],
                       overprovisioning_factor, weighted_priority_health
  subset               explain one subset instead of the cluster: {version: canary}
  fractions_age        time since the fractions arrived, for example \"90s\"
  cluster              name, lb_policy, common_lb_config, load_balancing_policy, … as in Envoy
  runtime              {upstream.zone_routing.min_cluster_size: 1, …}

`healthy` defaults to all hosts; `weights` is one number, or a list with one per healthy host;
`utilization` is what every healthy host reports, from 0 to 1. Unknown fields are errors.
More examples are in examples/explain.

Color is used on terminals only, and not if NO_COLOR is set.

Exit codes: 0 success, 2 wrong usage or an unreadable or invalid scenario (`file: field: reason`).";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let scenarios: anyhow::Result<Vec<Scenario>> =
        args.scenarios.iter().map(|path| scenario(path)).collect();
    let scenarios = scenarios?;
    let written = if args.json {
        write_json(&scenarios, out)
    } else {
        let no_color = std::env::var_os("NO_COLOR");
        let style = Style::new(io::stdout().is_terminal(), no_color.as_deref());
        write_pages(&scenarios, style, out)
    };
    ignore_broken_pipe(written.and_then(|()| out.flush()))
        .context("cannot write the explanation")?;
    Ok(Exit::Ok)
}

fn scenario(path: &Path) -> anyhow::Result<Scenario> {
    let located = |error| anyhow!("{}: {error}", input_name(path));
    Scenario::parse(&read(path)?).map_err(located)
}

fn write_json(scenarios: &[Scenario], out: &mut impl Write) -> io::Result<()> {
    let explanations: Vec<Explanation> = scenarios.iter().map(Scenario::explain).collect();
    match explanations.as_slice() {
        [one] => serde_json::to_writer_pretty(&mut *out, one)?,
        all => serde_json::to_writer_pretty(&mut *out, all)?,
    }
    writeln!(out)
}

fn write_pages(scenarios: &[Scenario], style: Style, out: &mut impl Write) -> io::Result<()> {
    for (index, scenario) in scenarios.iter().enumerate() {
        if index > 0 {
            writeln!(out, "\n{}\n", "─".repeat(100))?;
        }
        let heading = Heading {
            title: scenario.title(),
            description: scenario.description(),
        };
        out.write_all(render::page(heading, &scenario.explain(), style).as_bytes())?;
    }
    Ok(())
}
