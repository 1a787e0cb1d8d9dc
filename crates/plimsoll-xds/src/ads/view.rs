//! Immutable, shared set of resources that clients of one kind are served.
//!
//! The control plane builds a view and hands the same `Arc` to every stream that is to serve it;
//! [`ServerStream`](super::server::ServerStream) compares it with what its client has. Bodies are
//! [`Bytes`], so responses share them without copying. `convert` encodes resources.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// Resource in encoded form, or as the type a client decodes it into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource<B = Bytes> {
    pub name: Arc<str>,
    /// Changes if and only if the content changes.
    pub version: Arc<str>,
    /// The encoded message, without its `Any`.
    pub body: B,
    /// Incrementing it resends the same content, which refreshes clients that expire stale data.
    pub epoch: u64,
}

impl Resource {
    /// Creates a resource whose version is a hash of its body.
    pub fn new(name: impl Into<Arc<str>>, body: Bytes) -> Self {
        let version = format!("{:016x}", xxh64(&body, 0)).into();
        Self {
            name: name.into(),
            version,
            body,
            epoch: 0,
        }
    }

    /// Replaces the epoch of the resource.
    #[must_use]
    pub fn with_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }
}

/// Resources of one type.
#[derive(Clone, Debug, Default)]
pub struct TypeResources {
    /// Shared with the streams, which remember what their clients have.
    resources: BTreeMap<Arc<str>, Arc<Resource>>,
    absent: BTreeSet<Arc<str>>,
    complete: bool,
    version: OnceLock<Arc<str>>,
}

impl TypeResources {
    /// Creates a complete set: any other name is known not to exist.
    pub fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        Self::of_shared(resources.into_iter().map(Arc::new))
    }

    fn of_shared(resources: impl IntoIterator<Item = Arc<Resource>>) -> Self {
        let named = |resource: Arc<Resource>| (Arc::clone(&resource.name), resource);
        Self {
            resources: resources.into_iter().map(named).collect(),
            complete: true,
            ..Self::default()
        }
    }

    /// Creates an incomplete set, in which other resources may exist: only the names in `absent`
    /// are reported as nonexistent. A relay uses it until its upstream has sent everything.
    pub fn partial(
        resources: impl IntoIterator<Item = Resource>,
        absent: impl IntoIterator<Item = Arc<str>>,
    ) -> Self {
        Self {
            absent: absent.into_iter().collect(),
            complete: false,
            ..Self::new(resources)
        }
    }

    /// Returns a copy with the resources of some names only. The others do not exist for its
    /// readers.
    #[must_use]
    pub fn retain(&self, keep: impl Fn(&str) -> bool) -> Self {
        let (kept, removed) = self
            .resources
            .values()
            .partition::<Vec<_>, _>(|one| keep(&one.name));
        let kept = Self::of_shared(kept.into_iter().cloned());
        if self.complete {
            return kept;
        }
        let removed = removed.into_iter().map(|one| Arc::clone(&one.name));
        Self {
            absent: self.absent.iter().cloned().chain(removed).collect(),
            complete: false,
            ..kept
        }
    }

    /// Returns a copy in which some resources are replaced, or removed with `None`. Bodies are
    /// shared with the original.
    #[must_use]
    pub fn with_changes(
        &self,
        changes: impl IntoIterator<Item = (Arc<str>, Option<Resource>)>,
    ) -> Self {
        let mut changed = Self {
            resources: self.resources.clone(),
            absent: self.absent.clone(),
            complete: self.complete,
            version: OnceLock::new(),
        };
        for (name, resource) in changes {
            match resource {
                Some(resource) => drop(changed.resources.insert(name, Arc::new(resource))),
                None => drop(changed.resources.remove(&name)),
            }
        }
        changed
    }

    /// Returns the resource of this name.
    pub fn get(&self, name: &str) -> Option<&Resource> {
        self.resources.get(name).map(AsRef::as_ref)
    }

    /// Returns all resources by name.
    pub(super) const fn by_name(&self) -> &BTreeMap<Arc<str>, Arc<Resource>> {
        &self.resources
    }

    /// Whether a name without resource is known not to exist.
    pub(super) fn knows_absence(&self, name: &str) -> bool {
        self.complete || self.absent.contains(name)
    }

    /// Iterates over the resources, ordered by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Resource> {
        self.resources.values().map(AsRef::as_ref)
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Returns whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Returns whether any name not in the set is known not to exist.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Returns whether this name is known not to exist.
    pub fn is_absent(&self, name: &str) -> bool {
        !self.resources.contains_key(name) && self.knows_absence(name)
    }

    fn has_same_content(&self, other: &Self) -> bool {
        let key = |resource: &Resource| {
            let Resource { name, version, .. } = resource;
            (Arc::clone(name), Arc::clone(version), resource.epoch)
        };
        self.complete == other.complete
            && self.absent == other.absent
            && self.resources.len() == other.resources.len()
            && self.iter().map(key).eq(other.iter().map(key))
    }

    /// Returns the version of the full set, as sent to wildcard subscriptions. Computed once.
    pub fn version(&self) -> &Arc<str> {
        self.version.get_or_init(|| {
            let resources = self.iter();
            set_version(resources.map(|resource| (&*resource.name, &*resource.version)))
        })
    }
}

