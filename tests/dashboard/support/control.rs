//! `plimsoll control` as a child process, with synthetic proxies whose load is known.

use std::net::SocketAddr;
use std::process::Command;

use plimsoll_testing::{Process, plimsoll};
use rustix::process::Signal;
use serde_json::Value;

use super::http::request;
use super::proxy::{Proxy, start};
use super::{scratch, wait_for};

/// Capacity 3/4/2 over three zones. A second service has no demand.
const CONFIG: &str = "
load_reporting: {interval: 1s}
demand: {smoothing_time_constant: 0.001s}
services:
- cluster: {name: orders}
  endpoints:
  - locality: {region: r1, zone: zone-a}
    lb_endpoints: ['10.0.0.1:80', '10.0.0.2:80', '10.0.0.3:80']
  - locality: {region: r1, zone: zone-b}
    lb_endpoints: ['10.0.1.1:80', '10.0.1.2:80', '10.0.1.3:80', '10.0.1.4:80',
      {address: '10.0.1.5:80', health_status: UNHEALTHY}]
  - locality: {region: r1, zone: zone-c}
    lb_endpoints: ['10.0.2.1:80', '10.0.2.2:80']
- cluster: {name: search}
  mode: SHADOW
  endpoints:
  - locality: {region: r1, zone: zone-a}
    lb_endpoints: ['10.0.3.1:80']
";

/// Running control plane; killed when dropped.
pub(crate) struct Control {
    pub(crate) admin: SocketAddr,
    pub(crate) xds: SocketAddr,
    process: Process,
}

impl Control {
    /// Starts a control plane on free ports.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_with(name, CONFIG)
    }

    /// Starts a control plane with this configuration.
    pub(crate) fn start_with(name: &str, text: &str) -> Self {
        Self::launch(name, text, &[])
    }

    /// Starts one of several replicas that share an etcd.
    pub(crate) fn start_replica(name: &str, etcd: SocketAddr, id: &str) -> Self {
        let text = format!("{CONFIG}store: {{etcd: {{endpoints: ['{etcd}']}}}}\n");
        Self::launch(name, &text, &["--replica-id", id])
    }

    fn launch(name: &str, text: &str, arguments: &[&str]) -> Self {
        let directory = scratch(name);
        let config = directory.join("control.yaml");
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(plimsoll());
        command.arg("control").arg("-c").arg(config);
        command.args(["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.args(arguments);
        let mut process = Process::start(command, &directory.join("control.log"));
        let [xds, admin] = process.addresses(["ADS and LRS on ", "admin API on http://"]);
        Self {
            admin,
            xds,
            process,
        }
    }

    /// Connects proxies: demand 50/35/15, zone-a spills to zone-b, one proxy NACKs everything.
    pub(crate) fn with_proxies(self) -> Self {
        let proxies = [
            (
                "gateway-a",
                "zone-a",
                vec![("zone-a", 300), ("zone-b", 200)],
            ),
            ("gateway-b", "zone-b", vec![("zone-b", 350)]),
            ("gateway-c", "zone-c", vec![("zone-c", 140), ("zone-a", 10)]),
            ("gateway-refuses", "zone-c", vec![]),
        ];
        for (id, zone, sent) in proxies {
            let proxy = Proxy {
                id,
                zone,
                sent,
                plimsoll: false,
            };
            start(proxy, self.xds);
        }
        wait_for("demand is delivered and the NACK is known", || {
            let page = self.page("clusters?cluster=orders");
            let fleet = &page["clusters"][0]["fleets"][0];
            let refused = self.page("nodes?id=gateway-refuses");
            let mut types = refused["nodes"][0]["discovery"][0]["types"]
                .as_array()?
                .iter();
            let delivered = fleet["delivered"]
                .as_array()
                .is_some_and(|all| all.len() == 3);
            (delivered && types.any(|kind| !kind["nacked"].is_null())).then_some(())
        });
        self
    }

    /// Connects a proxy per zone: demand 50/35/15, and every request stays in its zone.
    pub(crate) fn with_shadow_proxies(self) -> Self {
        let proxies = [
            ("gateway-a", "zone-a", 500),
            ("gateway-b", "zone-b", 350),
            ("gateway-c", "zone-c", 150),
        ];
        for (id, zone, requests) in proxies {
            let sent = vec![(zone, requests)];
            let proxy = Proxy {
                id,
                zone,
                sent,
                plimsoll: false,
            };
            start(proxy, self.xds);
        }
        self
    }

    /// URL of the dashboard.
    pub(crate) fn address(&self) -> String {
        format!("http://{}/", self.admin)
    }

    /// Fetches a path of the admin API.
    pub(crate) fn page(&self, path: &str) -> Value {
        request(self.admin, "GET", &format!("/api/v1/{path}"), "")
    }

    /// Posts a question to the admin API.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        request(
            self.admin,
            "POST",
            &format!("/api/v1/{path}"),
            &body.to_string(),
        )
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn stop(&mut self) {
        self.process.signal(Signal::TERM);
        wait_for("the control plane exits although a page is open", || {
            (!self.process.is_alive()).then_some(())
        });
    }
}
