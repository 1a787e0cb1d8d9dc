//! [`Source`]: the interface between a dashboard and the process that embeds it (its host).
//!
//! A source provides the JSON document and answers requests of the page. The trait is implemented
//! for a `watch` channel of documents.

use std::pin::Pin;
use std::sync::Arc;

use plimsoll_core::explain::Explanation;
use tokio::sync::watch;

use crate::state::DashboardState;
use crate::what_if::{ExplainQuestion, WhatIf, WhatIfQuestion};

/// Boxed future that a source returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Error: the host is shutting down, so the streams of viewers end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShuttingDown;

/// Why a request of the page was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Reason of the rejection, shown to the viewer.
    pub error: String,
    /// Path of the invalid field, if a single field of the request is invalid.
    pub field: Option<String>,
}

impl Rejection {
    /// Creates a rejection that is not about a single field.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            field: None,
        }
    }
}

/// Provides a dashboard's JSON document and answers the page's requests.
pub trait Source: Send + Sync + 'static {
    /// Returns the current JSON document. Called once a second while there are viewers or readers,
    /// and not at all otherwise.
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>>;

    /// Resolves when the host shuts down, so that open streams do not delay the shutdown.
    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Performs the action of a button; returns the result as text for the viewer.
    fn act(&self, action: String) -> BoxFuture<'_, Result<String, Rejection>> {
        let rejection = Rejection::new(format!("unknown action {action:?}"));
        Box::pin(std::future::ready(Err(rejection)))
    }

    /// Computes traffic shares of a cluster before and after a hypothetical change.
    fn what_if(&self, _question: WhatIfQuestion) -> BoxFuture<'_, Result<WhatIf, Rejection>> {
        let rejection = Rejection::new("this host does not support what-ifs");
        Box::pin(std::future::ready(Err(rejection)))
    }

    /// Explains how the proxies of one zone route to a cluster.
    fn explain(&self, _question: ExplainQuestion) -> BoxFuture<'_, Result<Explanation, Rejection>> {
        let rejection = Rejection::new("this host does not explain single zones");
        Box::pin(std::future::ready(Err(rejection)))
    }
}

impl Source for watch::Receiver<Arc<DashboardState>> {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        // `has_changed` fails if the sender was dropped.
        let state = match self.has_changed() {
            Ok(_) => Ok(Arc::clone(&self.borrow())),
            Err(_) => Err(ShuttingDown),
        };
        Box::pin(std::future::ready(state))
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        let mut receiver = self.clone();
        Box::pin(async move { while receiver.changed().await.is_ok() {} })
    }
}
