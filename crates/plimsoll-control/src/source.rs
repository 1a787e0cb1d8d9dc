//! Files on disk: reading the configuration and noticing that it changed.
//!
//! Changes are found by looking (name, length and time of modification of every file) instead of by
//! notifications of the kernel: those miss mounted volumes and the symbolic links that Kubernetes
//! swaps. What the text means lives in `config`; when to look is the server's business.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use plimsoll_xds::yaml::ConfigError;

use crate::config::{ControlConfig, File, FileError};

/// The largest file that is read: a mistake should not eat the memory.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// The main file and what it includes.
#[derive(Clone, Debug)]
pub struct FileSource {
    path: PathBuf,
}

/// How the files looked; equal when nothing changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>)>);

impl FileSource {
    /// A source that begins at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Reads everything. The fingerprint was taken before, so that a change in between is seen by
    /// the next look.
    pub fn load(&self) -> Result<(ControlConfig, Fingerprint), FileError> {
        let fingerprint = self.fingerprint();
        let main = read(&self.path)?;
        let mut included = Vec::new();
        for path in self.included(&main)? {
            included.push(read(&path)?);
        }
        let config = ControlConfig::parse(&main, &included)?;
        Ok((config, fingerprint))
    }

    /// How the files look now. What cannot be read looks like an empty file.
    pub fn fingerprint(&self) -> Fingerprint {
        let mut paths = vec![self.path.clone()];
        if let Ok(main) = read(&self.path)
            && let Ok(included) = self.included(&main)
        {
            paths.extend(included);
        }
        let look = |path: PathBuf| {
            let metadata = fs::metadata(&path).ok();
            let length = metadata.as_ref().map_or(0, fs::Metadata::len);
            let modified = metadata.and_then(|metadata| metadata.modified().ok());
            (path, length, modified)
        };
        Fingerprint(paths.into_iter().map(look).collect())
    }

    /// The files that the main one includes: relative to its directory; of a directory, every YAML
    /// file, in order of name.
    fn included(&self, main: &File) -> Result<Vec<PathBuf>, FileError> {
        let base = self.path.parent().unwrap_or(Path::new(""));
        let mut paths = Vec::new();
        for (index, entry) in ControlConfig::includes(main)?.iter().enumerate() {
            let path = base.join(entry);
            if path.is_dir() {
                let files = yaml_files(&path).map_err(|error| FileError {
                    file: main.name.clone(),
                    error: ConfigError::new(format!("include[{index}]"), error.to_string()),
                })?;
                paths.extend(files);
            } else {
                paths.push(path);
            }
        }
        Ok(paths)
    }
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

fn read(path: &Path) -> Result<File, FileError> {
    let name = path.display().to_string();
    let error = |reason: String| FileError {
        file: name.clone(),
        error: ConfigError::new("", reason),
    };
    let metadata = fs::metadata(path).map_err(|cause| error(format!("cannot be read: {cause}")))?;
    if metadata.len() > MAX_FILE_BYTES {
        let reason = format!("{} bytes are more than {MAX_FILE_BYTES}", metadata.len());
        return Err(error(reason));
    }
    let text =
        fs::read_to_string(path).map_err(|cause| error(format!("cannot be read: {cause}")))?;
    Ok(File { name, text })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str) -> String {
        format!("services: [{{cluster: {{name: {name}}}}}]\n")
    }

    #[test]
    fn a_directory_is_every_yaml_file_in_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("control.yaml"), "include: [services.d, extra.yml]\n").unwrap();
        fs::create_dir(at("services.d")).unwrap();
        fs::write(at("services.d/b.yaml"), service("b")).unwrap();
        fs::write(at("services.d/a.yml"), service("a")).unwrap();
        fs::write(at("services.d/.hidden.yaml"), "nonsense: [").unwrap();
        fs::write(at("services.d/notes.txt"), "nonsense").unwrap();
        fs::write(at("extra.yml"), service("c")).unwrap();
        let source = FileSource::new(at("control.yaml"));
        let (config, fingerprint) = source.load().unwrap();
        let names: Vec<_> = config.services.keys().map(AsRef::as_ref).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(source.fingerprint(), fingerprint);
        fs::write(at("services.d/d.yaml"), service("d")).unwrap();
        assert_ne!(source.fingerprint(), fingerprint);
        assert_eq!(source.load().unwrap().0.services.len(), 4);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.yaml");
        let error = FileSource::new(&path).load().unwrap_err();
        assert!(
            error.to_string().contains("control.yaml: cannot be read"),
            "{error}"
        );
        fs::write(&path, "include: [missing.yaml]").unwrap();
        let error = FileSource::new(&path).load().unwrap_err();
        assert!(
            error.to_string().contains("missing.yaml: cannot be read"),
            "{error}"
        );
        fs::write(&path, [0xff, 0xfe]).unwrap();
        let error = FileSource::new(&path).load().unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
    }
}
