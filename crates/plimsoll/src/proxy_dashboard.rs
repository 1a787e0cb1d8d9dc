//! The dashboard of one proxy: what plimsoll-proxy knows, in the document of plimsoll-admin.
//!
//! The two crates do not see each other; here they meet, as `dashboard` does for the control plane.
//! A proxy knows its own requests, its hosts and why it chooses them. What arrives in other zones
//! and what they serve only the control plane knows: that stays unknown here, and the page says so.

mod clusters;
mod events;
mod rates;
mod what_if;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::Dashboard;
use plimsoll_admin::source::{Ended, Pending, Refused, Source};
use plimsoll_admin::state::{Cost, DashboardState, Notice, Severity};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIfAnswer, WhatIfQuestion};
use plimsoll_client::XdsState;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_proxy::{Inside, Pages};
use plimsoll_xds::driver::Clock;

use rates::Rates;

use crate::dashboard::{Moments, refused};

/// Said on every page.
const ONE_PROXY: &str = "This page is of one proxy: requests and costs are its own. What arrives \
                         in other zones and what they serve, the dashboard of the control plane \
                         shows.";

/// The pages of the dashboard, for the admin address of a proxy.
pub(crate) fn pages() -> Pages {
    Box::new(|inside| Dashboard::new(ProxySource::new(inside)).router())
}

/// A proxy as a source.
struct ProxySource {
    inside: Inside,
    clock: Clock,
    /// When the monotonic clock began: ages become moments that do not wobble.
    origin: Moments,
    rates: Mutex<Rates>,
}

impl ProxySource {
    fn new(inside: Inside) -> Self {
        Self {
            inside,
            clock: Clock::system(),
            origin: Moments::new(),
            rates: Mutex::default(),
        }
    }

    async fn document(&self) -> DashboardState {
        let client = self.inside.client();
        let taken_unix_ms = unix_ms();
        let mut clusters = Vec::new();
        for name in self.cluster_names() {
            // A cluster may go while it is asked for.
            let explained = client.explain(&name).await.ok();
            let Some((explanation, snapshot)) = explained.zip(client.snapshot(&name)) else {
                continue;
            };
            let now = self.clock.now();
            let sent = self.lock().sent(&name, &snapshot, now);
            let node = self.inside.node();
            let looked = clusters::Looked {
                explanation: &explanation,
                snapshot: &snapshot,
                sent,
                taken_unix_ms,
            };
            clusters.push(looked.cluster(&node));
        }
        let node = self.inside.node();
        DashboardState {
            title: "plimsoll proxy".to_owned(),
            subtitle: format!("{} in {}, {}", node.id, node.locality, self.inside.phase()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_unix_ms,
            notices: self.notices(),
            cost: Cost::default(),
            clusters,
            nodes: None,
            events: events::events(client, &self.cluster_names(), self.origin),
            one_proxy: true,
            what_if: true,
            explain: true,
            ..DashboardState::default()
        }
    }

    /// Clusters that requests are sent to: not the fleet itself, nor the management server.
    fn cluster_names(&self) -> Vec<Arc<str>> {
        let own = [
            self.inside.local_cluster_name(),
            self.inside.management_cluster(),
        ];
        let mut names = self.inside.client().cluster_names();
        names.retain(|name| !own.iter().flatten().any(|own| **own == **name));
        names
    }

    /// What needs attention, worst first.
    fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut add = |severity, text| notices.push(Notice { severity, text });
        if let Some(error) = self.inside.refused_edit() {
            let text = format!("the last edit is refused, the one before stays in force: {error}");
            add(Severity::Error, text);
        }
        if !self.inside.is_live() {
            let text = format!("this proxy does not serve: {}", self.inside.phase());
            add(Severity::Warning, text);
        }
        let xds = self.inside.client().xds_status().unwrap_or_default();
        if let XdsState::Disconnected { message } = &xds.state {
            let text = format!("no management server, what it said last stays in force: {message}");
            add(Severity::Warning, text);
        }
        for ((_, name), problem) in &xds.problems {
            add(Severity::Warning, format!("{name}: {problem}"));
        }
        add(Severity::Info, ONE_PROXY.to_owned());
        notices
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Source for ProxySource {
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>> {
        Box::pin(async {
            match self.inside.is_stopping() {
                true => Err(Ended),
                false => Ok(Arc::new(self.document().await)),
            }
        })
    }

    fn closed(&self) -> Pending<'_, ()> {
        Box::pin(self.inside.stopped())
    }

    fn what_if(&self, asked: WhatIfQuestion) -> Pending<'_, Result<WhatIfAnswer, Refused>> {
        Box::pin(async move {
            let client = self.inside.client();
            let explained = client.explain(&asked.cluster).await;
            let explanation = explained.map_err(|error| Refused {
                error: error.to_string(),
                field: Some("cluster".to_owned()),
            })?;
            let snapshot = client.snapshot(&asked.cluster);
            let snapshot = snapshot.ok_or_else(|| Refused::new("the cluster is gone"))?;
            what_if::answer(&explanation, &snapshot, &asked).map_err(refused)
        })
    }

    fn explain(&self, asked: ExplainQuestion) -> Pending<'_, Result<Explanation, Refused>> {
        Box::pin(async move {
            let own = self.inside.node().locality;
            if Locality::new(&asked.region, &asked.zone, &asked.sub_zone) != own {
                let error =
                    format!("this proxy is in {own}: ask one that is there, or the control plane");
                let field = Some("zone".to_owned());
                return Err(Refused { error, field });
            }
            let answer = self.inside.client().explain(&asked.cluster).await;
            answer.map_err(|error| Refused {
                error: error.to_string(),
                field: Some("cluster".to_owned()),
            })
        })
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    millis(since.unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
