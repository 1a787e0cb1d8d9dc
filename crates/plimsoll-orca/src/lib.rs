//! A tower layer that reports the load of a Rust backend (ORCA), for axum, tonic and plain hyper.
//!
//! Load balancers that weigh hosts by load (Envoy's and gRPC's `client_side_weighted_round_robin`,
//! Plimsoll's `load_aware_locality`) need backends that report it. One line does:
//!
//! ```
//! use axum::{Router, routing::get};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(plimsoll_orca::layer());
//! ```
//!
//! Every response then carries CPU and memory utilization (of the cgroup, or of the machine),
//! requests and errors per second, and the utilization of a concurrency limit if one is set: in a
//! header of HTTP responses, in the trailers of gRPC responses.
//!
//! | to | use |
//! |---|---|
//! | change formats, window or limits | [`OrcaLayer::builder`] |
//! | report what only a handler knows, such as the cost of a request | [`OrcaRecorder`] |
//! | report what only the process knows, such as a queue length | [`OrcaHandle`] |
//! | report without traffic, on a gRPC stream | [`OpenRcaService`] |
//! | report from a server without tower services | [`OrcaHandle::begin_request`], [`OrcaHandle::header`] |
//!
//! A request costs two atomic increments and the copy of a header; a thread samples every 100 ms.
//!
//! **When not to use it:** CPU and memory are measured on Linux only. Backends whose load no
//! balancer reads need no reports; at an edge, remove the headers from responses to the public.
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `tonic` | yes | lets tonic's router serve [`OpenRcaService`]; 37 packages with it, 21 without |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod body;
mod builder;
mod call;
mod handle;
mod layer;
mod log_lines;
mod measure;
mod metrics;
mod open_rca;
mod published;
mod recorder;
mod sample;
mod state;
mod window;

pub use body::OrcaBody;
pub use builder::{OrcaLayerBuilder, When};
pub use handle::{OrcaHandle, OrcaRequest};
pub use layer::{OrcaLayer, OrcaService, ResponseFuture};
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use open_rca::{OpenRcaService, ReportStream};
pub use plimsoll_core::model::orca::OrcaLoadReport;
pub use plimsoll_core::units::FieldError;
pub use plimsoll_xds::orca::OrcaFormat;
pub use recorder::OrcaRecorder;

/// Returns a layer with the default settings of [`OrcaLayerBuilder`].
pub fn layer() -> OrcaLayer {
    OrcaLayer::default()
}

/// Runs the code of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
