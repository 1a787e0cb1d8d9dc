//! Log lines of the dashboard.

plimsoll_core::log_lines! {
    /// A button of the dashboard was pressed.
    ACTION_REQUESTED = Info, "dashboard action requested", "";
}
