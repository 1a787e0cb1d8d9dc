//! The dashboard of the control plane: what plimsoll-control knows, in the document of
//! plimsoll-admin.
//!
//! The two crates do not see each other; here they meet. Nothing is decided and hardly anything
//! computed: demand and flows are the planner's, shares and reasons those of
//! `plimsoll_control::explain`. Made once a second while somebody looks, between two messages of
//! the writer, so it must stay quick: explanations are kept until what they explain has changed.

mod clusters;
mod explained;
mod nodes;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_admin::Dashboard;
use plimsoll_admin::source::{Ended, Pending, Refused, Source};
use plimsoll_admin::state::{Cost, DashboardState, EventState, Notice, Severity};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIfAnswer, WhatIfQuestion};
use plimsoll_control::admin::Counts;
use plimsoll_control::delivery::Class;
use plimsoll_control::explain::{Question, explain};
use plimsoll_control::relay::RelayStatus;
use plimsoll_control::run::{Inside, Pages};
use plimsoll_control::server::{Attention, Happening, StreamRecord};
use plimsoll_control::state::State;
use plimsoll_control::unreported::{Subscriptions, Unreported};
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_xds::driver::Clock;

use explained::Explained;

/// The pages of the dashboard, for the admin address of a control plane.
pub(crate) fn pages() -> Pages {
    Box::new(|inside| Dashboard::new(ControlSource::new(inside)).router())
}

/// What the dashboard of a control plane shows, for somebody who shows more.
pub(crate) fn source(inside: Inside) -> Arc<dyn Source> {
    Arc::new(ControlSource::new(inside))
}

/// A control plane as a source.
struct ControlSource {
    inside: Inside,
    /// When the monotonic clock began: ages become moments that do not wobble.
    origin: Moments,
    explained: Arc<Mutex<Explained>>,
}

/// Moments of the monotonic clock as milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moments {
    origin_unix_ms: u64,
}

/// What is known outside the state.
struct Outside {
    records: Vec<StreamRecord>,
    subscriptions: Subscriptions,
    happenings: Vec<Happening>,
    reloads: Counts,
    relay: RelayStatus,
    origin: Moments,
}

impl ControlSource {
    fn new(inside: Inside) -> Self {
        Self {
            inside,
            origin: Moments::new(),
            explained: Arc::default(),
        }
    }

    fn is_stopping(&self) -> bool {
        self.inside.stopping.has_changed().is_err()
    }

    /// Answers of `plimsoll_control::explain` to some questions.
    async fn explain_all<const N: usize>(
        &self,
        questions: [Question; N],
    ) -> Result<[Explanation; N], Refused> {
        let look = move |state: &State, now| {
            let answers: Result<Vec<_>, _> = questions
                .iter()
                .map(|question| explain(state, question, now))
                .collect();
            answers
        };
        let answers = self.inside.handle.inspect(look).await;
        let answers = answers.map_err(|stopped| Refused::new(stopped.to_string()))?;
        let answers = answers.map_err(refused)?;
        // As many answers as questions.
        answers.try_into().map_err(|_| Refused::new("no answer"))
    }
}

impl Source for ControlSource {
    fn state(&self) -> Pending<'_, Result<Arc<DashboardState>, Ended>> {
        Box::pin(async {
            if self.is_stopping() {
                return Err(Ended);
            }
            let handle = &self.inside.handle;
            let outside = Outside {
                records: handle.records().all(),
                subscriptions: Subscriptions::of(handle.records()),
                happenings: handle.recent().all(),
                reloads: self.inside.reloads.counts(),
                relay: handle.upstreams().status(),
                origin: self.origin,
            };
            let explained = Arc::clone(&self.explained);
            let bound = self.inside.bound;
            let look = move |state: &State, now| {
                let mut explained = explained.lock().unwrap_or_else(PoisonError::into_inner);
                let subtitle = format!("ADS and LRS on {}", bound.xds);
                document(state, &outside, &mut explained, now, subtitle)
            };
            handle.inspect(look).await.map(Arc::new).map_err(|_| Ended)
        })
    }

    fn closed(&self) -> Pending<'_, ()> {
        let mut stopping = self.inside.stopping.clone();
        Box::pin(async move { while stopping.changed().await.is_ok() {} })
    }

    fn what_if(&self, asked: WhatIfQuestion) -> Pending<'_, Result<WhatIfAnswer, Refused>> {
        let before = Question {
            cluster: asked.cluster,
            fleet: Some(asked.fleet).filter(|fleet| !fleet.is_empty()),
            every_zone: true,
            ..Question::default()
        };
        let after = Question {
            hosts: asked.hosts,
            demand: asked.demand,
            ..before.clone()
        };
        Box::pin(async move {
            let [before, after] = self.explain_all([before, after]).await?;
            Ok(WhatIfAnswer::new(&before, &after))
        })
    }

    fn explain(&self, asked: ExplainQuestion) -> Pending<'_, Result<Explanation, Refused>> {
        let locality = Locality::new(&asked.region, &asked.zone, &asked.sub_zone);
        let question = Question {
            cluster: asked.cluster,
            fleet: Some(asked.fleet).filter(|fleet| !fleet.is_empty()),
            locality: Some(locality),
            ..Question::default()
        };
        Box::pin(async move {
            let [explanation] = self.explain_all([question]).await?;
            Ok(explanation)
        })
    }
}

