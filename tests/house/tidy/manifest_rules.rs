//! Rules for manifests: which crate may use which, and what a package needs to be published.
//!
//! The table is that of ARCHITECTURE.md. Reads only section headers and keys, which is all that
//! Cargo's own formatting of a dependency needs.

use super::fault::Fault;

/// What a crate of the workspace may use.
struct Arrows {
    name: &'static str,
    /// Crates of the workspace it may see.
    workspace: &'static [&'static str],
    /// Foreign crates: all but these, or only these.
    foreign: Foreign,
}

enum Foreign {
    AllBut(&'static [&'static str]),
    Only(&'static [&'static str]),
}

/// Foreign dev-dependencies are free, as they ship nowhere, and so are [`SHARED`]. Arrows between
/// our crates hold for them too: a test that needs a sibling belongs to a suite in `tests/`.
const ARROWS: &[Arrows] = &[
    Arrows {
        name: "plimsoll-core",
        workspace: &[],
        foreign: Foreign::Only(&[
            "arc-swap",
            "rand_mt",
            "rand_xoshiro",
            "schemars",
            "serde",
            "xxhash-rust",
        ]),
    },
    Arrows {
        name: "plimsoll-schema-derive",
        workspace: &[],
        foreign: Foreign::Only(&["proc-macro2", "quote", "syn"]),
    },
    Arrows {
        name: "plimsoll-schema",
        workspace: &["plimsoll-core", "plimsoll-schema-derive"],
        foreign: Foreign::AllBut(&["tokio", "tonic"]),
    },
    Arrows {
        name: "plimsoll-xds",
        workspace: &["plimsoll-core", "plimsoll-schema"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-client",
        workspace: &["plimsoll-core", "plimsoll-xds"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-orca",
        workspace: &["plimsoll-core", "plimsoll-xds"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-serve",
        workspace: &["plimsoll-core"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-proxy",
        workspace: &[
            "plimsoll-core",
            "plimsoll-xds",
            "plimsoll-client",
            "plimsoll-serve",
        ],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-consul",
        workspace: &["plimsoll-core", "plimsoll-serve"],
        foreign: Foreign::AllBut(&["tonic"]),
    },
    Arrows {
        name: "plimsoll-kubernetes",
        workspace: &["plimsoll-core", "plimsoll-serve"],
        foreign: Foreign::AllBut(&["tonic"]),
    },
    Arrows {
        name: "plimsoll-control",
        workspace: &[
            "plimsoll-admin",
            "plimsoll-core",
            "plimsoll-xds",
            "plimsoll-serve",
            "plimsoll-consul",
            "plimsoll-kubernetes",
        ],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-sim",
        workspace: &["plimsoll-core"],
        foreign: Foreign::AllBut(&["tokio"]),
    },
    Arrows {
        name: "plimsoll-admin",
        workspace: &["plimsoll-core"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-demo",
        workspace: &[
            "plimsoll-admin",
            "plimsoll-client",
            "plimsoll-control",
            "plimsoll-core",
            "plimsoll-orca",
            "plimsoll-proxy",
            "plimsoll-serve",
            "plimsoll-xds",
        ],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll-conformance",
        workspace: &["plimsoll-core", "plimsoll-xds"],
        foreign: Foreign::AllBut(&["tokio"]),
    },
    Arrows {
        name: "plimsoll-envoy",
        workspace: &["plimsoll-core", "plimsoll-xds"],
        foreign: Foreign::AllBut(&[]),
    },
    Arrows {
        name: "plimsoll",
        workspace: &[
            "plimsoll-admin",
            "plimsoll-client",
            "plimsoll-conformance",
            "plimsoll-control",
            "plimsoll-core",
            "plimsoll-demo",
            "plimsoll-kubernetes",
            "plimsoll-orca",
            "plimsoll-proxy",
            "plimsoll-serve",
            "plimsoll-sim",
            "plimsoll-xds",
        ],
        foreign: Foreign::AllBut(&[]),
    },
];

/// Crates for tests, which dev-dependencies may name whatever the table says.
const SHARED: [&str; 3] = [
    "plimsoll-conformance",
    "plimsoll-documents",
    "plimsoll-testing",
];

/// Names of all crates the table knows.
pub(crate) fn known_crates() -> impl Iterator<Item = &'static str> {
    ARROWS.iter().map(|arrows| arrows.name)
}

/// Dependencies of one manifest that the table does not allow.
pub(crate) fn dependency_arrows(path: &str, manifest: &str) -> Vec<Fault> {
    let fault = |line, advice: String| Fault::new(path, line, "dependency arrow", advice);
    let Some((line, name)) = package_name(manifest) else {
        return vec![fault(1, "no `name` under `[package]`".into())];
    };
    let Some(arrows) = ARROWS.iter().find(|arrows| arrows.name == name) else {
        let advice = format!("`{name}` is not in the table: add it here and in ARCHITECTURE.md");
        return vec![fault(line, advice)];
    };
    let refused = |dependency: &Dependency<'_>| match &arrows.foreign {
        _ if dependency.dev && SHARED.contains(&dependency.name) => false,
        _ if dependency.name.starts_with("plimsoll") => {
            !arrows.workspace.contains(&dependency.name)
        }
        _ if dependency.dev => false,
        Foreign::Only(allowed) => !allowed.contains(&dependency.name),
        Foreign::AllBut(forbidden) => forbidden.contains(&dependency.name),
    };
    let broken = dependencies(manifest).into_iter().filter(refused);
    broken
        .map(|dependency| {
            let advice = format!(
                "`{name}` may not use `{}`: move the code that needs it, or write a decision and \
                 change the table",
                dependency.name
            );
            fault(dependency.line, advice)
        })
        .collect()
}

/// What a package of tests breaks: it is not published, and what all crates use in their tests uses
/// none of them.
pub(crate) fn suite(path: &str, manifest: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if !manifest.contains("\npublish = false\n") {
        faults.push(Fault::new(path, 1, "suite", "set `publish = false`"));
    }
    let ours = |one: &Dependency<'_>| one.name.starts_with("plimsoll");
    let shared = path.contains("/testing/");
    let own = dependencies(manifest)
        .into_iter()
        .filter(|one| shared && ours(one));
    faults.extend(own.map(|one| {
        let advice = "unit tests of that crate would have two versions of its types";
        Fault::new(path, one.line, "suite", advice)
    }));
    faults
}

/// The crate that may have unsafe code, and the modules of it that do: those that touch a C ABI.
const UNSAFE_CRATE: &str = "plimsoll-envoy";
const UNSAFE_MODULES: [&str; 4] = ["abi.rs", "envoy.rs", "filter_hooks.rs", "hooks.rs"];

/// A crate without the lints of the workspace, which forbid unsafe code.
pub(crate) fn lints(path: &str, name: &str, manifest: &str) -> Option<Fault> {
    let sound = if name == UNSAFE_CRATE {
        manifest.contains("\nunsafe_code = \"deny\"\n")
            && manifest.contains("\nundocumented_unsafe_blocks = \"deny\"\n")
    } else {
        manifest.contains("[lints]\nworkspace = true")
    };
    let advice = "every crate has `[lints] workspace = true`; plimsoll-envoy denies unsafe code \
                  and undocumented unsafe blocks";
    (!sound).then(|| Fault::new(path, 1, "lints", advice))
}

/// A module of that crate that allows unsafe code and is not one of those that touch the ABI.
pub(crate) fn unsafe_module(path: &str, text: &str) -> Option<Fault> {
    let file = path.rsplit('/').next().unwrap_or_default();
    let allows = text.contains("(unsafe_code");
    let advice = "only modules that touch the C ABI may have unsafe code";
    (allows && !UNSAFE_MODULES.contains(&file)).then(|| Fault::new(path, 1, "unsafe code", advice))
}

/// Keys of `[package]` that crates.io shows.
const SHOWN: [&str; 6] = [
    "categories",
    "description",
    "documentation",
    "keywords",
    "license",
    "readme",
];

/// What a manifest lacks to be published, and features that its README does not list.
pub(crate) fn publishing(path: &str, manifest: &str, readme: Option<&str>) -> Vec<Fault> {
    let fault = |line, advice: String| Fault::new(path, line, "publishing", advice);
    let keys: Vec<_> = keys_of(manifest, "package").collect();
    let mut faults: Vec<_> = SHOWN
        .iter()
        .filter(|shown| !keys.iter().any(|(_, key)| key == *shown))
        .map(|shown| fault(1, format!("`[package]` lacks `{shown}`")))
        .collect();
    let Some(readme) = readme else {
        faults.push(fault(1, "the crate has no README.md".into()));
        return faults;
    };
    if !readme.contains("**When not to use it:**") {
        faults.push(fault(1, "README.md does not say when not to use it".into()));
    }
    for (line, feature) in keys_of(manifest, "features").filter(|(_, key)| *key != "default") {
        if !readme.contains(&format!("| `{feature}` |")) {
            faults.push(fault(
                line,
                format!("README.md has no row for the feature `{feature}`"),
            ));
        }
    }
    if !manifest.contains("[package.metadata.docs.rs]\nall-features = true") {
        let advice = "`[package.metadata.docs.rs]` must document all features";
        faults.push(fault(1, advice.into()));
    }
    faults
}

/// Keys of a section with their lines.
fn keys_of<'a>(manifest: &'a str, wanted: &str) -> impl Iterator<Item = (usize, &'a str)> {
    let entries = entries(manifest).into_iter();
    entries.filter_map(move |(number, section, line)| {
        let (key, _) = line.split_once('=')?;
        let key = key.trim().trim_end_matches(".workspace");
        let name = key.chars().all(|c| c.is_alphanumeric() || "-_".contains(c));
        (section == wanted && name).then_some((number, key))
    })
}

struct Dependency<'a> {
    name: &'a str,
    line: usize,
    dev: bool,
}

/// A line that is neither blank nor a comment, with the section it stands in.
fn entries(manifest: &str) -> Vec<(usize, &str, &str)> {
    let mut section = "";
    let mut entries = Vec::new();
    for (index, line) in manifest.lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') && line.ends_with(']') {
            section = line.trim_matches(['[', ']']);
            entries.push((index + 1, section, ""));
        } else if !line.is_empty() && !line.starts_with('#') {
            entries.push((index + 1, section, line));
        }
    }
    entries
}

