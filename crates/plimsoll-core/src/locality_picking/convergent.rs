//! The CONVERGENT spill controller: how much traffic stays local and where the rest goes, without
//! oscillating (decision 0027).
//!
//! # The law, in words
//!
//! Every proxy asks two questions on each tick.
//!
//! **How much do I keep?** The reports of my zone say how loaded it was while I kept a certain
//! share. If it was one and a half times as loaded as the fleet's mean, I should have kept two
//! thirds of that. So: *share kept := share kept when the reports were made × (goal ÷ utilization
//! reported)*, with the goal two percent above the fleet's mean. The two percent are the pull back
//! to local: a zone that is not clearly above the mean keeps everything, so two zones never
//! exchange traffic for nothing. The pull grows, up to a tenth, while the zone stays below the goal
//! although requests leave it: then others send here what they could keep, and all of them come
//! home together.
//!
//! **Where does the rest go?** Each other zone has room for *(mean − its utilization) × hosts* more
//! than it gets now, and what I sent there while it was measured is part of what it gets. So: *my
//! spill is shared in proportion to what I sent there plus the room that is left*.
//!
//! # With measured demand
//!
//! When the control plane has measured demand (LRS fractions), it says what the shares should be
//! before any report does. It leads in two ways. When it *moves*, the shares move along, at once
//! and in the same direction, but never past what it asks for: the first signal to show the change
//! acts first, and a slow measurement of what the reports have already corrected changes nothing.
//! And where it *stands*, the reports only trim: they move a share by a tenth to either side, and
//! further only while they insist, so that seconds of wrong reports do little.
//!
//! A `demand_feed_forward_percent` below 100 is a ramp from reports alone: that part of a movement
//! is followed and of the shares to start with used, and the limit of the reports widens as it
//! falls, to the whole at 0. One percent more of it therefore moves no share by more than 1 %.
//!
//! # When reports stop
//!
//! A report that has expired is no measurement, and a loop that goes on correcting a frozen error
//! runs away from it. So a zone steps only on news. While its newest report is older than fifteen
//! seconds but valid, its share is held. Once all its reports have expired, its share is what the
//! seed promises, its part of the hosts; or, while measured demand is fresh, what that calls for.
//! The zones that still report divide the rest by the law. With `weight_expiration_period: 0`
//! reports never expire, and a silent zone holds its share for good.
//!
//! If every zone is silent, *all* proxies split by hosts, so that the zones are level wherever the
//! demand is. If one is silent, every proxy sends it its part of the hosts, its own proxies too: it
//! gets exactly its part of the demand, and so neither attracts requests by a low last report nor
//! repels them by a high one. Holding its last share would do either, and keeping requests out of
//! it would fill the others.
//!
//! Shares get there within the usual slew rate, and where they end does not depend on what the last
//! reports said or on the shares they left. A silent zone still gets its probes, or reports in
//! responses could not return. When they return, the share they measured is the one in force and
//! nothing older is blended in, so the first correction starts from the truth; and the pull back to
//! local, which counts how long a zone was seen below its goal, starts over.
//!
//! # When requests fail
//!
//! While the shares fail more requests than host counts would, they go to host counts
//! (`host_count_fallback`), as fast as they go anywhere, and the law takes over from there.
//!
//! # Silence of some
//!
//! Where only some hosts of a zone fall silent, the others speak for it (`load_aware::averages`). A
//! host that repeats one number forever cannot be told from one whose load is steady.
//!
//! # Why it settles
//!
//! The trap of such a loop is delay: reports are averages over seconds, smoothed again, and arrive
//! late; a rule that compares today's decision with yesterday's reports overshoots, corrects the
//! overshoot, and swings forever. Here the reported utilization is divided by the share that was
//! in force *when it was measured*: shares are put through a filter as slow as the reports are old.
//! If the two delays were equal, the first correction would be the right one. They are not, but the
//! loop only sees their difference, and the difference of two low-pass filters is smaller than one
//! at every frequency: an error shrinks each time round, whatever the delays (the small-gain
//! theorem). The mean of the fleet moves when all proxies of a zone act alike, but the law is
//! written in shares of the zone, so it does not matter whether one proxy or a hundred follow it.
//!
//! # Limits
//!
//! * It balances utilization, not latency: zones whose hosts report on different scales are
//!   balanced on those scales.
//! * Reports capped at 1.0 hide how far a zone is over; it then takes two or three delays, not one.
//! * With in-band reports a zone is seen only through the requests sent there. The probe floors
//!   keep every zone in sight, the local one too.
//! * If no split is good enough (all zones overloaded), it evens out the overload.

