//! The systems that services come from beside the files, each registered once in `SOURCES`, and
//! how they run.
//!
//! Whatever starts, replaces, stops or shows sources goes through the table: `run::edits`,
//! `server::discovery`, metrics, `/readyz` and the dashboard name none of them.

pub mod dns;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::assignment::{
    AssignmentParts, ClusterLoadAssignment, LbEndpoint, LocalityParts,
};
use plimsoll_core::model::locality::Locality;
use plimsoll_serve::discovery::{KindSummary, SourceStatus};
use tokio::task::JoinHandle;

use crate::config::{ControlConfig, Service};
use crate::run::Context;
use crate::server::Handle;
use crate::{consul, kubernetes};

/// A source of services, in order of precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceId {
    Files,
    Kubernetes,
    Consul,
    Dns,
}

impl SourceId {
    /// All sources, from the highest precedence to the lowest.
    pub const ALL: [Self; 4] = [Self::Files, Self::Kubernetes, Self::Consul, Self::Dns];

    /// Returns the name for texts and the audit.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Files => "the files",
            Self::Kubernetes => "Kubernetes",
            Self::Consul => "Consul",
            Self::Dns => "DNS",
        }
    }

    /// Returns the name for log lines and metrics, which is also that of the section.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Kubernetes => "kubernetes",
            Self::Consul => "consul",
            Self::Dns => "dns",
        }
    }

    /// Returns the sources beside the files that a configuration has.
    pub fn discovered(config: &ControlConfig) -> BTreeSet<Self> {
        let present = SOURCES.iter().filter(|source| (source.is_in)(config));
        present.map(|source| source.id).collect()
    }
}

/// Settings that a source is started with.
pub(crate) trait SourceSettings: PartialEq + Sized {
    const ID: SourceId;

    /// Returns the settings of a configuration that has the source.
    fn of(config: &ControlConfig) -> Option<Self>;

    /// Starts the source. Its first changes are complete.
    fn start(self, context: Context) -> Running;
}

/// What the program knows of a source: how to find its section, to compare and to start it.
struct Registration {
    id: SourceId,
    is_in: fn(&ControlConfig) -> bool,
    is_same: fn(&ControlConfig, &ControlConfig) -> bool,
    start: fn(&ControlConfig, Context) -> Option<Running>,
}

impl Registration {
    const fn of<S: SourceSettings>() -> Self {
        Self {
            id: S::ID,
            is_in: |config| S::of(config).is_some(),
            is_same: |before, after| S::of(before) == S::of(after),
            start: |config, context| S::of(config).map(|settings| settings.start(context)),
        }
    }
}

static SOURCES: [Registration; 3] = [
    Registration::of::<kubernetes::DiscoverySettings>(),
    Registration::of::<consul::DiscoverySettings>(),
    Registration::of::<dns::DiscoverySettings>(),
];

/// A running source; dropping it stops it.
pub(crate) struct Running {
    id: SourceId,
    handle: Handle,
    task: JoinHandle<()>,
}

impl Running {
    /// Runs `task`, and shows the status while it runs.
    pub(crate) fn spawn(
        id: SourceId,
        handle: Handle,
        status: &Arc<SourceStatus>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Self {
        handle.discovery().set_status(id, Some(Arc::clone(status)));
        let task = handle.supervisor().spawn(id.label(), task);
        Self { id, handle, task }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
        self.handle.discovery().set_status(self.id, None);
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Running").field(&self.id).finish()
    }
}

/// The sources of the configuration in force.
#[derive(Debug, Default)]
pub(crate) struct RunningSources(BTreeMap<SourceId, Running>);

impl RunningSources {
    /// Starts the sources of the configuration at the start.
    pub(crate) fn start(config: &ControlConfig, context: &Context) -> Self {
        let mut running = Self::default();
        for source in &SOURCES {
            running.replace(source, config, context);
        }
        running
    }

    /// Starts, replaces and stops sources whose settings an edit changes, and returns those that it
    /// removes. Services that were found stay until a new source has listed all.
    pub(crate) fn apply(
        &mut self,
        before: &ControlConfig,
        after: &ControlConfig,
        context: &Context,
    ) -> BTreeSet<SourceId> {
        for source in &SOURCES {
            if !(source.is_same)(before, after) {
                self.replace(source, after, context);
            }
        }
        &SourceId::discovered(before) - &SourceId::discovered(after)
    }

    fn replace(&mut self, source: &Registration, config: &ControlConfig, context: &Context) {
        // A source clears its status when it is dropped, so the old one goes first.
        self.0.remove(&source.id);
        let started = (source.start)(config, context.clone());
        self.0.extend(started.map(|running| (source.id, running)));
    }
}

/// State of a source that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceState {
    pub id: SourceId,
    /// Whether all objects have been read since the start.
    pub is_synced: bool,
    /// For how long requests have failed, and why.
    pub failing: Option<(Duration, String)>,
    /// Objects that the source no longer has and that stay for a while.
    pub held: usize,
    pub kinds: Vec<KindSummary>,
}

impl SourceState {
    fn new(id: SourceId, status: &SourceStatus) -> Self {
        Self {
            id,
            is_synced: status.is_synced(),
            failing: status.failing(),
            held: status.held(),
            kinds: status.kinds(),
        }
    }
}

impl Handle {
    /// Returns the state of the sources beside the files.
    pub fn sources(&self) -> Vec<SourceState> {
        let statuses = self.discovery().statuses();
        let states = statuses.iter().map(|(id, one)| SourceState::new(*id, one));
        states.collect()
    }

    /// Returns the state of a source; `None` without it.
    pub fn source(&self, id: SourceId) -> Option<SourceState> {
        self.sources().into_iter().find(|state| state.id == id)
    }
}

/// Returns a service with other endpoints; the same one if they are the same.
pub(crate) fn with_endpoints(
    service: Arc<Service>,
    endpoints: impl Iterator<Item = (Locality, LbEndpoint)>,
) -> Arc<Service> {
    let mut localities: BTreeMap<Locality, Vec<LbEndpoint>> = BTreeMap::new();
    for (locality, endpoint) in endpoints {
        localities.entry(locality).or_default().push(endpoint);
    }
    let localities = localities
        .into_iter()
        .map(|(locality, lb_endpoints)| LocalityParts {
            locality,
            lb_endpoints,
            ..LocalityParts::default()
        });
    let parts = AssignmentParts {
        overprovisioning_factor: Some(service.assignment.overprovisioning_factor()),
        ..AssignmentParts::new(service.name().to_string(), localities)
    };
    // Addresses are distinct and ports above 0; should a source have others, the last assignment
    // stays.
    let Ok(assignment) = ClusterLoadAssignment::try_new(parts) else {
        return service;
    };
    if assignment == *service.assignment {
        return service;
    }
    Arc::new(Service {
        assignment: Arc::new(assignment),
        ..Service::clone(&service)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_beside_the_files_is_registered_once() {
        let registered: Vec<_> = SOURCES.iter().map(|source| source.id).collect();
        assert_eq!(registered, SourceId::ALL[1..]);
        let mut sorted = SourceId::ALL;
        sorted.sort();
        assert_eq!(sorted, SourceId::ALL, "in order of precedence");
    }
}
