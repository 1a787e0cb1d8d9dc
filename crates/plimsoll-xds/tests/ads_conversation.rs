//! Scripted conversations with one server stream, message by message and without sockets.
//!
//! `ads/peer.rs` is the other end: it writes requests the way Envoy and gRPC do. What our own
//! client and server do together is in `ads_convergence.rs`.

#[path = "ads/delta.rs"]
mod delta;
#[path = "ads/node.rs"]
mod node;
#[path = "ads/order.rs"]
mod order;
#[path = "ads/peer.rs"]
mod peer;
#[path = "ads/sotw.rs"]
mod sotw;
#[path = "ads/strangers.rs"]
mod strangers;
