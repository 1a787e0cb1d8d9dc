//! Answers questions beside the writer: it copies the input, another thread computes the answer.
//!
//! One answer is computed at a time, so that many questions take neither all cores nor much memory.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::what_if::{WhatIf, WhatIfQuestion};
use plimsoll_core::explain::Explanation;
use plimsoll_core::units::FieldError;

use super::{Prepared, Question, Routing};
use crate::run::Context;
use crate::server::Stopped;
use crate::state::State;

/// How long a question may wait for those before it.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no explanation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    /// The question is wrong; names the field.
    #[error(transparent)]
    Question(#[from] FieldError),
    #[error("other questions are being answered; try again later")]
    Busy,
}

impl Context {
    /// Answers a what-if: as routed now, and as enforced.
    pub async fn what_if(&self, asked: WhatIfQuestion) -> Result<WhatIf, ExplainError> {
        let before = Question {
            cluster: asked.cluster,
            fleet: asked.fleet.filter(|fleet| !fleet.is_empty()),
            every_zone: true,
            ..Question::default()
        };
        let after = Question {
            hosts: asked.hosts,
            demand: asked.demand,
            ..before.clone()
        };
        let enforced = |question: &Question| Question {
            routing: Routing::Enforce,
            ..question.clone()
        };
        let questions = [enforced(&before), enforced(&after), before, after];
        let [enforced_before, enforced_after, before, after] = self.explain(questions).await?;
        let answer = WhatIf::new([&before, &after]);
        Ok(answer.with_enforce([&enforced_before, &enforced_after]))
    }

    /// Answers questions about the same moment.
    pub async fn explain<const N: usize>(
        &self,
        questions: [Question; N],
    ) -> Result<[Explanation; N], ExplainError> {
        let inspect = move |state: &State, now| {
            let questions = questions.iter();
            let prepared = questions.map(|question| Prepared::new(state, question, now));
            prepared.collect::<Result<Vec<_>, _>>()
        };
        let prepared = self.handle.inspect(inspect).await?.inspect_err(|error| {
            if ["hosts", "demand"].contains(&error.path()) {
                let reason = error.to_string();
                self.handle.limit_exceeded("what_if_zones", None, &reason);
            }
        })?;
        let next_turn = Arc::clone(&self.explaining).acquire_owned();
        let Ok(Ok(turn)) = tokio::time::timeout(TURN_TIMEOUT, next_turn).await else {
            return Err(ExplainError::Busy);
        };
        let computed = tokio::task::spawn_blocking(move || {
            let explained = prepared.into_iter().map(Prepared::explain);
            let answers = explained.collect::<Result<Vec<_>, _>>();
            drop(turn);
            answers
        });
        // The thread only fails if it panics, or if the runtime shuts down.
        let answers = computed.await.map_err(|_| Stopped)??;
        // There are as many answers as questions, so this does not fail.
        answers.try_into().map_err(|_| ExplainError::Busy)
    }
}
