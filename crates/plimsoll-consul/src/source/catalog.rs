//! [`Catalog`]: the task that follows the names of the services of one datacenter, and starts one
//! task for each.
//!
//! A service whose last instance was removed is no longer in the catalog, also in the middle of a
//! deployment that replaces all instances: it stays for a while, without endpoints, so that data
//! planes keep its cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plimsoll_core::log_line;
use plimsoll_core::time::Instant;
use plimsoll_serve::discovery::draw;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::health::Health;
use super::pool::Query;
use super::progress::{Kind, Progress};
use super::{Shared, Update};
use crate::log_lines;
use crate::merge::has_tags;
use crate::objects::CatalogJson;
use crate::query::{Answer, AnswerMeta, BlockingQuery, Consistency, Step};

const PATH: &str = "/v1/catalog/services";
/// The servers of Consul themselves.
const CONSUL: &str = "consul";

/// Receiver of updates is gone: the source is shutting down.
#[derive(Debug)]
pub(super) struct Stopped;

/// The catalog of one datacenter.
pub(super) struct Catalog {
    number: usize,
    shared: Arc<Shared>,
    progress: Arc<Progress>,
    updates: mpsc::Sender<Update>,
    query: BlockingQuery,
    services: BTreeMap<Arc<str>, Followed>,
    is_listed: bool,
    /// The name under which the query fails.
    own_name: Arc<str>,
}

/// A service with the task that follows its instances.
struct Followed {
    task: JoinHandle<()>,
    /// When the service is removed, if the catalog does not have it again.
    expires: Option<Instant>,
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Catalog {
    pub(super) fn new(
        number: usize,
        shared: Arc<Shared>,
        progress: Arc<Progress>,
        updates: mpsc::Sender<Update>,
    ) -> Self {
        let options = &shared.options;
        let query = BlockingQuery::new(options.consistency, options.max_stale);
        Self {
            number,
            shared,
            progress,
            updates,
            query,
            services: BTreeMap::new(),
            is_listed: false,
            own_name: "".into(),
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        loop {
            let clock = self.shared.clock;
            let expires = self.services.values().filter_map(|one| one.expires).min();
            match self.query.poll_step(clock.now()) {
                Step::Wait(until) => {
                    let until = expires.map_or(until, |expires| expires.min(until));
                    clock.sleep_until(Some(until)).await;
                }
                Step::Query { index, consistency } => {
                    let shared = Arc::clone(&self.shared);
                    tokio::select! {
                        answer = ask(&shared, self.number, index, consistency) => {
                            self.handle(answer).await?;
                        }
                        () = clock.sleep_until(expires) => {}
                    }
                }
            }
            self.expire().await?;
        }
    }

    async fn handle(
        &mut self,
        answer: Result<(AnswerMeta, CatalogJson), String>,
    ) -> Result<(), Stopped> {
        let now = self.shared.clock.now();
        let (meta, catalog) = match answer {
            Ok(answer) => answer,
            Err(reason) => {
                self.query.handle_failure(draw(), now);
                self.progress.failed(Kind::Catalog, &self.own_name, reason);
                return Ok(());
            }
        };
        let answer = self.query.handle_answer(meta, now);
        match answer {
            Answer::TooOld => return Ok(()),
            Answer::Unchanged => {}
            Answer::State { is_reset, .. } => {
                if is_reset {
                    let datacenter = self.progress.datacenter();
                    log_line!(log_lines::INDEX_RESET, datacenter);
                }
                self.replace(&catalog, now).await?;
            }
        }
        self.progress
            .answered(Kind::Catalog, &self.own_name, answer.counts());
        Ok(())
    }

    /// Follows the services of a catalog.
    async fn replace(&mut self, catalog: &CatalogJson, now: Instant) -> Result<(), Stopped> {
        let wanted = &self.shared.options.merge.tags;
        let is_used = |(name, tags): &(&String, &Option<Vec<String>>)| {
            *name != CONSUL && has_tags(tags.as_deref().unwrap_or_default(), wanted)
        };
        let names: BTreeSet<&str> = catalog
            .iter()
            .filter(is_used)
            .map(|(name, _)| &**name)
            .collect();
        if !self.is_listed {
            self.is_listed = true;
            let names = names.iter().map(|name| Arc::from(*name)).collect();
            self.send(Update::Listed(self.number, names)).await?;
        }
        let expires = now.saturating_add(self.shared.options.guard.delay);
        for (name, followed) in &mut self.services {
            if names.contains(&**name) {
                followed.expires = None;
            } else {
                followed.expires.get_or_insert(expires);
            }
        }
        self.progress.listed(names.len());
        for name in names {
            if !self.services.contains_key(name) {
                let followed = self.follow(name.into());
                self.services.insert(name.into(), followed);
            }
        }
        Ok(())
    }

    fn follow(&self, service: Arc<str>) -> Followed {
        let (shared, progress) = (Arc::clone(&self.shared), Arc::clone(&self.progress));
        let health = Health::new(self.number, service, shared, progress, self.updates.clone());
        self.shared.services.send_modify(|services| *services += 1);
        let task = self.shared.tasks.spawn(health.run());
        Followed {
            task,
            expires: None,
        }
    }

    /// Removes services that the catalog has not had for long.
    async fn expire(&mut self) -> Result<(), Stopped> {
        let now = self.shared.clock.now();
        let is_over = |followed: &Followed| followed.expires.is_some_and(|at| at <= now);
        let expired = self.services.iter().filter(|(_, one)| is_over(one));
        let expired: Vec<_> = expired.map(|(name, _)| Arc::clone(name)).collect();
        for name in expired {
            if let Some(mut followed) = self.services.remove(&name) {
                followed.task.abort();
                // What it had sent comes before the removal.
                let _ = (&mut followed.task).await;
            }
            self.shared.services.send_modify(|services| *services -= 1);
            self.progress.removed(&name);
            self.send(Update::Service(self.number, name, None)).await?;
        }
        Ok(())
    }

    async fn send(&self, update: Update) -> Result<(), Stopped> {
        self.updates.send(update).await.map_err(|_| Stopped)
    }
}

async fn ask(
    shared: &Shared,
    number: usize,
    index: u64,
    consistency: Consistency,
) -> Result<(AnswerMeta, CatalogJson), String> {
    let query = Query {
        path: PATH,
        name: "",
        datacenter: shared.options.datacenters[number].name.as_deref(),
        index,
        consistency,
        wait: shared.options.wait,
    };
    shared.catalogs.ask(&query).await
}
