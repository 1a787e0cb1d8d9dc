//! [`Scenario`]: a checked description of a fleet, its traffic and its failures.
//!
//! These types are what the simulation reads, with times in nanoseconds and zones as indexes.
//! `parts` mirrors the file and `check` validates it. `workload`, `host_model`, `faults`, `policy`
//! and `checker` implement the behavior.

mod check;
pub mod duration;
mod events;
mod faults;
pub mod parts;
mod position;
mod share;
#[cfg(test)]
mod tests;
mod zones;

use std::sync::Arc;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::model::outlier_detection::OutlierDetection;
use plimsoll_core::planner::transport::Objective;
use plimsoll_core::units::FieldError;
use toml::de::DeTable;

pub use duration::HumanDuration;
pub use parts::ScenarioParts;
pub use position::ScenarioError;

use crate::num;
use crate::policy::Policy;
use crate::recording::RecordedDemand;
use crate::scenario::parts::{ControlPlaneParts, LoadAwareLocalityParts};

/// The end of virtual time; events at this time never happen.
pub(crate) const NEVER: u64 = u64::MAX;

/// A scenario, checked and with defaults applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) seed: u64,
    pub(crate) duration: u64,
    pub(crate) measure_from: u64,
    pub(crate) policies: Vec<Policy>,
    pub(crate) traffic: Traffic,
    pub(crate) zones: Vec<Zone>,
    pub(crate) host: HostSettings,
    pub(crate) network: NetworkSettings,
    pub(crate) reports: ReportSettings,
    pub(crate) control_plane: ControlPlaneSettings,
    pub(crate) balancer: BalancerSettings,
    pub(crate) outlier_detection: Option<Arc<OutlierDetection>>,
    pub(crate) load_aware: LoadAwareLocalityParts,
    /// Number of real requests that each simulated one represents.
    pub(crate) requests_per_sample: u32,
    pub(crate) events: Vec<ScenarioEvent>,
    pub(crate) expectations: Vec<Expectation>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) requests_per_second: f64,
    pub(crate) arrivals: Arrivals,
    pub(crate) waves: Vec<Wave>,
    /// Demand of the zones in the place of their shares of `requests_per_second`.
    pub(crate) recorded: Option<RecordedDemand>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    Paced,
    Poisson,
}

/// Slow sinusoidal change of the demand of some zones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    pub(crate) zones: Vec<usize>,
    pub(crate) period: u64,
    pub(crate) amplitude: f64,
    pub(crate) phase: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) locality: Locality,
    /// Share of the demand at the start, 0.0 to 1.0.
    pub(crate) share: f64,
    pub(crate) proxies: u32,
    /// Share of the zone's requests that each simulated balancer issues.
    pub(crate) balancers: Vec<f64>,
    pub(crate) hosts: Vec<HostGroup>,
    /// The first balancer reports this many times the requests that it issues.
    pub(crate) exaggeration: f64,
}

impl Scenario {
    /// Returns the utilization up to which requests stay in their zone; 0 if all zones shall be
    /// equally full.
    pub(crate) fn target(&self) -> f64 {
        self.control_plane.objective.target_utilization()
    }
}

impl Zone {
    /// Returns the requests per second that all its hosts together can serve.
    pub(crate) fn capacity(&self) -> f64 {
        let groups = self.hosts.iter();
        groups
            .map(|group| f64::from(group.count) * group.capacity)
            .sum()
    }

