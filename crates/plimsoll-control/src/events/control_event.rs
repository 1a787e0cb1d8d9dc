//! [`ControlEvent`]: events of the state.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{Suspect, ZoneName, ZoneState};
use plimsoll_core::log_line;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::{Plan, PlanScope, PlannerEvent};
use plimsoll_core::units::FieldError;

use super::Description;
use super::planner;
use super::reasons::Reason as _;
use super::streams::LIMIT_EXCEEDED;
use crate::fleet::{OpenRefusal, Suspicion};
use crate::log_lines;
use crate::services::Conflict;

/// An event for logs and counters.
#[derive(Clone, Debug, PartialEq)]
pub enum ControlEvent {
    Planner(PlannerEvent),
    /// There is another plan. It is not delivered while demand is still incomplete.
    Planned(Arc<Plan>),
    ConfigApplied {
        services: usize,
    },
    /// The heartbeat is shorter than configured, because a `staleness_threshold` requires it.
    HeartbeatShortened {
        /// Service with the shortest staleness threshold.
        cluster: Arc<str>,
        staleness_threshold: Duration,
        /// Configured or default value of `demand.heartbeat`.
        written: Duration,
        heartbeat: Duration,
        /// Whether the file asks for more.
        is_written: bool,
    },
    /// A service of a relay asks for measured demand, and the policy of the other server is one
    /// that it cannot steer.
    WithoutEffect {
        cluster: Arc<str>,
        error: FieldError,
    },
    /// Two sources have a service of the same name.
    ServiceConflict(Conflict),
    FleetChanged {
        fleet: Arc<str>,
        nodes: usize,
    },
    /// A node is in a locality that neither a service nor `fleets.zones` has, or in none: its
    /// demand does not count.
    UnknownLocality {
        fleet: Arc<str>,
        node: Arc<str>,
        locality: Locality,
        /// The known locality that was probably meant.
        nearest: Option<Locality>,
    },
    /// More streams of a kind are open for a node than one proxy opens: two proxies have its id.
    SharedId {
        fleet: Arc<str>,
        node: Arc<str>,
        streams: u32,
    },
    /// A stream of a node was refused.
    StreamRefused {
        fleet: Arc<str>,
        node: Arc<str>,
        refusal: OpenRefusal,
    },
    /// A node reports to this replica of the control plane and to another at the same time.
    DuplicateNode {
        fleet: Arc<str>,
        node: Arc<str>,
        replica: Arc<str>,
    },
    /// A node reports so often that its newest report is shared later.
    WriteDelayed {
        fleet: Arc<str>,
        node: Arc<str>,
    },
    /// A plan is too large for the store, and is delivered without the other replicas.
    PlanTooLarge {
        scope: PlanScope,
        bytes: usize,
    },
    /// The store that replicas share is connected, and has this many nodes.
    StoreConnected {
        nodes: usize,
    },
    /// The store that replicas share cannot be reached.
    StoreLost {
        reason: String,
    },
    /// A zone has another state.
    ZoneMoved {
        zone: ZoneName,
        state: ZoneState,
        reason: Arc<str>,
        by: Arc<str>,
    },
    /// A zone is ill, by what becomes of the requests between zones.
    ZoneSuspect {
        suspect: Suspect,
        /// What follows from it.
        would: Option<Arc<str>>,
    },
    /// Somebody returns a zone.
    ZoneReturns {
        zone: ZoneName,
        by: Arc<str>,
    },
    /// A drain does not fit any more and stays where it is.
    ZoneHeld {
        zone: ZoneName,
        /// Percent of its hosts that go out of use.
        limit: u32,
        reason: Arc<str>,
    },
}

