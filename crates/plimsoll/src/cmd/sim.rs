//! `plimsoll sim SCENARIO`: simulates a fleet under several policies and compares them.
//!
//! Here lives reading the file, the progress bar and writing the forms that were asked for; the
//! simulation and the forms themselves live in plimsoll-sim. Files are written before the table, so
//! a reader that leaves early loses nothing.

use std::io::{self, IsTerminal as _, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_sim::scenario::Span;
use plimsoll_sim::{Policy, Progress, Report, Scenario};

use super::{Exit, unless_closed};

/// Simulate a fleet under several policies, side by side
///
/// A scenario is a TOML file: zones with proxies, hosts and demand, what goes wrong on the way, and
/// what must come out. Each policy runs on the same arrivals through the same engine that routes
/// real traffic, in virtual time. Same seed, same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Scenario file; - is standard input
    scenario: PathBuf,
    /// Only these policies, in this order; may be repeated or separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Policy::parse)]
    policy: Vec<Policy>,
    /// Another seed than the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Another length than the scenario's, for example 90s or 10m
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    duration: Option<Span>,
    /// Write a self-contained page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the time series, one row per policy, second and zone
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll sim 60-20-20.toml                         a table, one row per policy
  plimsoll sim 60-20-20.toml --html report.html      the same as charts over time
  plimsoll sim zone-loss.toml --policy convergent,hybrid --seed 7 --duration 5m
  plimsoll sim noisy-reports.toml --csv series.csv --json > numbers.json

Policies: none, zone_aware_hosts, zone_aware_weights, lrs_by_reporter, lrs_by_destination,
observed_load, headroom, convergent, hybrid, optimum (computed, not simulated).

A scenario has:
  title, description, seed, duration, measure_from, policies
  [traffic]              mean_utilization or requests_per_second, arrivals, wave
  [[zone]]               name, count, demand, proxies, heavy_proxy, hosts
  [host]                 service, servers, queue, detection
  [network]              local, remote
  [reports]              mode, period, meter_window, noise, loss, delay
  [control_plane]        report_interval, delay, tau, heartbeat, staleness_threshold
  [balancer]             endpoint_policy, locality_sampling, min_cluster_size,
                         upstream_locality_basis, start_spread
  [load_aware_locality]  weight_update_period, smoothing_time_constant, remote_probe_fraction,
                         local_probe_fraction, utilization_variance_threshold,
                         weight_expiration_period
  [scale]                requests_per_sample, balancers_per_zone
  [[event]]              at, and one of demand, shares, lose_hosts, lose_zone, unhealthy,
                         capacity, stop_reports, control_plane_outage
  [[expect]]             policy, at_most, at_least: metrics by their names in the JSON

Unknown fields are errors. Scenarios to start from are in crates/plimsoll-sim/scenarios.
A progress bar appears on terminals only.

Exit codes: 0 fine, 1 something expected did not come out, 2 wrong usage or invalid input.";

/// Reads, simulates, writes files, then prints.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let scenario = read(args)?;
    let bar = progress_bar(scenario.policies().len());
    let report = plimsoll_sim::run(&scenario, |progress| show(&bar, progress))
        .map_err(|error| anyhow!("{}: {error}", name(&args.scenario)))?;
    bar.finish_and_clear();
    if let Some(path) = &args.html {
        write(path, &report.html())?;
    }
    if let Some(path) = &args.csv {
        write(path, &report.csv())?;
    }
    let written = print(&report, args.json, out);
    unless_closed(written.and_then(|()| out.flush())).context("cannot write the report")?;
    Ok(if report.passed() {
        Exit::Ok
    } else {
        Exit::Failure
    })
}

fn read(args: &Args) -> anyhow::Result<Scenario> {
    let path = &args.scenario;
    let text = if path == Path::new("-") {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text = text.with_context(|| name(path))?;
    let located = |error| anyhow!("{}: {error}", name(path));
    let mut scenario = Scenario::parse(&text).map_err(located)?;
    if let Some(seed) = args.seed {
        scenario = scenario.with_seed(seed);
    }
    if let Some(duration) = args.duration {
        scenario = scenario.with_duration(duration).map_err(located)?;
    }
    if !args.policy.is_empty() {
        scenario = scenario.with_policies(args.policy.clone());
    }
    Ok(scenario)
}

fn name(path: &Path) -> String {
    if path == Path::new("-") {
        return "standard input".to_owned();
    }
    path.display().to_string()
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn print(report: &Report, json: bool, out: &mut impl Write) -> io::Result<()> {
    if json {
        serde_json::to_writer_pretty(&mut *out, report)?;
        return writeln!(out);
    }
    out.write_all(report.table().as_bytes())
}

/// Steps of the bar per policy.
const STEPS: u64 = 1000;

fn progress_bar(policies: usize) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(STEPS * policies as u64);
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    let style = ProgressStyle::with_template("{msg:20} {wide_bar} {percent:>3} % {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a thousand"
)]
fn show(bar: &ProgressBar, progress: Progress) {
    if bar.is_hidden() {
        return;
    }
    bar.set_message(progress.policy.name());
    bar.set_position(progress.index as u64 * STEPS + (progress.done * STEPS as f64) as u64);
}
