//! What the outside world writes, turned into the checked types of `plimsoll-core`.
//!
//! So far this is Envoy-shaped YAML ([`yaml`]); the wire itself (protobuf conversions, the protocol
//! state of ADS, LRS and ORCA) will live beside it. Nothing is decided here: a converter either
//! yields a checked type or an error that names the field. Callers are the binary and, later, the
//! drivers.

pub mod yaml;
