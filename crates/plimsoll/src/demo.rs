//! The demo: a control plane, three zones of proxies and backends, and clients, in one process on
//! loopback.
//!
//! Everything but the backends' capacity is real: sockets, discovery, load reports (LRS and ORCA),
//! the engine. `stage` runs the parts, `setting` and `words` are what a visitor can do, `document`
//! is the page, `summary` the line in the terminal. Called by `cmd::demo`.

mod backend;
mod capacity;
mod control;
mod counters;
mod document;
mod envoy;
mod load;
mod proxy;
mod script;
mod setting;
mod stage;
mod summary;
mod words;

use std::io::{self, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::IntoResponse as _;
use indicatif::{ProgressBar, ProgressStyle};
use plimsoll_admin::Dashboard;
use plimsoll_xds::driver::HttpGuard;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use document::DemoSource;
use envoy::{Places, Program};
use script::Script;
use setting::Action;
use stage::Stage;

use crate::render::wrap_to;

/// Where the dashboard is unless somebody says otherwise and the port is free.
const FRIENDLY: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 18080);
/// Time between two looks at the counters.
const SAMPLE: Duration = Duration::from_millis(250);
/// Looks for one line where lines follow each other.
const LINE_EVERY: u32 = 20;
/// The same for programs.
const JSON_EVERY: u32 = 4;

/// What the command line says.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Where the dashboard is to be.
    pub(crate) admin: Option<SocketAddr>,
    /// Its further names.
    pub(crate) admin_hosts: Vec<String>,
    /// Walk through the script.
    pub(crate) auto: bool,
    /// End after this time.
    pub(crate) duration: Option<Duration>,
    /// Start of all chance that is the demo's own.
    pub(crate) seed: u64,
    /// Lines for programs.
    pub(crate) json: bool,
    /// Real Envoys instead of our proxies, and where the program is if somebody said so.
    pub(crate) envoy: Option<Option<PathBuf>>,
}

/// Runs until `shutdown` is done or the time is over.
pub(crate) async fn run(
    options: Options,
    out: &mut impl Write,
    shutdown: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    let mut shutdown = std::pin::pin!(shutdown);
    let envoy = match &options.envoy {
        Some(asked) => Some(Program::new(Places::new(asked.clone()).find()?)?),
        None => None,
    };
    let stage = tokio::select! {
        stage = Stage::start(options.seed, envoy) => Arc::new(stage?),
        () = &mut shutdown => return Ok(()),
    };
    let (stop, stopping) = watch::channel(());
    let (address, page) = serve(Arc::clone(&stage), &options, stopping).await?;
    let mut teller = Teller::new(options.json, out);
    let told = tokio::select! {
        told = tell(&stage, &options, address, &mut teller) => told,
        () = shutdown => Ok(()),
    };
    teller.finish();
    drop(stop);
    page.await?;
    stage.stop().await?;
    told.or_else(closed_is_fine)
}

/// Who reads may have left: then there is nobody to tell.
fn closed_is_fine(error: anyhow::Error) -> anyhow::Result<()> {
    match error.downcast_ref::<io::Error>() {
        Some(io) if io.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        _ => Err(error),
    }
}

