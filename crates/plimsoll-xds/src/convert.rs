//! Protobuf to and from the nouns of the core. Wire types are named in this folder and nowhere
//! else; what leaves it is bytes or core types.

pub(crate) mod orca;
pub(crate) mod orca_request;
