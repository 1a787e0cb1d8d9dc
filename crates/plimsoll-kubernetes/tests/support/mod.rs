//! What the tests share.

#[allow(unreachable_pub, reason = "as its neighbour")]
pub(crate) mod tls;
