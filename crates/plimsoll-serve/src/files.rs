//! [`FileSource`]: a configuration on disk that is reloaded when one of its files changes.
//!
//! Changes are detected by polling (size and modification time of files, names in directories)
//! instead of kernel notifications, which miss mounted volumes and the symbolic links that
//! Kubernetes swaps. A [`Loader`] parses the files.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often configuration files are polled for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Size limit of a configuration file, so that a wrong path does not exhaust memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// A configuration file: its name, for error messages, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFile {
    /// Path as the user wrote it.
    pub name: String,
    pub text: String,
}

impl ConfigFile {
    /// Adds the name of this file to an error.
    pub fn error<E>(&self, error: E) -> FileError<E> {
        FileError {
            file: self.name.clone(),
            error,
        }
    }
}

/// An error in the configuration and the file that contains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}{error}", if .file.is_empty() { "" } else { ": " })]
pub struct FileError<E> {
    /// Name of the file; empty if the error does not belong to a single file.
    pub file: String,
    pub error: E,
}

/// An error that does not belong to a single file.
impl<E> From<E> for FileError<E> {
    fn from(error: E) -> Self {
        Self {
            file: String::new(),
            error,
        }
    }
}

/// Reads a text file; fails if it exceeds the size limit.
pub fn read_file(path: &Path) -> io::Result<String> {
    let bytes = fs::metadata(path)?.len();
    if bytes > MAX_FILE_BYTES {
        let reason = format!("{bytes} bytes are more than {MAX_FILE_BYTES}");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, reason));
    }
    fs::read_to_string(path)
}

/// Files that a configuration was read from. Size and modification time are recorded before a file
/// is read, so that the next poll detects an edit during the read.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<(PathBuf, Stamp)>,
    directories: Vec<(PathBuf, Vec<PathBuf>)>,
}

/// Size and modification time of a file; 0 and `None` if they cannot be read.
type Stamp = (u64, Option<SystemTime>);

impl Files {
    /// Reads a file and watches it, even if reading fails.
    pub fn read<E: From<io::Error>>(&mut self, path: &Path) -> Result<ConfigFile, FileError<E>> {
        self.watch(path);
        let file = path.display().to_string();
        match read_file(path) {
            Ok(text) => Ok(ConfigFile { name: file, text }),
            Err(error) => Err(FileError {
                file,
                error: error.into(),
            }),
        }
    }

    /// Watches a file that is read elsewhere, such as a certificate.
    pub fn watch(&mut self, path: &Path) {
        self.files.push((path.to_owned(), stamp(path)));
    }

    /// Lists the YAML files in a directory, sorted by name, and watches the directory for changes.
    pub fn yaml_files(&mut self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let found = yaml_files(directory);
        let names = found.as_ref().cloned().unwrap_or_default();
        self.directories.push((directory.to_owned(), names));
        found
    }

    /// Whether a file was modified since it was read, or a directory lists different files.
    pub fn changed(&self) -> bool {
        let edited = |(path, before): &(PathBuf, Stamp)| stamp(path) != *before;
        let listed = |(path, before): &(PathBuf, Vec<PathBuf>)| {
            yaml_files(path).unwrap_or_default() != *before
        };
        self.files.iter().any(edited) || self.directories.iter().any(listed)
    }
}

fn stamp(path: &Path) -> Stamp {
    let metadata = fs::metadata(path).ok();
    let length = metadata.as_ref().map_or(0, fs::Metadata::len);
    (
        length,
        metadata.and_then(|metadata| metadata.modified().ok()),
    )
}

fn yaml_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let yaml = name.ends_with(".yaml") || name.ends_with(".yml");
        // Editors and Kubernetes leave hidden files and directories beside the real ones.
        if yaml && !name.starts_with('.') && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Loads a configuration of type `C`, reading all of its files through [`Files`].
pub type Loader<C, E> = fn(&Path, &mut Files) -> Result<C, FileError<E>>;

/// A configuration on disk that is polled for changes.
#[derive(Debug)]
pub struct FileSource<C, E> {
    path: PathBuf,
    load: Loader<C, E>,
    files: Files,
    polls: Interval,
}

impl<C, E> FileSource<C, E> {
    /// Creates a source with `path` as main file. Must be called within a Tokio runtime.
    pub fn new(path: impl Into<PathBuf>, load: Loader<C, E>) -> Self {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            path: path.into(),
            load,
            files: Files::default(),
            polls,
        }
    }

    /// Loads the configuration and watches its files.
    pub fn load(&mut self) -> Result<C, FileError<E>> {
        self.files = Files::default();
        (self.load)(&self.path, &mut self.files)
    }

    /// Waits for the next poll and reloads the configuration if a file has changed since it was
    /// read. Cancel safe.
    pub async fn poll(&mut self) -> Option<Result<C, FileError<E>>> {
        self.polls.tick().await;
        self.files.changed().then(|| self.load())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test loader: counts the files in the directory that the main file names.
    fn load(path: &Path, files: &mut Files) -> Result<usize, FileError<io::Error>> {
        let main = files.read(path)?;
        let directory = path.parent().unwrap().join(main.text.trim());
        let included = files
            .yaml_files(&directory)
            .map_err(|error| main.error(error))?;
        for path in &included {
            files.read::<io::Error>(path)?;
        }
        Ok(included.len())
    }

    #[tokio::test(start_paused = true)]
    async fn each_edit_is_loaded_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("main.yaml"), "more").unwrap();
        fs::create_dir(at("more")).unwrap();
        fs::write(at("more/a.yml"), "").unwrap();
        let mut source = FileSource::new(at("main.yaml"), load);
        assert_eq!(source.load().unwrap(), 1);
        assert!(source.poll().await.is_none(), "nothing changed");
        for ignored in ["more/.hidden.yaml", "more/notes.txt"] {
            fs::write(at(ignored), "x").unwrap();
        }
        assert!(source.poll().await.is_none(), "other files are ignored");
        fs::write(at("more/b.yaml"), "").unwrap();
        assert_eq!(source.poll().await.unwrap().unwrap(), 2);
        fs::write(at("more/b.yaml"), "longer").unwrap();
        assert_eq!(source.poll().await.unwrap().unwrap(), 2);
        assert!(source.poll().await.is_none());
        fs::remove_file(at("more/a.yml")).unwrap();
        assert_eq!(source.poll().await.unwrap().unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_file_is_reported_once_and_loaded_when_it_appears() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.yaml");
        let mut source = FileSource::new(&path, load);
        let error = source.load().unwrap_err();
        assert!(
            error.to_string().contains("main.yaml: No such file"),
            "{error}"
        );
        assert!(source.poll().await.is_none(), "still missing");
        fs::write(&path, "more").unwrap();
        let error = source.poll().await.unwrap().unwrap_err();
        assert_eq!(error.file, path.display().to_string());
        assert!(source.poll().await.is_none(), "an error is not repeated");
        fs::create_dir(directory.path().join("more")).unwrap();
        fs::write(directory.path().join("more/a.yaml"), "").unwrap();
        assert_eq!(source.poll().await.unwrap().unwrap(), 1);
    }

    #[test]
    fn large_files_are_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(MAX_FILE_BYTES + 1).unwrap();
        let error = read_file(file.path()).unwrap_err();
        assert!(error.to_string().contains("are more than"), "{error}");
    }

    #[test]
    fn an_error_without_file_has_no_prefix() {
        assert_eq!(FileError::from("x").to_string(), "x");
    }
}
