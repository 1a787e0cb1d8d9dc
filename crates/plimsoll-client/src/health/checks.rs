//! [`HealthChecks`]: active health checks of a cluster, one task per host and check.
//!
//! A host is as healthy as its worst check. `cluster::managed` starts and stops the checks and
//! forwards their signals to the balancer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use plimsoll_core::model::health::HealthSignal;
use plimsoll_core::snapshot::RoutingSnapshot;
use plimsoll_xds::upstream::{EndpointExtras, HealthCheck, UpstreamOptions};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::cluster::managed::Extras;
use crate::cluster::manager::Update;
use crate::health::check::{Checker, ProbeResult};
use crate::health::probe::Probe;
use crate::metrics::stats::ClusterStats;
use crate::upstream::connect::{DialTarget, Dialer};
use crate::upstream::endpoint::next_draw;

#[derive(Debug)]
pub(crate) struct HealthChecks {
    context: CheckContext,
    checks: Vec<Arc<HealthCheck>>,
    draws: Arc<AtomicU64>,
    hosts: BTreeMap<SocketAddr, Checked>,
}

/// Checks of one host; dropping it aborts the tasks.
#[derive(Debug, Default)]
struct Checked {
    tasks: Vec<AbortHandle>,
    /// Last result of each check; `None` before the first result.
    verdicts: Vec<Option<HealthSignal>>,
}