impl ControlEvent {
    /// Returns what the event tells its readers.
    pub(crate) fn describe(&self) -> Description<'_> {
        match self {
            Self::Planner(event) => planner::describe(event),
            Self::Planned(plan) => planned(plan),
            // The audit has what changed.
            Self::ConfigApplied { services } => Description::logged(move |_| {
                log_line!(log_lines::CONFIG_APPLIED, services);
            }),
            Self::HeartbeatShortened {
                cluster,
                staleness_threshold,
                written,
                heartbeat,
                is_written,
            } => heartbeat_shortened(
                cluster,
                *staleness_threshold,
                is_written.then_some(*written),
                *heartbeat,
            ),
            Self::WithoutEffect { cluster, error } => without_effect(cluster, error),
            Self::ServiceConflict(conflict) => service_conflict(conflict),
            Self::FleetChanged { fleet, nodes } => fleet_changed(fleet, *nodes),
            Self::UnknownLocality {
                fleet,
                node,
                locality,
                nearest,
            } => unknown_locality(fleet, node, locality, nearest.as_ref()),
            Self::SharedId {
                fleet,
                node,
                streams,
            } => shared_id(fleet, node, *streams),
            Self::StreamRefused {
                fleet,
                node,
                refusal,
            } => stream_refused(fleet, node, refusal),
            Self::DuplicateNode {
                fleet,
                node,
                replica,
            } => Description::logged(move |suppressed| {
                log_line!(log_lines::DUPLICATE_AT_REPLICAS, %fleet, %node, %replica, suppressed);
            })
            .limited("duplicate_at_replicas")
            .warning(format!(
                "{node} of fleet {fleet} reports here and to {replica} at once"
            ))
            .counted("duplicate_nodes_total", "")
            .suspect(Suspicion::DuplicateId, fleet, node),
            Self::WriteDelayed { fleet, node } => write_delayed(fleet, node),
            Self::PlanTooLarge { scope, bytes } => plan_too_large(scope, *bytes),
            Self::StoreConnected { nodes } => {
                Description::logged(move |_| log_line!(log_lines::STORE_CONNECTED, nodes))
                    .info(format!("store connected, {nodes} proxies at all replicas"))
            }
            Self::StoreLost { reason } => {
                Description::logged(move |_| log_line!(log_lines::STORE_LOST, reason)).error(
                    format!("store unreachable, continuing with the last known state: {reason}"),
                )
            }
            Self::ZoneMoved { .. }
            | Self::ZoneSuspect { .. }
            | Self::ZoneReturns { .. }
            | Self::ZoneHeld { .. } => self.describe_zone(),
        }
    }

    /// Describes events about zones that are out of use or ill.
    fn describe_zone(&self) -> Description<'_> {
        match self {
            Self::ZoneSuspect { suspect, would } => zone_suspect(suspect, would.as_deref()),
            Self::ZoneMoved {
                zone,
                state,
                reason,
                by,
            } => {
                let state = state.name();
                let words = state.replace('_', " ");
                Description::logged(move |_| {
                    log_line!(log_lines::ZONE_MOVED, %zone, state, reason = %reason, by = %by);
                })
                .info(format!("zone {zone} is {words}: {reason} ({by})"))
            }
            Self::ZoneReturns { zone, by } => Description::logged(move |_| {
                log_line!(log_lines::ZONE_RETURNS, %zone, by = %by);
            })
            .info(format!("zone {zone} returns ({by})")),
            Self::ZoneHeld {
                zone,
                limit,
                reason,
            } => Description::logged(move |_| {
                log_line!(log_lines::ZONE_HELD, %zone, limit, reason = %reason);
            })
            .warning(format!(
                "zone {zone} stays at {limit} % out of use: {reason}"
            )),
            // Not about a zone.
            _ => Description::logged(|_| {}),
        }
    }
}

fn fleet_changed(fleet: &Arc<str>, nodes: usize) -> Description<'_> {
    let proxies = if nodes == 1 { "proxy" } else { "proxies" };
    Description::logged(move |_| log_line!(log_lines::FLEET_CHANGED, %fleet, nodes))
        .info(format!("fleet {fleet} has {nodes} {proxies}"))
        .fleet(fleet)
}

fn planned(plan: &Plan) -> Description<'_> {
    let PlanScope {
        fleet,
        upstream_cluster,
    } = &plan.scope;
    let cause = plan.cause.label();
    Description::logged(move |_| {
        let cluster = upstream_cluster.as_deref().unwrap_or("");
        log_line!(log_lines::PLANNED, %fleet, cluster, cause);
    })
    .counted("plans_total", cause)
}

fn write_delayed<'a>(fleet: &'a Arc<str>, node: &'a Arc<str>) -> Description<'a> {
    Description::logged(move |suppressed| {
        log_line!(log_lines::WRITE_DELAYED, %fleet, %node, suppressed);
    })
    .limited("store_writes")
    .counted(LIMIT_EXCEEDED, "store_writes")
}

fn plan_too_large(scope: &PlanScope, bytes: usize) -> Description<'_> {
    let PlanScope {
        fleet,
        upstream_cluster,
    } = scope;
    Description::logged(move |suppressed| {
        let cluster = upstream_cluster.as_deref().unwrap_or("");
        log_line!(log_lines::PLAN_TOO_LARGE, %fleet, cluster, bytes, suppressed);
    })
    .limited("store_plan")
    .warning(format!(
        "a plan of fleet {fleet} is too large to share: replicas deliver their own"
    ))
    .counted(LIMIT_EXCEEDED, "store_plan")
}

