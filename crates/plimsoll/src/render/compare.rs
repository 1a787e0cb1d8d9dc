//! Lines of `plimsoll top` that compare what proxies do now with what ENFORCE would do.

use plimsoll_admin::api::{TotalLoad, ZoneLoad};
use plimsoll_admin::state::{ClusterState, ZoneState};

/// Zones that are listed; the rest is counted.
const MAX_ZONES: usize = 6;

/// Returns the comparison, or why a side of it is not known; empty if the service is enforced, and
/// for hosts without modes.
pub(super) fn lines(cluster: &ClusterState) -> Vec<String> {
    let is_enforced =
        cluster.mode.as_deref() == Some("ENFORCE") && cluster.ramp_percent.unwrap_or(100) >= 100;
    if cluster.mode.is_none() || is_enforced && cluster.now.is_some() {
        return Vec::new();
    }
    let shown = |load: &Option<TotalLoad>, unknown: &Option<String>| match load {
        Some(load) => total(load),
        None => format!(
            "not known, {}",
            unknown.as_deref().unwrap_or("not computed yet")
        ),
    };
    let mut lines = vec![format!(
        "now: {}",
        shown(&cluster.now, &cluster.now_unknown)
    )];
    // Without demand the same reason twice tells nobody more.
    if cluster.enforce.is_some() || cluster.enforce_unknown != cluster.now_unknown {
        let enforce = shown(&cluster.enforce, &cluster.enforce_unknown);
        lines.push(format!("with ENFORCE: {enforce}"));
    }
    let mut zones: Vec<(&ZoneState, &ZoneLoad, &ZoneLoad)> = cluster
        .zones
        .iter()
        .filter_map(|zone| Some((zone, zone.now.as_ref()?, zone.enforce.as_ref()?)))
        .filter(|(_, now, _)| now.load.is_some())
        .collect();
    zones.sort_by(|(_, a, _), (_, b, _)| b.load.unwrap_or(0.0).total_cmp(&a.load.unwrap_or(0.0)));
    let more = zones.len().saturating_sub(MAX_ZONES);
    let load = |planned: &ZoneLoad| planned.load.map_or("–".into(), |load| format!("{load:.2}"));
    let mut shown: Vec<String> = zones
        .iter()
        .take(MAX_ZONES)
        .map(|(zone, now, enforce)| format!("{} {} → {}", zone.locality, load(now), load(enforce)))
        .collect();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    if !shown.is_empty() {
        lines.push(format!("load now → with ENFORCE: {}", shown.join(", ")));
    }
    lines
}

fn total(total: &TotalLoad) -> String {
    let kept = total.kept_local.unwrap_or(0.0) * 100.0;
    let (highest, cross) = (
        total.highest_load.unwrap_or(0.0),
        total.cross_zone_requests_per_second,
    );
    let usd = total.usd_per_month;
    format!(
        "highest load {highest:.2}, {kept:.1} % kept local, {cross:.1} requests/s between zones, \
         about ${usd:.2}/month"
    )
}

#[cfg(test)]
mod tests {
    use plimsoll_core::model::locality::Locality;

    use super::*;

    fn cluster(mode: &str, ramp: u32) -> ClusterState {
        let planned = |load| {
            Some(ZoneLoad {
                load: Some(load),
                ..ZoneLoad::default()
            })
        };
        let zone = |name: &str, now, enforce| ZoneState {
            locality: Locality::zone_only(name),
            now: planned(now),
            enforce: planned(enforce),
            ..ZoneState::default()
        };
        let total = |highest, cross| {
            Some(TotalLoad {
                requests_per_second: 5.0 * cross,
                cross_zone_requests_per_second: cross,
                kept_local: Some(0.8),
                highest_load: Some(highest),
                usd_per_month: cross,
            })
        };
        ClusterState {
            mode: Some(mode.to_owned()),
            ramp_percent: Some(ramp),
            zones: vec![zone("b", 0.7, 1.0), zone("a", 1.52, 1.01)],
            now: total(1.52, 0.0),
            enforce: total(1.01, 20.0),
            ..ClusterState::default()
        }
    }

    #[test]
    fn shadow_shows_both_and_the_busiest_zone_first() {
        let lines = lines(&cluster("SHADOW", 100));
        assert!(lines[0].starts_with("now: highest load 1.52"), "{lines:?}");
        assert!(lines[1].contains("20.0 requests/s between zones, about $20.00/month"));
        assert!(
            lines[2].ends_with("a 1.52 → 1.01, b 0.70 → 1.00"),
            "{lines:?}"
        );
    }

    #[test]
    fn an_enforced_service_needs_no_comparison() {
        assert_eq!(lines(&cluster("ENFORCE", 100)), [""; 0]);
        assert_eq!(lines(&cluster("ENFORCE", 50)).len(), 3);
        assert_eq!(lines(&ClusterState::default()), [""; 0]);
    }

    #[test]
    fn what_is_not_known_has_a_reason() {
        let mut cluster = cluster("SHADOW", 100);
        cluster.enforce = None;
        cluster.enforce_unknown = Some("only proxies can tell".to_owned());
        let shown = lines(&cluster);
        assert!(shown[0].starts_with("now: highest load"), "{shown:?}");
        assert_eq!(shown[1], "with ENFORCE: not known, only proxies can tell");
        cluster.now = None;
        cluster.now_unknown = cluster.enforce_unknown.clone();
        cluster.zones.clear();
        assert_eq!(lines(&cluster), ["now: not known, only proxies can tell"]);
    }
}
