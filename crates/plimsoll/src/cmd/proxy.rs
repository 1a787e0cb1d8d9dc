//! `plimsoll proxy`: runs the proxy. Sets up the Tokio runtime, logging and signal handlers;
//! plimsoll-proxy does the rest.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_admin::Dashboard;
use plimsoll_proxy::{Bound, Context, NodeOverrides, Options, Overrides, Proxy, check};
use plimsoll_serve::{AdminOptions, Files, fetch};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::{Exit, ignore_broken_pipe, stop_on_signal};
use crate::logging::{self, LogFormat};
use crate::memory;
use crate::own_zone::{self, ZonePlaces};
use crate::proxy_dashboard::ProxySource;
use crate::service_manager;

/// Run the proxy, a sidecar or gateway that keeps zones evenly loaded
///
/// Proxies HTTP/1.1 and HTTP/2, including gRPC and WebSocket, and balances requests over the hosts
/// of upstream clusters. The configuration file has the shape of an Envoy bootstrap; unsupported
/// fields are rejected with their path, line and column. The file is polled every 500 ms: a valid
/// edit that two polls find takes effect without a restart, an invalid one is rejected with the
/// reason and changes nothing. Flags of Envoy that mean the same here have the same names.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration file in YAML, an Envoy bootstrap
    #[arg(short, long, visible_alias = "config-path", value_name = "FILE")]
    #[arg(required_unless_present = "config_yaml")]
    config: Option<PathBuf>,
    /// Configuration in YAML, merged into that of the file, or instead of a file
    #[arg(long, value_name = "YAML")]
    config_yaml: Option<String>,
    /// Validate the file and the certificates it names, then exit; like `--mode validate`
    #[arg(long)]
    check: bool,
    /// Ask the running proxy of this file whether it is ready, then exit; for probes
    #[arg(long, conflicts_with = "check")]
    ready: bool,
    /// `validate` only checks the configuration, like `--check`
    #[arg(long, value_name = "MODE", default_value = "serve")]
    mode: Mode,
    /// Number of threads that serve requests [default: one per core]
    #[arg(long, visible_alias = "concurrency", value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1024))]
    workers: Option<u16>,
    /// Id of this proxy, instead of `node.id` in the file [default: PLIMSOLL_NODE_ID, if set]
    #[arg(long, visible_alias = "node-id", value_name = "ID")]
    service_node: Option<String>,
    /// Fleet of this proxy, instead of `node.cluster` in the file
    #[arg(long, value_name = "NAME")]
    service_cluster: Option<String>,
    /// Zone of this proxy, instead of `node.locality.zone` in the file [default: PLIMSOLL_ZONE, if
    /// set, or that of --zone-file]
    #[arg(long, visible_alias = "zone", value_name = "ZONE")]
    service_zone: Option<String>,
    /// File with the zone of this proxy, or with the labels of its pod: a volume of the downward
    /// API of Kubernetes
    #[arg(long, value_name = "FILE")]
    zone_file: Option<PathBuf>,
    /// Time for requests in flight to finish after SIGTERM, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "30")]
    drain_time_s: u64,
    /// Number of restarts; if not 0, takes over the sockets of the process with the same admin
    /// address, which drains once this one accepts connections
    #[arg(long, value_name = "N", default_value = "0")]
    restart_epoch: u32,
    /// Additional Host name accepted by the admin API, for example of an ingress; repeatable
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// File with a token of at least 16 characters; requests that change something then work from
    /// other machines too, with `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Log level: `trace`, `debug`, `info`, `warning`, `error`, `critical` or `off`
    /// [default: RUST_LOG, or info]
    #[arg(short = 'l', long, value_name = "LEVEL")]
    log_level: Option<LogLevel>,
    /// Format of the log, which goes to standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: LogFormat,
}

/// What to do with the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Serve,
    Validate,
}

/// Log levels by the names that Envoy has for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum LogLevel {
    Trace,
    Debug,
    Info,
    #[value(alias = "warn")]
    Warning,
    Error,
    Critical,
    Off,
}

impl LogLevel {
    /// Returns the level as in `RUST_LOG`, which has no critical messages.
    const fn directive(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warn",
            Self::Error | Self::Critical => "error",
            Self::Off => "off",
        }
    }
}

