//! All components that run in the demo, and how actions start, stop and change them.
//!
//! Backends, control plane, proxies and clients are started in this order and stopped in reverse.
//! The dashboard (`document`) and the status line (`summary`) are built from a [`Status`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use plimsoll_admin::source::Source;
use plimsoll_admin::state::{EventState, Severity, unix_ms};
use plimsoll_control::run::Bound;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::ControlDashboard;
use crate::backend::Backend;
use crate::clients::Clients;
use crate::control::ControlPlane;
use crate::counters::{Counters, Rates, Sample, Window};
use crate::envoy::{Envoy, Program};
use crate::proxy::Proxy;
use crate::setting::{Action, BACKENDS, LOST, PROXIES, Policy, Setting, ZONES};

const MAX_EVENTS: usize = 100;
/// Time limit at startup until every proxy knows every backend.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Environment {
    parts: tokio::sync::Mutex<Parts>,
    proxies: tokio::sync::RwLock<Vec<DataPlane>>,
    /// `Some` if the proxies are Envoys.
    envoy: Option<Program>,
    clients: tokio::sync::Mutex<JoinSet<()>>,
    counters: Arc<Counters>,
    rates: watch::Sender<[f64; 3]>,
    shared: Mutex<Shared>,
    started: Instant,
    _directory: TempDir,
}

enum DataPlane {
    Plimsoll(Proxy),
    Envoy(Envoy),
}

impl DataPlane {
    const fn zone(&self) -> usize {
        match self {
            Self::Plimsoll(proxy) => proxy.zone,
            Self::Envoy(envoy) => envoy.zone,
        }
    }

    const fn address(&self) -> SocketAddr {
        match self {
            Self::Plimsoll(proxy) => proxy.address,
            Self::Envoy(envoy) => envoy.address,
        }
    }

    async fn hosts(&self) -> usize {
        match self {
            Self::Plimsoll(proxy) => proxy.explain().await.map_or(0, |page| host_count(&page)),
            Self::Envoy(envoy) => envoy.hosts().await,
        }
    }

    /// Returns the proxy's explanation of the cluster; `None` for Envoy.
    async fn explain(&self) -> Option<Value> {
        match self {
            Self::Plimsoll(proxy) => proxy.explain().await,
            Self::Envoy(_) => None,
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Plimsoll(proxy) => proxy.stop().await,
            Self::Envoy(envoy) => envoy.stop().await,
        }
    }
}

/// Components that actions start and stop.
struct Parts {
    backends: Vec<Backend>,
    control: ControlPlane,
}

struct Shared {
    setting: Setting,
    last: Action,
    window: Window,
    utilization: [Option<f64>; 3],
    control: Option<Arc<dyn Source>>,
    events: VecDeque<EventState>,
}

#[derive(Clone, Debug)]
pub(crate) struct Status {
    pub(crate) setting: Setting,
    pub(crate) last: Action,
    pub(crate) rates: Rates,
    pub(crate) totals: Sample,
    /// Mean utilization that backends report, by zone.
    pub(crate) utilization: [Option<f64>; 3],
    pub(crate) elapsed: Duration,
}

impl Status {
    /// Number of running backends of a zone.
    pub(crate) const fn healthy(&self, zone: usize) -> usize {
        if self.setting.lost && zone == LOST {
            0
        } else {
            BACKENDS
        }
    }

    pub(crate) fn capacity_share(&self, zone: usize) -> f64 {
        let all: usize = (0..ZONES.len()).map(|zone| self.healthy(zone)).sum();
        as_f64(self.healthy(zone)) / as_f64(all)
    }

    /// Load line of a zone in requests per second: its fair share of all requests.
    pub(crate) fn line(&self, zone: usize) -> f64 {
        self.rates.total() * self.capacity_share(zone)
    }

