//! The demo: control plane, three zones of proxies and backends, and clients, in one process on
//! loopback. Everything but the capacity of the backends is real: sockets, discovery, load reports
//! (LRS and ORCA), routing.
//!
//! `environment` runs the parts, `setting` and `texts` define the actions of a user, `document`
//! builds the dashboard, `summary` the status line. `plimsoll demo` calls [`run`].

#![cfg_attr(docsrs, feature(doc_cfg))]

mod backend;
mod capacity;
mod clients;
mod control;
mod counters;
mod document;
mod environment;
mod envoy;
mod log_lines;
mod proxy;
mod script;
mod setting;
mod summary;
mod texts;

use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_admin::Dashboard;
use plimsoll_admin::source::Source;
use plimsoll_control::run::Context;
use plimsoll_serve::{AdminOptions, CancellationToken, bind, guarded, text_error};
use plimsoll_xds::yaml::ConfigError;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use document::DemoSource;
use environment::Environment;
use envoy::{Program, SearchPaths};
use script::Script;
use setting::Action;

#[doc(hidden)]
pub use log_lines::LOG_LINES;

/// Default address of the dashboard; a free port is used if this one is taken.
const DEFAULT_ADMIN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 18080);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(250);
/// Samples of the counters per status line if the output is not a terminal.
const LINE_EVERY: u32 = 20;
/// Samples of the counters per JSON object.
const JSON_EVERY: u32 = 4;

/// What the demo runs, and how it reports.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the dashboard; `None` for the default.
    pub admin: Option<SocketAddr>,
    /// Additional Host names that the dashboard accepts.
    pub admin_hosts: Vec<String>,
    /// Run through all steps automatically.
    pub auto: bool,
    /// Time after which the demo ends.
    pub duration: Option<Duration>,
    /// Seed of the random numbers of backends and clients; balancers have their own.
    pub seed: u64,
    /// Print JSON objects instead of text.
    pub json: bool,
    /// `Some` to use Envoys as proxies, with the binary's path if `--envoy` is given.
    pub envoy: Option<Option<PathBuf>>,
    pub control_dashboard: ControlDashboard,
}

/// The dashboard of the control plane, which is built by the program that runs the demo.
#[derive(Clone, Copy, Debug)]
pub struct ControlDashboard {
    /// Serves it on the control plane's own admin address.
    pub admin: fn(Context) -> AdminOptions,
    /// Answers the explain questions of the demo's dashboard.
    pub source: fn(Context) -> Arc<dyn Source>,
}

/// Runs the demo until `stopping` is canceled or the duration is over.
pub async fn run(
    options: Options,
    out: &mut impl Write,
    stopping: CancellationToken,
) -> anyhow::Result<()> {
    let envoy = match &options.envoy {
        Some(path) => Some(Program::new(SearchPaths::new(path.clone()).find()?)?),
        None => None,
    };
    let starting = Environment::start(options.seed, envoy, options.control_dashboard);
    let environment = tokio::select! {
        environment = starting => Arc::new(environment?),
        () = stopping.cancelled() => return Ok(()),
    };
    let (address, dashboard) = serve(Arc::clone(&environment), &options, &stopping).await?;
    let mut output = Output::new(options.json, out);
    let result = tokio::select! {
        result = report(&environment, &options, address, &mut output) => result,
        () = stopping.cancelled() => Ok(()),
    };
    output.finish();
    stopping.cancel();
    dashboard.await?;
    environment.stop().await?;
    result.or_else(ignore_broken_pipe)
}

/// Ignores a broken pipe: the reader of the output has exited.
fn ignore_broken_pipe(error: anyhow::Error) -> anyhow::Result<()> {
    match error.downcast_ref::<io::Error>() {
        Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}

async fn serve(
    environment: Arc<Environment>,
    options: &Options,
    stopping: &CancellationToken,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let (listener, address) = match options.admin {
        Some(address) => bind::<ConfigError>(address).await?,
        None => match bind::<ConfigError>(DEFAULT_ADMIN).await {
            Ok(bound) => bound,
            Err(_) => bind::<ConfigError>((DEFAULT_ADMIN.ip(), 0).into()).await?,
        },
    };
    let router = Dashboard::new(DemoSource::new(environment, stopping.clone()))
        .recording()
        .router();
    let router = guarded(router, &options.admin_hosts, text_error);
    let stopped = stopping.clone().cancelled_owned();
    let task = tokio::spawn(plimsoll_serve::serve(listener, router, stopped));
    Ok((address, task))
}

/// Samples counters, runs the script and reports to `output`, until the duration is over.
async fn report(
    environment: &Arc<Environment>,
    options: &Options,
    address: SocketAddr,
    output: &mut Output<'_, impl Write>,
) -> anyhow::Result<()> {
    let control = environment
        .control_bound()
        .await
        .and_then(|bound| bound.admin);
    output.welcome(address, control, options.auto)?;
    if options.envoy.is_some() && !options.json {
        output.line(format!("Proxies: {}.", environment.proxy_name()))?;
    }
    let mut script = Script::new(options.auto, options.duration);
    let started = Instant::now();
    let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tick = 0_u32;
    let mut last = None;
    loop {
        ticks.tick().await;
        environment.sample().await;
        if let Some(action) = script.next(started.elapsed()) {
            match environment.unavailable(action) {
                Some(why) => output.skipped(action, &why)?,
                None => environment.act(action).await?,
            }
        }
        let status = environment.status();
        if last != Some((status.last, status.setting)) {
            last = Some((status.last, status.setting));
            output.event(status.last)?;
        }
        tick = tick.wrapping_add(1);
        output.status(&status, tick)?;
        let over = options.duration.is_some_and(|end| started.elapsed() >= end);
        // On a slow machine the script may take longer than the duration.
        if over && script.is_done() {
            return Ok(());
        }
    }
}

/// Progress output: on a terminal one status line in place, otherwise one line after another.
struct Output<'a, W: Write> {
    out: &'a mut W,
    json: bool,
    bar: Option<ProgressBar>,
}

