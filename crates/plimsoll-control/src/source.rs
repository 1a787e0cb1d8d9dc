//! Loads the main configuration file and the files it includes. `config` parses the text;
//! plimsoll-serve watches the files for changes.

use std::path::{Path, PathBuf};

use plimsoll_serve::{ConfigFile, Files};
use plimsoll_xds::yaml::{ConfigError, Document, expand_environment};

use crate::config::{ControlConfig, FileError};

/// Loads and validates the configuration.
pub fn load(path: &Path, files: &mut Files) -> Result<ControlConfig, FileError> {
    let main = read(path, files)?;
    let mut included = Vec::new();
    for path in paths(path, &main, files)? {
        included.push(read(&path, files)?);
    }
    ControlConfig::parse(&main, &included)
}

/// Returns all faults of the configuration, or the configuration if it has none. Files that cannot
/// be read are faults, and the others are read all the same.
pub fn check(path: &Path) -> Result<ControlConfig, Vec<FileError>> {
    let mut files = Files::default();
    let main = read(path, &mut files).map_err(|error| vec![error])?;
    let mut faults = Vec::new();
    let mut included = Vec::new();
    match listed(path, &main, &named(&main), &mut files) {
        Ok(paths) => {
            for path in paths {
                match read(&path, &mut files) {
                    Ok(file) => included.push(file),
                    Err(error) => faults.push(error),
                }
            }
        }
        Err(error) => faults.push(error),
    }
    for fault in ControlConfig::faults(&main, &included) {
        if !faults.contains(&fault) {
            faults.push(fault);
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let config = ControlConfig::parse(&main, &included).map_err(|error| vec![error])?;
    let unusable = crate::run::certificate_faults(&config);
    if unusable.is_empty() {
        return Ok(config);
    }
    let document = Document::parse(&main.text).map_err(|error| vec![main.error(error)])?;
    let faults = unusable.into_iter();
    Err(faults
        .map(|fault| main.error(document.locate(fault)))
        .collect())
}

/// Reads a file and replaces references to environment variables.
fn read(path: &Path, files: &mut Files) -> Result<ConfigFile, FileError> {
    let mut file = files.read(path)?;
    file.text = match expand_environment(&file.text) {
        Ok(text) => text.into_owned(),
        Err(error) => return Err(file.error(error)),
    };
    Ok(file)
}

/// Returns the files that `include` names. Paths are relative to the main file; a directory stands
/// for all its YAML files, sorted by name.
fn paths(path: &Path, main: &ConfigFile, files: &mut Files) -> Result<Vec<PathBuf>, FileError> {
    listed(path, main, &ControlConfig::includes(main)?, files)
}

/// Returns `include` of a main file whose other fields may have faults.
fn named(main: &ConfigFile) -> Vec<String> {
    let json = Document::parse(&main.text).map(|document| document.json());
    let include = json
        .ok()
        .and_then(|json| json.get("include")?.as_array().cloned())
        .unwrap_or_default();
    let names = include.iter().filter_map(|entry| entry.as_str());
    names.map(str::to_owned).collect()
}

fn listed(
    path: &Path,
    main: &ConfigFile,
    include: &[String],
    files: &mut Files,
) -> Result<Vec<PathBuf>, FileError> {
    let base = path.parent().unwrap_or(Path::new(""));
    let mut paths = Vec::new();
    for (index, entry) in include.iter().enumerate() {
        let path = base.join(entry);
        if !path.is_dir() {
            paths.push(path);
            continue;
        }
        let listed = files.yaml_files(&path).map_err(|error| {
            let error = ConfigError::new(format!("include[{index}]"), error.to_string());
            main.error(error)
        })?;
        paths.extend(listed);
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn service(name: &str) -> String {
        format!("services: [{{cluster: {{name: {name}}}}}]\n")
    }

    #[test]
    fn including_a_directory_includes_its_yaml_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("control.yaml"), "include: [services.d, extra.yml]\n").unwrap();
        fs::create_dir(at("services.d")).unwrap();
        fs::write(at("services.d/b.yaml"), service("b")).unwrap();
        fs::write(at("services.d/a.yml"), service("a")).unwrap();
        fs::write(at("services.d/.hidden.yaml"), "nonsense: [").unwrap();
        fs::write(at("services.d/notes.txt"), "nonsense").unwrap();
        fs::write(at("extra.yml"), service("c")).unwrap();
        let mut files = Files::default();
        let config = load(&at("control.yaml"), &mut files).unwrap();
        let names: Vec<_> = config.services.keys().map(AsRef::as_ref).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!(!files.changed());
        fs::write(at("services.d/d.yaml"), service("d")).unwrap();
        assert!(files.changed());
        let reloaded = load(&at("control.yaml"), &mut Files::default()).unwrap();
        assert_eq!(reloaded.services.len(), 4);
    }

    #[test]
    fn a_check_names_every_fault_of_every_file_once() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let main = "include: [missing.yaml, bad.yaml, good.yaml]\nlisten: nowhere\nadmin: nobody\n";
        fs::write(at("control.yaml"), main).unwrap();
        fs::write(at("bad.yaml"), "services: [{cluster: {name: a, nam: a}}]\n").unwrap();
        fs::write(at("good.yaml"), service("b")).unwrap();
        let faults = check(&at("control.yaml")).unwrap_err();
        let mut texts: Vec<_> = faults.iter().map(ToString::to_string).collect();
        for named in ["missing.yaml", "bad.yaml", "listen", "admin"] {
            let of = |text: &String| text.contains(named);
            assert_eq!(
                texts.iter().filter(|text| of(text)).count(),
                1,
                "{texts:#?}"
            );
            texts.retain(|text| !of(text));
        }
        assert_eq!(texts, Vec::<String>::new());
    }

    #[test]
    fn variables_are_replaced_in_all_files() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let main = "include: [more.yaml]\nadmin: '${NO_SUCH_VARIABLE:-127.0.0.1:0}'\n";
        fs::write(at("control.yaml"), main).unwrap();
        fs::write(at("more.yaml"), service("'${CARGO_PKG_NAME}'")).unwrap();
        let config = load(&at("control.yaml"), &mut Files::default()).unwrap();
        assert!(config.services.contains_key("plimsoll-control"));
        assert!(check(&at("control.yaml")).is_ok());
        fs::write(at("more.yaml"), service("'${NO_SUCH_VARIABLE}'")).unwrap();
        let expected = "services[0].cluster.name: the environment variable NO_SUCH_VARIABLE is not \
                        set (at 1:29)";
        let error = load(&at("control.yaml"), &mut Files::default()).unwrap_err();
        assert!(error.to_string().ends_with(expected), "{error}");
        let faults = check(&at("control.yaml")).unwrap_err();
        assert!(faults[0].to_string().ends_with(expected), "{faults:?}");
    }

    #[test]
    fn unreadable_files_are_errors_with_their_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("control.yaml");
        let assert_error = |expected: &str| {
            let error = load(&path, &mut Files::default()).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        };
        assert_error("control.yaml: cannot be read");
        fs::write(&path, "include: [missing.yaml]").unwrap();
        assert_error("missing.yaml: cannot be read");
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_error("UTF-8");
    }
}
