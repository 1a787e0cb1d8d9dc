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
        let head = if self.goal.capacity.is_none() {
            let share = "its share by its hosts is";
            format!(
                "{zone} spills: {demand:.1} requests/s arrive, and {share} {:.1}/s",
                own.bound
            )
        } else {
            format!(
                "{zone} spills: {demand:.1} requests/s arrive, and {bound} of its capacity of \
                 {capacity:.1}/s are {:.1}",
                own.bound
            )
        };
        let receivers = self.receivers(own);
        if receivers.is_empty() {
            return Some(format!("{head}; no other zone has headroom"));
        }
        Some(format!("{head}; {sent:.1}/s go to {receivers}"))
    }

    /// Says what the requests between zones cost; `None` if none cross.
    pub fn bill_sentence(&self) -> Option<String> {
        let bill = self.bill();
        let crossing: f64 = self.zones.iter().map(|zone| zone.demand - zone.kept).sum();
        if crossing <= NOTICED {
            return None;
        }
        let assumed = if self.goal.cost.is_assumed() {
            " (prices or sizes are assumed)"
        } else {
            ""
        };
        let mut text = format!(
            "requests between zones cost ${:.2} a month{assumed}",
            bill.objective
        );
        if self.goal.objective.is_level() {
            return Some(text);
        }
        text += &format!("; with LEVEL ${:.2}", bill.level);
        if let Some(last) = bill.last_percent {
            let target = self.goal.objective.target_utilization() * 100.0;
            text += &format!(
                "; the last percent costs ${last:.2}: with a target of {:.0} % it would be ${:.2}",
                target + 1.0,
                bill.objective - last
            );
        } else if self.is_forced {
            text += "; another target would not change it, because demand is above it";
        }
        Some(text)
    }

    fn local(&self, own: &PlannedZone) -> String {
        let (zone, demand) = (&own.locality, own.demand);
        let goal = &self.goal;
        let (served, percent) = (own.served, share(own.served, own.capacity));
        if demand <= 0.0 {
            return format!("no requests arrive in {zone}; it serves {served:.1}/s of others");
        }
        if goal.objective.is_level() {
            return format!(
                "{zone} keeps all of its {demand:.1} requests/s, and serves {served:.1}/s"
            );
        }
        if goal.capacity.is_none() {
            return format!(
                "{zone} keeps all of its {demand:.1} requests/s, and serves {served:.1}/s; what \
                 its hosts can serve is not known yet, so all zones are equally full"
            );
        }
        let target = goal.objective.target_utilization() * 100.0;
        format!(
            "{zone} keeps all of its {demand:.1} requests/s: with {served:.1}/s it is at \
             {percent:.0} % of its capacity, the target is {target:.0} %"
        )
    }

    /// Names the bound of a zone: the target, or what demand forces.
    fn bound(&self, own: &PlannedZone) -> String {
        let percent = share(own.bound, own.capacity);
        if self.goal.objective.is_level() {
            return format!("{percent:.0} %, as in all zones,");
        }
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
