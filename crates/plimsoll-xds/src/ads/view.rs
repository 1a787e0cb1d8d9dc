//! [`View`]: what one kind of receiver is meant to see, immutable and shared.
//!
//! Whoever decides what receivers get builds a view aside and hands the same `Arc` to every stream
//! that is to see it; [`ServerStream`](super::server::ServerStream) compares it with what its
//! client has. Bodies are [`Bytes`]: a response to the thousandth receiver copies pointers. How
//! resources become bytes is not known here but in `convert`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use xxhash_rust::xxh64::{Xxh64, xxh64};

/// One resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// Its name in discovery.
    pub name: Arc<str>,
    /// Changes with the content and only with it.
    pub version: Arc<str>,
    /// The encoded message, without its `Any`.
    pub body: Bytes,
    /// When it grows the same content is sent again: receivers that let data expire stay fresh.
    pub epoch: u64,
}

impl Resource {
    /// A resource whose version is a hash of its body.
    pub fn new(name: impl Into<Arc<str>>, body: Bytes) -> Self {
        let version = format!("{:016x}", xxh64(&body, 0)).into();
        Self {
            name: name.into(),
            version,
            body,
            epoch: 0,
        }
    }

    /// The same with another epoch.
    #[must_use]
    pub fn with_epoch(self, epoch: u64) -> Self {
        Self { epoch, ..self }
    }
}

/// All resources of one type.
#[derive(Clone, Debug, Default)]
pub struct TypeResources {
    resources: BTreeMap<Arc<str>, Resource>,
    absent: BTreeSet<Arc<str>>,
    complete: bool,
    version: OnceLock<Arc<str>>,
}

impl TypeResources {
    /// These and no others: any other name is known not to exist.
    pub fn new(resources: impl IntoIterator<Item = Resource>) -> Self {
        let named = |resource: Resource| (Arc::clone(&resource.name), resource);
        Self {
            resources: resources.into_iter().map(named).collect(),
            complete: true,
            ..Self::default()
        }
    }

    /// These, and perhaps others that are not known yet: nothing is announced as gone, except the
    /// names in `absent`. What a relay has before its upstream has told it everything.
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

    /// The resource of this name.
    pub fn get(&self, name: &str) -> Option<&Resource> {
        self.resources.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Resource> {
        self.resources.values()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// Whether a name that is not here is known not to exist.
    pub fn is_complete(&self) -> bool {
        self.complete
    }

    /// Whether this name is known not to exist.
    pub fn is_absent(&self, name: &str) -> bool {
        !self.resources.contains_key(name) && (self.complete || self.absent.contains(name))
    }

    /// Version of the whole: what a wildcard subscription to it gets. Computed once.
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
    /// An empty view. A type that a view lacks is not known yet: requests for it wait. The
    /// generation is for people.
    pub fn new(generation: u64) -> Self {
        Self {
            types: BTreeMap::new(),
            generation,
        }
    }

    /// Adds or replaces a type. Pass the `Arc` of the view before if nothing of the type changed:
    /// streams then do not look at it again.
    #[must_use]
    pub fn with(mut self, type_url: impl Into<Arc<str>>, resources: Arc<TypeResources>) -> Self {
        self.types.insert(type_url.into(), resources);
        self
    }

    /// The resources of a type.
    pub fn get(&self, type_url: &str) -> Option<&Arc<TypeResources>> {
        self.types.get(type_url)
    }

    /// All types.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<TypeResources>)> {
        self.types.iter()
    }

    /// Which view this is.
    pub fn generation(&self) -> u64 {
        self.generation
    }
}

/// Version of a set of resources: a hash of names and versions, in the order of names.
pub(super) fn set_version<'a>(set: impl Iterator<Item = (&'a str, &'a str)>) -> Arc<str> {
    let mut hash = Xxh64::new(0);
    for (name, version) in set {
        // Names and versions hold no zero byte that anybody would send, and a length tells the two
        // apart in any case.
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
}
