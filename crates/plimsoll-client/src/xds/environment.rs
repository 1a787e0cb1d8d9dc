//! Bootstrap from the environment variables of gRPC (gRFC A27).

use crate::error::{Error, ErrorKind};
use crate::xds::XdsOptions;

/// Environment variable with the path of the bootstrap file.
const GRPC_XDS_BOOTSTRAP: &str = "GRPC_XDS_BOOTSTRAP";
/// Environment variable with the bootstrap itself, as JSON.
const GRPC_XDS_BOOTSTRAP_CONFIG: &str = "GRPC_XDS_BOOTSTRAP_CONFIG";

impl XdsOptions {
    /// Reads the gRPC bootstrap from the environment: the file that `GRPC_XDS_BOOTSTRAP` names, or
    /// else `GRPC_XDS_BOOTSTRAP_CONFIG`.
    pub fn from_env() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let (text, place) = match variable(GRPC_XDS_BOOTSTRAP) {
            Some(path) if !path.is_empty() => {
                let text = std::fs::read_to_string(&path);
                let unreadable = |error| {
                    let message = format!("cannot read {GRPC_XDS_BOOTSTRAP}={path}");
                    config(message).with_source(error)
                };
                (text.map_err(unreadable)?, path)
            }
            _ => {
                let text = variable(GRPC_XDS_BOOTSTRAP_CONFIG).ok_or_else(|| {
                    config(format!(
                        "neither {GRPC_XDS_BOOTSTRAP} nor {GRPC_XDS_BOOTSTRAP_CONFIG} is set"
                    ))
                })?;
                (text, GRPC_XDS_BOOTSTRAP_CONFIG.to_owned())
            }
        };
        Self::from_bootstrap(&text).map_err(|error| config(place).with_source(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bootstrap(server: &str) -> String {
        let creds = r#"[{"type": "insecure"}]"#;
        format!(
            r#"{{"xds_servers": [{{"server_uri": "{server}", "channel_creds": {creds}}}],
                "node": {{"id": "n"}}}}"#
        )
    }

    fn read(path: Option<&str>, text: Option<&str>) -> Result<String, String> {
        let variable = |name: &str| match name {
            GRPC_XDS_BOOTSTRAP => path.map(ToOwned::to_owned),
            GRPC_XDS_BOOTSTRAP_CONFIG => text.map(ToOwned::to_owned),
            _ => None,
        };
        let options = XdsOptions::from_variables(variable);
        let options = options.map(|options| options.server.uri);
        options.map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_file_takes_precedence_over_the_text() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bootstrap.json");
        std::fs::write(&path, bootstrap("file:1")).unwrap();
        let path = path.to_str().unwrap();
        let text = bootstrap("text:2");
        let (file, inline) = ("http://file:1".to_owned(), "http://text:2".to_owned());
        assert_eq!(read(Some(path), None), Ok(file.clone()));
        assert_eq!(read(Some(path), Some(&text)), Ok(file));
        assert_eq!(read(None, Some(&text)), Ok(inline.clone()));
        assert_eq!(read(Some(""), Some(&text)), Ok(inline), "empty is unset");
    }

    #[test]
    fn errors_name_the_variable() {
        let unset = "neither GRPC_XDS_BOOTSTRAP nor GRPC_XDS_BOOTSTRAP_CONFIG is set";
        assert_eq!(read(None, None), Err(unset.to_owned()));
        assert_eq!(read(Some(""), None), Err(unset.to_owned()));
        let missing = read(Some("/no/such/file"), Some("")).unwrap_err();
        let start = "cannot read GRPC_XDS_BOOTSTRAP=/no/such/file: ";
        assert!(missing.starts_with(start), "{missing}");
        let invalid = read(None, Some("{}")).unwrap_err();
        assert!(
            invalid.starts_with("GRPC_XDS_BOOTSTRAP_CONFIG: "),
            "{invalid}"
        );
    }
}
