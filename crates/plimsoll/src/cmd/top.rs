//! `plimsoll top ADDRESS`: the dashboard in a terminal. Polls the JSON document that plimsoll-admin
//! serves and redraws the screen; `render::top` draws the page.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_admin::state::DashboardState;
use plimsoll_sim::scenario::HumanDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::{Exit, ignore_broken_pipe};
use crate::fetch::{self, AdminAddress};
use crate::render::{self, PageSize, Style};

/// Path of the dashboard's JSON document on the admin address.
const PATH: &str = "/dashboard/state";
/// Switches to the alternate screen, hides the cursor and turns line wrap off.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
/// Reverts the settings of `ENTER`.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// Watch zones, load and nodes in the terminal
///
/// Shows the dashboard of a control plane, proxy or demo as text: the load of every zone relative
/// to its fair share, the share of requests that stays local, the reason, and nodes with problems.
/// Ctrl-C exits.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Admin address (HOST:PORT), with or without http://
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:18001",
          value_parser = AdminAddress::parse)]
    address: AdminAddress,
    /// Show only this upstream cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Poll interval, for example 500ms or 5s; at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = HumanDuration::parse)]
    interval: HumanDuration,
    /// Print one page and exit
    #[arg(long)]
    once: bool,
    /// Print the document as JSON, one line per poll
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll top                                     watch the control plane on this machine
  plimsoll top control.internal:18001 --cluster orders
  plimsoll top --once                              print one page, for example for a ticket
  plimsoll top --once --json                       print the document (docs/dashboard.md)

A load of 1.00 is fair: the zone serves exactly its share of the capacity. If the output is not a
terminal, pages are printed one after another. Color is used on terminals only, and not if NO_COLOR
is set.

Exit codes: 0 success or Ctrl-C, 2 wrong usage, or no answer with --once.";

/// Minimum page width; narrower terminals cut lines off.
const MIN_COLUMNS: usize = 60;
/// Lower limit of `--interval`.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Prints one page, or polls until Ctrl-C or SIGTERM.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let terminal = io::stdout().is_terminal();
    let no_color = std::env::var_os("NO_COLOR");
    let screen = Screen {
        args,
        style: Style::new(terminal, no_color.as_deref()),
        redraw: terminal && !args.once && !args.json,
    };
    let written = runtime.block_on(async {
        if args.once {
            let text = screen.poll().await?;
            return anyhow::Ok(write(out, &text));
        }
        screen.watch(out).await
    })?;
    ignore_broken_pipe(written).context("cannot write the page")?;
    Ok(Exit::Ok)
}

struct Screen<'a> {
    args: &'a Args,
    style: Style,
    /// Whether to draw each page over the previous one.
    redraw: bool,
}

impl Screen<'_> {
    /// Fetches the dashboard document and formats it as a page or as JSON.
    async fn poll(&self) -> anyhow::Result<String> {
        let body = fetch::get(&self.args.address, PATH).await?;
        let unexpected = || {
            format!(
                "http://{}{PATH}: not a dashboard document",
                self.args.address
            )
        };
        let mut state: DashboardState = serde_json::from_slice(&body).with_context(unexpected)?;
        if let Some(cluster) = &self.args.cluster {
            state.clusters.retain(|one| &one.cluster == cluster);
        }
        if self.args.json {
            return Ok(format!("{}\n", serde_json::to_string(&state)?));
        }
        Ok(render::top(&state, self.style, self.page_size()))
    }

    /// Returns the size of the terminal; without a terminal, the number of rows is not limited.
    fn page_size(&self) -> PageSize {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let Some(size) = size.filter(|size| size.ws_col > 0) else {
            return PageSize::UNLIMITED;
        };
        PageSize {
            columns: usize::from(size.ws_col).clamp(MIN_COLUMNS, PageSize::UNLIMITED.columns),
            // The last row stays empty: a line break there would scroll.
            rows: self
                .redraw
                .then(|| usize::from(size.ws_row.saturating_sub(1))),
        }
    }

    async fn watch(&self, out: &mut impl Write) -> anyhow::Result<io::Result<()>> {
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
        let mut ticks = tokio::time::interval(self.args.interval.0.max(MIN_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = if self.redraw {
            write(out, ENTER)
        } else {
            Ok(())
        };
        while written.is_ok() {
            let next = async {
                ticks.tick().await;
                // Show the error and keep polling: the server may come back.
                self.poll()
                    .await
                    .unwrap_or_else(|error| format!("{error:#}\n"))
            };
            let text = tokio::select! {
                _ = tokio::signal::ctrl_c() => break,
                _ = terminate.recv() => break,
                text = next => text,
            };
            written = write(out, &self.frame(&text));
        }
        if self.redraw {
            written = written.and(write(out, LEAVE));
        }
        Ok(written)
    }

    fn frame(&self, text: &str) -> String {
        if !self.redraw {
            return if self.args.json {
                text.to_owned()
            } else {
                format!("{text}\n")
            };
        }
        let rows = rustix::termios::tcgetwinsize(io::stdout()).map_or(0, |size| size.ws_row);
        redraw(text, usize::from(rows))
    }
}

/// Returns `text` with the control codes that draw it over the previous page on a terminal with
/// this many rows; 0 means unknown.
fn redraw(text: &str, rows: usize) -> String {
    let total = text.lines().count();
    let shown = if rows == 0 || total < rows {
        total
    } else {
        rows.saturating_sub(2)
    };
    let mut frame = String::from("\u{1b}[H");
    for line in text.lines().take(shown) {
        frame.push_str(line);
        frame.push_str("\u{1b}[K\r\n");
    }
    if shown < total {
        frame.push_str(&format!(
            "… {} more lines; --cluster NAME shows one cluster",
            total - shown
        ));
        frame.push_str("\u{1b}[K");
    }
    frame.push_str("\u{1b}[J");
    frame
}

fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    out.write_all(text.as_bytes())?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_clears_the_previous_one_and_fits_the_screen() {
        let all = redraw("a\nb\n", 24);
        assert_eq!(all, "\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\r\n\u{1b}[J");
        let long = redraw(&"x\n".repeat(50), 10);
        assert_eq!(long.matches("\r\n").count(), 8);
        assert!(long.contains("… 42 more lines"), "{long}");
        assert_eq!(redraw("a\nb\n", 0), all, "the terminal's size is not known");
    }
}
