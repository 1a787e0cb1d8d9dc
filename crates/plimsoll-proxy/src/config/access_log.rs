//! Access logs: Envoy's `FileAccessLog` and `StdoutAccessLog`.

use std::sync::Arc;

use plimsoll_core::units::FieldError;
use plimsoll_xds::pb::access_log::{
    AccessLogMessage, FileAccessLogMessage, LogFormatMessage, StdoutAccessLogMessage,
};
use plimsoll_xds::pb::metadata::{KindMessage, StructMessage};
use plimsoll_xds::pb::tls::DataSourceMessage;
use plimsoll_xds::schema::registry::ACCESS_LOGS;

use super::AccessLogConfig;
use super::extension::{is, typed_config, unsupported};
use crate::access_log::{JsonTemplate, LogFormat};

/// Converts an `AccessLog`; error paths are relative to the message.
pub(super) fn access_log(message: AccessLogMessage) -> Result<AccessLogConfig, FieldError> {
    let config = message.typed_config;
    let (path, format) = if is::<FileAccessLogMessage>(config.as_ref()) {
        let file: FileAccessLogMessage = typed_config(config)?;
        if file.path.is_empty() {
            return Err(FieldError::new("typed_config.path", "must be set"));
        }
        let path = (file.path != "/dev/stdout").then(|| file.path.into());
        (path, file.log_format)
    } else if is::<StdoutAccessLogMessage>(config.as_ref()) {
        let stdout: StdoutAccessLogMessage = typed_config(config)?;
        (None, stdout.log_format)
    } else {
        return Err(unsupported(config.as_ref(), ACCESS_LOGS));
    };
    let format = log_format(format.unwrap_or_default());
    Ok(AccessLogConfig {
        path,
        format: Arc::new(format.map_err(|error| error.under("typed_config.log_format"))?),
    })
}

fn log_format(message: LogFormatMessage) -> Result<LogFormat, FieldError> {
    let source = message.text_format_source.map(inline_string).transpose()?;
    match (source.or(message.text_format), message.json_format) {
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
            LogFormat::json(&json_template(json)?)
                .map_err(|error| FieldError::new(path, error.to_string()))
        }
    }
}

fn inline_string(source: DataSourceMessage) -> Result<String, FieldError> {
    match source {
        DataSourceMessage {
            filename: None,
            inline_bytes: None,
            inline_string: Some(text),
            environment_variable: None,
            watched_directory: _,
        } => Ok(text),
        _ => Err(FieldError::new(
            "text_format_source",
            "must have inline_string only",
        )),
    }
}

fn json_template(message: StructMessage) -> Result<JsonTemplate, FieldError> {
    let fields = message.fields.into_iter();
    fields
        .map(|(key, value)| match value.kind {
            Some(KindMessage::String(format)) => Ok((key, format)),
            _ => Err(FieldError::new(
                format!("json_format.{key}"),
                "must be a string",
            )),
        })
        .collect()
}
