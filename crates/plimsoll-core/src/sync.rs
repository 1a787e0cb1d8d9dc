//! Atomics of state that threads share.
//!
//! Files that use these atomics, and nothing else of this crate, are compiled a second time by
//! tests/interleavings.rs with atomics that explore every order of events. In production these are
//! the standard library's.

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
