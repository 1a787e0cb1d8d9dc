//! Log lines of the binary.

plimsoll_core::log_lines! {
    /// SIGTERM or SIGINT arrived. Listeners are closed and requests in flight are finished.
    SHUTTING_DOWN = Info, "shutting down", "";
    /// A request of the demo's load generator failed. The demo counts and shows it.
    DEMO_REQUEST_FAILED = Debug, "request of the load generator failed", "";
}
