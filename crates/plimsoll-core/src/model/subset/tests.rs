//! Tests of the validation of subset settings, and of which fallbacks apply.

use super::*;

fn selector(keys: &[&str], fallback_policy: SelectorFallbackPolicy) -> SubsetSelectorParts {
    SubsetSelectorParts {
        keys: keys.iter().map(ToString::to_string).collect(),
        fallback_policy,
        ..Default::default()
    }
}

fn keys_subset(keys: &[&str], kept: &[&str]) -> SubsetSelectorParts {
    SubsetSelectorParts {
        fallback_keys_subset: kept.iter().map(ToString::to_string).collect(),
        ..selector(keys, SelectorFallbackPolicy::KeysSubset)
    }
}

fn config(subset_selectors: Vec<SubsetSelectorParts>) -> Result<LbSubsetConfig, FieldError> {
    LbSubsetConfig::try_new(LbSubsetConfigParts {
        subset_selectors,
        ..Default::default()
    })
}

fn fallback_selector(config: &LbSubsetConfig, keys: &[&str]) -> Option<SelectorFallbackPolicy> {
    let selector = config.fallback_selector(keys.iter().copied());
    selector.map(SubsetSelector::fallback_policy)
}

#[test]
fn keys_are_a_sorted_set_and_selectors_without_keys_are_ignored() {
    let config = config(vec![
        SubsetSelectorParts::default(),
        selector(&["b", "a", "b"], SelectorFallbackPolicy::NotDefined),
    ])
    .unwrap();
    assert!(config.is_enabled());
    let [selector] = config.subset_selectors() else {
        panic!("one selector has keys");
    };
    assert_eq!(*selector.keys(), ["a".into(), "b".into()]);
    assert_eq!(config.max_subsets(), DEFAULT_MAX_SUBSETS);
}

#[test]
fn without_selectors_subsets_are_disabled() {
    assert!(!config(Vec::new()).unwrap().is_enabled());
    let without_keys = config(vec![SubsetSelectorParts::default()]).unwrap();
    assert!(without_keys.is_enabled(), "as in Envoy");
}

#[test]
fn fallback_keys_must_be_a_proper_subset() {
    let any = SubsetSelectorParts {
        fallback_policy: SelectorFallbackPolicy::AnyEndpoint,
        ..keys_subset(&["a", "b"], &["a"])
    };
    let cases = [
        (any, "may be set only with"),
        (keys_subset(&["a", "b"], &[]), "must not be empty"),
        (keys_subset(&["a", "b"], &["a", "c"]), "\"c\" is not one of"),
        (
            keys_subset(&["a", "b"], &["b", "a", "b"]),
            "must not be all",
        ),
    ];
    for (selector, reason) in cases {
        let fine = keys_subset(&["x", "y"], &["y"]);
        let error = config(vec![fine, selector]).unwrap_err();
        assert_eq!(error.path(), "subset_selectors[1].fallback_keys_subset");
        assert!(error.reason().contains(reason), "{error}");
    }
}

#[test]
fn a_selector_fallback_applies_only_if_its_last_key_is_new() {
    let (none, any) = (
        SelectorFallbackPolicy::NoFallback,
        SelectorFallbackPolicy::AnyEndpoint,
    );
    let longer_first = config(vec![selector(&["v", "s"], any), selector(&["s"], none)]).unwrap();
    assert_eq!(fallback_selector(&longer_first, &["s"]), None);
    assert_eq!(fallback_selector(&longer_first, &["s", "v"]), Some(any));
    assert_eq!(fallback_selector(&longer_first, &["v"]), None);
    let shorter_first = config(vec![selector(&["s"], none), selector(&["v", "s"], any)]).unwrap();
    assert_eq!(fallback_selector(&shorter_first, &["s"]), Some(none));
    let twice = config(vec![selector(&["s"], none), selector(&["s"], any)]).unwrap();
    assert_eq!(fallback_selector(&twice, &["s"]), Some(none));
    assert!(!twice.uses_any_endpoint(), "its fallback does not count");
    assert!(longer_first.uses_any_endpoint());
}

#[test]
fn with_redundant_keys_the_longest_selector_comes_first() {
    let policy = SelectorFallbackPolicy::NotDefined;
    let lists: [&[&str]; 4] = [&["a"], &["a", "b"], &["a", "b", "c"], &["a", "d"]];
    let parts = LbSubsetConfigParts {
        subset_selectors: lists.iter().map(|keys| selector(keys, policy)).collect(),
        allow_redundant_keys: true,
        ..Default::default()
    };
    let config = LbSubsetConfig::try_new(parts).unwrap();
    let held: Vec<String> = config
        .subset_selectors()
        .iter()
        .map(|selector| selector.keys().concat())
        .collect();
    assert_eq!(held, ["abc", "ab", "ad", "a"]);
}

#[test]
fn fallbacks_report_which_hosts_they_need() {
    let of = |fallback_policy, panic_mode_any| {
        let parts = LbSubsetConfigParts {
            fallback_policy,
            panic_mode_any,
            ..Default::default()
        };
        let config = LbSubsetConfig::try_new(parts).unwrap();
        (config.uses_any_endpoint(), config.uses_default_subset())
    };
    assert_eq!(of(SubsetFallbackPolicy::NoFallback, false), (false, false));
    assert_eq!(of(SubsetFallbackPolicy::NoFallback, true), (true, false));
    assert_eq!(of(SubsetFallbackPolicy::AnyEndpoint, false), (true, false));
    assert_eq!(of(SubsetFallbackPolicy::DefaultSubset, true), (true, true));
    let selector = selector(&["a"], SelectorFallbackPolicy::DefaultSubset);
    assert!(config(vec![selector]).unwrap().uses_default_subset());
}

#[test]
fn max_subsets_is_range_checked() {
    for (max_subsets, fine) in [(0, false), (1, true), (1_000_000, true), (1_000_001, false)] {
        let parts = LbSubsetConfigParts {
            max_subsets: Some(max_subsets),
            ..Default::default()
        };
        let made = LbSubsetConfig::try_new(parts);
        assert_eq!(made.is_ok(), fine, "{max_subsets}");
        if let Err(error) = made {
            assert_eq!(error.path(), "max_subsets");
        }
    }
}
