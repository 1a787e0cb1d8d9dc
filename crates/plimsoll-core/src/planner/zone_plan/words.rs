//! Why a zone sends requests away, in a sentence.

use super::{PlannedZone, ZonePlan};
use crate::model::locality::Locality;

/// Requests per second that are not worth a word.
const NOTICED: f64 = 0.05;

impl ZonePlan {
    /// Says how the requests of a zone are planned; `None` for a zone without demand and hosts.
    pub fn sentence(&self, zone: &Locality) -> Option<String> {
        let own = self.zone(zone)?;
        let sent = own.demand - own.kept;
        if sent <= NOTICED {
            return Some(self.local(own));
        }
        let bound = self.bound(own);
        let (demand, capacity) = (own.demand, own.capacity);
        let head = format!(
            "{zone} spills: {demand:.1} requests/s arrive, and {bound} of its capacity of \
             {capacity:.1}/s are {:.1}",
            own.bound
        );
        let receivers = self.receivers(own);
        if receivers.is_empty() {
            return Some(format!("{head}; no other zone has headroom"));
        }
        Some(format!("{head}; {sent:.1}/s go to {receivers}"))
    }

    fn local(&self, own: &PlannedZone) -> String {
        let (zone, demand) = (&own.locality, own.demand);
        let target = self.goal.objective.target_utilization() * 100.0;
        let (served, percent) = (own.served, share(own.served, own.capacity));
        if demand <= 0.0 {
            return format!("no requests arrive in {zone}; it serves {served:.1}/s of others");
        }
        format!(
            "{zone} keeps all of its {demand:.1} requests/s: with {served:.1}/s it is at \
             {percent:.0} % of its capacity, the target is {target:.0} %"
        )
    }

    /// Names the bound of a zone: the target, or what demand forces.
    fn bound(&self, own: &PlannedZone) -> String {
        let percent = share(own.bound, own.capacity);
        if self.is_forced {
            return format!("{percent:.0} % (demand is above the target of all zones together)");
        }
        format!("the target of {percent:.0} %")
    }

    /// Lists the zones that get requests of another one, with their headroom.
    fn receivers(&self, own: &PlannedZone) -> String {
        let row = self.row(&own.locality).into_iter().flatten();
        let others = row.filter(|(zone, parts)| **zone != own.locality && *parts > 0);
        let receivers = others.filter_map(|(zone, _)| {
            let other = self.zone(zone)?;
            let headroom = (other.bound - other.kept).max(0.0);
            Some(format!("{zone} (headroom {headroom:.1}/s)"))
        });
        receivers.collect::<Vec<_>>().join(", ")
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 {
        part / whole * 100.0
    } else {
        0.0
    }
}
