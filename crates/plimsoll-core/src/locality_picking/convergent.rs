//! The convergent controller: how much stays local and where the rest goes, without swinging
//! (decisions D8).
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
//! and in the same direction, but never past what it asks for: whoever saw the change first, acts
//! first, and a slow measurement of what the reports have already corrected changes nothing. And
//! where it *stands*, the reports only trim: they move a share by a tenth to either side, and
//! further only while they insist, so that seconds of wrong reports do little.
//!
//! # Why it settles
//!
//! The trap of such a loop is delay: reports are averages over seconds, smoothed again, and arrive
//! late; a rule that compares today's decision with yesterday's reports overshoots, corrects the
//! overshoot, and swings for ever. Here the reported utilization is divided by the share that was
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
//!   keep every zone in sight, the own one too: one that fell silent would be judged by its last
//!   word.
//! * If no split is good enough (all zones overloaded), it evens out the overload.

use std::collections::BTreeMap;
use std::time::Duration;

use super::load_aware_locality::{LocalityWeights, SmoothedSlot};
use crate::model::load_aware_locality::{ColdStart, LoadAwareLocality};
use crate::model::locality::Locality;

/// How far above the mean a zone may stay before it spills: the pull back to local.
const BAND: f64 = 0.02;
/// By how much the pull grows per second below the goal, and how far.
const PULL_PER_SECOND: f64 = 0.001;
const MOST_PULL: f64 = 0.1;
/// Part of the way to the wanted share that is gone per second; softens noise of single reports.
const GAIN_PER_SECOND: f64 = 0.5;
/// Most that a share may change per second: no report, however wrong, moves a zone at once.
const SLEW_PER_SECOND: f64 = 0.15;
/// Reports are averages that the backend made over some time; half of it is age nobody tells.
const METER_LAG_SECONDS: f64 = 1.0;
/// How far reports may move a share away from what measured demand says it should be.
const TRIM: f64 = 0.1;
/// By how much more per second, while they insist.
const REACH_PER_SECOND: f64 = 0.15;
/// Utilization below which there is nothing to balance.
const IDLE: f64 = 1e-6;

/// Utilization from which a zone counts as overloaded. Smoothing approaches 1 and never gets there.
const OVERLOADED: f64 = 0.999;

/// What the controller is told beside utilization: its clock, its floors, its band.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Controls {
    /// Time between two ticks.
    pub period: Duration,
    /// Time constant of the smoothing that utilization has been through.
    pub smoothing: Duration,
    /// Share that always goes to other localities.
    pub remote_probe: f64,
    /// Least share of the own locality while it has hosts; at most what probes leave over.
    pub local_floor: f64,
    /// How far above the mean the own locality may stay before it spills.
    pub band: f64,
    /// Start by host counts instead of locally.
    pub start_by_host_count: bool,
}

impl From<&LoadAwareLocality> for Controls {
    fn from(settings: &LoadAwareLocality) -> Self {
        Self {
            period: settings.weight_update_period(),
            smoothing: settings.smoothing_time_constant(),
            remote_probe: settings.remote_probe_fraction(),
            local_floor: settings.local_probe_fraction(),
            band: BAND,
            start_by_host_count: settings.cold_start() == ColdStart::HostCount,
        }
    }
}

/// One slot as the controller sees it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlledSlot {
    /// Hosts and smoothed utilization.
    pub smoothed: SmoothedSlot,
    /// Mean age of the reports, seconds.
    pub report_age: f64,
}

