//! [`Reporter`]: writes status of policies, events of Services and Istio's DestinationRules.
//!
//! Writes are idempotent and rare: conditions when they change, numbers of zones at most once a
//! minute. One of several replicas writes, except events, which have the same name in all of them.
//! What cannot be written is logged and tried again at the next interval; nothing else depends on
//! it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_core::log_line;
use plimsoll_kubernetes::SourceStatus;
use plimsoll_kubernetes::objects::ObjectKey;
use plimsoll_kubernetes::reflector::Failure;
use plimsoll_kubernetes::write::{ApiWriter, Warning, rfc3339};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::report::{
    NO_FLEETS, PolicyReport, PolicyView, ServiceDistribution, Verdict, add_distribute_condition,
    is_writer, next_status, reports,
};
use super::translate::Refused;
use crate::log_lines;
use crate::run::Context;
use crate::server::Stopped;

/// A condition that changed is written within this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);
/// Numbers of zones are not written more often than this.
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// How long the shares of load lines may be computed for one report.
const LOAD_BUDGET: Duration = Duration::from_millis(50);
/// Writes of one report; the others follow in the next.
const MAX_WRITES: usize = 20;
/// Failed writes are logged once in this time.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Writes to the cluster what its users want to see there.
#[derive(Debug)]
pub(super) struct Reporter {
    writer: ApiWriter,
    context: Context,
    inputs: ReportInputs,
    /// When numbers of zones were last written.
    refreshed: BTreeMap<ObjectKey, Instant>,
    /// Statuses that were written and that the watch has not returned yet.
    written: BTreeMap<ObjectKey, plimsoll_kubernetes::objects::PolicyStatus>,
    logged: Option<Instant>,
    /// The event whose write failed.
    unsent: Option<Refused>,
    /// Writes that are left in this report.
    writes: usize,
}

/// What reports are made from. A slow API server delays reports, and never changes of services.
#[derive(Debug)]
pub(super) struct ReportInputs {
    pub(super) policies: watch::Receiver<Arc<Vec<PolicyView>>>,
    /// Settings that are refused or without effect, for events.
    pub(super) refused: mpsc::Receiver<Refused>,
    pub(super) status: Arc<SourceStatus>,
}

impl Reporter {
    pub(super) const fn new(writer: ApiWriter, context: Context, inputs: ReportInputs) -> Self {
        Self {
            writer,
            context,
            inputs,
            refreshed: BTreeMap::new(),
            written: BTreeMap::new(),
            logged: None,
            unsent: None,
            writes: 0,
        }
    }

    /// Writes reports until the control plane stops.
    pub(super) async fn run(mut self) -> Result<(), Stopped> {
        let mut ticks = tokio::time::interval(REPORT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.inputs.status.failing().is_none() {
                self.report().await?;
            }
        }
    }

    async fn report(&mut self) -> Result<(), Stopped> {
        self.writes = MAX_WRITES;
        let counts = self.context.handle.inspect(|state, _| is_writer(state));
        let counts = counts.await?;
        self.write_events(counts).await;
        let has_changed = self.inputs.policies.has_changed().map_err(|_| Stopped)?;
        let views = Arc::clone(&self.inputs.policies.borrow_and_update());
        if has_changed {
            let exists = |key: &ObjectKey| views.iter().any(|view| view.policy.key == *key);
            self.refreshed.retain(|key, _| exists(key));
            // The policies have the status that was written, or that of another replica.
            self.written.clear();
        }
        if views.is_empty() {
            return Ok(());
        }
        let lines = self.context.load_lines(LOAD_BUDGET).await?;
        let inspect = move |state: &_, _| is_writer(state).then(|| reports(state, &lines, &views));
        let reports = self.context.handle.inspect(inspect).await?;
        for report in reports.unwrap_or_default() {
            if self.writes > 0 {
                self.write_report(report).await;
            }
        }
        Ok(())
    }

    /// Writes events. All replicas do, because those that serve may know of different ones; the
    /// writer counts one that is there once more.
    async fn write_events(&mut self, counts: bool) {
        while self.writes > 0 {
            let next = self.unsent.take();
            let Some(refused) = next.or_else(|| self.inputs.refused.try_recv().ok()) else {
                return;
            };
            self.writes -= 1;
            let Some((key, uid)) = &refused.service else {
                continue;
            };
            let warning = Warning {
                reason: refused.event,
                message: &refused.reason,
            };
            let sent = self.writer.warn_service(key, uid, warning, counts);
            let Err(failure) = sent.await else {
                continue;
            };
            self.failed(&failure, "Event");
            if is_temporary(&failure) {
                self.unsent = Some(refused);
                return;
            }
        }
    }

