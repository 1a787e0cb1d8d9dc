//! `plimsoll control`: runs the control plane.
//!
//! Here lives the way from the command line to plimsoll-control: runtime, logs, signals. Everything
//! else is there.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use plimsoll_control::run::{Bound, Options, run_with as serve};

use super::{Exit, stop_signal, unless_closed};
use crate::dashboard;
use crate::logging::{self, LogFormat};

/// Run the control plane: load reports in, weights and fractions out
///
/// Serves CDS, EDS, LDS and RDS over ADS (state of the world and incremental) and takes load
/// reports (LRS). Stock Envoys and gRPC clients that are pointed at it are steered by the demand
/// that really arrives in each zone. The file is watched: a good edit takes effect within a second,
/// a bad one is refused with the reason and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration file (YAML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Where to serve ADS and LRS, instead of the file's `listen`; port 0 picks a free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Where to serve the admin API and the dashboard, instead of the file's `admin`
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A further name of the admin address, for browsers and scrapers; may be given several times
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// How to write the log, to standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: LogFormat,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll control -c control.yaml
  plimsoll control -c control.yaml --listen 0.0.0.0:18000 --log-format json
  plimsoll bootstrap envoy --zone zone-a > envoy.json && envoy -c envoy.json
  curl localhost:18001/api/v1/fleets

A configuration:
  listen: 0.0.0.0:18000
  admin: 127.0.0.1:18001
  load_reporting: {interval: 10s}
  services:
  - cluster: {name: orders}          # what stands in an Envoy's clusters list
    mode: ENFORCE                    # or SHADOW: compute and show, deliver host counts; or OFF
    ramp: 100                        # percent of the way from host counts to measured demand
    endpoints:
    - locality: {region: r1, zone: zone-a}
      lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80']
  include: [services.d]              # more services, one or many per file

Environment: RUST_LOG sets what is logged, for example RUST_LOG=debug.

Exit codes: 0 after SIGTERM or Ctrl-C, 2 wrong usage, bad configuration or address in use.";

/// Runs until it is told to stop.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    logging::start(args.log_format);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let options = Options {
        config: args.config,
        listen: args.listen,
        admin: args.admin,
        admin_hosts: args.admin_hosts,
    };
    let mut announced = Ok(());
    let announce = |bound| announced = announce(bound, out);
    runtime.block_on(serve(
        options,
        Some(dashboard::pages()),
        announce,
        stop_signal(),
    ))?;
    unless_closed(announced)?;
    Ok(Exit::Ok)
}

fn announce(bound: Bound, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "ADS and LRS on {}", bound.xds)?;
    if let Some(admin) = bound.admin {
        writeln!(out, "admin API on http://{admin}")?;
        writeln!(out, "dashboard on http://{admin}/")?;
    }
    out.flush()
}
