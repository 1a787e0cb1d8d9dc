//! Admin interface, compatible with Envoy's.
//!
//! GET requests never change anything. Paths that do must be POST and come from loopback or carry
//! the admin token; requests that a browser sends on behalf of other sites are rejected.

mod clusters;
mod config_dump;
mod endpoints;
mod pages;
mod rds;

use std::sync::Arc;

use plimsoll_serve::{AdminFormat, AdminPath, AdminRouter, text_error};

use crate::run::SetLogging;
use crate::state::State;

#[derive(Clone)]
pub(crate) struct Admin {
    pub(crate) state: Arc<State>,
    pub(crate) logging: Option<SetLogging>,
}

/// Lists every path except those of the dashboard, for docs/reference/admin-api.md.
pub fn paths() -> Vec<AdminPath> {
    router().paths().to_vec()
}

/// Builds the router; every path except those of the dashboard is added here.
#[rustfmt::skip]
pub(crate) fn router() -> AdminRouter<Admin> {
    AdminRouter::new(AdminFormat { index: pages::index, error: text_error }, "/help")
        .get("/ready", "",
            "`LIVE` with 200; 503 while draining, and during startup with the awaited resources",
            pages::ready)
        .get("/server_info", "",
            "Version, state, uptime, node, result of the latest reloads, and state of discovery",
            pages::server_info)
        .get("/stats", "", "All counters and gauges, one per line", pages::stats)
        .get("/stats/prometheus", "", "The same in Prometheus format, and metrics of clusters",
            pages::prometheus)
        .get("/clusters", "format=json",
            "Clusters and their hosts: limits, health, weights, connections, requests",
            clusters::clusters)
        .get("/config_dump", "resource=LIST&include_eds",
            "The active configuration file and the resources from the management server",
            config_dump::config_dump)
        .get("/listeners", "", "Names and addresses of listeners", pages::listeners)
        .get("/explain", "cluster=NAME&subset=JSON",
            "Why a cluster routes as it does; without a name, for every cluster", pages::explain)
        .action("/logging", "level=LEVEL",
            "Changes the log filter; takes directives as in `RUST_LOG`", pages::logging)
        .action("/reopen_logs", "", "Opens access log files again, like SIGUSR1",
            pages::reopen_logs)
        .action("/quitquitquit", "", "Drains and exits, like SIGTERM", pages::quit)
}
