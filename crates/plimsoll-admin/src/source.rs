//! [`Source`]: where a dashboard gets its document from, and whom it passes questions to.
//!
//! The only coupling between the page and its host. A host that already has its document in a
//! `watch` channel needs no implementation of its own.

use std::pin::Pin;
use std::sync::Arc;

use plimsoll_core::explain::Explanation;
use tokio::sync::watch;

use crate::state::DashboardState;
use crate::what_if::{ExplainQuestion, WhatIfAnswer, WhatIfQuestion};

/// What a source answers with.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The host is shutting down: viewers are let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// Why a question or an action was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// In words.
    pub error: String,
    /// The field that is to blame, if one is.
    pub field: Option<String>,
}

impl Refused {
    /// A refusal that no single field is to blame for.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            field: None,
        }
    }
}

/// Where a dashboard gets its document from.
pub trait Source: Send + Sync + 'static {
    /// The document as it is now. Asked once a second while somebody looks, and not at all
    /// otherwise.
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>>;

    /// Done when the host shuts down, so that viewers do not keep it from ending.
    fn closed(&self) -> Pending<'_, ()> {
        Box::pin(std::future::pending())
    }

    /// Does what a button says; answers what came of it.
    fn act(&self, action: String) -> Pending<'_, Result<String, Refused>> {
        let refused = Refused::new(format!("there is no action {action:?}"));
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Shares before and after a change that nobody has made.
    fn what_if(&self, _question: WhatIfQuestion) -> Pending<'_, Result<WhatIfAnswer, Refused>> {
        let refused = Refused::new("there are no what-ifs here");
        Box::pin(std::future::ready(Err(refused)))
    }

    /// Why the proxies of a zone send where they send.
    fn explain(&self, _question: ExplainQuestion) -> Pending<'_, Result<Explanation, Refused>> {
        let refused = Refused::new("zones are not explained one by one here");
        Box::pin(std::future::ready(Err(refused)))
    }
}

impl Source for watch::Receiver<Arc<DashboardState>> {
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>> {
        // Without a sender there will never be another document.
        let state = match self.has_changed() {
            Ok(_) => Ok(Arc::clone(&self.borrow())),
            Err(_) => Err(Ended),
        };
        Box::pin(std::future::ready(state))
    }

    fn closed(&self) -> Pending<'_, ()> {
        let mut receiver = self.clone();
        Box::pin(async move { while receiver.changed().await.is_ok() {} })
    }
}
