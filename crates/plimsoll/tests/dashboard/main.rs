//! The dashboard in a real Chromium: what it shows is what the admin API says, it can be used by
//! keyboard and on a phone, and it stays small with thousands of nodes.
//!
//! `make test` installs the browser. Everything listens on loopback, on ports that the system
//! chooses. Screenshots go to `target/screenshots`, for people to look at.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod real_browser;
mod same_answer;
mod support;
