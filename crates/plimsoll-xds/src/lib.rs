//! xDS protocols of Plimsoll: discovery, load reporting and configuration, as checked core types.
//!
//! * [`ads`] and [`lrs`]: discovery and load reporting, as state machines without IO
//! * [`orca`]: load reports of backends
//! * [`yaml`] and [`bootstrap`]: configuration files in the shape of Envoy and gRPC
//! * [`wire`]: decoding and encoding of protobuf messages; the only way to them
//! * `driver`: gRPC streams over sockets, behind the feature of that name
//!
//! Nothing is decided here: a decoder returns a checked type, or an error with the field path.

pub mod ads;
pub mod backoff;
pub mod bootstrap;
pub mod content_type;
mod convert;
#[cfg(feature = "driver")]
pub mod driver;
pub mod grpc_frame;
#[cfg(feature = "driver")]
mod log_lines;
pub mod lrs;
pub mod node;
pub mod orca;
pub mod route;
pub mod service_config;
pub mod string_match;
pub mod upstream;
pub mod wire;
pub mod yaml;

#[cfg(feature = "driver")]
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use plimsoll_schema as schema;
pub use plimsoll_schema::{error, pb};
