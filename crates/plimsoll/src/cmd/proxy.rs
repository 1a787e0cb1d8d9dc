//! `plimsoll proxy`: runs the proxy.
//!
//! Here lives the way from the command line to plimsoll-proxy: runtime, logs, signals. Everything
//! else is there.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_proxy::{AdminOptions, Bound, Options, check, run_with};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{Exit, unless_closed};
use crate::logging::{self, LogFormat};
use crate::proxy_dashboard;

/// Run the proxy: a sidecar or gateway that keeps zones evenly loaded
///
/// Serves HTTP/1.1 and HTTP/2 (gRPC and WebSocket included) and sends requests to clusters with the
/// balancing engine of Plimsoll. The file has the shape of an Envoy bootstrap; what is not
/// supported is an error that names the field. It is watched: a good edit takes effect within a
/// second, a bad one is refused with the reason and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration file (YAML)
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Read the file, open the certificates it names, and end
    #[arg(long)]
    check: bool,
    /// Threads that serve requests; one per core
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// How long requests may take to finish after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain_time_s: u64,
    /// A further name of the admin address, for browsers and scrapers; may be given several times
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// How to write the log, to standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: LogFormat,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll proxy -c proxy.yaml
  plimsoll proxy -c proxy.yaml --check
  plimsoll proxy -c proxy.yaml --workers 4 --log-format json
  curl localhost:9901/explain?cluster=orders

A configuration:
  admin: {address: {socket_address: {address: 127.0.0.1, port_value: 9901}}}
  node: {id: proxy-1, cluster: edge, locality: {zone: zone-a}}
  static_resources:
    listeners:
    - name: http
      address: {socket_address: {address: 0.0.0.0, port_value: 8080}}
      filter_chains:
      - filters:
        - typed_config:
            '@type': type.googleapis.com/envoy.extensions.filters.network.\
http_connection_manager.v3.HttpConnectionManager
            stat_prefix: http
            route_config:
              virtual_hosts:
              - name: all
                domains: ['*']
                routes: [{match: {prefix: /}, route: {cluster: orders}}]
    clusters:
    - name: orders                   # what stands in an Envoy's clusters list
      type: STRICT_DNS
      load_assignment:
        cluster_name: orders
        endpoints:
        - lb_endpoints:
          - endpoint: {address: {socket_address: {address: orders, port_value: 80}}}

Signals: SIGTERM and Ctrl-C drain and end, SIGHUP reads the file again.
Restart without losing a connection: start the new process, then send SIGTERM to the old one.

Environment: RUST_LOG sets what is logged, for example RUST_LOG=debug.

Exit codes: 0 after SIGTERM or Ctrl-C, 2 wrong usage, bad configuration or address in use.";

/// Runs until it is told to stop.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    if args.check {
        let config = check(&args.config)?;
        let (listeners, clusters) = (config.listeners.len(), config.clusters.len());
        let line = writeln!(out, "fine: {listeners} listeners, {clusters} clusters");
        unless_closed(line)?;
        return Ok(Exit::Ok);
    }
    let logging = logging::start_adjustable(args.log_format);
    // The file, the client's writer and the admin pages; requests have threads of their own.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start")?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        config: args.config,
        workers: args.workers.map_or(cores, usize::from),
        drain_time: Duration::from_secs(args.drain_time_s),
        logging: Some(logging),
    };
    let mut announced = Ok(());
    let announce = |bound| announced = announce(&bound, out);
    runtime.block_on(async {
        let (reload, reloads) = mpsc::channel(1);
        let mut hangup = signal(SignalKind::hangup()).context("cannot hear signals")?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // One that waits is as good as two.
                let _ = reload.try_send(());
            }
        });
        let mut terminate = signal(SignalKind::terminate()).context("cannot hear signals")?;
        let stop = async move {
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            tracing::info!("draining");
        };
        let admin = AdminOptions {
            pages: Some(proxy_dashboard::pages()),
            hosts: args.admin_hosts,
        };
        run_with(options, admin, announce, reloads, stop).await?;
        anyhow::Ok(())
    })?;
    unless_closed(announced)?;
    Ok(Exit::Ok)
}

fn announce(bound: &Bound, out: &mut impl Write) -> io::Result<()> {
    for (name, address) in &bound.listeners {
        writeln!(out, "listener {name} on {address}")?;
    }
    if let Some(admin) = bound.admin {
        writeln!(out, "admin on http://{admin}")?;
    }
    out.flush()
}