mod limits;
mod silence;

use std::collections::BTreeMap;
use std::time::Duration;

use self::limits::Limits;
use super::load_aware_locality::{LocalityWeights, SmoothedSlot};
use crate::model::load_aware_locality::{ColdStart, LoadAwareLocality};
use crate::model::locality::Locality;

/// How far above the mean a zone may stay before it spills: the pull back to local.
const BAND: f64 = 0.02;
/// Growth of the pull back to local per second below the goal, and its maximum.
const PULL_PER_SECOND: f64 = 0.001;
const MAX_PULL: f64 = 0.1;
/// Part of the way to the wanted share that is covered per second; softens noise of single reports.
const GAIN_PER_SECOND: f64 = 0.5;
/// Maximum change of a share per second: no report, however wrong, moves a zone at once.
const SLEW_PER_SECOND: f64 = 0.15;
/// Delay of the reports that their age does not show: backends average over some time, half of
/// which counts.
const METER_LAG_SECONDS: f64 = 1.0;
/// How far reports may move a share away from the one that measured demand calls for.
const TRIM: f64 = 0.1;
/// Growth of the limit [`TRIM`] per second while reports persist.
const REACH_PER_SECOND: f64 = 0.15;
/// Utilization below which there is nothing to balance.
const IDLE: f64 = 1e-6;

/// Utilization from which a zone counts as overloaded. Smoothing approaches 1 and never gets there.
const OVERLOADED: f64 = 0.999;

/// Settings of the controller: period, floors and band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControllerSettings {
    pub period: Duration,
    /// Time constant of the smoothing that utilization has been through.
    pub smoothing: Duration,
    /// Share that always goes to other localities.
    pub remote_probe: f64,
    /// Minimum share of the local locality while it has hosts; at most what probes leave over.
    pub local_floor: f64,
    /// How far above the mean the local locality may stay before it spills.
    pub band: f64,
    pub start_by_host_count: bool,
    /// Part of the influence of measured demand that is in force, 0.0 to 1.0.
    pub feed_forward: f64,
    /// Shares go to host counts instead of where the law says, as fast as they always may.
    pub by_host_count: bool,
}

impl From<&LoadAwareLocality> for ControllerSettings {
    fn from(settings: &LoadAwareLocality) -> Self {
        Self {
            period: settings.weight_update_period(),
            smoothing: settings.smoothing_time_constant(),
            remote_probe: settings.remote_probe_fraction(),
            local_floor: settings.local_probe_fraction(),
            band: BAND,
            start_by_host_count: settings.cold_start() == ColdStart::HostCount,
            feed_forward: settings.feed_forward_part(),
            by_host_count: false,
        }
    }
}

/// One slot as the controller sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlledSlot {
    /// Hosts and smoothed utilization.
    pub smoothed: SmoothedSlot,
    /// Mean age of the slot's load reports, in seconds: how late the controller sees a change.
    pub report_age: f64,
    /// Age of the slot's newest load report, in seconds: how long it has had no news.
    pub newest_age: f64,
}

/// State of the controller for one priority and class of hosts: current shares, and the shares at
/// the time the reports were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Convergent {
    flows: BTreeMap<Locality, Flow>,
    /// Pull back to local beyond the band.
    pull: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    share: f64,
    /// The share, delayed as much as the reports are.
    lagged: f64,
    /// Share that measured demand calls for, rate-limited like shares.
    asked: Option<f64>,
    /// How far beyond the trim persistent reports have moved the limit.
    reach: f64,
}

impl Flow {
    const fn new(share: f64) -> Self {
        Self {
            share,
            lagged: share,
            asked: None,
            reach: 0.0,
        }
    }

