//! What admin pages there are: for `/help`, and for docs/reference/admin-api.md.

use plimsoll_xds::driver::AdminPath;

/// Every page, but for those of the dashboard.
#[rustfmt::skip]
pub const PATHS: [AdminPath; 11] = [
    AdminPath::get("/help", "", "A list of these pages"),
    AdminPath::get("/ready", "", "`LIVE` with 200; 503 before and while draining"),
    AdminPath::get("/server_info", "",
        "Version, state, age, node, what became of the last edits, and how discovery is doing"),
    AdminPath::get("/stats", "", "Counters, a line each"),
    AdminPath::get("/stats/prometheus", "", "The same for Prometheus, and metrics of clusters"),
    AdminPath::get("/clusters", "format=json",
        "Clusters and their hosts: limits, health, weights, connections, requests"),
    AdminPath::get("/config_dump", "resource=LIST&include_eds",
        "The file in force and what the management server sent"),
    AdminPath::get("/listeners", "", "Names and addresses of listeners"),
    AdminPath::get("/explain", "cluster=NAME&subset=JSON",
        "Why a cluster routes as it does; all of them without a name"),
    AdminPath::post("/logging", "level=LEVEL",
        "Changes what is logged; takes what `RUST_LOG` takes"),
    AdminPath::post("/quitquitquit", "", "Drains and ends"),
];