/// Serves the page until `stopping` has no sender any more.
async fn serve(
    stage: Arc<Stage>,
    options: &Options,
    stopping: watch::Receiver<()>,
) -> anyhow::Result<(SocketAddr, JoinHandle<()>)> {
    let listener = match options.admin {
        Some(address) => {
            let bound = TcpListener::bind(address).await;
            bound.with_context(|| format!("cannot listen on {address}"))?
        }
        None => match TcpListener::bind(FRIENDLY).await {
            Ok(listener) => listener,
            Err(_) => TcpListener::bind((FRIENDLY.ip(), 0)).await?,
        },
    };
    let address = listener.local_addr()?;
    let mut stopped = stopping.clone();
    let guard = HttpGuard::new(&options.admin_hosts);
    let router = Dashboard::new(DemoSource::new(stage, stopping)).router();
    let router = router.layer(from_fn(move |request: Request, next: Next| {
        let checked = guard.check(&request);
        async move {
            match checked {
                Ok(()) => next.run(request).await,
                Err(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
            }
        }
    }));
    let ended = async move { while stopped.changed().await.is_ok() {} };
    let page = tokio::spawn(async move {
        let served = axum::serve(listener, router).with_graceful_shutdown(ended);
        if let Err(error) = served.await {
            tracing::error!(%error, "the dashboard is gone");
        }
    });
    Ok((address, page))
}

/// Samples, walks through the script and tells about it, until the time is over.
async fn tell(
    stage: &Arc<Stage>,
    options: &Options,
    address: SocketAddr,
    teller: &mut Teller<'_, impl Write>,
) -> anyhow::Result<()> {
    let control = stage.control_bound().await.and_then(|bound| bound.admin);
    teller.welcome(address, control, options.auto)?;
    if options.envoy.is_some() && !options.json {
        teller.line(format!("The proxies are real: {}.", stage.proxies_are()))?;
    }
    let mut script = Script::new(options.auto, options.duration);
    let started = Instant::now();
    let mut ticks = tokio::time::interval(SAMPLE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tick = 0_u32;
    let mut last = None;
    loop {
        ticks.tick().await;
        stage.sample().await;
        if let Some(action) = script.next(started.elapsed()) {
            match stage.unavailable(action) {
                Some(why) => teller.skipped(action, &why)?,
                None => stage.act(action).await?,
            }
        }
        let scene = stage.scene();
        if last != Some((scene.last, scene.setting)) {
            last = Some((scene.last, scene.setting));
            teller.event(scene.last)?;
        }
        tick = tick.wrapping_add(1);
        teller.scene(&scene, tick)?;
        let over = options.duration.is_some_and(|end| started.elapsed() >= end);
        // On a slow machine the walk takes longer than it should.
        if over && script.is_done() {
            return Ok(());
        }
    }
}

/// Says what happens: one line in place on a terminal, lines that follow each other elsewhere.
struct Teller<'a, W: Write> {
    out: &'a mut W,
    json: bool,
    bar: Option<ProgressBar>,
}

impl<'a, W: Write> Teller<'a, W> {
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
        let walk = match auto {
            true => "The demo walks through its script by itself; the buttons there work too.",
            false => "The buttons there change routing and traffic, and break things.",
        };
        writeln!(self.out, "dashboard on http://{address}/")?;
        writeln!(self.out, "{walk}\nCtrl-C ends everything.\n")?;
        if let Some(control) = control {
            writeln!(
                self.out,
                "The control plane has a page of its own: http://{control}/\n"
            )?;
        }
        self.out.flush()
    }

    fn event(&mut self, action: Action) -> io::Result<()> {
        let text = match self.json {
            true => summary::event(action).to_string(),
            false => format!("» {}. {}", action.done(), action.look()),
        };
        self.line(text)
    }

    /// A step of the walk that these proxies cannot do.
    fn skipped(&mut self, action: Action, why: &str) -> io::Result<()> {
        let text = match self.json {
            true => summary::skipped(action, why).to_string(),
            false => format!("» {} is left out: {why}.", action.label()),
        };
        self.line(text)
    }

    fn line(&mut self, text: String) -> io::Result<()> {
        match &self.bar {
            Some(bar) => bar.println(wrap_to(columns(), "", &text).trim_end()),
            None => {
                writeln!(self.out, "{text}")?;
                self.out.flush()?;
            }
        }
        Ok(())
    }

    fn scene(&mut self, scene: &stage::Scene, tick: u32) -> io::Result<()> {
        if let Some(bar) = &self.bar {
            bar.set_message(summary::text(scene, columns()));
            bar.tick();
            return Ok(());
        }
        let every = if self.json { JSON_EVERY } else { LINE_EVERY };
        if !tick.is_multiple_of(every) {
            return Ok(());
        }
        match self.json {
            true => writeln!(self.out, "{}", summary::json(scene))?,
            false => writeln!(self.out, "{}", summary::text(scene, usize::MAX))?,
        }
        self.out.flush()
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Columns of the terminal; a line that is longer would not stay in its place.
fn columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let columns = size.map(|size| usize::from(size.ws_col));
    columns.filter(|columns| *columns > 0).unwrap_or(80)
}
