//! Small scenarios for the tests of this crate.

use crate::scenario::parts::{HostGroupParts, ZoneParts};
use crate::scenario::{HumanDuration, ScenarioParts};

/// Returns the setup of the measurements: three zones, four hosts of 30 requests/s each, demand
/// 60/20/20 at mean utilization 0.6.
pub(crate) fn three_zones() -> ScenarioParts {
    let zone = |(name, demand): (&str, f64)| ZoneParts {
        name: name.into(),
        demand,
        hosts: vec![HostGroupParts {
            count: 4,
            capacity: 30.0,
            weight: None,
        }],
        ..Default::default()
    };
    let mut parts = ScenarioParts {
        title: "60/20/20".into(),
        duration: Some(HumanDuration::from_secs(40)),
        zone: [("a", 60.0), ("b", 20.0), ("c", 20.0)].map(zone).into(),
        ..Default::default()
    };
    parts.traffic.mean_utilization = Some(0.6);
    parts
}
