//! `plimsoll bench control`: how the control plane does with a large fleet.
//!
//! Here lives the command line and the page. Nodes, the process that is measured and the figures
//! live in `bench`.

use std::io::{self, IsTerminal as _, Write};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_sim::scenario::Span;
use plimsoll_xds::ads::Variant;

use super::{Exit, unless_closed};
use crate::bench::{self, Plan, Progress};

/// Measure this machine with a large fleet
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    kind: Kind,
}

#[derive(Debug, clap::Subcommand)]
enum Kind {
    Control(ControlArgs),
}

/// Measure the control plane: CPU, memory, and how fast a change reaches everybody
///
/// Starts a control plane as a process of its own and that many synthetic Envoys on loopback in
/// this one: a connection each, with a discovery stream and a stream of load reports as large as
/// those of a real Envoy (61 KB). After a while at constant demand, the demand of one zone doubles,
/// and the updates that follow are timed.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
struct ControlArgs {
    /// Proxies
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Time between two reports of a proxy
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = Span::parse)]
    interval: Span,
    /// How long to measure at constant demand
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = Span::parse)]
    duration: Span,
    /// Discover incrementally (delta xDS)
    #[arg(long)]
    delta: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll bench control                                 5,000 proxies, about two minutes
  plimsoll bench control --nodes 500 --duration 20s      a smaller fleet
  plimsoll bench control --delta --json > figures.json

The synthetic proxies need CPU too: on a machine with few cores, figures of time are those of both.
Each proxy takes a file descriptor here and one in the control plane (ulimit -n).

Exit codes: 0 all bars hold, 1 one does not, 2 wrong usage or it could not be measured.";

/// Measures, then prints.
pub(super) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let Kind::Control(args) = args.kind;
    let plan = Plan {
        nodes: args.nodes as usize,
        interval: args.interval.0,
        duration: args.duration.0,
        variant: if args.delta {
            Variant::Delta
        } else {
            Variant::Sotw
        },
    };
    let bar = progress_bar();
    let report = bench::run(&plan, &|progress| show(&bar, &progress));
    bar.finish_and_clear();
    let report = report?;
    let written = if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)
            .map_err(io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        out.write_all(report.table().as_bytes())
    };
    unless_closed(written.and_then(|()| out.flush())).context("cannot write the report")?;
    Ok(if report.passed() {
        Exit::Ok
    } else {
        Exit::Failure
    })
}

fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(1);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template("{msg:32} {wide_bar} {percent:>3} %") {
        bar.set_style(style);
    }
    bar
}

fn show(bar: &ProgressBar, progress: &Progress) {
    bar.set_message(progress.phase);
    bar.set_length(progress.total.max(1));
    bar.set_position(progress.done);
}
