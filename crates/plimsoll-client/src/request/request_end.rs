//! [`RequestEnd`]: the time at which a request body ended.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::time::Instant;

/// Marks the end of a request body. A request that has it as an extension is timed as in Envoy:
/// its timeouts begin when the request has been sent completely, so that they do not limit uploads.
/// Without it they begin with the call.
///
/// ```
/// use plimsoll_client::RequestEnd;
///
/// let end = RequestEnd::default();
/// let mut request = http::Request::new(());
/// request.extensions_mut().insert(end.clone());
/// // When the body has ended:
/// end.mark();
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestEnd(Arc<OnceLock<Instant>>);

impl RequestEnd {
    /// Records that the body has ended. Returns false if that was recorded before.
    pub fn mark(&self) -> bool {
        self.0.get().is_none() && self.0.set(Instant::now()).is_ok()
    }

    /// Returns the time since the end of the body; `None` if it has not ended.
    pub fn elapsed(&self) -> Option<Duration> {
        self.0.get().map(Instant::elapsed)
    }

    /// Returns the rest of a time limit that begins with the end of the body.
    pub(crate) fn remaining(&self, limit: Duration) -> Duration {
        (self.elapsed()).map_or(limit, |elapsed| limit.saturating_sub(elapsed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_limit_begins_with_the_end_of_the_body() {
        let (end, limit) = (RequestEnd::default(), Duration::from_secs(10));
        let other = end.clone();
        assert_eq!(end.elapsed(), None);
        assert_eq!(end.remaining(limit), limit);
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(end.mark());
        tokio::time::advance(Duration::from_secs(4)).await;
        assert!(!other.mark(), "it ends once");
        assert_eq!(other.elapsed(), Some(Duration::from_secs(4)));
        assert_eq!(other.remaining(limit), Duration::from_secs(6));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(other.remaining(limit), Duration::ZERO);
    }
}
