//! `plimsoll proxy` as a client of an independent management server: the crate `xds-server`, in
//! both variants of discovery.
//!
//! That server responds to requests and does not push, so changes arrive after a reconnect. Pushes
//! and NACKs are tested in `proxy_xds`.

use std::path::Path;

use crate::support::dynamic_proxy::{DynamicProxy, NODE};
use crate::support::xds_server::{XdsServer, services};
use crate::support::{scratch, wait_until};

/// Services with the zones of their hosts.
type Services<'a> = &'a [(&'a str, &'a [&'a str])];

const BOTH: Services<'_> = &[("orders", &["zone-a"]), ("others", &["zone-a"])];
const ONE: Services<'_> = &[("orders", &["zone-a"])];
const MOVED: (&str, &[&str]) = ("orders", &["zone-b", "zone-c"]);

/// This server does not respond to new names at a version it has sent, so a service is removed.
#[test]
fn updates_by_state_of_the_world() {
    let mut testbed = Testbed::start(&scratch("proxy-xds-server-sotw"), "GRPC", BOTH);
    wait_until("both services are available", || {
        testbed.proxied.status_of("others") == 200
    });
    testbed.restart_with_other_hosts(&[MOVED, ("others", &["zone-a"])]);
    assert_eq!(
        testbed.proxied.status_of("others"),
        200,
        "the other service stays"
    );
    testbed.restart_with(3, ONE);
    wait_until("the service is removed", || {
        testbed.proxied.status_of("others") == 503
    });
    testbed.assert_no_failures();
}

/// This server does not report removals after a restart, so a service is added.
#[test]
fn updates_by_incremental_discovery() {
    let mut testbed = Testbed::start(&scratch("proxy-xds-server-delta"), "DELTA_GRPC", ONE);
    assert_eq!(testbed.proxied.status_of("others"), 503, "unknown cluster");
    testbed.restart_with_other_hosts(&[MOVED]);
    testbed.restart_with(3, BOTH);
    wait_until("the service is added", || {
        testbed.proxied.status_of("others") == 200
    });
    testbed.assert_no_failures();
}

struct Testbed {
    server: XdsServer,
    proxied: DynamicProxy,
}

impl Testbed {
    fn start(directory: &Path, api_type: &str, first: Services<'_>) -> Self {
        let backends = DynamicProxy::backends();
        let server = XdsServer::start(directory, NODE, &services(1, &backends, first));
        Self {
            proxied: DynamicProxy::start(directory, backends, server.address(), api_type),
            server,
        }
    }

    /// Stops the server, which changes nothing, and restarts it with other hosts.
    fn restart_with_other_hosts(&mut self, moved: Services<'_>) {
        self.proxied.wait_for_hosts(&["zone-a"]);
        self.server.kill();
        self.proxied.wait_for_requests(100);
        self.restart_with(2, moved);
        self.proxied.wait_for_hosts(&["zone-b", "zone-c"]);
    }

    fn restart_with(&mut self, version: u32, next: Services<'_>) {
        let next = services(version, &self.proxied.backends, next);
        self.server.restart(&next);
    }

    fn assert_no_failures(&self) {
        self.proxied.wait_for_hosts(&["zone-a"]);
        assert_eq!(self.proxied.load.failed(), 0);
        assert!(self.proxied.load.succeeded() > 200);
    }
}
