//! House rules for text files: machine paths, links, the changelog.
//!
//! Pure functions of texts; the disk is asked through closures.

use std::collections::BTreeSet;

use super::fault::Fault;
use super::markdown::{Link, anchors, links};

/// Folders that exist on one machine only. In halves, or this file would break its own rule.
const MACHINE_FOLDERS: [(&str, &str); 3] = [("/wo", "rk/"), ("/ro", "ot/"), ("/ho", "me/")];

pub(crate) fn machine_paths(path: &str, text: &str) -> Vec<Fault> {
    let folders = MACHINE_FOLDERS.map(|(head, tail)| format!("{head}{tail}"));
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if let Some(folder) = folders.iter().find(|folder| mentions_folder(line, folder)) {
            let advice =
                format!("`{folder}` exists on one machine: use a path inside the repository");
            faults.push(Fault::new(path, index + 1, "machine path", advice));
        }
    }
    faults
}

/// Whether the path starts here: a part of a longer path or of an address is something else.
fn mentions_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "._-}".contains(c))
    })
}

/// Links of one Markdown file that lead nowhere. `read` gives the text of a file of the repository,
/// an empty one for what is not text, and `None` for what does not exist.
pub(crate) fn broken_links(
    path: &str,
    text: &str,
    read: impl Fn(&str) -> Option<String>,
) -> Vec<Fault> {
    let broken = |Link { line, target }: Link| {
        let foreign = ["http://", "https://", "mailto:"];
        if foreign.iter().any(|scheme| target.starts_with(scheme)) {
            return None;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
        let there = match file {
            "" => Some(text.to_owned()),
            _ => read(&resolve(path, file)),
        };
        let advice = match there {
            None => format!("`{target}` does not exist: correct the link or write the page"),
            Some(there) if !anchor.is_empty() && !anchors(&there).iter().any(|a| a == anchor) => {
                format!("`{target}`: no heading makes this anchor")
            }
            Some(_) => return None,
        };
        Some(Fault::new(path, line, "link", advice))
    };
    links(text).into_iter().filter_map(broken).collect()
}

/// A link as a path from the root of the repository.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Tests that the last column of tables with the header `tests` names, and that no source defines.
pub(crate) fn tests_in_tables(path: &str, text: &str, sources: &[&str]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut in_table = false;
    for (number, line) in (1..).zip(text.lines()) {
        in_table = line.starts_with('|') && (in_table || line.ends_with("| tests |"));
        let cells = line.trim_end_matches('|').rsplit_once('|');
        let names = cells.filter(|_| in_table).map_or("", |(_, last)| last);
        for name in names.split('`').skip(1).step_by(2) {
            let definition = format!("fn {name}(");
            if !sources.iter().any(|source| source.contains(&definition)) {
                let advice = format!("no source has a test {name}: name it as it is now");
                faults.push(Fault::new(path, number, "named tests exist", advice));
            }
        }
    }
    faults
}

/// Entries of the changelog that do not start with a crate's name.
pub(crate) fn changelog_entries(path: &str, text: &str, crates: &BTreeSet<String>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let Some(entry) = line.strip_prefix("- ") else {
            continue;
        };
        if !starts_with_crate(entry, crates) {
            let advice = "start the entry with the crate it is about, as in `**plimsoll-core**`, \
                          or `**workspace**`";
            faults.push(Fault::new(path, index + 1, "changelog entry", advice));
        }
    }
    faults
}

fn starts_with_crate(entry: &str, crates: &BTreeSet<String>) -> bool {
    let name = ["**", "`"].into_iter().find_map(|mark| {
        let (name, _) = entry.strip_prefix(mark)?.split_once(mark)?;
        Some(name)
    });
    name.is_some_and(|name| name == "workspace" || crates.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(faults: &[Fault]) -> Vec<usize> {
        faults.iter().map(|fault| fault.line).collect()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn machine_paths_are_found_where_they_start() {
        let [(head, tail), ..] = MACHINE_FOLDERS;
        let folder = format!("{head}{tail}");
        let text =
            format!("cd {folder}x\n\"{folder}\"\nhttps://example.org{folder}\nfine{folder}\n");
        assert_eq!(lines(&machine_paths("a.md", &text)), [1, 2]);
    }

    #[test]
    fn tests_in_tables_are_looked_for_in_the_sources() {
        let text = "| a | b |\n|---|---|\n| x | `gone` |\n\n| signal | tests |\n|---|---|\n\
                    | `x` | `here`, `gone` |\n| y | `here` |\n\n`gone`\n";
        let faults = tests_in_tables("a.md", text, &["fn other() {}", "fn here() {}"]);
        assert_eq!(lines(&faults), [7]);
    }

    #[test]
    fn links_are_resolved_from_their_file() {
        let disk = |path: &str| match path {
            "README.md" => Some("# Plimsoll\n## Status today\n".to_owned()),
            "docs/pictures/a.svg" => Some(String::new()),
            _ => None,
        };
        let text = "# Here\n[up](../README.md) [it](./pictures/a.svg) \
                    [web](https://example.org/x)\n\
                    [there](../README.md#status-today) [here](#here)\n\
                    [gone](gone.md)\n[no](../README.md#nothing) [no](#nothing)\n";
        let faults = broken_links("docs/page.md", text, disk);
        assert_eq!(lines(&faults), [4, 5, 5], "{faults:?}");
    }

    #[test]
    fn changelog_entries_start_with_a_crate() {
        let crates = names(&["plimsoll-core"]);
        let text = "## Unreleased\n- **plimsoll-core**: born\n- `plimsoll-core` born\n\
                    - **workspace**: born\n- something\n- **plimsoll-more**: x\n\
                    \x20 - nested is free\n";
        assert_eq!(lines(&changelog_entries("C.md", text, &crates)), [5, 6]);
    }
}
