//! [`FileSource`]: a configuration on disk that is reloaded when one of its files changes.
//!
//! Changes are detected by polling (metadata of files, names in directories) instead of kernel
//! notifications, which miss mounted volumes and the symbolic links that Kubernetes swaps. A
//! [`Loader`] parses the files.
//!
//! A program may write a file in several steps, and the first half of a YAML file is often a valid
//! smaller configuration. So an edit is used only if two polls in a row find the same content.
//! Content is also compared while a file is so young that an edit may not change its metadata.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use std::{fmt, fs, io};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often configuration files are polled for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Age from which the stamp of a file changes with every further edit. Clocks of file systems tick
/// every few milliseconds, those of some network file systems every two seconds; until then, an
/// edit may have the same time as the one before.
const RACY_PERIOD: Duration = Duration::from_secs(2);
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

/// Files that a configuration was read from. Metadata is recorded before a file is read, so that
/// the next poll detects an edit during the read.
#[derive(Debug, Default)]
pub struct Files {
    files: Vec<WatchedFile>,
    directories: Vec<(PathBuf, Vec<PathBuf>)>,
}

#[derive(Debug)]
struct WatchedFile {
    path: PathBuf,
    stamp: Option<Stamp>,
    content: Option<u64>,
    /// Whether the content was found unchanged when the stamp was older than [`RACY_PERIOD`]: from
    /// then on the stamp decides.
    is_settled: AtomicBool,
}

/// Metadata that changes with every edit; `None` if the file cannot be read.
///
/// Size and modification time alone miss an edit that preserves both (`cp -p`): the time of the
/// inode's last change (ctime) cannot be set by programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl WatchedFile {
    fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            stamp: stamp(path),
            content: content_hash(path),
            is_settled: AtomicBool::new(false),
        }
    }

    /// Whether the file was edited since it was read.
    fn is_edited(&self) -> bool {
        if stamp(&self.path) != self.stamp {
            return true;
        }
        let Some(stamp) = self.stamp else {
            return false;
        };
        if self.is_settled.load(Ordering::Relaxed) {
            return false;
        }
        // Before the content is read: a later edit has a later time.
        let now = SystemTime::now();
        // A pipe has no content to compare.
        let differs = content_hash(&self.path).is_some_and(|found| self.content != Some(found));
        self.is_settled
            .store(!differs && stamp.is_settled(now), Ordering::Relaxed);
        differs
    }
}

impl Stamp {
    /// Whether an edit after `now` has another stamp.
    fn is_settled(&self, now: SystemTime) -> bool {
        let since_epoch = now.duration_since(SystemTime::UNIX_EPOCH);
        let settled = since_epoch.unwrap_or_default().saturating_sub(RACY_PERIOD);
        let changed = u64::try_from(self.changed.0).unwrap_or_default();
        changed < settled.as_secs()
    }
}

impl Files {
    /// Reads a file and watches it, even if reading fails.
    pub fn read<E: From<io::Error>>(&mut self, path: &Path) -> Result<ConfigFile, FileError<E>> {
        let stamp = stamp(path);
        let read = read_file(path);
        self.files.push(WatchedFile {
            path: path.to_owned(),
            stamp,
            content: read.as_ref().ok().map(|text| hash(text.as_bytes())),
            is_settled: AtomicBool::new(false),
        });
        let file = path.display().to_string();
        match read {
            Ok(text) => Ok(ConfigFile { name: file, text }),
            Err(error) => Err(FileError {
                file,
                error: error.into(),
            }),
        }
    }

    /// Watches a file that is read elsewhere, such as a certificate.
    pub fn watch(&mut self, path: &Path) {
        self.files.push(WatchedFile::new(path));
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
        let listed = |(path, before): &(PathBuf, Vec<PathBuf>)| {
            yaml_files(path).unwrap_or_default() != *before
        };
        self.files.iter().any(WatchedFile::is_edited) || self.directories.iter().any(listed)
    }

