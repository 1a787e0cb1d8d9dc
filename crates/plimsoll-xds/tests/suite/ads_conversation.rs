//! Scripted message exchanges with one server stream, without sockets.
//!
//! `ads/peer.rs` is the client end, which writes requests as Envoy and gRPC do. Client and server
//! together are tested in `ads_convergence.rs`.

mod delta;
mod misbehaving_clients;
pub(crate) mod node;
mod order;
mod peer;
mod sotw;
