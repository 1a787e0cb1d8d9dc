//! Dashboard of the control plane: converts the state of plimsoll-control to the dashboard document
//! of plimsoll-admin.
//!
//! Neither crate depends on the other, so the conversion is in this crate. It computes hardly
//! anything: demand and flows come from the planner, shares and reasons from
//! `plimsoll_control::explain`. The document is built once a second while a page is open. Building
//! runs in the writer's task between two messages, so it must be fast; explanations are cached.

mod clusters;
mod explanation_cache;
mod kept;
mod nodes;
mod refused;
mod replicas;
mod withheld;
mod zone_loss;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_admin::source::{BoxFuture, Rejection, ShuttingDown, Source};
use plimsoll_admin::state::{DashboardState, EventState, Notice, Severity};
use plimsoll_admin::what_if::{ExplainQuestion, WhatIf, WhatIfQuestion};
use plimsoll_admin::{Dashboard, HISTORY_PATH};
use plimsoll_control::config::{Insecure, Mode};
use plimsoll_control::delivery::NodeClass;
use plimsoll_control::evacuation::zone_list;
use plimsoll_control::explain::{ExplainError, Question};
use plimsoll_control::fleet_plan::ServicePlan;
use plimsoll_control::load_line::LoadLines;
use plimsoll_control::relay::RelayStatus;
use plimsoll_control::run::{Bound, Context};
use plimsoll_control::server::{EventSeverity, RecentEvent, StreamRecord};
use plimsoll_control::sources::SourceState;
use plimsoll_control::state::{State, Suspicion};
use plimsoll_control::unreported::{Subscriptions, Unreported};
use plimsoll_control::verdict::{Observed, Signs, Verdict};
use plimsoll_control::zone_loss::ServiceLosses;
use plimsoll_core::explain::Explanation;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::Plan;
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use plimsoll_serve::{AdminOptions, AdminPath, ReloadCounts};
use plimsoll_xds::driver::Clock;

use explanation_cache::ExplanationCache;

/// How long the shares of load lines may be computed for one document.
const LOAD_BUDGET: Duration = Duration::from_millis(200);

pub(crate) struct ControlSource {
    context: Context,
    /// Created once, so that the timestamps of past events do not jitter.
    wall_clock: WallClock,
    cache: Arc<Mutex<ExplanationCache>>,
}

/// Converts instants of the monotonic clock to Unix time in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WallClock {
    origin_unix_ms: u64,
}

/// Inputs of the dashboard document that are not part of [`State`].
struct Observations {
    records: Vec<StreamRecord>,
    subscriptions: Subscriptions,
    recent_events: Vec<RecentEvent>,
    reloads: ReloadCounts,
    relay: RelayStatus,
    sources: Vec<SourceState>,
    /// Addresses of ADS and LRS, and of the admin API, if other machines can connect to them
    /// without TLS.
    insecure: [Option<SocketAddr>; 2],
    lines: Arc<LoadLines>,
    losses: Vec<ServiceLosses>,
    /// What else the verdict is made from.
    outside: Observed,
    wall_clock: WallClock,
}

impl ControlSource {
    pub(crate) fn new(context: Context) -> Self {
        Self {
            context,
            wall_clock: WallClock::new(),
            cache: Arc::default(),
        }
    }
}

impl Source for ControlSource {
    fn state(&self) -> BoxFuture<'_, Result<Arc<DashboardState>, ShuttingDown>> {
        Box::pin(async {
            if self.context.stopping.is_cancelled() {
                return Err(ShuttingDown);
            }
            let handle = &self.context.handle;
            let lines = self.context.load_lines(LOAD_BUDGET).await;
            let lines = Arc::new(lines.map_err(|_| ShuttingDown)?);
            let losses = self.context.losses(Arc::clone(&lines)).await;
            let observed = Observations {
                records: handle.records().all(),
                subscriptions: Subscriptions::of(handle.records()),
                recent_events: handle.recent().all(),
                reloads: self.context.reloads.counts(),
                relay: handle.upstreams().status(),
                sources: handle.sources(),
                insecure: insecure(&self.context),
                lines,
                losses: losses.map_err(|_| ShuttingDown)?,
                outside: Observed::of(&self.context),
                wall_clock: self.wall_clock,
            };
            let cache = Arc::clone(&self.cache);
            let bound = self.context.bound;
            let build = move |state: &State, now| {
                let mut cache = cache.lock().unwrap_or_else(PoisonError::into_inner);
                let subtitle = format!("ADS and LRS on {}", bound.xds);
                document(state, &observed, &mut cache, now, subtitle)
            };
            handle
                .inspect(build)
                .await
                .map(Arc::new)
                .map_err(|_| ShuttingDown)
        })
    }

    fn closed(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.context.stopping.cancelled())
    }

    fn what_if(&self, question: WhatIfQuestion) -> BoxFuture<'_, Result<WhatIf, Rejection>> {
        Box::pin(async move { self.context.what_if(question).await.map_err(rejected) })
    }

    fn explain(&self, question: ExplainQuestion) -> BoxFuture<'_, Result<Explanation, Rejection>> {
        let locality = Locality::new(&question.region, &question.zone, &question.sub_zone);
        let question = Question {
            cluster: question.cluster,
            fleet: Some(question.fleet).filter(|fleet| !fleet.is_empty()),
            locality: Some(locality),
            ..Question::default()
        };
        Box::pin(async move {
            let explained = self.context.explain([question]).await;
            let [explanation] = explained.map_err(rejected)?;
            Ok(explanation)
        })
    }
}

