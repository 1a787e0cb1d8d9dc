//! Settings of a connection manager that protect the upstream from what clients write: paths,
//! header names, `Host` and `x-forwarded-client-cert`.

use plimsoll_xds::yaml::proto_json::ProtoEnum;
use serde::Deserialize;

/// How the path of a request is normalized before it is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathOptions {
    /// Resolve dot segments, decode unreserved characters, replace backslashes (RFC 3986, 6).
    pub normalize: bool,
    pub merge_slashes: bool,
    pub escaped_slashes: EscapedSlashes,
}

/// What to do with `%2F` and `%5C` in a path (`path_with_escaped_slashes_action`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EscapedSlashes {
    #[default]
    Keep,
    Reject,
    UnescapeAndRedirect,
    UnescapeAndForward,
}

impl ProtoEnum for EscapedSlashes {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("IMPLEMENTATION_SPECIFIC_DEFAULT", 0, Self::Keep),
        ("KEEP_UNCHANGED", 1, Self::Keep),
        ("REJECT_REQUEST", 2, Self::Reject),
        ("UNESCAPE_AND_REDIRECT", 3, Self::UnescapeAndRedirect),
        ("UNESCAPE_AND_FORWARD", 4, Self::UnescapeAndForward),
    ];
}

/// What to do with request headers whose names have underscores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeadersWithUnderscores {
    #[default]
    Allow,
    Reject,
    Drop,
}

impl ProtoEnum for HeadersWithUnderscores {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("ALLOW", 0, Self::Allow),
        ("REJECT_REQUEST", 1, Self::Reject),
        ("DROP_HEADER", 2, Self::Drop),
    ];
}

/// Which ports are removed from `Host` before a request is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StripHostPort {
    #[default]
    None,
    /// The port that the listener listens on.
    Matching,
    Any,
}

/// What to do with `x-forwarded-client-cert` of a request (`forward_client_cert_details`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForwardClientCert {
    /// Remove the header from every request.
    #[default]
    Sanitize,
    /// Keep the header of clients that have a certificate.
    ForwardOnly,
    /// Append the certificate of the client to the header.
    AppendForward,
    /// Replace the header by the certificate of the client.
    SanitizeSet,
    /// Keep the header of all clients.
    AlwaysForwardOnly,
}

impl ProtoEnum for ForwardClientCert {
    const VALUES: &'static [(&'static str, i64, Self)] = &[
        ("SANITIZE", 0, Self::Sanitize),
        ("FORWARD_ONLY", 1, Self::ForwardOnly),
        ("APPEND_FORWARD", 2, Self::AppendForward),
        ("SANITIZE_SET", 3, Self::SanitizeSet),
        ("ALWAYS_FORWARD_ONLY", 4, Self::AlwaysForwardOnly),
    ];
}

/// Fields of the client certificate in `x-forwarded-client-cert`, besides `By` and `Hash`.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(schemars::JsonSchema),
    schemars(rename = "SetCurrentClientCertDetails")
)]
#[serde(default, deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "fields of Envoy's SetCurrentClientCertDetails"
)]
pub struct ClientCertDetails {
    /// `Subject`: the distinguished name, in the format of RFC 2253. Default false.
    pub subject: bool,
    /// `Cert`: the certificate in PEM format, percent-encoded. Default false.
    pub cert: bool,
    /// `Chain`: the certificate chain in PEM format, percent-encoded. Default false.
    pub chain: bool,
    /// `DNS`: the DNS names of the certificate. Default false.
    pub dns: bool,
    /// `URI`: the URI names of the certificate. Default false.
    pub uri: bool,
}
