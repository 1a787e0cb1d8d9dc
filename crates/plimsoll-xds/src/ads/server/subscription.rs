//! Subscription of a client to one resource type, by the rules of both variants.
//!
//! There are three wildcard forms: an empty first request for the types that support it (the legacy
//! form), the name `*`, and both mixed with names. A SotW request replaces the list, an incremental
//! one changes it. What is sent as a result is decided elsewhere in `server`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ads;

/// Resource name of the wildcard subscription.
pub const WILDCARD: &str = "*";

/// Subscribed names of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// A name was sent on this stream, so an empty list now means no subscription.
    named: bool,
    started: bool,
}

impl Subscription {
    /// Returns whether all resources of the type are subscribed.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// Returns the subscribed names, without `*`.
    pub fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }

    /// Returns whether a resource of this name is subscribed.
    pub fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    pub(super) fn is_started(&self) -> bool {
        self.started
    }

    /// Applies a SotW request, which lists all subscribed names.
    pub(super) fn replace(&mut self, type_url: &str, requested: &[Arc<str>]) -> Change {
        let legacy = requested.is_empty() && !self.named && ads::has_wildcard(type_url);
        let names: BTreeSet<_> = requested
            .iter()
            .filter(|name| ***name != *WILDCARD)
            .cloned()
            .collect();
        let change = Change {
            added: names.difference(&self.names).cloned().collect(),
            removed: self.names.difference(&names).cloned().collect(),
            wildcard_before: self.wildcard,
            wildcard: legacy || requested.iter().any(|name| **name == *WILDCARD),
        };
        self.started = true;
        self.named |= !requested.is_empty();
        self.wildcard = change.wildcard;
        self.names = names;
        change
    }

    /// Applies an incremental request. A name in both lists stays subscribed.
    pub(super) fn change(
        &mut self,
        type_url: &str,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
    ) -> Change {
        let wildcard_before = self.wildcard;
        if !self.started && subscribe.is_empty() && ads::has_wildcard(type_url) {
            self.wildcard = true;
        }
        self.started = true;
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for name in unsubscribe {
            if **name == *WILDCARD {
                self.wildcard = false;
            } else if self.names.remove(name) {
                removed.push(Arc::clone(name));
            }
        }
        for name in subscribe {
            if **name == *WILDCARD {
                self.wildcard = true;
            } else {
                self.names.insert(Arc::clone(name));
                added.push(Arc::clone(name));
            }
        }
        Change {
            added,
            removed,
            wildcard_before,
            wildcard: self.wildcard,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Names to respond to: new ones, and in the incremental variant all that the request lists.
    pub(super) added: Vec<Arc<str>>,
    pub(super) removed: Vec<Arc<str>>,
    pub(super) wildcard_before: bool,
    pub(super) wildcard: bool,
}

impl Change {
    pub(super) fn wildcard_added(&self) -> bool {
        self.wildcard && !self.wildcard_before
    }

    /// Returns the added names, including `*`.
    pub(super) fn names_added(&self) -> Vec<Arc<str>> {
        with_wildcard(&self.added, self.wildcard_added())
    }

    /// Returns the removed names, including `*`.
    pub(super) fn names_removed(&self) -> Vec<Arc<str>> {
        with_wildcard(&self.removed, self.wildcard_before && !self.wildcard)
    }
}

fn with_wildcard(names: &[Arc<str>], wildcard: bool) -> Vec<Arc<str>> {
    let wildcard = wildcard.then(|| Arc::from(WILDCARD));
    wildcard.into_iter().chain(names.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &[&str]) -> Vec<Arc<str>> {
        list.iter().map(|&name| name.into()).collect()
    }

    /// Sequences of requests with the expected wildcard and names after each.
    #[test]
    fn state_of_the_world() {
        type Case<'a> = (&'a str, &'a [(&'a [&'a str], bool, &'a [&'a str])]);
        let cases: &[Case<'_>] = &[
            (ads::CLUSTER, &[(&[], true, &[]), (&[], true, &[])]),
            (ads::CLUSTER, &[(&["a"], false, &["a"]), (&[], false, &[])]),
            (
                ads::LISTENER,
                &[(&[], true, &[]), (&["a"], false, &["a"]), (&[], false, &[])],
            ),
            (
                ads::CLUSTER,
                &[(&["*", "a"], true, &["a"]), (&["a"], false, &["a"])],
            ),
            (ads::CLUSTER, &[(&["*"], true, &[]), (&[], false, &[])]),
            (ads::CLUSTER_LOAD_ASSIGNMENT, &[(&[], false, &[])]),
        ];
        for (type_url, requests) in cases {
            let mut subscription = Subscription::default();
            for (requested, wildcard, left) in *requests {
                subscription.replace(type_url, &names(requested));
                assert_eq!(subscription.is_wildcard(), *wildcard, "{requests:?}");
                let left: BTreeSet<_> = names(left).into_iter().collect();
                assert_eq!(subscription.names(), &left, "{requests:?}");
            }
        }
    }

    #[test]
    fn incremental() {
        let mut subscription = Subscription::default();
        let change = subscription.change(ads::CLUSTER, &[], &[]);
        assert!(change.wildcard_added() && subscription.covers("x"));
        subscription.change(ads::CLUSTER, &names(&["a"]), &[]);
        assert!(subscription.is_wildcard(), "names do not end a wildcard");
        let change = subscription.change(ads::CLUSTER, &[], &names(&["*"]));
        assert_eq!(change.names_removed(), names(&["*"]));
        assert!(subscription.covers("a") && !subscription.covers("x"));
        subscription.change(ads::CLUSTER, &[], &names(&["a"]));
        subscription.change(ads::CLUSTER, &[], &[]);
        assert!(
            !subscription.is_wildcard(),
            "only the first request can be empty"
        );
    }
}
