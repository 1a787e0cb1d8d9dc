//! `plimsoll control`: runs the control plane. Sets up the Tokio runtime, logging and signal
//! handlers; plimsoll-control does the rest.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Context as _;
use plimsoll_control::reload::ReloadRequests;
use plimsoll_control::run::{Context, Control, Options};
use plimsoll_serve::AdminOptions;
use tokio::signal::unix::{SignalKind, signal};

use super::{Exit, ignore_broken_pipe, stop_on_signal};
use crate::dashboard;
use crate::logging::{self, LogFormat};
use crate::memory;

/// Run the control plane, which turns load reports into locality weights
///
/// An xDS management server: serves CDS, EDS, LDS and RDS over ADS (state of the world and
/// incremental) and receives load reports (LRS). It routes unmodified Envoys and gRPC clients by
/// the demand measured in each zone. The configuration file is polled every 500 ms: a valid edit
/// takes effect without a restart, an invalid one is rejected with the reason and changes nothing.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Configuration file in YAML
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,
    /// Address of the xDS server (ADS and LRS), instead of `listen` in the file; port 0 picks a
    /// free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// Address of the admin API and the dashboard, instead of `admin` in the file
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Address of the admin API and the dashboard for reading only, without authentication,
    /// instead of `read_only` in the file
    #[arg(long, value_name = "ADDRESS")]
    read_only: Option<SocketAddr>,
    /// Name of this replica, if the file has a `store`; default the name of the host and random
    /// digits
    #[arg(long, value_name = "NAME")]
    replica_id: Option<String>,
    /// Directory for what a restart must not forget: the audit, which `plimsoll audit` reads, and
    /// the last hour of the dashboard
    /// [default: $STATE_DIRECTORY, which systemd sets; without it, memory]
    #[arg(long, value_name = "DIRECTORY")]
    state_directory: Option<PathBuf>,
    /// File with a token of at least 16 characters; the admin API then works from other machines
    /// too, with `Authorization: Bearer TOKEN`
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Additional Host name accepted by the admin API, for example of an ingress; repeatable
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// Format of the log, which goes to standard error
    #[arg(long, value_name = "FORM", default_value = "text")]
    log_format: LogFormat,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll control -c control.yaml
  plimsoll control -c control.yaml --read-only 0.0.0.0:18002 --log-format json
  plimsoll bootstrap envoy --zone zone-a > envoy.json && envoy -c envoy.json
  curl localhost:18001/api/v1/fleets

A configuration:
  listen: 0.0.0.0:18000
  tls: {certificate: tls.crt, private_key: tls.key, client_ca: ca.crt}
  admin: 127.0.0.1:18001
  load_reporting: {interval: 10s}
  services:
  - cluster: {name: orders}          # as in an Envoy's list of clusters
    mode: ENFORCE                    # SHADOW: measure and show, deliver host counts; or OFF
    ramp: 100                        # percent of requests that follow demand
    endpoints:
    - locality: {region: r1, zone: zone-a}
      lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80']
  include: [services.d]              # directories or files with more services

Environment: RUST_LOG filters the log, for example RUST_LOG=debug [default: info]. `${NAME}` and
`${NAME:-default}` in values of the files are replaced by variables.

Signals: SIGTERM and Ctrl-C exit, SIGHUP reloads the files.

Exit codes: 0 after SIGTERM or Ctrl-C, 1 internal error, 2 wrong usage, invalid configuration or
address in use.";

/// Runs until SIGTERM or Ctrl-C.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    memory::use_small_pages();
    logging::start(args.log_format, "info");
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    let state = args.state_directory.or_else(state_directory_of_systemd);
    let options = Options {
        config: args.config,
        listen: args.listen,
        admin: args.admin,
        read_only: args.read_only,
        replica_id: args.replica_id,
        state_directory: state.clone(),
    };
    let token = args.admin_token_file.as_deref().map(super::read_token);
    let token = token.transpose()?;
    runtime.block_on(async {
        let control = Control::start(options).await?;
        let context = control.context().clone();
        stop_on_signal(context.stopping.clone())?;
        reload_on_hangup(context.reload.clone())?;
        ignore_broken_pipe(announce(&context, args.log_format, out))?;
        let admin = AdminOptions {
            hosts: args.admin_hosts,
            token,
            ..dashboard::admin_options_kept_in(context, state)
        };
        if let Err(error) = control.run(admin).await {
            // It ran: a failure to start is wrong usage, this is not.
            let _ = writeln!(io::stderr(), "error: {:#}", anyhow::Error::from(error));
            return Ok(Exit::Failure);
        }
        Ok(Exit::Ok)
    })
}

/// Returns the first of the directories that systemd has made for the service.
fn state_directory_of_systemd() -> Option<PathBuf> {
    let all = std::env::var("STATE_DIRECTORY").ok()?;
    let first = all.split(':').next()?;
    (!first.is_empty()).then(|| first.into())
}

/// Reloads the files on SIGHUP.
fn reload_on_hangup(reload: ReloadRequests) -> anyhow::Result<()> {
    let mut hangup = signal(SignalKind::hangup()).context("cannot handle signals")?;
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            // The outcome is logged.
            let _ = reload.reload(false).await;
        }
    });
    Ok(())
}

/// Says what is served where. With a log in JSON these are objects, too: containers mix both.
fn announce(context: &Context, format: LogFormat, out: &mut impl Write) -> io::Result<()> {
    let Context {
        bound, listeners, ..
    } = context;
    let mut say = |what: &str, address: String| match format {
        LogFormat::Text => writeln!(out, "{what} on {address}"),
        LogFormat::Json => {
            let line = serde_json::json!({"message": "listening", "of": what, "address": address});
            writeln!(out, "{line}")
        }
    };
    say("ADS and LRS", bound.xds.to_string())?;
    if let Some(admin) = bound.admin {
        let scheme = if listeners.admin_uses_tls {
            "https"
        } else {
            "http"
        };
        say("admin API", format!("{scheme}://{admin}"))?;
        say("dashboard", format!("{scheme}://{admin}/"))?;
    }
    if let Some(read_only) = bound.read_only {
        say("read-only admin API", format!("http://{read_only}"))?;
    }
    out.flush()
}
