//! xDS protocols of Plimsoll: discovery, load reporting and configuration, as checked core types.
//!
//! | module | content | feature |
//! |---|---|---|
//! | [`upstream`] | connection settings of a cluster | |
//! | [`orca`] | load reports of backends | |
//! | [`lrs`] | load reporting, as state machines without IO | |
//! | [`grpc_frame`], [`grpc_health`] | gRPC without a gRPC library | |
//! | `ads` | discovery, as state machines without IO | `messages` |
//! | `yaml`, `bootstrap`, `service_config` | configuration in the shape of Envoy and gRPC | `messages` |
//! | `wire` | decoding and encoding of protobuf messages; the only way to them | `messages` |
//! | `replica` | records that replicas of a control plane share | `messages` |
//! | `clock` | the clock of drivers | `clock` |
//! | `driver` | gRPC streams over sockets | `driver` |
//! | `orca::oob::OobStreams` | out-of-band load reports over sockets | `oob` |
//!
//! Nothing is decided here: a decoder returns a checked type, or an error with the field path.

#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "messages")]
pub mod ads;
#[cfg(feature = "messages")]
pub mod bootstrap;
#[cfg(feature = "clock")]
pub mod clock;
pub mod content_type;
#[cfg(feature = "messages")]
mod convert;
#[cfg(feature = "driver")]
pub mod driver;
pub mod error_chain;
pub mod grpc_frame;
pub mod grpc_health;
#[cfg(any(feature = "driver", feature = "oob"))]
mod log_lines;
pub mod lrs;
pub mod node;
pub mod orca;
mod protobuf;
#[cfg(feature = "messages")]
pub mod replica;
#[cfg(feature = "messages")]
pub mod route;
#[cfg(feature = "messages")]
pub mod service_config;
pub mod string_match;
pub mod upstream;
#[cfg(feature = "messages")]
pub mod wire;
#[cfg(feature = "messages")]
pub mod yaml;

#[cfg(any(feature = "driver", feature = "oob"))]
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use plimsoll_core::backoff;
#[cfg(feature = "messages")]
pub use plimsoll_schema as schema;
#[cfg(feature = "messages")]
pub use plimsoll_schema::{error, pb};

/// Runs the code of the README as tests.
#[cfg(all(doctest, feature = "messages"))]
#[doc = include_str!("../README.md")]
struct Readme;
