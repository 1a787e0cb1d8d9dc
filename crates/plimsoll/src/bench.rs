//! The scale bench of the control plane: a large synthetic fleet on loopback.
//!
//! `child` is the process that is measured, `node` one synthetic Envoy, `messages` what it says,
//! `spread` follows how updates reach everybody, `report` holds the figures and the page. Here is
//! the order of events. Called by `cmd::bench`.

mod child;
mod messages;
mod node;
mod report;
mod spread;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use plimsoll_xds::ads::Variant;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use self::child::{Child, Usage};
use self::node::Node;
pub(crate) use self::report::Report;
use self::report::{Figures, Machine};
use self::spread::Spread;

/// Connections that are opened at the same time.
const OPENING: usize = 100;
/// Descriptors beside those of the proxies.
const SPARE_FILES: u64 = 64;
/// How long anything may take before the bench gives up.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Proxies.
    pub(crate) nodes: usize,
    /// Time between two reports.
    pub(crate) interval: Duration,
    /// How long to measure at constant demand.
    pub(crate) duration: Duration,
    /// What the proxies speak.
    pub(crate) variant: Variant,
}

/// How far it is.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// What is going on.
    pub(crate) phase: &'static str,
    /// How much of it is done.
    pub(crate) done: u64,
    /// Of how much.
    pub(crate) total: u64,
}

/// What the proxies share.
pub(crate) struct Shared {
    plan: Plan,
    spread: Spread,
    /// The demand of one zone has doubled.
    stepped: AtomicBool,
    ready: AtomicU64,
    lost: AtomicU64,
    reports: AtomicU64,
    responses: AtomicU64,
}

/// Measures. Blocks until done.
pub(crate) fn run(plan: &Plan, progress: &dyn Fn(Progress)) -> anyhow::Result<Report> {
    raise_file_limit(plan.nodes)?;
    // One thread: what is measured needs the other cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let child = Child::start(plan)?;
    runtime.block_on(measure(plan, &child, progress))
}

/// The synthetic proxies of this process need a descriptor each; so does the child, which inherits
/// the limit.
fn raise_file_limit(nodes: usize) -> anyhow::Result<()> {
    let mut limit = getrlimit(Resource::Nofile);
    let needed = nodes as u64 + SPARE_FILES;
    ensure!(
        limit.maximum.is_none_or(|maximum| maximum >= needed),
        "{nodes} proxies need {needed} file descriptors, and no more than {} are allowed \
         (ulimit -Hn); try fewer --nodes",
        limit.maximum.unwrap_or_default(),
    );
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).context("cannot raise the limit of file descriptors")
}

async fn measure(
    plan: &Plan,
    child: &Child,
    progress: &dyn Fn(Progress),
) -> anyhow::Result<Report> {
    let shared = Arc::new(Shared::new(plan));
    let begun = Instant::now();
    connect(&shared, child, progress).await?;
    let connect_time = begun.elapsed();
    // Everybody has reported once, and what followed has been delivered.
    let settle = plan.interval + plan.interval / 4 + Duration::from_secs(2);
    pause("waiting for demand to settle", settle, &shared, progress).await?;

    let before = (Instant::now(), child.usage()?, shared.counts());
    pause("measuring steady state", plan.duration, &shared, progress).await?;
    let steady = Window::since(&before, child.usage()?, &shared);

    let before = (Instant::now(), child.usage()?, shared.counts());
    shared.spread.begin();
    shared.stepped.store(true, Ordering::Relaxed);
    let step = plan.interval * 2 + Duration::from_secs(2);
    pause("demand has stepped", step, &shared, progress).await?;
    let stepped = Window::since(&before, child.usage()?, &shared);
    let updates = shared.spread.outcome();

    Ok(Report::new(
        Machine::read(),
        plan,
        Figures {
            connect_time,
            steady,
            stepped,
            updates,
            peak_memory: child.usage()?.peak_memory,
            lost: shared.lost.load(Ordering::Relaxed),
        },
    ))
}

/// Starts all proxies and waits until each has its assignments and was asked for reports.
async fn connect(
    shared: &Arc<Shared>,
    child: &Child,
    progress: &dyn Fn(Progress),
) -> anyhow::Result<()> {
    let opening = Arc::new(Semaphore::new(OPENING));
    let address = child.address();
    for index in 0..shared.plan.nodes {
        let shared = Arc::clone(shared);
        let node = Node::new(index, Arc::clone(&shared), Arc::clone(&opening));
        tokio::spawn(async move {
            // What is wrong is counted: the figures of a fleet with holes say so.
            if let Err(error) = node.run(address).await {
                tracing::debug!(index, "lost: {error:#}");
            }
            shared.lost.fetch_add(1, Ordering::Relaxed);
        });
    }
    let total = shared.plan.nodes as u64;
    let begun = Instant::now();
    loop {
        let ready = shared.ready.load(Ordering::Relaxed);
        progress(Progress {
            phase: "connecting",
            done: ready,
            total,
        });
        let lost = shared.lost.load(Ordering::Relaxed);
        ensure!(
            lost == 0,
            "{lost} of {total} proxies lost their connection while the others were connecting"
        );
        if ready == total {
            return Ok(());
        }
        ensure!(
            begun.elapsed() < PATIENCE,
            "only {ready} of {total} proxies were served within {} s",
            PATIENCE.as_secs()
        );
        tokio::time::sleep(LOOK).await;
    }
}

async fn pause(
    phase: &'static str,
    length: Duration,
    shared: &Shared,
    progress: &dyn Fn(Progress),
) -> anyhow::Result<()> {
    let begun = Instant::now();
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    while begun.elapsed() < length {
        progress(Progress {
            phase,
            done: millis(begun.elapsed()),
            total: millis(length),
        });
        tokio::time::sleep(LOOK.min(length)).await;
        let lost = shared.lost.load(Ordering::Relaxed);
        ensure!(
            (lost as usize) < shared.plan.nodes,
            "all proxies lost their connection: the control plane has ended"
        );
    }
    Ok(())
}

/// What happened over some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// CPU time ÷ time.
    cores: f64,
    memory: u64,
    reports_per_second: f64,
    responses_per_second: f64,
}

impl Window {
    fn since(before: &(Instant, Usage, Counts), usage: Usage, shared: &Shared) -> Self {
        let (begun, used, counted) = before;
        let seconds = begun.elapsed().as_secs_f64();
        let counts = shared.counts();
        #[expect(clippy::cast_precision_loss, reason = "messages of a few minutes")]
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / seconds;
        Self {
            cores: usage.cpu.saturating_sub(used.cpu).as_secs_f64() / seconds,
            memory: usage.memory,
            reports_per_second: rate(counts.reports, counted.reports),
            responses_per_second: rate(counts.responses, counted.responses),
        }
    }
}

/// Messages so far.
#[derive(Clone, Copy, Debug)]
struct Counts {
    reports: u64,
    responses: u64,
}

impl Shared {
    fn new(plan: &Plan) -> Self {
        Self {
            plan: plan.clone(),
            spread: Spread::new(plan.nodes),
            stepped: AtomicBool::new(false),
            ready: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            reports: AtomicU64::new(0),
            responses: AtomicU64::new(0),
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            reports: self.reports.load(Ordering::Relaxed),
            responses: self.responses.load(Ordering::Relaxed),
        }
    }
}
