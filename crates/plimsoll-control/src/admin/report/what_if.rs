//! Response of `/api/v1/what-if`: the explanations without and with the change, abridged.

use plimsoll_core::explain::Explanation;

use super::super::responses::{EnforcedShares, LocalityShares, Shares, WhatIf, ZoneShares};
use super::rounded;

/// Converts the explanations before and after the change: as routed now, and as enforced.
pub(in crate::admin) fn what_if(now: [&Explanation; 2], enforced: [&Explanation; 2]) -> WhatIf {
    let [before, after] = now.map(shares);
    let [enforced_before, enforced_after] = enforced.map(shares);
    WhatIf {
        cluster: now[0].cluster.clone(),
        before,
        after,
        enforce: EnforcedShares {
            before: enforced_before,
            after: enforced_after,
        },
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
