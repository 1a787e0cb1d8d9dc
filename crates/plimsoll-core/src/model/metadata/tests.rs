//! Tests of equality, text form and match criteria of metadata.

use super::*;

fn number(value: f64) -> MetadataValue {
    MetadataValue::number(value).unwrap()
}

fn fields<const N: usize>(pairs: [(&str, MetadataValue); N]) -> Metadata {
    pairs.into_iter().collect()
}

#[test]
fn values_are_equal_by_kind_and_content() {
    assert_eq!(number(1.0), number(1.0));
    assert_eq!(number(0.0), number(-0.0));
    assert_ne!(number(1.0), "1".into());
    assert_ne!(MetadataValue::from(true), "true".into());
    assert_ne!(MetadataValue::Null, false.into());
    let list = |values: [&str; 2]| MetadataValue::list(values.map(MetadataValue::from));
    assert_eq!(list(["a", "b"]), list(["a", "b"]));
    assert_ne!(list(["a", "b"]), list(["b", "a"]));
    let one = fields([("a", true.into()), ("b", MetadataValue::Null)]);
    let other = fields([("b", MetadataValue::Null), ("a", true.into())]);
    assert_eq!(MetadataValue::from(one.clone()), other.into());
    assert_ne!(one, fields([("a", true.into())]));
}

#[test]
fn non_finite_numbers_are_rejected() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        assert!(MetadataValue::number(value).is_err(), "{value}");
    }
}

#[test]
fn labels_match_a_list_as_a_whole_or_by_its_elements() {
    let list = MetadataValue::list(["v1", "v2"].map(MetadataValue::from));
    let host = fields([("key1", "val1".into()), ("key2", list.clone())]);
    let label = |value: MetadataValue| fields([("key2", value)]);
    assert!(host.matches(&label("v2".into()), true));
    assert!(!host.matches(&label("v3".into()), true));
    assert!(!host.matches(&label("v2".into()), false));
    assert!(host.matches(&label(list.clone()), false));
    assert!(
        !host.matches(&label(list), true),
        "a list matches its elements"
    );
    assert!(host.matches(&Metadata::default(), false));
    assert!(Metadata::default().matches(&Metadata::default(), true));
    assert!(!Metadata::default().matches(&label("v1".into()), true));
}

#[test]
fn metadata_is_printed_as_json() {
    assert_eq!(Metadata::default().to_string(), "<no metadata>");
    let nested = fields([
        ("b", MetadataValue::list([number(2.0), number(0.5)])),
        ("a", MetadataValue::Null),
    ]);
    let all = fields([
        ("version", "a\"b<\n".into()),
        ("stage", true.into()),
        ("x", nested.into()),
    ]);
    let text = r#"stage=true, version="a\"b\u003c\n", x={"a":null,"b":[2,0.5]}"#;
    assert_eq!(all.to_string(), text);
    assert_eq!(number(-3.0).to_string(), "-3");
    assert_eq!(number(1e21).to_string(), "1e+21");
    assert_eq!(number(2.5e-7).to_string(), "2.5e-07");
    let pairs = [("z".into(), number(1.0)), ("a".into(), "x".into())];
    assert_eq!(DisplayMetadata(&pairs).to_string(), r#"z=1, a="x""#);
}

#[test]
fn criteria_are_sorted_merged_and_filtered() {
    let route = fields([("c", true.into()), ("a", "v1".into()), ("b", number(2.0))]);
    let criteria = MatchCriteria::new(route);
    let keys = |criteria: &MatchCriteria| -> Vec<String> {
        let pairs = criteria.metadata().iter();
        pairs.map(|(k, v)| format!("{k}={v}")).collect()
    };
    assert_eq!(keys(&criteria), ["a=\"v1\"", "b=2", "c=true"]);
    let over = fields([("a", "w".into()), ("b++", "v2".into())]);
    let merged = criteria.merged(&over);
    assert_eq!(
        keys(&merged),
        ["a=\"w\"", "b=2", "b++=\"v2\"", "c=true"],
        "the later value of a key wins"
    );
    assert_eq!(keys(&criteria.filtered(&["c", "x"])), ["c=true"]);
}

#[test]
fn equal_criteria_have_equal_hashes() {
    let hashes = |metadata: Metadata| -> Vec<u64> {
        let criteria = MatchCriteria::new(metadata);
        criteria.criteria().iter().map(|c| c.hash).collect()
    };
    let values = [
        MetadataValue::Null,
        false.into(),
        true.into(),
        number(0.0),
        number(1.0),
        "".into(),
        "1".into(),
        MetadataValue::list([]),
        MetadataValue::list([number(1.0)]),
        MetadataValue::list(["ab".into(), "c".into()]),
        MetadataValue::list(["a".into(), "bc".into()]),
        Metadata::default().into(),
        fields([("a", number(1.0))]).into(),
    ];
    for (i, one) in values.iter().enumerate() {
        for (j, other) in values.iter().enumerate() {
            let same =
                hashes(fields([("k", one.clone())])) == hashes(fields([("k", other.clone())]));
            assert_eq!(same, i == j, "{one} and {other}");
        }
    }
    let (ab, ba) = ([1, 2], [2, 1]);
    assert_ne!(
        criteria::combined_hash(ab.into_iter()),
        criteria::combined_hash(ba.into_iter())
    );
}

#[test]
fn fallback_list_entries_are_merged_over_the_other_criteria() {
    let attempts = |list: MetadataValue| -> Vec<String> {
        let route = fields([("version", "1".into()), (criteria::FALLBACK_LIST, list)]);
        let criteria = MatchCriteria::new(route);
        let text = |attempt: &Arc<[criteria::Criterion]>| {
            let pairs = attempt.iter().map(|c| format!("{}={}", c.key, c.value));
            pairs.collect::<Vec<_>>().join(",")
        };
        criteria.attempts().unwrap().iter().map(text).collect()
    };
    let over = |key: &str, value: &str| -> MetadataValue { fields([(key, value.into())]).into() };
    let list = MetadataValue::list([over("version", "2"), "text".into(), over("stage", "dev")]);
    assert_eq!(
        attempts(list),
        [
            "version=\"2\"",
            "version=\"1\"",
            "stage=\"dev\",version=\"1\""
        ]
    );
    assert_eq!(attempts(MetadataValue::Null), ["version=\"1\""]);
    assert_eq!(attempts(MetadataValue::list([])), ["version=\"1\""]);
    let plain = MatchCriteria::new(fields([("version", "1".into())]));
    assert!(plain.attempts().is_none());
}
