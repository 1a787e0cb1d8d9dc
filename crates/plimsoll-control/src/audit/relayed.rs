//! [`RelayedAudit`]: entries of the audit about clusters and endpoints of the relayed server.
//!
//! Every proxy has its own stream to that server, so a change arrives once per proxy, and endpoints
//! may change every second. Changes are therefore collected and recorded together: a second after
//! the first one, and for each cluster at most every [`INTERVAL`]. A state machine without IO.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::time::Instant;

use super::diff::{Change, service_changes};
use crate::config::Service;
use crate::relay::RelayedResource;

/// Time in which changes become one entry: a server sends clusters before their endpoints, and to
/// one proxy after the other.
const SETTLE: Duration = Duration::from_secs(1);
/// Shortest time between two entries about one cluster.
const INTERVAL: Duration = Duration::from_secs(10);

/// Changes of the relayed server that are not recorded yet.
#[derive(Debug, Default)]
pub(crate) struct RelayedAudit {
    clusters: BTreeMap<Arc<str>, Recorded>,
}

#[derive(Debug, Default)]
struct Recorded {
    /// As in the last entry about it; `None` before the first.
    service: Option<Arc<Service>>,
    at: Option<Instant>,
    /// When a change is to be recorded; `None` without one.
    due: Option<Instant>,
    /// Resource and version that the policy and the endpoints come from.
    cluster: Option<String>,
    endpoints: Option<String>,
}

impl RelayedAudit {
    /// Notes that a resource of the relayed server changed.
    pub(crate) fn handle(&mut self, resource: &RelayedResource, now: Instant) {
        let name = match resource {
            RelayedResource::Cluster { cluster, .. }
            | RelayedResource::Assignment { cluster, .. } => cluster,
        };
        let recorded = self.clusters.entry(Arc::clone(name)).or_default();
        match resource {
            RelayedResource::Cluster {
                cluster, version, ..
            } => recorded.cluster = Some(format!("Cluster {cluster} version {version}")),
            RelayedResource::Assignment { name, version, .. } => {
                let place = format!("ClusterLoadAssignment {name} version {version}");
                recorded.endpoints = Some(place);
            }
        }
        let settled = now.saturating_add(SETTLE);
        let next = recorded.at.map(|at| at.saturating_add(INTERVAL));
        let due = next.map_or(settled, |next| next.max(settled));
        recorded.due.get_or_insert(due);
    }

    /// Returns when [`Self::poll`] has something to record.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.clusters.values().filter_map(|own| own.due).min()
    }

    /// Returns what differs from the last entries; `current` has the clusters as they are now.
    pub(crate) fn poll<'a>(
        &mut self,
        current: impl Fn(&str) -> Option<&'a Arc<Service>>,
        now: Instant,
    ) -> Vec<Change> {
        let mut found = Vec::new();
        for (name, recorded) in &mut self.clusters {
            if recorded.due.is_none_or(|due| due > now) {
                continue;
            }
            recorded.due = None;
            // Without endpoints a cluster is not known completely: they will be a change as well.
            let Some(service) = current(name) else {
                continue;
            };
            let before = found.len();
            match &recorded.service {
                Some(old) => {
                    let place = |at: &str| match at {
                        "endpoints" => recorded.endpoints.clone(),
                        _ => recorded.cluster.clone(),
                    };
                    found.extend(service_changes(old, service, place));
                }
                None => found.push(added(name, service, recorded.cluster.clone())),
            }
            recorded.service = Some(Arc::clone(service));
            if found.len() > before {
                recorded.at = Some(now);
            }
        }
        found
    }

    /// Forgets everything, when another server is relayed.
    pub(crate) fn clear(&mut self) {
        self.clusters.clear();
    }
}

fn added(name: &Arc<str>, service: &Service, source: Option<String>) -> Change {
    let zones = service.assignment.endpoints().iter();
    let endpoints: usize = zones.map(|zone| zone.lb_endpoints.len()).sum();
    let plural = if endpoints == 1 { "" } else { "s" };
    Change {
        service: Some(Arc::clone(name)),
        field: "service".to_owned(),
        before: None,
        after: Some(format!("{endpoints} endpoint{plural}")),
        source,
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::assignment::ClusterLoadAssignment;

    use super::*;
    use crate::state::tests::driver::{ENDPOINTS, parse};

    const SECOND: Duration = Duration::from_secs(1);

    /// Cluster `orders` of the worked example, with this assignment.
    fn service(endpoints: &str) -> Arc<Service> {
        let text = format!("services: [{{cluster: {{name: orders}}, {endpoints}}}]");
        Arc::clone(&parse(&text).services["orders"])
    }

    fn cluster(service: &Service, version: &str) -> RelayedResource {
        RelayedResource::cluster_of(service, version)
    }

    fn endpoints(assignment: &Arc<ClusterLoadAssignment>, version: &str) -> RelayedResource {
        RelayedResource::Assignment {
            cluster: "orders".into(),
            name: "orders-eds".into(),
            version: version.into(),
            assignment: Arc::clone(assignment),
        }
    }

    #[test]
    fn changes_have_the_resource_and_its_version_and_are_recorded_together() {
        let (first, second) = (
            service(ENDPOINTS),
            service("endpoints: [{locality: {zone: a}, lb_endpoints: ['10.0.0.1:80']}]"),
        );
        let mut audit = RelayedAudit::default();
        assert_eq!(audit.poll_timeout(), None);
        let start = Instant::ORIGIN;
        let at = |seconds: u32| start.saturating_add(SECOND * seconds);
        // Three proxies learn the same.
        for _ in 0..3 {
            audit.handle(&cluster(&first, "1"), start);
            audit.handle(&endpoints(&first.assignment, "1"), start);
        }
        assert_eq!(audit.poll_timeout(), Some(at(1)));
        assert_eq!(audit.poll(|_| Some(&first), start), []);
        let added = audit.poll(|_| Some(&first), at(1));
        let expected = Change {
            service: Some("orders".into()),
            field: "service".to_owned(),
            before: None,
            after: Some("10 endpoints".to_owned()),
            source: Some("Cluster orders version 1".to_owned()),
        };
        assert_eq!(added, [expected]);
        assert_eq!(audit.poll_timeout(), None);
        // Endpoints that change all the time are recorded every ten seconds, with the last version.
        for (second_of, version) in [(2, "2"), (3, "3")] {
            audit.handle(&endpoints(&second.assignment, version), at(second_of));
        }
        assert_eq!(audit.poll_timeout(), Some(at(11)));
        assert_eq!(audit.poll(|_| Some(&second), at(10)), []);
        let changed = audit.poll(|_| Some(&second), at(11));
        let has = |field: &str| changed.iter().any(|change| change.field == field);
        assert!(
            has("endpoints in a") && has("endpoint 10.0.0.2:80"),
            "{changed:?}"
        );
        for change in &changed {
            assert!(change.field.starts_with("endpoint"), "{change:?}");
            assert_eq!(
                change.source.as_deref(),
                Some("ClusterLoadAssignment orders-eds version 3")
            );
        }
        // A resource that another proxy gets again is no change.
        audit.handle(&endpoints(&second.assignment, "3"), at(30));
        assert_eq!(audit.poll(|_| Some(&second), at(31)), []);
        audit.handle(&endpoints(&second.assignment, "4"), at(32));
        assert_eq!(audit.poll_timeout(), Some(at(33)), "the last entry is old");
        audit.clear();
        assert_eq!(audit.poll_timeout(), None);
    }
}
