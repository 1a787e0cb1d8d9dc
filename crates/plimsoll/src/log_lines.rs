//! Log lines of the binary.

plimsoll_core::log_lines! {
    /// SIGTERM or SIGINT arrived. Listeners are closed and requests in flight are finished.
    SHUTTING_DOWN = Info, "shutting down", "";
    /// A library repeats a line too often, for example because of what a peer sends. Further ones
    /// of the next minute are not written; `library` and `line` say where they come from.
    LINES_SUPPRESSED = Warn, "a library repeats a log line; suppressing it for a minute",
        "Look for a peer that misbehaves; metrics count all connections and requests.";
    /// The history of the dashboard cannot be written to disk. It stays in memory, and is lost with
    /// the process; routing is not affected.
    HISTORY_NOT_WRITTEN = Warn, "history of the dashboard cannot be written to disk",
        "Make room on the disk, or let the user of the process write to the state directory.";
}
