//! All faults of a control plane's files, for `plimsoll check`. A running control plane stops at
//! the first.

use plimsoll_xds::yaml::{ConfigError, Document, FaultFinder, Found};

use super::yaml::FileYaml;
use super::{ConfigFile, ControlConfig, FileError};

/// A file that is valid YAML.
#[derive(Clone, Debug)]
pub(super) struct ParsedFile {
    pub(super) name: String,
    pub(super) document: Document,
}

impl ParsedFile {
    pub(super) fn read(&self) -> Result<FileYaml, FileError> {
        self.document.read().map_err(|error| self.error(error))
    }

    pub(super) fn error(&self, error: ConfigError) -> FileError {
        let file = self.name.clone();
        FileError { file, error }
    }
}

impl ControlConfig {
    /// Returns all faults of the main file and the included files.
    pub fn faults(main: &ConfigFile, included: &[ConfigFile]) -> Vec<FileError> {
        let mut faults = Vec::new();
        let mut files = Vec::new();
        for file in std::iter::once(main).chain(included) {
            match Document::parse(&file.text) {
                Ok(document) => files.push((file.name.clone(), FaultFinder::new(document))),
                Err(error) => faults.push(file.error(error)),
            }
        }
        if files.first().is_none_or(|(name, _)| *name != main.name) {
            return faults;
        }
        loop {
            let parsed: Vec<ParsedFile> = files
                .iter()
                .map(|(name, finder)| ParsedFile {
                    name: name.clone(),
                    document: finder.document().clone(),
                })
                .collect();
            let FileError { file, error } = match Self::read(&parsed[0], parsed[1..].iter()) {
                Ok(config) => {
                    faults.extend(config.reporting.heartbeat_error);
                    return faults;
                }
                Err(error) => error,
            };
            let Some((_, finder)) = files.iter_mut().find(|(name, _)| *name == file) else {
                // A fault between files, such as a route to a service that does not exist.
                let none_before = faults.is_empty();
                faults.extend(none_before.then_some(FileError { file, error }));
                return faults;
            };
            let Found { fault, again } = finder.found(error);
            faults.extend(fault.map(|error| FileError { file, error }));
            if !again {
                return faults;
            }
        }
    }
}
