//! Subsets in both forms, and clients without subset support.

use super::*;
use plimsoll_schema::pb::subset::SubsetMessage;

#[test]
fn legacy_and_typed_subsets_are_equivalent() {
    let legacy = |fields: &str| {
        let text = format!(
            "{{name: up, lb_policy: RANDOM, lb_subset_config: {{{fields}}}, common_lb_config: \
             {{locality_weighted_lb_config: {{}}}}}}"
        );
        parse_cluster(&text).unwrap_or_else(|error| panic!("{fields}: {error}"))
    };
    let child = "subset_lb_policy: {policies: [{typed_extension_config: {name: c, typed_config: \
                 {'@type': type.googleapis.com/envoy.extensions.load_balancing_policies.random.v3.\
                 Random, locality_lb_config: {locality_weighted_lb_config: {}}}}}]}";
    for fields in [
        "subset_selectors: [{keys: [a]}]",
        "fallback_policy: DEFAULT_SUBSET, default_subset: {a: 1}, subset_selectors: [{keys: [a, \
         b], fallback_policy: KEYS_SUBSET, fallback_keys_subset: [b]}, {keys: [c], \
         single_host_per_subset: true}], locality_weight_aware: true, scale_locality_weight: \
         true, panic_mode_any: true, list_as_any: true, metadata_fallback_policy: FALLBACK_LIST",
    ] {
        let wanted = legacy(fields);
        assert!(wanted.lb_subset_config().is_some(), "{fields}");
        assert_eq!(
            yaml(&format!("subset.v3.Subset', {fields}, {child}}}")),
            wanted
        );
        // Encoded as policy; the legacy field has the same body without the policy.
        let out = ClusterOut::new(&wanted, LocalityDelivery::Stock);
        let written = encode_cluster(&out);
        assert_eq!(decode_cluster(&written).unwrap().config, wanted, "{fields}");
        let message = ClusterMessage::decode(written).unwrap();
        let policy = &message.load_balancing_policy.unwrap().policies[0];
        let config = policy.typed_extension_config.as_ref().unwrap();
        let mut subsets: SubsetMessage = config.typed_config.as_ref().unwrap().unpack().unwrap();
        subsets.subset_lb_policy = None;
        let old = ClusterMessage {
            name: "up".into(),
            lb_policy: 3,
            lb_subset_config: Some(subsets),
            common_lb_config: Some(CommonLbConfigMessage {
                locality_weighted_lb_config: Some(()),
                ..Default::default()
            }),
            ..Default::default()
        };
        let read = decode_cluster(&old.encode_to_vec()).unwrap().config;
        assert_eq!(read, wanted, "{fields}");
    }
    // Without selectors there are no subsets, as in Envoy.
    let none = legacy("fallback_policy: ANY_ENDPOINT");
    assert_eq!(none.lb_subset_config(), None);
    assert_eq!(
        decode_cluster(&hex("0a0178 b20102 0801"))
            .unwrap()
            .config
            .lb_subset_config(),
        None
    );
}

#[test]
fn grpc_gets_the_policy_within_subsets() {
    let around = |policy: &&&str| policy.starts_with("subset.v3");
    let config = yaml(POLICIES.iter().find(around).unwrap());
    let bytes = encode_cluster(&ClusterOut::new(&config, LocalityDelivery::Grpc));
    let read = decode_cluster(&bytes).unwrap().config;
    assert_eq!(read.lb_subset_config(), None);
    assert_eq!(read.endpoint_policy().name(), "least_request");
}

#[test]
fn replacing_the_policy_keeps_subsets() {
    // lb_policy RANDOM with lb_subset_config of one selector.
    let original = hex("0a0178 3003 b20105 1a03 0a0161");
    let config = decode_cluster(&original).unwrap().config;
    let written = rewrite_cluster_policy(&original, &config, LocalityDelivery::Stock).unwrap();
    let numbers: Vec<_> = raw_fields(&written)
        .map(|field| field.unwrap().number)
        .collect();
    assert_eq!(numbers, [1, 41], "Envoy refuses both forms in one cluster");
    let read = decode_cluster(&written).unwrap().config;
    assert_eq!(read.lb_subset_config(), config.lb_subset_config());
}
