//! `plimsoll control` inside the demo, on its own sockets, with a configuration file that the demo
//! edits as an operator would.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_admin::Dashboard;
use plimsoll_admin::source::Source;
use plimsoll_control::run::{Bound, Control, Options, RunError};
use plimsoll_serve::{AdminOptions, CancellationToken};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::setting::{LOST, Policy, Setting, ZONES};
use crate::dashboard::ControlSource;

pub(crate) const CLUSTER: &str = "orders";

pub(crate) type Endpoints = [Vec<SocketAddr>; 3];

pub(crate) struct ControlPlane {
    file: PathBuf,
    endpoints: Endpoints,
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
    pub(crate) fn new(directory: &Path, endpoints: Endpoints) -> Self {
        Self {
            file: directory.join("control.yaml"),
            endpoints,
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
        let admin = AdminOptions {
            pages: Some(
                Dashboard::new(ControlSource::new(context.clone()))
                    .recording()
                    .router(),
            ),
            listed: vec![crate::dashboard::history_path()],
            ..AdminOptions::default()
        };
        self.bound = Some(context.bound);
        self.running = Some(Running {
            stopping: context.stopping.clone(),
            source: Arc::new(ControlSource::new(context)),
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
    let zones = ZONES
        .iter()
        .zip(endpoints)
        .enumerate()
        .map(|(index, (zone, addresses))| {
            let dead = setting.lost && index == LOST;
            let status = if dead { "UNHEALTHY" } else { "HEALTHY" };
            let host = |address| json!({ "address": address, "health_status": status });
            let hosts: Vec<Value> = addresses.iter().map(host).collect();
            json!({ "locality": { "zone": zone }, "lb_endpoints": hosts })
        });
    json!({
        "load_reporting": { "interval": "1s" },
        "demand": { "smoothing_time_constant": "3s", "heartbeat": "5s" },
        "services": [{
            "cluster": {
                "name": CLUSTER,
                "connect_timeout": "1s",
                "load_balancing_policy": { "policies": [policy(setting.policy)] },
                "plimsoll": { "locality_sampling": "LOW_DISCREPANCY" },
            },
            // SHADOW: demand is measured and shown, but not used for routing.
            "mode": if setting.policy == Policy::HostCounts { "SHADOW" } else { "ENFORCE" },
            "endpoints": zones.collect::<Vec<_>>(),
        }],
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

    use super::super::setting::Action;
    use super::*;

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
    fn the_hosts_of_a_lost_zone_stay_in_the_assignment_as_unhealthy() {
        let lost = read(Setting::OPENING.after(Action::Lose(true)));
        let endpoints = lost.services[CLUSTER].assignment.endpoints();
        assert_eq!(endpoints.len(), 3);
        assert_ne!(lost, read(Setting::OPENING));
    }
}
