//! [`Subscription`]: what a client wants of one type, by the rules of both variants.
//!
//! Three ways to say "all": an empty first request for the types that have it (the legacy form),
//! the name `*`, and both mixed with plain names. A state-of-the-world request replaces the list,
//! an incremental one changes it. What is sent because of it is decided elsewhere in `server`.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ads;

/// The name that means all.
pub const WILDCARD: &str = "*";

/// What a client wants of one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// A name was given on this stream, so that an empty list means nothing from now on.
    named: bool,
    begun: bool,
}

impl Subscription {
    /// Whether everything of the type is wanted.
    pub fn is_wildcard(&self) -> bool {
        self.wildcard
    }

    /// The names asked for, `*` apart.
    pub fn names(&self) -> &BTreeSet<Arc<str>> {
        &self.names
    }

    /// Whether a resource of this name is wanted.
    pub fn covers(&self, name: &str) -> bool {
        self.wildcard || self.names.contains(name)
    }

    /// Whether a request has come at all.
    pub(super) fn has_begun(&self) -> bool {
        self.begun
    }

    /// A state-of-the-world request lists all that is wanted.
    pub(super) fn replace(&mut self, type_url: &str, wanted: &[Arc<str>]) -> Change {
        let legacy = wanted.is_empty() && !self.named && ads::has_wildcard(type_url);
        let names = wanted.iter().filter(|name| ***name != *WILDCARD);
        let names: BTreeSet<_> = names.cloned().collect();
        let change = Change {
            added: names.difference(&self.names).cloned().collect(),
            removed: self.names.difference(&names).cloned().collect(),
            wildcard_before: self.wildcard,
            wildcard: legacy || wanted.iter().any(|name| **name == *WILDCARD),
        };
        self.begun = true;
        self.named |= !wanted.is_empty();
        self.wildcard = change.wildcard;
        self.names = names;
        change
    }

    /// An incremental request adds and takes away. A name in both lists is wanted.
    pub(super) fn change(
        &mut self,
        type_url: &str,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
    ) -> Change {
        let wildcard_before = self.wildcard;
        if !self.begun && subscribe.is_empty() && ads::has_wildcard(type_url) {
            self.wildcard = true;
        }
        self.begun = true;
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

/// What a request changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Names that must be answered: new ones, and in the incremental variant all that were listed.
    pub(super) added: Vec<Arc<str>>,
    /// Names not asked for any more.
    pub(super) removed: Vec<Arc<str>>,
    pub(super) wildcard_before: bool,
    pub(super) wildcard: bool,
}

impl Change {
    /// Whether "all" is new.
    pub(super) fn wildcard_added(&self) -> bool {
        self.wildcard && !self.wildcard_before
    }

    /// What was added, `*` included.
    pub(super) fn names_added(&self) -> Vec<Arc<str>> {
        with_wildcard(&self.added, self.wildcard_added())
    }

    /// What was taken away, `*` included.
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

    /// Requests one after the other; what is subscribed to after each: wildcard and names.
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
            for (wanted, wildcard, left) in *requests {
                subscription.replace(type_url, &names(wanted));
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
