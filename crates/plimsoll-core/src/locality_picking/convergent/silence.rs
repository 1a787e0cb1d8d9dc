//! Shares of zones without news. `convergent` explains the law; this is its exception.

use super::{ControlledSlot, Flow, Limits};
use crate::model::locality::Locality;

/// How long a zone goes on correcting by its last report. Shorter, and a zone that few requests
/// reach would rarely be corrected; longer, and a frozen error moves shares further.
const HOLD_SECONDS: f64 = 15.0;

/// What decides the share of a zone.
#[derive(Clone, Copy)]
enum Share {
    /// The law: there is news, or the zone never reported.
    Steered(f64),
    /// Nothing new came for a while: the share in force is kept.
    Held(f64),
    /// All reports have expired: measured demand, or host counts.
    Unmeasured(f64),
}

/// Gives the zones whose reports expired exactly their share of `unmeasured` again, after limits
/// have moved those of the others, which divide the rest in proportion.
pub(super) fn divide_rest(
    wanted: &mut [f64],
    slots: &[(&Locality, ControlledSlot)],
    unmeasured: &[f64],
) {
    let is_silent = |index: usize| {
        let slot = &slots[index].1.smoothed;
        slot.stale && slot.eligible > 0.0 && !slot.cold
    };
    let sum = |shares: &[f64], of_silent: bool| -> f64 {
        let shares = shares.iter().enumerate();
        let of_kind = shares.filter(|(index, _)| is_silent(*index) == of_silent);
        of_kind.map(|(_, share)| share).sum()
    };
    let (rest, others) = (1.0 - sum(unmeasured, true), sum(wanted, false));
    if others <= 0.0 || rest < 0.0 {
        return;
    }
    for (index, share) in wanted.iter_mut().enumerate() {
        *share = if is_silent(index) {
            unmeasured[index]
        } else {
            *share * rest / others
        };
    }
}

/// Replaces the wanted shares of zones without news. Zones whose reports expired get their share of
/// `unmeasured`, zones of which nothing new came keep theirs, and the others divide the rest: the
/// local zone keeps what the law says, as far as that is left.
pub(super) fn hold(
    wanted: &mut [f64],
    limits: &Limits,
    flows: &[Flow],
    slots: &[(&Locality, ControlledSlot)],
    unmeasured: &[f64],
) {
    let share = |index: usize, wanted: f64| {
        let slot = &slots[index].1;
        if slot.smoothed.eligible <= 0.0 || slot.smoothed.cold {
            Share::Steered(wanted)
        } else if slot.smoothed.stale {
            Share::Unmeasured(unmeasured[index])
        } else if slot.newest_age > HOLD_SECONDS {
            Share::Held(flows[index].share)
        } else {
            Share::Steered(wanted)
        }
    };
    let wanted_shares = wanted.iter().enumerate();
    let shares: Vec<Share> = wanted_shares.map(|(index, &w)| share(index, w)).collect();
    if shares
        .iter()
        .all(|share| matches!(share, Share::Steered(_)))
    {
        return;
    }
    let (mut own, mut steered, mut held, mut rest) = (0.0, 0.0, 0.0, 1.0);
    for (index, share) in shares.iter().enumerate() {
        match share {
            Share::Steered(share) if index == 0 && limits.has_local_hosts() => own = *share,
            Share::Steered(share) => steered += share,
            Share::Held(share) => held += share,
            Share::Unmeasured(share) => rest -= share,
        }
    }
    let rest = f64::max(rest, 0.0);
    // If the law has no zone to give the rest to, zones that are held divide it.
    let is_any_steered = own + steered > 0.0;
    let kept = if is_any_steered { rest.min(held) } else { rest };
    let left = rest - kept;
    let own = if steered > 0.0 {
        own.min(left * (1.0 - limits.probe))
    } else {
        left
    };
    let part = |of: f64, total: f64| if total > 0.0 { of / total } else { 0.0 };
    let (held_scale, steered_scale) = (part(kept, held), part(left - own, steered));
    for (index, (wanted, share)) in wanted.iter_mut().zip(shares).enumerate() {
        *wanted = match share {
            Share::Steered(_) if index == 0 && limits.has_local_hosts() => own,
            Share::Steered(share) => share * steered_scale,
            Share::Held(share) => share * held_scale,
            Share::Unmeasured(share) => share,
        };
    }
}