    async fn write_report(&mut self, report: PolicyReport) {
        let PolicyReport {
            policy,
            mut status,
            distribution,
        } = report;
        if let Some(distribution) = distribution {
            let outcome = self.distribute(&distribution).await;
            add_distribute_condition(&mut status, outcome);
        }
        let now = Instant::now();
        let last = self.refreshed.get(&policy.key);
        let may_refresh = last.is_none_or(|last| *last + REFRESH_INTERVAL <= now);
        let before = self.written.get(&policy.key).unwrap_or(&policy.status);
        let time = rfc3339(SystemTime::now());
        let Some(next) = next_status(before, status, &time, may_refresh) else {
            return;
        };
        self.writes = self.writes.saturating_sub(1);
        match self.writer.patch_status(&policy.key, &next).await {
            Ok(()) => {
                self.refreshed.insert(policy.key.clone(), now);
                self.written.insert(policy.key.clone(), next);
            }
            Err(failure) => self.failed(&failure, "ZoneRoutingPolicy status"),
        }
    }

    /// Applies the distribution of a Service, unless it is there. Returns the condition.
    async fn distribute(&mut self, distribution: &ServiceDistribution) -> Verdict {
        let ServiceDistribution {
            service,
            shown_only,
            distribute,
        } = distribution;
        let distribute = match distribute {
            Ok(distribute) => distribute,
            Err(reason) => return Verdict::new("False", "NoRegion", *reason),
        };
        if distribute.as_array().is_none_or(Vec::is_empty) {
            return Verdict::new("False", "NoDemand", "no demand is known");
        }
        if let Some(reason) = shown_only {
            let why = if *reason == NO_FLEETS {
                "; spec.istio.fleets has to name the fleets whose demand counts"
            } else {
                ""
            };
            return Verdict::new("False", reason, format!("would write {distribute}{why}"));
        }
        let rules = match self.writer.destination_rules(&service.namespace).await {
            Ok(rules) => rules,
            Err(failure) => {
                self.failed(&failure, "DestinationRule");
                return failed(&failure);
            }
        };
        let hosts = [
            service.name.to_string(),
            format!("{}.{}", service.name, service.namespace),
            format!("{}.{}.svc.cluster.local", service.name, service.namespace),
        ];
        let rule = rules.iter().find(|rule| hosts.contains(&rule.host));
        // Istio uses one rule per host: an existing one gets the distribution, too.
        let name = rule.map_or_else(|| service.name.to_string(), |rule| rule.name.clone());
        if rule.is_none_or(|rule| rule.distribute != *distribute) {
            self.writes = self.writes.saturating_sub(1);
            let key = ObjectKey::new(&service.namespace, &name);
            let host = rule.map_or(&hosts[2], |rule| &rule.host);
            let applied = self.writer.apply_distribute(&key, host, distribute).await;
            if let Err(failure) = applied {
                self.failed(&failure, "DestinationRule");
                return failed(&failure);
            }
        }
        let message = format!("DestinationRule {name} has {distribute}");
        Verdict::new("True", "Written", message)
    }

    /// Notes a write that failed. Without answer, the rest of the report waits for the next one.
    fn failed(&mut self, failure: &Failure, what: &'static str) {
        if matches!(failure, Failure::Transport(_)) {
            self.writes = 0;
        }
        let now = Instant::now();
        if self
            .logged
            .is_some_and(|logged| now < logged + LOG_INTERVAL)
        {
            return;
        }
        self.logged = Some(now);
        let reason = failure.text();
        log_line!(log_lines::KUBERNETES_WRITE_FAILED, what, reason);
    }
}

/// Whether a write may succeed later as it is. One that is refused, for lack of rights or because
/// its namespace is gone, will not.
fn is_temporary(failure: &Failure) -> bool {
    match failure {
        Failure::Transport(_) => true,
        Failure::Status { status, .. } => status.code == 429 || status.code >= 500,
    }
}

/// Condition of a distribution that was not written. The message of a conflict names the manager
/// that owns the field.
fn failed(failure: &Failure) -> Verdict {
    let is_conflict = matches!(failure, Failure::Status { status, .. } if status.code == 409);
    let reason = if is_conflict { "Conflict" } else { "Failed" };
    Verdict::new("False", reason, failure.text())
}

#[cfg(test)]
mod tests;
