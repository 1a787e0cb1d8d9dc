//! Which hosts are in which subset: one pass over the hosts of a priority, in the order of Envoy.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::slice::Slice;
use super::{Hosts, Members, SingleHost, Subset, Subsets, Turnover};
use crate::host::Host;
use crate::model::metadata::criteria::{Criterion, combined_hash};
use crate::model::metadata::{Metadata, MetadataValue};
use crate::model::subset::SubsetSelector;

/// A key and a value of it that a host has.
type Pair<'a> = (&'a Arc<str>, &'a MetadataValue);

impl Subsets {
    /// Divides the hosts of these priorities anew; subsets without hosts go.
    pub(super) fn divide(&mut self, members: &Members, priorities: &[usize]) -> Turnover {
        let mut turnover = Turnover::default();
        loop {
            turnover.left_out = 0;
            for &priority in priorities {
                self.divide_priority(members, priority, &mut turnover);
            }
            let gone = self.purge();
            turnover.removed += gone;
            if turnover.left_out == 0 || gone == 0 {
                return turnover;
            }
            // Room became free after the pass that looked for it.
        }
    }

    fn divide_priority(&mut self, members: &Members, priority: usize, turnover: &mut Turnover) {
        self.pass += 1;
        let mut duplicates = 0;
        let config = Arc::clone(&self.config);
        for (slot, entry) in members.slots(priority).iter().enumerate() {
            for (position, member) in (0..).zip(&entry.members) {
                let metadata = &member.endpoint.metadata;
                if let Some(default) = &mut self.default
                    && metadata.matches(config.default_subset(), config.list_as_any())
                {
                    default.push((slot, position));
                }
                for selector in config.subset_selectors() {
                    let (joined, cut) = self.combinations(selector, metadata);
                    turnover.left_out += u64::from(cut);
                    for pairs in joined {
                        let Some(at) = self.find_or_create(&pairs, selector, turnover) else {
                            turnover.left_out += 1;
                            continue;
                        };
                        let host = (&member.host, (slot, position));
                        duplicates += u64::from(!self.join(at, host));
                    }
                }
            }
        }
        let slots = members.slots(priority).len();
        if let Some(default) = &mut self.default {
            default.settle(priority, slots);
        }
        for subset in self.slots.iter_mut().flatten() {
            match &mut subset.hosts {
                Hosts::Many(slice) => slice.settle(priority, slots),
                Hosts::Single(single) => single.settle(priority),
            }
        }
        if self.duplicates.len() <= priority {
            self.duplicates.resize(priority + 1, 0);
        }
        self.duplicates[priority] = duplicates;
        self.last_duplicates = duplicates;
    }

