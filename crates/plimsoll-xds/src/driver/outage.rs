//! [`Outage`]: which events of a reconnecting stream are worth a log line.
//!
//! A server that is down for an hour is worth one line per reason and one when it is over, not one
//! per attempt.

use std::time::Duration;

use plimsoll_core::log_line;
use tokio::time::Instant;

use super::connect::Loss;
use crate::log_lines;

/// The outage of one stream, from the first failure to the next message of a server.
#[derive(Debug, Default)]
pub(super) struct Outage(Option<Failures>);

#[derive(Debug)]
struct Failures {
    since: Instant,
    attempts: u64,
    /// Server and message of the last line.
    logged: (String, String),
}

/// An outage that is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Recovery {
    pub(super) outage: Duration,
    /// Failures, including the one that started the outage.
    pub(super) failures: u64,
}

impl Outage {
    /// Counts a failure; returns whether to log a warning. A change of the server is not a failure.
    pub(super) fn handle_lost(&mut self, loss: &Loss) -> bool {
        if loss.retry_in.is_none() {
            return false;
        }
        let reason = (loss.server.clone(), loss.status.message().to_owned());
        match &mut self.0 {
            Some(failures) => {
                failures.attempts += 1;
                let changed = failures.logged != reason;
                if !changed {
                    let (server, error) = &reason;
                    log_line!(log_lines::SERVER_STILL_UNREACHABLE, server, error);
                }
                failures.logged = reason;
                changed
            }
            None => {
                self.0 = Some(Failures {
                    since: Instant::now(),
                    attempts: 1,
                    logged: reason,
                });
                true
            }
        }
    }

    /// Ends the outage, if there is one.
    pub(super) fn handle_message(&mut self) -> Option<Recovery> {
        let failures = self.0.take()?;
        Some(Recovery {
            outage: failures.since.elapsed(),
            failures: failures.attempts,
        })
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    fn loss(server: &str, message: &str) -> Loss {
        Loss {
            server: server.to_owned(),
            status: Status::unavailable(message),
            retry_in: Some(Duration::from_secs(1)),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_logged_once_per_reason_and_server() {
        let mut outage = Outage::default();
        assert_eq!(outage.handle_message(), None);
        let logged = ["refused", "refused", "timeout", "timeout", "refused"]
            .map(|message| outage.handle_lost(&loss("one", message)));
        assert_eq!(logged, [true, false, true, false, true]);
        assert!(outage.handle_lost(&loss("two", "refused")));
        tokio::time::advance(Duration::from_secs(7)).await;
        let over = Recovery {
            outage: Duration::from_secs(7),
            failures: 6,
        };
        assert_eq!(outage.handle_message(), Some(over));
        assert_eq!(outage.handle_message(), None);
        assert!(outage.handle_lost(&loss("two", "refused")), "a new outage");
    }

    #[tokio::test]
    async fn a_change_of_the_server_is_no_outage() {
        let mut outage = Outage::default();
        let switched = Loss {
            retry_in: None,
            ..loss("one", "switched")
        };
        assert!(!outage.handle_lost(&switched));
        assert_eq!(outage.handle_message(), None);
    }
}
