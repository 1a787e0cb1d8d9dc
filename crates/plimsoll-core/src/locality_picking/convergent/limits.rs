//! Bounds of the shares: probes, the floor of the local locality, and the shares to use without a
//! measurement. Used by `convergent` on every tick.

use super::{ControlledSlot, ControllerSettings};
use crate::model::locality::Locality;

/// Floors of the shares, and the shares to start with.
pub(super) struct Limits {
    pub(super) hosts: Vec<f64>,
    has_local_locality: bool,
    /// Share that always goes to other localities; 0 when there are none.
    pub(super) probe: f64,
    local_probe: f64,
    by_host_count: bool,
    /// Part of the influence of measured demand that is in force, 0.0 to 1.0.
    feed_forward: f64,
}

impl Limits {
    pub(super) fn new(
        controls: &ControllerSettings,
        slots: &[(&Locality, ControlledSlot)],
        has_local_locality: bool,
    ) -> Self {
        let eligible = slots.iter().map(|(_, slot)| slot.smoothed.eligible);
        let hosts: Vec<f64> = eligible.collect();
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
            feed_forward: controls.feed_forward,
        }
    }

    pub(super) fn has_local_hosts(&self) -> bool {
        self.has_local_locality && self.hosts.first().is_some_and(|&own| own > 0.0)
    }

    /// Returns the minimum share of the local locality: its probe while it has hosts.
    pub(super) fn local_floor(&self) -> f64 {
        if self.has_local_hosts() {
            self.local_probe
        } else {
            0.0
        }
    }

    /// Returns the shares of the remote localities, in proportion to their hosts.
    pub(super) fn remote_shares(&self) -> Vec<f64> {
        let remote: f64 = self.hosts.iter().skip(1).sum();
        let share = |hosts: &f64| if remote > 0.0 { hosts / remote } else { 0.0 };
        self.hosts.iter().skip(1).map(share).collect()
    }

    /// Returns the shares to use before any report, without measured demand.
    fn start(&self) -> Vec<f64> {
        let own = self.hosts.first().copied().unwrap_or(0.0);
        if self.has_local_locality && own > 0.0 && !self.by_host_count {
            let probes = self
                .remote_shares()
                .into_iter()
                .map(|share| share * self.probe);
            return std::iter::once(1.0 - self.probe).chain(probes).collect();
        }
        self.by_hosts()
    }

    /// Returns the shares of a locality's part of the hosts.
    pub(super) fn by_hosts(&self) -> Vec<f64> {
        let total: f64 = self.hosts.iter().sum();
        let share = |hosts: &f64| if total > 0.0 { hosts / total } else { 0.0 };
        self.hosts.iter().map(share).collect()
    }

    /// Returns the shares to start with: by measured demand, if it is known.
    pub(super) fn starting(&self, asked: Option<&[f64]>) -> Vec<f64> {
        self.led(self.start(), asked)
    }

    /// Returns the shares of localities without a measurement: by measured demand, if it is known,
    /// by host counts otherwise.
    pub(super) fn unmeasured(&self, asked: Option<&[f64]>) -> Vec<f64> {
        self.led(self.by_hosts(), asked)
    }

    /// Returns `shares`, moved to those that measured demand calls for by the part of its influence
    /// that is in force.
    fn led(&self, shares: Vec<f64>, asked: Option<&[f64]>) -> Vec<f64> {
        let Some(asked) = asked else {
            return shares;
        };
        let led = |(share, asked): (f64, f64)| share + self.feed_forward * (asked - share);
        shares
            .into_iter()
            .zip(self.with_probes(asked))
            .map(led)
            .collect()
    }

    /// Adds the probes to shares that measured demand calls for: a locality that gets nothing
    /// could not show that it reports again.
    fn with_probes(&self, asked: &[f64]) -> Vec<f64> {
        let Some(own) = asked.first().filter(|_| self.probe > 0.0) else {
            return asked.to_vec();
        };
        let kept = own.min(1.0 - self.probe);
        let (spill, remote) = (1.0 - kept - self.probe, 1.0 - own);
        let spilled = asked.iter().skip(1).zip(self.remote_shares());
        let share = |(asked, by_hosts): (&f64, f64)| {
            let part = if remote > 0.0 {
                asked / remote
            } else {
                by_hosts
            };
            spill * part + self.probe * by_hosts
        };
        std::iter::once(kept).chain(spilled.map(share)).collect()
    }

    /// Normalizes shares, applies the floors, and removes slots without hosts.
    pub(super) fn apply(&self, mut shares: Vec<f64>) -> Vec<f64> {
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
