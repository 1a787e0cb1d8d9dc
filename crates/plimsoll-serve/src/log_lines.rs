//! Log lines of long-running servers.

plimsoll_core::log_lines! {
    /// An edited configuration file took effect.
    CONFIG_RELOADED = Info, "configuration reloaded", "";
    /// Some edited fields are read at the start only. The others took effect.
    RESTART_NEEDED = Warn, "some edited fields take effect at the next start only",
        "Restart the process when it suits.";
    /// An edited configuration file is invalid. The previous configuration stays in use.
    CONFIG_REJECTED = Error, "configuration rejected; keeping the previous one",
        "Correct the file as `error` says; it is read again when it changes.";
    /// A request to the admin API changed something or tried to. `by` is the name in the caller's
    /// certificate, or its address, with `token` if the request has the admin token; `reason` says
    /// why it was refused and is empty if it was not.
    ADMIN_ACTION = Info, "action of the admin API requested", "";
    /// A listener has as many connections as it may have, in all or of one peer. `suppressed` lines
    /// like this one were left out since the last one.
    CONNECTION_REFUSED = Warn, "connection refused: too many are open",
        "Find out which clients keep connections open, or raise the limit that `reason` names.";
    /// A client connected, but did not send its first request, or not finish its TLS handshake, in
    /// time. The connection was closed.
    HANDSHAKE_TIMEOUT = Warn, "connection closed: handshake or first request timed out",
        "Look at the client at `peer`; raise `limits.handshake_timeout` if its network is slow.";
    /// The operating system refused to accept a connection; retried after 50 ms.
    ACCEPT_FAILED = Warn, "cannot accept a connection; retrying",
        "Raise the limit on open files if `error` says so.";
    /// A TLS handshake failed, for example because the client's certificate has expired or comes
    /// from another certificate authority. The connection was closed.
    TLS_HANDSHAKE_FAILED = Warn, "TLS handshake failed",
        "Check the certificates of the client at `peer` and the trusted authorities.";
    /// Certificate files changed. New connections use them; open connections are not affected.
    CERTIFICATES_RELOADED = Info, "certificates reloaded", "";
    /// Certificate files changed, but cannot be used. The previous certificates stay in use.
    CERTIFICATES_REJECTED = Error, "certificates rejected; keeping the previous ones",
        "Correct the files as `error` says; they are read again when they change.";
}