    pub(crate) fn load(&self, zone: usize) -> Option<f64> {
        let line = self.line(zone);
        (line > 0.0).then(|| self.rates.served(zone) / line)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of backends is small")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

impl Environment {
    /// Starts all components and waits until requests can be served.
    pub(crate) async fn start(
        seed: u64,
        envoy: Option<Program>,
        dashboard: ControlDashboard,
    ) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("plimsoll-demo").tempdir()?;
        let counters = Arc::new(Counters::default());
        let mut backends = Vec::new();
        for index in 0..ZONES.len() * BACKENDS {
            let own = seed.wrapping_add(index as u64);
            let backend = Backend::start(index / BACKENDS, Arc::clone(&counters), own).await?;
            backends.push(backend);
        }
        let zone = |zone: usize| &backends[zone * BACKENDS..][..BACKENDS];
        let addresses = |index| zone(index).iter().map(Backend::address).collect();
        let mut control =
            ControlPlane::new(directory.path(), std::array::from_fn(addresses), dashboard);
        control.write(Setting::OPENING)?;
        control.start().await?;
        let xds = control
            .bound()
            .context("the control plane is not listening")?
            .xds;
        let mut proxies = Vec::new();
        for index in 0..ZONES.len() * PROXIES {
            let (zone, number) = (index / PROXIES, index % PROXIES + 1);
            let directory = directory.path();
            proxies.push(match &envoy {
                Some(program) => {
                    DataPlane::Envoy(Envoy::start(program, zone, number, xds, directory).await?)
                }
                None => DataPlane::Plimsoll(Proxy::start(zone, number, xds, directory).await?),
            });
        }
        let (rates, watched) = watch::channel(Setting::OPENING.rates());
        let opening = Action::Route(Policy::HostCounts);
        let environment = Self {
            shared: Mutex::new(Shared {
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
            _directory: directory,
        };
        environment.wait_until_ready().await?;
        environment.start_clients(&watched, seed).await?;
        environment.record(opening, "demo started: ");
        Ok(environment)
    }

    async fn wait_until_ready(&self) -> anyhow::Result<()> {
        let all = ZONES.len() * BACKENDS;
        let ready = async {
            for proxy in self.proxies.read().await.iter() {
                while proxy.hosts().await < all {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        };
        tokio::time::timeout(READY_TIMEOUT, ready)
            .await
            .with_context(|| format!("proxies do not know all backends after {READY_TIMEOUT:?}"))
    }

    async fn start_clients(
        &self,
        rates: &watch::Receiver<[f64; 3]>,
        seed: u64,
    ) -> anyhow::Result<()> {
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

    /// Returns why the proxies do not support an action; `None` if they do.
    pub(crate) fn unavailable(&self, action: Action) -> Option<String> {
        match action {
            Action::Route(policy) => self.envoy.as_ref()?.unsupported(policy),
            _ => None,
        }
    }

    pub(crate) fn proxy_name(&self) -> String {
        match &self.envoy {
            Some(envoy) => format!("Envoy {}", envoy.version),
            None => "plimsoll proxy".to_owned(),
        }
    }

    pub(crate) async fn control_bound(&self) -> Option<Bound> {
        self.parts.lock().await.control.bound()
    }

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
                    if lost {
                        backend.kill().await;
                    } else {
                        backend.restart().await?;
                    }
                }
            }
            Action::Control(false) => {
                // Drop our handle first: the control plane stops when the last handle is dropped.
                self.lock().control = None;
                control.stop().await?;
            }
            Action::Control(true) => {
                control.start().await?;
                self.lock().control = control.source();
            }
        }
        self.lock().setting = setting;
        self.record(action, "");
        Ok(())
    }

    /// Samples counters and utilization; called a few times a second.
    pub(crate) async fn sample(&self) {
        let parts = self.parts.lock().await;
        let utilization = std::array::from_fn(|zone| {
            let own = &parts.backends[zone * BACKENDS..][..BACKENDS];
            let known: Vec<f64> = own.iter().filter_map(Backend::utilization).collect();
            (!known.is_empty()).then(|| known.iter().sum::<f64>() / as_f64(known.len()))
        });
        drop(parts);
        let mut shared = self.lock();
        shared.utilization = utilization;
        shared
            .window
            .push(self.counters.sample(), self.started.elapsed());
    }

    pub(crate) fn status(&self) -> Status {
        let shared = self.lock();
        Status {
            setting: shared.setting,
            last: shared.last,
            rates: shared.window.rates(),
            totals: self.counters.sample(),
            utilization: shared.utilization,
            elapsed: self.started.elapsed(),
        }
    }

    /// Returns the events, newest first.
    pub(crate) fn events(&self) -> Vec<EventState> {
        self.lock().events.iter().cloned().collect()
    }

    /// Source of the control plane's dashboard; `None` while it is stopped.
    pub(crate) fn control(&self) -> Option<Arc<dyn Source>> {
        self.lock().control.clone()
    }

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

    /// Stops all components, clients first.
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

    fn record(&self, action: Action, prefix: &str) {
        let severe = matches!(action, Action::Lose(true) | Action::Control(false));
        let event = EventState {
            at_unix_ms: unix_ms(),
            severity: if severe {
                Severity::Warning
            } else {
                Severity::Info
            },
            text: format!("{prefix}{}. {}", action.event(), action.hint()),
        };
        let mut shared = self.lock();
        shared.last = action;
        shared.events.push_front(event);
        shared.events.truncate(MAX_EVENTS);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        // No update can panic halfway, so a poisoned lock is still consistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums the upstream hosts of all localities in an explanation.
fn host_count(page: &Value) -> usize {
    let localities = page["localities"].as_array();
    let counts = localities
        .into_iter()
        .flatten()
        .filter_map(|one| one["hosts"].as_u64());
    counts.sum::<u64>().try_into().unwrap_or(0)
}
