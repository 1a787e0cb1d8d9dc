//! Access logs: `FileAccessLog` and `StdoutAccessLog`.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_core::units::FieldError;
use serde::Deserialize;

use super::AccessLogConfig;
use crate::access_log::{JsonTemplate, LogFormat};

/// `AccessLog`.
#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub(super) struct AccessLogYaml {
    /// Only a name.
    #[serde(rename = "name", default)]
    _name: String,
    /// The settings.
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
    /// The full name of a `FileAccessLog` or a `StdoutAccessLog`.
    #[serde(rename = "@type")]
    type_url: String,
    /// The file, of a `FileAccessLog`.
    path: Option<PathBuf>,
    /// What a line says. Default Envoy's format.
    log_format: Option<LogFormatYaml>,
}

/// `SubstitutionFormatString`.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
struct LogFormatYaml {
    /// A line of text, with operators such as `%RESPONSE_CODE%`.
    text_format_source: Option<TextSourceYaml>,
    /// Deprecated spelling of the same.
    text_format: Option<String>,
    /// A flat object, with operators in its values.
    json_format: Option<JsonTemplate>,
}

#[derive(Debug, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
struct TextSourceYaml {
    /// The text.
    inline_string: String,
}

impl AccessLogYaml {
    /// The checked form; paths start at this message.
    pub(super) fn checked(self) -> Result<AccessLogConfig, FieldError> {
        let config = self.typed_config;
        let kind = config.type_url.rsplit('.').next().unwrap_or_default();
        let path = match (kind, config.path) {
            ("FileAccessLog", Some(path)) if path.as_os_str() != "/dev/stdout" => Some(path),
            ("FileAccessLog", Some(_)) | ("StdoutAccessLog", None) => None,
            ("FileAccessLog", None) => {
                return Err(FieldError::new("typed_config.path", "must be set"));
            }
            ("StdoutAccessLog", Some(_)) => {
                return Err(FieldError::new("typed_config.path", "is for FileAccessLog"));
            }
            _ => {
                let reason = format!(
                    "{:?} is not supported; known: FileAccessLog, StdoutAccessLog",
                    config.type_url
                );
                return Err(FieldError::new("typed_config.@type", reason));
            }
        };
        let format = config.log_format.unwrap_or_default().checked();
        Ok(AccessLogConfig {
            path,
            format: Arc::new(format.map_err(|error| error.under("typed_config.log_format"))?),
        })
    }
}

impl LogFormatYaml {
    fn checked(self) -> Result<LogFormat, FieldError> {
        let text = self.text_format_source.map(|source| source.inline_string);
        match (text.or(self.text_format), self.json_format) {
            (Some(_), Some(_)) => Err(FieldError::new(
                "json_format",
                "stands beside a text format",
            )),
            (None, None) => Ok(LogFormat::default()),
            (Some(text), None) => {
                let reason = |reason| FieldError::new("text_format_source.inline_string", reason);
                LogFormat::text(&text).map_err(reason)
            }
            (None, Some(json)) => {
                let reason = |reason| FieldError::new("json_format", reason);
                LogFormat::json(&json).map_err(reason)
            }
        }
    }
}