    /// Follows measured demand: if it moves, the share moves in the same direction by `part` of it,
    /// but not past it. The lagged share moves in proportion, because the law reads "this share of
    /// the demand gave this utilization", and it is the demand that has changed.
    fn lead(&mut self, asked: f64, part: f64, seconds: f64) {
        let before = self.asked.unwrap_or(asked);
        let slew = SLEW_PER_SECOND * seconds;
        let now = before + (asked - before).clamp(-slew, slew);
        self.asked = Some(now);
        let moved = self.share + part * (now - before);
        let share = if now > before {
            moved.min(now).max(self.share)
        } else {
            moved.max(now).min(self.share)
        };
        self.lagged = if self.share > IDLE {
            self.lagged * share / self.share
        } else {
            share
        };
        self.share = share;
    }

    /// Limits the share that reports call for to the neighborhood of what measured demand calls
    /// for. `part` of its influence is in force.
    fn trim(&mut self, wanted: f64, part: f64, seconds: f64) -> f64 {
        let Some(asked) = self.asked else {
            return wanted;
        };
        let width = 1.0 - part * (1.0 - TRIM) + self.reach;
        let step = REACH_PER_SECOND * seconds;
        let distance = (wanted - asked).abs();
        if distance > width {
            self.reach = (self.reach + step).min(1.0);
        } else if distance < width - TRIM / 2.0 {
            self.reach = (self.reach - step).max(0.0);
        }
        wanted.clamp(asked - width, asked + width).max(0.0)
    }
}

impl Convergent {
    /// Starts with these shares, which are in force.
    pub fn starting_with(shares: impl Iterator<Item = (Locality, f64)>) -> Self {
        Self {
            flows: shares.map(|(at, share)| (at, Flow::new(share))).collect(),
            pull: 0.0,
        }
    }

    /// Runs one tick. Slot 0 is the local locality if `has_local_locality`. `feed_forward` has the
    /// shares that measured demand calls for, if known.
    pub fn tick(
        &mut self,
        controls: &ControllerSettings,
        slots: &[(&Locality, ControlledSlot)],
        has_local_locality: bool,
        feed_forward: Option<&[f64]>,
    ) -> LocalityWeights {
        let limits = Limits::new(controls, slots, has_local_locality);
        let start = limits.starting(feed_forward);
        let unmeasured = limits.unmeasured(feed_forward);
        let mut flows = self.take_flows(slots, &start);
        let period = controls.period;
        age(&mut flows, slots, controls.smoothing, period);
        lead(&mut flows, feed_forward, controls);
        let fleet = FleetLoad::of(slots, controls.band);
        let is_silent = slots.iter().any(|(_, slot)| slot.smoothed.stale);
        self.pull = fleet.map_or(0.0, |fleet| pulled(self.pull, slots, fleet, period));
        let mut wanted = match fleet {
            Some(fleet) if limits.has_local_hosts() => {
                with_local(&limits, &flows, slots, fleet.pulled(self.pull))
            }
            Some(fleet) => without_local(&flows, slots, fleet),
            None if is_silent => unmeasured.clone(),
            None => start,
        };
        silence::hold(&mut wanted, &limits, &flows, slots, &unmeasured);
        for (share, flow) in wanted.iter_mut().zip(&mut flows) {
            *share = flow.trim(*share, controls.feed_forward, period.as_secs_f64());
        }
        if is_silent && feed_forward.is_some() {
            silence::divide_rest(&mut wanted, slots, &unmeasured);
        }
        wanted = if controls.by_host_count {
            limits.by_hosts()
        } else {
            limits.apply(wanted)
        };
        for (flow, _) in flows
            .iter_mut()
            .zip(&limits.hosts)
            .filter(|(_, hosts)| **hosts <= 0.0)
        {
            *flow = Flow::default();
        }
        let shares = approach(&mut flows, &wanted, period, fleet.is_some() || !is_silent);
        let keys = slots.iter().map(|&(locality, _)| locality.clone());
        self.flows = keys.zip(flows).collect();
        outcome(shares, slots, &limits)
    }

