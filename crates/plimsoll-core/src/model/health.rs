//! Health of one host: what each judge said, and the class that follows (envoy-semantics §1.1).
//!
//! Judges are the assignment (EDS), active health checks and outlier detection; each owns its bits,
//! so a host comes back only when every judge that condemned it has taken that back. Probing and
//! ejecting do not live here: drivers do that and report a [`HealthSignal`].

/// `health_status` of an endpoint in an assignment, with the numbers of
/// `envoy.config.core.v3.HealthStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum HealthStatus {
    /// 0: nothing known; usable.
    #[default]
    Unknown,
    /// 1: usable.
    Healthy,
    /// 2: not usable.
    Unhealthy,
    /// 3: not usable, and out of the denominators (being taken away on purpose).
    Draining,
    /// 4: not usable, the health check timed out.
    Timeout,
    /// 5: usable when there is not enough healthy capacity.
    Degraded,
}

impl HealthStatus {
    /// The status of that number; an unknown number is an error of the sender, never a default.
    pub const fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Unknown,
            1 => Self::Healthy,
            2 => Self::Unhealthy,
            3 => Self::Draining,
            4 => Self::Timeout,
            5 => Self::Degraded,
            _ => return None,
        })
    }
}

/// What a judge other than the assignment says about a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthSignal {
    /// The active check passed.
    ActiveCheckPassed,
    /// The active check passed and carried the degraded marker.
    ActiveCheckDegraded,
    /// The active check failed.
    ActiveCheckFailed,
    /// A response carried the immediate-health-check-fail marker: failed and excluded.
    ImmediateFailure,
    /// Outlier detection ejected the host.
    OutlierEjected,
    /// Outlier detection let the host back in.
    OutlierReturned,
}

/// The class a pick sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthClass {
    /// Gets traffic.
    Healthy,
    /// Gets traffic when there is not enough healthy capacity.
    Degraded,
    /// Gets traffic only in panic.
    Unhealthy,
}

/// All judges' words on one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthFlags {
    eds: HealthStatus,
    check: ActiveCheck,
    ejected: bool,
    immediate_failure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ActiveCheck {
    /// No active check is configured.
    #[default]
    Off,
    /// Configured, first result not in yet: not usable, and excluded if the cluster says so.
    Pending {
        excluded: bool,
    },
    Passed,
    Degraded,
    Failed,
}

impl HealthFlags {
    /// A host that no active check judges.
    pub const fn from_eds(eds: HealthStatus) -> Self {
        Self {
            eds,
            check: ActiveCheck::Off,
            ejected: false,
            immediate_failure: false,
        }
    }

    /// A host that waits for its first active check. Until then it counts as failed; with
    /// `ignore_new_hosts_until_first_hc` it is excluded from the denominators as well.
    pub const fn awaiting_first_check(eds: HealthStatus, ignore_new_hosts: bool) -> Self {
        let check = ActiveCheck::Pending {
            excluded: ignore_new_hosts,
        };
        Self {
            eds,
            check,
            ejected: false,
            immediate_failure: false,
        }
    }

    /// The same host after the assignment said `eds`.
    #[must_use]
    pub const fn with_eds(mut self, eds: HealthStatus) -> Self {
        self.eds = eds;
        self
    }

    /// The same host after `signal`.
    #[must_use]
    pub const fn after(mut self, signal: HealthSignal) -> Self {
        match signal {
            HealthSignal::ActiveCheckPassed => {
                self.check = ActiveCheck::Passed;
                self.immediate_failure = false;
            }
            HealthSignal::ActiveCheckDegraded => {
                self.check = ActiveCheck::Degraded;
                self.immediate_failure = false;
            }
            HealthSignal::ActiveCheckFailed => self.check = ActiveCheck::Failed,
            HealthSignal::ImmediateFailure => {
                self.check = ActiveCheck::Failed;
                self.immediate_failure = true;
            }
            HealthSignal::OutlierEjected => self.ejected = true,
            HealthSignal::OutlierReturned => self.ejected = false,
        }
        self
    }

    /// The coarse class; unhealthy wins over degraded.
    pub const fn class(self) -> HealthClass {
        let failed = matches!(
            self.check,
            ActiveCheck::Failed | ActiveCheck::Pending { .. }
        );
        match self.eds {
            HealthStatus::Unhealthy | HealthStatus::Timeout | HealthStatus::Draining => {
                HealthClass::Unhealthy
            }
            _ if failed || self.ejected => HealthClass::Unhealthy,
            HealthStatus::Degraded => HealthClass::Degraded,
            HealthStatus::Unknown | HealthStatus::Healthy => match self.check {
                ActiveCheck::Degraded => HealthClass::Degraded,
                _ => HealthClass::Healthy,
            },
        }
    }

    /// Subtracted from the denominators of health and panic, though still in the list of all hosts.
    pub const fn excluded(self) -> bool {
        matches!(self.eds, HealthStatus::Draining)
            || self.immediate_failure
            || matches!(self.check, ActiveCheck::Pending { excluded: true })
    }

    /// What the assignment said.
    pub const fn eds(self) -> HealthStatus {
        self.eds
    }

