//! `plimsoll audit [DIRECTORY]`: prints what a control plane has kept of its audit, also while it
//! does not run. `plimsoll_control::audit` reads the files.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use plimsoll_control::audit::{self, AuditRecord};
use time::OffsetDateTime;

use super::{Exit, ignore_broken_pipe};

/// Show what was changed and refused, by whom, and when proxies had accepted it
///
/// Reads the files of `plimsoll control --state-directory`, whether or not it runs. Entries are
/// numbered across restarts; a number that is missing was pushed out by newer entries of its
/// source, or could not be written.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// State directory of the control plane
    #[arg(value_name = "DIRECTORY", default_value = "/var/lib/plimsoll")]
    directory: PathBuf,
    /// Only entries about this service
    #[arg(long, value_name = "NAME")]
    service: Option<String>,
    /// Only so many of the newest entries
    #[arg(long, value_name = "COUNT")]
    last: Option<usize>,
    /// Print one JSON object per entry
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll audit                            what happened to the control plane of this machine
  plimsoll audit --service orders --last 5  the last five changes of a service
  plimsoll audit state --json | jq .text

The oldest entry comes first. /api/v1/audit of a running control plane has the same entries.

Exit codes: 0 success, 2 wrong usage or a directory that cannot be read.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let directory = &args.directory;
    let read = audit::read(directory);
    let mut entries = read.with_context(|| format!("no audit in {}", directory.display()))?;
    if let Some(service) = &args.service {
        entries.retain(|entry| entry.is_about(service));
    }
    let from = args
        .last
        .map_or(0, |last| entries.len().saturating_sub(last));
    let written = entries[from..].iter().try_for_each(|entry| {
        if args.json {
            writeln!(out, "{}", serde_json::to_string(entry)?)
        } else {
            writeln!(out, "{}", line(entry))
        }
    });
    ignore_broken_pipe(written.and_then(|()| out.flush())).context("cannot write the audit")?;
    Ok(Exit::Ok)
}

/// Formats an entry as a line: time, number, author, what, and how far it was delivered.
fn line(entry: &AuditRecord) -> String {
    let AuditRecord {
        number, by, text, ..
    } = entry;
    let mut line = format!("{} #{number} {by}: {text}", utc(entry.at_unix_ms));
    if let Some(delivery) = &entry.delivery {
        line += &format!(
            "; accepted by {} of {}",
            delivery.accepted, delivery.streams
        );
        if delivery.refused > 0 {
            line += &format!(", refused by {}", delivery.refused);
        }
    }
    // Reasons may have several lines.
    line.replace('\n', " ")
}

/// Formats a time as in the log, to the second.
fn utc(unix_ms: u64) -> String {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    let Ok(time) = OffsetDateTime::from_unix_timestamp(seconds) else {
        return unix_ms.to_string();
    };
    let month = u8::from(time.month());
    let (year, day) = (time.year(), time.day());
    let (hour, minute, second) = (time.hour(), time.minute(), time.second());
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use plimsoll_control::audit::{AuditDelivery, AuditKind};

    use super::*;

    #[test]
    fn an_entry_is_a_line() {
        let entry = AuditRecord {
            number: 7,
            at_unix_ms: 1_700_000_000_123,
            kind: AuditKind::Changed,
            by: "edit of the files".into(),
            text: "orders: ramp 10 → 50".to_owned(),
            changes: Vec::new(),
            more_changes: 0,
            reason: None,
            delivery: Some(AuditDelivery {
                streams: 3,
                accepted: 2,
                refused: 1,
                closed: 0,
                waiting: 0,
                superseded: false,
                first_ack_ms: None,
                last_ack_ms: None,
            }),
        };
        assert_eq!(
            line(&entry),
            "2023-11-14T22:13:20Z #7 edit of the files: orders: ramp 10 → 50; accepted by 2 of 3, \
             refused by 1"
        );
    }
}