/// Serves the dashboard on the admin address of a control plane.
pub(crate) fn admin_options(context: Context) -> AdminOptions {
    admin_options_kept_in(context, None)
}

/// Like [`admin_options`], with a directory in which the history outlives a restart.
pub(crate) fn admin_options_kept_in(context: Context, state: Option<PathBuf>) -> AdminOptions {
    let keeping = ControlSource::new(context.clone());
    let dashboard = Dashboard::new(ControlSource::new(context));
    if let Some(directory) = state {
        kept::restore(dashboard.history(), &directory);
        tokio::spawn(kept::keep(keeping, directory));
    }
    AdminOptions {
        pages: Some(dashboard.recording().router()),
        listed: vec![history_path()],
        ..AdminOptions::default()
    }
}

/// Returns the documentation of the history, which the dashboard serves.
pub(crate) const fn history_path() -> AdminPath {
    let (path, query, about) = HISTORY_PATH;
    AdminPath::new("GET", path, query, about)
}

fn rejected(error: ExplainError) -> Rejection {
    match error {
        ExplainError::Question(error) => refused(error),
        error => Rejection::new(error.to_string()),
    }
}

/// Converts the error of an explain question to the form that the page shows.
pub(crate) fn refused(error: FieldError) -> Rejection {
    Rejection {
        error: error.reason().to_owned(),
        field: Some(error.path().to_owned()).filter(|field| !field.is_empty()),
    }
}

fn document(
    state: &State,
    observed: &Observations,
    cache: &mut ExplanationCache,
    now: Instant,
    subtitle: String,
) -> DashboardState {
    let events = observed.recent_events.iter().map(|event| EventState {
        at_unix_ms: observed.wall_clock.at(event.at),
        severity: severity(event.severity),
        text: event.text.clone(),
    });
    let nodes = nodes::nodes(state, observed, now);
    let signs = Signs::new(observed.outside.clone(), state, now);
    let verdict = Verdict::new(&signs, &observed.lines);
    let zones = zone_list(state, &observed.lines, now);
    DashboardState {
        title: "plimsoll control".to_owned(),
        subtitle,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        taken_unix_ms: observed.wall_clock.at(now),
        verdict: Some(verdict.into()),
        notices: notices(state, observed, &signs, &nodes, now),
        cost: state.config().operation.cost.as_ref().into(),
        clusters: clusters::clusters(state, observed, cache, now),
        nodes: Some(nodes),
        replicas: replicas::table(state, observed.wall_clock),
        evacuation: Some(zone_loss::orders(&zones)),
        links: zone_loss::links(&zones),
        events: events.collect(),
        actions: Vec::new(),
        one_proxy: false,
        what_if: true,
        explain: true,
    }
}

fn insecure(context: &Context) -> [Option<SocketAddr>; 2] {
    // The store is in the log and in metrics: it has no address here.
    let Insecure { xds, admin, .. } = context.listeners.insecure;
    let Bound {
        xds: ads,
        admin: api,
        ..
    } = context.bound;
    [xds.then_some(ads), api.filter(|_| admin)]
}

