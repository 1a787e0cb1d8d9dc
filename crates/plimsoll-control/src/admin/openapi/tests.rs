//! The description agrees with the routes, and is a set of schemas without loose ends. Real answers
//! are validated by `admin::tests::openapi`.

use std::collections::BTreeSet;

use super::*;

#[test]
fn every_path_is_described_with_the_parameters_of_the_table() {
    let paths = openapi()["paths"].as_object().unwrap();
    let router = routes::router();
    for served in router.paths() {
        let method = served.method.to_ascii_lowercase();
        let operation = &paths[served.path][&method];
        assert_eq!(operation["summary"], served.about, "{}", served.path);
        let parameters = operation["parameters"].as_array();
        for parameter in parameters.into_iter().flatten() {
            let about = parameter["description"].as_str();
            assert!(about.is_some_and(|text| !text.is_empty()), "{parameter}");
        }
        let names = parameters.into_iter().flatten().map(|one| &one["name"]);
        let names: BTreeSet<&str> = names.filter_map(Value::as_str).collect();
        let pairs = served.query.split('&').filter(|pair| !pair.is_empty());
        let listed = pairs.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
        for name in listed {
            assert!(
                names.contains(name),
                "{} lacks {name}: {names:?}",
                served.path
            );
        }
    }
    for (path, ..) in [HISTORY_PATH, STATE_PATH] {
        let parameters = paths[path]["get"]["parameters"].as_array();
        let all = parameters.into_iter().flatten();
        assert!(all.map(|one| &one["description"]).all(Value::is_string));
    }
    assert_eq!(paths.len(), router.paths().len() + 2);
    let ids: BTreeSet<&str> = paths
        .values()
        .flat_map(|path| path.as_object().unwrap().values())
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), paths.len(), "ids of operations are unique");
}

/// Collects the targets of all references.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        Value::Array(entries) => entries.iter().for_each(|entry| references(entry, found)),
        _ => {}
    }
}

#[test]
fn types_have_names_of_their_own_and_every_reference_resolves() {
    let description = openapi();
    let mut found = BTreeSet::new();
    references(description, &mut found);
    assert!(found.contains("#/components/schemas/LoadLine"), "{found:?}");
    for target in &found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(description.pointer(pointer).is_some(), "{target}");
    }
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        let is_used = found.contains(&*format!("#{COMPONENTS}/{name}"));
        assert!(is_used, "{name} is not used");
        // The generator numbers types that share a name: readers could not tell them apart.
        assert!(!name.ends_with(|end: char| end.is_ascii_digit()), "{name}");
        jsonschema::meta::validate(schema).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// A number that is called the same is the same everywhere: one type, whatever page it is on.
#[test]
fn a_field_with_a_unit_has_one_type_on_all_pages() {
    let description = openapi();
    let schemas = description["components"]["schemas"].as_object().unwrap();
    let mut types: std::collections::BTreeMap<&str, BTreeSet<String>> = Default::default();
    for schema in schemas.values() {
        let fields = schema.get("properties").and_then(Value::as_object);
        for (name, field) in fields.into_iter().flatten() {
            let written = match &field["type"] {
                Value::Array(kinds) => kinds.clone(),
                one => vec![one.clone()],
            };
            // Unknown is `null`, and the history has columns of numbers.
            let is_scalar = |kind: &&str| !["null", "array"].contains(kind);
            let kinds = written.iter().filter_map(Value::as_str);
            types
                .entry(name)
                .or_default()
                .extend(kinds.filter(is_scalar).map(str::to_owned));
        }
    }
    const UNITS: [&str; 8] = [
        "_ms",
        "_bp",
        "_percent",
        "_per_second",
        "_share",
        "_per_month",
        "_load",
        "kept_local",
    ];
    let mut checked = 0;
    for (name, kinds) in types {
        if UNITS.iter().any(|unit| name.ends_with(unit)) {
            assert!(kinds.len() <= 1, "{name}: {kinds:?}");
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}
