//! [`ControlPlane`]: `plimsoll control` inside the demo, on its own sockets, with a file that the
//! demo edits as an operator would.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use plimsoll_admin::source::Source;
use plimsoll_control::run::{Bound, Options, Pages, RunError, run_with};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::setting::{LOST, Policy, Setting, ZONES};
use crate::dashboard;

/// The one cluster.
pub(crate) const CLUSTER: &str = "orders";

/// Addresses of backends by zone.
pub(crate) type Endpoints = [Vec<SocketAddr>; 3];

/// A control plane that can be stopped and started.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    file: PathBuf,
    endpoints: Endpoints,
    /// Known after the first start, and the same ever after.
    bound: Option<Bound>,
    running: Option<Running>,
}

struct Running {
    source: Arc<dyn Source>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Running")
    }
}

impl ControlPlane {
    /// One that does not run yet; its file is put into `folder`.
    pub(crate) fn new(folder: &Path, endpoints: Endpoints) -> Self {
        Self {
            file: folder.join("control.yaml"),
            endpoints,
            bound: None,
            running: None,
        }
    }

    /// Where it listens, or would.
    pub(crate) const fn bound(&self) -> Option<Bound> {
        self.bound
    }

    /// What its dashboard would show.
    pub(crate) fn source(&self) -> Option<Arc<dyn Source>> {
        let running = self.running.as_ref()?;
        Some(Arc::clone(&running.source))
    }

    /// Edits the file; what runs notices it within a second.
    pub(crate) fn write(&self, setting: Setting) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(&config(setting, &self.endpoints))?;
        let beside = self.file.with_extension("new");
        std::fs::write(&beside, text).context("cannot write the control plane's file")?;
        std::fs::rename(beside, &self.file).context("cannot replace the control plane's file")
    }

    /// Starts it, unless it runs.
    pub(crate) async fn start(&mut self) -> anyhow::Result<()> {
        if self.running.is_some() {
            return Ok(());
        }
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let options = Options {
            config: self.file.clone(),
            listen: Some(self.bound.map_or(free, |bound| bound.xds)),
            admin: Some(self.bound.and_then(|bound| bound.admin).unwrap_or(free)),
            admin_hosts: Vec::new(),
        };
        let (stop, stopped) = oneshot::channel::<()>();
        let (found, source) = oneshot::channel();
        let pages: Pages = Box::new(move |inside| {
            // Nobody listens when the demo has ended.
            let _ = found.send((dashboard::source(inside.clone()), inside.bound));
            dashboard::pages()(inside)
        });
        let shutdown = async move {
            let _ = stopped.await;
        };
        let task = tokio::spawn(run_with(options, Some(pages), |_| {}, shutdown));
        let Ok((source, bound)) = source.await else {
            task.await?.context("the control plane does not start")?;
            anyhow::bail!("the control plane ended at once");
        };
        self.bound = Some(bound);
        self.running = Some(Running { source, stop, task });
        Ok(())
    }

    /// Stops it and waits until its sockets are closed.
    pub(crate) async fn stop(&mut self) -> anyhow::Result<()> {
        let Some(Running { source, stop, task }) = self.running.take() else {
            return Ok(());
        };
        // It ends when nobody can ask it any more.
        drop((source, stop));
        task.await?.context("the control plane")
    }
}

/// What the control plane is told.
fn config(setting: Setting, endpoints: &Endpoints) -> Value {
    let zones = ZONES.iter().zip(endpoints).enumerate();
    let zones = zones.map(|(index, (zone, addresses))| {
        let dead = setting.lost && index == LOST;
        let status = if dead { "UNHEALTHY" } else { "HEALTHY" };
        let hosts = addresses.iter();
        let hosts = hosts.map(|address| json!({ "address": address, "health_status": status }));
        json!({ "locality": { "zone": zone }, "lb_endpoints": hosts.collect::<Vec<_>>() })
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
            // Measured and shown, but not followed.
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

/// A policy as Envoy writes it.
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
    use plimsoll_control::config::{ControlConfig, File, Mode};

    use super::super::setting::Action;
    use super::*;

    fn read(setting: Setting) -> ControlConfig {
        let address = |port| vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
        let text = config(setting, &[address(1), address(2), address(3)]).to_string();
        let file = File {
            name: "control.yaml".to_owned(),
            text,
        };
        ControlConfig::parse(&file, &[]).unwrap()
    }

    #[test]
    fn the_control_plane_takes_every_setting() {
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
    fn a_lost_zone_stays_known_and_is_not_healthy() {
        let lost = read(Setting::OPENING.after(Action::Lose(true)));
        let endpoints = lost.services[CLUSTER].assignment.endpoints();
        assert_eq!(endpoints.len(), 3);
        assert_ne!(lost, read(Setting::OPENING));
    }
}
