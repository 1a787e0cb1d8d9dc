//! Validation of the events and expectations of a scenario.

use std::collections::BTreeMap;

use plimsoll_core::units::FieldError;

use super::check::{choice, not_negative, positive, share};
use super::duration::HumanDuration;
use super::parts::{DemandEventParts, EventParts, ExpectParts, FailEventParts};
use super::zones::Names;
use super::{EventKind, Expectation, FailureKind, HostFailure, NEVER, ScenarioEvent, Zone};
use crate::checker;
use crate::num;
use crate::policy::Policy;

/// Default factor on the service time of slow hosts.
const DEFAULT_SLOWDOWN: f64 = 10.0;

pub(super) fn events(
    parts: &[EventParts],
    zones: &[Zone],
    names: &Names,
    end: u64,
) -> Result<Vec<ScenarioEvent>, FieldError> {
    let mut events = Vec::new();
    for (index, event) in parts.iter().enumerate() {
        let one = one_event(event, zones, names);
        let one = one.map_err(|error| error.under(&format!("event[{index}]")))?;
        if one.from >= end {
            let end = HumanDuration(std::time::Duration::from_nanos(end));
            let reason = format!("{} is not before the end of the run, {end}", event.at);
            return Err(FieldError::new(format!("event[{index}].at"), reason));
        }
        events.push(one);
    }
    Ok(events)
}

