//! [`Error`]: failure of a request, or of the configuration of a client.
//!
//! Follows the convention of the standard library: `Display` is the error's own message, `source`
//! its cause, so that a printed chain says everything once. `{:#}` prints the whole chain.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use plimsoll_xds::error_chain::describe;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// Cause of the errors of several requests.
pub(crate) type SharedSource = Arc<dyn std::error::Error + Send + Sync>;

/// Failure of a request or of a client's configuration. Match on [`Error::kind`] or
/// [`Error::side`]; the text is for people and may change.
///
/// `{}` prints the error itself, `{:#}` the error and its causes in one line.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use plimsoll_client::{Client, Cluster};
/// # let orders = Cluster::new("orders").endpoints(["127.0.0.1:1"]);
/// # let client = Client::builder().cluster(orders).build()?;
/// # use tower_service::Service as _;
/// # let request = http::Request::get("/").body(http_body_util::Empty::<bytes::Bytes>::new())?;
/// # let mut orders = client.service("orders")?;
/// use plimsoll_client::Side;
///
/// let error = orders.call(request).await.unwrap_err();
/// assert_eq!(error.to_string(), "cannot connect to 127.0.0.1:1 of cluster orders");
/// assert!(format!("{error:#}").ends_with("orders: Connection refused (os error 111)"));
/// assert!(error.is_connect() && error.side() == Side::Upstream);
/// assert_eq!(error.cluster(), Some("orders"));
/// # Ok(())
/// # }
/// ```
pub struct Error(Box<Repr>);

/// Boxed, so that results with an error stay small where requests succeed.
struct Repr {
    kind: ErrorKind,
    side: Side,
    message: String,
    cluster: Option<Arc<str>>,
    address: Option<SocketAddr>,
    source: Option<SharedSource>,
    /// A dial ended with this error, so that the same request need not dial the host again.
    failed_dial: bool,
}

/// Cause of an [`Error`], for programs to act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    Config,
    UnknownCluster,
    /// No host or subset is available, or `fail_traffic_on_panic` fails requests in panic mode.
    NoHost,
    NoRoute,
    /// The management server does not have a required resource, or did not send it in time.
    Discovery,
    /// The request was dropped by `drop_overloads` of the assignment.
    Dropped,
    /// A circuit breaker of the cluster is open.
    Overflow,
    Connect,
    /// The host did not process the request: it sent REFUSED_STREAM or GOAWAY(NO_ERROR).
    Refused,
    Timeout,
    /// The connection failed while the request was in flight.
    Transport,
    /// The client was [shut down](crate::Client::shutdown), or the runtime that it was built on has
    /// ended: nothing updates its clusters any more.
    Closed,
}

/// Where the cause of an [`Error`] is to be looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Side {
    /// Hosts of the cluster, or their names in DNS.
    Upstream,
    /// The management server cannot be reached, or has not sent what a request needs.
    ManagementServer,
    /// Settings of the client, or routes without an entry for the request.
    Configuration,
    /// The program: more requests at once than the circuit breakers allow, a timeout that ended
    /// before the request was sent, or a client that is shut down.
    Caller,
}

impl ErrorKind {
    const fn side(self) -> Side {
        match self {
            Self::Config | Self::UnknownCluster | Self::NoRoute => Side::Configuration,
            Self::Discovery | Self::Dropped => Side::ManagementServer,
            Self::Overflow | Self::Closed => Side::Caller,
            Self::NoHost | Self::Connect | Self::Refused | Self::Timeout | Self::Transport => {
                Side::Upstream
            }
        }
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self(Box::new(Repr {
            kind,
            side: kind.side(),
            message: message.into(),
            cluster: None,
            address: None,
            source: None,
            failed_dial: false,
        }))
    }

    pub(crate) fn closed() -> Self {
        Self::new(ErrorKind::Closed, "the client is shut down")
    }

    /// Error of a client whose tasks are gone although the client is not.
    #[cold]
    pub(crate) fn runtime_ended() -> Self {
        let message = "the runtime that the client was built on has ended";
        Self::new(ErrorKind::Closed, message)
    }

    pub(crate) fn with_source(self, source: impl Into<BoxError>) -> Self {
        self.with_shared_source(source.into().into())
    }

    pub(crate) fn with_shared_source(mut self, source: SharedSource) -> Self {
        self.0.source = Some(source);
        self
    }

    pub(crate) fn with_cluster(mut self, cluster: &Arc<str>) -> Self {
        self.0.cluster = Some(Arc::clone(cluster));
        self
    }

    pub(crate) fn with_address(mut self, address: Option<SocketAddr>) -> Self {
        self.0.address = address;
        self
    }

    pub(crate) fn with_failed_dial(mut self) -> Self {
        self.0.failed_dial = true;
        self
    }

    pub(crate) fn is_failed_dial(&self) -> bool {
        self.0.failed_dial
    }

    pub(crate) fn with_side(mut self, side: Side) -> Self {
        self.0.side = side;
        self
    }

    /// Returns the cause of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns where the cause of the error is to be looked for.
    pub fn side(&self) -> Side {
        self.0.side
    }

