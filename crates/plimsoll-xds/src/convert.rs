//! Protobuf to and from the nouns of the core and of the protocols. Wire types are named in this
//! folder and nowhere else; what leaves it is bytes or our own types. What others may call is
//! listed in `wire`.

pub(crate) mod assignment;
pub(crate) mod cluster;
pub(crate) mod discovery;
mod field;
pub(crate) mod health;
#[cfg(test)]
mod hex;
pub(crate) mod listener;
pub(crate) mod listener_in;
pub(crate) mod load_assignment;
pub(crate) mod load_report;
mod matcher;
mod metadata;
pub(crate) mod node;
pub(crate) mod orca;
pub(crate) mod orca_request;
mod pb;
pub(crate) mod route;
pub(crate) mod route_in;
mod route_match;
mod route_unread;
pub(crate) mod unhonoured;
