//! The verdict of the dashboard document.

use plimsoll_admin::state::Verdict as Shown;
use plimsoll_control::verdict::{LookAt, Verdict};

pub(super) fn shown(verdict: Verdict) -> Shown {
    let (fleet, cluster, locality) = verdict.look_at.parts();
    let section = match verdict.look_at {
        LookAt::Nothing | LookAt::Zone(..) => None,
        LookAt::Nodes => Some("nodes"),
        LookAt::Replicas => Some("replicas"),
        LookAt::Events => Some("events"),
    };
    Shown {
        level: verdict.severity.name().to_owned(),
        cluster: cluster.map(ToString::to_string),
        fleet: fleet.map(ToString::to_string),
        locality: locality.cloned(),
        section: section.map(str::to_owned),
        what: verdict.what,
        why: verdict.why,
        remedy: verdict.remedy,
        others: u64::try_from(verdict.others).unwrap_or(u64::MAX),
    }
}
