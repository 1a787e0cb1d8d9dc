//! `plimsoll explain SCENARIO…`: shows what a proxy would do in a situation, and why.
//!
//! Here lives reading files and choosing the form; scenarios live in `scenario`, pages in `render`.
//! Every file is read and checked before the first line is written.

use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use plimsoll_core::explain::Explanation;

use super::{Exit, unless_closed};
use crate::render::{self, Heading, Style};
use crate::scenario::Scenario;

/// Show what a proxy would do in a situation, and why
///
/// A scenario is a YAML file: where the proxy is, how many hosts the fleet and the upstream cluster
/// have in each locality, and the cluster in Envoy's YAML shape. The page shows the state, each
/// precondition with its numbers, where requests go, and the load factor of each locality (share of
/// the traffic ÷ share of the capacity) if the proxies of every zone decide the same way.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Scenario files; - is standard input
    #[arg(required = true, value_name = "SCENARIO")]
    scenarios: Vec<PathBuf>,
    /// Print JSON: one object for one scenario, an array in the order given for several
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
A scenario has:
  title, description   free text
  own_locality         {region, zone, sub_zone}; a plain string is the zone (everywhere)
  fleet                localities: [{locality, hosts, healthy, weights,
                       observed_traffic_fraction, metadata_traffic_fraction}];
                       without `fleet` no originating cluster is known
  upstream             localities: [{locality, priority, hosts, healthy, degraded, draining,
                       weights, load_balancing_weight, utilization, metadata}],
                       overprovisioning_factor, weighted_priority_health
  subset               explain this subset instead of the whole cluster: {version: canary}
  fractions_age        how long ago the fractions arrived, for example \"90s\"
  cluster              name, lb_policy, common_lb_config, load_balancing_policy, … as in Envoy
  runtime              {upstream.zone_routing.min_cluster_size: 1, …}

`healthy` is all hosts unless it is given; `weights` is one number or a list of one per healthy
host; `utilization` is what every healthy host reports, 0 to 1. Unknown fields are errors.
Examples are in examples/explain.

Colours appear on terminals only, and not when NO_COLOR is set.

Exit codes: 0 fine, 2 wrong usage or unreadable or invalid input (`file: path: reason`).";

/// Reads everything, then prints.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let scenarios: anyhow::Result<Vec<Scenario>> =
        args.scenarios.iter().map(|path| read(path)).collect();
    let scenarios = scenarios?;
    let written = if args.json {
        write_json(&scenarios, out)
    } else {
        let no_color = std::env::var_os("NO_COLOR");
        let style = Style::new(io::stdout().is_terminal(), no_color.as_deref());
        write_pages(&scenarios, style, out)
    };
    unless_closed(written.and_then(|()| out.flush())).context("cannot write the explanation")?;
    Ok(Exit::Ok)
}

fn read(path: &Path) -> anyhow::Result<Scenario> {
    let name = if path == Path::new("-") {
        "standard input".to_owned()
    } else {
        path.display().to_string()
    };
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| name.clone())?;
    Scenario::parse(&text).map_err(|error| anyhow!("{name}: {error}"))
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
