//! Values of connection settings: HTTP version, DNS lookup family, health check method, SAN type.
//!
//! The core does not read them. They are declared here because the messages (`plimsoll-schema`) and
//! the connection settings (`plimsoll_xds::upstream`) share them, and neither depends on the other.

/// `Cluster.DnsLookupFamily`: address families used from DNS answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DnsLookupFamily {
    /// IPv6; IPv4 only if there is no IPv6 address.
    #[default]
    Auto,
    V4Only,
    V6Only,
    /// IPv4; IPv6 only if there is no IPv4 address.
    V4Preferred,
    All,
}

/// HTTP version of connections to the endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpVersion {
    #[default]
    Http1,
    /// HTTP/2; without TLS by prior knowledge.
    Http2,
}

/// `SubjectAltNameMatcher.SanType`, reduced to the supported kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SanType {
    Email,
    Dns,
    Uri,
    IpAddress,
}

/// `RequestMethod`, reduced to the methods that a health check may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HttpMethod {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Trace,
    Patch,
}

impl HttpMethod {
    /// Returns the method as sent in requests.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Trace => "TRACE",
            Self::Patch => "PATCH",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_envoy() {
        assert_eq!(HttpVersion::default(), HttpVersion::Http1);
        assert_eq!(DnsLookupFamily::default(), DnsLookupFamily::Auto);
        assert_eq!(HttpMethod::default().as_str(), "GET");
    }

    #[test]
    fn methods_are_written_in_capitals() {
        let methods = [
            HttpMethod::Get,
            HttpMethod::Head,
            HttpMethod::Post,
            HttpMethod::Put,
            HttpMethod::Delete,
            HttpMethod::Options,
            HttpMethod::Trace,
            HttpMethod::Patch,
        ];
        for method in methods {
            let name = format!("{method:?}").to_uppercase();
            assert_eq!(method.as_str(), name);
        }
    }
}
