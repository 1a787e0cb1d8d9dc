//! Waits for the next message of a watch, and notices one that stalls while the connection lives:
//! lease and writes show that etcd responds, and nothing else would show that changes are missing.

use std::time::Duration;

use etcd_client::{Error, WatchResponse, WatchStream};
use tokio::time::timeout;

use super::SessionError;

/// How long a watch may be quiet before it is asked for its progress, and to answer.
const QUIET: Duration = Duration::from_secs(2);
/// Requests for progress that may stay without any message.
const UNANSWERED: u32 = 2;

/// A watch: what [`next`] needs of [`WatchStream`].
pub(super) trait Watch {
    type Message;

    /// Returns the next message; `None` if the stream was closed. Dropping the future loses none.
    async fn message(&mut self) -> Result<Option<Self::Message>, Error>;

    async fn request_progress(&mut self) -> Result<(), Error>;
}

impl Watch for WatchStream {
    type Message = WatchResponse;

    async fn message(&mut self) -> Result<Option<WatchResponse>, Error> {
        Self::message(self).await
    }

    async fn request_progress(&mut self) -> Result<(), Error> {
        Self::request_progress(self).await
    }
}

/// Returns the next message, of changes or of progress.
pub(super) async fn next<W: Watch>(watch: &mut W) -> Result<W::Message, SessionError> {
    for _ in 0..UNANSWERED {
        if let Ok(message) = timeout(QUIET, watch.message()).await {
            return message?.ok_or_else(closed);
        }
        timeout(QUIET, watch.request_progress()).await??;
    }
    match timeout(QUIET, watch.message()).await {
        Ok(message) => message?.ok_or_else(closed),
        Err(_) => Err(SessionError::WatchStalled),
    }
}

fn closed() -> SessionError {
    SessionError::WatchEnded("closed".to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::time::{Instant, sleep_until};

    use super::*;

    /// A watch whose changes come at these times; it answers requests for progress until one.
    struct Fake {
        start: Instant,
        changes: VecDeque<Duration>,
        stalls_at: Duration,
        asked: u32,
        owed: u32,
    }

    impl Fake {
        fn new(changes: &[u64], stalls_at: u64) -> Self {
            Self {
                start: Instant::now(),
                changes: changes.iter().copied().map(Duration::from_secs).collect(),
                stalls_at: Duration::from_secs(stalls_at),
                asked: 0,
                owed: 0,
            }
        }
    }

    impl Watch for Fake {
        type Message = &'static str;

        async fn message(&mut self) -> Result<Option<&'static str>, Error> {
            if self.owed > 0 {
                self.owed -= 1;
                return Ok(Some("progress"));
            }
            let Some(at) = self.changes.front().filter(|at| **at < self.stalls_at) else {
                std::future::pending::<()>().await;
                return Ok(None);
            };
            sleep_until(self.start + *at).await;
            self.changes.pop_front();
            Ok(Some("change"))
        }

        async fn request_progress(&mut self) -> Result<(), Error> {
            self.asked += 1;
            if self.start.elapsed() < self.stalls_at {
                self.owed += 1;
            }
            Ok(())
        }
    }

    /// Returns the messages until an error, that error, and the seconds until then.
    async fn messages(mut watch: Fake) -> (Vec<&'static str>, String, u64) {
        let mut received = Vec::new();
        loop {
            match next(&mut watch).await {
                Ok(message) => received.push(message),
                Err(error) => {
                    return (received, error.to_string(), watch.start.elapsed().as_secs());
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_that_stalls_is_given_up_after_two_requests_for_progress() {
        let (received, error, after) = messages(Fake::new(&[], 0)).await;
        assert_eq!((received.len(), after), (0, 6));
        assert_eq!(error, "the watch does not answer");
        // Changes are lost from the third second on.
        let (received, _, after) = messages(Fake::new(&[1, 2, 4], 3)).await;
        assert_eq!((&received[..], after), (&["change", "change"][..], 8));
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_watch_that_answers_lives() {
        let (received, _, after) = messages(Fake::new(&[30], 60)).await;
        let changes = received.iter().filter(|message| **message == "change");
        assert_eq!(changes.count(), 1);
        // One every two seconds, and the end two requests after the last one.
        assert!((27..=29).contains(&(received.len() - 1)), "{received:?}");
        assert!((64..=66).contains(&after), "{after}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_watch_is_not_asked() {
        let mut watch = Fake::new(&[1, 2, 3, 4], 60);
        for _ in 0..4 {
            assert_eq!(next(&mut watch).await.unwrap(), "change");
        }
        assert_eq!(watch.asked, 0);
    }
}
