//! [`Lifecycle`]: how far a client is from its end. Shared by everything behind the client.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::Error;

/// Phase of a client; only ever increases.
#[derive(Debug, Default)]
pub(crate) struct Lifecycle(AtomicU8);

const OPEN: u8 = 0;
/// New requests are refused; those in flight go on, with their retries.
const DRAINING: u8 = 1;
/// Nothing is sent any more.
const CLOSED: u8 = 2;
/// The runtime ended before the client: nothing is updated any more.
const RUNTIME_ENDED: u8 = 3;

impl Lifecycle {
    pub(crate) fn drain(&self) {
        self.0.fetch_max(DRAINING, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        self.0.fetch_max(CLOSED, Ordering::Relaxed);
    }

    pub(crate) fn end_runtime(&self) {
        // A client that was shut down keeps that reason.
        let ended = Some(RUNTIME_ENDED);
        let next = |phase| if phase < CLOSED { ended } else { None };
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    /// Whether the client has not begun to end.
    pub(crate) fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed) == OPEN
    }

    /// Fails unless new requests are taken.
    pub(crate) fn check_open(&self) -> Result<(), Error> {
        if self.is_open() {
            Ok(())
        } else {
            Err(self.error())
        }
    }

    /// Fails unless requests may be sent to a host.
    pub(crate) fn check_sending(&self) -> Result<(), Error> {
        let sending = self.0.load(Ordering::Relaxed) < CLOSED;
        if sending { Ok(()) } else { Err(self.error()) }
    }

    /// Why the tasks of the client do not answer.
    #[cold]
    pub(crate) fn error(&self) -> Error {
        match self.0.load(Ordering::Relaxed) {
            DRAINING | CLOSED => Error::closed(),
            _ => Error::runtime_ended(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_ends_once() {
        let lifecycle = Lifecycle::default();
        let texts = |lifecycle: &Lifecycle| {
            let checks = [lifecycle.check_open(), lifecycle.check_sending()];
            checks.map(|check| check.err().map(|error| error.to_string()))
        };
        let closed = Some("the client is shut down".to_owned());
        let ended = Some("the runtime that the client was built on has ended".to_owned());
        assert_eq!(texts(&lifecycle), [None, None]);
        lifecycle.drain();
        assert_eq!(texts(&lifecycle), [closed.clone(), None]);
        lifecycle.close();
        lifecycle.end_runtime();
        lifecycle.drain();
        assert_eq!(texts(&lifecycle), [closed.clone(), closed]);
        let lifecycle = Lifecycle::default();
        lifecycle.drain();
        lifecycle.end_runtime();
        assert_eq!(texts(&lifecycle), [ended.clone(), ended]);
    }
}
