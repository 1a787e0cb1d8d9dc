//! Two explanations side by side, in short.

use plimsoll_core::explain::Explanation;
use serde_json::{Value, json};

use super::{place, rounded};

/// Shares before and after.
pub(in crate::admin) fn what_if(before: &Explanation, after: &Explanation) -> Value {
    json!({ "cluster": before.cluster, "before": short(before), "after": short(after) })
}

fn short(explanation: &Explanation) -> Value {
    let localities = explanation.localities.iter().map(|locality| {
        json!({
            "locality": {
                "region": locality.region,
                "zone": locality.zone,
                "sub_zone": locality.sub_zone,
            },
            "hosts": locality.healthy,
            "demand_share": rounded(locality.demand_share),
            "capacity_share": rounded(locality.capacity_share),
            "traffic_share": rounded(locality.traffic_share),
            "load_factor": locality.load_factor.map(rounded),
        })
    });
    let zones = explanation.zones.iter().map(|zone| {
        let shares = zone.shares.iter().copied().map(rounded);
        json!({
            "locality": place(&zone.locality),
            "state": zone.state,
            "kept_local": rounded(zone.kept_local),
            // In the order of the localities.
            "shares": shares.collect::<Vec<_>>(),
        })
    });
    json!({
        "localities": localities.collect::<Vec<_>>(),
        "zones": zones.collect::<Vec<_>>(),
        "notes": explanation.notes,
    })
}
