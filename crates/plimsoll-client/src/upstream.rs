//! Connections to upstream hosts: dialing, TLS, pooling, limits, and sending requests on them.
//!
//! `endpoint` owns the pools of one host and decides when to dial; `connect` and `tls` open
//! sockets, with files that `tls_files` reads again when they change; `pool` stores connections;
//! `connection` counts them against the circuit breakers; `normalize` adapts a request to the HTTP
//! version; `oob` runs out-of-band ORCA streams.

pub(crate) mod backoff;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod endpoint;
pub(crate) mod normalize;
pub(crate) mod oob;
pub(crate) mod pool;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "tls")]
mod tls_files;
