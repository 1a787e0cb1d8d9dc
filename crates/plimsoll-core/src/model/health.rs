//! Health of one host: one flag set per source of health, and the resulting class (envoy-semantics
//! §1.1).
//!
//! The sources are the assignment (EDS), active health checks and outlier detection. Each owns its
//! flags, so a host becomes healthy again only when every source that marked it has cleared its
//! mark. Drivers probe and eject, and report a [`HealthSignal`].

/// `health_status` of an endpoint in an assignment, with the numbers of
/// `envoy.config.core.v3.HealthStatus`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub enum HealthStatus {
    /// 0: not known, but usable.
    #[default]
    Unknown,
    /// 1: known to be usable.
    Healthy,
    /// 2: known to be unusable.
    Unhealthy,
    /// 3: not usable, and excluded from the denominators because it is being removed on purpose.
    Draining,
    /// 4: not usable, because the health check timed out.
    Timeout,
    /// 5: usable when there is not enough healthy capacity.
    Degraded,
}

impl HealthStatus {
    /// Converts the protobuf number; `None` if it is unknown, which callers must reject.
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

/// A change of health reported by active checks or outlier detection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HealthSignal {
    ActiveCheckPassed,
    /// The active check passed with the degraded marker (`x-envoy-degraded`).
    ActiveCheckDegraded,
    ActiveCheckFailed,
    /// A response carried `x-envoy-immediate-health-check-fail`: the host is failed and excluded.
    ImmediateFailure,
    OutlierEjected,
    OutlierReturned,
}

/// Health of a host as picking sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthClass {
    Healthy,
    /// Gets traffic when there is not enough healthy capacity.
    Degraded,
    /// Gets traffic only in panic.
    Unhealthy,
}

/// Health flags of one host, from all sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HealthFlags {
    eds: HealthStatus,
    check: ActiveCheck,
    ejected: bool,
    immediate_failure: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ActiveCheck {
    #[default]
    Off,
    /// No check has finished: not usable, and excluded with `ignore_new_hosts_until_first_hc`.
    Pending {
        excluded: bool,
    },
    Passed,
    Degraded,
    Failed,
}

impl HealthFlags {
    /// Creates the flags of a host without active health checking.
    pub const fn from_eds(eds: HealthStatus) -> Self {
        Self {
            eds,
            check: ActiveCheck::Off,
            ejected: false,
            immediate_failure: false,
        }
    }

    /// Creates the flags of a host that awaits its first active check. Until then it counts as
    /// failed; with `ignore_new_hosts_until_first_hc` it is also excluded from the denominators.
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

    /// Returns the flags after the assignment changed to `eds`.
    #[must_use]
    pub const fn with_eds(mut self, eds: HealthStatus) -> Self {
        self.eds = eds;
        self
    }

    /// Returns the flags after `signal`.
    #[must_use]
    pub const fn with_signal(mut self, signal: HealthSignal) -> Self {
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

    /// Returns the resulting class; unhealthy wins over degraded.
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

    /// Whether the host is left out of the denominators of health and panic.
    pub const fn excluded(self) -> bool {
        matches!(self.eds, HealthStatus::Draining)
            || self.immediate_failure
            || matches!(self.check, ActiveCheck::Pending { excluded: true })
    }

    /// Returns the status in the assignment.
    pub const fn eds(self) -> HealthStatus {
        self.eds
    }

    /// Iterates over the failure flags as named on Envoy's admin pages, in Envoy's order; empty for
    /// a healthy host.
    pub fn envoy_flags(self) -> impl Iterator<Item = &'static str> {
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
    fn sources_of_health_do_not_override_each_other() {
        let host = HealthFlags::from_eds(HealthStatus::Healthy)
            .with_signal(HealthSignal::ActiveCheckFailed)
            .with_signal(HealthSignal::OutlierEjected);
        assert_eq!(host.class(), HealthClass::Unhealthy);
        assert_eq!(
            host.with_signal(HealthSignal::ActiveCheckPassed).class(),
            HealthClass::Unhealthy
        );
        let back = host
            .with_signal(HealthSignal::ActiveCheckPassed)
            .with_signal(HealthSignal::OutlierReturned);
        assert_eq!(back.class(), HealthClass::Healthy);
        assert_eq!(
            back.with_eds(HealthStatus::Degraded).class(),
            HealthClass::Degraded
        );
    }

    #[test]
    fn awaiting_the_first_check_excludes_only_if_configured() {
        let waiting = HealthFlags::awaiting_first_check(HealthStatus::Unknown, false);
        assert_eq!(waiting.class(), HealthClass::Unhealthy);
        assert!(!waiting.excluded());
        let ignored = HealthFlags::awaiting_first_check(HealthStatus::Unknown, true);
        assert!(ignored.excluded());
        assert!(
            !ignored
                .with_signal(HealthSignal::ActiveCheckPassed)
                .excluded()
        );
    }

    #[test]
    fn failure_flags_have_envoys_names() {
        use HealthSignal::{
            ActiveCheckDegraded, ActiveCheckFailed, ActiveCheckPassed, ImmediateFailure,
            OutlierEjected,
        };
        let of = HealthFlags::from_eds;
        let waiting = |ignore| HealthFlags::awaiting_first_check(HealthStatus::Healthy, ignore);
        let cases = [
            (of(HealthStatus::Unknown), ""),
            (of(HealthStatus::Healthy).with_signal(ActiveCheckPassed), ""),
            (of(HealthStatus::Unhealthy), "failed_eds_health"),
            (of(HealthStatus::Timeout), "failed_eds_health"),
            (of(HealthStatus::Degraded), "degraded_eds_health"),
            (of(HealthStatus::Draining), "eds_status_draining"),
            (waiting(false), "failed_active_hc"),
            (waiting(true), "failed_active_hc/pending_active_hc"),
            (
                of(HealthStatus::Unhealthy)
                    .with_signal(OutlierEjected)
                    .with_signal(ActiveCheckFailed),
                "failed_active_hc/failed_outlier_check/failed_eds_health",
            ),
            (
                of(HealthStatus::Degraded).with_signal(ActiveCheckDegraded),
                "degraded_active_hc/degraded_eds_health",
            ),
            (
                of(HealthStatus::Healthy).with_signal(ImmediateFailure),
                "failed_active_hc/excluded_via_immediate_hc_fail",
            ),
        ];
        for (flags, expected) in cases {
            assert_eq!(flags.envoy_flags().collect::<Vec<_>>().join("/"), expected);
        }
    }

    #[test]
    fn immediate_failure_excludes_until_a_check_passes() {
        let host = HealthFlags::from_eds(HealthStatus::Healthy)
            .with_signal(HealthSignal::ImmediateFailure);
        assert!(host.excluded());
        assert_eq!(host.class(), HealthClass::Unhealthy);
        let degraded = host.with_signal(HealthSignal::ActiveCheckDegraded);
        assert!(!degraded.excluded());
        assert_eq!(degraded.class(), HealthClass::Degraded);
    }
}