    /// Returns the flows of the current slots; a slot that is new, or had no hosts, starts with its
    /// share in `start`.
    fn take_flows(&self, slots: &[(&Locality, ControlledSlot)], start: &[f64]) -> Vec<Flow> {
        let known = |&(locality, _): &(&Locality, _)| {
            let flow = self.flows.get(locality).copied();
            flow.filter(|flow| flow.share > 0.0)
        };
        slots
            .iter()
            .zip(start)
            .map(|(slot, &share)| known(slot).unwrap_or_else(|| Flow::new(share)))
            .collect()
    }
}

/// Load of the upstream cluster: mean utilization, weighted by hosts, of the zones that report.
#[derive(Clone, Copy)]
struct FleetLoad {
    mean: f64,
    /// How loaded the local zone may be, relative to the mean.
    goal: f64,
}

impl FleetLoad {
    /// Returns `None` while there are no reports, or no load.
    fn of(slots: &[(&Locality, ControlledSlot)], band: f64) -> Option<Self> {
        let smoothed = || slots.iter().map(|(_, slot)| slot.smoothed);
        let known = || smoothed().filter(SmoothedSlot::is_measured);
        let hosts: f64 = known().map(|slot| slot.eligible).sum();
        let load: f64 = known().map(|slot| slot.eligible * slot.utilization).sum();
        (hosts > 0.0 && load / hosts > IDLE).then(|| Self {
            mean: load / hosts,
            goal: 1.0 + band,
        })
    }

    fn pulled(self, pull: f64) -> Self {
        Self {
            goal: self.goal * (1.0 + pull),
            ..self
        }
    }

    /// Returns the utilization of a slot; one without valid reports is assumed to be average.
    fn utilization(self, slot: &SmoothedSlot) -> f64 {
        if slot.is_measured() {
            slot.utilization
        } else {
            self.mean
        }
    }
}

/// Computes shares with a local locality: first the share to keep, then where the rest goes.
fn with_local(
    limits: &Limits,
    flows: &[Flow],
    slots: &[(&Locality, ControlledSlot)],
    fleet: FleetLoad,
) -> Vec<f64> {
    let (Some((_, own)), Some(flow)) = (slots.first(), flows.first()) else {
        return Vec::new();
    };
    let own = own.smoothed;
    let utilization = fleet.utilization(&own).max(IDLE);
    let goal = fleet.mean * fleet.goal;
    let kept = (flow.lagged * goal / utilization).clamp(limits.local_floor(), 1.0 - limits.probe);
    // Demand of the local zone, in units of hosts × utilization.
    let demand = utilization * own.eligible / flow.lagged.max(limits.local_floor()).max(IDLE);
    let room = |(flow, (_, slot)): (&Flow, &(&Locality, ControlledSlot))| {
        let slot = slot.smoothed;
        let left = slot.eligible * (fleet.mean - fleet.utilization(&slot));
        if slot.eligible > 0.0 {
            (demand * flow.lagged + left).max(0.0)
        } else {
            0.0
        }
    };
    let rooms: Vec<f64> = flows.iter().zip(slots).skip(1).map(room).collect();
    let total: f64 = rooms.iter().sum();
    let spill = (1.0 - kept - limits.probe).max(0.0);
    let by_hosts = limits.remote_shares();
    let spilled = rooms.iter().zip(by_hosts).map(|(room, by_hosts)| {
        let part = if total > 0.0 { room / total } else { by_hosts };
        spill * part + limits.probe * by_hosts
    });
    std::iter::once(kept).chain(spilled).collect()
}

/// Returns the pull back to local of the next tick: it grows while the local zone is below the
/// goal, and halves above it. A zone that is not measured is not known to be below it.
fn pulled(
    pull: f64,
    slots: &[(&Locality, ControlledSlot)],
    fleet: FleetLoad,
    period: Duration,
) -> f64 {
    let Some(own) = slots.first().map(|(_, slot)| slot.smoothed) else {
        return 0.0;
    };
    if own.stale {
        return 0.0;
    }
    if fleet.utilization(&own) <= fleet.mean * fleet.goal {
        (pull + PULL_PER_SECOND * period.as_secs_f64()).min(MAX_PULL)
    } else {
        pull / 2.0
    }
}

