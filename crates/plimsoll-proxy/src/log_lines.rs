//! Log lines of the proxy.

plimsoll_core::log_lines! {
    /// A downstream connection failed its TLS handshake and was closed.
    TLS_HANDSHAKE_FAILED = Debug, "downstream TLS handshake failed",
        "If `downstream_cx_ssl_fail` grows, compare TLS versions and certificates of clients with \
         those that the listener requires.";
    /// A downstream connection was closed because no filter chain of its listener matches it.
    NO_FILTER_CHAIN = Debug, "no filter chain matches the connection",
        "If `no_filter_chain_match` grows, compare the server names (SNI) that clients ask for \
         with the `filter_chain_match` of the listener, or add a `default_filter_chain`.";
    /// A client address, or an IPv6 network of 64 bits, has as many connections open as
    /// `ConnectionsPerAddressConfig` allows. At most one line a second; `suppressed` counts others.
    ADDRESS_REFUSED = Warn, "connection refused: too many of one client address are open",
        "Raise the limit if many clients share the address (NAT, another proxy).";
    /// An action of the overload manager is in force, because memory or time runs short.
    OVERLOAD_BEGUN = Warn, "overload action begins",
        "Add capacity, or find out what takes the resource. `pressure` is the highest of all \
         monitors.";
    /// An action of the overload manager is no longer in force.
    OVERLOAD_ENDED = Info, "overload action ends", "";
    /// A downstream connection was closed because of an HTTP protocol error or a timeout.
    CONNECTION_CLOSED = Debug, "downstream connection closed with an error", "";
    /// A request got no response from upstream, so the proxy answered by itself (local reply).
    UPSTREAM_REQUEST_FAILED = Debug, "upstream request failed; sending a local reply",
        "Look up the response flags of the request in the access log.";
    /// A route configuration is compiled; an error is logged or returned separately.
    ROUTES_COMPILED = Debug, "compiling routes", "";
    /// A listener cannot be bound. The other listeners keep serving.
    BIND_FAILED = Error, "cannot bind a listener",
        "Free the address that another process uses, or change the listener's `address`.";
    /// The configuration sets fields that this build accepts and ignores.
    FIELDS_IGNORED = Warn, "configuration has fields without effect",
        "Remove the listed fields, or check that nothing relies on them.";
    /// A cluster uses TLS without `trusted_ca`, so that anybody can pose as its hosts.
    UPSTREAM_UNVERIFIED = Warn, "cluster uses TLS but does not verify its hosts",
        "Set `validation_context.trusted_ca` in the cluster's `transport_socket`.";
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
    /// The access log cannot be written. Lines are kept and tried again every second; if they
    /// become too many, further ones are dropped (`access_log_file.write_dropped`).
    ACCESS_LOG_FAILED = Error, "cannot write the access log; retrying",
        "Free space on the disk or correct the path.";
    /// The access log is written again after an error.
    ACCESS_LOG_RESTORED = Info, "the access log is written again", "";
    /// The access log cannot be opened again. The file that is open stays in use.
    ACCESS_LOG_NOT_REOPENED = Warn, "cannot open the access log again",
        "Correct the permissions of the log's directory.";
    /// Spans cannot be sent to their collector. Each batch is tried three times and then dropped
    /// (`tracing.opentelemetry.spans_dropped`); requests are not affected.
    SPANS_NOT_EXPORTED = Warn, "cannot export spans; retrying",
        "Check that the hosts of `cluster` are reachable and accept OTLP.";
    /// Spans are sent again after an error.
    SPANS_EXPORTED_AGAIN = Info, "spans are exported again", "";
    /// The management server did not send what requests need within 15 s. The proxy serves with
    /// what it has.
    INITIALIZATION_TIMED_OUT = Warn, "accepting connections without resources that are awaited",
        "Check that the management server can be reached and has the `awaited` resources.";
    /// A listener waits for its routes. Its previous version keeps serving.
    LISTENER_WARMING = Info, "listener waits for its routes", "";
    /// The routes of a listener did not arrive within 15 s. It answers with 404 until they do.
    LISTENER_NOT_WARMED = Warn, "listener accepts connections without routes",
        "Check that the management server has the route configuration of the listener.";
    /// A listener of the management server (LDS) cannot be used. Its previous version, if there is
    /// one, stays in use.
    LISTENER_NOT_UPDATED = Error, "cannot use a listener of the management server",
        "Correct the listener on the management server as `error` says.";
    /// With `--restart-epoch`: this process has the listening sockets of the previous one.
    SOCKETS_RECEIVED = Info, "got the listening sockets of the previous process", "";
    /// With `--restart-epoch`: no process with this admin address hands over its sockets, so this
    /// one opens its own. Connections are refused or reset if another process has the addresses.
    NO_PREDECESSOR = Warn, "no previous process hands over its sockets",
        "Check that the previous process runs as the same user, with the same `admin` address.";
    /// The next process has asked for the listening sockets. Both accept connections until it is
    /// ready.
    SOCKETS_SENT = Info, "handed the listening sockets to the next process", "";
    /// The next process has asked for the listening sockets and did not get them.
    SOCKETS_NOT_SENT = Warn, "cannot hand the listening sockets to the next process",
        "Start the next process again.";
    /// Another process has the same admin address, so the next process cannot get the sockets of
    /// this one. Traffic is not affected.
    HANDOVER_UNAVAILABLE = Info, "cannot hand over sockets at a restart",
        "Start with `--restart-epoch 1` if this process replaces one that is running.";
    /// The previous process could not be told to drain (`--restart-epoch`).
    TAKEOVER_FAILED = Warn, "cannot tell the previous process to drain",
        "Send SIGTERM to the previous process if it is still running.";
    /// The admin address cannot be opened after a restart. Traffic is not affected.
    ADMIN_BIND_FAILED = Error, "cannot listen on the admin address",
        "Free the address that another process uses.";
}
