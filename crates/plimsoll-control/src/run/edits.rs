//! [`Edits`]: applies edits of the files while the control plane runs.
//!
//! If an edit is invalid, it is rejected as a whole and the running configuration stays in use; the
//! reason is in the log and on the admin API.

use std::sync::Arc;

use plimsoll_serve::FileSource;
use plimsoll_xds::driver::Clock;
use plimsoll_xds::yaml::ConfigError;
use tokio::sync::mpsc;

use super::{Context, Options, set_relay_connector};
use crate::config::{ControlConfig, check_removal};
use crate::kubernetes::{Discovery, DiscoverySettings};
use crate::reload::ReloadRequest;
use crate::state::DiscoveredChanges;

/// Applies edits of the files, and reloads that somebody asks for.
pub(super) struct Edits {
    options: Options,
    /// Configuration at the start.
    started: Arc<ControlConfig>,
    in_force: Arc<ControlConfig>,
    context: Context,
    /// Mirror of a Kubernetes cluster with its settings.
    kubernetes: Option<Discovery>,
}

impl Edits {
    /// Starts with the configuration in force, and with the mirror of its Kubernetes cluster.
    pub(super) fn new(options: Options, config: &Arc<ControlConfig>, context: Context) -> Self {
        let mut edits = Self {
            options,
            started: Arc::clone(config),
            in_force: Arc::clone(config),
            context,
            kubernetes: None,
        };
        edits.set_kubernetes(config);
        edits
    }

    /// Starts, replaces or stops the mirror of a Kubernetes cluster if its settings changed.
    /// Services that were found stay until the new mirror has listed all.
    fn set_kubernetes(&mut self, config: &ControlConfig) {
        let settings = DiscoverySettings::of(config);
        if self.kubernetes.as_ref().map(Discovery::settings) == settings.as_ref() {
            return;
        }
        // The old mirror clears its status when it is dropped, so it goes first.
        self.kubernetes = None;
        let context = &self.context;
        self.kubernetes = settings.map(|settings| Discovery::start(settings, context.clone()));
    }

    /// Applies edits until the control plane stops.
    pub(super) async fn apply_all(
        mut self,
        mut source: FileSource<ControlConfig, ConfigError>,
        mut requests: mpsc::Receiver<ReloadRequest>,
    ) {
        loop {
            let (edited, request) = tokio::select! {
                () = self.context.stopping.cancelled() => return,
                edited = source.poll() => (edited, None),
                Some(request) = requests.recv() => (Some(source.load()), Some(request)),
            };
            let Some(edited) = edited else {
                continue;
            };
            let allow_removal = request.as_ref().is_some_and(|one| one.allow_removal);
            let caller = request.as_ref().map(|one| one.by.clone());
            let by = caller.unwrap_or_else(|| "edit of the files".to_owned());
            let outcome = match edited {
                Err(error) => Err(error.to_string()),
                Ok(config) => self.apply(config, allow_removal, &by).await,
            };
            if let Err(reason) = &outcome {
                let now = Clock::system().now();
                self.context.handle.refuse(&by, reason, now);
            }
            self.context.reloads.record(outcome.clone());
            if let Some(request) = request {
                // The caller may have been canceled; ignore send errors.
                let _ = request.done.send(outcome.map(|_| ()));
            }
        }
    }

    /// Applies an edit and returns the edited fields that need a restart, or why it is refused.
    async fn apply(
        &mut self,
        edited: ControlConfig,
        allow_removal: bool,
        by: &str,
    ) -> Result<Vec<&'static str>, String> {
        let edited = Arc::new(self.options.override_addresses(edited));
        let handle = &self.context.handle;
        if !allow_removal && let Err(removed) = check_removal(&self.in_force, &edited) {
            handle.counters().removal_refused();
            return Err(removed.to_string());
        }
        set_relay_connector(handle, &edited)
            .map_err(|error| plimsoll_serve::error_chain(&error))?;
        let applied = handle.apply_by(Arc::clone(&edited), by).await;
        applied.map_err(|stopped| stopped.to_string())?;
        self.set_kubernetes(&edited);
        if edited.kubernetes.is_none() && self.in_force.kubernetes.is_some() {
            let none = DiscoveredChanges {
                is_complete: true,
                ..DiscoveredChanges::default()
            };
            let cleared = self.context.handle.discover(none).await;
            cleared.map_err(|stopped| stopped.to_string())?;
        }
        self.in_force = edited;
        Ok(restart_needed(&self.started, &self.in_force))
    }
}

/// Returns the fields that differ in `edited` but take effect at a restart only.
pub(super) fn restart_needed(started: &ControlConfig, edited: &ControlConfig) -> Vec<&'static str> {
    let (old, new) = (&started.planner, &edited.planner);
    let fields = [
        ("listen", started.listen != edited.listen),
        ("tls", started.tls != edited.tls),
        ("admin", started.admin != edited.admin),
        ("admin_tls", started.admin_tls != edited.admin_tls),
        ("read_only", started.read_only != edited.read_only),
        ("store", started.store != edited.store),
        ("otlp", started.otlp != edited.otlp),
        (
            "demand.max_times_median",
            old.max_times_median() != new.max_times_median(),
        ),
        (
            "demand.idle_timeout",
            old.idle_timeout() != new.idle_timeout(),
        ),
        (
            "limits",
            started.limits.requests != edited.limits.requests
                || started.limits.queue_bytes != edited.limits.queue_bytes
                || started.limits.streams != edited.limits.streams
                || started.limits.unfinished_bytes != edited.limits.unfinished_bytes
                || started.limits.subscription_bytes != edited.limits.subscription_bytes
                || started.limits.message_timeout != edited.limits.message_timeout
                || started.limits.incoming != edited.limits.incoming,
        ),
        ("demand.smoothing_time_constant", old.tau() != new.tau()),
        (
            "demand.missed_intervals",
            old.missed_intervals() != new.missed_intervals(),
        ),
        (
            "demand.material_change_bp",
            old.material_change_bp() != new.material_change_bp(),
        ),
    ];
    fields
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(field, _)| field)
        .collect()
}