/// Computes shares without a local locality, or while it has no hosts: divides shares by load.
fn without_local(
    flows: &[Flow],
    slots: &[(&Locality, ControlledSlot)],
    fleet: FleetLoad,
) -> Vec<f64> {
    let wanted = |(flow, (_, slot)): (&Flow, &(&Locality, ControlledSlot))| {
        let utilization = fleet.utilization(&slot.smoothed).max(IDLE);
        if slot.smoothed.eligible > 0.0 {
            flow.lagged * fleet.mean / utilization
        } else {
            0.0
        }
    };
    flows.iter().zip(slots).map(wanted).collect()
}

/// Lets the lagged shares follow the shares in force, as slowly as load reports do. Expired reports
/// slow nothing: the next one will measure the share that is in force then.
fn age(
    flows: &mut [Flow],
    slots: &[(&Locality, ControlledSlot)],
    smoothing: Duration,
    period: Duration,
) {
    for (flow, (_, slot)) in flows.iter_mut().zip(slots) {
        let report_age = if slot.smoothed.stale {
            0.0
        } else {
            slot.report_age.max(0.0)
        };
        let lag = smoothing.as_secs_f64() + report_age + METER_LAG_SECONDS;
        let alpha = 1.0 - (-period.as_secs_f64() / lag).exp();
        flow.lagged += alpha * (flow.share - flow.lagged);
    }
}

/// Lets the shares follow measured demand; resets the limits if no demand is measured.
fn lead(flows: &mut [Flow], feed_forward: Option<&[f64]>, controls: &ControllerSettings) {
    let Some(asked) = feed_forward else {
        for flow in flows {
            (flow.asked, flow.reach) = (None, 0.0);
        }
        return;
    };
    for (flow, &asked) in flows.iter_mut().zip(asked) {
        flow.lead(asked, controls.feed_forward, controls.period.as_secs_f64());
    }
}

/// Moves the shares towards the wanted ones, none faster than the slew rate. All moves of a tick
/// are slowed alike, because what one share loses the others gain. Without any measurement, all
/// proxies cover the same part of their way per second, so that no zone is fuller on the way than
/// at its ends.
fn approach(flows: &mut [Flow], wanted: &[f64], period: Duration, is_measured: bool) -> Vec<f64> {
    let seconds = period.as_secs_f64();
    let part = |per_second: f64| 1.0 - (1.0 - per_second).powf(seconds);
    let longest = flows
        .iter()
        .zip(wanted)
        .map(|(flow, wanted)| (wanted - flow.share).abs())
        .fold(0.0, f64::max);
    let gain = if is_measured {
        part(GAIN_PER_SECOND).min(SLEW_PER_SECOND * seconds / longest)
    } else {
        part(SLEW_PER_SECOND)
    };
    for (flow, wanted) in flows.iter_mut().zip(wanted) {
        flow.share += gain * (wanted - flow.share);
    }
    let total: f64 = flows.iter().map(|flow| flow.share).sum();
    if total > 0.0 {
        flows.iter_mut().for_each(|flow| flow.share /= total);
    }
    flows.iter().map(|flow| flow.share).collect()
}

fn outcome(
    shares: Vec<f64>,
    slots: &[(&Locality, ControlledSlot)],
    limits: &Limits,
) -> LocalityWeights {
    let kept = shares.first().copied().unwrap_or(0.0);
    let local = limits.has_local_hosts();
    let usable = || {
        let smoothed = slots.iter().map(|(_, slot)| slot.smoothed);
        smoothed.filter(|slot| slot.eligible > 0.0)
    };
    let full = |slot: SmoothedSlot| slot.is_measured() && slot.utilization >= OVERLOADED;
    let spills = local && kept < 1.0 - limits.probe - 1e-3;
    LocalityWeights {
        all_local: local && kept >= 1.0 - 1e-9,
        all_overloaded: usable().next().is_some() && usable().all(full),
        local_preferred: local && !spills && shares.len() > 1,
        spill_active: spills,
        probe_active: local && !spills && limits.probe > 0.0,
        stale_localities: slots.iter().filter(|(_, slot)| slot.smoothed.stale).count() as u64,
        weights: shares,
    }
}

#[cfg(test)]
mod tests;