impl<'a, W: Write> Output<'a, W> {
    fn new(json: bool, out: &'a mut W) -> Self {
        let terminal = io::stdout().is_terminal() && io::stderr().is_terminal();
        let bar = (terminal && !json).then(|| {
            let style = ProgressStyle::with_template("{msg}");
            ProgressBar::new_spinner()
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
        });
        Self { out, json, bar }
    }

    fn welcome(
        &mut self,
        address: SocketAddr,
        control: Option<SocketAddr>,
        auto: bool,
    ) -> io::Result<()> {
        if self.json {
            let control = control.map(|control| format!("http://{control}/"));
            let line = serde_json::json!({
                "type": "start",
                "dashboard": format!("http://{address}/"),
                "control_plane": control,
            });
            writeln!(self.out, "{line}")?;
            return self.out.flush();
        }
        let buttons = if auto {
            "The demo runs through its steps automatically; the buttons on the dashboard work too."
        } else {
            "Use the buttons on the dashboard to change routing and traffic and to cause failures."
        };
        writeln!(self.out, "dashboard on http://{address}/")?;
        writeln!(self.out, "{buttons}\nPress Ctrl-C to stop.\n")?;
        if let Some(control) = control {
            writeln!(
                self.out,
                "The control plane has its own dashboard: http://{control}/\n"
            )?;
        }
        self.out.flush()
    }

    fn event(&mut self, action: Action) -> io::Result<()> {
        let text = if self.json {
            summary::event(action).to_string()
        } else {
            format!("» {}. {}", action.event(), action.hint())
        };
        self.line(text)
    }

    /// Reports a step of the script that is skipped because the proxies do not support it.
    fn skipped(&mut self, action: Action, why: &str) -> io::Result<()> {
        let text = if self.json {
            summary::skipped(action, why).to_string()
        } else {
            format!("» {} is skipped: {why}.", action.label())
        };
        self.line(text)
    }

    fn line(&mut self, text: String) -> io::Result<()> {
        match &self.bar {
            Some(bar) => bar.println(wrap(columns(), &text)),
            None => {
                writeln!(self.out, "{text}")?;
                self.out.flush()?;
            }
        }
        Ok(())
    }

    fn status(&mut self, status: &environment::Status, tick: u32) -> io::Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_message(summary::text(status, columns()));
            bar.tick();
            return Ok(());
        }
        let every = if self.json { JSON_EVERY } else { LINE_EVERY };
        if !tick.is_multiple_of(every) {
            return Ok(());
        }
        if self.json {
            writeln!(self.out, "{}", summary::json(status))?;
        } else {
            writeln!(self.out, "{}", summary::text(status, usize::MAX))?;
        }
        self.out.flush()
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Returns the width of the terminal: a longer status line would wrap and not be overwritten.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let columns = size.map(|size| usize::from(size.ws_col));
    columns.filter(|columns| *columns > 0).unwrap_or(80)
}

/// Breaks a text into lines between words.
fn wrap(columns: usize, text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let width = word.chars().count();
        if column > 0 {
            let fits = column + 1 + width <= columns;
            lines.push(if fits { ' ' } else { '\n' });
            column = if fits { column + 1 } else { 0 };
        }
        lines.push_str(word);
        column += width;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrap(9, "zone-a is full"), "zone-a is\nfull");
        assert_eq!(wrap(8, "zone-a  is full"), "zone-a\nis full");
        assert_eq!(wrap(4, "zone-a is"), "zone-a\nis");
        assert_eq!(wrap(80, ""), "");
    }
}
