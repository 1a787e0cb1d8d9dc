//! The atomics of what threads share.
//!
//! Files that count for many threads take their atomics from here and nothing else from this crate.
//! So tests/interleavings.rs can compile the same files with atomics that try every order of
//! events. In production these are the standard library's.

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicU64, Ordering};
}
