//! [`check`]: how far a zone may be drained, and what is missing to drain it wholly.

use super::{STEP, WHOLE, ZoneName};
use crate::model::locality::Locality;
use crate::planner::zone_loss::{Clients, Fullest, ServiceLoad};

/// Most services that a text names.
const NAMED: usize = 3;
/// Utilization that is rounding.
const ROUNDING: f64 = 1e-9;

/// What a drain must leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckLimits {
    /// How full the fullest of the other zones may get.
    pub max_utilization: f64,
    /// Largest part of the hosts of a service that may be out of use, drained zones included.
    pub max_capacity_share: f64,
}

/// A service to check.
#[derive(Clone, Debug)]
pub struct CheckedService<'a> {
    pub name: &'a str,
    pub zones: &'a [Locality],
    /// Load with what is in use now.
    pub load: &'a ServiceLoad,
    /// Whether capacity is in requests per second.
    pub has_capacity: bool,
    /// Share of its hosts, of all sources, that would be out of use if the zone is drained wholly.
    pub out_share: f64,
}

/// What a drain does to one service.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub service: String,
    /// Utilization of the fullest zone now, and without the zone, whatever its clients do; `None`
    /// if the capacity is not known.
    pub now: Option<f64>,
    pub without: Option<f64>,
    /// Which zone that would be.
    pub fullest: Option<Locality>,
    /// Requests per second of capacity that the other zones lack.
    pub missing: Option<f64>,
    /// Points that may be drained.
    pub allowed: u32,
    /// Why no more, as a clause; `None` if nothing limits it.
    pub reason: Option<String>,
}

/// What a drain does to all services.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Check {
    /// Points that may be drained: what the most limited service allows.
    pub allowed: u32,
    /// Services with hosts in the zone; the most limited first.
    pub findings: Vec<Finding>,
    /// Services whose hosts are all in the zone, so that they stay in use.
    pub stays: Vec<String>,
}

/// Checks a drain of `zone`. Services without hosts there have no say.
pub fn check<'a>(
    zone: &ZoneName,
    services: impl IntoIterator<Item = CheckedService<'a>>,
    limits: CheckLimits,
) -> Check {
    let mut found = Check {
        allowed: WHOLE,
        ..Check::default()
    };
    for service in services {
        let own: Vec<usize> = (0..service.zones.len())
            .filter(|index| zone.has(&service.zones[*index]) && service.load.capacity[*index] > 0.0)
            .collect();
        if own.is_empty() {
            continue;
        }
        let others: f64 = (0..service.zones.len())
            .filter(|index| !own.contains(index))
            .map(|index| service.load.capacity[index])
            .sum();
        if others <= 0.0 {
            found.stays.push(service.name.to_owned());
            continue;
        }
        found.findings.push(finding(&service, &own, limits));
    }
    found.findings.sort_by(|a, b| {
        let worse = b
            .without
            .unwrap_or(0.0)
            .total_cmp(&a.without.unwrap_or(0.0));
        a.allowed.cmp(&b.allowed).then(worse)
    });
    if let Some(first) = found.findings.first() {
        found.allowed = first.allowed;
    }
    found
}

fn finding(service: &CheckedService<'_>, own: &[usize], limits: CheckLimits) -> Finding {
    let known = |fullest: Option<Fullest>| fullest.filter(|_| service.has_capacity);
    let without = known(fullest(service.load, own, WHOLE));
    let fits = |points: u32| {
        fullest(service.load, own, points)
            .is_none_or(|fullest| fullest.utilization <= limits.max_utilization + ROUNDING)
    };
    let steps = (0..=WHOLE / STEP).rev().map(|step| step * STEP);
    let by_load = if service.has_capacity {
        steps.clone().find(|points| fits(*points)).unwrap_or(0)
    } else {
        WHOLE
    };
    let is_too_much = service.out_share > limits.max_capacity_share + ROUNDING;
    let missing = without.filter(|_| by_load < WHOLE).map(|_| {
        let left: f64 = capacity(service.load, own, WHOLE).iter().sum();
        (service.load.demand() / limits.max_utilization - left).max(0.0)
    });
    let reason = if is_too_much {
        let (out, most) = (
            percent(service.out_share),
            percent(limits.max_capacity_share),
        );
        Some(format!(
            "{out} of its hosts would be out of use, at most {most} may be"
        ))
    } else if by_load < WHOLE {
        let full = without.map_or(0.0, |fullest| fullest.utilization);
        let place = without.map(|fullest| service.zones[fullest.zone].to_string());
        let lacks = missing.unwrap_or_default();
        Some(format!(
            "{} would be at {full:.2}, above {:.2}: capacity for {lacks:.1} requests/s is missing",
            place.unwrap_or_default(),
            limits.max_utilization
        ))
    } else {
        None
    };
    Finding {
        service: service.name.to_owned(),
        now: known(service.load.now()).map(|fullest| fullest.utilization),
        without: without.map(|fullest| fullest.utilization),
        fullest: without.map(|fullest| service.zones[fullest.zone].clone()),
        missing,
        allowed: if is_too_much { 0 } else { by_load },
        reason,
    }
}

/// Returns the capacity with `points` of some zones drained.
fn capacity(load: &ServiceLoad, own: &[usize], points: u32) -> Vec<f64> {
    let left = f64::from(WHOLE - points.min(WHOLE)) / f64::from(WHOLE);
    let mut capacity = load.capacity.clone();
    for zone in own {
        capacity[*zone] *= left;
    }
    capacity
}

/// Returns the fullest zone with `points` of the zones drained, whatever their clients do.
fn fullest(load: &ServiceLoad, own: &[usize], points: u32) -> Option<Fullest> {
    let capacity = capacity(load, own, points);
    let first = *own.first()?;
    let stay = load.with_capacity(&capacity, first, Clients::Stay)?;
    let moved = load.with_capacity(&capacity, first, Clients::Move)?;
    let is_worse = moved.utilization > stay.utilization && points == WHOLE;
    Some(if is_worse { moved } else { stay })
}

impl Check {
    /// Says what the check found, for people.
    pub fn text(&self) -> String {
        let limited: Vec<&Finding> = self
            .findings
            .iter()
            .filter(|one| one.reason.is_some())
            .collect();
        if limited.is_empty() {
            return "every service has room without the zone".to_owned();
        }
        let clause = |one: &&Finding| {
            format!(
                "{}: {}",
                one.service,
                one.reason.as_deref().unwrap_or_default()
            )
        };
        let mut text: Vec<String> = limited.iter().take(NAMED).map(clause).collect();
        if limited.len() > NAMED {
            text.push(format!("and {} more services", limited.len() - NAMED));
        }
        let text = text.join("; ");
        match self.allowed {
            0 => text,
            allowed => format!("{text}. {allowed} % of the zone would fit"),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a share between 0 and 1")]
fn percent(share: f64) -> String {
    format!("{} %", (share * 100.0).round() as i64)
}
