//! Page about log lines, from the declarations of each crate.

use std::fmt::Write as _;

use plimsoll_core::log_line::{LogLevel, LogLine};

const LEVELS: [(LogLevel, &str); 5] = [
    (LogLevel::Error, "error"),
    (LogLevel::Warn, "warn"),
    (LogLevel::Info, "info"),
    (LogLevel::Debug, "debug"),
    (LogLevel::Trace, "trace"),
];

const OPENING: &str = "
All log lines of Plimsoll by level, most severe first. Messages are stable, so you can search for
them; names, addresses and causes are structured fields. `--log-format json` writes one JSON object
per line. `RUST_LOG` sets levels by target: `RUST_LOG=info` or `RUST_LOG=warn,plimsoll_xds=debug`.

Libraries (hyper, h2, rustls) log under their own targets.
";

/// Generates one table per level, with the target of each line.
pub(super) fn page() -> String {
    let crates: [(&str, &[LogLine]); 13] = [
        ("plimsoll", crate::log_lines::LOG_LINES),
        ("plimsoll_admin", plimsoll_admin::LOG_LINES),
        (
            "plimsoll_client",
            plimsoll_core::event::log_lines::LOG_LINES,
        ),
        ("plimsoll_client", plimsoll_client::LOG_LINES),
        ("plimsoll_consul", plimsoll_control::consul::LOG_LINES),
        (
            "plimsoll_control",
            plimsoll_control::sources::dns::LOG_LINES,
        ),
        ("plimsoll_control", plimsoll_control::LOG_LINES),
        ("plimsoll_demo", plimsoll_demo::LOG_LINES),
        (
            "plimsoll_kubernetes",
            plimsoll_control::kubernetes::LOG_LINES,
        ),
        ("plimsoll_orca", plimsoll_orca::LOG_LINES),
        ("plimsoll_proxy", plimsoll_proxy::LOG_LINES),
        ("plimsoll_serve", plimsoll_serve::LOG_LINES),
        ("plimsoll_xds", plimsoll_xds::LOG_LINES),
    ];
    let mut text = OPENING.to_owned();
    for (level, name) in LEVELS {
        let _ = write!(
            text,
            "\n## {name}\n\n| message | target | meaning | what to do |\n|---|---|---|---|\n"
        );
        for (target, lines) in crates {
            for line in lines.iter().filter(|line| line.level == level) {
                let (message, meaning) = (line.message, line.meaning.trim());
                let action = if line.action.is_empty() {
                    "nothing"
                } else {
                    line.action
                };
                let _ = writeln!(text, "| {message} | `{target}` | {meaning} | {action} |");
            }
        }
    }
    text
}
