//! What the outside world writes, turned into the checked types of `plimsoll-core`.
//!
//! Envoy-shaped YAML ([`yaml`]) and load reports of backends ([`orca`]). Protobuf is known in
//! `convert` only and stops there; protocol state of ADS and LRS will live beside it. Nothing is
//! decided here: a converter either yields a checked type or an error that names the fault. Callers
//! are the binary and, later, the drivers.

mod convert;
pub mod orca;
pub mod service_config;
pub mod yaml;
