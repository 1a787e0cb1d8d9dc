//! Replicas of the control plane and the store that they share: a table, and notices if something
//! is wrong.

use plimsoll_admin::state::{Notice, ReplicaState, ReplicasState, Severity, StoreState};
use plimsoll_control::state::State;
use plimsoll_core::time::Instant;
use plimsoll_xds::replica::ReplicaRecord;

use super::WallClock;

/// Returns what is wrong with the store or with other replicas; nothing without a store.
pub(super) fn notices(state: &State) -> Vec<Notice> {
    let Some(replicas) = state.replicas() else {
        return Vec::new();
    };
    let mut notices = Vec::new();
    let mut add = |severity, text| notices.push(Notice { severity, text });
    if !replicas.is_synced() {
        let text = "the store has not been read since the start: returning proxies keep their \
                    weights, new ones get host counts";
        add(Severity::Error, text.to_owned());
    } else if !replicas.is_connected() {
        let text = "the store cannot be reached: proxies of other replicas count with their last \
                    load reports";
        add(Severity::Error, text.to_owned());
    }
    let own = state.fingerprint();
    let others = replicas
        .all()
        .filter(|(record, _)| record.configuration != own);
    let others: Vec<_> = others.map(|(record, _)| record.replica.as_str()).collect();
    if !others.is_empty() {
        let text = format!("replicas with another configuration: {}", others.join(", "));
        add(Severity::Warning, text);
    }
    notices
}

/// Returns the replicas in the store; `None` without a store.
pub(super) fn table(state: &State, wall_clock: WallClock) -> Option<ReplicasState> {
    let replicas = state.replicas()?;
    let own = state.fingerprint();
    let (nodes, _) = replicas.counts();
    let replica = |(record, heard): &(ReplicaRecord, Instant)| ReplicaState {
        name: record.replica.clone(),
        this: *record.replica == **replicas.id(),
        listen: record.listen.clone(),
        version: record.version.clone(),
        nodes: record.nodes,
        started_unix_ms: record.started_unix_ms,
        heard_unix_ms: wall_clock.at(*heard),
        same_configuration: record.configuration == own,
    };
    Some(ReplicasState {
        this: replicas.id().as_ref().to_owned(),
        store: StoreState {
            connected: replicas.is_connected(),
            synced: replicas.is_synced(),
            nodes: nodes as u64,
        },
        list: replicas.all().map(replica).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_control::config::{ConfigFile, ControlConfig};
    use plimsoll_control::replicas::{StoreInput, StoreSnapshot};
    use plimsoll_xds::replica::ReplicaRecord;

    use super::*;

    const WALL_CLOCK_MS: u64 = 1_000_000;

    fn shown(state: &State) -> Option<ReplicasState> {
        let origin_unix_ms = WALL_CLOCK_MS;
        table(state, WallClock { origin_unix_ms })
    }

    fn texts(state: &State) -> Vec<String> {
        let notices = notices(state);
        notices.into_iter().map(|notice| notice.text).collect()
    }

    #[test]
    fn replicas_and_the_store_are_shown() {
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text: "{}".to_owned(),
        };
        let config = Arc::new(ControlConfig::parse(&file, &[]).unwrap());
        let now = Instant::from_secs(5);
        let mut state = State::new(Arc::clone(&config), now);
        assert_eq!(texts(&state), [""; 0]);
        assert_eq!(shown(&state), None);
        state = state.with_replicas("r0".into(), 1);
        assert!(texts(&state)[0].contains("has not been read"));
        let record = |name: &str, configuration| ReplicaRecord {
            replica: name.to_owned(),
            configuration,
            nodes: 2,
            ..ReplicaRecord::default()
        };
        let own = config.fingerprint();
        let snapshot = StoreInput::Snapshot(StoreSnapshot {
            replicas: vec![record("r0", own), record("r1", own)],
            ..StoreSnapshot::default()
        });
        state.handle_store(snapshot, now);
        assert_eq!(texts(&state), [""; 0]);
        state.handle_store(StoreInput::ReplicaPut(record("r2", own + 1)), now);
        assert_eq!(texts(&state), ["replicas with another configuration: r2"]);
        let table = shown(&state).unwrap();
        assert_eq!(table.this, "r0");
        assert!(table.store.connected && table.store.synced);
        let rows = table.list.iter().map(|one| {
            let heard = one.heard_unix_ms - WALL_CLOCK_MS;
            (
                &*one.name,
                one.this,
                one.nodes,
                heard,
                one.same_configuration,
            )
        });
        let expected = [
            ("r0", true, 2, 5000, true),
            ("r1", false, 2, 5000, true),
            ("r2", false, 2, 5000, false),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
        state.handle_store(StoreInput::ReplicaDeleted("r2".into()), now);
        state.handle_store(StoreInput::Disconnected("test".to_owned()), now);
        assert!(texts(&state)[0].contains("cannot be reached"));
        assert!(!shown(&state).unwrap().store.connected);
    }
}
