//! What the outside world writes, turned into the checked types of `plimsoll-core`.
//!
//! Envoy-shaped YAML ([`yaml`]), load reports of backends ([`orca`]), discovery ([`ads`]) and load
//! reports of proxies ([`lrs`]). Protobuf is known in `convert` only and stops there, behind
//! [`wire`]; protocol state lives beside it. Nothing is decided here: a converter either yields a
//! checked type or an error that names the fault. Callers are the binary and the drivers.

pub mod ads;
pub mod bootstrap;
pub mod content_type;
mod convert;
#[cfg(feature = "driver")]
pub mod driver;
pub mod error;
pub mod lrs;
pub mod node;
pub mod orca;
pub mod route;
pub mod service_config;
pub mod string_match;
mod subset;
pub mod upstream;
pub mod wire;
pub mod yaml;
