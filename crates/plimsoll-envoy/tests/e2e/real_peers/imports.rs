//! Every function that the library imports from Envoy exists in every supported release: the
//! library is bound when it is loaded, and one missing function would keep it from loading.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use crate::support::{RELEASES, library};

fn symbols(file: &Path, which: &str) -> BTreeSet<String> {
    let output = Command::new("nm")
        .args(["-D", which])
        .arg(file)
        .output()
        .expect("nm (binutils) is installed");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text
        .lines()
        .filter_map(|line| line.split_whitespace().last());
    let envoy = names.filter(|name| name.starts_with("envoy_dynamic_module_"));
    envoy.map(str::to_owned).collect()
}

#[test]
fn every_release_has_the_imported_functions() {
    let imported = symbols(&library(), "--undefined-only");
    assert!(imported.len() >= 15, "{imported:?}");
    for release in RELEASES {
        let exported = symbols(&plimsoll_testing::envoy(release), "--defined-only");
        let missing: Vec<_> = imported.difference(&exported).collect();
        assert!(missing.is_empty(), "{release} lacks {missing:?}");
    }
}

#[test]
fn the_library_exports_all_hooks_of_a_policy() {
    let exported = symbols(&library(), "--defined-only");
    let hooks = [
        "program_init",
        "lb_config_new",
        "lb_config_destroy",
        "lb_new",
        "lb_destroy",
        "lb_choose_host",
        "lb_on_host_membership_update",
    ];
    for hook in hooks {
        let name = format!("envoy_dynamic_module_on_{hook}");
        assert!(
            exported.contains(&name),
            "{name} is not exported: {exported:?}"
        );
    }
}
