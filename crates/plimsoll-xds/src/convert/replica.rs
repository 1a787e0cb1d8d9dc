//! Decoding and encoding of the records that replicas of a control plane share.

use std::time::Duration;

use bytes::Bytes;
use plimsoll_core::planner::transport::SharedSpilling;
use plimsoll_core::planner::{SharedZone, UpdateCause};
use prost::Message;

use super::load_report::{decode_load_stats_request, encode_load_stats_request};
use crate::lrs::message::LoadStatsRequest;
use crate::replica::{NodeRecord, PlanRecord, ReplicaRecord};
use plimsoll_schema::error::DecodeError;
use plimsoll_schema::pb::replica::{
    NodeRecordMessage, PlanCauseMessage, PlanHistoryMessage, PlanRecordMessage, PlanZoneMessage,
    ReplicaRecordMessage, SpillingZoneMessage,
};

/// Decodes the record of a node.
pub fn decode_node_record(bytes: &[u8]) -> Result<NodeRecord, DecodeError> {
    let message = NodeRecordMessage::decode(bytes)?;
    let report = decode_load_stats_request(message.report);
    let report = report.map_err(|error| error.under("report"))?;
    let node = report
        .node
        .ok_or_else(|| DecodeError::new("report.node", "is missing"))?;
    Ok(NodeRecord {
        replica: message.replica.into(),
        instance: message.instance,
        node,
        cluster_stats: report.cluster_stats,
    })
}

/// Encodes the record of a node.
pub fn encode_node_record(record: &NodeRecord) -> Vec<u8> {
    let report = LoadStatsRequest {
        node: Some(record.node.clone()),
        cluster_stats: record.cluster_stats.clone(),
        ..Default::default()
    };
    let message = NodeRecordMessage {
        replica: record.replica.as_ref().to_owned(),
        instance: record.instance,
        report: Bytes::from(encode_load_stats_request(&report)),
    };
    message.encode_to_vec()
}

/// Decodes the record of a replica.
pub fn decode_replica_record(bytes: &[u8]) -> Result<ReplicaRecord, DecodeError> {
    let message = ReplicaRecordMessage::decode(bytes)?;
    Ok(ReplicaRecord {
        replica: message.replica,
        instance: message.instance,
        listen: message.listen,
        version: message.version,
        configuration: message.configuration,
        started_unix_ms: message.started_unix_ms,
        nodes: message.nodes,
    })
}

/// Encodes the record of a replica.
pub fn encode_replica_record(record: &ReplicaRecord) -> Vec<u8> {
    let message = ReplicaRecordMessage {
        replica: record.replica.clone(),
        instance: record.instance,
        listen: record.listen.clone(),
        version: record.version.clone(),
        configuration: record.configuration,
        started_unix_ms: record.started_unix_ms,
        nodes: record.nodes,
    };
    message.encode_to_vec()
}

/// Decodes the record of a plan. Rates that are no rates are an error: they would stay in the
/// smoothed demand of every replica.
pub fn decode_plan_record(bytes: &[u8]) -> Result<PlanRecord, DecodeError> {
    let message = PlanRecordMessage::decode(bytes)?;
    let cause = match message.cause() {
        PlanCauseMessage::FractionsMoved => UpdateCause::FractionsMoved,
        PlanCauseMessage::FirstData => UpdateCause::FirstData,
        PlanCauseMessage::Heartbeat => UpdateCause::Heartbeat,
        PlanCauseMessage::Confirmation => UpdateCause::Confirmation,
        PlanCauseMessage::NoData => UpdateCause::NoData,
        PlanCauseMessage::WarmedUp => UpdateCause::WarmedUp,
        PlanCauseMessage::ZonesChanged => UpdateCause::ZonesChanged,
    };
    let history = message.history.map(|history| spilling(history.spilling));
    let mut zones: Vec<SharedZone> = Vec::with_capacity(message.zones.len());
    for (index, zone) in message.zones.into_iter().enumerate() {
        let error = |field: &str, reason: &str| {
            let path = format!("zones[{index}].{field}");
            Err(DecodeError::new(path, reason))
        };
        let locality = zone.locality.map(Into::into).unwrap_or_default();
        if zones.last().is_some_and(|last| last.locality >= locality) {
            return error("locality", "is not above the one before it");
        }
        if !zone.rate_per_second.is_finite() || zone.rate_per_second < 0.0 {
            return error("rate_per_second", "is not a rate");
        }
        zones.push(SharedZone {
            locality,
            rate_per_second: zone.rate_per_second,
            reporters: zone.reporters,
            estimated: zone.estimated,
        });
    }
    Ok(PlanRecord {
        instance: message.instance,
        cause,
        warming_up: message.warming_up,
        zones,
        spilling: history.transpose()?,
    })
}

