//! `plimsoll top ADDRESS`: the dashboard in a terminal. Polls the JSON document that plimsoll-admin
//! serves and redraws the screen; `render::top` draws the page, `keys` reads the keyboard.

mod keys;

use std::io::{self, IsTerminal as _, Write};
use std::time::Duration;

use anyhow::{Context as _, bail};
use plimsoll_admin::state::DashboardState;
use plimsoll_serve::fetch::{self, AdminAddress};
use plimsoll_sim::scenario::HumanDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant, MissedTickBehavior};

use super::{Exit, ignore_broken_pipe};
use crate::render::{self, PageSize, Style};
use keys::Keys;

/// Path of the dashboard's JSON document on the admin address.
const PATH: &str = plimsoll_admin::STATE_PATH.0;
/// Switches to the alternate screen, hides the cursor and turns line wrap off.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
/// Reverts the settings of `ENTER`.
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";

/// Watch zones, load and nodes in the terminal
///
/// Shows the dashboard of a control plane, proxy or demo as text: the load of every zone relative
/// to its load line, highest first, the share of requests that stays local, the reason, and nodes
/// with problems. q, Esc and Ctrl-C quit.
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

A load of 1.00 is the load line: the zone serves exactly its share of the capacity. If the server
stops answering, the last page stays, with its age. If the output is not a terminal, pages are
printed one after another. Color is used on terminals only, and not if NO_COLOR is set. The words of
the page are in docs/glossary.md.

Exit codes: 0 success, or q, Esc or Ctrl-C; 2 wrong usage, an unknown --cluster, an address that is
not an admin address, or no answer with --once.";

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
            let known = names(&state);
            state.clusters.retain(|one| &one.cluster == cluster);
            if state.clusters.is_empty() {
                bail!(
                    "{cluster:?} is not a cluster of {}; {known}",
                    self.args.address
                );
            }
        }
        if self.args.json {
            return Ok(format!("{}\n", serde_json::to_string(&state)?));
        }
        Ok(render::top(&state, self.style, self.page_size()))
    }

    /// Returns what to show after a poll: the page, or the last one below the error.
    fn shown(&self, polled: anyhow::Result<String>, last: &mut Option<Page>) -> String {
        match polled {
            Ok(text) => {
                let at = Instant::now();
                *last = Some(Page {
                    text: text.clone(),
                    at,
                });
                text
            }
            Err(error) => {
                let banner = match last {
                    Some(page) => {
                        let age = page.at.elapsed().as_secs();
                        format!("no answer, this page is {age} s old: {error:#}")
                    }
                    None => format!("{error:#}"),
                };
                let columns = self.page_size().columns;
                let banner = render::banner(&banner, self.style, columns);
                let page = last.as_ref().filter(|_| !self.args.json);
                format!("{banner}{}", page.map_or("", |page| &page.text))
            }
        }
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
        // Before the first page: a signal must not leave the terminal without cursor.
        let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle signals")?;
        let mut ticks = tokio::time::interval(self.args.interval.0.max(MIN_INTERVAL));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // What will not get better by waiting fails before the screen is cleared.
        let first = match self.poll().await {
            Err(error) if is_permanent(&error) => return Err(error),
            first => first,
        };
        let mut keys = self.redraw.then(Keys::start).flatten();
        let mut written = if self.redraw {
            write(out, ENTER)
        } else {
            Ok(())
        };
        let mut last = None;
        let mut polled = first;
        while written.is_ok() {
            // Show an error and keep polling: the server may come back.
            written = write(out, &self.frame(&self.shown(polled, &mut last)));
            let next = async {
                ticks.tick().await;
                self.poll().await
            };
            polled = tokio::select! {
                _ = interrupt.recv() => break,
                _ = terminate.recv() => break,
                () = quit(keys.as_mut()) => break,
                polled = next => polled,
            };
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

/// The last page that was received.
struct Page {
    text: String,
    at: Instant,
}

/// Lists the clusters that a document has.
fn names(state: &DashboardState) -> String {
    let mut names: Vec<&str> = state
        .clusters
        .iter()
        .map(|cluster| cluster.cluster.as_str())
        .collect();
    names.dedup();
    match names.as_slice() {
        [] => "none is known yet".to_owned(),
        names => format!("known are {}", names.join(", ")),
    }
}

/// Whether an error is about the arguments rather than about the moment.
fn is_permanent(error: &anyhow::Error) -> bool {
    let is_io = |cause: &(dyn std::error::Error + 'static)| cause.is::<io::Error>();
    !error.chain().any(is_io) && !error.is::<fetch::NoAnswer>()
}

/// Waits for a key that quits; forever without a terminal.
async fn quit(keys: Option<&mut Keys>) {
    match keys {
        Some(keys) => keys.quit().await,
        None => std::future::pending().await,
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
        // Cleared before: behind the last column, the cursor stays on it, and its character would
        // be cleared.
        frame.push_str("\u{1b}[K");
        frame.push_str(line);
        frame.push_str("\r\n");
    }
    if shown < total {
        frame.push_str(&format!(
            "\u{1b}[K… {} more lines; --cluster NAME shows one cluster, q quits",
            total - shown
        ));
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
        assert_eq!(all, "\u{1b}[H\u{1b}[Ka\r\n\u{1b}[Kb\r\n\u{1b}[J");
        let long = redraw(&"x\n".repeat(50), 10);
        assert_eq!(long.matches("\r\n").count(), 8);
        assert!(long.contains("… 42 more lines"), "{long}");
        assert_eq!(redraw("a\nb\n", 0), all, "the terminal's size is not known");
    }
}
