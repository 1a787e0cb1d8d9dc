//! Subscription of a client to one resource type, by the rules of both variants.
//!
//! There are three wildcard forms: an empty first request for the types that support it (the legacy
//! form), the name `*`, and both mixed with names. A SotW request replaces the list, an incremental
//! one changes it. What is sent as a result is decided elsewhere in `server`.
//!
//! Names of resources that exist are shared with the view, so that thousands of clients that
//! subscribe to the same ones do not take memory for each. The others are counted.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::limits::NAME_OVERHEAD;
use super::look_up::look_up;
use crate::ads;
use crate::ads::view::TypeResources;

/// Resource name of the wildcard subscription.
pub const WILDCARD: &str = "*";

/// Subscribed names of one resource type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subscription {
    wildcard: bool,
    names: BTreeSet<Arc<str>>,
    /// Names that were in no view when the client sent them, and that it has not accepted since.
    unknown: BTreeSet<Arc<str>>,
    unknown_bytes: usize,
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

    /// Memory of names that are not shared with a view.
    pub(super) const fn unknown_bytes(&self) -> usize {
        self.unknown_bytes
    }

    /// Shares the name of a resource that the client has accepted.
    pub(super) fn set_known(&mut self, name: &Arc<str>) {
        if self.forget_unknown(name) {
            self.names.replace(Arc::clone(name));
        }
    }

    fn insert_unknown(&mut self, name: &Arc<str>) {
        if self.unknown.insert(Arc::clone(name)) {
            self.unknown_bytes += name.len() + NAME_OVERHEAD;
        }
    }

    fn forget_unknown(&mut self, name: &Arc<str>) -> bool {
        let was_unknown = self.unknown.remove(name);
        if was_unknown {
            self.unknown_bytes -= name.len() + NAME_OVERHEAD;
        }
        was_unknown
    }

    /// Applies a SotW request, which lists all subscribed names. `resources` are those of the view.
    pub(super) fn replace(
        &mut self,
        type_url: &str,
        requested: &[Arc<str>],
        resources: Option<&TypeResources>,
    ) -> Change {
        let legacy = requested.is_empty() && !self.named && ads::has_wildcard(type_url);
        let names: BTreeSet<_> = requested
            .iter()
            .filter(|name| ***name != *WILDCARD)
            .cloned()
            .collect();
        self.unknown.clear();
        self.unknown_bytes = 0;
        let names = self.share(names, resources);
        let added: Vec<_> = names.difference(&self.names).cloned().collect();
        let removed: Vec<_> = self.names.difference(&names).cloned().collect();
        let change = Change {
            new: added.clone(),
            gone: removed.clone(),
            added,
            removed,
            wildcard_before: self.wildcard,
            wildcard: legacy || requested.iter().any(|name| **name == *WILDCARD),
        };
        self.started = true;
        self.named |= !requested.is_empty();
        self.wildcard = change.wildcard;
        self.names = names;
        change
    }

    /// Replaces names by those of the view, and counts the others.
    fn share(
        &mut self,
        names: BTreeSet<Arc<str>>,
        resources: Option<&TypeResources>,
    ) -> BTreeSet<Arc<str>> {
        let Some(resources) = resources else {
            names.iter().for_each(|name| self.insert_unknown(name));
            return names;
        };
        let shared = look_up(names.iter(), resources.by_name()).map(|(name, resource)| {
            if let Some(resource) = resource {
                return Arc::clone(&resource.name);
            }
            self.insert_unknown(name);
            Arc::clone(name)
        });
        shared.collect()
    }

    /// Applies an incremental request. A name in both lists stays subscribed. `resources` are those
    /// of the view.
    pub(super) fn change(
        &mut self,
        type_url: &str,
        subscribe: &[Arc<str>],
        unsubscribe: &[Arc<str>],
        resources: Option<&TypeResources>,
    ) -> Change {
        let wildcard_before = self.wildcard;
        if !self.started && subscribe.is_empty() && ads::has_wildcard(type_url) {
            self.wildcard = true;
        }
        self.started = true;
        let (mut added, mut new, mut removed) = (Vec::new(), Vec::new(), Vec::new());
        for name in unsubscribe {
            if **name == *WILDCARD {
                self.wildcard = false;
            } else if self.names.remove(name) {
                self.forget_unknown(name);
                removed.push(Arc::clone(name));
            }
        }
        for name in subscribe {
            if **name == *WILDCARD {
                self.wildcard = true;
            } else {
                let known = resources.and_then(|all| all.by_name().get(name));
                let shared = known.map_or(name, |resource| &resource.name);
                if self.names.insert(Arc::clone(shared)) {
                    new.push(Arc::clone(shared));
                    if known.is_none() {
                        self.insert_unknown(name);
                    }
                }
                added.push(Arc::clone(shared));
            }
        }
        let before: BTreeSet<_> = removed.iter().cloned().collect();
        new.retain(|name| !before.contains(name));
        let gone = removed.iter().filter(|name| !self.names.contains(*name));
        Change {
            gone: gone.cloned().collect(),
            new,
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
    /// Names that are subscribed and were not before.
    new: Vec<Arc<str>>,
    /// Names that were subscribed before and are not now.
    gone: Vec<Arc<str>>,
    pub(super) wildcard_before: bool,
    pub(super) wildcard: bool,
}

impl Change {
    pub(super) fn wildcard_added(&self) -> bool {
        self.wildcard && !self.wildcard_before
    }

    /// Returns the names that are subscribed and were not before, including `*`.
    pub(super) fn names_added(&self) -> Vec<Arc<str>> {
        with_wildcard(&self.new, self.wildcard_added())
    }

    /// Returns the names that are no longer subscribed, including `*`.
    pub(super) fn names_removed(&self) -> Vec<Arc<str>> {
        with_wildcard(&self.gone, self.wildcard_before && !self.wildcard)
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
                subscription.replace(type_url, &names(requested), None);
                assert_eq!(subscription.is_wildcard(), *wildcard, "{requests:?}");
                let left: BTreeSet<_> = names(left).into_iter().collect();
                assert_eq!(subscription.names(), &left, "{requests:?}");
            }
        }
    }

    #[test]
    fn incremental() {
        let mut subscription = Subscription::default();
        let change = subscription.change(ads::CLUSTER, &[], &[], None);
        assert!(change.wildcard_added() && subscription.covers("x"));
        subscription.change(ads::CLUSTER, &names(&["a"]), &[], None);
        assert!(subscription.is_wildcard(), "names do not end a wildcard");
        let change = subscription.change(ads::CLUSTER, &[], &names(&["*"]), None);
        assert_eq!(change.names_removed(), names(&["*"]));
        assert!(subscription.covers("a") && !subscription.covers("x"));
        subscription.change(ads::CLUSTER, &[], &names(&["a"]), None);
        subscription.change(ads::CLUSTER, &[], &[], None);
        assert!(
            !subscription.is_wildcard(),
            "only the first request can be empty"
        );
    }

    #[test]
    fn a_name_in_both_lists_is_neither_new_nor_gone() {
        let mut subscription = Subscription::default();
        let first = subscription.change(ads::CLUSTER, &names(&["a", "b", "b"]), &[], None);
        assert_eq!(first.names_added(), names(&["a", "b"]));
        let lists = [names(&["a", "c"]), names(&["a", "b"])];
        let change = subscription.change(ads::CLUSTER, &lists[0], &lists[1], None);
        assert_eq!(change.names_added(), names(&["c"]));
        assert_eq!(change.names_removed(), names(&["b"]));
        assert_eq!(change.added, names(&["a", "c"]), "both are sent");
    }

    #[test]
    fn names_of_resources_are_shared_and_others_counted() {
        let resource = ads::view::Resource::new("known", bytes::Bytes::new());
        let view = TypeResources::new([resource]);
        let is_shared = |subscription: &Subscription| {
            let name = subscription.names().get("known").unwrap();
            Arc::ptr_eq(name, &view.by_name()["known"].name)
        };
        let one = "odd".len() + NAME_OVERHEAD;
        let mut sotw = Subscription::default();
        sotw.replace(ads::CLUSTER, &names(&["known", "odd", "*"]), Some(&view));
        assert!(is_shared(&sotw));
        assert_eq!(sotw.unknown_bytes(), one);
        sotw.replace(ads::CLUSTER, &names(&["odd", "odd", "new"]), Some(&view));
        assert_eq!(sotw.unknown_bytes(), 2 * one);
        sotw.replace(ads::CLUSTER, &names(&["known"]), Some(&view));
        assert_eq!(sotw.unknown_bytes(), 0);

        let mut delta = Subscription::default();
        let listed = names(&["known", "odd", "*"]);
        delta.change(ads::CLUSTER, &listed, &[], Some(&view));
        delta.change(ads::CLUSTER, &listed, &[], Some(&view));
        assert!(is_shared(&delta));
        assert_eq!(delta.unknown_bytes(), one);
        delta.change(ads::CLUSTER, &[], &names(&["odd", "other"]), Some(&view));
        assert_eq!(delta.unknown_bytes(), 0);

        let mut early = Subscription::default();
        early.change(ads::CLUSTER, &names(&["known"]), &[], None);
        assert_eq!(early.unknown_bytes(), "known".len() + NAME_OVERHEAD);
        early.set_known(&view.by_name()["known"].name);
        assert!(is_shared(&early));
        assert_eq!(early.unknown_bytes(), 0);
    }
}
