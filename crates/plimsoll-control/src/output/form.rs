//! [`Output`]: what receivers with the same key are sent.

use std::sync::Arc;

use plimsoll_xds::ads::view::View;

use crate::relay::Patch;

/// Resources for receivers with the same key: all of them, or, with a relay, what changes in those
/// of the relayed server. Cloning is cheap.
#[derive(Clone, Debug)]
pub enum Output {
    Complete(Arc<View>),
    Patch(Arc<Patch>),
}

impl Output {
    /// Returns an output without resources, which changes none of a relayed server.
    pub(crate) fn empty(is_relay: bool) -> Self {
        if is_relay {
            Self::Patch(Arc::default())
        } else {
            Self::Complete(Arc::default())
        }
    }

    /// Returns a number that increases with every change.
    pub fn generation(&self) -> u64 {
        match self {
            Self::Complete(view) => view.generation(),
            Self::Patch(patch) => patch.generation,
        }
    }

    /// Returns all resources; `None` with a relay.
    pub const fn complete(&self) -> Option<&Arc<View>> {
        match self {
            Self::Complete(view) => Some(view),
            Self::Patch(_) => None,
        }
    }

    /// Returns the changes to resources of the relayed server; `None` without a relay.
    pub const fn patch(&self) -> Option<&Arc<Patch>> {
        match self {
            Self::Complete(_) => None,
            Self::Patch(patch) => Some(patch),
        }
    }

    /// Whether both are the same object.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Complete(one), Self::Complete(other)) => Arc::ptr_eq(one, other),
            (Self::Patch(one), Self::Patch(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether receivers get the same from both.
    pub fn has_same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Complete(one), Self::Complete(other)) => one.has_same_content(other),
            (Self::Patch(one), Self::Patch(other)) => one.has_same_content(other),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_xds::ads::CLUSTER;
    use plimsoll_xds::ads::view::{Resource, TypeResources};

    use super::*;

    fn view(generation: u64, body: &'static [u8]) -> Output {
        let resource = Resource::new("orders", bytes::Bytes::from_static(body));
        let resources = Arc::new(TypeResources::new([resource]));
        Output::Complete(Arc::new(View::new(generation).with(CLUSTER, resources)))
    }

    fn patch(generation: u64, held: bool) -> Output {
        Output::Patch(Arc::new(Patch {
            generation,
            held,
            ..Patch::default()
        }))
    }

    #[test]
    fn outputs_are_compared_without_their_generation() {
        let (a, b) = (b"a", b"b");
        for (one, same, other) in [
            (view(1, a), view(2, a), view(1, b)),
            (patch(1, true), patch(2, true), patch(1, false)),
        ] {
            assert_eq!((one.generation(), same.generation()), (1, 2));
            assert!(one.has_same_content(&same) && !one.has_same_content(&other));
            assert!(one.is_same(&one.clone()) && !one.is_same(&same));
        }
        let (complete, patch) = (Output::empty(false), Output::empty(true));
        assert!(!complete.has_same_content(&patch) && !complete.is_same(&patch));
        assert!(complete.complete().is_some() && complete.patch().is_none());
        assert!(patch.complete().is_none() && patch.patch().is_some());
    }
}