fn package_name(manifest: &str) -> Option<(usize, &str)> {
    entries(manifest)
        .into_iter()
        .find_map(|(number, section, line)| {
            let (key, value) = line.split_once('=')?;
            (section == "package" && key.trim() == "name")
                .then(|| (number, value.trim().trim_matches('"')))
        })
}

/// `name = …`, `name.workspace = …` and `[dependencies.name]`, for any target.
fn dependencies(manifest: &str) -> Vec<Dependency<'_>> {
    let mut found = Vec::new();
    for (number, section, line) in entries(manifest) {
        let Some(at) = section.rfind("dependencies") else {
            continue;
        };
        let own_section = section[at..].strip_prefix("dependencies.");
        let name = match (own_section, line) {
            (Some(name), "") => name,
            (None, line) if line.contains('=') => line.split(['.', '=', ' ']).next().unwrap_or(""),
            _ => continue,
        };
        found.push(Dependency {
            name: name.trim_matches('"'),
            line: number,
            dev: section[..at].ends_with("dev-"),
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(manifest: &str) -> Vec<(usize, String)> {
        let faults = dependency_arrows("crates/x/Cargo.toml", manifest);
        faults
            .into_iter()
            .map(|fault| (fault.line, fault.advice))
            .collect()
    }

    #[test]
    fn the_core_uses_its_five_and_tests_are_free() {
        let manifest = "[package]\nname = \"plimsoll-core\"\n[features]\nserde = [\"dep:serde\"]\n\
                        [dependencies]\narc-swap.workspace = true\n\
                        serde = { workspace = true, optional = true }\n\
                        # tokio = \"1\"\n[dev-dependencies]\nproptest.workspace = true\n";
        assert_eq!(faults(manifest), []);
        let with_tokio = format!("{manifest}\n[dependencies.tokio]\nversion = \"1\"\n");
        let found = faults(&with_tokio);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, 12);
        assert!(
            found[0]
                .1
                .starts_with("`plimsoll-core` may not use `tokio`")
        );
    }

    #[test]
    fn siblings_do_not_meet_not_even_in_tests() {
        let manifest = "[package]\nname = \"plimsoll-sim\"\n[dev-dependencies]\n\
                        plimsoll-xds = { path = \"../plimsoll-xds\" }\n";
        assert_eq!(faults(manifest)[0].0, 4);
        let binary = manifest.replace("plimsoll-sim", "plimsoll");
        assert_eq!(faults(&binary), []);
    }

    #[test]
    fn only_tests_use_what_tests_share() {
        let manifest = "[package]\nname = \"plimsoll-core\"\n[dev-dependencies]\n\
                        plimsoll-testing.workspace = true\n";
        assert_eq!(faults(manifest), []);
        assert_eq!(faults(&manifest.replace("dev-", "")).len(), 1);
    }

    #[test]
    fn what_tests_share_is_private_and_uses_none_of_ours() {
        let manifest = "[package]\npublish = false\n[dev-dependencies]\nplimsoll-core = \"1\"\n";
        assert_eq!(suite("tests/e2e/Cargo.toml", manifest), []);
        let found = suite("tests/testing/Cargo.toml", manifest);
        assert_eq!(found[0].line, 4, "{found:?}");
        assert_eq!(suite("tests/e2e/Cargo.toml", "[package]\n").len(), 1);
    }

    #[test]
    fn sections_for_a_target_count() {
        let manifest = "[package]\nname = \"plimsoll-sim\"\n\
                        [target.'cfg(unix)'.dependencies]\ntokio = \"1\"\n\
                        [build-dependencies]\ncc = \"1\"\n";
        assert_eq!(faults(manifest).len(), 1);
    }

    #[test]
    fn a_crate_is_entered_in_the_table_when_it_is_born() {
        let found = faults("[package]\nname = \"plimsoll-extra\"\n");
        assert!(found[0].1.contains("is not in the table"), "{found:?}");
        assert_eq!(faults("[workspace]\n").len(), 1);
    }

    #[test]
    fn a_package_has_metadata_and_a_row_for_each_feature() {
        let manifest = "[package]\nname = \"x\"\ndescription = \"d\"\nlicense.workspace = true\n\
                        readme = \"README.md\"\ndocumentation = \"u\"\nkeywords = []\n\
                        categories = []\n[features]\ndefault = [\n  \"a\",\n]\na = []\n\
                        b-c = [\"a\"]\n[package.metadata.docs.rs]\nall-features = true\n";
        let readme = "**When not to use it:** never.\n| `a` | yes |\n| `b-c` | no |\n";
        assert_eq!(publishing("x/Cargo.toml", manifest, Some(readme)), []);
        let faults = |manifest: &str, readme| {
            let found = publishing("x/Cargo.toml", manifest, readme);
            let lines = found.into_iter().map(|fault| fault.advice);
            lines.collect::<Vec<_>>().join("; ")
        };
        assert!(faults(manifest, None).contains("no README.md"));
        let short = readme.replace("b-c", "b");
        assert!(faults(manifest, Some(&short)).contains("the feature `b-c`"));
        let without = manifest.replace("keywords", "words");
        assert!(faults(&without, Some(readme)).contains("lacks `keywords`"));
    }

    #[test]
    fn unsafe_code_needs_the_right_crate_and_module() {
        let common = "[lints]\nworkspace = true\n";
        assert_eq!(lints("x", "plimsoll-core", common), None);
        assert!(lints("x", "plimsoll-core", "[lints.rust]\n").is_some());
        assert!(lints("x", UNSAFE_CRATE, common).is_some());
        let allowed = "#![expect(unsafe_code, reason = \"\")]";
        assert_eq!(unsafe_module("src/hooks.rs", allowed), None);
        assert!(unsafe_module("src/cluster.rs", allowed).is_some());
        assert_eq!(unsafe_module("src/cluster.rs", ""), None);
    }

    #[test]
    fn the_table_has_no_cycle() {
        let arrows = |name| ARROWS.iter().find(|arrows| arrows.name == name).unwrap();
        let mut below: Vec<&str> = Vec::new();
        while below.len() < ARROWS.len() {
            let next = ARROWS.iter().find(|candidate| {
                let ready = candidate.workspace.iter().all(|used| below.contains(used));
                ready && !below.contains(&candidate.name)
            });
            below.push(next.expect("every crate rests on crates below it").name);
        }
        assert_eq!(arrows("plimsoll-core").workspace.len(), 0);
    }
}