/// Returns problems that need attention, most severe first.
fn notices(
    state: &State,
    observed: &Observations,
    signs: &Signs,
    nodes: &[plimsoll_admin::state::NodeState],
    now: Instant,
) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |severity, text| notices.push(Notice { severity, text });
    if let Some(error) = &observed.reloads.error {
        let text = format!("the last edit was rejected and has no effect: {error}");
        add(Severity::Error, text);
    }
    let [xds, admin] = observed.insecure;
    if let Some(address) = xds {
        let text = format!(
            "ADS and LRS on {address} have no TLS: every client that reaches the address may be \
             any node"
        );
        add(Severity::Warning, text);
    }
    if let Some(address) = admin {
        let text =
            format!("the admin API on {address} has no TLS: its token is sent in plain text");
        add(Severity::Warning, text);
    }
    let refused = nodes.iter().filter(|node| node.refusal.is_some()).count();
    if refused > 0 {
        let text = format!("{} rejected the last update", counted(refused, "node"));
        add(Severity::Error, text);
    }
    if state.config().relay.is_some() && observed.relay.connected < observed.relay.streams {
        let (connected, streams) = (observed.relay.connected, observed.relay.streams);
        let text = format!("relay: {connected} of {streams} streams are connected");
        add(Severity::Warning, text);
    }
    notices.extend(observed.sources.iter().flat_map(source_notices));
    notices.extend(refused::notices(signs));
    let mut add = |severity, text| notices.push(Notice { severity, text });
    let unreported = Unreported::new(state, &observed.subscriptions, now);
    if let Some((_, id, names)) = unreported.iter().next() {
        let count = counted(unreported.iter().len(), "node");
        let names = names.join(", ");
        let text = format!(
            "{count} subscribed to services that they do not report load for, so their demand is \
             unknown: {id} does not report {names} (or has not sent requests to it yet)"
        );
        add(Severity::Warning, text);
    }
    notices.extend(failing_zones(state));
    notices.extend(replicas::notices(state));
    notices.extend(suspicious_nodes(state, now));
    notices.extend(subsets_ignored(state));
    notices.extend(without_effect(state).chain(withheld::notices(state, now)));
    let mut add = |severity, text| notices.push(Notice { severity, text });
    let waiting = observed.reloads.restart_needed.join(", ");
    if !waiting.is_empty() {
        let text = format!("changes of {waiting} take effect after a restart");
        add(Severity::Warning, text);
    }
    let clusters = state.fleets().iter().count().max(1) * state.shown_services().count();
    if clusters > clusters::MAX {
        let text = format!(
            "only the first {} of {clusters} clusters are shown; the admin API lists all",
            clusters::MAX
        );
        add(Severity::Info, text);
    }
    notices
}

/// Returns what is wrong with a source of services.
fn source_notices(source: &SourceState) -> Vec<Notice> {
    let mut notices = Vec::new();
    let mut add = |severity, text| notices.push(Notice { severity, text });
    let name = source.id.name();
    match &source.failing {
        Some((since, reason)) if source.is_synced => {
            let seconds = since.as_secs();
            let text = format!(
                "{name} has not answered for {seconds} s: services and endpoints stay as they were \
                 ({reason})"
            );
            add(Severity::Error, text);
        }
        Some((_, reason)) => {
            let text = format!(
                "services of {name} have not been listed since the start, and proxies are refused \
                 until they are ({reason})"
            );
            add(Severity::Error, text);
        }
        None => {}
    }
    if source.held > 0 {
        let text = format!(
            "the last list of {name} lacks {} that were known: they stay for {}.removal_delay",
            counted(source.held, "object"),
            source.id.label()
        );
        add(Severity::Error, text);
    }
    notices
}

/// Warns about nodes that may not be what they say, and about demand that hangs on one node.
fn suspicious_nodes(state: &State, now: Instant) -> Vec<Notice> {
    let mut texts = Vec::new();
    let signs = [
        (
            Suspicion::DuplicateId,
            "a node id is in use by two addresses, and the second is refused",
        ),
        (
            Suspicion::SharedId,
            "several proxies have one id, so that their load reports replace each other: give each \
             its own --id",
        ),
        (
            Suspicion::Capped,
            "a node reports many times the median of its fleet, of which only a part counts",
        ),
    ];
    for (kind, what) in signs {
        let mut nodes = state.suspects().recent(kind, now);
        if let Some((fleet, id)) = nodes.next() {
            let more = match nodes.count() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            texts.push(format!("{what}: {id} of {fleet}{more}"));
        }
    }
    texts.extend(unknown_localities(state));
    for fleet in state.planner().fleets(now) {
        for node in fleet.dominant_nodes() {
            let (percent, zone) = (100.0 * node.share(), node.locality);
            let (id, fleet) = (node.id, fleet.name());
            texts.push(format!(
                "{id} of {fleet} carries {percent:.0} % of the demand of zone {zone}"
            ));
        }
    }
    let severity = Severity::Warning;
    let notice = |text| Notice { severity, text };
    texts.into_iter().take(MAX_SUSPICIONS).map(notice).collect()
}

/// Describes nodes whose demand does not count, with the locality that they probably mean.
fn unknown_localities(state: &State) -> impl Iterator<Item = String> {
    let unknown = state.fleets().unknown_localities();
    unknown.map(|(fleet, locality, nodes)| {
        let are = if nodes == 1 { "is" } else { "are" };
        let nodes = counted(nodes, "node");
        if locality.is_unset() {
            return format!("{nodes} of {fleet} without a locality: the demand does not count");
        }
        let nearest = state.nearest_locality(locality);
        let meant = nearest.map(|nearest| format!("; did you mean {nearest}?"));
        format!(
            "{nodes} of {fleet} {are} in {locality}, which no service has (see fleets.zones): the \
             demand does not count{}",
            meant.unwrap_or_default()
        )
    })
}

