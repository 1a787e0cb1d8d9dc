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
use crate::config::{ControlConfig, check_removal, restart_needed};
use crate::reload::ReloadRequest;
use crate::services::ServiceChanges;
use crate::sources::RunningSources;

/// Applies edits of the files, and reloads that somebody asks for.
pub(super) struct Edits {
    options: Options,
    /// Configuration at the start.
    started: Arc<ControlConfig>,
    in_force: Arc<ControlConfig>,
    context: Context,
    sources: RunningSources,
}

impl Edits {
    /// Starts with the configuration in force, and starts its sources of services.
    pub(super) fn new(options: Options, config: &Arc<ControlConfig>, context: Context) -> Self {
        Self {
            options,
            started: Arc::clone(config),
            in_force: Arc::clone(config),
            sources: RunningSources::start(config, &context),
            context,
        }
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
        let edited = self.options.override_addresses(edited);
        let edited = Arc::new(edited.sharing_services(&self.in_force));
        let handle = &self.context.handle;
        if !allow_removal && let Err(removed) = check_removal(&self.in_force, &edited) {
            handle.counters().removal_refused();
            return Err(removed.to_string());
        }
        set_relay_connector(handle, &edited)
            .map_err(|error| plimsoll_serve::error_chain(&error))?;
        let applied = handle.apply_by(Arc::clone(&edited), by).await;
        applied.map_err(|stopped| stopped.to_string())?;
        let sources = &mut self.sources;
        for source in sources.apply(&self.in_force, &edited, &self.context) {
            let cleared = self.context.handle.discover(ServiceChanges::none(source));
            cleared.await.map_err(|stopped| stopped.to_string())?;
        }
        self.in_force = edited;
        Ok(restart_needed(&self.started, &self.in_force))
    }
}
