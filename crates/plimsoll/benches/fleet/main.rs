//! Scale benchmark of the control plane with a large synthetic fleet on loopback.
//!
//! `make bench-control` measures the release binary (`ARGS=--help` lists the options). As a test it
//! measures a small fleet once, so that the benchmark keeps working.
//!
//! `child` is a measured process, `replicas` all of them, `node` a synthetic Envoy, `messages` its
//! messages, `stream` a gRPC stream, `spread` measures how updates reach all nodes, `tls` has the
//! certificates, `report` formats the results.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a bench prints")]

mod child;
mod measure;
mod messages;
mod node;
mod replicas;
mod report;
mod spread;
mod stream;
mod tls;

use std::io::{self, IsTerminal as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use clap::Parser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plimsoll_sim::scenario::HumanDuration;
use plimsoll_xds::ads::Variant;

use self::measure::{Plan, Progress};

/// Measure CPU and memory of the control plane, and how fast a change reaches all proxies
///
/// Starts a control plane as a child process and synthetic Envoys in this process, on loopback.
/// Each Envoy has one connection with a discovery stream and a load reporting stream; its reports
/// have the size of a real Envoy's (61 KB). After a time of constant demand, the demand of one zone
/// doubles, and the resulting updates are timed.
#[derive(Debug, Parser)]
#[command(name = "fleet", after_help = AFTER_HELP)]
struct Args {
    /// Number of synthetic proxies
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Load reporting interval of a proxy
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = HumanDuration::parse)]
    interval: HumanDuration,
    /// Time to measure at constant demand
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = HumanDuration::parse)]
    duration: HumanDuration,
    /// Use the incremental variant of xDS (delta)
    #[arg(long)]
    delta: bool,
    /// Use mutual TLS: each proxy is identified by its certificate
    #[arg(long)]
    tls: bool,
    /// Number of control planes, with an etcd that they share (Debian package etcd-server)
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    replicas: u8,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
    /// Set by `cargo bench`; without it this runs as a test.
    #[arg(long, hide = true)]
    bench: bool,
    #[arg(long, hide = true)]
    quiet: bool,
}

const AFTER_HELP: &str = "\
The synthetic proxies need CPU too: on a machine with few cores, times include both processes.
Each proxy needs a file descriptor in both processes (ulimit -n).

Exit codes: 0 all limits hold, 1 one does not hold or the measurement failed.";

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if !args.bench {
        return smoke_test();
    }
    let plan = Plan {
        nodes: args.nodes as usize,
        interval: args.interval.0,
        duration: args.duration.0,
        variant: if args.delta {
            Variant::Delta
        } else {
            Variant::Sotw
        },
        tls: args.tls,
        replicas: usize::from(args.replicas),
    };
    let bar = progress_bar();
    let report = measure::run(&plan, &|progress| show(&bar, &progress));
    bar.finish_and_clear();
    let report = report?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{}", report.table());
    }
    Ok(ExitCode::from(u8::from(!report.passed())))
}

/// Runs a small fleet with each variant: all proxies stay connected, report and receive the update.
/// Times are not asserted.
fn smoke_test() -> anyhow::Result<ExitCode> {
    for (variant, tls, replicas) in [(Variant::Sotw, false, 2), (Variant::Delta, true, 1)] {
        let plan = Plan {
            nodes: 30,
            interval: Duration::from_millis(500),
            duration: Duration::from_secs(1),
            variant,
            tls,
            replicas,
        };
        let report = measure::run(&plan, &|_| ())?;
        let page = report.table();
        ensure!(report.value("reports taken, steady") > 0.0, "{page}");
        ensure!(report.value("memory, most ever (resident)") > 1.0, "{page}");
        ensure!(report.value("different updates") >= 1.0, "{page}");
        ensure!(report.value("proxies lost on the way") == 0.0, "{page}");
    }
    println!("Success");
    Ok(ExitCode::SUCCESS)
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
