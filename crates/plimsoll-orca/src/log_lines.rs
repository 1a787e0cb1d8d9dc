//! Log lines of the load reporter.

plimsoll_core::log_lines! {
    /// The thread that measures CPU and memory cannot be started. Load reports keep their first
    /// values, so balancers see a constant load.
    MEASURING_FAILED = Error, "cannot start the measuring thread; load reports do not change",
        "Raise the limit on threads and restart the process.";
}
