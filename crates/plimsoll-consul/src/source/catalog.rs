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
use tokio::task::JoinHandle;

use super::Update;
use super::follower::{Follower, Scope, Stopped};
use super::health::Health;
use super::pool::Query;
use super::progress::Kind;
use crate::log_lines;
use crate::merge::has_tags;
use crate::objects::CatalogJson;
use crate::query::{AnswerMeta, Step};

const PATH: &str = "/v1/catalog/services";
/// The servers of Consul themselves.
const CONSUL: &str = "consul";

/// The catalog of one datacenter.
pub(super) struct Catalog {
    scope: Scope,
    follower: Follower,
    services: BTreeMap<Arc<str>, Followed>,
    is_listed: bool,
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
    pub(super) fn new(scope: Scope) -> Self {
        Self {
            follower: Follower::new(&scope, Kind::Catalog, "".into()),
            scope,
            services: BTreeMap::new(),
            is_listed: false,
        }
    }

    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        loop {
            let clock = self.scope.shared.clock;
            let expires = self.services.values().filter_map(|one| one.expires).min();
            match self.follower.poll_step(clock.now()) {
                Step::Wait(until) => {
                    let until = expires.map_or(until, |expires| expires.min(until));
                    clock.sleep_until(Some(until)).await;
                }
                Step::Query { index, consistency } => {
                    let scope = self.scope.clone();
                    let query = Query {
                        path: PATH,
                        name: "",
                        datacenter: scope.datacenter().name.as_deref(),
                        index,
                        consistency,
                        wait: scope.shared.options.wait,
                    };
                    tokio::select! {
                        answer = scope.shared.catalogs.ask(&query) => self.handle(answer).await?,
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
        let now = self.scope.shared.clock.now();
        let Some(changed) = self.follower.handle(answer, now) else {
            return Ok(());
        };
        if changed.is_reset {
            let datacenter = self.scope.progress.datacenter();
            log_line!(log_lines::INDEX_RESET, datacenter);
        }
        self.replace(&changed.state, now).await
    }

    /// Follows the services of a catalog.
    async fn replace(&mut self, catalog: &CatalogJson, now: Instant) -> Result<(), Stopped> {
        let wanted = &self.scope.shared.options.merge.tags;
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
            self.scope
                .send(Update::Listed(self.scope.number, names))
                .await?;
        }
        let expires = now.saturating_add(self.scope.shared.options.guard.delay);
        for (name, followed) in &mut self.services {
            if names.contains(&**name) {
                followed.expires = None;
            } else {
                followed.expires.get_or_insert(expires);
            }
        }
        self.scope.progress.listed(names.len());
        for name in names {
            if !self.services.contains_key(name) {
                let followed = self.follow(name.into());
                self.services.insert(name.into(), followed);
            }
        }
        Ok(())
    }

    fn follow(&self, service: Arc<str>) -> Followed {
        let health = Health::new(self.scope.clone(), service);
        let shared = &self.scope.shared;
        shared.services.send_modify(|services| *services += 1);
        Followed {
            task: shared.tasks.spawn(health.run()),
            expires: None,
        }
    }

    /// Removes services that the catalog has not had for long.
    async fn expire(&mut self) -> Result<(), Stopped> {
        let now = self.scope.shared.clock.now();
        let is_over = |followed: &Followed| followed.expires.is_some_and(|at| at <= now);
        let expired = self.services.iter().filter(|(_, one)| is_over(one));
        let expired: Vec<_> = expired.map(|(name, _)| Arc::clone(name)).collect();
        for name in expired {
            if let Some(mut followed) = self.services.remove(&name) {
                followed.task.abort();
                // What it had sent comes before the removal.
                let _ = (&mut followed.task).await;
            }
            self.scope
                .shared
                .services
                .send_modify(|services| *services -= 1);
            self.scope.progress.removed(&name);
            self.scope
                .send(Update::Service(self.scope.number, name, None))
                .await?;
        }
        Ok(())
    }
}
