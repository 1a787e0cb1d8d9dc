//! The files of the repository, as git lists them or, without git, as they lie in the folder.
//!
//! The only part of the house rules that touches the disk.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use plimsoll_testing::repository;

use super::rust_file::RustFile;

/// Folders that hold nothing of ours, for listing without git.
const NOT_OURS: [&str; 5] = [".git", "target", "corpus", "artifacts", "node_modules"];

/// The repository and the paths of its files, sorted.
pub(crate) struct Repository {
    root: PathBuf,
    paths: Vec<String>,
}

impl Repository {
    pub(crate) fn open() -> Self {
        let root = repository().to_owned();
        let mut paths = git_files(&root).unwrap_or_else(|| {
            let mut found = Vec::new();
            walk(&root, "", &mut found).expect("the folder of the repository can be listed");
            found
        });
        // A file may be listed by git and deleted in the folder.
        paths.retain(|path| root.join(path).is_file());
        paths.sort();
        Self { root, paths }
    }

    /// Paths that end with `extension` (with its dot).
    pub(crate) fn paths(&self, extension: &str) -> impl Iterator<Item = &str> {
        let paths = self.paths.iter().map(String::as_str);
        paths.filter(move |path| path.ends_with(extension))
    }

    /// The text of a file; `None` when it is not text.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// What a link finds: the text of a file, an empty one for a folder or a picture, `None` when
    /// there is nothing.
    pub(crate) fn linked(&self, path: &str) -> Option<String> {
        let place = self.root.join(path);
        place
            .exists()
            .then(|| fs::read_to_string(place).unwrap_or_default())
    }

    /// Names of the crates of the workspace.
    pub(crate) fn crates(&self) -> Vec<&str> {
        let manifests = self.paths("/Cargo.toml");
        let names =
            manifests.filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"));
        names.filter(|name| !name.contains('/')).collect()
    }

    /// Manifests of the packages of tests.
    pub(crate) fn suites(&self) -> impl Iterator<Item = &str> {
        self.paths("/Cargo.toml")
            .filter(|path| path.starts_with("tests/"))
    }

    /// All Rust files, with test-only modules in their own file marked as tests.
    pub(crate) fn rust_files(&self) -> Vec<RustFile> {
        let paths = self.paths(".rs");
        let parse = |path: &str| Some(RustFile::parse(path, &self.text(path)?));
        let mut files: Vec<RustFile> = paths.filter_map(parse).collect();
        let tests: Vec<String> = files.iter().flat_map(RustFile::test_module_paths).collect();
        for file in files.iter_mut().filter(|file| tests.contains(&file.path)) {
            file.is_test.fill(true);
        }
        files
    }
}

/// Tracked files and new ones that are not ignored; `None` without git or outside a work tree.
fn git_files(root: &Path) -> Option<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root);
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ]);
    let output = git.output().ok().filter(|output| output.status.success())?;
    let listed = String::from_utf8(output.stdout).ok()?;
    let paths = listed.split('\0').filter(|path| !path.is_empty());
    Some(paths.map(str::to_owned).collect())
}

fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = format!("{prefix}{name}");
        if !entry.file_type()?.is_dir() {
            found.push(path);
        } else if !NOT_OURS.contains(&name.as_str()) {
            walk(&entry.path(), &format!("{path}/"), found)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_repository_is_found() {
        let repository = Repository::open();
        assert!(repository.crates().contains(&"plimsoll-core"));
        assert!(
            repository
                .suites()
                .any(|path| path == "tests/testing/Cargo.toml")
        );
        let itself = "tests/house/tidy/repository.rs";
        assert!(repository.paths(".rs").any(|path| path == itself));
        assert!(repository.text("Cargo.toml").is_some());
        assert_eq!(repository.linked("no/such/file"), None);
        assert_eq!(repository.linked("crates"), Some(String::new()));
    }

    #[test]
    fn the_folder_and_git_list_the_same_rust_files() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut walked = Vec::new();
        walk(root, "", &mut walked).unwrap();
        walked.retain(|path| path.ends_with(".rs"));
        let repository = Repository::open();
        let listed = repository
            .paths(".rs")
            .filter_map(|path| path.strip_prefix("tests/house/"));
        walked.sort();
        assert_eq!(walked, listed.collect::<Vec<_>>());
    }
}