/// Decodes zones that spill. Averages that are no rates would stay in the plans of every replica.
fn spilling(messages: Vec<SpillingZoneMessage>) -> Result<Vec<SharedSpilling>, DecodeError> {
    let decode = |(index, zone): (usize, SpillingZoneMessage)| {
        let rates = [zone.fast, zone.slow];
        if rates.iter().any(|rate| !rate.is_finite() || *rate < 0.0) {
            let path = format!("history.spilling[{index}]");
            return Err(DecodeError::new(path, "has an average that is not a rate"));
        }
        let below = Duration::from_micros(zone.below_us);
        Ok(SharedSpilling {
            locality: zone.locality.map(Into::into).unwrap_or_default(),
            fast: zone.fast,
            slow: zone.slow,
            age: Duration::from_micros(zone.age_us),
            below: (zone.reports_below > 0).then_some((zone.reports_below, below)),
        })
    };
    messages.into_iter().enumerate().map(decode).collect()
}

fn spilling_message(zone: &SharedSpilling) -> SpillingZoneMessage {
    let micros = |age: Duration| u64::try_from(age.as_micros()).unwrap_or(u64::MAX);
    let (reports_below, below) = zone.below.unwrap_or_default();
    SpillingZoneMessage {
        locality: Some((&zone.locality).into()),
        fast: zone.fast,
        slow: zone.slow,
        age_us: micros(zone.age),
        reports_below,
        below_us: micros(below),
    }
}

