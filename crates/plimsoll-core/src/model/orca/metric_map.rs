//! [`MetricMap`]: named numbers of a report, as one sorted list.
//!
//! Reports carry a handful of metrics, so that a list is smaller and faster than a tree. Filled by
//! whoever reads a wire form, read by `metric_name` and by load reporting.

/// Metrics by name: names are unique, the order is that of their bytes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetricMap(Vec<(Box<str>, f64)>);

impl MetricMap {
    /// The value of `name`, if the report has it.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.position(name).ok().map(|index| self.0[index].1)
    }

    /// Sets `name` to `value` and returns what it was before.
    pub fn insert(&mut self, name: impl Into<Box<str>>, value: f64) -> Option<f64> {
        let name = name.into();
        match self.position(&name) {
            Ok(index) => Some(std::mem::replace(&mut self.0[index].1, value)),
            Err(index) => {
                self.0.insert(index, (name, value));
                None
            }
        }
    }

    /// All metrics, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, f64)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), *value))
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// There is none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(found, _)| (**found).cmp(name))
    }
}

impl<N: Into<Box<str>>> FromIterator<(N, f64)> for MetricMap {
    /// Of metrics with the same name the last one counts, as in a protobuf map.
    fn from_iter<I: IntoIterator<Item = (N, f64)>>(metrics: I) -> Self {
        let metrics = metrics.into_iter();
        let mut list: Vec<_> = metrics.map(|(name, value)| (name.into(), value)).collect();
        list.sort_by(|(left, _): &(Box<str>, f64), (right, _)| left.cmp(right));
        list.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = later.1;
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
    fn of_equal_names_the_last_one_counts() {
        let list = [("a", 1.0), ("b", 9.0), ("a", 2.0), ("a", 3.0)];
        let map: MetricMap = list.into_iter().collect();
        assert_eq!(pairs(&map), [("a", 3.0), ("b", 9.0)]);
    }

    #[test]
    fn inserting_replaces_and_tells_what_was_there() {
        let mut map = MetricMap::default();
        assert_eq!(map.insert("b", 1.0), None);
        assert_eq!(map.insert("a", 2.0), None);
        assert_eq!(map.insert(String::from("b"), 3.0), Some(1.0));
        assert_eq!(pairs(&map), [("a", 2.0), ("b", 3.0)]);
    }

    proptest! {
        #[test]
        fn it_is_a_map(list in vec(("[ab.]{0,3}", -9.0..9.0), 0..20), asked in "[ab.]{0,3}") {
            let collected: MetricMap = list.iter().map(|(name, value)| (&**name, *value)).collect();
            let mut inserted = MetricMap::default();
            for (name, value) in &list {
                inserted.insert(name.as_str(), *value);
            }
            prop_assert_eq!(&collected, &inserted);
            let last = list.iter().rev().find(|(name, _)| *name == asked);
            prop_assert_eq!(collected.get(&asked), last.map(|(_, value)| *value));
            prop_assert!(collected.iter().is_sorted_by(|left, right| left.0 < right.0));
        }
    }
}
