//! Access logs: Envoy's `FileAccessLog` and `StdoutAccessLog`.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::AccessLogConfig;
use crate::access_log::{JsonTemplate, LogFormat};

/// An access log (`AccessLog`): one line per request.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct AccessLogYaml {
    /// Name of the log; has no effect.
    #[serde(rename = "name", default)]
    _name: String,
    /// Type and settings of the log.
    typed_config: TypedConfigYaml,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "AccessLogTypedConfig")
)]
#[serde(deny_unknown_fields)]
struct TypedConfigYaml {
    /// Type of the log: the full name of `FileAccessLog` or `StdoutAccessLog`.
    #[serde(rename = "@type")]
    type_url: String,
    /// Path of the log file; required for `FileAccessLog`.
    path: Option<PathBuf>,
    /// Format of a line. Default Envoy's default format.
    log_format: Option<LogFormatYaml>,
}

/// Format of a log line (`SubstitutionFormatString`).
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LogFormatYaml {
    /// Format of a text line, with operators such as `%RESPONSE_CODE%`.
    text_format_source: Option<TextSourceYaml>,
    /// Deprecated alternative to `text_format_source`.
    text_format: Option<String>,
    /// Format of a JSON line: a flat object with operators in its values.
    json_format: Option<JsonTemplate>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TextSourceYaml {
    /// The format, which should end with a line break.
    inline_string: String,
}

impl AccessLogYaml {
    /// Validates the `AccessLog` message; error paths are relative to this message.
    pub(super) fn validate(self) -> Result<AccessLogConfig, FieldError> {
        let config = self.typed_config;
        let kind = config.type_url.rsplit('.').next().unwrap_or_default();
        let path = match (kind, config.path) {
            ("FileAccessLog", Some(path)) if path.as_os_str() != "/dev/stdout" => Some(path),
            ("FileAccessLog", Some(_)) | ("StdoutAccessLog", None) => None,
            ("FileAccessLog", None) => {
                return Err(FieldError::new("typed_config.path", "must be set"));
            }
            ("StdoutAccessLog", Some(_)) => {
                return Err(FieldError::new(
                    "typed_config.path",
                    "is only allowed with FileAccessLog",
                ));
            }
            _ => {
                let reason = format!(
                    "{:?} is not supported; supported: FileAccessLog, StdoutAccessLog",
                    config.type_url
                );
                return Err(FieldError::new("typed_config.@type", reason));
            }
        };
        let format = config.log_format.unwrap_or_default().validate();
        Ok(AccessLogConfig {
            path,
            format: Arc::new(format.map_err(|error| error.under("typed_config.log_format"))?),
        })
    }
}

impl LogFormatYaml {
    fn validate(self) -> Result<LogFormat, FieldError> {
        let text = self.text_format_source.map(|source| source.inline_string);
        match (text.or(self.text_format), self.json_format) {
            (Some(_), Some(_)) => Err(FieldError::new(
                "json_format",
                "cannot be combined with a text format",
            )),
            (None, None) => Ok(LogFormat::default()),
            (Some(text), None) => {
                let path = "text_format_source.inline_string";
                LogFormat::text(&text).map_err(|error| FieldError::new(path, error.to_string()))
            }
            (None, Some(json)) => {
                let path = "json_format";
                LogFormat::json(&json).map_err(|error| FieldError::new(path, error.to_string()))
            }
        }
    }
}
