//! Scripted message exchanges with one server stream, without sockets.
//!
//! `ads/peer.rs` is the client end, which writes requests as Envoy and gRPC do. Client and server
//! together are tested in `ads_convergence.rs`.

#[path = "ads/delta.rs"]
mod delta;
#[path = "ads/misbehaving_clients.rs"]
mod misbehaving_clients;
#[path = "ads/node.rs"]
mod node;
#[path = "ads/order.rs"]
mod order;
#[path = "ads/peer.rs"]
mod peer;
#[path = "ads/sotw.rs"]
mod sotw;
