//! HTTP proxy (sidecar or gateway) on top of the Plimsoll client: listeners, routing and draining.
//!
//! Requests are served by worker threads (`worker`, `accept`), each with its own Tokio runtime, its
//! own socket per listener and its own upstream connections, so that a request never changes cores.
//! One task ([`Proxy::run`]) owns the mutable state: configuration, clusters and listeners. A
//! request passes through `listener`, `forward` and `router` and is then handed to the client,
//! which does all load balancing: this crate never selects a host.
//!
//! [`config`] reads Envoy bootstrap files. [`access_log`] and [`stats`] record requests; `admin`
//! serves statistics and the state of the proxy.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod accept;
pub mod access_log;
mod admin;
mod body;
mod client_cert;
pub mod clusters;
pub mod config;
mod connection;
mod connection_limit;
mod context;
pub mod cors;
mod exchange;
pub mod filter_chain;
mod filters;
mod forward;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handover;
pub mod hash_policy;
mod head_scan;
mod header_rules;
mod headers;
mod initialization;
mod inspect;
mod lds;
mod listener;
mod listener_manager;
mod local_reply;
mod log_lines;
mod message_scan;
pub mod mirror;
mod monitored_io;
mod overload;
mod path;
mod ping_scan;
mod preface;
pub mod rate_limit;
mod request_policy;
mod request_view;
pub mod router;
mod run;
pub mod source;
mod state;
pub mod stats;
mod stream_timeouts;
mod substitution;
mod tls;
mod trace;
mod trailers;
mod upgrade;
mod worker;

pub use admin::paths as admin_paths;
pub use context::Context;
#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use run::{Bound, Options, Proxy, RunError, SetLogging, check};
pub use source::{NodeOverrides, Overrides};
