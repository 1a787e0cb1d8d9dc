//! The verdict in `/api/v1/status`.

use std::sync::Arc;

use plimsoll_serve::http_client::with_query;

use super::super::responses;
use crate::verdict::{LookAt, Verdict};

pub(super) fn verdict(verdict: &Verdict) -> responses::Verdict {
    let (fleet, cluster, locality) = verdict.look_at.parts();
    responses::Verdict {
        severity: verdict.severity.name(),
        kind: verdict.kind,
        text: verdict.text(),
        what: verdict.what.clone(),
        why: verdict.why.clone(),
        remedy: verdict.remedy.clone(),
        fleet: fleet.map(Arc::clone),
        cluster: cluster.map(Arc::clone),
        locality: locality.cloned(),
        see: see(&verdict.look_at),
        others: verdict.others,
    }
}

fn see(look_at: &LookAt) -> Option<String> {
    Some(match look_at {
        LookAt::Nothing => return None,
        LookAt::Zone(fleet, cluster, zone) => {
            let mut query: Vec<(&str, &str)> = vec![("cluster", cluster), ("fleet", fleet)];
            let parts = [
                ("region", zone.region()),
                ("zone", zone.zone()),
                ("sub_zone", zone.sub_zone()),
            ];
            query.extend(parts.iter().filter(|(_, part)| !part.is_empty()));
            with_query("/api/v1/explain", &query)
        }
        LookAt::Nodes => "/api/v1/nodes".to_owned(),
        LookAt::Replicas => "/api/v1/replicas".to_owned(),
        LookAt::Events => "/api/v1/audit".to_owned(),
    })
}
