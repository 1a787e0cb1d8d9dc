//! [`Locality`]: where a host or proxy runs, as the triple (region, zone, sub_zone).
//!
//! Order and equality are those of Envoy: the three strings compared as bytes, in that order
//! (envoy-semantics §1.2). Matching between clusters is by the exact triple.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// Region, zone and sub-zone of a host or proxy. Cloning is cheap.
///
/// All three parts share one string, because localities are cloned and compared wherever shares are
/// computed.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Locality {
    /// The three parts, concatenated.
    parts: Arc<str>,
    zone_at: usize,
    sub_zone_at: usize,
}

impl Locality {
    /// Builds a locality from its parts; empty strings are allowed, as in xDS.
    pub fn new(region: &str, zone: &str, sub_zone: &str) -> Self {
        Self {
            parts: [region, zone, sub_zone].concat().into(),
            zone_at: region.len(),
            sub_zone_at: region.len() + zone.len(),
        }
    }

    /// Builds a locality that has only a zone, as in most examples.
    pub fn zone_only(zone: &str) -> Self {
        Self::new("", zone, "")
    }

    /// Returns the region, for example `eu-central-1`.
    pub fn region(&self) -> &str {
        &self.parts[..self.zone_at]
    }

    /// Returns the zone within the region, for example `eu-central-1a`.
    pub fn zone(&self) -> &str {
        &self.parts[self.zone_at..self.sub_zone_at]
    }

    /// Returns the part of the zone, for example a rack.
    pub fn sub_zone(&self) -> &str {
        &self.parts[self.sub_zone_at..]
    }

    /// Whether no part is set: a node without `node.locality`, or an entry without `locality`.
    pub fn is_unset(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether zone and sub-zone are the same and only the regions differ. A zone must be set.
    pub fn differs_by_region(&self, other: &Self) -> bool {
        !self.zone().is_empty()
            && self.region() != other.region()
            && (self.zone(), self.sub_zone()) == (other.zone(), other.sub_zone())
    }

    fn triple(&self) -> [&str; 3] {
        [self.region(), self.zone(), self.sub_zone()]
    }
}

/// A locality that has only a zone: see [`Locality::zone_only`].
impl From<&str> for Locality {
    fn from(zone: &str) -> Self {
        Self::zone_only(zone)
    }
}

/// A locality that has only a zone: see [`Locality::zone_only`].
impl From<String> for Locality {
    fn from(zone: String) -> Self {
        Self::zone_only(&zone)
    }
}

impl Ord for Locality {
    fn cmp(&self, other: &Self) -> Ordering {
        self.triple().cmp(&other.triple())
    }
}

impl PartialOrd for Locality {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Debug for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Locality").field(&self.triple()).finish()
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Locality {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct as _;
        let mut fields = serializer.serialize_struct("Locality", 3)?;
        fields.serialize_field("region", self.region())?;
        fields.serialize_field("zone", self.zone())?;
        fields.serialize_field("sub_zone", self.sub_zone())?;
        fields.end()
    }
}

impl fmt::Display for Locality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unset() {
            return f.write_str("(none)");
        }
        let mut separator = "";
        for part in self.triple().into_iter().filter(|part| !part.is_empty()) {
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
    fn equality_compares_the_parts_not_their_concatenation() {
        let same = Locality::new("r", "zz", "s");
        assert_eq!(same, Locality::new("r", "zz", "s"));
        for other in [
            Locality::new("rz", "z", "s"),
            Locality::new("r", "z", "zs"),
            Locality::new("", "", "rzzs"),
        ] {
            assert_ne!(same, other);
            assert_ne!(same.cmp(&other), Ordering::Equal);
        }
        // Parts are compared one by one: "r" + "b" comes before "ra" + "a".
        assert!(Locality::new("r", "b", "") < Locality::new("ra", "a", ""));
        assert_eq!(
            (same.region(), same.zone(), same.sub_zone()),
            ("r", "zz", "s")
        );
    }

    #[test]
    fn localities_may_differ_by_region_alone() {
        let own = Locality::new("r1", "a", "");
        assert!(own.differs_by_region(&"a".into()));
        assert!(own.differs_by_region(&Locality::new("r2", "a", "")));
        for other in [
            own.clone(),
            Locality::new("r2", "b", ""),
            Locality::new("r2", "a", "s"),
        ] {
            assert!(!own.differs_by_region(&other), "{other}");
        }
        assert!(!Locality::default().differs_by_region(&Locality::new("r1", "", "")));
    }

    #[test]
    fn display_leaves_out_unset_parts() {
        assert_eq!(Locality::zone_only("a").to_string(), "a");
        assert_eq!(Locality::default().to_string(), "(none)");
        assert!(Locality::default().is_unset());
        assert!(!Locality::new("", "", "rack-7").is_unset());
    }
}
