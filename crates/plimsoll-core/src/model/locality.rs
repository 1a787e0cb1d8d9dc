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

    /// Returns the locality that was probably meant by this one, which is not among `known`: one
    /// that differs by its region or sub-zone only, or by a few letters of its zone.
    pub fn nearest<'a>(&self, known: impl IntoIterator<Item = &'a Self>) -> Option<&'a Self> {
        let written = self.to_string();
        let distance = |other: &Self| {
            if self.differs_by_region(other) {
                return Some(0);
            }
            if !self.zone().is_empty() && self.zone() == other.zone() {
                return Some(1);
            }
            // A typing mistake, or parts in the wrong fields.
            let (own, other) = (written.to_lowercase(), other.to_string().to_lowercase());
            let letters = edit_distance(&own, &other);
            let few = letters <= own.len().max(other.len()) / 4;
            (few && (letters == 0 || !are_siblings(&own, &other))).then_some(2 + letters)
        };
        let near = known
            .into_iter()
            .filter_map(|other| Some((distance(other)?, other)));
        near.min().map(|(_, other)| other)
    }

    fn triple(&self) -> [&str; 3] {
        [self.region(), self.zone(), self.sub_zone()]
    }
}

/// Whether names differ as zones of one region do: by a number or by their last letter. Neither is
/// a misspelling of the other.
fn are_siblings(one: &str, other: &str) -> bool {
    let letters = |name: &str| -> String { name.chars().filter(|c| !c.is_ascii_digit()).collect() };
    let stem = |name: &str| -> String {
        let mut stem = name.to_owned();
        stem.pop();
        stem
    };
    letters(one) == letters(other) || stem(one) == stem(other)
}

/// Returns the number of letters to insert, remove or replace that make one text the other.
fn edit_distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (index, letter) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], index + 1);
        for (column, of_other) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != *of_other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row.last().copied().unwrap_or_default()
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
        if (self.zone_at, self.sub_zone_at) == (other.zone_at, other.sub_zone_at) {
            // Parts of the same lengths compare like the whole.
            return self.parts.cmp(&other.parts);
        }
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

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Locality {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, serde::Deserialize)]
        #[serde(default)]
        struct Parts {
            region: String,
            zone: String,
            sub_zone: String,
        }
        let parts = Parts::deserialize(deserializer)?;
        Ok(Self::new(&parts.region, &parts.zone, &parts.sub_zone))
    }
}

#[cfg(feature = "schemars")]
impl schemars::JsonSchema for Locality {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Locality".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let part = schemars::json_schema!({ "type": "string" });
        schemars::json_schema!({
            "type": "object",
            "description": "Region, zone and sub-zone; empty where unset.",
            "properties": { "region": part, "zone": part, "sub_zone": part },
            "required": ["region", "zone", "sub_zone"],
        })
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
    fn order_is_that_of_the_parts_whatever_their_lengths() {
        let parts = ["", "a", "ab", "b", "ba"];
        let all: Vec<[&str; 3]> = parts
            .into_iter()
            .flat_map(|region| parts.map(|zone| (region, zone)))
            .flat_map(|(region, zone)| parts.map(|sub_zone| [region, zone, sub_zone]))
            .collect();
        let locality = |[region, zone, sub_zone]: [&str; 3]| Locality::new(region, zone, sub_zone);
        for one in &all {
            for other in &all {
                let order = locality(*one).cmp(&locality(*other));
                assert_eq!(order, one.cmp(other), "{one:?} and {other:?}");
            }
        }
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
    fn the_nearest_locality_is_the_one_that_was_meant() {
        let known = [("eu", "eu-1"), ("eu", "eu-2"), ("us", "us-east-1a")]
            .map(|(region, zone)| Locality::new(region, zone, ""));
        let nearest = |region: &str, zone: &str, sub_zone: &str| {
            let own = Locality::new(region, zone, sub_zone);
            own.nearest(&known).map(ToString::to_string)
        };
        let cases = [
            (("", "eu-1", ""), Some("eu/eu-1")),
            (("us", "eu-2", ""), Some("eu/eu-2")),
            (("eu", "eu-1", "rack-7"), Some("eu/eu-1")),
            (("eu", "EU-2", ""), Some("eu/eu-2")),
            (("us", "us-eats-1a", ""), Some("us/us-east-1a")),
            (("", "eu/eu-2", ""), Some("eu/eu-2")),
            (("eu", "eu-3", ""), None),
            (("us", "us-east-1b", ""), None),
            (("ap", "ap-south-1", ""), None),
            (("", "", ""), None),
        ];
        for ((region, zone, sub_zone), expected) in cases {
            let found = nearest(region, zone, sub_zone);
            assert_eq!(found.as_deref(), expected, "{region}/{zone}/{sub_zone}");
        }
        assert_eq!(Locality::zone_only("a").nearest([]), None);
    }

    #[test]
    fn edit_distance_counts_letters() {
        for (one, other, expected) in [
            ("", "", 0),
            ("abc", "", 3),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("zone-a", "zone-b", 1),
            ("zoen", "zone", 2),
        ] {
            assert_eq!(edit_distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn display_leaves_out_unset_parts() {
        assert_eq!(Locality::zone_only("a").to_string(), "a");
        assert_eq!(Locality::default().to_string(), "(none)");
        assert!(Locality::default().is_unset());
        assert!(!Locality::new("", "", "rack-7").is_unset());
    }
}
