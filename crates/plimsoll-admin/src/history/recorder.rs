//! Records the documents of a [`Source`] in its history until it shuts down.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;

use super::History;
use super::series::FINE_STEP_MS;
use crate::source::Source;

/// Records a document at every fine step of the history. Ends when the source shuts down.
pub(crate) async fn record_until_closed(source: Arc<dyn Source>, history: Arc<History>) {
    let record = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(FINE_STEP_MS));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match source.state().await {
                Ok(state) => history.record(&state),
                Err(_) => return,
            }
        }
    };
    tokio::select! {
        () = record => {}
        () = source.closed() => {}
    }
}
