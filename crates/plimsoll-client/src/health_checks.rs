//! [`HealthChecks`]: the tasks that check the hosts of one cluster, and what their verdicts amount
//! to.
//!
//! One task per host and check. A host is as healthy as the worst of its checks says. The manager
//! starts and stops them and passes signals on; the rules are in `health_check`, asking is in
//! `probe`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use plimsoll_core::model::health::HealthSignal;
use plimsoll_xds::upstream::{EndpointExtras, HealthCheck, UpstreamOptions};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::cluster_manager::Update;
use crate::connect::{Callee, Dialer};
use crate::endpoint::next_draw;
use crate::health_check::{Answer, Checker};
use crate::managed::Extras;
use crate::probe::Probe;
use crate::stats::ClusterStats;

/// The checks of one cluster.
#[derive(Debug)]
pub(crate) struct HealthChecks {
    cluster: Arc<str>,
    checks: Vec<Arc<HealthCheck>>,
    options: Arc<UpstreamOptions>,
    dialer: Arc<Dialer>,
    extras: Arc<Extras>,
    stats: Arc<ClusterStats>,
    updates: mpsc::WeakSender<Update>,
    draws: Arc<AtomicU64>,
    hosts: BTreeMap<SocketAddr, Checked>,
}

/// One host.
#[derive(Debug, Default)]
struct Checked {
    tasks: Vec<AbortHandle>,
    /// By check; `None` before its first answer.
    verdicts: Vec<Option<HealthSignal>>,
}

/// What all checks of a cluster need.
pub(crate) struct CheckContext {
    pub(crate) cluster: Arc<str>,
    pub(crate) options: Arc<UpstreamOptions>,
    pub(crate) dialer: Arc<Dialer>,
    pub(crate) extras: Arc<Extras>,
    pub(crate) stats: Arc<ClusterStats>,
    pub(crate) updates: mpsc::WeakSender<Update>,
    pub(crate) seed: u64,
}

impl HealthChecks {
    /// Checks nobody yet.
    pub(crate) fn new(context: CheckContext) -> Self {
        let checks = context.options.health_checks.iter().cloned().map(Arc::new);
        Self {
            cluster: context.cluster,
            checks: checks.collect(),
            options: context.options,
            dialer: context.dialer,
            extras: context.extras,
            stats: context.stats,
            updates: context.updates,
            draws: Arc::new(AtomicU64::new(context.seed)),
            hosts: BTreeMap::new(),
        }
    }

    /// The hosts there are now: new ones are checked, others no longer. Returns the new ones that
    /// are not to be checked.
    pub(crate) fn handle_hosts(
        &mut self,
        hosts: &BTreeMap<SocketAddr, Arc<str>>,
    ) -> Vec<SocketAddr> {
        self.hosts.retain(|address, _| hosts.contains_key(address));
        let mut exempt = Vec::new();
        for (address, hostname) in hosts {
            if self.hosts.contains_key(address) {
                continue;
            }
            let extras = self.extras.get(address).cloned().unwrap_or_default();
            let checked = match extras.disable_active_health_check {
                true => {
                    exempt.push(*address);
                    Checked::default()
                }
                false => self.start(*address, hostname, &extras),
            };
            self.hosts.insert(*address, checked);
        }
        exempt
    }

    /// Other settings of endpoints: only hosts that are to be checked in another way are checked
    /// anew, the others go on. Returns those that are no longer to be checked.
    pub(crate) fn handle_extras(
        &mut self,
        extras: Arc<Extras>,
        hosts: &BTreeMap<SocketAddr, Arc<str>>,
    ) -> Vec<SocketAddr> {
        let before = std::mem::replace(&mut self.extras, extras);
        let same = |address: &SocketAddr| {
            check_settings(before.get(address)) == check_settings(self.extras.get(address))
        };
        self.hosts.retain(|address, _| same(address));
        self.handle_hosts(hosts)
    }

    /// A check says something about a host: what all of them together say, if that is known.
    pub(crate) fn handle_verdict(
        &mut self,
        address: SocketAddr,
        check: usize,
        signal: HealthSignal,
    ) -> Option<HealthSignal> {
        let verdicts = &mut self.hosts.get_mut(&address)?.verdicts;
        *verdicts.get_mut(check)? = Some(signal);
        worst(verdicts)
    }

