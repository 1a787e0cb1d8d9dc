//! Files that cannot be read, with path, location and reason.

use plimsoll_schema::yaml::Document;

use super::{accepted, error_of};

const TYPED_CONFIG: &str = "load_balancing_policy.policies[0].typed_extension_config.typed_config";

/// Cluster with these fields of `zone_aware_lb_config`, which start at 7:53.
fn rules(fields: &str) -> String {
    format!(
        "name: orders\n\
         load_balancing_policy:\n  \
           policies:\n  \
           - typed_extension_config:\n      \
               name: any\n      \
               typed_config:\n        \
                 locality_lb_config: {{zone_aware_lb_config: {{{fields}}}}}\n        \
                 \"@type\": type.googleapis.com/envoy.extensions.load_balancing_policies.\
                 round_robin.v3.RoundRobin\n"
    )
}

#[test]
fn a_typo_is_reported_with_path_location_and_suggestion() {
    let text = rules("min_cluster_sise: 3");
    assert_eq!(
        error_of(&text).to_string(),
        format!(
            "{TYPED_CONFIG}.locality_lb_config.zone_aware_lb_config.min_cluster_sise: unknown \
             field, did you mean min_cluster_size? (at 7:53)"
        )
    );
    let far = error_of(&rules("smallest: 3")).to_string();
    assert!(
        far.contains(
            "unknown field, expected one of routing_enabled, min_cluster_size, \
             fail_traffic_on_panic, force_locality_direct_routing, force_local_zone, \
             locality_basis, lrs_rate_config, upstream_locality_basis, dead_band_bp, \
             all_priorities, observed_load_period (at 7:53)"
        ),
        "{far}"
    );
}

#[test]
fn deep_nesting_is_rejected() {
    // A field with arbitrary content, so that only the depth can be wrong.
    for (open, close) in [("{a: ", "}"), ("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| {
            let (open, close) = (open.repeat(depth), close.repeat(depth));
            format!("{{name: a, metadata: {{filter_metadata: {{x: {{a: {open}1{close}}}}}}}}}")
        };
        accepted(&nested(20));
        for depth in [32, 100, 1_000] {
            error_of(&nested(depth));
        }
    }
}

#[test]
fn an_alias_bomb_is_rejected() {
    let mut text = "name: a\nmetadata:\n  x0: &x0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
    for level in 1..12 {
        let previous = format!("*x{}, ", level - 1).repeat(10);
        text += &format!("  x{level}: &x{level} [{previous}]\n");
    }
    let error = Document::parse(&text).unwrap_err();
    assert!(error.location().is_some(), "{error}");
}
