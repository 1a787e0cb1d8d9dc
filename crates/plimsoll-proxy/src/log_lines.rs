//! Log lines of the proxy.

plimsoll_core::log_lines! {
    /// A downstream connection failed its TLS handshake and was closed.
    TLS_HANDSHAKE_FAILED = Debug, "downstream TLS handshake failed",
        "If `downstream_cx_ssl_fail` grows, compare TLS versions and certificates of clients with \
         those that the listener requires.";
    /// A downstream connection was closed because of an HTTP protocol error or a timeout.
    CONNECTION_CLOSED = Debug, "downstream connection closed with an error", "";
    /// A request got no response from upstream, so the proxy answered by itself (local reply).
    UPSTREAM_REQUEST_FAILED = Debug, "upstream request failed; sending a local reply",
        "Look up the response flags of the request in the access log.";
    /// Routes were compiled for a listener.
    ROUTES_COMPILED = Debug, "compiling routes", "";
    /// A listener cannot be bound. The other listeners keep serving.
    BIND_FAILED = Error, "cannot bind a listener",
        "Free the address that another process uses, or change the listener's `address`.";
    /// The operating system refused to accept a connection; retried after 50 ms.
    ACCEPT_FAILED = Warn, "cannot accept a connection; retrying",
        "Raise the limit on open files if `error` says so.";
    /// The configuration sets fields that this build accepts and ignores.
    FIELDS_IGNORED = Warn, "configuration has fields without effect",
        "Remove the listed fields, or check that nothing relies on them.";
    /// The client task has ended, so clusters of the configuration were not applied.
    CLUSTERS_NOT_APPLIED = Error, "clusters of the configuration were not applied",
        "Restart the proxy and report the `error`.";
    /// The client task has ended, so nothing was subscribed to at the management server.
    SUBSCRIPTION_FAILED = Error, "cannot subscribe at the management server",
        "Restart the proxy and report the `error`.";
    /// The client task has ended, so clusters that nothing uses were not removed.
    CLUSTERS_NOT_REMOVED = Error, "unused clusters were not removed",
        "Restart the proxy and report the `error`.";
    /// A route configuration of the management server (RDS) took effect.
    ROUTES_APPLIED = Info, "routes updated", "";
    /// A connection switched protocols on one side only, so the tunnel was not opened.
    UPGRADE_FAILED = Debug, "protocol upgrade failed after the 101 response", "";
    /// An upgraded connection (WebSocket or CONNECT) ended with an error.
    TUNNEL_CLOSED = Debug, "tunnel closed with an error", "";
    /// The access log cannot be written. No further lines are written until the next start.
    ACCESS_LOG_FAILED = Error, "cannot write the access log; no further lines are written",
        "Free space on the disk or correct the path, then restart the proxy.";
}
