//! [`Scenario`]: a checked description of a fleet, its traffic and what happens to it.
//!
//! Here live the nouns that the world reads, with times in nanoseconds and zones as indexes.
//! `parts` is what a file says, `check` the one way from there to here; what things *do* lives in
//! the files that use them (`workload`, `host_model`, `faults`, `policy`, `checker`).

mod check;
mod events;
pub mod parts;
pub mod span;
#[cfg(test)]
mod tests;
mod zones;

use plimsoll_core::model::cluster::LocalitySampling;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;

pub use parts::ScenarioParts;
pub use span::Span;

use crate::num;
use crate::policy::Policy;
use crate::scenario::parts::{ControlPlaneParts, LoadAwareLocalityParts};

/// Never: the end of virtual time.
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
    pub(crate) network: Network,
    pub(crate) reports: Reports,
    pub(crate) control_plane: ControlPlane,
    pub(crate) balancer: BalancerSettings,
    pub(crate) load_aware: LoadAwareLocalityParts,
    /// Each simulated request stands for that many.
    pub(crate) requests_per_sample: u32,
    pub(crate) events: Vec<Event>,
    pub(crate) expectations: Vec<Expectation>,
}

/// How much traffic there is, and how it comes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) requests_per_second: f64,
    pub(crate) arrivals: Arrivals,
    pub(crate) waves: Vec<Wave>,
}

/// How requests follow each other at one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrivals {
    /// At equal distances.
    Paced,
    /// Independently of each other.
    Poisson,
}

/// A slow wave of the demand of some zones.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wave {
    pub(crate) zones: Vec<usize>,
    pub(crate) period: u64,
    pub(crate) amplitude: f64,
    pub(crate) phase: f64,
}

/// One zone: its proxies and its upstream hosts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zone {
    pub(crate) name: String,
    pub(crate) locality: Locality,
    /// Share of the demand at the start, 0.0 to 1.0.
    pub(crate) share: f64,
    /// Proxies there are.
    pub(crate) proxies: u32,
    /// Share of the zone's requests that each simulated balancer issues.
    pub(crate) balancers: Vec<f64>,
    pub(crate) hosts: Vec<HostGroup>,
}

impl Zone {
    /// Requests per second that all its hosts together can serve.
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

/// Equal hosts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostGroup {
    pub(crate) count: u32,
    pub(crate) capacity: f64,
    pub(crate) weight: Option<u32>,
}

/// How hosts serve requests.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct HostSettings {
    pub(crate) service: Service,
    pub(crate) servers: u32,
    /// Requests that may wait; `None` = one second's worth.
    pub(crate) queue: Option<f64>,
    pub(crate) detection: u64,
}

/// Distribution of service times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// All equal.
    Constant,
    /// Memoryless.
    Exponential,
    /// No queue at all: every request is answered at once.
    Instant,
}

/// One-way delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Network {
    pub(crate) local: u64,
    pub(crate) remote: u64,
}

/// How hosts report their load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reports {
    /// `None` = in-band.
    pub(crate) out_of_band_period: Option<u64>,
    pub(crate) meter_window: u64,
    pub(crate) noise: f64,
    pub(crate) loss: f64,
    pub(crate) delay: u64,
}

/// How load reports of proxies become fractions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ControlPlane {
    pub(crate) report_interval: u64,
    pub(crate) delay: u64,
    pub(crate) planner: ControlPlaneParts,
}

/// Settings that all policies share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BalancerSettings {
    pub(crate) endpoint_policy: EndpointPolicyName,
    /// `None` = what suits the policy.
    pub(crate) sampling: Option<LocalitySampling>,
    pub(crate) min_cluster_size: Option<u64>,
    pub(crate) capacity_by_weights: bool,
    pub(crate) start_spread: u64,
}

/// Endpoint policies a scenario can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointPolicyName {
    LeastRequest,
    Random,
    RoundRobin,
}

