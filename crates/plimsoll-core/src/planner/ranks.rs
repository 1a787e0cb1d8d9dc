//! [`Ranks`]: the request rates of a fleet's nodes in order, with their median at hand.
//!
//! The median bounds what one node may add to demand (decision 0032). It changes with every report,
//! so it is kept up to date in a logarithm of time instead of being searched for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::rate::Rate;

/// Fewest nodes with demand that have a median worth comparing with. Of two nodes that contradict
/// each other, nobody can tell which one is wrong.
const MIN_NODES: usize = 3;

type Ranked = (Rate, Arc<str>);

/// Nodes with a rate above zero. Idle nodes are not ranked: a fleet with many idle nodes would
/// have a median of zero, and no node with demand would count.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The lower half, which has the median: as many nodes as `high`, or one more.
    low: BTreeSet<Ranked>,
    high: BTreeSet<Ranked>,
}

impl Ranks {
    /// Replaces the rate of a node; zero stands for a node that is not ranked.
    pub(super) fn replace(&mut self, node: &Arc<str>, before: Rate, after: Rate) {
        if before == after {
            return;
        }
        if before > Rate::ZERO {
            let entry = (before, Arc::clone(node));
            let _ = self.low.remove(&entry) || self.high.remove(&entry);
        }
        if after > Rate::ZERO {
            let entry = (after, Arc::clone(node));
            match self.high.first() {
                Some(first) if *first < entry => self.high.insert(entry),
                _ => self.low.insert(entry),
            };
        }
        self.rebalance();
    }

    /// Returns the number of nodes with demand.
    pub(super) fn len(&self) -> usize {
        self.low.len() + self.high.len()
    }

    /// Returns the median, of an even number of nodes the lower one; `None` with too few nodes.
    pub(super) fn median(&self) -> Option<Rate> {
        let median = self.low.last().map(|(rate, _)| *rate);
        median.filter(|_| self.len() >= MIN_NODES)
    }

    /// Iterates over the nodes with a rate above `rate`, the highest first.
    pub(super) fn above(&self, rate: Rate) -> impl Iterator<Item = &Arc<str>> {
        let descending = self.high.iter().rev().chain(self.low.iter().rev());
        descending
            .take_while(move |(ranked, _)| *ranked > rate)
            .map(|(_, node)| node)
    }

    fn rebalance(&mut self) {
        while self.low.len() > self.high.len() + 1
            && let Some(last) = self.low.pop_last()
        {
            self.high.insert(last);
        }
        while self.high.len() > self.low.len()
            && let Some(first) = self.high.pop_first()
        {
            self.low.insert(first);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rate(units: u32) -> Rate {
        Rate::MILLIONTH.times(units)
    }

    fn ranks(rates: &[u32]) -> Ranks {
        let mut ranks = Ranks::default();
        for (index, &units) in rates.iter().enumerate() {
            let node = format!("n{index}").into();
            ranks.replace(&node, Rate::ZERO, rate(units));
        }
        ranks
    }

    #[test]
    fn fewer_than_three_nodes_have_no_median() {
        assert_eq!(ranks(&[]).median(), None);
        assert_eq!(ranks(&[5]).median(), None);
        assert_eq!(ranks(&[5, 6]).median(), None);
        assert_eq!(ranks(&[5, 0, 6]).median(), None, "an idle node is no peer");
        assert_eq!(ranks(&[7, 5, 6]).median(), Some(rate(6)));
    }

    #[test]
    fn the_median_of_an_even_number_is_the_lower_one() {
        assert_eq!(ranks(&[1, 2, 3, 100]).median(), Some(rate(2)));
    }

    #[test]
    fn nodes_above_a_rate_are_listed_from_the_highest() {
        let ranks = ranks(&[4, 9, 2, 7, 5]);
        let above: Vec<&str> = ranks.above(rate(4)).map(AsRef::as_ref).collect();
        assert_eq!(above, ["n1", "n3", "n4"]);
        assert_eq!(ranks.above(Rate::ZERO).count(), 5);
        assert_eq!(ranks.above(rate(9)).count(), 0);
    }

    proptest! {
        #[test]
        fn the_median_is_that_of_a_sorted_list(
            changes in prop::collection::vec((0_usize..8, 0_u32..6), 1..60),
        ) {
            let mut ranks = Ranks::default();
            let mut rates = [0_u32; 8];
            for (node, units) in changes {
                let before = std::mem::replace(&mut rates[node], units);
                ranks.replace(&format!("n{node}").into(), rate(before), rate(units));
                let mut sorted: Vec<u32> = rates.into_iter().filter(|&r| r > 0).collect();
                sorted.sort_unstable();
                prop_assert_eq!(ranks.len(), sorted.len());
                let expected = (sorted.len() >= 3).then(|| rate(sorted[(sorted.len() - 1) / 2]));
                prop_assert_eq!(ranks.median(), expected);
            }
        }
    }
}