    fn start(&self, address: SocketAddr, hostname: &Arc<str>, extras: &EndpointExtras) -> Checked {
        let hostname: Arc<str> = match extras.health_check_hostname.as_str() {
            "" => Arc::clone(hostname),
            own => own.into(),
        };
        let mut place = address;
        place.set_port(extras.health_check_port.unwrap_or(address.port()));
        let tasks = self.checks.iter().enumerate().map(|(index, check)| {
            let mut check = HealthCheck::clone(check);
            // The port of an endpoint goes before that of all of them.
            check.alt_port = check
                .alt_port
                .filter(|_| extras.health_check_port.is_none());
            let check = Arc::new(check);
            let callee = Callee {
                addresses: [place].into(),
                hostname: Arc::clone(&hostname),
                server_name: None,
            };
            let probe = Probe::new(
                callee,
                Arc::clone(&self.dialer),
                Arc::clone(&check),
                (Arc::clone(&self.cluster), &self.options),
            );
            let task = Task {
                probe,
                check,
                stats: Arc::clone(&self.stats),
                draws: Arc::clone(&self.draws),
            };
            let verdicts = Verdicts {
                updates: self.updates.clone(),
                cluster: Arc::clone(&self.cluster),
                address,
                index,
            };
            tokio::spawn(task.run(verdicts)).abort_handle()
        });
        Checked {
            tasks: tasks.collect(),
            verdicts: vec![None; self.checks.len()],
        }
    }
}

impl Drop for Checked {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// What of an endpoint's extras changes how it is checked: port, hostname, whether at all.
fn check_settings(extras: Option<&EndpointExtras>) -> (Option<u16>, &str, bool) {
    extras.map_or((None, "", false), |extras| {
        (
            extras.health_check_port,
            &extras.health_check_hostname,
            extras.disable_active_health_check,
        )
    })
}

/// The worst of all; `None` while one is missing that could make it worse.
fn worst(verdicts: &[Option<HealthSignal>]) -> Option<HealthSignal> {
    let said = |signal| verdicts.contains(&Some(signal));
    if said(HealthSignal::ActiveCheckFailed) {
        return Some(HealthSignal::ActiveCheckFailed);
    }
    if verdicts.contains(&None) {
        return None;
    }
    Some(match said(HealthSignal::ActiveCheckDegraded) {
        true => HealthSignal::ActiveCheckDegraded,
        false => HealthSignal::ActiveCheckPassed,
    })
}

/// Where verdicts of one task go.
struct Verdicts {
    updates: mpsc::WeakSender<Update>,
    cluster: Arc<str>,
    address: SocketAddr,
    index: usize,
}

impl Verdicts {
    /// False when nobody listens any more.
    async fn send(&self, signal: HealthSignal) -> bool {
        let Some(updates) = self.updates.upgrade() else {
            return false;
        };
        let cluster = Arc::clone(&self.cluster);
        let update = Update::Checked(cluster, self.address, (self.index, signal));
        updates.send(update).await.is_ok()
    }
}

/// Checks one host.
struct Task {
    probe: Probe,
    check: Arc<HealthCheck>,
    stats: Arc<ClusterStats>,
    draws: Arc<AtomicU64>,
}

impl Task {
    async fn run(mut self, verdicts: Verdicts) {
        let mut checker = Checker::default();
        let pause = Checker::first_pause(&self.check, next_draw(&self.draws));
        tokio::time::sleep(pause).await;
        loop {
            self.stats.health_check_attempt.increment();
            let answer = self.probe.ask().await;
            match answer {
                Answer::Passed | Answer::Degraded => &self.stats.health_check_success,
                Answer::Failed | Answer::Unanswered => &self.stats.health_check_failure,
            }
            .increment();
            let traffic = self.stats.upstream_cx_total.get() > 0;
            let draw = next_draw(&self.draws);
            let verdict = checker.handle(answer, &self.check, (traffic, draw));
            if let Some(signal) = verdict.signal
                && !verdicts.send(signal).await
            {
                return;
            }
            tokio::time::sleep(verdict.pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_as_healthy_as_its_worst_check_says() {
        use HealthSignal::{
            ActiveCheckDegraded as Degraded, ActiveCheckFailed as Failed,
            ActiveCheckPassed as Passed,
        };
        let cases: [(&[Option<HealthSignal>], Option<HealthSignal>); 6] = [
            (&[None], None),
            (&[Some(Passed), None], None),
            (&[Some(Failed), None], Some(Failed)),
            (&[Some(Passed), Some(Passed)], Some(Passed)),
            (&[Some(Passed), Some(Degraded)], Some(Degraded)),
            (&[Some(Degraded), Some(Failed)], Some(Failed)),
        ];
        for (verdicts, expected) in cases {
            assert_eq!(worst(verdicts), expected, "{verdicts:?}");
        }
    }
}
