//! The history of the dashboard on disk, so that a restart does not forget it: a document every
//! half minute, without what the history does not record, in a file that is bounded.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_admin::history::History;
use plimsoll_admin::source::Source;
use plimsoll_admin::state::DashboardState;
use plimsoll_core::log_line;
use plimsoll_serve::AppendedFile;
use tokio::time::MissedTickBehavior;

use super::ControlSource;
use crate::log_lines;

const FILE: &str = "history.jsonl";
/// Most bytes of the file; the one before is kept beside it. An hour of three zones is 200 kB.
const MAX_BYTES: u64 = 32 << 20;
const INTERVAL: Duration = Duration::from_secs(30);

/// Reads what was kept into the history, which leaves out what is older than an hour.
pub(super) fn restore(history: &History, directory: &Path) {
    let lines = AppendedFile::lines(&directory.join(FILE)).unwrap_or_default();
    for line in lines {
        if let Ok(state) = serde_json::from_slice::<DashboardState>(&line) {
            history.record(&state);
        }
    }
}

/// Keeps documents until the source shuts down. A disk that is full or slow delays nobody.
pub(super) async fn keep(source: ControlSource, directory: std::path::PathBuf) {
    let file = Arc::new(Mutex::new(AppendedFile::new(
        directory.join(FILE),
        MAX_BYTES,
    )));
    let keep = async {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_failing = false;
        loop {
            ticks.tick().await;
            let Ok(state) = source.state().await else {
                return;
            };
            let Ok(mut line) = serde_json::to_vec(&recorded(&state)) else {
                return;
            };
            line.push(b'\n');
            let file = Arc::clone(&file);
            let append = move || {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                file.append(&line)
            };
            // The thread only fails if it panics, or if the runtime shuts down.
            let Ok(written) = tokio::task::spawn_blocking(append).await else {
                return;
            };
            if let (Err(error), false) = (&written, was_failing) {
                log_line!(log_lines::HISTORY_NOT_WRITTEN, %error);
            }
            was_failing = written.is_err();
        }
    };
    tokio::select! {
        () = keep => {}
        () = source.closed() => {}
    }
}

/// Returns what the history records of a document.
fn recorded(state: &DashboardState) -> DashboardState {
    DashboardState {
        taken_unix_ms: state.taken_unix_ms,
        clusters: state.clusters.clone(),
        events: state.events.clone(),
        ..DashboardState::default()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_admin::history::HistoryQuery;
    use plimsoll_admin::state::ClusterState;

    use super::*;

    #[test]
    fn what_was_kept_is_there_after_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = AppendedFile::new(directory.path().join(FILE), MAX_BYTES);
        for step in 1..=3 {
            let state = DashboardState {
                title: "plimsoll control".to_owned(),
                taken_unix_ms: 1_700_000_000_000 + step * 30_000,
                clusters: vec![ClusterState {
                    cluster: "orders".to_owned(),
                    ..ClusterState::default()
                }],
                ..DashboardState::default()
            };
            let mut line = serde_json::to_vec(&recorded(&state)).unwrap();
            line.push(b'\n');
            file.append(&line).unwrap();
        }
        file.append(b"{\"taken_unix_ms\": 17000\n").unwrap();
        let history = History::default();
        restore(&history, directory.path());
        let response = history.response(&HistoryQuery::default()).unwrap();
        assert_eq!(response.clusters.len(), 1);
        let (first, last) = (response.times_unix_ms[0], response.times_unix_ms.last());
        assert!(last.unwrap() - first >= 55_000, "{response:?}");
        restore(&history, Path::new("/nonexistent"));
    }
}
