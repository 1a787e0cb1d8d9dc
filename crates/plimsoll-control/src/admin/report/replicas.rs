//! `/api/v1/replicas`: the replicas of the control plane and the store that they share.

use plimsoll_admin::api::rounded;
use plimsoll_core::time::Instant;

use super::super::responses::{Replica, Replicas, Store};
use super::millis;
use crate::state::State;
use crate::store::StoreLink;

/// Response of `/api/v1/replicas`. Without a store, there are no replicas.
pub(in super::super) fn replicas(
    state: &State,
    stats: Option<&StoreLink>,
    now: Instant,
) -> Replicas {
    let (Some(known), Some(settings), Some(stats)) =
        (state.replicas(), &state.config().store, stats)
    else {
        return Replicas {
            store: None,
            replicas: Vec::new(),
        };
    };
    let (nodes, own_nodes) = known.counts();
    let configuration = state.fingerprint();
    let replica = |(record, heard): &(plimsoll_xds::replica::ReplicaRecord, Instant)| Replica {
        this: *record.replica == **known.id(),
        same_configuration: record.configuration == configuration,
        replica: record.replica.clone(),
        listen: record.listen.clone(),
        version: record.version.clone(),
        nodes: record.nodes,
        started_unix_ms: record.started_unix_ms,
        last_heard_ms: millis(now.saturating_duration_since(*heard)),
    };
    Replicas {
        store: Some(Store {
            endpoints: settings.endpoints.clone(),
            prefix: settings.prefix.clone(),
            connected: known.is_connected(),
            synced: known.is_synced(),
            nodes,
            own_nodes,
            pending_writes: stats.pending(),
            records_written: stats.written(),
            write_failures: stats.write_failures(),
            last_write_ms: rounded(stats.last_write().as_secs_f64() * 1000.0),
            compactions: stats.compactions(),
        }),
        replicas: known.all().map(replica).collect(),
    }
}
