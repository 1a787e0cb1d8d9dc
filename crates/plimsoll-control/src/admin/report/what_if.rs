//! Response of `/api/v1/what-if`: the explanations without and with the change, abridged.

use plimsoll_core::explain::Explanation;

use super::super::responses::{LocalityShares, Shares, WhatIf, ZoneShares};
use super::rounded;

pub(in crate::admin) fn what_if(before: &Explanation, after: &Explanation) -> WhatIf {
    WhatIf {
        cluster: before.cluster.clone(),
        before: shares(before),
        after: shares(after),
    }
}

fn shares(explanation: &Explanation) -> Shares {
    let localities = explanation.localities.iter().map(|entry| LocalityShares {
        locality: (&entry.locality()).into(),
        hosts: entry.healthy,
        demand_share: rounded(entry.demand_share),
        capacity_share: rounded(entry.capacity_share),
        traffic_share: rounded(entry.traffic_share),
        load_factor: entry.load_factor.map(rounded),
    });
    let zones = explanation.zones.iter().map(|zone| ZoneShares {
        locality: (&zone.locality).into(),
        state: zone.state,
        kept_local: rounded(zone.kept_local),
        shares: zone.shares.iter().copied().map(rounded).collect(),
    });
    Shares {
        localities: localities.collect(),
        zones: zones.collect(),
        notes: explanation.notes.clone(),
    }
}
