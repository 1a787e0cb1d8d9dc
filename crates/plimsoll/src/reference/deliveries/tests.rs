//! Tests of the page about deliveries: that it names tests that exist and run.

use std::fs;
use std::path::Path;

use super::*;

#[test]
fn named_tests_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let live = LIVE_TESTS.iter().map(|live| live.test);
    for (file, test) in live.chain(EVERY_CELL).chain([WIRE]) {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let is_defined = tests_that_run(&text).contains(test);
        assert!(is_defined, "{file} has no test {test}");
    }
}

/// Returns the functions of a file with an attribute `test`, of any path, and none `ignore`.
fn tests_that_run(text: &str) -> BTreeSet<String> {
    let file = syn::parse_file(text).unwrap();
    let functions = file.items.into_iter().filter_map(|item| match item {
        syn::Item::Fn(function) => Some(function),
        _ => None,
    });
    let has = |function: &syn::ItemFn, name: &str| {
        let mut paths = function.attrs.iter().map(syn::Attribute::path);
        paths.any(|path| path.segments.last().is_some_and(|last| last.ident == name))
    };
    functions
        .filter(|function| has(function, "test") && !has(function, "ignore"))
        .map(|function| function.sig.ident.to_string())
        .collect()
}

#[test]
fn only_functions_that_run_as_tests_are_found() {
    let text = "#[test] fn one() {} #[tokio::test(flavor = \"multi_thread\")] \
                #[cfg(unix)] async fn two() {} #[test] #[ignore = \"slow\"] fn three() {} \
                fn four() {} /* #[test]\nfn five() {} */ \
                const SIX: &str = \"#[test]\nfn six() {\";";
    assert_eq!(
        tests_that_run(text),
        ["one", "two"].map(String::from).into()
    );
}

#[test]
fn every_cell_with_demand_names_a_test_that_runs_its_form() {
    let mut forms = BTreeSet::new();
    for policy in policies() {
        for (name, delivery) in deliveries() {
            let Ok(cells) = cells(&policy, delivery, Mode::ENFORCE) else {
                continue;
            };
            for cell in cells.iter().filter(|cell| cell.routing.uses_demand()) {
                let mut tests = tests_of(policy.title, cell);
                let is_run = tests.any(|index| LIVE_TESTS[index].form == Some(cell.said));
                let title = policy.title;
                let own = LIVE_TESTS.iter().filter(|test| test.policy == Some(title));
                let is_own =
                    title == SIMPLE || own.clone().any(|test| test.form == Some(cell.said));
                let text = with_tests(&policy, cell, &mut BTreeMap::new());
                assert_eq!(text.contains("by round robin"), !is_own, "{title}: {text}");
                assert!(
                    is_run,
                    "{title} by {name} to {:?}: {:?}",
                    cell.class, cell.said
                );
                assert!(text.contains("(W"), "{title}: {text}");
                forms.insert(format!("{:?} {:?}", cell.class, cell.said));
            }
        }
    }
    assert_eq!(forms.len(), 12, "{forms:?}");
    let mut ramps = String::new();
    by_policy(&mut ramps, &[Mode::RAMP], &mut BTreeMap::new());
    let form = "LOCALITY_WEIGHTS`";
    let cells = ramps.matches(form).count();
    assert!(cells > 40, "{ramps}");
    assert_eq!(ramps.matches(&format!("{form} (W)")).count(), cells);
}