    pub(crate) fn host_count(&self) -> u32 {
        self.hosts.iter().map(|group| group.count).sum()
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostGroup {
    pub(crate) count: u32,
    pub(crate) capacity: f64,
    pub(crate) weight: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostSettings {
    pub(crate) service: Service,
    pub(crate) servers: u32,
    /// Queue length in requests; `None` = one second of capacity.
    pub(crate) queue: Option<f64>,
    pub(crate) detection: u64,
    pub(crate) health_checks: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Constant,
    Exponential,
    /// No queue: every request is answered at once.
    Instant,
}

/// Delays of the network, one-way, and its timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NetworkSettings {
    pub(crate) local: u64,
    pub(crate) remote: u64,
    pub(crate) connect_timeout: u64,
    pub(crate) request_timeout: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ReportSettings {
    /// Period of out-of-band load reports; `None` = in-band reports.
    pub(crate) out_of_band_period: Option<u64>,
    pub(crate) meter_window: u64,
    pub(crate) noise: f64,
    pub(crate) loss: f64,
    pub(crate) delay: u64,
}

/// Settings of load reports from proxies and of the planner.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlPlaneSettings {
    pub(crate) report_interval: u64,
    pub(crate) delay: u64,
    pub(crate) objective: Objective,
    pub(crate) learned_capacity: bool,
    pub(crate) planner: ControlPlaneParts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BalancerSettings {
    pub(crate) data_plane: DataPlane,
    pub(crate) endpoint_policy: EndpointPolicyName,
    /// `None` = the default of the policy.
    pub(crate) sampling: Option<LocalitySampling>,
    pub(crate) min_cluster_size: Option<u64>,
    pub(crate) capacity_by_weights: bool,
    pub(crate) start_spread: u64,
}

/// What the proxies are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DataPlane {
    Envoy,
    Plimsoll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointPolicyName {
    LeastRequest,
    Random,
    RoundRobin,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ScenarioEvent {
    pub(crate) from: u64,
    /// End of the event; [`NEVER`] if it does not end.
    pub(crate) until: u64,
    /// Period of which the event covers the first half; [`NEVER`] if it has no pause.
    pub(crate) every: u64,
    pub(crate) kind: EventKind,
}

impl ScenarioEvent {
    pub(crate) const fn is_on(&self, at: u64) -> bool {
        self.from <= at && at < self.until && (at - self.from) % self.every < self.every / 2
    }

    /// Whether the control plane is restarted at this time, without memory.
    pub(crate) const fn forgets_at(&self, at: u64) -> bool {
        matches!(self.kind, EventKind::ControlPlaneOutage { forgets: true }) && self.until == at
    }

    /// Returns the zones whose proxies restart at this time.
    pub(crate) fn restarts_at(&self, at: u64) -> impl Iterator<Item = usize> {
        let zones = match &self.kind {
            EventKind::RestartProxies { zones } if self.from == at => zones.as_slice(),
            _ => &[],
        };
        zones.iter().copied()
    }

    /// Returns the times before `end` at which it begins, pauses, goes on or ends.
    fn changes(&self, end: u64) -> impl Iterator<Item = u64> {
        let (from, half, until) = (self.from, (self.every / 2).max(1), self.until);
        let pauses = (0..).map_while(move |halves| half.checked_mul(halves)?.checked_add(from));
        let within = pauses.take_while(move |&at| at < until.min(end));
        within.chain([until])
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum EventKind {
    Capacity {
        zones: Vec<usize>,
        factor: f64,
    },
    ControlPlaneOutage {
        /// The end is a restart without memory.
        forgets: bool,
    },
    Demand {
        zones: Vec<usize>,
        factor: f64,
        over: u64,
    },
    Fail {
        zones: Vec<usize>,
        failure: HostFailure,
    },
    /// Requests from proxies of the zones `from` to hosts of `zones` fail.
    FailLinks {
        from: Vec<usize>,
        zones: Vec<usize>,
        failure: HostFailure,
    },
    LoseHosts {
        zones: Vec<usize>,
    },
    LoseZone {
        zones: Vec<usize>,
    },
    RestartProxies {
        zones: Vec<usize>,
    },
    Shares {
        shares: Vec<f64>,
    },
    StopReports {
        zones: Vec<usize>,
    },
    Unhealthy {
        zones: Vec<usize>,
        hosts: u32,
    },
}

/// How hosts of a zone fail.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostFailure {
    pub(crate) how: FailureKind,
    /// Number of hosts, counted from the first of the zone.
    pub(crate) hosts: u32,
    /// Share of their requests that fail.
    pub(crate) share: f64,
    /// Factor on the service time.
    pub(crate) slowdown: f64,
}

impl HostFailure {
    /// Whether health checks fail, too.
    pub(crate) fn fails_health_checks(&self) -> bool {
        self.how != FailureKind::Slow && self.share >= 1.0
    }

    /// Returns the share of its capacity that a failing host still offers.
    pub(crate) fn remaining_capacity(&self) -> f64 {
        match self.how {
            FailureKind::Slow => 1.0 / self.slowdown,
            _ => 1.0 - self.share,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureKind {
    /// A 500 at once.
    Error,
    /// Requests reach the host, and no response comes.
    Hang,
    /// Connections are refused at once, as by a host without the process.
    Refuse,
    Slow,
    /// Connections are not answered and time out, as by a host that lost its power.
    Unreachable,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) policy: Policy,
    /// The bound is on the difference to this policy's value.
    pub(crate) compared_to: Option<Policy>,
    pub(crate) metric: String,
    pub(crate) bound: f64,
    /// Whether the bound is a maximum; otherwise it is a minimum.
    pub(crate) at_most: bool,
}

impl Scenario {
    /// Parses a scenario from TOML. Errors name the field: `zone[1].hosts[0].capacity: must be
    /// above 0`.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.trim().is_empty() {
            return Err(FieldError::new("", "the file is empty").into());
        }
        let table = DeTable::parse(text)
            .map_err(|error| ScenarioError::of_toml(String::new(), &error, text))?;
        Self::try_new(faults::read(table, text)?)
            .map_err(|error| ScenarioError::of_field(error, text))
    }

    /// Returns the title of the scenario.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// Returns the policies that the scenario compares, in order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// Returns the scenario with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Returns the scenario with another duration. If it would end before measuring begins, the
    /// second half is measured.
    pub fn with_duration(mut self, duration: HumanDuration) -> Result<Self, FieldError> {
        self.duration = num::nanos(duration.0);
        if self.measure_from >= self.duration {
            self.measure_from = self.duration / 2;
        }
        check::check_size(&self)?;
        Ok(self)
    }

    /// Returns the scenario with the objective that all zones are equally full.
    pub(crate) fn leveling(&self) -> Self {
        let control_plane = ControlPlaneSettings {
            objective: Objective::LEVEL,
            ..self.control_plane.clone()
        };
        Self {
            control_plane,
            ..self.clone()
        }
    }

    /// Returns the scenario with only these policies, in this order.
    #[must_use]
    pub fn with_policies(mut self, policies: Vec<Policy>) -> Self {
        self.policies = policies;
        self
    }

    /// Returns the times at which something changes, including the start. Settling times count from
    /// these.
    pub(crate) fn steps(&self) -> Vec<u64> {
        let changes = self
            .events
            .iter()
            .flat_map(|event| event.changes(self.duration));
        let mut steps: Vec<u64> = changes
            .filter(|&at| at < self.duration)
            .chain([0])
            .collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    pub(crate) fn describe(&self, kind: &EventKind) -> String {
        let names = |zones: &[usize]| match zones {
            all if all.len() == self.zones.len() => "all zones".to_owned(),
            [first, .., last] if zones.len() > 3 => {
                format!("{} to {}", self.zones[*first].name, self.zones[*last].name)
            }
            few => {
                let names: Vec<&str> = few.iter().map(|&z| self.zones[z].name.as_str()).collect();
                names.join(", ")
            }
        };
        match kind {
            EventKind::Capacity { zones, factor } => {
                format!("capacity of {} × {factor}", names(zones))
            }
            EventKind::ControlPlaneOutage { forgets: false } => {
                "the control plane is unreachable".into()
            }
            EventKind::ControlPlaneOutage { forgets: true } => {
                "the control plane is down, and then knows nothing".into()
            }
            EventKind::Demand { zones, factor, .. } => {
                format!("demand of {} × {factor}", names(zones))
            }
            EventKind::Fail { zones, failure } => self.describe_failure(&names(zones), failure),
            EventKind::FailLinks {
                from,
                zones,
                failure,
            } => {
                let failure = self.describe_failure(&names(zones), failure);
                format!("{failure} from {}", names(from))
            }
            EventKind::LoseHosts { zones } => format!("hosts of {} are lost", names(zones)),
            EventKind::LoseZone { zones } => format!("{} is lost", names(zones)),
            EventKind::RestartProxies { zones } => {
                format!("proxies of {} restart", names(zones))
            }
            EventKind::Shares { .. } => "demand is redistributed".into(),
            EventKind::StopReports { zones } => format!("hosts of {} do not report", names(zones)),
            EventKind::Unhealthy { zones, hosts } => {
                format!("{hosts} hosts of {} are unhealthy", names(zones))
            }
        }
    }

    fn describe_failure(&self, zones: &str, failure: &HostFailure) -> String {
        let most = self.zones.iter().map(Zone::host_count).max().unwrap_or(0);
        let hosts = if failure.hosts < most {
            format!("{} hosts of {zones}", failure.hosts)
        } else {
            format!("hosts of {zones}")
        };
        let requests = match failure.share {
            share if share < 1.0 => format!("{} % of the requests", share * 100.0),
            _ => "all requests".to_owned(),
        };
        match failure.how {
            FailureKind::Error => format!("{hosts} answer {requests} with errors"),
            FailureKind::Hang => format!("{hosts} do not answer {requests}"),
            FailureKind::Refuse => format!("{hosts} refuse {requests}"),
            FailureKind::Slow => format!("{hosts} take {} times as long", failure.slowdown),
            FailureKind::Unreachable => format!("{hosts} are unreachable for {requests}"),
        }
    }

    pub(crate) fn host_count(&self) -> u32 {
        self.zones.iter().map(Zone::host_count).sum()
    }

    pub(crate) fn proxy_count(&self) -> u32 {
        self.zones.iter().map(|zone| zone.proxies).sum()
    }

    pub(crate) fn balancer_count(&self) -> usize {
        self.zones.iter().map(|zone| zone.balancers.len()).sum()
    }
}