    /// Whether files and their content are still the same. Reads all files, because clocks of file
    /// systems are coarse: two writes within a few milliseconds can have the same time.
    fn is_stable(&self) -> bool {
        let same = |file: &WatchedFile| content_hash(&file.path) == file.content;
        !self.changed() && self.files.iter().all(same)
    }
}

fn stamp(path: &Path) -> Option<Stamp> {
    let metadata = fs::metadata(path).ok()?;
    Some(Stamp {
        device: metadata.dev(),
        inode: metadata.ino(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        changed: (metadata.ctime(), metadata.ctime_nsec()),
    })
}

/// Hash of a file's content; `None` if it cannot be read or is too large.
fn content_hash(path: &Path) -> Option<u64> {
    let metadata = fs::metadata(path).ok()?;
    // Reading a pipe or a device would block or never end.
    if !metadata.is_file() || metadata.len() > MAX_FILE_BYTES {
        return None;
    }
    fs::read(path).ok().map(|bytes| hash(&bytes))
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
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
pub type Loader<C, E> = dyn Fn(&Path, &mut Files) -> Result<C, FileError<E>> + Send + Sync;

/// A configuration on disk that is polled for changes.
pub struct FileSource<C, E> {
    path: PathBuf,
    load: Box<Loader<C, E>>,
    files: Files,
    /// An edit that the last poll found: used if the next poll finds the same content.
    pending: Option<Pending<C, E>>,
    polls: Interval,
}

impl<C, E> fmt::Debug for FileSource<C, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

struct Pending<C, E> {
    files: Files,
    loaded: Result<C, FileError<E>>,
}

impl<C, E> FileSource<C, E> {
    /// Creates a source with `path` as main file. Must be called within a Tokio runtime.
    pub fn new(
        path: impl Into<PathBuf>,
        load: impl Fn(&Path, &mut Files) -> Result<C, FileError<E>> + Send + Sync + 'static,
    ) -> Self {
        let mut polls = interval(POLL_INTERVAL);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            path: path.into(),
            load: Box::new(load),
            files: Files::default(),
            pending: None,
            polls,
        }
    }

    /// Loads the configuration at once and watches its files.
    pub fn load(&mut self) -> Result<C, FileError<E>> {
        self.pending = None;
        let Pending { files, loaded } = self.read();
        self.files = files;
        loaded
    }

    /// Waits for the next poll and reloads the configuration if a file has changed since it was
    /// read, and has not changed again since the poll before. Cancel safe.
    pub async fn poll(&mut self) -> Option<Result<C, FileError<E>>> {
        self.polls.tick().await;
        if let Some(pending) = self.pending.take()
            && pending.files.is_stable()
        {
            self.files = pending.files;
            return Some(pending.loaded);
        }
        if self.files.changed() {
            self.pending = Some(self.read());
        }
        None
    }

    fn read(&self) -> Pending<C, E> {
        let mut files = Files::default();
        let loaded = (self.load)(&self.path, &mut files);
        Pending { files, loaded }
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
        assert_eq!(edit(&mut source).await.unwrap(), 2);
        fs::write(at("more/b.yaml"), "longer").unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), 2);
        assert!(source.poll().await.is_none());
        fs::remove_file(at("more/a.yml")).unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), 1);
    }

    /// Polls twice: an edit is used if it is the same at the second poll.
    async fn edit<C, E>(source: &mut FileSource<C, E>) -> Result<C, FileError<E>> {
        assert!(source.poll().await.is_none(), "the file may be incomplete");
        source.poll().await.expect("the edit is stable")
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_being_written_is_not_loaded() {
        let text = |path: &Path, files: &mut Files| files.read::<io::Error>(path).map(|f| f.text);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.yaml");
        fs::write(&path, "services: [a, b]").unwrap();
        let mut source = FileSource::new(&path, text);
        source.load().unwrap();
        for half in ["services:", "services: [c", "services: [c]"] {
            fs::write(&path, half).unwrap();
            assert!(source.poll().await.is_none(), "{half}");
        }
        fs::write(&path, "services: [c, d]").unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), "services: [c, d]");
        // An editor that removes the file for a moment and writes the same content again.
        fs::remove_file(&path).unwrap();
        assert!(source.poll().await.is_none(), "missing");
        fs::write(&path, "services: [c, d]").unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), "services: [c, d]");
        assert!(source.poll().await.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_that_preserves_size_and_modification_time_is_loaded() {
        let text = |path: &Path, files: &mut Files| files.read::<io::Error>(path).map(|f| f.text);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.yaml");
        fs::write(&path, "port: 1").unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut source = FileSource::new(&path, text);
        source.load().unwrap();
        let beside = directory.path().join("copy");
        fs::write(&beside, "port: 2").unwrap();
        let copy = fs::File::options().write(true).open(&beside).unwrap();
        copy.set_modified(modified).unwrap();
        fs::rename(&beside, &path).unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), "port: 2");
    }

    /// Writes in place and restores the modification time; returns the new stamp.
    fn edit_in_place(path: &Path, text: &str, modified: SystemTime) -> Stamp {
        let file = fs::File::options().write(true).open(path).unwrap();
        io::Write::write_all(&mut &file, text.as_bytes()).unwrap();
        file.set_modified(modified).unwrap();
        stamp(path).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn an_edit_in_place_that_preserves_size_and_modification_time_is_loaded() {
        let text = |path: &Path, files: &mut Files| files.read::<io::Error>(path).map(|f| f.text);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("main.yaml");
        fs::write(&path, "port: 1").unwrap();
        let before = stamp(&path).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        let mut source = FileSource::new(&path, text);
        source.load().unwrap();
        let after = edit_in_place(&path, "port: 2", modified);
        let same = |stamp: Stamp| (stamp.inode, stamp.bytes, stamp.modified);
        assert_eq!(same(before), same(after));
        assert_eq!(edit(&mut source).await.unwrap(), "port: 2");
        assert!(source.poll().await.is_none());
    }

    #[test]
    fn the_time_of_the_last_change_reveals_an_edit_in_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "port: 1").unwrap();
        let modified = fs::metadata(file.path()).unwrap().modified().unwrap();
        let watched = WatchedFile::new(file.path());
        // From here on only the stamp decides.
        watched.is_settled.store(true, Ordering::Relaxed);
        assert!(!watched.is_edited());
        let before = watched.stamp.unwrap();
        // The clock of the file system may not have advanced yet.
        let after = loop {
            let after = edit_in_place(file.path(), "port: 2", modified);
            if after != before {
                break after;
            }
        };
        assert_ne!(before.changed, after.changed);
        assert!(watched.is_edited());
    }

    #[test]
    fn an_edit_in_the_same_tick_of_the_clock_is_noticed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "port: 1").unwrap();
        let mut watched = WatchedFile::new(file.path());
        assert!(!watched.is_edited());
        fs::write(file.path(), "port: 2").unwrap();
        // As if the clock had not advanced between both.
        watched.stamp = stamp(file.path());
        assert!(watched.is_edited());
        assert!(!watched.is_settled.load(Ordering::Relaxed));
    }

    #[test]
    fn a_stamp_is_settled_once_it_is_older_than_the_coarsest_clock() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let now = SystemTime::now();
        let stamp = stamp(file.path()).unwrap();
        assert!(!stamp.is_settled(now));
        assert!(!stamp.is_settled(now - Duration::from_secs(3600)), "future");
        assert!(stamp.is_settled(now + RACY_PERIOD + Duration::from_secs(2)));
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
        let error = edit(&mut source).await.unwrap_err();
        assert_eq!(error.file, path.display().to_string());
        assert!(source.poll().await.is_none(), "an error is not repeated");
        fs::create_dir(directory.path().join("more")).unwrap();
        fs::write(directory.path().join("more/a.yaml"), "").unwrap();
        assert_eq!(edit(&mut source).await.unwrap(), 1);
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
