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
        let config = |message: String| Error::new(ErrorKind::Config, message);
        let (text, place) = match std::env::var(GRPC_XDS_BOOTSTRAP) {
            Ok(path) if !path.is_empty() => {
                let text = std::fs::read_to_string(&path);
                let unreadable = |error| {
                    let message = format!("cannot read {GRPC_XDS_BOOTSTRAP}={path}");
                    config(message).with_source(error)
                };
                (text.map_err(unreadable)?, path)
            }
            _ => {
                let text = std::env::var(GRPC_XDS_BOOTSTRAP_CONFIG).map_err(|_| {
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
