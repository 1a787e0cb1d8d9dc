//! The dashboard: one JSON document in, one live page out.
//!
//! A host (control plane, proxy, demo) fills [`state::DashboardState`] and offers it as a
//! [`source::Source`]; [`Dashboard`] serves the page, keeps viewers up to date, and passes what-ifs
//! and actions on. Nothing here knows where the numbers come from, and nothing decides: the host is
//! asked, and what it answers is shown.
//!
//! The page is plain HTML, CSS and ES modules under `assets/`, part of the binary. It asks nobody
//! but its own host.
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

mod assets;
mod feed;
mod frame;
mod routes;
pub mod source;
pub mod state;
pub mod what_if;

pub use routes::Dashboard;