/// `written` is the interval in the file; `None` for the default.
fn heartbeat_shortened(
    cluster: &Arc<str>,
    threshold: Duration,
    written: Option<Duration>,
    heartbeat: Duration,
) -> Description<'_> {
    Description::logged(move |_| match written {
        Some(written) => log_line!(
            log_lines::HEARTBEAT_SHORTENED,
            %cluster, ?threshold, ?written, ?heartbeat
        ),
        None => log_line!(
            log_lines::DEFAULT_HEARTBEAT_SHORTENED,
            %cluster, ?threshold, ?heartbeat
        ),
    })
    .info(format!(
        "demand is confirmed every {heartbeat:?}, which the staleness_threshold of {cluster} \
         requires"
    ))
}

fn without_effect<'a>(cluster: &'a Arc<str>, error: &'a FieldError) -> Description<'a> {
    Description::logged(move |_| {
        let (field, reason) = (error.path(), error.reason());
        log_line!(log_lines::DEMAND_WITHOUT_EFFECT, %cluster, field, reason);
    })
    .warning(format!("{cluster}: {error}"))
}

fn service_conflict(conflict: &Conflict) -> Description<'_> {
    Description::logged(move |suppressed| {
        let (used, ignored) = (conflict.used.label(), conflict.ignored.label());
        let cluster = &conflict.service;
        log_line!(log_lines::SERVICE_CONFLICT, %cluster, used, ignored, suppressed);
    })
    .limited("service_conflict")
    .warning(conflict.to_string())
}

fn shared_id<'a>(fleet: &'a Arc<str>, node: &'a Arc<str>, streams: u32) -> Description<'a> {
    Description::logged(move |suppressed| {
        log_line!(log_lines::SHARED_NODE_ID, %fleet, %node, streams, suppressed);
    })
    .limited("shared_id")
    .warning(format!(
        "{streams} proxies of fleet {fleet} have the id {node}: their load reports replace each \
         other; give each its own --id"
    ))
    .counted("identity_mistakes_total", "shared_id")
    .suspect(Suspicion::SharedId, fleet, node)
}

fn unknown_locality<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    locality: &'a Locality,
    nearest: Option<&Locality>,
) -> Description<'a> {
    let nearest = nearest.map(ToString::to_string).unwrap_or_default();
    let hint = if nearest.is_empty() {
        String::new()
    } else {
        format!("; did you mean {nearest}?")
    };
    let (label, text) = if locality.is_unset() {
        let text = format!("{node} of fleet {fleet} has no locality, so its demand does not count");
        ("no_locality", text)
    } else {
        let text = format!(
            "{node} of fleet {fleet} is in {locality}, which no service has, so its demand does \
             not count{hint}"
        );
        ("unknown_locality", text)
    };
    Description::logged(move |suppressed| {
        let did_you_mean = nearest.as_str();
        log_line!(
            log_lines::UNKNOWN_LOCALITY,
            %fleet, %node, %locality, did_you_mean, suppressed
        );
    })
    .limited("unknown_locality")
    .warning(text)
    .counted("identity_mistakes_total", label)
    .suspect(Suspicion::UnknownLocality, fleet, node)
}

fn zone_suspect<'a>(suspect: &'a Suspect, would: Option<&'a str>) -> Description<'a> {
    let Suspect {
        zone,
        illness,
        failed_share,
        elsewhere,
        ..
    } = suspect;
    let of = illness.name();
    let (failed, rest) = (100.0 * failed_share, 100.0 * elsewhere);
    let follows = would.map_or_else(String::new, |would| format!("; {would}"));
    Description::logged(move |_| {
        log_line!(log_lines::ZONE_SUSPECT, %zone, of, failed_share, would);
    })
    .warning(format!(
        "{of} of {zone}: {failed:.1} % of the requests fail, {rest:.1} % elsewhere{follows}"
    ))
}

fn stream_refused<'a>(
    fleet: &'a Arc<str>,
    node: &'a Arc<str>,
    refusal: &'a OpenRefusal,
) -> Description<'a> {
    let reason = refusal.to_string();
    let text = format!("stream of {node} of fleet {fleet} refused: {reason}");
    let is_duplicate = matches!(refusal, OpenRefusal::DuplicateId { .. });
    let event = Description::logged(move |suppressed| {
        if is_duplicate {
            log_line!(log_lines::DUPLICATE_NODE, %fleet, %node, reason, suppressed);
        } else {
            log_line!(log_lines::STREAM_REFUSED, %fleet, %node, reason, suppressed);
        }
    })
    .limited(refusal.limit())
    .warning(text);
    if is_duplicate {
        event
            .counted("duplicate_nodes_total", "")
            .suspect(Suspicion::DuplicateId, fleet, node)
    } else {
        event.counted(LIMIT_EXCEEDED, refusal.limit())
    }
}
