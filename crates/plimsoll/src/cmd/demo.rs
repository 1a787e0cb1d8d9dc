//! `plimsoll demo`: runs the demo on one machine. Sets up the Tokio runtime, logging and signal
//! handlers for `plimsoll_demo`.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_demo::{ControlDashboard, Options};
use plimsoll_serve::CancellationToken;

use super::{Exit, stop_on_signal};
use crate::dashboard::{self, ControlSource};
use crate::logging::{self, LogFormat};

/// Run a live demo: a control plane, three zones of proxies and backends, and traffic
///
/// Everything runs in this process on loopback, with real sockets and the real components; only the
/// capacity of the backends is simulated. The three zones are equal, but 60 % of the requests
/// arrive in zone-a. Routing starts with host counts, Envoy's default, which overloads zone-a.
/// Open the dashboard to change the routing policy or the traffic, to kill a zone, or to stop the
/// control plane.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Address of the dashboard [default: 127.0.0.1:18080, or a free port if that one is in use]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// Additional Host name accepted by the dashboard, for browsers elsewhere; repeatable
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// Run through all steps automatically and explain each one
    #[arg(long)]
    auto: bool,
    /// Stop after this many seconds; with --auto the steps are spread over that time
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Use real Envoys instead of Plimsoll's proxies; actions that Envoy does not support are
    /// disabled
    #[arg(long)]
    with_envoy: bool,
    /// Envoy binary for --with-envoy [default: $ENVOY, envoy in the PATH, or that of `make test`]
    #[arg(long, value_name = "PATH", requires = "with_envoy")]
    envoy: Option<PathBuf>,
    /// Seed of the random numbers of backends and clients
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print one JSON object per second, one per line
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll demo                           then open the address that it prints
  plimsoll demo --auto                    run through all steps, with explanations
  plimsoll demo --auto --duration 120     the same in two minutes, then exit
  plimsoll demo --json | jq .zones        numbers for scripts
  plimsoll demo --with-envoy              use unmodified Envoys as proxies
  plimsoll demo --admin 0.0.0.0:8080      let other machines open the dashboard
  curl -XPOST -H 'content-type: application/json' -d '{}' \\
    localhost:18080/dashboard/actions/lrs-reported-rate    trigger an action from a shell

Actions: host-counts, lrs-reported-rate, headroom, convergent, traffic-a, traffic-b, traffic-even,
surge, calm, kill-zone, restore-zone, stop-control, start-control.

The status line shows the load of each zone relative to its fair share: 100 % is fair.

Environment: RUST_LOG filters the log [default: error].

Exit codes: 0 after Ctrl-C, SIGTERM or --duration, 2 wrong usage or address in use.";

/// Runs until Ctrl-C, SIGTERM or the end of `--duration`.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    // Log lines would disturb the status line; show errors only.
    logging::start(LogFormat::Text, "error");
    let runtime = tokio::runtime::Runtime::new().context("cannot start the async runtime")?;
    let options = Options {
        admin: args.admin,
        admin_hosts: args.admin_hosts,
        auto: args.auto,
        duration: args.duration,
        seed: args.seed,
        json: args.json,
        envoy: args.with_envoy.then_some(args.envoy),
        control_dashboard: ControlDashboard {
            admin: dashboard::admin_options,
            source: |context| Arc::new(ControlSource::new(context)),
        },
    };
    let result = runtime.block_on(async {
        let stopping = CancellationToken::new();
        stop_on_signal(stopping.clone())?;
        plimsoll_demo::run(options, out, stopping).await
    });
    // Do not wait for client connections that are still open.
    runtime.shutdown_background();
    result?;
    Ok(Exit::Ok)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| "not a number of seconds")?;
    match Duration::try_from_secs_f64(number) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be greater than 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_carry_a_unit_and_must_be_positive() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["0", "-1", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
