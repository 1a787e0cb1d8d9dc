//! `envoy.config.accesslog.v3` and the access loggers.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::AnyMessage;
use super::metadata::StructMessage;
use super::tls::DataSourceMessage;

/// `AccessLog`: one line per request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.accesslog.v3.AccessLog")]
#[schema(changes_request = "2 filter")]
pub struct AccessLogMessage {
    /// Name of the log; has no effect.
    #[prost(string, tag = "1")]
    pub name: String,
    /// Type and settings of the log. Must be set.
    #[prost(message, optional, tag = "4")]
    #[schema(types = ACCESS_LOGS)]
    pub typed_config: Option<AnyMessage>,
}

/// `FileAccessLog`: a log in a file.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.access_loggers.file.v3.FileAccessLog")]
#[schema(changes_request = "2 format, 3 json_format, 4 typed_json_format")]
pub struct FileAccessLogMessage {
    /// Path of the log file; `/dev/stdout` is standard output. Must be set.
    #[prost(string, tag = "1")]
    pub path: String,
    /// Format of a line. Default Envoy's default format.
    #[prost(message, optional, tag = "5")]
    pub log_format: Option<LogFormatMessage>,
}

/// `StdoutAccessLog`: a log on standard output.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog")]
pub struct StdoutAccessLogMessage {
    /// Format of a line. Default Envoy's default format.
    #[prost(message, optional, tag = "1")]
    pub log_format: Option<LogFormatMessage>,
}

/// `envoy.config.core.v3.SubstitutionFormatString`: format of a line.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.core.v3.SubstitutionFormatString")]
#[schema(harmless = "4 content_type")]
#[schema(changes_request = "3 omit_empty_values?, 6 formatters, 7 json_format_options")]
pub struct LogFormatMessage {
    /// Deprecated alternative to `text_format_source`.
    #[prost(string, optional, tag = "1")]
    pub text_format: Option<String>,
    /// Format of a JSON line: a flat object with operators in its values.
    #[prost(message, optional, tag = "2")]
    pub json_format: Option<StructMessage>,
    /// Format of a text line, with operators such as `%RESPONSE_CODE%`, which should end with a
    /// line break; only `inline_string`.
    #[prost(message, optional, tag = "5")]
    pub text_format_source: Option<DataSourceMessage>,
}
