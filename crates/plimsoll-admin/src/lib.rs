//! Web dashboard: serves a page that shows one JSON document and keeps the page up to date.
//!
//! An embedding process (control plane, proxy, demo; called host in this crate) fills
//! [`state::DashboardState`] and provides it through a [`source::Source`]; [`Dashboard`] serves the
//! page, streams updates to viewers, and forwards what-ifs and actions. This crate only displays:
//! it does not know where the numbers come from and makes no decisions.
//!
//! The page is plain HTML, CSS and ES modules under `assets/`, embedded in the binary. It sends
//! requests only to its own origin. [`report_page`] builds a standalone page from the same modules.
//!
//! ```
//! use std::sync::Arc;
//! use plimsoll_admin::{Dashboard, state::DashboardState};
//!
//! let first = Arc::new(DashboardState { title: "proxy".to_owned(), ..Default::default() });
//! let (sender, receiver) = tokio::sync::watch::channel(first);
//! let router = Dashboard::new(receiver).router();
//! # drop((sender, router));
//! ```

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod api;
mod assets;
mod feed;
mod frame;
pub mod history;
mod log_lines;
mod report_page;
mod routes;
pub mod source;
pub mod state;
pub mod what_if;
pub mod zone_loss;

#[doc(hidden)]
pub use log_lines::LOG_LINES;
pub use report_page::report_page;
pub use routes::{Dashboard, HISTORY_PATH, STATE_PATH};
