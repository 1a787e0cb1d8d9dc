//! `plimsoll proxy`: runs the proxy. Sets up the Tokio runtime, logging and signal handlers;
//! plimsoll-proxy does the rest.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_admin::Dashboard;
use plimsoll_proxy::{Bound, Options, Proxy, check};
use plimsoll_serve::AdminOptions;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{Exit, ignore_broken_pipe, stop_on_signal};
use crate::logging::{self, LogFormat};
use crate::proxy_dashboard::ProxySource;

/// Run the proxy, a sidecar or gateway that keeps zones evenly loaded
///
/// Proxies HTTP/1.1 and HTTP/2, including gRPC and WebSocket, and balances requests over the hosts
/// of upstream clusters. The configuration file has the shape of an Envoy bootstrap; unsupported
/// fields are rejected with their path, line and column. The file is polled every 500 ms: a valid
/// edit takes effect without a restart, an invalid one is rejected with the reason and changes
/// nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration file in YAML, an Envoy bootstrap
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Validate the file and the certificates it names, then exit
    #[arg(long)]
    check: bool,
    /// Number of threads that serve requests [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Time for requests in flight to finish after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain_time_s: u64,
    /// Additional Host name accepted by the admin API, for example of an ingress; repeatable
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// Format of the log, which goes to standard error
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
    - name: orders                   # as in an Envoy's list of clusters
      type: STRICT_DNS
      load_assignment:
        cluster_name: orders
        endpoints:
        - lb_endpoints:
          - endpoint: {address: {socket_address: {address: orders, port_value: 80}}}

Signals: SIGTERM and Ctrl-C drain connections and exit, SIGHUP reloads the file.
Restart without downtime: start the new process, then send SIGTERM to the old one.

Environment: RUST_LOG filters the log, for example RUST_LOG=debug [default: info].

Exit codes: 0 after SIGTERM or Ctrl-C, 2 wrong usage, invalid configuration or address in use.";

/// Runs until SIGTERM or Ctrl-C, or only validates the file with `--check`.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    if args.check {
        let config = check(&args.config)?;
        let (listeners, clusters) = (config.listeners.len(), config.clusters.len());
        let line = writeln!(out, "ok: {listeners} listeners, {clusters} clusters");
        ignore_broken_pipe(line)?;
        return Ok(Exit::Ok);
    }
    let logging = logging::start(args.log_format, "info");
    // This runtime has configuration, cluster updates and the admin API; requests have threads.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        config: args.config,
        workers: args.workers.map_or(cores, usize::from),
        drain_time: Duration::from_secs(args.drain_time_s),
        logging: Some(logging),
    };
    runtime.block_on(async {
        let (reload, reloads) = mpsc::channel(1);
        let mut hangup = signal(SignalKind::hangup()).context("cannot handle signals")?;
        tokio::spawn(async move {
            while hangup.recv().await.is_some() {
                // If the channel is full, a reload is already pending.
                let _ = reload.try_send(());
            }
        });
        let proxy = Proxy::start(options).await?;
        stop_on_signal(proxy.context().stopping().clone())?;
        ignore_broken_pipe(announce(&proxy.bound(), out))?;
        let admin = AdminOptions {
            pages: Some(Dashboard::new(ProxySource::new(proxy.context())).router()),
            hosts: args.admin_hosts,
        };
        proxy.run(admin, reloads).await;
        anyhow::Ok(())
    })?;
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
