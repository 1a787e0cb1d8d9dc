//! Tests of the dashboard in a real Chromium: it shows the numbers of the admin API, works by
//! keyboard and on a phone, and stays small with thousands of nodes.
//!
//! `make test` installs the browser. Everything listens on free ports of loopback. Screenshots are
//! written to `target/screenshots`, for manual review.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod real_browser;
mod same_answer;
mod support;
