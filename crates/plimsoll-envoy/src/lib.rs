//! Plimsoll as a load balancing policy inside stock Envoy
//! (`envoy.load_balancing_policies.dynamic_modules`).
//!
//! Envoy loads the shared library of this crate, passes it the hosts of a cluster, and asks it for
//! a host per request. Everything between is the engine of `plimsoll-core`: the same zone-aware
//! routing and the same endpoint policies as in the proxy and the client.
//!
//! * `abi` declares the C functions of Envoy that are used, `envoy` wraps them in safe types, and
//!   `hooks` exports the functions that Envoy calls. With
//!   `filter_hooks`, only these modules have unsafe code.
//! * [`host_sets`] converts Envoy's host sets to an assignment of the engine.
//! * [`orca`] applies load reports, which an HTTP filter of this library (`filter_hooks`) reads
//!   from responses; [`attempt`] is the state of one attempt in it. [`override_host`] asks for
//!   hosts that a policy may not return, [`oob`] runs streams of out-of-band reports, and
//!   [`report_format`] asks for reports.
//! * [`config`] reads the configuration, with the converters of files and of xDS.
//! * [`management`] receives measured demand from `plimsoll control`.
//! * [`metrics`] writes counters to Envoy, [`explain`] serves explanations on loopback.
//! * `guard` keeps panics inside the module, and restarts what runs in the background.
//! * [`cluster`] owns the balancer of one cluster, [`load_balancer`] picks hosts on one thread of
//!   Envoy, and [`process`] connects the clusters of a process and runs their timers.
//!
//! The ABI layer is left out of unit tests, because its functions only exist inside Envoy.

#[cfg(not(test))]
mod abi;
pub mod attempt;
pub mod cluster;
pub mod config;
#[cfg(not(test))]
mod envoy;
pub mod explain;
#[cfg(not(test))]
mod filter_hooks;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
#[cfg(not(test))]
mod hooks;
pub mod host_sets;
pub mod host_table;
pub mod load_balancer;
pub mod log;
pub mod management;
pub mod metrics;
pub mod oob;
pub mod orca;
pub mod override_host;
pub mod process;
pub mod report_format;
pub mod tls;
#[cfg(test)]
mod vectors;