/// Names the zones whose requests fail or are not seen any more, by fleet and service.
fn failing_zones(state: &State) -> Vec<Notice> {
    let mut notices = Vec::new();
    for (fleet, _) in state.fleets().iter() {
        for service in state.shown_services() {
            let plan = state.fleet_plan(fleet);
            let own = plan.and_then(|plan| plan.services.get(service.name()));
            let enforced = own.filter(|_| service.mode == Mode::Enforce);
            let withheld = enforced.map(ServicePlan::withheld).unwrap_or_default();
            let measured = state.measured_plan(fleet, Some(service.name()));
            let mut failing = withheld.failing.clone();
            failing.extend(
                measured
                    .into_iter()
                    .flat_map(|plan| plan.failing.iter().cloned()),
            );
            let name = service.name();
            if !failing.is_empty() {
                let consequence = if withheld.failing.is_empty() {
                    ""
                } else {
                    "; host counts decide until it recovers, so that nobody spills into it"
                };
                let places = places(&failing, measured);
                notices.push(Notice {
                    severity: Severity::Error,
                    text: format!("requests of {fleet} to {name} fail {places}{consequence}"),
                });
            }
            if !withheld.unseen.is_empty() {
                let zones = joined(&withheld.unseen);
                notices.push(Notice {
                    severity: Severity::Warning,
                    text: format!(
                        "{fleet} reports no requests to {name} in {zones} any more; host counts \
                         decide, and it is tried now and then"
                    ),
                });
            }
        }
    }
    notices.truncate(MAX_SUSPICIONS);
    notices
}

/// Says where requests fail: in zones, or from some zones to others.
fn places(failing: &BTreeSet<Locality>, measured: Option<&Arc<Plan>>) -> String {
    let mut zones = Vec::new();
    let mut links = Vec::new();
    for zone in failing {
        let from = measured.map(|plan| plan.fails_only_from(zone));
        match from.unwrap_or_default() {
            from if from.is_empty() => zones.push(zone),
            from => links.push(format!("from {} to {zone}", joined(from))),
        }
    }
    let zones = (!zones.is_empty()).then(|| format!("in {}", joined(zones)));
    let places: Vec<String> = zones.into_iter().chain(links).collect();
    places.join(" and ")
}

fn joined<'a>(zones: impl IntoIterator<Item = &'a Locality>) -> String {
    let names: Vec<String> = zones.into_iter().map(ToString::to_string).collect();
    names.join(", ")
}

/// Most notices about suspicious nodes.
const MAX_SUSPICIONS: usize = 10;

/// Warns that gRPC clients do not support subsets and send to all hosts of a service.
fn subsets_ignored(state: &State) -> Option<Notice> {
    let grpc = state
        .fleets()
        .iter()
        .flat_map(|(_, members)| members.values())
        .filter(|member| NodeClass::of(&member.info) == NodeClass::Grpc)
        .count();
    let services = state.config().services.values();
    let names: Vec<&str> = services
        .filter(|service| service.config.lb_subset_config().is_some())
        .map(|service| service.name().as_ref())
        .collect();
    if grpc == 0 || names.is_empty() {
        return None;
    }
    let names = names.join(", ");
    let nodes = counted(grpc, "gRPC node");
    Some(Notice {
        severity: Severity::Warning,
        text: format!("{nodes} do not support subsets and send to all hosts of {names}"),
    })
}

/// Warns of services that ask for demand which cannot steer them: of a relay, whose policies are
/// learned later, or of a source beside the files.
fn without_effect(state: &State) -> impl Iterator<Item = Notice> + use<> {
    let found = state.without_effect().into_iter().take(MAX_SUSPICIONS);
    found.map(|(cluster, error)| Notice {
        severity: Severity::Warning,
        text: format!("{cluster}: {error}"),
    })
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

const fn severity(severity: EventSeverity) -> Severity {
    match severity {
        EventSeverity::Error => Severity::Error,
        EventSeverity::Warning => Severity::Warning,
        EventSeverity::Info => Severity::Info,
    }
}

impl WallClock {
    /// Reads the offset between the monotonic clock and Unix time.
    pub(crate) fn new() -> Self {
        Self {
            origin_unix_ms: plimsoll_control::admin::millis(Clock::system().unix_origin()),
        }
    }

    /// Converts an instant to Unix time in milliseconds.
    pub(crate) fn at(self, instant: Instant) -> u64 {
        self.origin_unix_ms + instant.as_nanos() / 1_000_000
    }

    /// Returns the Unix time in milliseconds that is `age` before `now`.
    fn ago(self, now: Instant, age: Duration) -> u64 {
        let age = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        self.at(Instant::from_nanos(now.as_nanos().saturating_sub(age)))
    }
}

#[cfg(test)]
mod tests;
