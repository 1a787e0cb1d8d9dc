//! [`Signs`]: what a verdict is made from, beside load lines.

use std::collections::BTreeSet;
use std::sync::Arc;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::FleetView;
use plimsoll_core::time::Instant;

use crate::certificates::{Stage, unix_seconds};
use crate::fleet::Suspicion;
use crate::handshakes;
use crate::relay::RelayStatus;
use crate::run::Context;
use crate::sources::SourceState;
use crate::state::State;

/// Reporting intervals after which a load report is missing.
const MISSED_INTERVALS: u32 = 3;

/// What is not part of the state: files, streams, sources.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    rejected_edit: Option<String>,
    sources: Vec<SourceState>,
    relay: RelayStatus,
    rejected_updates: Option<(usize, String)>,
    refused_client: Option<String>,
    failed_handshake: Option<(String, &'static str)>,
    ending: Vec<(Stage, String)>,
}

/// Everything that may be wrong beside the load of zones.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    /// Why the newest edit of the files has no effect.
    pub rejected_edit: Option<String>,
    pub sources: Vec<SourceState>,
    /// `None` without a store.
    pub store: Option<StoreSign>,
    /// `None` without a relayed server.
    pub relay: Option<RelayStatus>,
    /// Nodes with an open stream to this control plane, or to another replica.
    pub proxies: usize,
    /// Number of proxies that rejected their last update, and what the first one says.
    pub rejected_updates: Option<(usize, String)>,
    /// Who was refused last, and why, if that was a moment ago.
    pub refused_client: Option<String>,
    /// Whose TLS handshake failed a moment ago and why, and what to do about it.
    pub failed_handshake: Option<(String, &'static str)>,
    /// Certificates that end within two weeks, those that end first before others.
    pub ending: Vec<(Stage, String)>,
    /// A node whose id two addresses use.
    pub duplicate_id: Option<String>,
    /// A node whose id two proxies at one address use.
    pub shared_id: Option<String>,
    pub unknown_locality: Option<UnknownLocality>,
    /// Number of proxies without current load reports, and the first.
    pub without_reports: Option<(usize, String)>,
}

/// The store that replicas share.
#[derive(Clone, Debug, Default)]
pub struct StoreSign {
    pub is_connected: bool,
    pub is_synced: bool,
    /// A replica whose configuration differs.
    pub other_configuration: Option<String>,
}

/// Nodes whose demand does not count.
#[derive(Clone, Debug)]
pub struct UnknownLocality {
    pub fleet: Arc<str>,
    pub locality: Locality,
    pub nodes: usize,
    /// The locality that was probably meant.
    pub nearest: Option<Locality>,
}

impl Observed {
    /// Reads what is not part of the state.
    pub fn of(context: &Context) -> Self {
        let handle = &context.handle;
        let mut nodes = BTreeSet::new();
        let mut first = None;
        handle.records().for_each(|record| {
            let nacked = record.types.iter().find_map(|kind| kind.nacked.as_ref());
            let Some(nack) = nacked else { return };
            let node = &record.node.node;
            first.get_or_insert_with(|| format!("{} says {}", node.id, nack.detail.message));
            nodes.insert((Arc::clone(&node.cluster), Arc::clone(&node.id)));
        });
        let failed = handshakes::recent(&context.listeners);
        let clock = unix_seconds();
        let ending = handle.certificates().ending(clock).into_iter();
        Self {
            rejected_edit: context.reloads.counts().error,
            sources: handle.sources(),
            relay: handle.upstreams().status(),
            rejected_updates: first.map(|first| (nodes.len(), shortened(first))),
            refused_client: handle.recently_refused().map(shortened),
            failed_handshake: failed.map(|failed| {
                let text = shortened(handshakes::text(&failed));
                (text, handshakes::remedy(failed.failure))
            }),
            ending: ending
                .map(|each| (each.stage(clock), each.text(clock)))
                .collect(),
        }
    }
}

impl Signs {
    /// Adds what the state says. Runs in the writer, so it only looks at fleets and nodes once.
    pub fn new(observed: Observed, state: &State, now: Instant) -> Self {
        let suspect = |kind| {
            let mut recent = state.suspects().recent(kind, now);
            recent.next().map(|(fleet, id)| format!("{id} of {fleet}"))
        };
        let members = state.fleets().iter().flat_map(|(_, all)| all.values());
        let is_here = |member: &&crate::fleet::Member| member.disconnected_since.is_none();
        Self {
            rejected_edit: observed.rejected_edit.map(shortened),
            sources: observed.sources,
            store: store(state),
            relay: state.config().relay.as_ref().map(|_| observed.relay),
            proxies: members.filter(is_here).count(),
            rejected_updates: observed.rejected_updates,
            refused_client: observed.refused_client,
            failed_handshake: observed.failed_handshake,
            ending: observed.ending,
            duplicate_id: suspect(Suspicion::DuplicateId),
            shared_id: suspect(Suspicion::SharedId),
            unknown_locality: unknown_locality(state),
            without_reports: without_reports(state, now),
        }
    }
}

/// Cuts texts of peers and files, which may be pages long, to what fits into a sentence.
fn shortened(mut text: String) -> String {
    const MOST: usize = 240;
    if let Some(end) = text.find('\n') {
        text.truncate(end);
    }
    crate::events::cut(&mut text, MOST);
    text
}

fn store(state: &State) -> Option<StoreSign> {
    let replicas = state.replicas()?;
    let own = state.fingerprint();
    let mut others = replicas.all();
    let other = others.find(|(record, _)| record.configuration != own);
    Some(StoreSign {
        is_connected: replicas.is_connected(),
        is_synced: replicas.is_synced(),
        other_configuration: other.map(|(record, _)| record.replica.clone()),
    })
}

fn unknown_locality(state: &State) -> Option<UnknownLocality> {
    let (fleet, locality, nodes) = state.fleets().unknown_localities().next()?;
    Some(UnknownLocality {
        fleet: Arc::clone(fleet),
        locality: locality.clone(),
        nodes,
        nearest: state.nearest_locality(locality),
    })
}

/// Connected proxies that never opened load reporting, or whose last report is old.
fn without_reports(state: &State, now: Instant) -> Option<(usize, String)> {
    let interval = state.config().reporting.load_reporting_interval;
    let grace = interval.saturating_mul(MISSED_INTERVALS);
    let (mut count, mut first) = (0, None);
    for (fleet, members) in state.fleets().iter() {
        let view = state.planner().fleet(fleet, now);
        let is_late = |node: &plimsoll_core::planner::NodeView<'_>| {
            let most = node.report_interval.saturating_mul(MISSED_INTERVALS);
            !node.idle && !node.disconnected && node.last_report_age > most
        };
        let late = view.iter().flat_map(FleetView::nodes).filter(is_late);
        let late: BTreeSet<&Arc<str>> = late.map(|node| node.id).collect();
        for (id, member) in members {
            let is_old = member.since.saturating_add(grace) <= now;
            let never = member.ads_streams > 0 && member.lrs_streams == 0 && is_old;
            if never || late.contains(id) {
                count += 1;
                first.get_or_insert_with(|| format!("{id} of {fleet}"));
            }
        }
    }
    first.map(|first| (count, first))
}
