//! What admin pages there are: for `/help`, and for docs/reference/admin-api.md.

/// A page of the admin address, for documentation.
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

const fn path(
    method: &'static str,
    path: &'static str,
    query: &'static str,
    about: &'static str,
) -> AdminPath {
    AdminPath {
        method,
        path,
        query,
        about,
    }
}

/// Every page, but for those of the dashboard.
#[rustfmt::skip]
pub const PATHS: [AdminPath; 11] = [
    path("GET", "/help", "", "A list of these pages"),
    path("GET", "/ready", "", "`LIVE` with 200; 503 before and while draining"),
    path("GET", "/server_info", "",
        "Version, state, age, node, what became of the last edits, and how discovery is doing"),
    path("GET", "/stats", "", "Counters, a line each"),
    path("GET", "/stats/prometheus", "", "The same for Prometheus, and metrics of clusters"),
    path("GET", "/clusters", "format=json",
        "Clusters and their hosts: limits, health, weights, connections, requests"),
    path("GET", "/config_dump", "resource=LIST&include_eds",
        "The file in force and what the management server sent"),
    path("GET", "/listeners", "", "Names and addresses of listeners"),
    path("GET", "/explain", "cluster=NAME",
        "Why a cluster routes as it does; all of them without a name"),
    path("POST", "/logging", "level=LEVEL", "Changes what is logged; takes what `RUST_LOG` takes"),
    path("POST", "/quitquitquit", "", "Drains and ends"),
];
