//! `plimsoll proxy` as a client of a management server that others wrote: the crate `xds-server`,
//! in both variants of discovery.
//!
//! That server answers when it is asked and pushes nothing by itself, so what changes is learnt on
//! the stream after it was lost. Pushes and refusals are tested in `proxy_xds`.

use std::path::Path;

use crate::support::steered::{NODE, Steered};
use crate::support::xds_server::{XdsServer, services};
use crate::support::{scratch, wait_until};

/// Services and the zones that have hosts of theirs.
type Services<'a> = &'a [(&'a str, &'a [&'a str])];

const BOTH: Services<'_> = &[("orders", &["zone-a"]), ("others", &["zone-a"])];
const ONE: Services<'_> = &[("orders", &["zone-a"])];
const MOVED: (&str, &[&str]) = ("orders", &["zone-b", "zone-c"]);

/// Here the server does not answer who asks for other names at a version it has: a service goes.
#[test]
fn state_of_the_world() {
    let mut world = World::start(&scratch("proxy-xds-server-sotw"), "GRPC", BOTH);
    wait_until("both serve", || world.steered.status_of("others") == 200);
    world.moves_hosts(&[MOVED, ("others", &["zone-a"])]);
    assert_eq!(world.steered.status_of("others"), 200, "it stays");
    world.returns_with(3, ONE);
    wait_until("it is gone", || world.steered.status_of("others") == 503);
    world.lost_nothing();
}

/// Here the server does not say what went while it was away: a service comes.
#[test]
fn incremental() {
    let mut world = World::start(&scratch("proxy-xds-server-delta"), "DELTA_GRPC", ONE);
    assert_eq!(world.steered.status_of("others"), 503, "nobody knows it");
    world.moves_hosts(&[MOVED]);
    world.returns_with(3, BOTH);
    wait_until("it came", || world.steered.status_of("others") == 200);
    world.lost_nothing();
}

struct World {
    server: XdsServer,
    steered: Steered,
}

impl World {
    fn start(folder: &Path, api_type: &str, first: Services<'_>) -> Self {
        let backends = Steered::backends();
        let server = XdsServer::start(folder, NODE, &services(1, &backends, first));
        Self {
            steered: Steered::start(folder, backends, server.address(), api_type),
            server,
        }
    }

    /// Away, the server changes nothing; back, it knows other hosts.
    fn moves_hosts(&mut self, moved: Services<'_>) {
        self.steered.wait_for_hosts(&["zone-a"]);
        self.server.kill();
        self.steered.answered(100);
        self.returns_with(2, moved);
        self.steered.wait_for_hosts(&["zone-b", "zone-c"]);
    }

    fn returns_with(&mut self, version: u32, next: Services<'_>) {
        let next = services(version, &self.steered.backends, next);
        self.server.restart(&next);
    }

    fn lost_nothing(&self) {
        self.steered.wait_for_hosts(&["zone-a"]);
        assert_eq!(self.steered.load.failed(), 0);
        assert!(self.steered.load.succeeded() > 200);
    }
}
