//! What the tests share, with each other and with the fuzz target.

pub(crate) mod objects;

#[allow(unreachable_pub, reason = "as its neighbour")]
pub(crate) mod tls;
