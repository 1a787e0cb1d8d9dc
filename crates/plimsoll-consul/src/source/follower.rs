//! [`Follower`]: a blocking query that is repeated, and what is reported of it; [`Scope`], what the
//! tasks of one datacenter have in common.

use std::sync::Arc;

use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::draw;
use tokio::sync::mpsc;

use super::progress::{Kind, Progress};
use super::{Datacenter, Shared, Update};
use crate::query::{Answer, AnswerMeta, BlockingQuery, Step};

/// Receiver of updates is gone: the source is shutting down.
#[derive(Debug)]
pub(super) struct Stopped;

/// What the tasks of a datacenter share.
#[derive(Clone)]
pub(super) struct Scope {
    /// Number of the datacenter.
    pub(super) number: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) progress: Arc<Progress>,
    pub(super) updates: mpsc::Sender<Update>,
}

/// A query of one datacenter.
pub(super) struct Follower {
    kind: Kind,
    /// Segment after the path; empty for the catalog.
    name: Arc<str>,
    progress: Arc<Progress>,
    query: BlockingQuery,
}

/// An answer that is not the one before.
#[derive(Debug)]
pub(super) struct Changed<T> {
    pub(super) state: T,
    /// Whether it follows the last answer without a gap, so that what it lacks was removed.
    pub(super) is_continuous: bool,
    /// Whether the index became smaller.
    pub(super) is_reset: bool,
}

impl Scope {
    pub(super) fn datacenter(&self) -> &Datacenter {
        &self.shared.options.datacenters[self.number]
    }

    pub(super) async fn send(&self, update: Update) -> Result<(), Stopped> {
        self.updates.send(update).await.map_err(|_| Stopped)
    }
}

impl Follower {
    pub(super) fn new(scope: &Scope, kind: Kind, name: Arc<str>) -> Self {
        let options = &scope.shared.options;
        Self {
            kind,
            name,
            progress: Arc::clone(&scope.progress),
            query: BlockingQuery::new(options.consistency, options.max_stale),
        }
    }

    pub(super) const fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(super) fn poll_step(&mut self, now: Instant) -> Step {
        self.query.poll_step(now)
    }

    /// Reports an answer. Returns it if it has a new state.
    pub(super) fn handle<T>(
        &mut self,
        answer: Result<(AnswerMeta, T), String>,
        now: Instant,
    ) -> Option<Changed<T>> {
        let (meta, state) = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.query.handle_failure(draw(), now);
                self.progress.failed(self.kind, &self.name, reason);
                return None;
            }
        };
        let answer = self.query.handle_answer(meta, now);
        if answer == Answer::TooOld {
            return None;
        }
        self.progress
            .answered(self.kind, &self.name, answer.counts());
        match answer {
            Answer::State {
                is_continuous,
                is_reset,
            } => Some(Changed {
                state,
                is_continuous,
                is_reset,
            }),
            Answer::TooOld | Answer::Unchanged => None,
        }
    }
}