impl Args {
    fn overrides(&self) -> anyhow::Result<Overrides> {
        let zone = ZonePlaces {
            flag: self.service_zone.clone(),
            file: self.zone_file.clone(),
        };
        Ok(Overrides {
            config_yaml: self.config_yaml.clone(),
            node: NodeOverrides {
                id: own_zone::node_id(self.service_node.as_ref(), own_zone::variable),
                cluster: self.service_cluster.clone(),
                zone: zone.find(own_zone::variable)?,
            },
        })
    }
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll proxy -c proxy.yaml
  plimsoll proxy -c proxy.yaml --check
  plimsoll proxy -c proxy.yaml --workers 4 --log-format json
  plimsoll proxy -c proxy.yaml --service-node proxy-2 --service-zone zone-a
  plimsoll proxy -c proxy.yaml --restart-epoch 1    # takes over from the running process
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
            '@type': \"type.googleapis.com/envoy.extensions.filters.\\
              network.http_connection_manager.v3.HttpConnectionManager\"
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
          - endpoint:
              address: {socket_address: {address: orders, port_value: 80}}

Signals: SIGTERM and Ctrl-C drain connections and exit, SIGHUP reloads the file, SIGUSR1 opens
access logs again.
Restart without a lost connection: start the new process with the same file and --restart-epoch 1.
Sockets of systemd (LISTEN_FDS) are used for listeners and the admin API with the same address.

Environment: RUST_LOG filters the log, for example RUST_LOG=debug [default: info]. PLIMSOLL_NODE_ID
and PLIMSOLL_ZONE are id and zone of this proxy unless flags say otherwise; with PLIMSOLL_NODE_NAME
the zone is that of a Kubernetes Node. `${NAME}` and `${NAME:-default}` in values of the file are
replaced by variables.

Exit codes: 0 after SIGTERM or Ctrl-C, 1 not ready (--ready), 2 wrong usage, invalid configuration
or address in use.";

/// Runs until SIGTERM or Ctrl-C, or only validates the file with `--check`.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    memory::use_small_pages();
    let overrides = args.overrides()?;
    if args.check || args.mode == Mode::Validate {
        let path = args.config.unwrap_or_default();
        let config = check(&path, &overrides)?;
        let (listeners, clusters) = (config.listeners.len(), config.clusters.len());
        let line = writeln!(out, "ok: {listeners} listeners, {clusters} clusters");
        ignore_broken_pipe(line)?;
        return Ok(Exit::Ok);
    }
    if args.ready {
        return ask_ready(&args, out);
    }
    let token = args.admin_token_file.as_deref().map(super::read_token);
    let token = token.transpose()?;
    let logging = logging::start(args.log_format, "info");
    if let Some(level) = args.log_level {
        logging(level.directive()).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    // This runtime has configuration, cluster updates and the admin API; requests have threads.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        overrides,
        workers: args.workers.map_or(cores, usize::from),
        drain_time: Duration::from_secs(args.drain_time_s),
        logging: Some(logging),
        sockets: service_manager::inherited_sockets()?.into(),
        restart_epoch: args.restart_epoch,
        ..Options::new(args.config.unwrap_or_default())
    };
    let hosts = args.admin_hosts;
    runtime.block_on(async {
        let (reload, reloads) = mpsc::channel(1);
        // Before the start, so that no signal ends the process while it starts.
        let hangup = signal(SignalKind::hangup()).context("cannot handle signals")?;
        let rotated = signal(SignalKind::user_defined1()).context("cannot handle signals")?;
        let proxy = Proxy::start(options).await?;
        let context = proxy.context();
        stop_on_signal(context.stopping().clone())?;
        handle_signals(hangup, reload, rotated, context.clone());
        let admin = AdminOptions {
            pages: Some(
                Dashboard::new(ProxySource::new(context.clone()))
                    .recording()
                    .router(),
            ),
            listed: vec![crate::dashboard::history_path()],
            hosts,
            token,
            ..AdminOptions::default()
        };
        let announced = announce_when_live(&context, proxy.bound().admin, out);
        let ((), announced) = tokio::join!(proxy.run(admin, reloads), announced);
        anyhow::Ok(announced?)
    })?;
    Ok(Exit::Ok)
}

