//! `plimsoll report ADDRESS`: a page about all services of a control plane, to send to others.
//! Reads `/api/v1/zone-loss`; `render::report` writes Markdown and HTML.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context as _;
use plimsoll_admin::zone_loss::{ServiceZoneLoss, ZoneLosses};
use plimsoll_serve::fetch::{self, AdminAddress};

use super::{Exit, ignore_broken_pipe};
use crate::render::{ReportFormat, report};

/// Services to ask for at once: the most that the API answers.
const PAGE: usize = 1000;

/// Write a report about all services, to send to others
///
/// A row per service: its requests, how full its zones are, and how full they would be without the
/// zone whose loss is worst. Services that could not lose a zone come first.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Admin address of a control plane (HOST:PORT), with or without http://
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:18001",
          value_parser = AdminAddress::parse)]
    address: AdminAddress,
    /// Form of the report
    #[arg(long, default_value = "markdown")]
    format: ReportFormat,
    /// Write to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Exit with 1 if a service cannot lose a zone
    #[arg(long)]
    fail: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll report                                  Markdown, of the control plane on this machine
  plimsoll report control.internal:18001 --format html --output zones.html
  plimsoll report --fail                           for a pipeline: 1 if a zone cannot be lost

Exit codes: 0 success, 1 with --fail if a service cannot lose a zone, 2 wrong usage, or no answer.";

pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let services = runtime.block_on(all(&args.address))?;
    let text = report(&services, &args.address.to_string(), args.format);
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .with_context(|| format!("cannot write {}", path.display()))?,
        None => {
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            ignore_broken_pipe(written).context("cannot write the report")?;
        }
    }
    let mut zones = services.iter().flat_map(|service| &service.zones);
    let exceeds = args.fail && zones.any(|zone| zone.exceeds);
    Ok(if exceeds { Exit::Failure } else { Exit::Ok })
}

/// Fetches the services page by page.
async fn all(address: &AdminAddress) -> anyhow::Result<Vec<ServiceZoneLoss>> {
    let mut services = Vec::new();
    loop {
        let offset = services.len();
        let path = format!("/api/v1/zone-loss?offset={offset}&limit={PAGE}");
        let body = fetch::get(address, &path).await?;
        let page: ZoneLosses = serde_json::from_slice(&body)
            .with_context(|| format!("http://{address}{path}: not the API of a control plane"))?;
        let is_last = page.services.is_empty() || offset + page.services.len() >= page.total;
        services.extend(page.services);
        if is_last {
            return Ok(services);
        }
    }
}