/// Resources of every type.
#[derive(Clone, Debug, Default)]
pub struct View {
    types: BTreeMap<Arc<str>, Arc<TypeResources>>,
    generation: u64,
}

impl View {
    /// Creates an empty view. A type missing from a view is not known yet: requests for it wait.
    /// The generation is for debugging only.
    pub fn new(generation: u64) -> Self {
        Self {
            types: BTreeMap::new(),
            generation,
        }
    }

    /// Adds or replaces the resources of a type. Reuse the `Arc` of the previous view if the type
    /// did not change: streams skip unchanged pointers.
    #[must_use]
    pub fn with(mut self, type_url: impl Into<Arc<str>>, resources: Arc<TypeResources>) -> Self {
        self.types.insert(type_url.into(), resources);
        self
    }

    /// Returns the resources of a type.
    pub fn get(&self, type_url: &str) -> Option<&Arc<TypeResources>> {
        self.types.get(type_url)
    }

    /// Iterates over all types and their resources.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<TypeResources>)> {
        self.types.iter()
    }

    /// Whether streams would send the same resources for another view, apart from its generation.
    pub fn has_same_content(&self, other: &Self) -> bool {
        let same = |(one, other): ((&Arc<str>, &Arc<TypeResources>), _)| {
            let (name, resources): (&Arc<str>, &Arc<TypeResources>) = other;
            one.0 == name && (Arc::ptr_eq(one.1, resources) || one.1.has_same_content(resources))
        };
        self.types.len() == other.types.len() && self.iter().zip(other.iter()).all(same)
    }

    /// Returns the generation passed to [`View::new`].
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// Computes the version of a set of resources: a hash of names and versions, ordered by name.
pub(super) fn set_version<'a>(set: impl Iterator<Item = (&'a str, &'a str)>) -> Arc<str> {
    let mut hash = Xxh64::new(0);
    for (name, version) in set {
        // The length prefixes make the encoding unambiguous.
        hash.update(&name.len().to_le_bytes());
        hash.update(name.as_bytes());
        hash.update(&version.len().to_le_bytes());
        hash.update(version.as_bytes());
    }
    format!("{:016x}", hash.digest()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(name: &str, body: &'static str) -> Resource {
        Resource::new(name, Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn views_are_compared_by_content() {
        let resource = |name: &str, body: &'static [u8]| Resource::new(name, Bytes::from(body));
        let view = |generation, resources: &[Resource]| {
            let resources = TypeResources::new(resources.iter().cloned());
            View::new(generation).with("t", Arc::new(resources))
        };
        let one = view(1, &[resource("a", b"1"), resource("b", b"2")]);
        assert!(one.has_same_content(&view(2, &[resource("b", b"2"), resource("a", b"1")])));
        assert!(one.has_same_content(&one.clone()));
        let others = [
            view(1, &[resource("a", b"1")]),
            view(1, &[resource("a", b"1"), resource("b", b"3")]),
            view(1, &[resource("a", b"1"), resource("c", b"2")]),
            view(1, &[resource("a", b"1"), resource("b", b"2").with_epoch(1)]),
            View::new(1),
            one.clone().with("u", Arc::default()),
            View::new(1).with("u", Arc::clone(one.get("t").unwrap())),
        ];
        for other in others {
            assert!(
                !one.has_same_content(&other) && !other.has_same_content(&one),
                "{other:?}"
            );
        }
        let partial = |absent: &[&str]| {
            let absent = absent.iter().map(|&name| Arc::from(name));
            let resources = TypeResources::partial([resource("a", b"1")], absent);
            View::new(1).with("t", Arc::new(resources))
        };
        assert!(!partial(&[]).has_same_content(&view(1, &[resource("a", b"1")])));
        assert!(!partial(&[]).has_same_content(&partial(&["b"])));
        assert!(partial(&["b"]).has_same_content(&partial(&["b"])));
    }

    #[test]
    fn the_version_of_a_resource_follows_its_body_alone() {
        assert_eq!(resource("a", "1").version, resource("b", "1").version);
        assert_ne!(resource("a", "1").version, resource("a", "2").version);
        assert_eq!(
            resource("a", "1").with_epoch(7).version,
            resource("a", "1").version
        );
    }

    #[test]
    fn the_version_of_a_set_follows_names_and_versions() {
        let version = |set: &[Resource]| {
            let all = TypeResources::new(set.iter().cloned());
            Arc::clone(all.version())
        };
        let (a, b) = (resource("a", "1"), resource("b", "2"));
        let both = version(&[a.clone(), b.clone()]);
        assert_eq!(both, version(&[b.clone(), a.clone()]));
        assert_eq!(both, version(&[a.clone().with_epoch(3), b.clone()]));
        assert_ne!(both, version(&[a, resource("b", "3")]));
        assert_ne!(both, version(&[resource("ab", "1"), b]));
        assert_ne!(both, version(&[]));
    }

    #[test]
    fn only_a_complete_set_knows_what_is_absent() {
        let whole = TypeResources::new([resource("a", "1")]);
        assert!(whole.is_absent("b") && !whole.is_absent("a"));
        let partial = TypeResources::partial([resource("a", "1")], ["c".into(), "a".into()]);
        assert!(!partial.is_absent("b") && !partial.is_absent("a"));
        assert!(partial.is_absent("c"));
    }

    #[test]
    fn resources_are_replaced_and_removed_by_name() {
        let before = TypeResources::new([resource("a", "1"), resource("b", "2")]);
        let version = Arc::clone(before.version());
        let changes = [
            ("a".into(), Some(resource("a", "3"))),
            ("b".into(), None),
            ("c".into(), Some(resource("c", "4"))),
            ("d".into(), None),
        ];
        let after = before.with_changes(changes);
        let expected = TypeResources::new([resource("a", "3"), resource("c", "4")]);
        assert!(after.has_same_content(&expected));
        assert_eq!(after.version(), expected.version());
        assert_ne!(*after.version(), version, "the version is computed again");
        assert!(before.get("b").is_some(), "the original is unchanged");
        let partial = TypeResources::partial([], ["x".into()]).with_changes([]);
        assert!(!partial.is_complete() && partial.is_absent("x"));
    }

    #[test]
    fn resources_that_are_not_retained_do_not_exist() {
        let resources = || [resource("a", "1"), resource("b", "2")];
        let names = |set: &TypeResources| -> Vec<String> {
            set.iter().map(|one| one.name.to_string()).collect()
        };
        let whole = TypeResources::new(resources()).retain(|name| name == "a");
        assert_eq!(names(&whole), ["a"]);
        assert!(whole.is_complete() && whole.is_absent("b"));
        let all = TypeResources::partial(resources(), ["c".into()]);
        let partial = all.retain(|name| name == "a");
        assert_eq!(names(&partial), ["a"]);
        assert!(!partial.is_complete());
        assert!(partial.is_absent("b") && partial.is_absent("c") && !partial.is_absent("d"));
        assert_ne!(partial.version(), all.version());
    }
}
