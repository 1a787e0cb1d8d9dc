//! Log lines of the load reporter.

plimsoll_core::log_lines! {
    /// The measuring thread cannot be started. Load reports keep their first values.
    MEASURING_FAILED = Error, "cannot start the measuring thread; load reports do not change",
        "Raise the limit on threads and restart the process.";
}
