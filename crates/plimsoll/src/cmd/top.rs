//! `plimsoll top ADDRESS`: the dashboard on a terminal.
//!
//! Here lives asking again and again, and drawing over what was drawn. The document is that of
//! plimsoll-admin; the page lives in `render::top`.

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use anyhow::Context as _;
use plimsoll_admin::state::DashboardState;
use plimsoll_sim::scenario::Span;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::MissedTickBehavior;

use super::{Exit, unless_closed};
use crate::fetch::{self, AdminAddress};
use crate::render::{self, Room, Style};

/// Where the document is.
const PATH: &str = "/dashboard/state";
/// Another screen, so that the shell's is there again afterwards; no cursor; long lines are cut.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// Watch zones, load and nodes in the terminal
///
/// Shows what the dashboard shows, of any address that serves one: every zone against its load
/// line, what stays local, why, and which nodes have trouble. Ctrl-C ends it.
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Admin address, with or without http://
    #[arg(value_name = "ADDRESS", default_value = "127.0.0.1:18001",
          value_parser = AdminAddress::parse)]
    address: AdminAddress,
    /// Only this upstream cluster
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Time between two looks
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = Span::parse)]
    interval: Span,
    /// Look once, print, and end
    #[arg(long)]
    once: bool,
    /// Print the document as JSON, one per line
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  plimsoll top                                     the control plane on this machine
  plimsoll top control.internal:18001 --cluster orders
  plimsoll top --once                              one page, for a ticket
  plimsoll top --once --json                       the document, see docs/dashboard.md

A load of 1.00 is fair: the zone serves its share of the capacity. Without a terminal, pages follow
each other. Colours appear on terminals only, and not when NO_COLOR is set.

Exit codes: 0 fine or ended by Ctrl-C, 2 wrong usage, or with --once nobody answered.";

/// Narrower terminals cut lines.
const LEAST_COLUMNS: usize = 60;
/// Shortest time between two looks.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Looks once, or until it is told to stop.
pub(super) fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let terminal = io::stdout().is_terminal();
    let no_color = std::env::var_os("NO_COLOR");
    let screen = Screen {
        args,
        style: Style::new(terminal, no_color.as_deref()),
        redraw: terminal && !args.once && !args.json,
    };
    let written = runtime.block_on(async {
        if args.once {
            let text = screen.look().await?;
            return anyhow::Ok(write(out, &text));
        }
        screen.watch(out).await
    })?;
    unless_closed(written).context("cannot write")?;
    Ok(Exit::Ok)
}

/// How what was seen is shown.
struct Screen<'a> {
    args: &'a Args,
    style: Style,
    /// Draw over what was drawn.
    redraw: bool,
}

impl Screen<'_> {
    /// What there is to see now.
    async fn look(&self) -> anyhow::Result<String> {
        let body = fetch::get(&self.args.address, PATH).await?;
        let strange = || format!("http://{}{PATH}: not a dashboard", self.args.address);
        let mut state: DashboardState = serde_json::from_slice(&body).with_context(strange)?;
        if let Some(wanted) = &self.args.cluster {
            state.clusters.retain(|one| &one.cluster == wanted);
        }
        if self.args.json {
            return Ok(format!("{}\n", serde_json::to_string(&state)?));
        }
        Ok(render::top(&state, self.style, self.room()))
    }

    /// As much as the terminal has; a page on paper may be long.
    fn room(&self) -> Room {
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let Some(size) = size.filter(|size| size.ws_col > 0) else {
            return Room::PAPER;
        };
        Room {
            columns: usize::from(size.ws_col).clamp(LEAST_COLUMNS, Room::PAPER.columns),
            // The last row stays empty: a line break there would scroll.
            rows: self
                .redraw
                .then(|| usize::from(size.ws_row.saturating_sub(1))),
        }
    }

    async fn watch(&self, out: &mut impl Write) -> anyhow::Result<io::Result<()>> {
        let mut terminate = signal(SignalKind::terminate()).context("cannot hear signals")?;
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
                // Whoever watches wants to see it come back.
                self.look()
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
        over(text, usize::from(rows))
    }
}

/// The text as it is drawn over an older one on a screen with so many rows; 0 is not known.
fn over(text: &str, rows: usize) -> String {
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
    fn a_frame_clears_what_was_there_and_fits() {
        let all = over("a\nb\n", 24);
        assert_eq!(all, "\u{1b}[Ha\u{1b}[K\r\nb\u{1b}[K\r\n\u{1b}[J");
        let long = over(&"x\n".repeat(50), 10);
        assert_eq!(long.matches("\r\n").count(), 8);
        assert!(long.contains("… 42 more lines"), "{long}");
        assert_eq!(
            over("a\nb\n", 0),
            all,
            "a terminal that does not know its size"
        );
    }
}