#[derive(Debug)]
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
    pub(crate) fn new(context: CheckContext) -> Self {
        let checks = context.options.health_checks.iter().cloned().map(Arc::new);
        Self {
            checks: checks.collect(),
            draws: Arc::new(AtomicU64::new(context.seed)),
            hosts: BTreeMap::new(),
            context,
        }
    }

    /// Starts and stops checks as hosts change; returns added hosts that are exempt from checks.
    pub(crate) fn handle_hosts(&mut self, routing: &RoutingSnapshot) -> Vec<SocketAddr> {
        let hosts: BTreeMap<SocketAddr, &Arc<str>> = routing
            .hosts()
            .map(|host| (host.address(), host.hostname()))
            .collect();
        self.hosts.retain(|address, _| hosts.contains_key(address));
        let mut exempt = Vec::new();
        for (address, hostname) in hosts {
            if self.hosts.contains_key(&address) {
                continue;
            }
            let extras = self
                .context
                .extras
                .get(&address)
                .cloned()
                .unwrap_or_default();
            let checked = if extras.disable_active_health_check {
                exempt.push(address);
                Checked::default()
            } else {
                self.start(address, hostname, &extras)
            };
            self.hosts.insert(address, checked);
        }
        exempt
    }

    /// Stops checks of hosts whose check settings changed; [`Self::handle_hosts`] restarts them.
    pub(crate) fn handle_extras(&mut self, extras: Arc<Extras>) {
        let before = std::mem::replace(&mut self.context.extras, extras);
        let same = |address: &SocketAddr| {
            check_settings(before.get(address)) == check_settings(self.context.extras.get(address))
        };
        self.hosts.retain(|address, _| same(address));
    }

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
        let mut check_address = address;
        check_address.set_port(extras.health_check_port.unwrap_or(address.port()));
        let tasks = self.checks.iter().enumerate().map(|(index, check)| {
            let mut check = HealthCheck::clone(check);
            // The endpoint's own port overrides `alt_port` of the check.
            check.alt_port = check
                .alt_port
                .filter(|_| extras.health_check_port.is_none());
            let check = Arc::new(check);
            let target = DialTarget {
                addresses: [check_address].into(),
                hostname: Arc::clone(&hostname),
                server_name: None,
            };
            let probe = Probe::new(
                target,
                Arc::clone(&self.context.dialer),
                Arc::clone(&check),
                Arc::clone(&self.context.cluster),
                &self.context.options,
            );
            let task = Task {
                probe,
                check,
                stats: Arc::clone(&self.context.stats),
                draws: Arc::clone(&self.draws),
            };
            let verdicts = SignalSender {
                updates: self.context.updates.clone(),
                cluster: Arc::clone(&self.context.cluster),
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

/// Port, host name and exemption: the settings of an endpoint that affect its checks.
fn check_settings(extras: Option<&EndpointExtras>) -> (Option<u16>, &str, bool) {
    extras.map_or((None, "", false), |extras| {
        (
            extras.health_check_port,
            &extras.health_check_hostname,
            extras.disable_active_health_check,
        )
    })
}

/// Returns the worst result; `None` while a check without a result could still be worse.
fn worst(verdicts: &[Option<HealthSignal>]) -> Option<HealthSignal> {
    let any = |signal| verdicts.contains(&Some(signal));
    if any(HealthSignal::ActiveCheckFailed) {
        return Some(HealthSignal::ActiveCheckFailed);
    }
    if verdicts.contains(&None) {
        return None;
    }
    Some(if any(HealthSignal::ActiveCheckDegraded) {
        HealthSignal::ActiveCheckDegraded
    } else {
        HealthSignal::ActiveCheckPassed
    })
}

struct SignalSender {
    updates: mpsc::WeakSender<Update>,
    cluster: Arc<str>,
    address: SocketAddr,
    index: usize,
}

impl SignalSender {
    /// Sends a check result to the cluster manager; false when the manager has ended.
    async fn send(&self, signal: HealthSignal) -> bool {
        let Some(updates) = self.updates.upgrade() else {
            return false;
        };
        let update = Update::Checked {
            cluster: Arc::clone(&self.cluster),
            address: self.address,
            check: self.index,
            signal,
        };
        updates.send(update).await.is_ok()
    }
}

struct Task {
    probe: Probe,
    check: Arc<HealthCheck>,
    stats: Arc<ClusterStats>,
    draws: Arc<AtomicU64>,
}

impl Task {
    async fn run(mut self, verdicts: SignalSender) {
        let mut checker = Checker::default();
        let pause = Checker::first_pause(&self.check, next_draw(&self.draws));
        tokio::time::sleep(pause).await;
        loop {
            self.stats.health_check_attempt.increment();
            let result = self.probe.run().await;
            match result {
                ProbeResult::Passed | ProbeResult::Degraded => &self.stats.health_check_success,
                ProbeResult::Failed | ProbeResult::Inconclusive => &self.stats.health_check_failure,
            }
            .increment();
            let has_traffic = self.stats.upstream_cx_total.get() > 0;
            let draw = next_draw(&self.draws);
            let verdict = checker.handle(result, &self.check, has_traffic, draw);
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
    fn a_host_is_as_healthy_as_its_worst_check() {
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

    #[test]
    fn settings_of_an_endpoint_that_affect_its_checks() {
        assert_eq!(check_settings(None), (None, "", false));
        let extras = EndpointExtras {
            health_check_port: Some(8081),
            health_check_hostname: "checked.example".into(),
            disable_active_health_check: true,
            ..EndpointExtras::default()
        };
        let settings = check_settings(Some(&extras));
        assert_eq!(settings, (Some(8081), "checked.example", true));
    }

    #[tokio::test]
    async fn results_are_sent_until_the_manager_ends() {
        let (updates, mut receiver) = mpsc::channel(1);
        let sender = SignalSender {
            updates: updates.downgrade(),
            cluster: "orders".into(),
            address: ([127, 0, 0, 1], 1).into(),
            index: 2,
        };
        assert!(sender.send(HealthSignal::ActiveCheckPassed).await);
        let Some(Update::Checked { cluster, check, .. }) = receiver.recv().await else {
            panic!("a result");
        };
        assert_eq!((&*cluster, check), ("orders", 2));
        drop(receiver);
        assert!(!sender.send(HealthSignal::ActiveCheckPassed).await);
        drop(updates);
        assert!(!sender.send(HealthSignal::ActiveCheckPassed).await);
    }
}