fn one_event(
    parts: &EventParts,
    zones: &[Zone],
    names: &Names,
) -> Result<ScenarioEvent, FieldError> {
    let mut effects = Vec::new();
    let mut every = None;
    if let Some(demand) = &parts.demand {
        effects.push((demand_event(demand, names)?, demand.r#for));
    }
    if let Some(shares) = &parts.shares {
        effects.push((shares_event(shares, zones, names)?, None));
    }
    if let Some(event) = &parts.lose_hosts {
        let zones = names.of(&event.zone, "lose_hosts.zone")?;
        effects.push((EventKind::LoseHosts { zones }, event.r#for));
    }
    if let Some(event) = &parts.lose_zone {
        let zones = names.of(&event.zone, "lose_zone.zone")?;
        effects.push((EventKind::LoseZone { zones }, event.r#for));
    }
    if let Some(event) = &parts.fail {
        effects.push((fail_event(event, names)?, event.r#for));
        every = event.every;
    }
    if let Some(event) = &parts.unhealthy {
        let zones = names.of(&event.zone, "unhealthy.zone")?;
        let hosts = event.hosts;
        effects.push((EventKind::Unhealthy { zones, hosts }, event.r#for));
    }
    if let Some(event) = &parts.capacity {
        let zones = names.of(&event.zone, "capacity.zone")?;
        let factor = positive(event.factor, "capacity.factor")?;
        effects.push((EventKind::Capacity { zones, factor }, event.r#for));
    }
    if let Some(event) = &parts.stop_reports {
        let zones = names.of_or_all(event.zone.as_deref(), "stop_reports.zone")?;
        effects.push((EventKind::StopReports { zones }, event.r#for));
    }
    if let Some(event) = &parts.control_plane_outage {
        let forgets = event.forgets;
        effects.push((EventKind::ControlPlaneOutage { forgets }, event.r#for));
    }
    if let Some(event) = &parts.restart_proxies {
        let zones = names.of_or_all(event.zone.as_deref(), "restart_proxies.zone")?;
        effects.push((EventKind::RestartProxies { zones }, None));
    }
    let mut effects = effects.into_iter();
    match (effects.next(), effects.next()) {
        (Some((kind, length)), None) => Ok(ScenarioEvent {
            from: num::nanos(parts.at.0),
            until: length.map_or(NEVER, |length: HumanDuration| {
                num::nanos(parts.at.0 + length.0)
            }),
            every: every.map_or(NEVER, |every| num::nanos(every.0)),
            kind,
        }),
        (None, _) => Err(FieldError::new("", "has no effect: set exactly one")),
        (Some(_), Some(_)) => {
            let reason = "has several effects: set exactly one";
            Err(FieldError::new("", reason))
        }
    }
}

fn demand_event(parts: &DemandEventParts, names: &Names) -> Result<EventKind, FieldError> {
    let over = num::nanos(parts.over.unwrap_or_default().0);
    if parts
        .r#for
        .is_some_and(|length| num::nanos(length.0) < over)
    {
        let reason = "is longer than the event itself";
        return Err(FieldError::new("demand.over", reason));
    }
    Ok(EventKind::Demand {
        zones: names.of_or_all(parts.zone.as_deref(), "demand.zone")?,
        factor: not_negative(parts.factor, "demand.factor")?,
        over,
    })
}

fn fail_event(parts: &FailEventParts, names: &Names) -> Result<EventKind, FieldError> {
    let how = choice(
        Some(&parts.how),
        &[
            ("refuse", FailureKind::Refuse),
            ("unreachable", FailureKind::Unreachable),
            ("hang", FailureKind::Hang),
            ("error", FailureKind::Error),
            ("slow", FailureKind::Slow),
        ],
        "fail.how",
    )?;
    let slow = how == FailureKind::Slow;
    if parts.share.is_some() && slow {
        return Err(FieldError::new("fail.share", "slow hosts fail no requests"));
    }
    if parts.from.is_some() && slow {
        let reason = "hosts are slow for all proxies";
        return Err(FieldError::new("fail.from", reason));
    }
    if parts.factor.is_some() && !slow {
        return Err(FieldError::new("fail.factor", "only slow hosts have one"));
    }
    if parts
        .every
        .is_some_and(|every| every < HumanDuration::from_secs(1))
    {
        return Err(FieldError::new("fail.every", "must be at least 1s"));
    }
    if parts.hosts == Some(0) {
        return Err(FieldError::new("fail.hosts", "must be at least 1"));
    }
    let failure = HostFailure {
        how,
        hosts: parts.hosts.unwrap_or(u32::MAX),
        share: if slow {
            0.0
        } else {
            share(parts.share.unwrap_or(1.0), "fail.share")?
        },
        slowdown: match parts.factor {
            Some(factor) => at_least_1(factor, "fail.factor")?,
            None if slow => DEFAULT_SLOWDOWN,
            None => 1.0,
        },
    };
    let zones = names.of(&parts.zone, "fail.zone")?;
    Ok(match &parts.from {
        Some(from) => EventKind::FailLinks {
            from: names.of(from, "fail.from")?,
            zones,
            failure,
        },
        None => EventKind::Fail { zones, failure },
    })
}

fn at_least_1(value: f64, path: &str) -> Result<f64, FieldError> {
    if value.is_finite() && value >= 1.0 {
        return Ok(value);
    }
    Err(FieldError::new(path, format!("{value} must be at least 1")))
}

/// Checks that every zone is listed, alone or by its group, since a missing share would be a guess.
fn shares_event(
    parts: &BTreeMap<String, f64>,
    zones: &[Zone],
    names: &Names,
) -> Result<EventKind, FieldError> {
    let mut shares: Vec<Option<f64>> = vec![None; zones.len()];
    for (name, &share) in parts {
        let path = format!("shares.{name}");
        let share = not_negative(share, &path)?;
        for zone in names.of(name, &path)? {
            if shares[zone].replace(share).is_some() {
                let reason = format!("{} is listed twice", zones[zone].name);
                return Err(FieldError::new(path, reason));
            }
        }
    }
    let missing = shares.iter().position(Option::is_none);
    if let Some(zone) = missing {
        let reason = format!("zone {} is missing", zones[zone].name);
        return Err(FieldError::new("shares", reason));
    }
    let shares: Vec<f64> = shares.into_iter().flatten().collect();
    let total: f64 = shares.iter().sum();
    if total <= 0.0 {
        return Err(FieldError::new("shares", "no zone has any demand"));
    }
    let shares = shares.into_iter().map(|share| share / total).collect();
    Ok(EventKind::Shares { shares })
}

pub(super) fn expectations(
    parts: &[ExpectParts],
    policies: &[Policy],
) -> Result<Vec<Expectation>, FieldError> {
    let mut expectations = Vec::new();
    for (index, expect) in parts.iter().enumerate() {
        let path = |field: &str| format!("expect[{index}].{field}");
        let known = |name: &str, field: &str| {
            let policy =
                Policy::parse(name).map_err(|reason| FieldError::new(path(field), reason))?;
            if policies.contains(&policy) {
                return Ok(policy);
            }
            let reason = format!("{name} is not among the policies");
            Err(FieldError::new(path(field), reason))
        };
        let policy = known(&expect.policy, "policy")?;
        let other = expect.compared_to.as_deref();
        let compared_to = other.map(|name| known(name, "compared_to")).transpose()?;
        for (field, bounds, at_most) in [
            ("at_most", &expect.at_most, true),
            ("at_least", &expect.at_least, false),
        ] {
            for (metric, &bound) in bounds {
                let path = path(&format!("{field}.{metric}"));
                checker::check_name(metric).map_err(|reason| FieldError::new(path, reason))?;
                expectations.push(Expectation {
                    policy,
                    compared_to,
                    metric: metric.clone(),
                    bound,
                    at_most,
                });
            }
        }
    }
    Ok(expectations)
}
