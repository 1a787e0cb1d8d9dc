//! Connections to upstream hosts: dialing, TLS, pooling, limits, and sending requests on them.
//!
//! `endpoint` owns the pools of one host and decides when to dial; `connect` and `tls` open
//! sockets, with files that `tls_files` reads again when they change; `pool` stores connections;
//! `dials` and `waiting` have the requests that wait for one; `connection` counts them against the
//! circuit breakers; `hint` adds to errors what to look at; `normalize` adapts a request to the
//! HTTP version; `response_scan` and `chunk_scan` check responses before hyper reads them; `oob`
//! runs out-of-band ORCA streams.

pub(crate) mod backoff;
pub(crate) mod chunk_scan;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod dial_permits;
pub(crate) mod dials;
pub(crate) mod endpoint;
pub(crate) mod hint;
pub(crate) mod normalize;
pub(crate) mod oob;
pub(crate) mod pool;
pub(crate) mod response_scan;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(feature = "tls")]
mod tls_files;
pub(crate) mod waiting;
