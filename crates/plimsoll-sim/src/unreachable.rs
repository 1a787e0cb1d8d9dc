//! [`Unreachable`]: how Plimsoll's data planes avoid hosts to which connections failed: a host is
//! in backoff after a failure, and not picked while another is available; after two such hosts in a
//! zone, a request avoids the whole zone. Stock Envoys do not do this, and never report a failure
//! here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::picker::{PickArgs, PickResult, Picker};

use crate::num;

/// First backoff, and the longest; it doubles with each failure.
const FIRST: u64 = num::SECOND;
const LONGEST: u64 = 30 * num::SECOND;
/// Maximum number of picks to find a host that is not in backoff; then one in backoff is used.
const MAX_REPICKS: usize = 8;
/// Unreachable hosts in a zone after which the whole zone is avoided.
const UNREACHABLE_HOSTS: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct Unreachable {
    /// Number of failed connections in a row, and the end of the backoff.
    hosts: BTreeMap<SocketAddr, (u32, u64)>,
}

impl Unreachable {
    pub(crate) fn handle_failure(&mut self, host: SocketAddr, now: u64) {
        let (failures, until) = self.hosts.entry(host).or_insert((0, 0));
        let pause = FIRST.checked_shl(*failures).unwrap_or(LONGEST).min(LONGEST);
        *failures = (*failures + 1).min(u32::BITS - 1);
        *until = now + pause;
    }

    pub(crate) fn handle_success(&mut self, host: SocketAddr) {
        if !self.hosts.is_empty() {
            self.hosts.remove(&host);
        }
    }

    fn is_in_backoff(&self, host: &Host, now: u64) -> bool {
        let known = self.hosts.get(&host.address());
        known.is_some_and(|&(_, until)| now < until)
    }

    /// Picks a host that is neither in `tried` nor in backoff, if there is one.
    pub(crate) fn pick(
        &self,
        picker: &mut Picker,
        tried: &[Arc<Host>],
        now: u64,
    ) -> Option<Arc<Host>> {
        let mut avoid = Vec::new();
        for host in tried {
            avoid_unreachable(&mut avoid, host, picker);
        }
        let first = pick(picker, &avoid)?;
        let mut found = Arc::clone(&first);
        for _ in 0..MAX_REPICKS {
            if !self.is_in_backoff(&found, now) {
                let known = avoid.iter().any(|other| Arc::ptr_eq(other, &found));
                return Some(if known { first } else { found });
            }
            avoid_unreachable(&mut avoid, &found, picker);
            found = pick(picker, &avoid)?;
        }
        Some(first)
    }
}

fn pick(picker: &mut Picker, avoid: &[Arc<Host>]) -> Option<Arc<Host>> {
    let args = PickArgs {
        avoid,
        ..Default::default()
    };
    match picker.pick(args) {
        PickResult::Complete(pick) => Some(Arc::clone(pick.host)),
        _ => None,
    }
}

/// Avoids `host`, and its whole zone after [`UNREACHABLE_HOSTS`] there.
fn avoid_unreachable(avoid: &mut Vec<Arc<Host>>, host: &Arc<Host>, picker: &mut Picker) {
    let here = |other: &&Arc<Host>| other.locality() == host.locality();
    avoid.push(Arc::clone(host));
    if avoid.iter().filter(here).count() >= UNREACHABLE_HOSTS {
        let hosts = picker.snapshot().hosts().filter(here);
        let hosts: Vec<_> = hosts.cloned().collect();
        avoid.extend(hosts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_its_limit_and_ends_with_success() {
        let mut unreachable = Unreachable::default();
        let host = SocketAddr::from(([10, 0, 0, 1], 80));
        let ends = [0_u64; 7].map(|now| {
            unreachable.handle_failure(host, now);
            unreachable.hosts[&host].1 / num::SECOND
        });
        assert_eq!(ends, [1, 2, 4, 8, 16, 30, 30]);
        unreachable.handle_success(host);
        unreachable.handle_failure(host, 0);
        assert_eq!(unreachable.hosts[&host].1, FIRST);
    }
}
