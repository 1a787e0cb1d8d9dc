//! Counters of routes that a management server sends, under Envoy's names: `http.PREFIX.rds.NAME.`.
//!
//! Counted by the client; a listener names what it follows.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use plimsoll_client::RouteStatus;
use xxhash_rust::xxh64::xxh64;

use crate::config::RouteSource;
use crate::state::State;
use crate::stats::RDS;

/// Routes by the prefix of a listener and by their own name.
pub(super) type Followed = BTreeMap<(String, Arc<str>), RouteStatus>;

/// What the listeners follow; two with one prefix share what has one name, as in Envoy.
pub(super) fn followed(state: &State) -> Followed {
    let status = state.client.xds_status().unwrap_or_default();
    let running = state.running().into_iter();
    let followed = running.filter_map(|running| {
        let config = Arc::clone(&running.listener.runtime().config);
        let RouteSource::Rds(name) = &config.routes else {
            return None;
        };
        let key = (config.http.stat_prefix.clone(), Arc::clone(name));
        // Until the server has been asked, nothing has become of them.
        let status = status.routes.get(name).cloned();
        Some((key, status.unwrap_or_default()))
    });
    followed.collect()
}

/// Values in the order of [`RDS`].
fn values(status: &RouteStatus) -> [u64; RDS.len()] {
    let since = status.in_force.as_ref().map(|(_, since)| *since);
    let since = since.and_then(|since| since.duration_since(UNIX_EPOCH).ok());
    let since = since.map_or(0, |since| since.as_millis());
    let version = match &*status.version {
        "" => 0,
        version => xxh64(version.as_bytes(), 0),
    };
    [
        status.config_reload,
        u64::try_from(since).unwrap_or(u64::MAX),
        status.update_rejected,
        status.update_success,
        version,
    ]
}

/// `name: value` pairs.
pub(super) fn counters(followed: &Followed) -> impl Iterator<Item = (String, u64)> {
    followed.iter().flat_map(|((prefix, name), status)| {
        let values = RDS.iter().zip(values(status));
        let named = move |counter: &str| format!("http.{prefix}.rds.{name}.{counter}");
        values.map(move |((counter, _, _), value)| (named(counter), value))
    })
}

/// What is text: the version that was good last.
pub(super) fn texts(followed: &Followed) -> impl Iterator<Item = String> {
    followed.iter().map(|((prefix, name), status)| {
        let version = &status.version;
        format!("http.{prefix}.rds.{name}.version_text: \"{version}\"")
    })
}

/// Lines for Prometheus, with Envoy's labels.
pub(super) fn prometheus(followed: &Followed) -> String {
    let mut page = String::new();
    if followed.is_empty() {
        return page;
    }
    for (index, (counter, kind, help)) in RDS.iter().enumerate() {
        let family = format!("plimsoll_http_rds_{counter}");
        // Writing into a string does not fail.
        let _ = writeln!(page, "# HELP {family} {help}\n# TYPE {family} {kind}");
        for ((prefix, name), status) in followed {
            let _ = writeln!(
                page,
                "{family}{{plimsoll_rds_route_config={name:?},\
                 plimsoll_http_conn_manager_prefix={prefix:?}}} {}",
                values(status)[index]
            );
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn followed() -> Followed {
        let since = UNIX_EPOCH + Duration::from_millis(1_794_771_264_121);
        let status = RouteStatus {
            update_success: 2,
            update_rejected: 3,
            config_reload: 1,
            version: "v8".into(),
            in_force: Some(("v7".into(), since)),
        };
        let none = RouteStatus::default();
        [
            (("front".to_owned(), "far.routes".into()), status),
            (("back".to_owned(), "r".into()), none),
        ]
        .into()
    }

    #[test]
    fn counters_have_envoys_names_and_versions_envoys_numbers() {
        let counters: Vec<_> = counters(&followed()).collect();
        let of = |name: &str, value| (format!("http.front.rds.far.routes.{name}"), value);
        let expected = [
            of("config_reload", 1),
            of("config_reload_time_ms", 1_794_771_264_121),
            of("update_rejected", 3),
            of("update_success", 2),
            // As a running Envoy says it.
            of("version", 15_701_665_227_093_768_493),
        ];
        assert_eq!(counters[5..], expected);
        assert!(counters[..5].iter().all(|(_, value)| *value == 0));
        let texts: Vec<_> = texts(&followed()).collect();
        assert_eq!(texts[1], "http.front.rds.far.routes.version_text: \"v8\"");
    }

    #[test]
    fn prometheus_has_the_names_as_labels() {
        let page = prometheus(&followed());
        let lines = [
            "# TYPE plimsoll_http_rds_update_success counter",
            "plimsoll_http_rds_update_success{plimsoll_rds_route_config=\"far.routes\",\
             plimsoll_http_conn_manager_prefix=\"front\"} 2",
            "# TYPE plimsoll_http_rds_version gauge",
        ];
        for line in lines {
            assert!(page.lines().any(|found| found == line), "{page}");
        }
        assert_eq!(prometheus(&Followed::new()), "");
    }
}
