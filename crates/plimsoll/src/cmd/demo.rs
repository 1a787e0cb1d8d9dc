//! `plimsoll demo`: shows on one machine what Plimsoll does.
//!
//! Here lives the way from the command line to `crate::demo`: runtime, logs, signals.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

use super::{Exit, stop_signal};
use crate::demo::{Options, run as play};
use crate::logging;

/// Show what Plimsoll does: a control plane, three zones of proxies and backends, and traffic
///
/// Everything runs in this process, on loopback, with real sockets and the real parts; only the
/// capacity of the backends is modelled. Three fifths of the requests arrive in one of three equal
/// zones. Routing begins with host counts, as a stock proxy has it, and the busy zone drowns. Open
/// the dashboard and switch: routing, traffic, a dead zone, a control plane that is gone.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Where the dashboard is [default: 127.0.0.1:18080, or a free port if that is taken]
    #[arg(long, value_name = "ADDRESS")]
    admin: Option<SocketAddr>,
    /// A further name of the dashboard, for browsers elsewhere; may be given several times
    #[arg(long = "admin-host", value_name = "NAME")]
    admin_hosts: Vec<String>,
    /// Walk through everything by itself, with explanations
    #[arg(long)]
    auto: bool,
    /// End after this many seconds; with --auto the walk takes that long
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    duration: Option<Duration>,
    /// Real Envoys instead of Plimsoll's proxies; what they cannot do is not offered
    #[arg(long)]
    with_envoy: bool,
    /// The program of --with-envoy [default: $ENVOY, one in the PATH, or the one of `make test`]
    #[arg(long, value_name = "PATH", requires = "with_envoy")]
    envoy: Option<PathBuf>,
    /// Start of the random numbers of backends and clients
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Print one JSON object per line, once a second
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll demo                           then open the address it prints
  plimsoll demo --auto                    watch: every step is explained
  plimsoll demo --auto --duration 120     the same in two minutes, then end
  plimsoll demo --json | jq .zones        numbers for programs
  plimsoll demo --with-envoy              the same with stock Envoys as proxies
  plimsoll demo --admin 0.0.0.0:8080      let others look, too
  curl -XPOST -H 'content-type: application/json' -d '{}' \\
    localhost:18080/dashboard/actions/lrs-reported-rate    press a button from a shell

Buttons: host-counts, lrs-reported-rate, headroom, convergent, traffic-a, traffic-b, traffic-even,
surge, calm, kill-zone, restore-zone, stop-control, start-control.

The line in the terminal shows each zone's load against its load line: 100 % is fair.

Environment: RUST_LOG sets what is logged; errors only by default.

Exit codes: 0 after Ctrl-C, SIGTERM or --duration, 2 wrong usage or address in use.";

/// Runs until it is told to stop.
pub(crate) fn run(args: Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    logging::start_quiet();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let options = Options {
        admin: args.admin,
        admin_hosts: args.admin_hosts,
        auto: args.auto,
        duration: args.duration,
        seed: args.seed,
        json: args.json,
        envoy: args.with_envoy.then_some(args.envoy),
    };
    let played = runtime.block_on(play(options, out, stop_signal()));
    // Connections of clients that nobody waits for.
    runtime.shutdown_background();
    played?;
    Ok(Exit::Ok)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .trim_end_matches('s')
        .parse()
        .map_err(|_| "not a number")?;
    match Duration::try_from_secs_f64(number) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("must be more than 0".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_may_have_a_unit_and_must_be_some() {
        assert_eq!(seconds("2.5"), Ok(Duration::from_millis(2500)));
        assert_eq!(seconds("90s"), Ok(Duration::from_secs(90)));
        for wrong in ["0", "-1", "soon", ""] {
            assert!(seconds(wrong).is_err(), "{wrong:?}");
        }
    }
}
