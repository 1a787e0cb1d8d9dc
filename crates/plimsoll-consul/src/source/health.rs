//! [`Health`]: the task that follows the instances of one service in one datacenter.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_serve::discovery::Instances;

use super::Update;
use super::follower::{Follower, Scope, Stopped};
use super::pool::Query;
use super::progress::Kind;
use crate::log_lines;
use crate::merge::{Endpoint, merge};
use crate::objects::EntryJson;
use crate::query::{AnswerMeta, Consistency, Step};

const PATH: &str = "/v1/health/service";
/// If more services are followed than there are connections, each is asked for within this time.
const ROTATION: Duration = Duration::from_secs(10);
/// Shortest wait of a query in a rotation.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// Instances of one service.
pub(super) struct Health {
    scope: Scope,
    follower: Follower,
    instances: Instances<SocketAddr, Endpoint>,
    /// Why an instance was last left out.
    invalid: Option<String>,
}

impl Health {
    pub(super) fn new(scope: Scope, service: Arc<str>) -> Self {
        Self {
            follower: Follower::new(&scope, Kind::Health, service),
            instances: Instances::new(scope.shared.options.guard),
            scope,
            invalid: None,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        loop {
            let clock = self.scope.shared.clock;
            let timeout = self.instances.poll_timeout();
            match self.follower.poll_step(clock.now()) {
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
        let shared = &self.scope.shared;
        let services = *shared.services.borrow();
        let wait = wait(shared.options.wait, services, shared.health.size());
        let query = Query {
            path: PATH,
            name: self.follower.name(),
            datacenter: self.scope.datacenter().name.as_deref(),
            index,
            consistency,
            wait,
        };
        shared.health.ask(&query).await
    }

    /// Returns when there begin to be more services than connections: a query that waits for long
    /// would keep others from being asked.
    async fn crowded(&self) {
        let size = self.scope.shared.health.size();
        let mut services = self.scope.shared.services.subscribe();
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
        let now = self.scope.shared.clock.now();
        let Some(changed) = self.follower.handle(answer, now) else {
            return Ok(());
        };
        let options = &self.scope.shared.options;
        let region = self.scope.datacenter().region.as_deref();
        let (listed, invalid) = merge(&changed.state, region, &options.merge);
        self.log_invalid(invalid);
        let before = self.instances.held();
        self.instances
            .handle_answer(listed, changed.is_continuous, now);
        self.log_held(before);
        self.publish().await
    }

    async fn publish(&mut self) -> Result<(), Stopped> {
        let service = self.follower.name();
        let endpoints = self.instances.in_force().clone();
        let (known, held) = (endpoints.len(), self.instances.held());
        self.scope.progress.instances(service, known, held);
        let service = Arc::clone(service);
        let update = Update::Service(self.scope.number, service, Some(endpoints));
        self.scope.send(update).await
    }

    fn log_invalid(&mut self, invalid: Option<String>) {
        if let Some(reason) = invalid.as_ref().filter(|_| self.invalid != invalid) {
            let (datacenter, service) = (self.scope.progress.datacenter(), &**self.follower.name());
            log_line!(log_lines::INSTANCE_INVALID, datacenter, service, reason);
        }
        self.invalid = invalid;
    }

    fn log_held(&self, before: usize) {
        let held = self.instances.held();
        if held > 0 && before == 0 {
            let instances = self.instances.in_force().len();
            let (datacenter, service) = (self.scope.progress.datacenter(), &**self.follower.name());
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