/// Shares of one priority and source, and what they were when the reports were made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Convergent {
    flows: BTreeMap<Locality, Flow>,
    /// Pull back to local beyond the band.
    pull: f64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Flow {
    /// Share in force.
    share: f64,
    /// The share as late as the reports are.
    lagged: f64,
    /// What measured demand asks for, taken over not faster than shares may move.
    asked: Option<f64>,
    /// How far beyond the trim the reports have got by insisting.
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

    /// Follows what measured demand asks for: a move of it moves the share in the same direction,
    /// but not past it. The lagged share moves in proportion, because the law reads "this share of
    /// the demand gave this utilization", and it is the demand that has changed.
    fn lead(&mut self, asked: f64, seconds: f64) {
        let before = self.asked.unwrap_or(asked);
        let slew = SLEW_PER_SECOND * seconds;
        let now = before + (asked - before).clamp(-slew, slew);
        self.asked = Some(now);
        let moved = self.share + (now - before);
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

    /// What reports want, kept near what measured demand asks for.
    fn trim(&mut self, wanted: f64, seconds: f64) -> f64 {
        let Some(asked) = self.asked else {
            return wanted;
        };
        let width = TRIM + self.reach;
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
    /// One tick. Slot 0 is the own locality if `has_local_locality`. `feed_forward` are the shares
    /// that measured demand asks for, if it is known.
    pub fn tick(
        &mut self,
        controls: &Controls,
        slots: &[(&Locality, ControlledSlot)],
        has_local_locality: bool,
        feed_forward: Option<&[f64]>,
    ) -> LocalityWeights {
        let limits = Limits::new(controls, slots, has_local_locality);
        let start = feed_forward.map_or_else(|| limits.start(), <[f64]>::to_vec);
        let mut flows = self.take_flows(slots, &start);
        let period = controls.period;
        age(&mut flows, slots, controls.smoothing, period);
        lead(&mut flows, feed_forward, period);
        let mut wanted = match Sight::of(slots, controls.band) {
            Some(sight) if limits.has_local_hosts() => {
                self.pull = pulled(self.pull, slots, sight, period);
                with_local(&limits, &flows, slots, sight.pulled(self.pull))
            }
            Some(sight) => without_local(&flows, slots, sight),
            None => start,
        };
        for (share, flow) in wanted.iter_mut().zip(&mut flows) {
            *share = flow.trim(*share, period.as_secs_f64());
        }
        let wanted = limits.apply(wanted);
        for (flow, _) in flows
            .iter_mut()
            .zip(&limits.hosts)
            .filter(|(_, hosts)| **hosts <= 0.0)
        {
            *flow = Flow::default();
        }
        let shares = approach(&mut flows, &wanted, period);
        let keys = slots.iter().map(|&(locality, _)| locality.clone());
        self.flows = keys.zip(flows).collect();
        outcome(shares, slots, &limits)
    }

    /// The flows of the present slots; a slot that is new, or had no hosts, starts as `start` says.
    fn take_flows(&self, slots: &[(&Locality, ControlledSlot)], start: &[f64]) -> Vec<Flow> {
        let known = |&(locality, _): &(&Locality, _)| {
            let flow = self.flows.get(locality).copied();
            flow.filter(|flow| flow.share > 0.0)
        };
        let flows = slots.iter().zip(start);
        flows
            .map(|(slot, &share)| known(slot).unwrap_or_else(|| Flow::new(share)))
            .collect()
    }
}

/// What the fleet looks like: the mean utilization by hosts of those that reported.
#[derive(Clone, Copy)]
struct Sight {
    mean: f64,
    /// How loaded the own zone may be, ÷ mean.
    goal: f64,
}

impl Sight {
    /// `None` while there is nothing to go by.
    fn of(slots: &[(&Locality, ControlledSlot)], band: f64) -> Option<Self> {
        let known = || {
            slots
                .iter()
                .map(|(_, slot)| slot.smoothed)
                .filter(|slot| !slot.cold)
        };
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

    /// Utilization of a slot; one that never reported is taken to be like the others.
    fn utilization(self, slot: &SmoothedSlot) -> f64 {
        if slot.cold {
            self.mean
        } else {
            slot.utilization
        }
    }
}

/// Shares with an own locality: first what is kept, then where the rest goes.
fn with_local(
    limits: &Limits,
    flows: &[Flow],
    slots: &[(&Locality, ControlledSlot)],
    sight: Sight,
) -> Vec<f64> {
    let (Some((_, own)), Some(flow)) = (slots.first(), flows.first()) else {
        return Vec::new();
    };
    let own = own.smoothed;
    let utilization = sight.utilization(&own).max(IDLE);
    let goal = sight.mean * sight.goal;
    let kept = (flow.lagged * goal / utilization).clamp(limits.local_floor(), 1.0 - limits.probe);
    // All that the own zone issues, in units of hosts × utilization.
    let demand = utilization * own.eligible / flow.lagged.max(limits.local_floor()).max(IDLE);
    let room = |(flow, (_, slot)): (&Flow, &(&Locality, ControlledSlot))| {
        let slot = slot.smoothed;
        let left = slot.eligible * (sight.mean - sight.utilization(&slot));
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

/// The pull of the next tick: it grows while the own zone is below the goal, and halves above it.
fn pulled(pull: f64, slots: &[(&Locality, ControlledSlot)], sight: Sight, period: Duration) -> f64 {
    let own = slots.first().map(|(_, slot)| slot.smoothed);
    let calm = own.is_none_or(|own| sight.utilization(&own) <= sight.mean * sight.goal);
    if calm {
        (pull + PULL_PER_SECOND * period.as_secs_f64()).min(MOST_PULL)
    } else {
        pull / 2.0
    }
}

/// Shares without an own locality, or while it has no hosts: each divided by how loaded it is.
fn without_local(flows: &[Flow], slots: &[(&Locality, ControlledSlot)], sight: Sight) -> Vec<f64> {
    let wanted = |(flow, (_, slot)): (&Flow, &(&Locality, ControlledSlot))| {
        let utilization = sight.utilization(&slot.smoothed).max(IDLE);
        if slot.smoothed.eligible > 0.0 {
            flow.lagged * sight.mean / utilization
        } else {
            0.0
        }
    };
    flows.iter().zip(slots).map(wanted).collect()
}

/// Lets the lagged shares follow the shares in force, as slowly as reports follow them.
fn age(
    flows: &mut [Flow],
    slots: &[(&Locality, ControlledSlot)],
    smoothing: Duration,
    period: Duration,
) {
    for (flow, (_, slot)) in flows.iter_mut().zip(slots) {
        let lag = smoothing.as_secs_f64() + slot.report_age.max(0.0) + METER_LAG_SECONDS;
        let alpha = 1.0 - (-period.as_secs_f64() / lag).exp();
        flow.lagged += alpha * (flow.share - flow.lagged);
    }
}

/// Lets the shares follow measured demand; without it, forgets what it was.
fn lead(flows: &mut [Flow], feed_forward: Option<&[f64]>, period: Duration) {
    let Some(asked) = feed_forward else {
        for flow in flows {
            (flow.asked, flow.reach) = (None, 0.0);
        }
        return;
    };
    for (flow, &asked) in flows.iter_mut().zip(asked) {
        flow.lead(asked, period.as_secs_f64());
    }
}

/// Moves the shares towards what is wanted, gently and not faster than the slew rate.
fn approach(flows: &mut [Flow], wanted: &[f64], period: Duration) -> Vec<f64> {
    let seconds = period.as_secs_f64();
    let gain = 1.0 - (1.0 - GAIN_PER_SECOND).powf(seconds);
    let slew = SLEW_PER_SECOND * seconds;
    for (flow, wanted) in flows.iter_mut().zip(wanted) {
        flow.share += (gain * (wanted - flow.share)).clamp(-slew, slew);
    }
    let total: f64 = flows.iter().map(|flow| flow.share).sum();
    if total > 0.0 {
        flows.iter_mut().for_each(|flow| flow.share /= total);
    }
    flows.iter().map(|flow| flow.share).collect()
}

/// The floors, and what follows from them when nothing else is known.
struct Limits {
    hosts: Vec<f64>,
    has_local_locality: bool,
    /// Share that always goes to other localities; 0 when there are none.
    probe: f64,
    local_probe: f64,
    by_host_count: bool,
}

impl Limits {
    fn new(
        controls: &Controls,
        slots: &[(&Locality, ControlledSlot)],
        has_local_locality: bool,
    ) -> Self {
        let hosts: Vec<f64> = slots
            .iter()
            .map(|(_, slot)| slot.smoothed.eligible)
            .collect();
        let remote: f64 = hosts.iter().skip(1).sum();
        let own = hosts.first().copied().unwrap_or(0.0);
        let probe = if has_local_locality && remote > 0.0 && own > 0.0 {
            controls.remote_probe
        } else {
            0.0
        };
        Self {
            hosts,
            has_local_locality,
            probe,
            local_probe: controls.local_floor,
            by_host_count: controls.start_by_host_count,
        }
    }

    fn has_local_hosts(&self) -> bool {
        self.has_local_locality && self.hosts.first().is_some_and(|&own| own > 0.0)
    }

    /// Least share of the own locality: its probe while it has hosts.
    fn local_floor(&self) -> f64 {
        if self.has_local_hosts() {
            self.local_probe
        } else {
            0.0
        }
    }

    /// Shares of the remotes by hosts.
    fn remote_shares(&self) -> Vec<f64> {
        let remote: f64 = self.hosts.iter().skip(1).sum();
        let share = |hosts: &f64| if remote > 0.0 { hosts / remote } else { 0.0 };
        self.hosts.iter().skip(1).map(share).collect()
    }

    /// Shares before anybody reported.
    fn start(&self) -> Vec<f64> {
        let own = self.hosts.first().copied().unwrap_or(0.0);
        if self.has_local_locality && own > 0.0 && !self.by_host_count {
            let probes = self
                .remote_shares()
                .into_iter()
                .map(|share| share * self.probe);
            return std::iter::once(1.0 - self.probe).chain(probes).collect();
        }
        let total: f64 = self.hosts.iter().sum();
        let share = |hosts: &f64| if total > 0.0 { hosts / total } else { 0.0 };
        self.hosts.iter().map(share).collect()
    }

    /// Shares that respect the floors and never go to a slot without hosts.
    fn apply(&self, mut shares: Vec<f64>) -> Vec<f64> {
        for (share, &hosts) in shares.iter_mut().zip(&self.hosts) {
            if hosts <= 0.0 || !share.is_finite() {
                *share = 0.0;
            }
        }
        let total: f64 = shares.iter().sum();
        if total <= 0.0 {
            return self.start();
        }
        shares.iter_mut().for_each(|share| *share /= total);
        if let Some(own) = shares.first().copied()
            && own < self.local_floor()
        {
            let scale = (1.0 - self.local_floor()) / (1.0 - own);
            shares.iter_mut().skip(1).for_each(|share| *share *= scale);
            shares[0] = self.local_floor();
        }
        shares
    }
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
    let full = |slot: SmoothedSlot| !slot.cold && !slot.stale && slot.utilization >= OVERLOADED;
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