/// Reloads the file on SIGHUP and opens access logs again on SIGUSR1.
fn handle_signals(
    mut hangup: Signal,
    reload: mpsc::Sender<()>,
    mut rotated: Signal,
    context: Context,
) {
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // If the channel is full, a reload is already pending.
            let _ = reload.try_send(());
        }
    });
    tokio::spawn(async move {
        while rotated.recv().await.is_some() {
            context.reopen_logs();
        }
    });
}

/// Prints the addresses and tells the service manager, once connections are accepted.
async fn announce_when_live(
    context: &Context,
    admin: Option<SocketAddr>,
    out: &mut impl Write,
) -> io::Result<()> {
    tokio::select! {
        () = context.wait_until_live() => {}
        () = context.stopping().cancelled() => return Ok(()),
    }
    service_manager::notify("READY=1");
    let listeners = context.listeners();
    ignore_broken_pipe(announce(&Bound { listeners, admin }, out))
}

/// Prints the answer of `/ready`; fails unless the proxy serves requests.
fn ask_ready(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let path = args.config.clone().unwrap_or_default();
    let loaded = plimsoll_proxy::source::load(&path, &args.overrides()?, &mut Files::default())?;
    let admin = loaded
        .config
        .admin
        .context("the file has no admin address")?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let address = plimsoll_serve::local(admin).into();
    let (line, exit) = match runtime.block_on(fetch::get(&address, "/ready")) {
        Ok(answer) => (
            String::from_utf8_lossy(&answer).trim_end().to_owned(),
            Exit::Ok,
        ),
        Err(error) => (format!("not ready: {error:#}"), Exit::Failure),
    };
    ignore_broken_pipe(writeln!(out, "{line}"))?;
    Ok(exit)
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

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(line: &[&str]) -> Result<Args, clap::Error> {
        let line = ["plimsoll"].iter().chain(line);
        Cli::try_parse_from(line).map(|cli| cli.args)
    }

    #[test]
    fn flags_of_envoy_are_accepted() {
        let args = parse(&[
            "--config-path",
            "envoy.yaml",
            "--concurrency",
            "3",
            "--mode",
            "validate",
            "--config-yaml",
            "{}",
            "--service-node",
            "n",
            "--service-cluster",
            "c",
            "--service-zone",
            "z",
            "--drain-time-s",
            "5",
            "--restart-epoch",
            "2",
            "-l",
            "warning",
        ])
        .unwrap();
        assert_eq!(
            args.config.as_deref(),
            Some(std::path::Path::new("envoy.yaml"))
        );
        assert_eq!((args.workers, args.drain_time_s), (Some(3), 5));
        assert_eq!((args.mode, args.restart_epoch), (Mode::Validate, 2));
        assert_eq!(args.log_level.map(LogLevel::directive), Some("warn"));
        let overrides = args.overrides().unwrap();
        assert_eq!(overrides.config_yaml.as_deref(), Some("{}"));
        assert_eq!(overrides.node.id.as_deref(), Some("n"));
        assert_eq!(overrides.node.cluster.as_deref(), Some("c"));
        assert_eq!(overrides.node.zone.as_deref(), Some("z"));
    }

    #[test]
    fn a_proxy_that_does_not_run_is_not_ready() {
        let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = unused.local_addr().unwrap().port();
        drop(unused);
        let text = format!(
            "{{admin: {{address: {{socket_address: {{address: 0.0.0.0, port_value: {port}}}}}}}}}"
        );
        let args = parse(&["--ready", "--config-yaml", &text]).unwrap();
        let mut out = Vec::new();
        assert_eq!(run(args, &mut out).unwrap(), Exit::Failure);
        let line = String::from_utf8(out).unwrap();
        assert!(line.starts_with("not ready: "), "{line}");
        let args = parse(&["--ready", "--config-yaml", "{}"]).unwrap();
        assert!(run(args, &mut Vec::new()).is_err(), "no admin address");
    }

    #[test]
    fn a_file_or_a_text_is_required() {
        assert!(parse(&[]).is_err());
        assert!(parse(&["--config-yaml", "{}"]).is_ok());
        let args = parse(&["-c", "proxy.yaml"]).unwrap();
        assert_eq!((args.mode, args.restart_epoch), (Mode::Serve, 0));
    }
}
