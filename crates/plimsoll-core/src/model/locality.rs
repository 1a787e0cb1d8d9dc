//! [`Locality`]: where something runs, as the triple (region, zone, sub_zone).
//!
//! Order and equality are those of Envoy: the three strings compared as bytes, in that order
//! (envoy-semantics §1.2). Matching between clusters is by the exact triple.

use std::fmt;
use std::sync::Arc;

/// Region, zone and sub-zone. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Locality {
    region: Arc<str>,
    zone: Arc<str>,
    sub_zone: Arc<str>,
}

impl Locality {
    /// The locality of that triple; empty strings are allowed, as in xDS.
    pub fn new(region: &str, zone: &str, sub_zone: &str) -> Self {
        Self {
            region: region.into(),
            zone: zone.into(),
            sub_zone: sub_zone.into(),
        }
    }

    /// A locality that has only a zone, as most examples do.
    pub fn zone_only(zone: &str) -> Self {
        Self::new("", zone, "")
    }

    /// Region, for example `eu-central-1`.
    pub fn region(&self) -> &str {
        &self.region
    }

    /// Zone within the region, for example `eu-central-1a`.
    pub fn zone(&self) -> &str {
        &self.zone
    }

    /// Part of the zone, for example a rack.
    pub fn sub_zone(&self) -> &str {
        &self.sub_zone
    }

    /// No part is set: a node without `node.locality`, or an assignment entry without `locality`.
    pub fn is_unset(&self) -> bool {
        self.region.is_empty() && self.zone.is_empty() && self.sub_zone.is_empty()
    }
}

impl fmt::Display for Locality {
    /// The parts that are set, joined by `/`; `(none)` when no part is set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unset() {
            return f.write_str("(none)");
        }
        let mut parts = [&self.region, &self.zone, &self.sub_zone].into_iter();
        let mut separator = "";
        for part in parts.by_ref().filter(|part| !part.is_empty()) {
            write!(f, "{separator}{part}")?;
            separator = "/";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_region_then_zone_then_sub_zone() {
        let mut localities = [
            Locality::new("r1", "c", ""),
            Locality::new("r0", "z", ""),
            Locality::new("r1", "a", "s"),
        ];
        localities.sort();
        let names: Vec<_> = localities.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["r0/z", "r1/a/s", "r1/c"]);
    }

    #[test]
    fn display_leaves_out_what_is_unset() {
        assert_eq!(Locality::zone_only("a").to_string(), "a");
        assert_eq!(Locality::default().to_string(), "(none)");
        assert!(Locality::default().is_unset());
        assert!(!Locality::new("", "", "rack-7").is_unset());
    }
}
