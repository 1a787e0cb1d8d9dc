//! [`Stage`]: everything that runs in the demo, and how actions change it.
//!
//! Backends, control plane, proxies and clients are started in this order and ended in the opposite
//! one. What is seen of them is a [`Scene`]; pages are made of it in `document`, lines in
//! `summary`.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use plimsoll_admin::source::Source;
use plimsoll_admin::state::{EventState, Severity};
use plimsoll_control::run::Bound;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::backend::Backend;
use super::control::ControlPlane;
use super::counters::{Counters, Rates, Sample, Window};
use super::envoy::{Envoy, Program};
use super::load::Clients;
use super::proxy::Proxy;
use super::setting::{Action, BACKENDS, LOST, PROXIES, Policy, Setting, ZONES};

/// Events that are kept.
const EVENTS: usize = 100;
/// How long the parts may take to find each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that runs.
pub(crate) struct Stage {
    parts: tokio::sync::Mutex<Parts>,
    proxies: tokio::sync::RwLock<Vec<DataPlane>>,
    /// Real Envoys instead of our proxies.
    envoy: Option<Program>,
    clients: tokio::sync::Mutex<JoinSet<()>>,
    counters: Arc<Counters>,
    rates: watch::Sender<[f64; 3]>,
    seen: Mutex<Seen>,
    started: Instant,
    _folder: TempDir,
}

/// One proxy.
enum DataPlane {
    Ours(Proxy),
    Envoy(Envoy),
}

impl DataPlane {
    const fn zone(&self) -> usize {
        match self {
            Self::Ours(proxy) => proxy.zone,
            Self::Envoy(envoy) => envoy.zone,
        }
    }

    const fn address(&self) -> SocketAddr {
        match self {
            Self::Ours(proxy) => proxy.address,
            Self::Envoy(envoy) => envoy.address,
        }
    }

    /// Backends that it knows.
    async fn hosts(&self) -> usize {
        match self {
            Self::Ours(proxy) => proxy.explain().await.map_or(0, |page| hosts(&page)),
            Self::Envoy(envoy) => envoy.hosts().await,
        }
    }

    /// Envoys do not say why.
    async fn explain(&self) -> Option<Value> {
        match self {
            Self::Ours(proxy) => proxy.explain().await,
            Self::Envoy(_) => None,
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Ours(proxy) => proxy.stop().await,
            Self::Envoy(envoy) => envoy.stop().await,
        }
    }
}

/// What actions change.
#[derive(Debug)]
struct Parts {
    backends: Vec<Backend>,
    control: ControlPlane,
}

/// What viewers are shown.
struct Seen {
    setting: Setting,
    last: Action,
    window: Window,
    utilization: [Option<f64>; 3],
    control: Option<Arc<dyn Source>>,
    events: VecDeque<EventState>,
}

/// One look at it all.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) setting: Setting,
    /// What was done last: it says what to look at.
    pub(crate) last: Action,
    pub(crate) rates: Rates,
    pub(crate) totals: Sample,
    /// As backends report it, by zone.
    pub(crate) utilization: [Option<f64>; 3],
    pub(crate) elapsed: Duration,
}

impl Scene {
    /// Backends of a zone that live.
    pub(crate) const fn healthy(&self, zone: usize) -> usize {
        if self.setting.lost && zone == LOST {
            0
        } else {
            BACKENDS
        }
    }

    /// Backends of a zone that live, of all that do.
    pub(crate) fn capacity_share(&self, zone: usize) -> f64 {
        let all: usize = (0..ZONES.len()).map(|zone| self.healthy(zone)).sum();
        as_f64(self.healthy(zone)) / as_f64(all)
    }

    /// The load line of a zone: its share of the capacity of all that arrives.
    pub(crate) fn line(&self, zone: usize) -> f64 {
        self.rates.total() * self.capacity_share(zone)
    }

