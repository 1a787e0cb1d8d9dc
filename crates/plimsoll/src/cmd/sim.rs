//! `plimsoll sim SCENARIO`: simulates a fleet under several policies and compares them, perhaps
//! with demand that was recorded (`recorded`).
//!
//! Reads the file, shows progress and writes the report; plimsoll-sim simulates, plimsoll-admin has
//! the HTML page. Output files are written before the table is printed: a closed pipe loses none.

mod recorded;

use std::io::{self, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_sim::{Policy, Progress, Replay, Report, Scenario};

use super::{Exit, ignore_broken_pipe, input_name, read};

/// Simulate a fleet under several policies and compare the results
///
/// A scenario is a TOML file: zones with proxies, hosts and demand, events such as failures, and
/// expected results. Every policy gets the same arrivals and runs the code that routes real
/// traffic, in virtual time. Output is deterministic: the same seed gives the same bytes.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Scenario file; - reads standard input
    scenario: PathBuf,
    /// Run only these policies, in this order; repeatable, or separated by commas
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = Policy::parse)]
    policy: Vec<Policy>,
    /// Seed, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// Simulated time, for example 90s or 10m, instead of the scenario's
    #[arg(long, value_name = "TIME", value_parser = HumanDuration::parse)]
    duration: Option<HumanDuration>,
    /// Take demand from this file instead of the scenario: CSV with a column for each zone, or the
    /// JSON of a range query of Prometheus
    #[arg(long, value_name = "FILE")]
    from_metrics: Option<PathBuf>,
    /// Replay recorded demand so many times as fast
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "from_metrics"
    )]
    speed: f64,
    /// Multiply recorded demand by this factor
    #[arg(
        long,
        value_name = "FACTOR",
        default_value_t = 1.0,
        requires = "from_metrics"
    )]
    scale: f64,
    /// Write a self-contained HTML page with charts to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the time series to this file, one row per policy, second and zone
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll sim 60-20-20.toml                         print a table, one row per policy
  plimsoll sim 60-20-20.toml --html report.html      also write charts over time
  plimsoll sim zone-loss.toml --policy convergent,hybrid --seed 7 --duration 5m
  plimsoll sim noisy-reports.toml --csv series.csv --json > numbers.json
  plimsoll sim my-zones.toml --from-metrics day.csv --speed 60   a day in 24 minutes

Policies: none, zone_aware_hosts, zone_aware_weights, lrs_by_reporter, lrs_by_destination,
observed_load, headroom, convergent, hybrid, optimum (computed, not simulated); lrs_level and
optimum_level, which ignore a target utilization.

Recorded demand is in requests per second. CSV has a header such as time,zone-a,zone-b, and times
in seconds or as 2026-01-31 12:00:00. Series of Prometheus have a label zone or locality:
  curl -G http://prometheus:9090/api/v1/query_range -d step=60 -d start=... -d end=... \\
    --data-urlencode 'query=sum by (locality) (plimsoll_control_demand_requests_per_second)'

Fields of a scenario:
  title, description, seed, duration, measure_from, policies
  [traffic]              mean_utilization or requests_per_second, arrivals, wave
  [[zone]]               name, count, demand, proxies, heavy_proxy, liar, hosts
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
                         capacity, stop_reports, control_plane_outage, restart_proxies
  [[expect]]             policy, at_most, at_least: metrics by their names in the JSON

Unknown fields are errors. Example scenarios are in crates/plimsoll-sim/scenarios.
A progress bar is shown on terminals only.

Exit codes: 0 success, 1 an expectation of the scenario was not met, 2 wrong usage or an invalid
scenario.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let scenario = scenario(args)?;
    let bar = progress_bar(scenario.policies().len());
    let report = plimsoll_sim::run(&scenario, |progress| show(&bar, progress))
        .map_err(|error| anyhow!("{}: {error}", input_name(&args.scenario)))?;
    bar.finish_and_clear();
    if let Some(path) = &args.html {
        let page = plimsoll_admin::report_page(&report.facts.title, &report.page());
        write(path, &page.context("cannot encode the report as JSON")?)?;
    }
    if let Some(path) = &args.csv {
        write(path, &report.csv())?;
    }
    let written = print(&report, args.json, out);
    ignore_broken_pipe(written.and_then(|()| out.flush())).context("cannot write the report")?;
    Ok(if report.passed() {
        Exit::Ok
    } else {
        Exit::Failure
    })
}

fn scenario(args: &Args) -> anyhow::Result<Scenario> {
    let name = input_name(&args.scenario);
    let mut scenario =
        Scenario::parse(&read(&args.scenario)?).map_err(|error| anyhow!("{name}: {error}"))?;
    if let Some(path) = &args.from_metrics {
        let replay = Replay {
            speed: args.speed,
            scale: args.scale,
        };
        let recording = recorded::read(&read(path)?);
        let recording = recording.with_context(|| input_name(path))?;
        scenario = scenario
            .replaying(&recording, replay)
            .map_err(|error| anyhow!("{}: {error}", input_name(path)))?;
    }
    if let Some(seed) = args.seed {
        scenario = scenario.with_seed(seed);
    }
    if let Some(duration) = args.duration {
        scenario = scenario
            .with_duration(duration)
            .map_err(|error| anyhow!("{name}: {error}"))?;
    }
    if !args.policy.is_empty() {
        scenario = scenario.with_policies(args.policy.clone());
    }
    Ok(scenario)
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

/// Number of steps of the progress bar per policy.
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
