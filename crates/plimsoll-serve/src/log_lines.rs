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
    /// The admin listener has as many connections as it may have. Traffic is not affected.
    ADMIN_CONNECTION_REFUSED = Warn, "admin connection refused: too many are open",
        "Find out which clients of the admin address keep connections open.";
    /// The operating system refused to accept an admin connection; retried after a second.
    ADMIN_ACCEPT_FAILED = Warn, "cannot accept an admin connection; retrying",
        "Raise the limit on open files if `error` says so.";
}
