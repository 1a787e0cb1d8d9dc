//! Declarations of log lines.
//!
//! Each crate that logs declares its lines with [`log_lines!`](macro@crate::log_lines) and writes
//! them with [`log_line!`](macro@crate::log_line), so that levels and messages stay stable and
//! docs/reference/log-lines.md lists them all. The core itself logs nothing: the macros use the
//! `tracing` crate of their caller.

/// A log line: its level and message, and the text for operators who find it in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    pub level: LogLevel,
    /// The message. Facts such as a cluster's name are structured fields beside it.
    pub message: &'static str,
    /// What has happened and what follows from it.
    pub meaning: &'static str,
    /// What an operator should do; empty if nothing.
    pub action: &'static str,
}

/// Level of a log line, the most severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Something is broken and stays broken until somebody acts.
    Error,
    /// Service is degraded, a fallback is used, or an input was rejected.
    Warn,
    /// The state of the process changed as intended.
    Info,
    /// Details of single updates, connections and requests.
    Debug,
    /// Single steps of the program.
    Trace,
}

/// Declares the log lines of a crate: a constant for each, and the list `LOG_LINES`. After `pub:`,
/// the constants are public.
///
/// ```
/// mod log_lines {
///     plimsoll_core::log_lines! {
///         /// The listener was closed by the operating system.
///         ADMIN_CLOSED = Error, "admin listener closed", "Restart the process.";
///     }
/// }
///
/// # #[cfg(any())]
/// plimsoll_core::log_line!(log_lines::ADMIN_CLOSED, %error);
/// assert_eq!(log_lines::LOG_LINES[0].message, "admin listener closed");
/// ```
#[macro_export]
macro_rules! log_lines {
    (@declare ($vis:vis) $(
        $(#[doc = $meaning:literal])+
        $name:ident = $level:ident, $message:literal, $action:literal;
    )+) => {
        $(
            $(#[doc = $meaning])+
            $vis const $name: $crate::log_line::LogLine = $crate::log_line::LogLine {
                level: $crate::log_line::LogLevel::$level,
                message: $message,
                meaning: concat!($($meaning),+),
                action: $action,
            };
        )+

        /// All log lines of this module, for the reference page.
        pub const LOG_LINES: &[$crate::log_line::LogLine] = &[$($name),+];
    };
    (pub: $($lines:tt)+) => { $crate::log_lines!(@declare (pub) $($lines)+); };
    ($($lines:tt)+) => { $crate::log_lines!(@declare (pub(crate)) $($lines)+); };
}

/// Writes a line that [`log_lines!`](crate::log_lines) declared, with fields as in
/// `tracing::event!`.
#[macro_export]
macro_rules! log_line {
    ($line:expr $(, $($fields:tt)+)?) => {{
        const LINE: $crate::log_line::LogLine = $line;
        const LEVEL: ::tracing::Level = match LINE.level {
            $crate::log_line::LogLevel::Error => ::tracing::Level::ERROR,
            $crate::log_line::LogLevel::Warn => ::tracing::Level::WARN,
            $crate::log_line::LogLevel::Info => ::tracing::Level::INFO,
            $crate::log_line::LogLevel::Debug => ::tracing::Level::DEBUG,
            $crate::log_line::LogLevel::Trace => ::tracing::Level::TRACE,
        };
        ::tracing::event!(LEVEL, message = LINE.message $(, $($fields)+)?);
    }};
}
