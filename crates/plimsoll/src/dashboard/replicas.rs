//! Notices about replicas of the control plane and the store that they share.

use plimsoll_admin::state::{Notice, Severity};
use plimsoll_control::replicas::Replicas;
use plimsoll_control::state::State;
use plimsoll_core::time::Instant;

use super::counted;

/// Most replicas that are listed by name.
const MAX_LISTED: usize = 10;

/// Returns the state of the store, and the replicas with their nodes; nothing without a store.
pub(super) fn notices(state: &State, now: Instant) -> Vec<Notice> {
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
    add(Severity::Info, list(replicas, now));
    notices
}

fn list(replicas: &Replicas, now: Instant) -> String {
    let shown = replicas.all().take(MAX_LISTED).map(|(record, heard)| {
        let this = if *record.replica == **replicas.id() {
            "this one, "
        } else {
            ""
        };
        let nodes = usize::try_from(record.nodes).unwrap_or(usize::MAX);
        let age = now.saturating_duration_since(*heard).as_secs();
        let nodes = counted(nodes, "proxy").replace("proxys", "proxies");
        format!("{} ({this}{nodes}, heard {age} s ago)", record.replica)
    });
    let shown: Vec<_> = shown.collect();
    let count = counted(replicas.all().count(), "replica");
    format!("{count}: {}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_control::config::{ConfigFile, ControlConfig};
    use plimsoll_control::replicas::StoreInput;
    use plimsoll_xds::replica::ReplicaRecord;

    use super::*;

    fn texts(state: &State) -> Vec<String> {
        let notices = notices(state, Instant::from_secs(7));
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
        state = state.with_replicas("r0".into(), 1);
        assert!(texts(&state)[0].contains("has not been read"));
        let record = |name: &str, configuration| ReplicaRecord {
            replica: name.to_owned(),
            configuration,
            nodes: 2,
            ..ReplicaRecord::default()
        };
        let own = config.fingerprint();
        let snapshot = StoreInput::Snapshot {
            nodes: Vec::new(),
            replicas: vec![record("r0", own), record("r1", own)],
        };
        state.handle_store(snapshot, now);
        let expected = "2 replicas: r0 (this one, 2 proxies, heard 2 s ago), \
                        r1 (2 proxies, heard 2 s ago)";
        assert_eq!(texts(&state), [expected]);
        state.handle_store(StoreInput::ReplicaPut(record("r2", own + 1)), now);
        assert_eq!(texts(&state)[0], "replicas with another configuration: r2");
        state.handle_store(StoreInput::ReplicaDeleted("r2".into()), now);
        state.handle_store(StoreInput::Disconnected("test".to_owned()), now);
        assert!(texts(&state)[0].contains("cannot be reached"));
    }
}
