//! Assignment of hosts to subsets: one pass over the hosts of a priority, in Envoy's order.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::slice::Slice;
use super::{Hosts, Members, SingleHost, Subset, SubsetChanges, Subsets};
use crate::host::Host;
use crate::model::metadata::criteria::{Criterion, combined_hash};
use crate::model::metadata::{Metadata, MetadataValue};
use crate::model::subset::SubsetSelector;

type Pair<'a> = (&'a Arc<str>, &'a MetadataValue);

impl Subsets {
    pub(super) fn partition(&mut self, members: &Members, priorities: &[usize]) -> SubsetChanges {
        let mut changes = SubsetChanges::default();
        loop {
            changes.left_out = 0;
            for &priority in priorities {
                self.partition_priority(members, priority, &mut changes);
            }
            let gone = self.purge();
            changes.removed += gone;
            if changes.left_out == 0 || gone == 0 {
                return changes;
            }
            // Removing subsets freed room below `max_subsets`: retry the hosts that were left out.
        }
    }

    fn partition_priority(
        &mut self,
        members: &Members,
        priority: usize,
        changes: &mut SubsetChanges,
    ) {
        self.pass += 1;
        let mut duplicates = 0;
        let config = Arc::clone(&self.config);
        for (slot, entry) in members.slots(priority).iter().enumerate() {
            for (position, member) in (0..).zip(&entry.members) {
                let metadata = &member.endpoint.metadata;
                if let Some(default) = &mut self.default
                    && metadata.matches(config.default_subset(), config.list_as_any())
                {
                    default.push(slot, position);
                }
                for selector in config.subset_selectors() {
                    let (combinations, cut) = self.combinations(selector, metadata);
                    changes.left_out += u64::from(cut);
                    for pairs in combinations {
                        let Some(at) = self.find_or_create(&pairs, selector, changes) else {
                            changes.left_out += 1;
                            continue;
                        };
                        let joined = self.join(at, &member.host, slot, position);
                        duplicates += u64::from(!joined);
                    }
                }
            }
        }
        let slots = members.slots(priority).len();
        if let Some(default) = &mut self.default {
            default.commit(priority, slots);
        }
        for subset in self.slots.iter_mut().flatten() {
            match &mut subset.hosts {
                Hosts::Many(slice) => slice.commit(priority, slots),
                Hosts::Single(single) => single.commit(priority),
            }
        }
        if self.duplicates.len() <= priority {
            self.duplicates.resize(priority + 1, 0);
        }
        self.duplicates[priority] = duplicates;
        self.last_duplicates = duplicates;
    }

    /// Returns the combinations by which a host joins a selector's subsets: usually one; with
    /// `list_as_any` one per combination of list elements. As in Envoy, an empty list discards the
    /// keys before it. The flag says whether `max_subsets` cut any off.
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

    /// Finds or creates the subset of exactly these pairs; `None` if `max_subsets` is reached.
    fn find_or_create(
        &mut self,
        pairs: &[Pair<'_>],
        selector: &SubsetSelector,
        changes: &mut SubsetChanges,
    ) -> Option<usize> {
        let hash = combined_hash(pairs.iter().map(|(key, value)| Criterion::hash(key, value)));
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
        let slot = u32::try_from(at + 1).expect("max_subsets is a u32");
        self.by_hash.entry(hash).or_default().push(slot);
        self.next_id += 1;
        self.active += 1;
        changes.created += 1;
        Some(at)
    }

    /// Adds a host; `false` if the subset allows a single host and has one in this pass.
    fn join(&mut self, at: usize, host: &Arc<Host>, slot: usize, position: u32) -> bool {
        let pass = self.pass;
        match self.slots[at].as_mut().map(|subset| &mut subset.hosts) {
            Some(Hosts::Many(slice)) => slice.push(slot, position),
            Some(Hosts::Single(single)) if single.found.0 == pass => return false,
            Some(Hosts::Single(single)) => single.found = (pass, Some(Arc::clone(host))),
            None => {}
        }
        true
    }

    /// Removes empty subsets. As in Envoy's tree of keys, an empty subset stays while a longer
    /// subset extends its keys, unless its own keys belong to a selector.
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
        // Longest keys first, so that a subset is removed after those that extend its keys.
        empty.sort_unstable_by(|a, b| b.cmp(a));
        let mut removed = 0;
        for (_, at) in empty {
            let Some(subset) = &self.slots[at] else {
                continue;
            };
            let keys: Vec<Arc<str>> = subset.criteria.iter().map(|c| Arc::clone(&c.key)).collect();
            if !selectors.contains(&*keys) && self.is_prefix_of_another(subset) {
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

    fn is_prefix_of_another(&self, subset: &Subset) -> bool {
        let prefix = &*subset.criteria;
        self.slots
            .iter()
            .flatten()
            .any(|other| other.criteria.len() > prefix.len() && other.criteria.starts_with(prefix))
    }
}

impl Subset {
    fn is(&self, pairs: &[Pair<'_>]) -> bool {
        let mine = self.criteria.iter().map(|c| (&c.key, &c.value));
        mine.eq(pairs.iter().copied())
    }
}

impl SingleHost {
    /// Makes the host that the membership pass found, if any, the subset's host at this priority.
    fn commit(&mut self, priority: usize) {
        match self.found.1.take() {
            Some(host) => self.hosts.insert(priority, host),
            None => self.hosts.remove(&priority),
        };
    }
}

impl Slice {
    fn push(&mut self, slot: usize, position: u32) {
        if self.incoming.len() <= slot {
            self.incoming.resize(slot + 1, Vec::new());
        }
        // Two selectors, or two equal list elements, may lead to the same subset.
        if self.incoming[slot].last() != Some(&position) {
            self.incoming[slot].push(position);
        }
    }
}