    /// The words that Envoy's admin pages have for what speaks against the host, in Envoy's order;
    /// none for a healthy one.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let check = self.check;
        let failed = matches!(check, ActiveCheck::Failed | ActiveCheck::Pending { .. });
        let eds = self.eds;
        let refused = matches!(eds, HealthStatus::Unhealthy | HealthStatus::Timeout);
        let flags = [
            ("failed_active_hc", failed),
            ("failed_outlier_check", self.ejected),
            ("failed_eds_health", refused),
            ("degraded_active_hc", check == ActiveCheck::Degraded),
            ("degraded_eds_health", eds == HealthStatus::Degraded),
            (
                "pending_active_hc",
                check == ActiveCheck::Pending { excluded: true },
            ),
            ("excluded_via_immediate_hc_fail", self.immediate_failure),
            ("eds_status_draining", eds == HealthStatus::Draining),
        ];
        let set = flags.into_iter().filter(|(_, set)| *set);
        set.map(|(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_eds_status_has_its_class() {
        use HealthClass::{Degraded, Healthy, Unhealthy};
        let classes = [Healthy, Healthy, Unhealthy, Unhealthy, Unhealthy, Degraded];
        for (number, class) in classes.into_iter().enumerate() {
            let status = HealthStatus::from_number(i32::try_from(number).unwrap()).unwrap();
            assert_eq!(HealthFlags::from_eds(status).class(), class, "{status:?}");
            let excluded = status == HealthStatus::Draining;
            assert_eq!(
                HealthFlags::from_eds(status).excluded(),
                excluded,
                "{status:?}"
            );
        }
        assert_eq!(HealthStatus::from_number(6), None);
        assert_eq!(HealthStatus::from_number(-1), None);
    }

    #[test]
    fn judges_do_not_overrule_each_other() {
        let host = HealthFlags::from_eds(HealthStatus::Healthy)
            .after(HealthSignal::ActiveCheckFailed)
            .after(HealthSignal::OutlierEjected);
        assert_eq!(host.class(), HealthClass::Unhealthy);
        assert_eq!(
            host.after(HealthSignal::ActiveCheckPassed).class(),
            HealthClass::Unhealthy
        );
        let back = host
            .after(HealthSignal::ActiveCheckPassed)
            .after(HealthSignal::OutlierReturned);
        assert_eq!(back.class(), HealthClass::Healthy);
        assert_eq!(
            back.with_eds(HealthStatus::Degraded).class(),
            HealthClass::Degraded
        );
    }

    #[test]
    fn waiting_for_the_first_check_excludes_only_when_asked() {
        let waiting = HealthFlags::awaiting_first_check(HealthStatus::Unknown, false);
        assert_eq!(waiting.class(), HealthClass::Unhealthy);
        assert!(!waiting.excluded());
        let ignored = HealthFlags::awaiting_first_check(HealthStatus::Unknown, true);
        assert!(ignored.excluded());
        assert!(!ignored.after(HealthSignal::ActiveCheckPassed).excluded());
    }

    #[test]
    fn what_speaks_against_a_host_has_envoys_names() {
        use HealthSignal::{
            ActiveCheckDegraded, ActiveCheckFailed, ActiveCheckPassed, ImmediateFailure,
            OutlierEjected,
        };
        let of = HealthFlags::from_eds;
        let waiting = |ignore| HealthFlags::awaiting_first_check(HealthStatus::Healthy, ignore);
        let cases = [
            (of(HealthStatus::Unknown), ""),
            (of(HealthStatus::Healthy).after(ActiveCheckPassed), ""),
            (of(HealthStatus::Unhealthy), "failed_eds_health"),
            (of(HealthStatus::Timeout), "failed_eds_health"),
            (of(HealthStatus::Degraded), "degraded_eds_health"),
            (of(HealthStatus::Draining), "eds_status_draining"),
            (waiting(false), "failed_active_hc"),
            (waiting(true), "failed_active_hc/pending_active_hc"),
            (
                of(HealthStatus::Unhealthy)
                    .after(OutlierEjected)
                    .after(ActiveCheckFailed),
                "failed_active_hc/failed_outlier_check/failed_eds_health",
            ),
            (
                of(HealthStatus::Degraded).after(ActiveCheckDegraded),
                "degraded_active_hc/degraded_eds_health",
            ),
            (
                of(HealthStatus::Healthy).after(ImmediateFailure),
                "failed_active_hc/excluded_via_immediate_hc_fail",
            ),
        ];
        for (flags, expected) in cases {
            assert_eq!(flags.names().collect::<Vec<_>>().join("/"), expected);
        }
    }

    #[test]
    fn immediate_failure_excludes_until_a_check_passes() {
        let host =
            HealthFlags::from_eds(HealthStatus::Healthy).after(HealthSignal::ImmediateFailure);
        assert!(host.excluded());
        assert_eq!(host.class(), HealthClass::Unhealthy);
        let degraded = host.after(HealthSignal::ActiveCheckDegraded);
        assert!(!degraded.excluded());
        assert_eq!(degraded.class(), HealthClass::Degraded);
    }
}
