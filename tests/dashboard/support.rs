//! Support of the dashboard tests: browser, page, documents, proxies, and waiting.

pub(crate) mod backends;
pub(crate) mod browser;
pub(crate) mod checked;
pub(crate) mod control;
pub(crate) mod data_plane;
pub(crate) mod demo;
pub(crate) mod documents;
pub(crate) mod etcd;
pub(crate) mod http;
pub(crate) mod page;
pub(crate) mod proxy;

use std::path::PathBuf;

pub(crate) use plimsoll_testing::{wait_for, wait_to_see};

/// Creates an empty directory for the files of one test; they stay until the next run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    plimsoll_testing::scratch("dashboard", name)
}