    /// The keys and values by which a host joins subsets of a selector: none if it lacks a key, one
    /// list of values, or with `list_as_any` one for every combination of elements. As in Envoy an
    /// empty list takes back what stood before it: the keys after it count alone. Cut off where no
    /// cluster could have so many subsets; tells whether it was.
    fn combinations<'a>(
        &self,
        selector: &'a SubsetSelector,
        metadata: &'a Metadata,
    ) -> (Vec<Vec<Pair<'a>>>, bool) {
        let most = self.config.max_subsets() as usize;
        let mut all: Vec<Vec<Pair<'a>>> = Vec::new();
        let mut cut = false;
        for key in selector.keys() {
            let Some(value) = metadata.get(key) else {
                return (Vec::new(), false);
            };
            let values = match value {
                MetadataValue::List(values) if self.config.list_as_any() => &**values,
                single => std::slice::from_ref(single),
            };
            if all.is_empty() {
                all.extend(values.iter().take(most).map(|value| vec![(key, value)]));
                cut |= values.len() > most;
                continue;
            }
            let product = all.iter().flat_map(|pairs| {
                let longer = |value| pairs.iter().copied().chain([(key, value)]).collect();
                values.iter().map(longer)
            });
            cut |= all.len().saturating_mul(values.len()) > most;
            all = product.take(most).collect();
        }
        (all, cut)
    }

    /// The slot of the subset of exactly these keys and values; `None` if there are too many.
    fn find_or_create(
        &mut self,
        pairs: &[Pair<'_>],
        selector: &SubsetSelector,
        turnover: &mut Turnover,
    ) -> Option<usize> {
        let hashes = pairs.iter().map(|(key, value)| Criterion::hash(key, value));
        let hash = combined_hash(hashes);
        let known = self.by_hash.get(&hash).into_iter().flatten();
        for &slot in known {
            let at = slot as usize - 1;
            if let Some(subset) = &self.slots[at]
                && subset.is(pairs)
            {
                return Some(at);
            }
        }
        if self.active >= self.config.max_subsets() {
            return None;
        }
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[at] = Some(Subset {
            id: self.next_id,
            hash,
            criteria: pairs.iter().map(|(k, v)| Criterion::new(k, v)).collect(),
            hosts: if selector.single_host_per_subset() {
                Hosts::Single(SingleHost::default())
            } else {
                Hosts::Many(Box::default())
            },
        });
        let slot = u32::try_from(at + 1).expect("subsets are limited");
        self.by_hash.entry(hash).or_default().push(slot);
        self.next_id += 1;
        self.active += 1;
        turnover.created += 1;
        Some(at)
    }

    /// Puts a host into a subset; `false` if that is one of a single host and has it already.
    fn join(&mut self, at: usize, (host, place): (&Arc<Host>, (usize, u32))) -> bool {
        let pass = self.pass;
        match self.slots[at].as_mut().map(|subset| &mut subset.hosts) {
            Some(Hosts::Many(slice)) => slice.push(place),
            Some(Hosts::Single(single)) if single.found.0 == pass => return false,
            Some(Hosts::Single(single)) => single.found = (pass, Some(Arc::clone(host))),
            None => {}
        }
        true
    }

    /// Removes subsets without hosts. Envoy keeps one that others stand behind in its tree of keys;
    /// a host of those would be in it too, unless its keys are no selector's.
    fn purge(&mut self) -> u64 {
        let selectors: BTreeSet<&[Arc<str>]> = self
            .config
            .subset_selectors()
            .iter()
            .map(SubsetSelector::keys)
            .collect();
        let mut empty: Vec<(usize, usize)> = Vec::new();
        for (at, subset) in self.slots.iter().enumerate() {
            let subset = subset.as_ref().filter(|it| !it.hosts.is_active());
            empty.extend(subset.map(|subset| (subset.criteria.len(), at)));
        }
        // Those behind others first.
        empty.sort_unstable_by(|a, b| b.cmp(a));
        let mut removed = 0;
        for (_, at) in empty {
            let Some(subset) = &self.slots[at] else {
                continue;
            };
            let keys: Vec<Arc<str>> = subset.criteria.iter().map(|c| Arc::clone(&c.key)).collect();
            if !selectors.contains(&*keys) && self.stands_before_another(subset) {
                continue;
            }
            let hash = subset.hash;
            self.slots[at] = None;
            self.free.push(at);
            if let Some(slots) = self.by_hash.get_mut(&hash) {
                slots.retain(|&slot| slot as usize != at + 1);
                if slots.is_empty() {
                    self.by_hash.remove(&hash);
                }
            }
            self.active -= 1;
            removed += 1;
        }
        removed
    }

    fn stands_before_another(&self, subset: &Subset) -> bool {
        let before = &*subset.criteria;
        let mut others = self.slots.iter().flatten();
        others
            .any(|other| other.criteria.len() > before.len() && other.criteria.starts_with(before))
    }
}

impl Subset {
    fn is(&self, pairs: &[Pair<'_>]) -> bool {
        let mine = self.criteria.iter().map(|c| (&c.key, &c.value));
        mine.eq(pairs.iter().copied())
    }
}

impl SingleHost {
    /// The host that the pass found, if any, is the one of this priority.
    fn settle(&mut self, priority: usize) {
        match self.found.1.take() {
            Some(host) => self.hosts.insert(priority, host),
            None => self.hosts.remove(&priority),
        };
    }
}

impl Slice {
    /// A host joins, at its slot and position.
    fn push(&mut self, (slot, position): (usize, u32)) {
        if self.incoming.len() <= slot {
            self.incoming.resize(slot + 1, Vec::new());
        }
        // Two selectors, or two equal elements of a list, may lead to one subset.
        if self.incoming[slot].last() != Some(&position) {
            self.incoming[slot].push(position);
        }
    }
}
