//! RDS statistics under Envoy's names: `http.PREFIX.rds.NAME.`. The client counts per route
//! configuration NAME; PREFIX is the `stat_prefix` of the listener that uses it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use plimsoll_client::RouteStatus;
use plimsoll_core::stats::Families;
use xxhash_rust::xxh64::xxh64;

use crate::state::State;
use crate::stats::RouteStats;

/// Status of route configurations, by `stat_prefix` of the listener and name of the routes.
pub(super) type RdsStatuses = BTreeMap<(String, Arc<str>), RouteStatus>;

/// Returns the status of the route configurations that listeners use. Listeners with the same
/// `stat_prefix` share an entry, as in Envoy.
pub(super) fn statuses(state: &State) -> RdsStatuses {
    let status = state.client.xds_status().unwrap_or_default();
    let listeners = state.listeners().into_iter();
    let mut statuses = RdsStatuses::new();
    for running in listeners {
        for chain in &running.listener.runtime().config.chains {
            let Some(name) = chain.rds_name() else {
                continue;
            };
            let key = (chain.http.stat_prefix.clone(), Arc::clone(name));
            // There is no status until the client has subscribed to these routes.
            let status = status.routes.get(name).cloned();
            statuses.insert(key, status.unwrap_or_default());
        }
    }
    statuses
}

fn stats(status: &RouteStatus) -> RouteStats {
    let reload_time = status
        .in_force
        .as_ref()
        .and_then(|(_, since)| since.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |since| since.as_millis());
    RouteStats {
        config_reload: status.config_reload,
        config_reload_time_ms: u64::try_from(reload_time).unwrap_or(u64::MAX),
        update_rejected: status.update_rejected,
        update_success: status.update_success,
        version: match &*status.version {
            "" => 0,
            version => xxh64(version.as_bytes(), 0),
        },
    }
}

pub(super) fn counters(statuses: &RdsStatuses) -> impl Iterator<Item = (String, u64)> {
    statuses.iter().flat_map(|((prefix, name), status)| {
        let named = move |counter: &str| format!("http.{prefix}.rds.{name}.{counter}");
        stats(status)
            .iter()
            .map(move |(counter, value)| (named(counter), value))
    })
}

/// Returns the statistics that are texts: the version that was accepted last.
pub(super) fn texts(statuses: &RdsStatuses) -> impl Iterator<Item = String> {
    statuses.iter().map(|((prefix, name), status)| {
        let version = &status.version;
        format!("http.{prefix}.rds.{name}.version_text: \"{version}\"")
    })
}

/// Adds the RDS statistics in Prometheus format, with Envoy's labels.
pub(super) fn expose(statuses: &RdsStatuses, families: &mut Families) {
    for ((prefix, name), status) in statuses {
        for (metric, value) in stats(status).samples() {
            let exposed = metric.exposed_name("plimsoll_http_rds_");
            families.add(exposed, metric, &[name, prefix], value);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::stats::TextFormat;

    use super::*;

    fn statuses() -> RdsStatuses {
        let since = UNIX_EPOCH + Duration::from_millis(1_794_771_264_121);
        let status = RouteStatus {
            update_success: 2,
            update_rejected: 3,
            config_reload: 1,
            version: "v8".into(),
            in_force: Some(("v7".into(), since)),
            ..RouteStatus::default()
        };
        let none = RouteStatus::default();
        [
            (("front".to_owned(), "far.routes".into()), status),
            (("back".to_owned(), "r".into()), none),
        ]
        .into()
    }

    #[test]
    fn counters_and_version_hashes_match_envoy() {
        let counters: Vec<_> = counters(&statuses()).collect();
        let of = |name: &str, value| (format!("http.front.rds.far.routes.{name}"), value);
        let expected = [
            of("config_reload", 1),
            of("config_reload_time_ms", 1_794_771_264_121),
            of("update_rejected", 3),
            of("update_success", 2),
            // Hash copied from the statistics of a running Envoy.
            of("version", 15_701_665_227_093_768_493),
        ];
        assert_eq!(counters[5..], expected);
        assert!(counters[..5].iter().all(|(_, value)| *value == 0));
        let texts: Vec<_> = texts(&statuses()).collect();
        assert_eq!(texts[1], "http.front.rds.far.routes.version_text: \"v8\"");
    }

    #[test]
    fn prometheus_metrics_have_labels_for_names() {
        let mut families = Families::default();
        expose(&statuses(), &mut families);
        let page = families.text(TextFormat::Prometheus);
        let lines = [
            "# TYPE plimsoll_http_rds_update_success counter",
            "plimsoll_http_rds_update_success{plimsoll_rds_route_config=\"far.routes\",\
             plimsoll_http_conn_manager_prefix=\"front\"} 2",
            "# TYPE plimsoll_http_rds_version gauge",
        ];
        for line in lines {
            assert!(page.lines().any(|found| found == line), "{page}");
        }
    }
}
