//! Services from SRV records (RFC 2782): the tasks that look names up again and again. `lookup`
//! asks DNS servers, `translate` turns records into services without IO.
//!
//! A record has no zone, so a service has a name for each of its zones, as Consul's
//! `_orders._zone-a.service.consul`. Names are looked up again when their records expire.

mod log_lines;
mod lookup;
mod translate;

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::backoff::BackoffBounds;
use plimsoll_core::log_line;
use plimsoll_serve::discovery::{RemovalGuard, SourceClock, SourceStatus, draw};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{Running, SourceId, SourceSettings};
use crate::config::{ControlConfig, Dns};
use crate::run::Context;
use crate::server::{Handle, Stopped};
use lookup::{Found, Resolver};
use translate::Translator;

#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub(crate) use lookup::is_name;

const KIND: &str = "SRV";
/// Answers that wait to be translated.
const QUEUE: usize = 64;
/// Shortest time between two lookups of a name: Consul's records expire at once.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
/// Longest one, so that a record with a long life does not hide a change for hours.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// Settings that the source is started with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DiscoverySettings {
    dns: Dns,
    guard: RemovalGuard,
}

/// Status and log lines of all names.
struct Progress {
    status: Arc<SourceStatus>,
    clock: SourceClock,
}

impl SourceSettings for DiscoverySettings {
    const ID: SourceId = SourceId::Dns;

    fn of(config: &ControlConfig) -> Option<Self> {
        let dns = config.sources.dns.clone()?;
        // An answer names all records: what it lacks is gone. Only one without any is suspicious.
        let guard = RemovalGuard {
            max_removed_percent: config.operation.max_removed_percent.max(99),
            delay: dns.removal_delay,
        };
        Some(Self { dns, guard })
    }

    fn start(self, context: Context) -> Running {
        let handle = context.handle;
        let clock = SourceClock::default();
        let status = Arc::new(SourceStatus::new(clock));
        for name in &self.dns.names {
            // From the start on, readiness waits for the name.
            status.update(KIND, &name.name, |_| {});
        }
        let progress = Progress {
            status: Arc::clone(&status),
            clock,
        };
        let applied = handle.clone();
        Running::spawn(Self::ID, handle, &status, async move {
            // It ends when the control plane is shutting down.
            let _ = run(self, progress, applied).await;
        })
    }
}

/// Applies answers until the control plane stops.
async fn run(
    settings: DiscoverySettings,
    progress: Progress,
    handle: Handle,
) -> Result<(), Stopped> {
    let resolver = Arc::new(Resolver::new(settings.dns.servers.clone()));
    let (answers, mut received) = mpsc::channel(QUEUE);
    let mut tasks = JoinSet::new();
    for (index, name) in settings.dns.names.iter().enumerate() {
        let resolver = Arc::clone(&resolver);
        tasks.spawn(follow(resolver, index, name.name.clone(), answers.clone()));
    }
    let names = settings.dns.names.clone();
    let mut translator = Translator::new(settings.dns, settings.guard);
    loop {
        let (index, answer) = received.recv().await.ok_or(Stopped)?;
        let name = &names[index].name;
        match answer {
            Ok(found) => {
                let was_synced = translator.is_complete();
                let before = translator.held(index);
                let now = progress.clock.now();
                let changes = translator.handle_answer(index, found.targets, now);
                progress.answered(name, translator.endpoints(index));
                let held = translator.held(index);
                progress.held(name, held, before);
                if let Some(changes) = changes {
                    handle.discover(changes).await?;
                }
                if !was_synced && translator.is_complete() {
                    progress.status.set_synced();
                }
            }
            Err(reason) => progress.failed(name, reason),
        }
    }
}

/// Looks a name up again and again.
async fn follow(
    resolver: Arc<Resolver>,
    index: usize,
    name: String,
    answers: mpsc::Sender<(usize, Result<Found, String>)>,
) {
    let mut backoff = BackoffBounds::new(SHORTEST_INTERVAL, LONGEST_INTERVAL / 4);
    loop {
        let answer = resolver.lookup(&name).await;
        let wait = match &answer {
            Ok(found) => {
                backoff.reset();
                found.ttl.clamp(SHORTEST_INTERVAL, LONGEST_INTERVAL)
            }
            Err(_) => backoff.next_delay(draw()),
        };
        if answers.send((index, answer)).await.is_err() {
            return;
        }
        tokio::time::sleep(wait).await;
    }
}

impl Progress {
    fn answered(&self, name: &str, endpoints: usize) {
        let now = self.clock.now();
        let mut was_failing = false;
        self.status.update(KIND, name, |status| {
            was_failing = status.failing.take().is_some();
            status.objects = endpoints;
            status.is_connected = true;
            status.last_event = Some(now);
            status.counts.lists += 1;
        });
        if was_failing {
            log_line!(log_lines::LOOKUP_BACK, name);
        }
    }

    fn held(&self, name: &str, held: usize, before: usize) {
        self.status.update(KIND, name, |status| status.held = held);
        if held > 0 && before == 0 {
            log_line!(log_lines::RECORDS_GONE, name, held);
        }
    }

    fn failed(&self, name: &str, reason: String) {
        let now = self.clock.now();
        let mut is_first = false;
        self.status.update(KIND, name, |status| {
            is_first = status.failing.is_none();
            let since = status.failing.as_ref().map_or(now, |(since, _)| *since);
            status.failing = Some((since, reason.clone()));
            status.is_connected = false;
            status.counts.failures += 1;
        });
        if is_first {
            log_line!(log_lines::LOOKUP_FAILED, name, reason);
        }
    }
}