    /// Load of a zone against its line.
    pub(crate) fn load(&self, zone: usize) -> Option<f64> {
        let line = self.line(zone);
        (line > 0.0).then(|| self.rates.served(zone) / line)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of backends is small")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

impl Stage {
    /// Starts everything, and waits until requests can be served.
    pub(crate) async fn start(seed: u64, envoy: Option<Program>) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("plimsoll-demo").tempdir()?;
        let counters = Arc::new(Counters::default());
        let mut backends = Vec::new();
        for index in 0..ZONES.len() * BACKENDS {
            let own = seed.wrapping_add(index as u64);
            let backend = Backend::start(index / BACKENDS, Arc::clone(&counters), own).await?;
            backends.push(backend);
        }
        let zone = |zone: usize| &backends[zone * BACKENDS..][..BACKENDS];
        let addresses = |index| zone(index).iter().map(Backend::address).collect();
        let mut control = ControlPlane::new(folder.path(), std::array::from_fn(addresses));
        control.write(Setting::OPENING)?;
        control.start().await?;
        let xds = control
            .bound()
            .context("the control plane listens nowhere")?
            .xds;
        let mut proxies = Vec::new();
        for index in 0..ZONES.len() * PROXIES {
            let (zone, number) = (index / PROXIES, index % PROXIES + 1);
            let folder = folder.path();
            proxies.push(match &envoy {
                Some(program) => {
                    DataPlane::Envoy(Envoy::start(program, (zone, number), xds, folder).await?)
                }
                None => DataPlane::Ours(Proxy::start(zone, number, xds, folder).await?),
            });
        }
        let (rates, watched) = watch::channel(Setting::OPENING.rates());
        let opening = Action::Route(Policy::HostCounts);
        let stage = Self {
            seen: Mutex::new(Seen {
                setting: Setting::OPENING,
                last: opening,
                window: Window::default(),
                utilization: [None; 3],
                control: control.source(),
                events: VecDeque::new(),
            }),
            parts: tokio::sync::Mutex::new(Parts { backends, control }),
            proxies: tokio::sync::RwLock::new(proxies),
            envoy,
            clients: tokio::sync::Mutex::default(),
            counters,
            rates,
            started: Instant::now(),
            _folder: folder,
        };
        stage.wait_until_ready().await?;
        stage.send(&watched, seed).await?;
        stage.happened(opening, "the demo begins: ");
        Ok(stage)
    }

    /// Until every proxy knows every backend.
    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let all = ZONES.len() * BACKENDS;
        let ready = async {
            for proxy in self.proxies.read().await.iter() {
                while proxy.hosts().await < all {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        let waited = tokio::time::timeout(PATIENCE, ready).await;
        waited.context("the proxies did not hear of the backends")
    }

    async fn send(&self, rates: &watch::Receiver<[f64; 3]>, seed: u64) -> anyhow::Result<()> {
        let proxies = self.proxies.read().await;
        for zone in 0..ZONES.len() {
            let own = proxies.iter().filter(|proxy| proxy.zone() == zone);
            let addresses: Vec<_> = own.map(DataPlane::address).collect();
            let seed = seed.wrapping_add(1000 + zone as u64);
            let counters = Arc::clone(&self.counters);
            let clients = Clients::new(zone, &addresses, counters, rates.clone(), seed)?;
            self.clients.lock().await.spawn(clients.run());
        }
        Ok(())
    }

    /// Why something cannot be done with these proxies, if it cannot.
    pub(crate) fn unavailable(&self, action: Action) -> Option<String> {
        match action {
            Action::Route(policy) => self.envoy.as_ref()?.lacks(policy),
            _ => None,
        }
    }

    /// What the proxies are.
    pub(crate) fn proxies_are(&self) -> String {
        match &self.envoy {
            Some(envoy) => format!("Envoy {}", envoy.version),
            None => "plimsoll proxy".to_owned(),
        }
    }

    /// Where the control plane listens.
    pub(crate) async fn control_bound(&self) -> Option<Bound> {
        self.parts.lock().await.control.bound()
    }

    /// Does what a visitor asks for.
    pub(crate) async fn act(&self, action: Action) -> anyhow::Result<()> {
        if let Some(why) = self.unavailable(action) {
            anyhow::bail!("{why}");
        }
        let mut parts = self.parts.lock().await;
        let Parts { backends, control } = &mut *parts;
        let setting = self.lock().setting.after(action);
        match action {
            Action::Route(_) => control.write(setting)?,
            Action::Traffic(_) | Action::Surge(_) => {
                self.rates.send_replace(setting.rates());
            }
            Action::Lose(lost) => {
                for backend in &mut backends[LOST * BACKENDS..][..BACKENDS] {
                    match lost {
                        true => backend.kill().await,
                        false => backend.restart().await?,
                    }
                }
                control.write(setting)?;
            }
            Action::Control(false) => {
                // Whoever looks must let go of it, or it cannot end.
                self.lock().control = None;
                control.stop().await?;
            }
            Action::Control(true) => {
                control.start().await?;
                self.lock().control = control.source();
            }
        }
        self.lock().setting = setting;
        self.happened(action, "");
        Ok(())
    }

    /// Looks at counters and reports; a few times a second.
    pub(crate) async fn sample(&self) {
        let parts = self.parts.lock().await;
        let utilization = std::array::from_fn(|zone| {
            let own = &parts.backends[zone * BACKENDS..][..BACKENDS];
            let known: Vec<f64> = own.iter().filter_map(Backend::utilization).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / as_f64(known.len()))
        });
        drop(parts);
        let mut seen = self.lock();
        seen.utilization = utilization;
        seen.window
            .push(self.counters.sample(), self.started.elapsed());
    }

    /// What is to be seen now.
    pub(crate) fn scene(&self) -> Scene {
        let seen = self.lock();
        Scene {
            setting: seen.setting,
            last: seen.last,
            rates: seen.window.rates(),
            totals: self.counters.sample(),
            utilization: seen.utilization,
            elapsed: self.started.elapsed(),
        }
    }

    /// What visitors did, newest first.
    pub(crate) fn events(&self) -> Vec<EventState> {
        self.lock().events.iter().cloned().collect()
    }

    /// What the control plane knows, while it runs.
    pub(crate) fn control(&self) -> Option<Arc<dyn Source>> {
        self.lock().control.clone()
    }

    /// Why proxies send where they send, of one proxy per zone.
    pub(crate) async fn explanations(&self) -> [Option<Value>; 3] {
        let proxies = self.proxies.read().await;
        let mut pages = [const { None }; 3];
        for (zone, page) in pages.iter_mut().enumerate() {
            if let Some(proxy) = proxies.iter().find(|proxy| proxy.zone() == zone) {
                *page = proxy.explain().await;
            }
        }
        pages
    }

    /// Ends everything, clients first.
    pub(crate) async fn stop(&self) -> anyhow::Result<()> {
        self.clients.lock().await.shutdown().await;
        self.lock().control = None;
        let proxies = std::mem::take(&mut *self.proxies.write().await);
        let mut ending = JoinSet::new();
        for proxy in proxies {
            ending.spawn(proxy.stop());
        }
        for ended in ending.join_all().await {
            ended?;
        }
        let mut parts = self.parts.lock().await;
        parts.control.stop().await?;
        for backend in &mut parts.backends {
            backend.kill().await;
        }
        Ok(())
    }

    fn happened(&self, action: Action, before: &str) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let at = since.unwrap_or_default().as_millis();
        let severe = matches!(action, Action::Lose(true) | Action::Control(false));
        let event = EventState {
            at_unix_ms: u64::try_from(at).unwrap_or(u64::MAX),
            severity: if severe {
                Severity::Warning
            } else {
                Severity::Info
            },
            text: format!("{before}{}. {}", action.done(), action.look()),
        };
        let mut seen = self.lock();
        seen.last = action;
        seen.events.push_front(event);
        seen.events.truncate(EVENTS);
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        // Nothing in here can be half done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hosts that a proxy knows.
fn hosts(page: &Value) -> usize {
    let localities = page["localities"].as_array();
    let counts = localities
        .into_iter()
        .flatten()
        .filter_map(|one| one["hosts"].as_u64());
    counts.sum::<u64>().try_into().unwrap_or(0)
}
