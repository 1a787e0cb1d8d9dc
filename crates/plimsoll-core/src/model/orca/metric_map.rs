//! [`MetricMap`]: the named metrics of a load report, as a sorted list.
//!
//! Reports carry a handful of metrics, for which a list is smaller and faster than a tree. Every
//! entry stores a hash of its name, and a resolved name compares hashes before text. Wire-format
//! readers fill the map; `metric_name` and load reporting read it.

use xxhash_rust::xxh64::xxh64;

/// Up to this length, scanning all hashes is faster than comparing some names.
const FEW: usize = 32;

/// Metric values by name. Names are unique and sorted by their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricMap(Vec<Metric>);

#[derive(Clone, Debug, PartialEq)]
struct Metric {
    hash: u64,
    value: f64,
    name: Box<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    hash: u64,
    name: Box<str>,
}

impl MetricMap {
    /// Returns the value of `name`, if the report has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.position(name).ok().map(|index| self.0[index].value)
    }

    /// Sets `name` to `value` and returns the previous value.
    pub fn insert(&mut self, name: impl Into<Box<str>>, value: f64) -> Option<f64> {
        let metric = Metric::new(name.into(), value);
        match self.position(&metric.name) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index], metric).value),
            Err(index) => {
                self.0.insert(index, metric);
                None
            }
        }
    }

    /// Iterates over all metrics, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        let metrics = self.0.iter();
        metrics.map(|metric| (metric.name.as_ref(), metric.value))
    }

    /// Returns the number of metrics.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the report has no metrics.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn get_hashed(&self, key: &Key) -> Option<f64> {
        if self.0.len() > FEW {
            return self.get(&key.name);
        }
        let mut metrics = self.0.iter();
        let found = metrics.find(|metric| metric.hash == key.hash && metric.name == key.name)?;
        Some(found.value)
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|metric| (*metric.name).cmp(name))
    }
}

impl Metric {
    fn new(name: Box<str>, value: f64) -> Self {
        Self {
            hash: hash(&name),
            value,
            name,
        }
    }
}

impl Key {
    pub(super) fn new(name: &str) -> Self {
        Self {
            hash: hash(name),
            name: name.into(),
        }
    }
}

/// Hashes a name. This only narrows the search: names are compared after equal hashes.
fn hash(name: &str) -> u64 {
    xxh64(name.as_bytes(), 0)
}

impl<N: Into<Box<str>>> FromIterator<(N, f64)> for MetricMap {
    /// The last of several metrics with the same name wins, as in a protobuf map.
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(metrics: I) -> Self {
        let metrics = metrics.into_iter();
        let mut list: Vec<_> = metrics
            .map(|(name, value)| Metric::new(name.into(), value))
            .collect();
        list.sort_by(|left, right| left.name.cmp(&right.name));
        list.dedup_by(|later, kept| {
            let same = later.name == kept.name;
            if same {
                kept.value = later.value;
            }
            same
        });
        Self(list)
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn pairs(map: &MetricMap) -> Vec<(&str, f64)> {
        map.iter().collect()
    }

    #[test]
    fn metrics_are_sorted_by_the_bytes_of_their_names() {
        let map: MetricMap = [("b", 2.0), ("", 4.0), ("a.b", 3.0), ("a", 1.0), ("B", 5.0)]
            .into_iter()
            .collect();
        let expected = [("", 4.0), ("B", 5.0), ("a", 1.0), ("a.b", 3.0), ("b", 2.0)];
        assert_eq!(pairs(&map), expected);
        assert_eq!((map.len(), map.is_empty()), (5, false));
        assert_eq!(map.get("a.b"), Some(3.0));
        assert_eq!(map.get("a.c"), None);
        assert_eq!(MetricMap::default().get(""), None);
        assert!(MetricMap::default().is_empty());
    }

    #[test]
    fn the_last_of_equal_names_wins() {
        let list = [("a", 1.0), ("b", 9.0), ("a", 2.0), ("a", 3.0)];
        let map: MetricMap = list.into_iter().collect();
        assert_eq!(pairs(&map), [("a", 3.0), ("b", 9.0)]);
    }

    #[test]
    fn insert_replaces_and_returns_the_previous_value() {
        let mut map = MetricMap::default();
        assert_eq!(map.insert("b", 1.0), None);
        assert_eq!(map.insert("a", 2.0), None);
        assert_eq!(map.insert(String::from("b"), 3.0), Some(1.0));
        assert_eq!(pairs(&map), [("a", 2.0), ("b", 3.0)]);
    }

    #[test]
    fn hashed_keys_work_in_short_and_long_lists() {
        for len in [0, 1, FEW - 1, FEW, FEW + 1, 1_000] {
            let named = |index: usize| format!("metric.{index}");
            let map: MetricMap = (0..len).map(|index| (named(index), index as f64)).collect();
            for index in 0..len + 2 {
                let name = named(index);
                let expected = (index < len).then_some(index as f64);
                assert_eq!(map.get(&name), expected, "{name} of {len}");
                assert_eq!(
                    map.get_hashed(&Key::new(&name)),
                    expected,
                    "{name} of {len}"
                );
            }
        }
    }

    #[test]
    fn equal_hashes_do_not_make_equal_names() {
        let map: MetricMap = [("a", 1.0)].into_iter().collect();
        let mut key = Key::new("b");
        key.hash = map.0[0].hash;
        assert_eq!(map.get_hashed(&key), None);
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_map(
            list in vec(("[ab.]{0,3}", -9.0..9.0), 0..20),
            asked in "[ab.]{0,3}",
        ) {
            let collected: MetricMap = list.iter().map(|(name, value)| (&**name, *value)).collect();
            let mut inserted = MetricMap::default();
            for (name, value) in &list {
                inserted.insert(name.as_str(), *value);
            }
            prop_assert_eq!(&collected, &inserted);
            let last = list.iter().rev().find(|(name, _)| *name == asked);
            prop_assert_eq!(collected.get(&asked), last.map(|(_, value)| *value));
            prop_assert_eq!(collected.get_hashed(&Key::new(&asked)), collected.get(&asked));
            prop_assert!(collected.iter().is_sorted_by(|left, right| left.0 < right.0));
        }
    }
}
