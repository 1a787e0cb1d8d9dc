//! `plimsoll control` inside the demo, on its own sockets, with a configuration file that the demo
//! edits as an operator would.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_admin::source::Source;
use plimsoll_control::run::{Bound, Control, Options, RunError};
use plimsoll_serve::CancellationToken;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::ControlDashboard;
use crate::setting::{Policy, Setting, ZONES};

pub(crate) const CLUSTER: &str = "orders";

pub(crate) type Endpoints = [Vec<SocketAddr>; 3];

pub(crate) struct ControlPlane {
    file: PathBuf,
    endpoints: Endpoints,
    dashboard: ControlDashboard,
    /// Set at the first start; later starts listen on the same addresses.
    bound: Option<Bound>,
    running: Option<Running>,
}

struct Running {
    source: Arc<dyn Source>,
    stopping: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl ControlPlane {
    /// Creates a control plane that is not running; its file is written to `directory`.
    pub(crate) fn new(directory: &Path, endpoints: Endpoints, dashboard: ControlDashboard) -> Self {
        Self {
            file: directory.join("control.yaml"),
            endpoints,
            dashboard,
            bound: None,
            running: None,
        }
    }

    /// Addresses the control plane listens on; kept while it is stopped.
    pub(crate) const fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// Source of the control plane's dashboard; `None` while it is stopped.
    pub(crate) fn source(&self) -> Option<Arc<dyn Source>> {
        let running = self.running.as_ref()?;
        Some(Arc::clone(&running.source))
    }

    /// Replaces the configuration file; a running control plane reloads it within a second.
    pub(crate) fn write(&self, setting: Setting) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&config(setting, &self.endpoints))?;
        let temporary = self.file.with_extension("new");
        std::fs::write(&temporary, text)
            .context("cannot write the control plane's configuration")?;
        std::fs::rename(temporary, &self.file)
            .context("cannot replace the control plane's configuration")
    }

    /// Starts the control plane unless it is running.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options {
            config: self.file.clone(),
            listen: Some(self.bound.map_or(free, |bound| bound.xds)),
            admin: Some(self.bound.and_then(|bound| bound.admin).unwrap_or(free)),
            ..Options::default()
        };
        let control = Control::start(options)
            .await
            .context("cannot start the control plane")?;
        let context = control.context().clone();
        let admin = (self.dashboard.admin)(context.clone());
        self.bound = Some(context.bound);
        self.running = Some(Running {
            stopping: context.stopping.clone(),
            source: (self.dashboard.source)(context),
            task: tokio::spawn(control.run(admin)),
        });
        Ok(())
    }

    /// Stops the control plane and waits until its sockets are closed.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(running) = self.running.take() else {
            return Ok(());
        };
        running.stopping.cancel();
        // The control plane exits when the last handle to it is dropped.
        drop(running.source);
        running.task.await?.context("the control plane failed")
    }
}

fn config(setting: Setting, endpoints: &Endpoints) -> Value {
    let pairs = ZONES.iter().zip(endpoints);
    let zones =
        pairs.map(|(zone, hosts)| json!({ "locality": { "zone": zone }, "lb_endpoints": hosts }));
    // Nobody tells the control plane about dead backends: proxies find them. A check over HTTP
    // would take part of the simulated capacity.
    let check = json!({
        "timeout": "1s",
        "interval": "1s",
        "no_traffic_interval": "1s",
        "unhealthy_threshold": 1,
        "healthy_threshold": 1,
        "tcp_health_check": {},
    });
    // The default of three concurrent retries is too low for the requests of a dead zone.
    let breakers = json!({ "thresholds": [{ "max_retries": 1024 }] });
    let mut service = json!({
        "cluster": {
            "name": CLUSTER,
            "connect_timeout": "1s",
            "health_checks": [check],
            "circuit_breakers": breakers,
            "load_balancing_policy": { "policies": [policy(setting.policy)] },
            "plimsoll": { "locality_sampling": "LOW_DISCREPANCY" },
        },
        "endpoints": zones.collect::<Vec<_>>(),
    });
    match setting.policy {
        // Demand is measured and shown, but not used for routing.
        Policy::HostCounts => service["mode"] = json!("SHADOW"),
        Policy::LrsReportedRate | Policy::Convergent => service["mode"] = json!("ENFORCE"),
        // Demand cannot steer it, so that ENFORCE would be refused.
        Policy::Headroom => {}
    }
    json!({
        "load_reporting": { "interval": "1s" },
        "demand": { "smoothing_time_constant": "3s", "heartbeat": "5s" },
        "services": [service],
    })
}

fn policy(policy: Policy) -> Value {
    let zone_aware = json!({ "zone_aware_lb_config": { "min_cluster_size": 6 } });
    match policy {
        Policy::HostCounts | Policy::LrsReportedRate => typed(
            "round_robin",
            "RoundRobin",
            json!({ "locality_lb_config": zone_aware }),
        ),
        Policy::Headroom | Policy::Convergent => {
            let child = typed("round_robin", "RoundRobin", json!({}));
            let settings = json!({
                "endpoint_picking_policy": { "policies": [child] },
                "spill_controller": policy.name(),
            });
            typed("load_aware_locality", "LoadAwareLocality", settings)
        }
    }
}

/// Wraps a policy in Envoy's `typed_extension_config`.
fn typed(name: &str, message: &str, mut settings: Value) -> Value {
    let package = format!("envoy.extensions.load_balancing_policies.{name}.v3.{message}");
    settings["@type"] = json!(format!("type.googleapis.com/{package}"));
    json!({ "typed_extension_config": {
        "name": format!("envoy.load_balancing_policies.{name}"),
        "typed_config": settings,
    } })
}

#[cfg(test)]
mod tests {
    use plimsoll_control::config::{ConfigFile, ControlConfig, Mode};

    use super::*;
    use crate::setting::Action;

    fn read(setting: Setting) -> ControlConfig {
        let address = |port| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
        let text = config(setting, &[address(1), address(2), address(3)]).to_string();
        let file = ConfigFile {
            name: "control.yaml".to_owned(),
            text,
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    #[test]
    fn the_control_plane_accepts_every_setting() {
        for action in Action::ALL {
            let config = read(Setting::OPENING.after(action));
            assert_eq!(config.services.len(), 1, "{action}");
        }
        let opening = read(Setting::OPENING);
        assert_eq!(opening.services[CLUSTER].mode, Mode::Shadow);
        let measured = Setting::OPENING.after(Action::Route(Policy::LrsReportedRate));
        assert_eq!(read(measured).services[CLUSTER].mode, Mode::Enforce);
    }

    #[test]
    fn the_control_plane_is_not_told_about_a_lost_zone() {
        let opening = read(Setting::OPENING);
        assert_eq!(read(Setting::OPENING.after(Action::Lose(true))), opening);
        let settings = opening.services[CLUSTER].settings.written();
        assert_eq!(settings.health_checks.len(), 1);
    }
}
