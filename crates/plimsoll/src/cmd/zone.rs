//! `plimsoll zone drain|return|list`: takes zones out of use and returns them, through the admin
//! API of a control plane.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use plimsoll_serve::AdminToken;
use plimsoll_serve::fetch::{self, AdminAddress};
use serde_json::{Value, json};

use super::{Exit, ignore_broken_pipe, read_token};
use plimsoll_sim::scenario::HumanDuration;

/// Take a zone out of use, return it, or list all zones
///
/// A drain moves ten percent of the hosts of a zone every ten seconds, for all services and all
/// proxies; hosts are never marked unhealthy. Before anything moves, the control plane computes how
/// full the other zones would be, and refuses with the figure that is missing.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
    /// Admin address of a control plane (HOST:PORT), with or without http://
    #[arg(long, global = true, value_name = "ADDRESS", default_value = "127.0.0.1:18001",
          value_parser = AdminAddress::parse)]
    address: AdminAddress,
    /// File with the admin token; not needed on the machine of the control plane
    #[arg(long, global = true, value_name = "FILE")]
    admin_token_file: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Drain(Drain),
    Return(Return),
    /// List zones with their state, and why they are out of use
    List,
}

/// Take a zone out of use, step by step
#[derive(Debug, clap::Args)]
struct Drain {
    /// Name of the zone, ZONE or REGION/ZONE, as in localities of endpoints
    zone: String,
    /// Why, for the audit and for others; not needed with --dry-run
    #[arg(long, default_value = "", required_unless_present = "dry_run")]
    reason: String,
    /// Return by itself after this time, for example 30m; by default it stays out
    #[arg(long = "for", value_name = "TIME", value_parser = HumanDuration::parse)]
    time: Option<HumanDuration>,
    /// Time between two steps of ten percent; 0s moves everything at once
    #[arg(long, value_name = "TIME", value_parser = HumanDuration::parse)]
    step: Option<HumanDuration>,
    /// Drain as far as fits instead of refusing
    #[arg(long)]
    partial: bool,
    /// Drain even if the other zones have no room
    #[arg(long)]
    force: bool,
    /// Only say what would happen
    #[arg(long)]
    dry_run: bool,
}

/// Return a zone to service, by slow start
#[derive(Debug, clap::Args)]
struct Return {
    /// Zone as it was named when it was drained
    zone: String,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll zone drain zone-b --dry-run                       say what would happen
  plimsoll zone drain zone-b --for 30m --reason \"power work\"
  plimsoll zone return zone-b                                at any moment, also while it drains
  plimsoll zone list --address control.internal:18001

Exit codes: 0 success, 1 the control plane refuses, 2 wrong usage, or no answer.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let token = args
        .admin_token_file
        .as_deref()
        .map(read_token)
        .transpose()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let answer = match runtime.block_on(ask(args, token.as_ref())) {
        Ok(answer) => answer,
        Err(error) if error.root_cause().is::<fetch::Refused>() => {
            writeln!(out, "{:#}", error.root_cause())?;
            return Ok(Exit::Failure);
        }
        Err(error) => return Err(error),
    };
    let text = if args.json {
        format!("{answer}\n")
    } else {
        text(&args.command, &answer)
    };
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    ignore_broken_pipe(written).context("cannot write the answer")?;
    Ok(Exit::Ok)
}

async fn ask(args: &Args, token: Option<&AdminToken>) -> anyhow::Result<Value> {
    let (path, body) = match &args.command {
        Command::List => ("/api/v1/zones", None),
        Command::Drain(drain) => ("/api/v1/zones/drain", Some(question(drain))),
        Command::Return(back) => ("/api/v1/zones/return", Some(json!({ "zone": back.zone }))),
    };
    let answer = match body {
        None => fetch::get(&args.address, path).await?,
        Some(body) => fetch::post(&args.address, path, body.to_string().into(), token).await?,
    };
    let unexpected = || {
        format!(
            "http://{}{path}: not the API of a control plane",
            args.address
        )
    };
    serde_json::from_slice(&answer).with_context(unexpected)
}

fn question(drain: &Drain) -> Value {
    let time = |time: &HumanDuration| format!("{}ms", time.0.as_millis());
    let mut question = json!({
        "zone": drain.zone,
        "reason": drain.reason,
        "partial": drain.partial,
        "force": drain.force,
        "dry_run": drain.dry_run,
    });
    if let Some(long) = &drain.time {
        question["for"] = json!(time(long));
    }
    if let Some(step) = &drain.step {
        question["step"] = json!(time(step));
    }
    question
}

fn text(command: &Command, answer: &Value) -> String {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match command {
        Command::List => {
            let zones = answer["zones"].as_array().map_or(&[][..], |zones| zones);
            zones.iter().map(zone_line).collect()
        }
        Command::Drain(drain) => {
            let mut lines = format!("{}: {}\n", drain.zone, string(&answer["text"]));
            for service in answer["services"].as_array().into_iter().flatten() {
                if let (Some(now), Some(without)) = (
                    service["utilization_now"].as_f64(),
                    service["utilization_without"].as_f64(),
                ) {
                    let name = string(&service["cluster"]);
                    lines +=
                        &format!("  {name}: fullest zone {now:.2} now, {without:.2} without\n");
                }
            }
            for name in answer["stays"].as_array().into_iter().flatten() {
                lines += &format!("  {}: has no other hosts and stays\n", string(name));
            }
            let allowed = &answer["allowed_percent"];
            if let Some(limit) = answer["order"]["limit_percent"].as_u64() {
                let step = answer["order"]["step_ms"].as_u64().unwrap_or(0) / 1000;
                lines += &format!("{} drains to {limit} %, 10 % every {step} s\n", drain.zone);
            } else {
                lines += &format!("{allowed} % may be drained; nothing was changed\n");
            }
            lines
        }
        Command::Return(back) => {
            let minutes = answer["return_step_ms"].as_u64().unwrap_or(0) / 100;
            format!("{} returns, a whole zone within {minutes} s\n", back.zone)
        }
    }
}

fn zone_line(zone: &Value) -> String {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let order = &zone["order"];
    let why = match order.as_object() {
        Some(_) => format!(": {} ({})", string(&order["reason"]), string(&order["by"])),
        None => String::new(),
    };
    format!(
        "{}  {}  {} of {} hosts in use{why}\n",
        string(&zone["zone"]),
        string(&zone["state"]).replace('_', " "),
        zone["hosts_in_use"],
        zone["hosts"],
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::Cli;
    use super::*;

    #[test]
    fn a_drain_needs_a_reason_unless_it_is_a_question() {
        let parse = |words: &[&str]| {
            let words = ["plimsoll", "zone", "drain", "b"].iter().chain(words);
            Cli::try_parse_from(words)
        };
        assert!(parse(&[]).is_err());
        assert!(parse(&["--dry-run"]).is_ok());
        assert!(parse(&["--for", "30m", "--reason", "power", "--step", "0s"]).is_ok());
    }

    #[test]
    fn answers_are_lines() {
        let zones = json!({ "zones": [
            { "zone": "eu/a", "state": "in_service", "hosts": 3, "hosts_in_use": 3, "order": null },
            { "zone": "eu/b", "state": "out", "hosts": 3, "hosts_in_use": 0,
              "order": { "reason": "power", "by": "ada" } },
        ] });
        let expected = "eu/a  in service  3 of 3 hosts in use\n\
                        eu/b  out  0 of 3 hosts in use: power (ada)\n";
        assert_eq!(text(&Command::List, &zones), expected);
    }
}
