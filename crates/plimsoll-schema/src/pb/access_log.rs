//! `envoy.config.accesslog.v3` and the access loggers.

use plimsoll_schema_derive::Described;
use prost::Message;

use super::AnyMessage;
use super::metadata::StructMessage;
use super::tls::DataSourceMessage;

/// `AccessLog`: a log with a line per request.
#[derive(Clone, PartialEq, Eq, Message, Described)]
#[schema(name = "envoy.config.accesslog.v3.AccessLog")]
#[schema(changes_request = "2 filter")]
pub struct AccessLogMessage {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "4")]
    #[schema(types = ACCESS_LOGS)]
    pub typed_config: Option<AnyMessage>,
}

/// `FileAccessLog`: a log in a file.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.access_loggers.file.v3.FileAccessLog")]
#[schema(changes_request = "2 format, 3 json_format, 4 typed_json_format")]
pub struct FileAccessLogMessage {
    #[prost(string, tag = "1")]
    pub path: String,
    #[prost(message, optional, tag = "5")]
    pub log_format: Option<LogFormatMessage>,
}

/// `StdoutAccessLog`: a log on standard output.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.extensions.access_loggers.stream.v3.StdoutAccessLog")]
pub struct StdoutAccessLogMessage {
    #[prost(message, optional, tag = "1")]
    pub log_format: Option<LogFormatMessage>,
}

/// `envoy.config.core.v3.SubstitutionFormatString`: format of a line.
#[derive(Clone, PartialEq, Message, Described)]
#[schema(name = "envoy.config.core.v3.SubstitutionFormatString")]
#[schema(harmless = "4 content_type")]
#[schema(changes_request = "3 omit_empty_values?, 6 formatters, 7 json_format_options")]
pub struct LogFormatMessage {
    #[prost(string, optional, tag = "1")]
    pub text_format: Option<String>,
    #[prost(message, optional, tag = "2")]
    pub json_format: Option<StructMessage>,
    #[prost(message, optional, tag = "5")]
    pub text_format_source: Option<DataSourceMessage>,
}
