//! A tower layer with which a backend reports its load, for axum, tonic and plain hyper (ORCA).
//!
//! ```
//! use axum::{Router, routing::get};
//!
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(plimsoll_orca::layer());
//! ```
//!
//! Every response then says how busy the process is: CPU and memory as the cgroup or the host sees
//! them, requests and errors per second, and requests in flight as a share of a limit if one is
//! set ([`OrcaLayer::builder`]). HTTP responses carry the report in a header, gRPC responses in
//! their trailers. What only the application knows is added by handlers ([`OrcaRecorder`], for
//! one request) and by anybody ([`OrcaHandle`], for the process). [`OpenRcaService`] streams the
//! same report to balancers that would rather ask than wait for responses.
//!
//! | module | what lives there |
//! |---|---|
//! | `builder`, `layer`, `body`, `call` | the layer, and the way of one request through it |
//! | `handle`, `recorder`, `metrics` | what the application says itself |
//! | `sample`, `window`, `measure` | what is measured, and over how long |
//! | `published`, `state` | the newest report in every form; one swap per tick |
//! | `open_rca` | reports out of band |
//!
//! Nothing is decided here, and the wire forms are those of `plimsoll_xds::orca`.

mod body;
mod builder;
mod call;
mod handle;
mod layer;
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
pub use handle::OrcaHandle;
pub use layer::{OrcaLayer, OrcaService, ResponseFuture};
pub use open_rca::{OpenRcaService, ReportStream};
/// What a report says.
pub use plimsoll_core::model::orca::OrcaLoadReport;
/// A setting or a metric that cannot be, with its name.
pub use plimsoll_core::units::FieldError;
/// The forms a report is written in.
pub use plimsoll_xds::orca::OrcaFormat;
pub use recorder::OrcaRecorder;

/// The layer with its default settings: see [`OrcaLayerBuilder`] for what they are.
pub fn layer() -> OrcaLayer {
    OrcaLayer::default()
}