/// Encodes the record of a plan.
pub fn encode_plan_record(record: &PlanRecord) -> Vec<u8> {
    let cause = match record.cause {
        UpdateCause::FractionsMoved => PlanCauseMessage::FractionsMoved,
        UpdateCause::FirstData => PlanCauseMessage::FirstData,
        UpdateCause::Heartbeat => PlanCauseMessage::Heartbeat,
        UpdateCause::Confirmation => PlanCauseMessage::Confirmation,
        UpdateCause::NoData => PlanCauseMessage::NoData,
        UpdateCause::WarmedUp => PlanCauseMessage::WarmedUp,
        UpdateCause::ZonesChanged => PlanCauseMessage::ZonesChanged,
    };
    let zone = |zone: &SharedZone| PlanZoneMessage {
        locality: Some((&zone.locality).into()),
        rate_per_second: zone.rate_per_second,
        reporters: zone.reporters,
        estimated: zone.estimated,
    };
    let message = PlanRecordMessage {
        instance: record.instance,
        cause: cause.into(),
        warming_up: record.warming_up,
        zones: record.zones.iter().map(zone).collect(),
        history: record.spilling.as_ref().map(|zones| PlanHistoryMessage {
            spilling: zones.iter().map(spilling_message).collect(),
        }),
    };
    message.encode_to_vec()
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::load_report::{ClusterStats, Node, UpstreamLocalityStats};
    use plimsoll_core::model::locality::Locality;

    use super::*;
    use crate::node::NodeInfo;

    fn record() -> NodeRecord {
        NodeRecord {
            replica: "r1".into(),
            instance: u64::MAX,
            node: NodeInfo {
                node: Node {
                    id: "proxy-1".into(),
                    cluster: "edge".into(),
                    locality: Locality::new("r", "a", ""),
                },
                user_agent_name: "envoy".into(),
                user_agent_version: "1.40.0".into(),
                client_features: vec!["x".into()],
            },
            cluster_stats: vec![ClusterStats {
                cluster_name: "orders".into(),
                upstream_locality_stats: vec![UpstreamLocalityStats {
                    locality: Locality::zone_only("b"),
                    total_issued_requests: 600,
                    total_unissued_requests: Some(70),
                    ..Default::default()
                }],
                total_dropped_requests: 3,
                load_report_interval: Duration::from_millis(9_998),
            }],
        }
    }

    #[test]
    fn a_node_survives_a_round_trip() {
        let bytes = encode_node_record(&record());
        assert_eq!(decode_node_record(&bytes).unwrap(), record());
        let silent = NodeRecord {
            cluster_stats: Vec::new(),
            ..record()
        };
        let bytes = encode_node_record(&silent);
        assert_eq!(decode_node_record(&bytes).unwrap(), silent);
    }

    #[test]
    fn a_record_without_a_node_is_an_error() {
        let error = decode_node_record(&[]).unwrap_err();
        assert_eq!(error.to_string(), "report.node: is missing");
        assert!(decode_node_record(&[0xff]).is_err());
    }

    #[test]
    fn a_replica_survives_a_round_trip() {
        let replica = ReplicaRecord {
            replica: "r1".into(),
            instance: 7,
            listen: "10.0.0.1:18000".into(),
            version: "0.1.0".into(),
            configuration: 0xfeed,
            started_unix_ms: 1_800_000_000_000,
            nodes: 5000,
        };
        let bytes = encode_replica_record(&replica);
        assert_eq!(decode_replica_record(&bytes).unwrap(), replica);
        assert!(decode_replica_record(&[0xff]).is_err());
    }

    fn plan(zones: &[(&str, f64)]) -> PlanRecord {
        let zone = |&(zone, rate_per_second): &(&str, f64)| SharedZone {
            locality: Locality::zone_only(zone),
            rate_per_second,
            reporters: 3,
            estimated: zone == "b",
        };
        PlanRecord {
            instance: 7,
            cause: UpdateCause::NoData,
            warming_up: true,
            zones: zones.iter().map(zone).collect(),
            spilling: None,
        }
    }

    #[test]
    fn the_history_of_a_plan_survives_a_round_trip() {
        let zone = |name, below| SharedSpilling {
            locality: Locality::zone_only(name),
            fast: 0.1 + 0.2,
            slow: 1e15,
            age: Duration::from_micros(2_000_001),
            below,
        };
        let below = Some((2, Duration::from_secs(7)));
        for spilling in [Vec::new(), vec![zone("a", None), zone("b", below)]] {
            let plan = PlanRecord {
                spilling: Some(spilling),
                ..plan(&[("a", 1.0)])
            };
            assert_eq!(decode_plan_record(&encode_plan_record(&plan)), Ok(plan));
        }
        let wrong = SharedSpilling {
            fast: f64::NAN,
            ..zone("a", None)
        };
        let plan = PlanRecord {
            spilling: Some(vec![wrong]),
            ..plan(&[])
        };
        let error = decode_plan_record(&encode_plan_record(&plan)).unwrap_err();
        assert_eq!(error.path(), "history.spilling[0]");
    }

    #[test]
    fn a_plan_survives_a_round_trip() {
        for cause in [
            UpdateCause::FirstData,
            UpdateCause::FractionsMoved,
            UpdateCause::Heartbeat,
            UpdateCause::Confirmation,
            UpdateCause::NoData,
            UpdateCause::WarmedUp,
            UpdateCause::ZonesChanged,
        ] {
            let plan = PlanRecord {
                cause,
                ..plan(&[("a", 0.1 + 0.2), ("b", 0.0)])
            };
            let bytes = encode_plan_record(&plan);
            assert_eq!(decode_plan_record(&bytes).unwrap(), plan);
        }
        let empty = plan(&[]);
        let bytes = encode_plan_record(&empty);
        assert_eq!(decode_plan_record(&bytes).unwrap(), empty);
    }

    #[test]
    fn a_plan_with_wrong_zones_is_an_error() {
        let not_above = "zones[1].locality: is not above the one before it";
        let no_rate = "zones[1].rate_per_second: is not a rate";
        for (zones, expected) in [
            ([("b", 1.0), ("a", 1.0)], not_above),
            ([("a", 1.0), ("a", 1.0)], not_above),
            ([("a", 1.0), ("b", f64::NAN)], no_rate),
            ([("a", 1.0), ("b", f64::INFINITY)], no_rate),
            ([("a", 1.0), ("b", -1.0)], no_rate),
        ] {
            let bytes = encode_plan_record(&plan(&zones));
            let error = decode_plan_record(&bytes).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        assert!(decode_plan_record(&[0xff]).is_err());
    }
}
