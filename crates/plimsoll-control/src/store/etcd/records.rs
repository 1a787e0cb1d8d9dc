//! Keys and values in etcd: `PREFIX/nodes/FLEET/ID`, `PREFIX/replicas/ID` and, for each
//! configuration that plans are made with, `PREFIX/plans/CONFIGURATION/FLEET[/CLUSTER]`.

use std::sync::Arc;

use etcd_client::KeyValue;
use plimsoll_core::evacuation::ZoneName;
use plimsoll_core::log_line;
use plimsoll_core::planner::PlanScope;
use plimsoll_xds::wire::{decode_node_record, decode_plan_record, decode_replica_record};

use super::super::{decode_part, encode_part};
use crate::evacuation::decode;
use crate::log_lines;
use crate::replicas::{
    NodeKey, OrderInput, PlanKey, StoreInput, StoreSnapshot, StoredNode, StoredPlan,
};

/// What a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    Node(NodeKey),
    Replica(Arc<str>),
    Plan(PlanKey),
    Order(ZoneName),
}

/// Returns the start of all keys.
pub(super) fn all_keys(prefix: &str) -> String {
    format!("{prefix}/")
}

pub(super) fn node_key(prefix: &str, key: &NodeKey) -> String {
    let (fleet, id) = (encode_part(&key.fleet), encode_part(&key.id));
    format!("{prefix}/nodes/{fleet}/{id}")
}

pub(super) fn replica_key(prefix: &str, id: &str) -> String {
    format!("{prefix}/replicas/{}", encode_part(id))
}

pub(super) fn plan_key(prefix: &str, key: &PlanKey) -> String {
    let PlanKey {
        configuration,
        scope,
    } = key;
    let fleet = encode_part(&scope.fleet);
    let fleet = format!("{prefix}/plans/{configuration:016x}/{fleet}");
    match &scope.upstream_cluster {
        Some(cluster) => format!("{fleet}/{}", encode_part(cluster)),
        None => fleet,
    }
}

pub(super) fn order_key(prefix: &str, zone: &ZoneName) -> String {
    format!("{prefix}/zones/{}", encode_part(zone.as_str()))
}

/// Decodes a record; `None` if it is not ours or invalid.
pub(super) fn put(prefix: &str, entry: &KeyValue) -> Option<StoreInput> {
    match parse_key(prefix, entry.key())? {
        Key::Node(key) => {
            let record = decode_node_record(entry.value())
                .map_err(|error| invalid(entry, &error.to_string()))
                .ok()?;
            if NodeKey::of(&record.node.node) != key {
                invalid(entry, "it is the record of another node");
                return None;
            }
            Some(StoreInput::NodePut(StoredNode {
                record,
                revision: entry.mod_revision(),
            }))
        }
        Key::Replica(id) => {
            let record = decode_replica_record(entry.value())
                .map_err(|error| invalid(entry, &error.to_string()))
                .ok()?;
            if record.replica != *id {
                invalid(entry, "it is the record of another replica");
                return None;
            }
            Some(StoreInput::ReplicaPut(record))
        }
        Key::Plan(key) => {
            let record = decode_plan_record(entry.value())
                .map_err(|error| invalid(entry, &error.to_string()))
                .ok()?;
            Some(StoreInput::PlanPut(StoredPlan {
                key,
                record,
                revision: entry.mod_revision(),
            }))
        }
        Key::Order(zone) => {
            let order = decode(entry.value())
                .map_err(|error| invalid(entry, &error))
                .ok()?;
            if order.zone != zone {
                invalid(entry, "it is the order about another zone");
                return None;
            }
            Some(StoreInput::Order(OrderInput::Put(order)))
        }
    }
}

pub(super) fn deleted(prefix: &str, key: &[u8]) -> Option<StoreInput> {
    Some(match parse_key(prefix, key)? {
        Key::Node(key) => StoreInput::NodeDeleted(key),
        Key::Replica(id) => StoreInput::ReplicaDeleted(id),
        Key::Plan(key) => StoreInput::PlanDeleted(key),
        Key::Order(zone) => StoreInput::Order(OrderInput::Deleted(zone)),
    })
}

/// Divides the records of a read by what they are of: those of nodes, replicas and plans, and
/// orders about zones.
pub(super) fn snapshot(prefix: &str, entries: &[KeyValue]) -> [StoreInput; 2] {
    let mut orders = Vec::new();
    let mut all = StoreSnapshot::default();
    for entry in entries {
        match put(prefix, entry) {
            Some(StoreInput::NodePut(node)) => all.nodes.push(node),
            Some(StoreInput::ReplicaPut(replica)) => all.replicas.push(replica),
            Some(StoreInput::PlanPut(plan)) => all.plans.push(plan),
            Some(StoreInput::Order(OrderInput::Put(order))) => orders.push(order),
            _ => {}
        }
    }
    let orders = StoreInput::Order(OrderInput::All(orders));
    [StoreInput::Snapshot(all), orders]
}

/// Returns what a key names; `None` for keys that are not ours.
fn parse_key(prefix: &str, key: &[u8]) -> Option<Key> {
    let key = std::str::from_utf8(key).ok()?;
    let rest = key.strip_prefix(prefix)?.strip_prefix('/')?;
    let parts: Vec<&str> = rest.split('/').collect();
    match parts[..] {
        ["nodes", fleet, id] => Some(Key::Node(NodeKey {
            fleet: decode_part(fleet)?.into(),
            id: decode_part(id)?.into(),
        })),
        ["zones", zone] => {
            let zone = decode_part(zone)?;
            Some(Key::Order(ZoneName::try_new(&zone).ok()?))
        }
        ["replicas", id] => Some(Key::Replica(decode_part(id)?.into())),
        ["plans", configuration, fleet] => parse_plan(configuration, fleet, None),
        ["plans", configuration, fleet, cluster] => {
            parse_plan(configuration, fleet, Some(decode_part(cluster)?))
        }
        _ => None,
    }
}

