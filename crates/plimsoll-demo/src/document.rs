//! Dashboard document of the demo: the control plane's document, extended by data of the demo's
//! backends, proxies and clients, and by buttons. While the control plane runs, demand and traffic
//! come from its load reports; while it is stopped, from the counters of the backends. Utilization
//! comes from the ORCA reports of backends, states and reasons from the proxies.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_admin::api::rounded;
use plimsoll_admin::source::{BoxFuture, Rejection, ShuttingDown, Source};
use plimsoll_admin::state::{
    ActionState, ClusterState, DashboardState, EventState, Flow, Notice, Severity, ZoneState,
    unix_ms,
};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIf, WhatIfQuestion};
use plimsoll_core::explain::Explanation;
use plimsoll_serve::CancellationToken;
use serde_json::Value;

use crate::environment::{Environment, Status};
use crate::setting::{Action, ZONES};

const MAX_EVENTS: usize = 100;

pub(crate) struct DemoSource {
    environment: Arc<Environment>,
    stopping: CancellationToken,
    last: Mutex<Option<Arc<DashboardState>>>,
}

impl DemoSource {
    pub(crate) fn new(environment: Arc<Environment>, stopping: CancellationToken) -> Self {
        Self {
            environment,
            stopping,
            last: Mutex::default(),
        }
    }

    /// Returns the latest dashboard document of the control plane, and whether it is current.
    async fn base(&self) -> (DashboardState, bool) {
        let state = match self.environment.control() {
            Some(control) => control.state().await.ok(),
            None => None,
        };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let live = state.is_some();
        if let Some(state) = state {
            *last = Some(state);
        }
        (last.as_deref().cloned().unwrap_or_default(), live)
    }

    fn control(&self) -> Result<Arc<dyn Source>, Rejection> {
        let control = self.environment.control();
        control.ok_or_else(|| Rejection::new("the control plane is stopped"))
    }
}

impl Source for DemoSource {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        Box::pin(async {
            if self.stopping.is_cancelled() {
                return Err(ShuttingDown);
            }
            let (base, live) = self.base().await;
            let explained = self.environment.explanations().await;
            let (status, events) = (self.environment.status(), self.environment.events());
            let mut state = document(base, live, &status, events, &explained);
            let proxies = self.environment.proxy_name();
            state.subtitle = format!("{}, proxies are {proxies}", state.subtitle);
            for action in &mut state.actions {
                let known = Action::parse(&action.name);
                action.unavailable = known.and_then(|known| self.environment.unavailable(known));
            }
            Ok(Arc::new(state))
        })
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.stopping.cancelled())
    }

    fn act(&self, name: String) -> BoxFuture<'_, Result<String, Rejection>> {
        Box::pin(async move {
            let unknown = || Rejection::new(format!("unknown action {name:?}"));
            let action = Action::parse(&name).ok_or_else(unknown)?;
            let result = self.environment.act(action).await;
            result.map_err(|error| Rejection::new(format!("{error:#}")))?;
            Ok(action.event().to_owned())
        })
    }

    fn what_if(&self, question: WhatIfQuestion) -> BoxFuture<'_, Result<WhatIf, Rejection>> {
        Box::pin(async { self.control()?.what_if(question).await })
    }

    fn explain(&self, question: ExplainQuestion) -> BoxFuture<'_, Result<Explanation, Rejection>> {
        Box::pin(async { self.control()?.explain(question).await })
    }
}

/// Builds the document; `live` is false if `base` is outdated (control plane stopped).
fn document(
    base: DashboardState,
    live: bool,
    status: &Status,
    events: Vec<EventState>,
    explained: &[Option<Value>; 3],
) -> DashboardState {
    let mut state = base;
    state.title = "plimsoll demo".to_owned();
    state.subtitle = format!(
        "{} over 12 backends in 3 zones",
        status.setting.policy.name()
    );
    state.version = env!("CARGO_PKG_VERSION").to_owned();
    if !live {
        state.taken_unix_ms = unix_ms();
        // The last sentence of the control plane would describe the past.
        state.verdict = None;
        for node in state.nodes.iter_mut().flatten() {
            node.connected = false;
        }
    }
    // Keep the panels while the control plane is stopped; requests then fail with that reason.
    state.what_if = true;
    state.explain = true;
    state.notices = notices(state.notices, status);
    state.actions = actions(status);
    state.events.extend(events);
    state
        .events
        .sort_by_key(|event| std::cmp::Reverse(event.at_unix_ms));
    state.events.truncate(MAX_EVENTS);
    for cluster in &mut state.clusters {
        if status.setting.policy.is_load_aware() {
            cluster.basis = "utilization".to_owned();
        }
        if !live {
            set_traffic(cluster, status);
        }
        for zone in &mut cluster.zones {
            if let Some(index) = index(zone) {
                add_explanation(zone, status.utilization[index], explained[index].as_ref());
            }
        }
    }
    state
}