/// Something that happens on the way.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Event {
    pub(crate) from: u64,
    /// [`NEVER`] when it does not end.
    pub(crate) until: u64,
    pub(crate) what: Happening,
}

impl Event {
    pub(crate) const fn is_on(&self, at: u64) -> bool {
        self.from <= at && at < self.until
    }
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Happening {
    Capacity {
        zones: Vec<usize>,
        factor: f64,
    },
    ControlPlaneOutage,
    Demand {
        zones: Vec<usize>,
        factor: f64,
        over: u64,
    },
    LoseHosts {
        zones: Vec<usize>,
    },
    LoseZone {
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

/// A bound on a metric of one policy.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expectation {
    pub(crate) policy: Policy,
    pub(crate) metric: String,
    pub(crate) bound: f64,
    /// The bound is the largest allowed value, else the smallest.
    pub(crate) at_most: bool,
}

impl Scenario {
    /// Reads a scenario. The error names the place: `zone[1].hosts[0].capacity: must be above 0`.
    pub fn parse(text: &str) -> Result<Self, FieldError> {
        let document = toml::Deserializer::parse(text)
            .map_err(|error| FieldError::new("", check::reason(text, &error)))?;
        let parts: ScenarioParts = serde_path_to_error::deserialize(document).map_err(|error| {
            let path = error.path().to_string();
            let path = if path == "." { String::new() } else { path };
            FieldError::new(path, check::reason(text, error.inner()))
        })?;
        Self::try_new(parts)
    }

    /// Its title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The policies it compares, in order.
    pub fn policies(&self) -> &[Policy] {
        &self.policies
    }

    /// The same scenario with another seed.
    #[must_use]
    pub fn with_seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The same scenario, shorter or longer. When it would end before measuring begins, the second
    /// half is measured.
    pub fn with_duration(mut self, duration: Span) -> Result<Self, FieldError> {
        self.duration = num::nanos(duration.0);
        if self.measure_from >= self.duration {
            self.measure_from = self.duration / 2;
        }
        check::check_size(&self)?;
        Ok(self)
    }

    /// The same scenario with these policies only, in this order.
    #[must_use]
    pub fn with_policies(mut self, policies: Vec<Policy>) -> Self {
        self.policies = policies;
        self
    }

    /// Moments at which something changes, the start included: what settling is counted from.
    pub(crate) fn steps(&self) -> Vec<u64> {
        let ends = self
            .events
            .iter()
            .flat_map(|event| [event.from, event.until]);
        let mut steps: Vec<u64> = ends.filter(|&at| at < self.duration).chain([0]).collect();
        steps.sort_unstable();
        steps.dedup();
        steps
    }

    /// What happens, in a few words.
    pub(crate) fn in_words(&self, what: &Happening) -> String {
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
        match what {
            Happening::Capacity { zones, factor } => {
                format!("capacity of {} × {factor}", names(zones))
            }
            Happening::ControlPlaneOutage => "the control plane is away".into(),
            Happening::Demand { zones, factor, .. } => {
                format!("demand of {} × {factor}", names(zones))
            }
            Happening::LoseHosts { zones } => format!("hosts of {} are lost", names(zones)),
            Happening::LoseZone { zones } => format!("{} is lost", names(zones)),
            Happening::Shares { .. } => "demand is split in another way".into(),
            Happening::StopReports { zones } => format!("hosts of {} do not report", names(zones)),
            Happening::Unhealthy { zones, hosts } => {
                format!("{hosts} hosts of {} are unhealthy", names(zones))
            }
        }
    }

    /// Hosts of all zones.
    pub(crate) fn host_count(&self) -> u32 {
        self.zones.iter().map(Zone::host_count).sum()
    }

    /// Proxies of all zones.
    pub(crate) fn proxy_count(&self) -> u32 {
        self.zones.iter().map(|zone| zone.proxies).sum()
    }

    /// Balancers that are simulated.
    pub(crate) fn balancer_count(&self) -> usize {
        self.zones.iter().map(|zone| zone.balancers.len()).sum()
    }
}