    /// Returns the cluster that the request was sent to, if it was chosen.
    pub fn cluster(&self) -> Option<&str> {
        self.0.cluster.as_deref()
    }

    /// Returns the address of the host that failed, if one was chosen.
    pub fn address(&self) -> Option<SocketAddr> {
        self.0.address
    }

    /// Whether a timeout of the request or of an attempt ended it.
    pub fn is_timeout(&self) -> bool {
        self.0.kind == ErrorKind::Timeout
    }

    /// Whether no connection to the host could be opened, or not in time.
    pub fn is_connect(&self) -> bool {
        self.0.kind == ErrorKind::Connect
    }

    /// Whether no host has processed any part of the request, so that it is safe to send it again.
    pub fn is_unsent(&self) -> bool {
        matches!(
            self.0.kind,
            ErrorKind::NoHost
                | ErrorKind::NoRoute
                | ErrorKind::Discovery
                | ErrorKind::Dropped
                | ErrorKind::Overflow
                | ErrorKind::Connect
                | ErrorKind::Refused
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f.write_str(&describe(self));
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repr {
            kind,
            side,
            message,
            cluster,
            address,
            source,
            failed_dial: _,
        } = &*self.0;
        let mut fields = f.debug_struct("Error");
        fields.field("kind", kind).field("side", side);
        fields.field("message", message);
        if let Some(cluster) = cluster {
            fields.field("cluster", cluster);
        }
        if let Some(address) = address {
            fields.field("address", address);
        }
        if let Some(source) = source {
            fields.field("source", &describe(&**source));
        }
        fields.finish()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    fn refused() -> Error {
        let refused = io::Error::other("connection refused");
        Error::new(ErrorKind::Connect, "cannot connect to 10.0.0.1:80")
            .with_cluster(&"orders".into())
            .with_address(Some(([10, 0, 0, 1], 80).into()))
            .with_source(refused)
    }

    #[test]
    fn display_is_the_message_and_its_alternate_form_the_chain() {
        let error = refused();
        assert_eq!(error.to_string(), "cannot connect to 10.0.0.1:80");
        let chain = "cannot connect to 10.0.0.1:80: connection refused";
        assert_eq!(format!("{error:#}"), chain);
        assert_eq!(describe(&error), chain);
    }

    #[test]
    fn a_request_is_unsent_if_no_host_has_seen_it() {
        let unsent = |kind| Error::new(kind, "").is_unsent();
        for kind in [
            ErrorKind::NoHost,
            ErrorKind::NoRoute,
            ErrorKind::Discovery,
            ErrorKind::Dropped,
            ErrorKind::Overflow,
            ErrorKind::Connect,
            ErrorKind::Refused,
        ] {
            assert!(unsent(kind), "{kind:?}");
        }
        for kind in [ErrorKind::Timeout, ErrorKind::Transport, ErrorKind::Closed] {
            assert!(!unsent(kind), "{kind:?}");
        }
    }

    #[test]
    fn debug_is_one_readable_line() {
        let text = "Error { kind: Connect, side: Upstream, \
                    message: \"cannot connect to 10.0.0.1:80\", cluster: \"orders\", \
                    address: 10.0.0.1:80, source: \"connection refused\" }";
        assert_eq!(format!("{:?}", refused()), text);
        let closed = "Error { kind: Closed, side: Caller, message: \"the client is shut down\" }";
        assert_eq!(format!("{:?}", Error::closed()), closed);
    }

    #[test]
    fn every_kind_has_its_side_and_its_questions() {
        for (kind, side) in [
            (ErrorKind::Config, Side::Configuration),
            (ErrorKind::UnknownCluster, Side::Configuration),
            (ErrorKind::NoRoute, Side::Configuration),
            (ErrorKind::Discovery, Side::ManagementServer),
            (ErrorKind::Dropped, Side::ManagementServer),
            (ErrorKind::Overflow, Side::Caller),
            (ErrorKind::Closed, Side::Caller),
            (ErrorKind::NoHost, Side::Upstream),
            (ErrorKind::Connect, Side::Upstream),
            (ErrorKind::Refused, Side::Upstream),
            (ErrorKind::Timeout, Side::Upstream),
            (ErrorKind::Transport, Side::Upstream),
        ] {
            let error = Error::new(kind, "");
            assert_eq!((error.kind(), error.side()), (kind, side));
            assert_eq!(error.is_timeout(), kind == ErrorKind::Timeout);
            assert_eq!(error.is_connect(), kind == ErrorKind::Connect);
            assert_eq!((error.cluster(), error.address()), (None, None));
            assert!(std::error::Error::source(&error).is_none());
        }
        let error = refused().with_side(Side::ManagementServer);
        assert_eq!(error.side(), Side::ManagementServer);
        assert_eq!(error.cluster(), Some("orders"));
        assert_eq!(error.address(), Some(([10, 0, 0, 1], 80).into()));
        let source = std::error::Error::source(&error).map(ToString::to_string);
        assert_eq!(source.as_deref(), Some("connection refused"));
    }

    #[test]
    fn an_error_is_one_pointer() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
