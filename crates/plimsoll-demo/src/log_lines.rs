//! Log lines of the demo.

plimsoll_core::log_lines! {
    /// A request of the demo's load generator failed. The demo counts and shows it.
    DEMO_REQUEST_FAILED = Debug, "request of the load generator failed", "";
}