fn notices(own: Vec<Notice>, status: &Status) -> Vec<Notice> {
    let notice = |severity, text: &str| Notice {
        severity,
        text: text.to_owned(),
    };
    let mut notices = vec![notice(Severity::Info, status.last.hint())];
    if !status.setting.control {
        let text = "the control plane is stopped: proxies keep their last configuration; the \
                    traffic below is measured by the backends";
        notices.push(notice(Severity::Warning, text));
    }
    if status.setting.lost {
        notices.push(notice(Severity::Warning, "the backends of zone-c are down"));
    }
    notices.extend(own);
    notices
}

/// Returns the buttons: all choices of routing and traffic, with the current choice pressed, and
/// the toggles that would change something.
fn actions(status: &Status) -> Vec<ActionState> {
    let in_force = |action: Action| status.setting.after(action) == status.setting;
    let choice = |action| matches!(action, Action::Route(_) | Action::Traffic(_));
    let action = |action: Action| ActionState {
        name: action.name().to_owned(),
        label: action.label().to_owned(),
        help: action.help().to_owned(),
        pressed: in_force(action),
        group: action.group().to_owned(),
        unavailable: None,
    };
    let all = Action::ALL.into_iter();
    let offered = all.filter(|action| choice(*action) || !in_force(*action));
    offered.map(action).collect()
}

fn index(zone: &ZoneState) -> Option<usize> {
    ZONES.iter().position(|name| *name == zone.locality.zone())
}

/// Adds the utilization reported by backends and the proxy's own explanation.
fn add_explanation(zone: &mut ZoneState, utilization: Option<f64>, explained: Option<&Value>) {
    zone.utilization = utilization.map(rounded);
    let Some(explained) = explained else { return };
    let text = |field: &str| explained[field].as_str();
    zone.reason = text("reason").map(str::to_owned);
    let localities = explained["localities"].as_array();
    let mut own = localities
        .into_iter()
        .flatten()
        .filter(|one| one["own"] == true);
    let kept = own.next().and_then(|own| own["expected_share"].as_f64());
    zone.kept_local_planned = kept.map(rounded);
    // load_aware_locality has no routing state; show the zone-aware state with the same effect.
    let state = match (text("locality_policy"), kept) {
        (Some("load_aware_locality"), Some(kept)) if kept < 1.0 => Some("LocalityResidual"),
        (Some("load_aware_locality"), Some(_)) => Some("LocalityDirect"),
        _ => text("state"),
    };
    zone.state = state.map(str::to_owned);
}

/// Replaces the traffic of a cluster by the rates measured at the backends.
fn set_traffic(cluster: &mut ClusterState, status: &Status) {
    let places: Vec<Option<usize>> = cluster.zones.iter().map(index).collect();
    cluster.flows.clear();
    for (to_place, to) in places.iter().enumerate() {
        for (from_place, from) in places.iter().enumerate() {
            let (Some(to), Some(from)) = (*to, *from) else {
                continue;
            };
            let rate = status.rates.received[to][from];
            if rate > 0.0 {
                cluster
                    .flows
                    .push(Flow(from_place, to_place, rounded(rate)));
            }
        }
    }
    for (zone, index) in cluster.zones.iter_mut().zip(places) {
        let Some(index) = index else { continue };
        zone.demand_requests_per_second = Some(rounded(status.rates.issued(index)));
        zone.demand_estimated = false;
        zone.healthy_hosts = status.healthy(index) as u64;
        zone.capacity_share = Some(rounded(status.capacity_share(index)));
        zone.served_requests_per_second = Some(rounded(status.rates.served(index)));
        zone.line_requests_per_second = Some(rounded(status.line(index)));
        zone.load = status.load(index).map(rounded);
        zone.kept_local = status.rates.kept_local(index).map(rounded);
    }
}

#[cfg(test)]
mod tests;
