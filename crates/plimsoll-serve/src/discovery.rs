//! What sources of services have in common, whatever system they mirror: their status, the guard
//! against answers that lost what was known, time, and how their tasks run.

mod instances;
mod removal;
mod running;
mod status;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

use plimsoll_core::time::Instant;
use tokio::sync::mpsc;

pub use instances::Instances;
pub use removal::{Held, RemovalGuard};
pub use running::{Source, SourceTasks};
pub use status::{KindStatus, KindSummary, SourceCounts, SourceStatus};

/// Shortest time between two batches of changes. The first change after a quiet time is published
/// at once; in a rolling update, which changes endpoints many times per second, every batch costs
/// each connected proxy a comparison of all its resources.
pub const BATCH_INTERVAL: Duration = Duration::from_millis(200);

/// Time since the start of a source.
#[derive(Clone, Copy, Debug)]
pub struct SourceClock(tokio::time::Instant);

impl Default for SourceClock {
    fn default() -> Self {
        Self(tokio::time::Instant::now())
    }
}

impl SourceClock {
    /// Returns the time since the start.
    pub fn now(self) -> Instant {
        let nanos = u64::try_from(self.0.elapsed().as_nanos());
        Instant::from_nanos(nanos.unwrap_or(u64::MAX))
    }

    /// Sleeps until `until`; never resolves if it is `None`.
    pub async fn sleep_until(self, until: Option<Instant>) {
        match until {
            Some(until) => {
                let at = self.0 + Duration::from_nanos(until.as_nanos());
                tokio::time::sleep_until(at).await;
            }
            None => std::future::pending().await,
        }
    }
}

/// Waits until the next batch is due and the consumer has room for it.
pub async fn due_permit<T>(
    batches: &mpsc::Sender<T>,
    due: tokio::time::Instant,
) -> Result<mpsc::Permit<'_, T>, mpsc::error::SendError<()>> {
    tokio::time::sleep_until(due).await;
    batches.reserve().await
}

/// Draws a random number. Each `RandomState` has random keys.
pub fn draw() -> u64 {
    RandomState::new().build_hasher().finish()
}
