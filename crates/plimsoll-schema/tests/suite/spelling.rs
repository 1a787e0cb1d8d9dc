//! Equivalent spellings: YAML and JSON, anchors, the order of fields.

use super::accepted;

#[test]
fn json_and_anchors_are_supported() {
    let json = r#"{"name": "a", "lb_policy": "LEAST_REQUEST",
                   "least_request_lb_config": {"choice_count": 3}}"#;
    let yaml = "name: a\nlb_policy: LEAST_REQUEST\nleast_request_lb_config:\n  choice_count: 3\n";
    assert_eq!(accepted(json), accepted(yaml));
    let shared = "typed_extension_protocol_options: {x: {'@type': y, z: &three \
                  {choice_count: 3}}}\nname: a\nlb_policy: LEAST_REQUEST\n";
    let alias = format!("{shared}least_request_lb_config: *three\n");
    let merged = format!("{shared}least_request_lb_config: {{<<: *three}}\n");
    let settings = |text: &str| accepted(text).least_request_lb_config;
    assert_eq!(settings(&alias), settings(yaml));
    assert_eq!(settings(&merged), settings(yaml));
    assert!(settings(yaml).is_some());
}

#[test]
fn the_order_of_fields_does_not_matter() {
    let fields = [
        "name: a",
        "lb_policy: 3",
        "common_lb_config: {}",
        "type: EDS",
    ];
    let forward = fields.join("\n");
    let mut backward = fields;
    backward.reverse();
    assert_eq!(accepted(&forward), accepted(&backward.join("\n")));
}
