//! Dashboard of one proxy: converts plimsoll-proxy's state to plimsoll-admin's JSON document.
//!
//! Neither crate depends on the other, so the conversion is in this crate, like `dashboard` for the
//! control plane. A proxy knows its own requests, its hosts and why it chooses them. Only the
//! control plane knows the demand and load of other zones; here they stay unknown, and the page
//! says so.

mod clusters;
mod events;
mod rates;
mod what_if;

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_admin::api::Cost;
use plimsoll_admin::source::{BoxFuture, Rejection, ShuttingDown, Source};
use plimsoll_admin::state::{DashboardState, Notice, Severity, unix_ms};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIf, WhatIfQuestion};
use plimsoll_client::XdsState;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_proxy::Context;
use plimsoll_xds::driver::Clock;

use rates::Rates;

use crate::dashboard::{WallClock, refused};

const ONE_PROXY: &str = "This page shows one proxy: requests and costs are its own. The dashboard \
                         of the control plane shows demand and load of every zone.";

pub(crate) struct ProxySource {
    context: Context,
    clock: Clock,
    /// Created once, so that the timestamps of past events do not jitter.
    wall_clock: WallClock,
    rates: Mutex<Rates>,
}

impl ProxySource {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context,
            clock: Clock::system(),
            wall_clock: WallClock::new(),
            rates: Mutex::default(),
        }
    }

    async fn document(&self) -> DashboardState {
        let client = self.context.client();
        let taken_unix_ms = unix_ms();
        let mut clusters = Vec::new();
        for name in self.cluster_names() {
            // The cluster may have been removed since its name was listed.
            let explained = client.explain(&name).await.ok();
            let Some((explanation, snapshot)) = explained.zip(client.snapshot(&name)) else {
                continue;
            };
            let now = self.clock.now();
            let sent = self.lock().sent(&name, &snapshot, now);
            let node = self.context.node();
            let inputs = clusters::ClusterInputs {
                explanation: &explanation,
                snapshot: &snapshot,
                sent,
                taken_unix_ms,
            };
            clusters.push(inputs.cluster(&node));
        }
        let node = self.context.node();
        DashboardState {
            title: "plimsoll proxy".to_owned(),
            subtitle: format!("{} in {}, {}", node.id, node.locality, self.context.phase()),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            taken_unix_ms,
            notices: self.notices(),
            cost: Cost::default(),
            clusters,
            nodes: None,
            events: events::events(client, &self.cluster_names(), self.wall_clock),
            one_proxy: true,
            what_if: true,
            explain: true,
            ..DashboardState::default()
        }
    }

    /// Returns the clusters that requests are sent to: all except the local cluster and the cluster
    /// of the management server.
    fn cluster_names(&self) -> Vec<Arc<str>> {
        let own = [
            self.context.local_cluster_name(),
            self.context.management_cluster(),
        ];
        let mut names = self.context.client().cluster_names();
        names.retain(|name| !own.iter().flatten().any(|own| **own == **name));
        names
    }

    /// Returns problems that need attention, most severe first.
    fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut add = |severity, text| notices.push(Notice { severity, text });
        if let Some(error) = self.context.rejected_edit() {
            let text = format!("the last edit was rejected and has no effect: {error}");
            add(Severity::Error, text);
        }
        if !self.context.is_live() {
            let text = format!("not accepting requests: {}", self.context.phase());
            add(Severity::Warning, text);
        }
        let xds = self.context.client().xds_status().unwrap_or_default();
        if let XdsState::Disconnected { message } = &xds.state {
            let text = format!("management server is disconnected; resources are kept: {message}");
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
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        Box::pin(async {
            if self.context.stopping().is_cancelled() {
                return Err(ShuttingDown);
            }
            Ok(Arc::new(self.document().await))
        })
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.context.stopping().cancelled())
    }

    fn what_if(&self, question: WhatIfQuestion) -> BoxFuture<'_, Result<WhatIf, Rejection>> {
        Box::pin(async move {
            let client = self.context.client();
            let explained = client.explain(&question.cluster).await;
            let explanation = explained.map_err(|error| Rejection {
                error: error.to_string(),
                field: Some("cluster".to_owned()),
            })?;
            let snapshot = client
                .snapshot(&question.cluster)
                .ok_or_else(|| Rejection::new("the cluster was removed"))?;
            what_if::answer(&explanation, &snapshot, &question).map_err(refused)
        })
    }

    fn explain(&self, question: ExplainQuestion) -> BoxFuture<'_, Result<Explanation, Rejection>> {
        Box::pin(async move {
            let own = self.context.node().locality;
            if Locality::new(&question.region, &question.zone, &question.sub_zone) != own {
                let error = format!(
                    "this proxy is in {own}; ask a proxy of that zone, or the control plane"
                );
                let field = Some("zone".to_owned());
                return Err(Rejection { error, field });
            }
            let answer = self.context.client().explain(&question.cluster).await;
            answer.map_err(|error| Rejection {
                error: error.to_string(),
                field: Some("cluster".to_owned()),
            })
        })
    }
}
