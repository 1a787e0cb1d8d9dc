//! [`Authorization`]: the permission of a client to be the node of its stream, checked again when
//! the rules change. `identity` decides; this module logs, counts and waits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_core::log_line;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_serve::LogLimit;
use plimsoll_xds::ads::view::View;
use plimsoll_xds::driver::{ClientIdentity, ClientInfo, LrsInstructions};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;

use super::Handle;
use crate::events::streams::node_refused;
use crate::identity::{Permission, Purpose, Refusal, Rules};
use crate::log_lines;

/// Log lines about refused clients in a second: a client that is refused comes back.
const REFUSALS_PER_SECOND: u32 = 20;

/// How long a refusal counts as recent: clients that are refused come back within seconds.
const RECENT: Duration = Duration::from_secs(60);

/// Limits the log lines about refused clients, and remembers the last one.
#[derive(Debug)]
pub(crate) struct RefusalLog {
    limit: Mutex<LogLimit>,
    last: Mutex<Option<(Instant, String)>>,
}

impl Default for RefusalLog {
    fn default() -> Self {
        Self {
            limit: Mutex::new(LogLimit::with_burst(REFUSALS_PER_SECOND)),
            last: Mutex::default(),
        }
    }
}

impl RefusalLog {
    pub(super) fn allow(&self) -> Option<u64> {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        limit.allow(Instant::now())
    }

    /// Returns who was refused last, and why, if that was a moment ago.
    pub(super) fn recent(&self) -> Option<String> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let recent = last.as_ref().filter(|(at, _)| at.elapsed() < RECENT);
        recent.map(|(_, text)| text.clone())
    }

    fn remember(&self, text: String) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((Instant::now(), text));
    }
}

/// Permission of a client for the life of a stream.
#[derive(Debug)]
pub(super) struct Authorization {
    handle: Handle,
    rules: watch::Receiver<Arc<Rules>>,
    permission: Permission,
    client: ClientInfo,
    node: Node,
    purpose: Purpose,
}

impl Authorization {
    /// Checks that a client may be `node`. The error ends the stream.
    pub(super) fn check(
        handle: &Handle,
        client: ClientInfo,
        node: &Node,
        purpose: Purpose,
    ) -> Result<Self, Status> {
        let mut rules = handle.rules.subscribe();
        let now = Arc::clone(&rules.borrow_and_update());
        let checked = now.check(client.identity.as_deref(), node, purpose);
        let permission = checked.map_err(|refusal| refuse(handle, &client, node, &refusal))?;
        Ok(Self {
            handle: handle.clone(),
            rules,
            permission,
            client,
            node: node.clone(),
            purpose,
        })
    }

    /// Resolves when the rules no longer allow the stream. If they allow something else than
    /// before, the client has to open it again.
    pub(super) async fn revoked(&mut self) -> Status {
        loop {
            if self.rules.changed().await.is_err() {
                // The control plane shuts down, which ends the stream as well.
                return std::future::pending().await;
            }
            let rules = Arc::clone(&self.rules.borrow_and_update());
            let identity = self.client.identity.as_deref();
            match rules.check(identity, &self.node, self.purpose) {
                Ok(permission) if permission == self.permission => {}
                Ok(_) => return Status::unavailable("the rules of identities have changed"),
                Err(refusal) => return refuse(&self.handle, &self.client, &self.node, &refusal),
            }
        }
    }

    pub(super) fn readable(&self, view: Arc<View>) -> Arc<View> {
        self.permission.readable(view, &self.rules.borrow())
    }

    /// Removes what the client may not report, and returns the number of services and the first.
    pub(super) fn retain_reportable(
        &self,
        stats: &mut Vec<ClusterStats>,
    ) -> Option<(u64, Arc<str>)> {
        let rules = self.rules.borrow();
        let mut first = None;
        let mut removed = 0;
        stats.retain(|stats| {
            let may_report = self.permission.may_report(&stats.cluster_name, &rules);
            if !may_report {
                removed += 1;
                first.get_or_insert_with(|| Arc::clone(&stats.cluster_name));
            }
            may_report
        });
        first.map(|first| (removed, first))
    }

    /// Whether the client may report load of a service.
    pub(super) fn may_report(&self, service: &str) -> bool {
        self.permission.may_report(service, &self.rules.borrow())
    }

    pub(super) fn readable_instructions(&self, instructions: LrsInstructions) -> LrsInstructions {
        self.permission.readable_instructions(instructions)
    }
}

/// Logs and counts a refusal; returns the status that ends the stream.
fn refuse(handle: &Handle, client: &ClientInfo, node: &Node, refusal: &Refusal) -> Status {
    handle.counters().refused(refusal.field);
    let (id, fleet) = (&node.id, &node.cluster);
    let text = format!("{id} of {fleet}: {refusal}");
    handle.tell(node_refused(&text));
    handle.refusals.remember(text);
    if let Some(suppressed) = handle.refusals.allow() {
        let rule = refusal.rule.as_deref().unwrap_or("none");
        let peer = client
            .peer
            .map_or_else(String::new, |peer| peer.to_string());
        let identity = client.identity.as_deref().map(names).unwrap_or_default();
        log_line!(log_lines::NODE_REFUSED, peer, identity, node = %node.id, fleet = %node.cluster,
            locality = %node.locality, rule, field = refusal.field, reason = %refusal.reason,
            suppressed);
    }
    Status::permission_denied(refusal.to_string())
}

fn names(identity: &ClientIdentity) -> String {
    let names: Vec<&str> = identity
        .uris
        .iter()
        .chain(&identity.dns_names)
        .map(String::as_str)
        .collect();
    names.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_of_a_certificate_are_logged() {
        let identity = ClientIdentity {
            uris: vec!["spiffe://td/a".to_owned(), "spiffe://td/b".to_owned()],
            dns_names: vec!["a.test".to_owned()],
        };
        assert_eq!(names(&identity), "spiffe://td/a spiffe://td/b a.test");
    }

    #[tokio::test(start_paused = true)]
    async fn twenty_refusals_a_second_are_logged_and_the_others_counted() {
        let log = RefusalLog::default();
        for _ in 0..20 {
            assert_eq!(log.allow(), Some(0));
        }
        assert_eq!([log.allow(), log.allow()], [None; 2]);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(log.allow(), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_refusal_is_recent_for_a_minute() {
        let log = RefusalLog::default();
        assert_eq!(log.recent(), None);
        log.remember("1 of edge: no rule".to_owned());
        tokio::time::advance(Duration::from_secs(59)).await;
        assert_eq!(log.recent().as_deref(), Some("1 of edge: no rule"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(log.recent(), None);
    }
}
