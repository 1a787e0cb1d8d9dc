//! The page of the demo: what the control plane shows, with what backends, proxies and clients of
//! the demo know, and with buttons.
//!
//! While the control plane runs, demand and traffic are those of its load reports. While it does
//! not, they are what the demo's backends see. Utilization is what backends report (ORCA), states
//! and reasons are those of the proxies themselves.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_admin::source::{Ended, Pending, Refused, Source};
use plimsoll_admin::state::{
    ActionState, ClusterState, DashboardState, EventState, Flow, Notice, Severity, ZoneState,
};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIfAnswer, WhatIfQuestion, rounded};
use plimsoll_core::explain::Explanation;
use serde_json::Value;
use tokio::sync::watch;

use super::setting::{Action, ZONES};
use super::stage::{Scene, Stage};

/// Events of the page.
const EVENTS: usize = 100;

/// The demo as a source.
pub(crate) struct DemoSource {
    stage: Arc<Stage>,
    /// Its sender is dropped when the demo is to end.
    stopping: watch::Receiver<()>,
    /// What the control plane showed last.
    last: Mutex<Option<Arc<DashboardState>>>,
}

impl DemoSource {
    /// A source that shows `stage`.
    pub(crate) fn new(stage: Arc<Stage>, stopping: watch::Receiver<()>) -> Self {
        Self {
            stage,
            stopping,
            last: Mutex::default(),
        }
    }

    /// What the control plane shows, and whether that is now.
    async fn base(&self) -> (DashboardState, bool) {
        let state = match self.stage.control() {
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

    fn control(&self) -> Result<Arc<dyn Source>, Refused> {
        let control = self.stage.control();
        control.ok_or_else(|| Refused::new("the control plane is stopped"))
    }
}

impl Source for DemoSource {
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>> {
        Box::pin(async {
            if self.stopping.has_changed().is_err() {
                return Err(Ended);
            }
            let (base, live) = self.base().await;
            let explained = self.stage.explanations().await;
            let (scene, events) = (self.stage.scene(), self.stage.events());
            let mut state = document(base, live, &scene, events, &explained);
            let proxies = self.stage.proxies_are();
            state.subtitle = format!("{}, proxies are {proxies}", state.subtitle);
            for action in &mut state.actions {
                let known = Action::parse(&action.name);
                action.unavailable = known.and_then(|known| self.stage.unavailable(known));
            }
            Ok(Arc::new(state))
        })
    }

    fn closed(&self) -> Pending<'_, ()> {
        let mut stopping = self.stopping.clone();
        Box::pin(async move { while stopping.changed().await.is_ok() {} })
    }

    fn act(&self, name: String) -> Pending<'_, Result<String, Refused>> {
        Box::pin(async move {
            let action = Action::parse(&name);
            let action = action.ok_or_else(|| Refused::new(format!("there is no {name:?}")))?;
            let acted = self.stage.act(action).await;
            acted.map_err(|error| Refused::new(format!("{error:#}")))?;
            Ok(action.done().to_owned())
        })
    }

    fn what_if(&self, question: WhatIfQuestion) -> Pending<'_, Result<WhatIfAnswer, Refused>> {
        Box::pin(async { self.control()?.what_if(question).await })
    }

    fn explain(&self, question: ExplainQuestion) -> Pending<'_, Result<Explanation, Refused>> {
        Box::pin(async { self.control()?.explain(question).await })
    }
}

/// The document of a scene; `live` says whether `base` is of now.
fn document(
    base: DashboardState,
    live: bool,
    scene: &Scene,
    events: Vec<EventState>,
    explained: &[Option<Value>; 3],
) -> DashboardState {
    let mut state = base;
    state.title = "plimsoll demo".to_owned();
    state.subtitle = format!(
        "{} over 12 backends in 3 zones",
        scene.setting.policy.name()
    );
    state.version = env!("CARGO_PKG_VERSION").to_owned();
    if !live {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        state.taken_unix_ms = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        for node in state.nodes.iter_mut().flatten() {
            node.connected = false;
        }
    }
    // While nobody answers, the answer says so; panels do not come and go.
    state.what_if = true;
    state.explain = true;
    state.notices = notices(state.notices, scene);
    state.actions = actions(scene);
    state.events.extend(events);
    state
        .events
        .sort_by_key(|event| std::cmp::Reverse(event.at_unix_ms));
    state.events.truncate(EVENTS);
    for cluster in &mut state.clusters {
        if scene.setting.policy.is_load_aware() {
            cluster.basis = "utilization".to_owned();
        }
        if !live {
            put_traffic(cluster, scene);
        }
        for zone in &mut cluster.zones {
            if let Some(index) = index(zone) {
                put_zone(zone, scene.utilization[index], explained[index].as_ref());
            }
        }
    }
    state
}

fn notices(own: Vec<Notice>, scene: &Scene) -> Vec<Notice> {
    let notice = |severity, text: &str| Notice {
        severity,
        text: text.to_owned(),
    };
    let mut notices = vec![notice(Severity::Info, scene.last.look())];
    if !scene.setting.control {
        let text = "the control plane is stopped: proxies route on with what they have; traffic \
                    below is what backends see";
        notices.push(notice(Severity::Warning, text));
    }
    if scene.setting.lost {
        notices.push(notice(Severity::Warning, "the backends of zone-c are dead"));
    }
    notices.extend(own);
    notices
}

/// The buttons. Of several choices the one in force is pressed; what can only be done or undone is
/// offered while it would change something.
fn actions(scene: &Scene) -> Vec<ActionState> {
    let in_force = |action: Action| scene.setting.after(action) == scene.setting;
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
    ZONES.iter().position(|name| *name == zone.locality.zone)
}

/// What backends report, and what proxies say of themselves.
fn put_zone(zone: &mut ZoneState, utilization: Option<f64>, explained: Option<&Value>) {
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
    // load_aware_locality has weights instead of states: shown is what they amount to.
    let state = match (text("locality_policy"), kept) {
        (Some("load_aware_locality"), Some(kept)) if kept < 1.0 => Some("LocalityResidual"),
        (Some("load_aware_locality"), Some(_)) => Some("LocalityDirect"),
        _ => text("state"),
    };
    zone.state = state.map(str::to_owned);
}

/// What backends see.
fn put_traffic(cluster: &mut ClusterState, scene: &Scene) {
    let places: Vec<Option<usize>> = cluster.zones.iter().map(index).collect();
    cluster.flows.clear();
    for (to_place, to) in places.iter().enumerate() {
        for (from_place, from) in places.iter().enumerate() {
            let (Some(to), Some(from)) = (*to, *from) else {
                continue;
            };
            let rate = scene.rates.taken[to][from];
            if rate > 0.0 {
                cluster
                    .flows
                    .push(Flow(from_place, to_place, rounded(rate)));
            }
        }
    }
    for (zone, index) in cluster.zones.iter_mut().zip(places) {
        let Some(index) = index else { continue };
        zone.demand_requests_per_second = Some(rounded(scene.rates.issued(index)));
        zone.demand_estimated = false;
        zone.healthy_hosts = scene.healthy(index) as u64;
        zone.capacity_share = Some(rounded(scene.capacity_share(index)));
        zone.served_requests_per_second = Some(rounded(scene.rates.served(index)));
        zone.line_requests_per_second = Some(rounded(scene.line(index)));
        zone.load = scene.load(index).map(rounded);
        zone.kept_local = scene.rates.kept_local(index).map(rounded);
    }
}

#[cfg(test)]
mod tests;
