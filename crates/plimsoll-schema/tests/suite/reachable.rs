//! Which messages a message can have inside, for tests that claim to cover all.

use plimsoll_schema::{Descriptor, Kind};

/// Collects the descriptors reachable from this one, by name.
pub(crate) fn reach(descriptor: &'static Descriptor, found: &mut Vec<&'static Descriptor>) {
    if found.iter().any(|known| known.name == descriptor.name) {
        return;
    }
    found.push(descriptor);
    for field in descriptor.fields {
        match field.kind {
            Kind::Message(inner) => reach(inner(), found),
            Kind::Any(types) => types().iter().for_each(|inner| reach(inner, found)),
            _ => {}
        }
    }
}
