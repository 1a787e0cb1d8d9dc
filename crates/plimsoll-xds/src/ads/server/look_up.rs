//! [`look_up`]: many sorted names in a sorted map.
//!
//! A stream that subscribes to a thousand assignments compares all of them whenever one changes.
//! Walking both in one pass is several times cheaper than a search for each, and names that share
//! their allocation, as almost all do, are not even compared.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map;
use std::iter::Peekable;
use std::sync::Arc;

/// Keys that a search visits: below one name for this many keys, searching is cheaper than walking.
const SEARCH_COST: usize = 16;

/// Returns each of the names, which must be sorted, with its value in `map`.
pub(super) fn look_up<'a, 'm, V>(
    names: impl ExactSizeIterator<Item = &'a Arc<str>>,
    map: &'m BTreeMap<Arc<str>, V>,
) -> impl Iterator<Item = (&'a Arc<str>, Option<&'m V>)> {
    let is_many = names.len() * SEARCH_COST >= map.len();
    let mut walk = is_many.then(|| map.iter().peekable());
    names.map(move |name| {
        let value = match &mut walk {
            None => map.get(name),
            Some(entries) => advance(entries, name),
        };
        (name, value)
    })
}

/// Skips entries before `name`; returns the value of `name`.
fn advance<'m, V>(
    entries: &mut Peekable<btree_map::Iter<'m, Arc<str>, V>>,
    name: &Arc<str>,
) -> Option<&'m V> {
    while let Some((key, value)) = entries.peek() {
        let order = if Arc::ptr_eq(key, name) {
            Ordering::Equal
        } else {
            key.cmp(&name)
        };
        match order {
            Ordering::Less => drop(entries.next()),
            Ordering::Equal => return Some(value),
            Ordering::Greater => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The result is that of a search for each name, whatever the sizes.
        #[test]
        fn looks_up_like_a_search(
            keys in prop::collection::btree_set(0_u16..400, 0..200),
            wanted in prop::collection::btree_set(0_u16..400, 0..200),
            share in any::<bool>(),
        ) {
            let text = |number: &u16| -> Arc<str> { format!("n{number}").into() };
            let map: BTreeMap<Arc<str>, u16> = keys.iter().map(|key| (text(key), *key)).collect();
            let mut names: BTreeSet<Arc<str>> = wanted.iter().map(text).collect();
            if share {
                names.extend(map.keys().cloned());
            }
            let found: Vec<_> = look_up(names.iter(), &map).collect();
            let expected: Vec<_> = names.iter().map(|name| (name, map.get(name))).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
