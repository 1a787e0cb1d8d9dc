//! [`ReloadRequests`]: SIGHUP and the admin API ask the task that watches the files to load them
//! now.

use tokio::sync::{mpsc, oneshot};

use crate::server::Stopped;

/// Requests that wait while the files are loaded.
const QUEUE: usize = 16;

#[derive(Debug)]
pub(crate) struct ReloadRequest {
    /// Apply the files also if they remove more than `reload.max_removed_percent`.
    pub(crate) allow_removal: bool,
    /// Caller, for the audit.
    pub(crate) by: String,
    pub(crate) done: oneshot::Sender<Result<(), String>>,
}

/// Asks for reloads of the configuration files.
#[derive(Clone, Debug)]
pub struct ReloadRequests(mpsc::Sender<ReloadRequest>);

impl ReloadRequests {
    pub(crate) fn channel() -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self(sender), receiver)
    }

    /// Loads the files because of a signal; see [`Self::reload_by`].
    pub async fn reload(&self, allow_removal: bool) -> Result<Result<(), String>, Stopped> {
        self.reload_by(allow_removal, "SIGHUP").await
    }

    /// Loads the files and returns why they were refused, if they were. `allow_removal` applies
    /// them also if they remove more than `reload.max_removed_percent`; `by` names the caller.
    pub async fn reload_by(
        &self,
        allow_removal: bool,
        by: &str,
    ) -> Result<Result<(), String>, Stopped> {
        let (done, outcome) = oneshot::channel();
        let request = ReloadRequest {
            allow_removal,
            by: by.to_owned(),
            done,
        };
        self.0.send(request).await.map_err(|_| Stopped)?;
        outcome.await.map_err(|_| Stopped)
    }
}
