//! The verdict in `/api/v1/status` and in the document of the dashboard.

use plimsoll_admin::api::Verdict as Shown;
use plimsoll_serve::http_client::with_query;

use crate::verdict::{LookAt, Verdict};

impl From<Verdict> for Shown {
    fn from(verdict: Verdict) -> Self {
        let (fleet, cluster, locality) = verdict.look_at.parts();
        Self {
            severity: verdict.severity.name().to_owned(),
            kind: verdict.kind.to_owned(),
            text: verdict.text(),
            fleet: fleet.map(ToString::to_string),
            cluster: cluster.map(ToString::to_string),
            locality: locality.cloned(),
            see: see(&verdict.look_at),
            others: u64::try_from(verdict.others).unwrap_or(u64::MAX),
            what: verdict.what,
            why: verdict.why,
            remedy: verdict.remedy,
        }
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
