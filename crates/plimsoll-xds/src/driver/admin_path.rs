//! [`AdminPath`]: what an admin address says about one of its pages. Beside [`HttpGuard`], which
//! keeps the web away from them; the pages themselves are the control plane's and the proxy's.
//!
//! [`HttpGuard`]: super::HttpGuard

/// A page of an admin address, for its own list and for docs/reference/admin-api.md.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminPath {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The path.
    pub path: &'static str,
    /// What may be asked; empty when nothing can.
    pub query: &'static str,
    /// What it says or does.
    pub about: &'static str,
}

impl AdminPath {
    /// A page that is read.
    pub const fn get(path: &'static str, query: &'static str, about: &'static str) -> Self {
        Self {
            method: "GET",
            path,
            query,
            about,
        }
    }

    /// A page that does something, or is asked with a body.
    pub const fn post(path: &'static str, query: &'static str, about: &'static str) -> Self {
        Self {
            method: "POST",
            path,
            query,
            about,
        }
    }
}
