//! [`Health`]: the task that follows the instances of one service in one datacenter.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_serve::discovery::draw;
use tokio::sync::mpsc;

use super::catalog::Stopped;
use super::pool::Query;
use super::progress::{Kind, Progress};
use super::{Shared, Update};
use crate::guard::Instances;
use crate::log_lines;
use crate::merge::merge;
use crate::objects::EntryJson;
use crate::query::{Answer, AnswerMeta, BlockingQuery, Consistency, Step};

const PATH: &str = "/v1/health/service";
/// If more services are followed than there are connections, each is asked for within this time.
const ROTATION: Duration = Duration::from_secs(10);
/// Shortest wait of a query in a rotation.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Instances of one service.
pub(super) struct Health {
    datacenter: usize,
    service: Arc<str>,
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    updates: mpsc::Sender<Update>,
    query: BlockingQuery,
    instances: Instances,
    /// Why an instance was last left out.
    invalid: Option<String>,
}

impl Health {
    pub(super) fn new(
        datacenter: usize,
        service: Arc<str>,
        shared: Arc<Shared>,
        progress: Arc<Progress>,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let options = &shared.options;
        let query = BlockingQuery::new(options.consistency, options.max_stale);
        let instances = Instances::new(options.guard);
        Self {
            datacenter,
            service,
            shared,
            progress,
            updates,
            query,
            instances,
            invalid: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        loop {
            let clock = self.shared.clock;
            let timeout = self.instances.poll_timeout();
            match self.query.poll_step(clock.now()) {
                Step::Wait(until) => {
                    let until = timeout.map_or(until, |timeout| timeout.min(until));
                    clock.sleep_until(Some(until)).await;
                }
                Step::Query { index, consistency } => {
                    let answer = tokio::select! {
                        answer = self.ask(index, consistency) => Some(answer),
                        () = clock.sleep_until(timeout) => None,
                        () = self.crowded() => None,
                    };
                    if let Some(answer) = answer {
                        self.handle(answer).await?;
                    }
                }
            }
            if timeout.is_some_and(|timeout| timeout <= clock.now()) {
                self.instances.handle_timeout(clock.now());
                self.publish().await?;
            }
        }
    }

    async fn ask(
        &self,
        index: u64,
        consistency: Consistency,
    ) -> Result<(AnswerMeta, Vec<EntryJson>), String> {
        let options = &self.shared.options;
        let services = *self.shared.services.borrow();
        let query = Query {
            path: PATH,
            name: &self.service,
            datacenter: options.datacenters[self.datacenter].name.as_deref(),
            index,
            consistency,
            wait: wait(options.wait, services, self.shared.health.size()),
        };
        self.shared.health.ask(&query).await
    }

    /// Returns when there begin to be more services than connections: a query that waits for long
    /// would keep others from being asked.
    async fn crowded(&self) {
        let size = self.shared.health.size();
        let mut services = self.shared.services.subscribe();
        if *services.borrow_and_update() > size {
            return std::future::pending().await;
        }
        // The sender is shared with this task.
        let _ = services.wait_for(|services| *services > size).await;
    }

    async fn handle(
        &mut self,
        answer: Result<(AnswerMeta, Vec<EntryJson>), String>,
    ) -> Result<(), Stopped> {
        let now = self.shared.clock.now();
        let (meta, entries) = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.query.handle_failure(draw(), now);
                self.progress.failed(Kind::Health, &self.service, reason);
                return Ok(());
            }
        };
        let answer = self.query.handle_answer(meta, now);
        if answer == Answer::TooOld {
            return Ok(());
        }
        let counts = answer.counts();
        self.progress.answered(Kind::Health, &self.service, counts);
        let Answer::State { is_continuous, .. } = answer else {
            return Ok(());
        };
        let options = &self.shared.options;
        let region = options.datacenters[self.datacenter].region.as_deref();
        let (listed, invalid) = merge(&entries, region, &options.merge);
        self.log_invalid(invalid);
        let before = self.instances.held();
        self.instances.handle_answer(listed, is_continuous, now);
        self.log_held(before);
        self.publish().await
    }

    async fn publish(&mut self) -> Result<(), Stopped> {
        let endpoints = self.instances.endpoints().clone();
        let (known, held) = (endpoints.len(), self.instances.held());
        self.progress.instances(&self.service, known, held);
        let update = Update::Service(self.datacenter, Arc::clone(&self.service), Some(endpoints));
        self.updates.send(update).await.map_err(|_| Stopped)
    }

    fn log_invalid(&mut self, invalid: Option<String>) {
        if let Some(reason) = invalid.as_ref().filter(|_| self.invalid != invalid) {
            let (datacenter, service) = (self.progress.datacenter(), &*self.service);
            log_line!(log_lines::INSTANCE_INVALID, datacenter, service, reason);
        }
        self.invalid = invalid;
    }

    fn log_held(&self, before: usize) {
        let held = self.instances.held();
        if held > 0 && before == 0 {
            let instances = self.instances.endpoints().len();
            let (datacenter, service) = (self.progress.datacenter(), &*self.service);
            log_line!(
                log_lines::INSTANCES_HELD,
                datacenter,
                service,
                held,
                instances
            );
        }
    }
}

/// Returns the wait of a query, so that services beyond the number of connections take turns.
fn wait(longest: Duration, services: usize, connections: usize) -> Duration {
    if services <= connections {
        return longest;
    }
    let part = connections as f64 / services as f64;
    ROTATION.mul_f64(part).max(MIN_WAIT).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_beyond_the_connections_take_turns() {
        let longest = Duration::from_secs(300);
        assert_eq!(wait(longest, 100, 100), longest);
        assert_eq!(wait(longest, 200, 100), Duration::from_secs(5));
        assert_eq!(wait(longest, 1_000_000, 100), MIN_WAIT);
        assert_eq!(
            wait(Duration::from_secs(1), 200, 100),
            Duration::from_secs(1)
        );
    }
}