/// An error of a question as the page shows it.
pub(crate) fn refused(error: FieldError) -> Refused {
    Refused {
        error: error.reason().to_owned(),
        field: Some(error.path().to_owned()).filter(|field| !field.is_empty()),
    }
}

fn document(
    state: &State,
    outside: &Outside,
    explained: &mut Explained,
    now: Instant,
    subtitle: String,
) -> DashboardState {
    let events = outside.happenings.iter().map(|happening| EventState {
        at_unix_ms: outside.origin.at(happening.at),
        severity: severity(happening.attention),
        text: happening.text.clone(),
    });
    let nodes = nodes::nodes(state, outside, now);
    DashboardState {
        title: "plimsoll control".to_owned(),
        subtitle,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_unix_ms: outside.origin.at(now),
        notices: notices(state, outside, &nodes, now),
        cost: Cost::default(),
        clusters: clusters::clusters(state, outside.origin, explained, now),
        nodes: Some(nodes),
        events: events.collect(),
        actions: Vec::new(),
        one_proxy: false,
        what_if: true,
        explain: true,
    }
}

/// What needs attention, worst first.
fn notices(
    state: &State,
    outside: &Outside,
    nodes: &[plimsoll_admin::state::NodeState],
    now: Instant,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |severity, text| notices.push(Notice { severity, text });
    if let Some(error) = &outside.reloads.error {
        let text = format!("the last edit is refused, the one before stays in force: {error}");
        add(Severity::Error, text);
    }
    let refused = nodes.iter().filter(|node| node.refusal.is_some()).count();
    if refused > 0 {
        let text = format!("{} refused the last update", counted(refused, "node"));
        add(Severity::Error, text);
    }
    if state.config().relay.is_some() && outside.relay.connected < outside.relay.streams {
        let (connected, streams) = (outside.relay.connected, outside.relay.streams);
        let text = format!("relay: {connected} of {streams} streams are connected");
        add(Severity::Warning, text);
    }
    let unreported = Unreported::new(state, &outside.subscriptions, now);
    if let Some((_, id, names)) = unreported.iter().next() {
        let count = counted(unreported.iter().len(), "node");
        let names = names.join(", ");
        let text = format!(
            "load reports of {count} leave out services that it subscribes to, so that its demand \
             is not known: {id} does not report {names} (or sent it no request yet)"
        );
        add(Severity::Warning, text);
    }
    notices.extend(subsets_ignored(state));
    let mut add = |severity, text| notices.push(Notice { severity, text });
    let waiting = outside.reloads.restart_needed.join(", ");
    if !waiting.is_empty() {
        let text = format!("edits of {waiting} take effect at the next start");
        add(Severity::Warning, text);
    }
    let clusters = state.fleets().iter().count().max(1) * state.config().services.len();
    if clusters > clusters::MAX {
        let text = format!(
            "the first {} of {clusters} clusters are shown; the admin API has all",
            clusters::MAX
        );
        add(Severity::Info, text);
    }
    notices
}

/// gRPC clients have no subsets: they send to all hosts of a service.
fn subsets_ignored(state: &State) -> Option<Notice> {
    let fleets = state.fleets().iter();
    let members = fleets.flat_map(|(_, members)| members.values());
    let grpc = members.filter(|member| Class::of(&member.info) == Class::Grpc);
    let grpc = grpc.count();
    let services = state.config().services.values();
    let services = services.filter(|service| service.config.lb_subset_config().is_some());
    let names: Vec<&str> = services.map(|service| service.name().as_ref()).collect();
    if grpc == 0 || names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    let nodes = counted(grpc, "gRPC node");
    Some(Notice {
        severity: Severity::Warning,
        text: format!("{nodes} cannot take subsets and would send to all hosts of {names}"),
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

const fn severity(attention: Attention) -> Severity {
    match attention {
        Attention::Error => Severity::Error,
        Attention::Warning => Severity::Warning,
        Attention::Info => Severity::Info,
    }
}

impl Moments {
    /// As both clocks have it now.
    pub(crate) fn new() -> Self {
        let passed = Duration::from_nanos(Clock::system().now().as_nanos());
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let since = since.unwrap_or_default().saturating_sub(passed);
        Self {
            origin_unix_ms: millis(since),
        }
    }

    /// The moment of an instant.
    pub(crate) fn at(self, instant: Instant) -> u64 {
        self.origin_unix_ms + instant.as_nanos() / 1_000_000
    }

    /// The moment that is `age` before `now`.
    fn ago(self, now: Instant, age: Duration) -> u64 {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.at(Instant::from_nanos(now.as_nanos().saturating_sub(age)))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
