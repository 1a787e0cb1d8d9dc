//! Sequence of the measurement: connect, settle, constant demand, step in demand.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use plimsoll_xds::ads::Variant;
use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use crate::child::Usage;
use crate::node::Node;
use crate::replicas::Replicas;
use crate::report::{Figures, Machine, Report};
use crate::spread::Spread;

/// Maximum number of connections that are being opened at a time.
const MAX_CONNECTING: usize = 100;
/// File descriptors needed besides those of the proxies.
const SPARE_FILES: u64 = 64;
/// Time in which all proxies must be connected.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Parameters of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: usize,
    /// Load reporting interval of each proxy.
    pub(crate) interval: Duration,
    /// Time to measure at constant demand.
    pub(crate) duration: Duration,
    pub(crate) variant: Variant,
    /// Mutual TLS instead of plain text.
    pub(crate) tls: bool,
    /// Number of control planes; more than one share an etcd.
    pub(crate) replicas: usize,
}

/// Progress of the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    pub(crate) phase: &'static str,
    /// Completed part of `total`.
    pub(crate) done: u64,
    pub(crate) total: u64,
}

/// State shared by all proxies.
pub(crate) struct Shared {
    pub(crate) plan: Plan,
    pub(crate) spread: Spread,
    /// Whether the demand of one zone has doubled.
    pub(crate) stepped: AtomicBool,
    pub(crate) ready: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) reports: AtomicU64,
    pub(crate) responses: AtomicU64,
}

/// Runs the measurement; blocks until it is done.
pub(crate) fn run(plan: &Plan, progress: &dyn Fn(Progress)) -> anyhow::Result<Report> {
    raise_file_limit(plan.nodes)?;
    // One thread, because the control plane needs the other cores.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let replicas = Replicas::start(plan)?;
    runtime.block_on(measure(plan, &replicas, progress))
}

/// Raises the limit of file descriptors: each proxy needs one here and one in the child, which
/// inherits the limit.
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
    replicas: &Replicas,
    progress: &dyn Fn(Progress),
) -> anyhow::Result<Report> {
    let shared = Arc::new(Shared::new(plan));
    let begun = Instant::now();
    connect(&shared, replicas, progress).await?;
    let connect_time = begun.elapsed();
    // Wait until all proxies have reported once and the resulting updates are delivered.
    let settle = plan.interval + plan.interval / 4 + Duration::from_secs(2);
    pause("waiting for demand to settle", settle, &shared, progress).await?;

    let before = (Instant::now(), replicas.usage()?, shared.counts());
    pause("measuring steady state", plan.duration, &shared, progress).await?;
    let steady = Window::since(&before, replicas.usage()?, &shared);

    let before = (Instant::now(), replicas.usage()?, shared.counts());
    shared.spread.begin();
    shared.stepped.store(true, Ordering::Relaxed);
    let step = plan.interval * 2 + Duration::from_secs(2);
    pause("demand has stepped", step, &shared, progress).await?;
    let stepped = Window::since(&before, replicas.usage()?, &shared);
    let updates = shared.spread.outcome();

    Ok(Report::new(
        Machine::read(),
        plan,
        Figures {
            connect_time,
            steady,
            stepped,
            updates,
            peak_memory: replicas.usage()?.peak_memory,
            lost: shared.lost.load(Ordering::Relaxed),
        },
    ))
}

/// Starts all proxies and waits until each has its assignments and load reporting settings.
async fn connect(
    shared: &Arc<Shared>,
    replicas: &Replicas,
    progress: &dyn Fn(Progress),
) -> anyhow::Result<()> {
    let opening = Arc::new(Semaphore::new(MAX_CONNECTING));
    for index in 0..shared.plan.nodes {
        let shared = Arc::clone(shared);
        let (opening, dialer) = (Arc::clone(&opening), replicas.dialer());
        let address = replicas.address(index);
        let node = Node::new(index, Arc::clone(&shared), opening, dialer);
        tokio::spawn(async move {
            // Failures are counted and shown in the report.
            if let Err(error) = node.run(address).await {
                eprintln!("node {index} is lost: {error:#}");
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
            begun.elapsed() < CONNECT_TIMEOUT,
            "only {ready} of {total} proxies are connected after {} s",
            CONNECT_TIMEOUT.as_secs()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
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
        tokio::time::sleep(POLL_INTERVAL.min(length)).await;
        let lost = shared.lost.load(Ordering::Relaxed);
        ensure!(
            usize::try_from(lost).is_ok_and(|lost| lost < shared.plan.nodes),
            "all proxies lost their connection: the control plane has exited"
        );
    }
    Ok(())
}

/// Averages over a window of time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// CPU time divided by elapsed time.
    pub(crate) cores: f64,
    pub(crate) memory: u64,
    pub(crate) reports_per_second: f64,
    pub(crate) responses_per_second: f64,
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

/// Number of messages so far.
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