fn parse_plan(configuration: &str, fleet: &str, cluster: Option<String>) -> Option<Key> {
    Some(Key::Plan(PlanKey {
        configuration: u64::from_str_radix(configuration, 16).ok()?,
        scope: PlanScope {
            fleet: decode_part(fleet)?.into(),
            upstream_cluster: cluster.map(Into::into),
        },
    }))
}

fn invalid(entry: &KeyValue, reason: &str) {
    let key = String::from_utf8_lossy(entry.key());
    log_line!(log_lines::RECORD_INVALID, %key, reason);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_nodes_and_replicas() {
        let node = NodeKey {
            fleet: "edge/1".into(),
            id: "sidecar~10.0.0.1~a b".into(),
        };
        let key = node_key("/plimsoll", &node);
        assert_eq!(key, "/plimsoll/nodes/edge%2F1/sidecar~10.0.0.1~a%20b");
        assert!(key.starts_with(&all_keys("/plimsoll")));
        let parsed = parse_key("/plimsoll", key.as_bytes());
        assert_eq!(parsed, Some(Key::Node(node)));
        let key = replica_key("/x/y", "pod-1");
        assert_eq!(key, "/x/y/replicas/pod-1");
        let parsed = parse_key("/x/y", key.as_bytes());
        assert_eq!(parsed, Some(Key::Replica("pod-1".into())));
    }

    #[test]
    fn keys_name_plans_of_fleets_and_of_their_clusters() {
        for (cluster, expected) in [
            (None, "/p/plans/00000000000000ff/edge%2F1"),
            (Some(""), "/p/plans/00000000000000ff/edge%2F1/"),
            (Some("a/b"), "/p/plans/00000000000000ff/edge%2F1/a%2Fb"),
        ] {
            let plan = PlanKey {
                configuration: 255,
                scope: PlanScope {
                    fleet: "edge/1".into(),
                    upstream_cluster: cluster.map(Into::into),
                },
            };
            let key = plan_key("/p", &plan);
            assert_eq!(key, expected);
            assert_eq!(parse_key("/p", key.as_bytes()), Some(Key::Plan(plan)));
        }
    }

    #[test]
    fn deleted_keys_are_those_of_nodes_and_replicas() {
        let input = |key: &str| format!("{:?}", deleted("/p", key.as_bytes()));
        let (fleet, id) = ("edge".into(), "1".into());
        let node = StoreInput::NodeDeleted(NodeKey { fleet, id });
        assert_eq!(input("/p/nodes/edge/1"), format!("{:?}", Some(node)));
        let replica = StoreInput::ReplicaDeleted("r1".into());
        assert_eq!(input("/p/replicas/r1"), format!("{:?}", Some(replica)));
        assert_eq!(input("/p/other/r1"), "None");
    }

    /// Bytes that version 0.1.0 wrote into an etcd. Replicas of two versions share a store during
    /// an upgrade: if a change makes this fail, they do not understand each other.
    #[test]
    fn records_of_the_first_version_are_understood() {
        let bytes = |hex: &str| -> Vec<u8> {
            let digits = (0..hex.len()).step_by(2);
            let parsed = digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
            parsed.collect()
        };
        let node = "0a027230116a857d016f15ee601a320a140a0770726f78792d311204656467652203120161121a\
                    0a066f7264657273120c0a0312016140d80488b5180022020801";
        let node = decode_node_record(&bytes(node)).unwrap();
        let [stats] = &node.cluster_stats[..] else {
            panic!("{node:?}");
        };
        assert_eq!(
            (&*node.replica, node.instance),
            ("r0", 6_984_543_638_608_774_506)
        );
        assert_eq!(
            (&*node.node.node.id, &*node.node.node.cluster),
            ("proxy-1", "edge")
        );
        assert_eq!(node.node.node.locality.zone(), "a");
        assert_eq!(stats.upstream_locality_stats[0].total_issued_requests, 600);
        assert_eq!(
            stats.load_report_interval,
            std::time::Duration::from_secs(1)
        );
        let plan = "096a857d016f15ee60100422100a03120161110000000000c082401801";
        let plan = decode_plan_record(&bytes(plan)).unwrap();
        assert_eq!(plan.instance, node.instance);
        assert_eq!(
            (plan.zones[0].rate_per_second, plan.zones[0].reporters),
            (600.0, 1)
        );
        let replica = "0a027230116a857d016f15ee601a0f3132372e302e302e313a34343636372205302e312e30\
                       29abfa35b0c765dfbd30c2acbeb49f343801";
        let replica = decode_replica_record(&bytes(replica)).unwrap();
        assert_eq!((&*replica.listen, replica.nodes), ("127.0.0.1:44667", 1));
        assert_eq!(replica.configuration, 0xbddf_65c7_b035_faab);
    }

    #[test]
    fn other_keys_are_ignored() {
        for key in [
            "/plimsoll/nodes/a",
            "/plimsoll/nodes/a/b/c",
            "/plimsoll/nodes/a/%2f",
            "/plimsollx/nodes/a/b",
            "/plimsoll/other/a",
            "/plimsoll/plans/ff",
            "/plimsoll/plans/xyz/a",
            "/plimsoll/plans/ff/a/b/c",
            "/nodes/a/b",
        ] {
            assert_eq!(parse_key("/plimsoll", key.as_bytes()), None, "{key}");
        }
        assert_eq!(parse_key("/p", &[0xff]), None);
    }
}
