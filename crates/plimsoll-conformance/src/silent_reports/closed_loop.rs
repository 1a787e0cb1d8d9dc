//! `kind.closed_loop`: demand per zone in, load of the zones out. One proxy per zone; hosts report
//! the load that the shares of all proxies gave them during the second before.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::json;

use super::proxy::Proxy;
use super::{SettingsInput, ZoneInput};
use crate::{CaseResult, Engine};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClosedLoopInputs {
    config: SettingsInput,
    zones: Vec<ZoneInput>,
    /// Utilization of all hosts together.
    mean_utilization: f64,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
enum Step {
    /// Parts of the demand that arrive in each zone.
    Demand { parts: BTreeMap<String, f64> },
    /// Fractions that the control plane sends every second from now on.
    Measured { fractions: BTreeMap<String, u64> },
    /// Hosts report every second, except those of zones in `silent`.
    Run {
        seconds: u32,
        #[serde(default)]
        silent: Vec<String>,
        /// Zones whose hosts answer errors at once: they report that, and next to no load.
        #[serde(default)]
        failing: Vec<String>,
        /// Whether the highest load of this step is recorded.
        #[serde(default)]
        record: bool,
    },
}

/// Utilization of hosts that answer errors at once, under the mean load.
const IDLE: f64 = 0.02;

struct World {
    zones: Vec<ZoneInput>,
    proxies: Vec<Proxy>,
    mean: f64,
    parts: BTreeMap<String, f64>,
}

pub(super) fn run(inputs: ClosedLoopInputs, engine: &dyn Engine) -> CaseResult {
    let proxy = |zone: &ZoneInput| Proxy::new(engine, &inputs.config, &zone.name, &inputs.zones);
    let proxies: Result<_, _> = inputs.zones.iter().map(proxy).collect();
    let mut world = World {
        proxies: proxies?,
        zones: inputs.zones,
        mean: inputs.mean_utilization,
        parts: BTreeMap::new(),
    };
    let (mut highest, mut cross_zone) = (Vec::new(), Vec::new());
    for step in inputs.steps {
        match step {
            Step::Demand { parts } => world.parts = parts,
            Step::Measured { fractions } => {
                for proxy in &mut world.proxies {
                    proxy.set_demand(&fractions)?;
                }
            }
            Step::Run {
                seconds,
                silent,
                failing,
                record,
            } => {
                let mut most = 0.0_f64;
                for _ in 0..seconds {
                    world.pass_second(&silent, &failing);
                    most = world.loads().into_iter().fold(most, f64::max);
                }
                if record {
                    highest.push(most);
                    cross_zone.push(world.cross_zone());
                }
            }
        }
    }
    Ok(json!({ "highest_load": highest, "cross_zone": cross_zone }).into())
}

impl World {
    fn pass_second(&mut self, silent: &[String], failing: &[String]) {
        let loads = self.loads();
        for proxy in &mut self.proxies {
            let reporting = self.zones.iter().zip(&loads);
            for (zone, load) in reporting.filter(|(zone, _)| !silent.contains(&zone.name)) {
                let (utilization, failed) = if failing.contains(&zone.name) {
                    (load * IDLE, 1.0)
                } else {
                    (load * self.mean, 0.0)
                };
                proxy.report(&zone.name, utilization, Some(failed), usize::MAX);
            }
            proxy.pass_second();
        }
    }

    fn part(&self, zone: &ZoneInput) -> f64 {
        self.parts.get(&zone.name).copied().unwrap_or(0.0)
    }

    /// Returns the load of each zone: its part of the requests ÷ its part of the hosts.
    fn loads(&self) -> Vec<f64> {
        let mut requests: BTreeMap<String, f64> = BTreeMap::new();
        for (zone, proxy) in self.zones.iter().zip(&self.proxies) {
            for (to, share) in proxy.shares() {
                *requests.entry(to).or_default() += self.part(zone) * share;
            }
        }
        let hosts: f64 = self.zones.iter().map(|zone| f64::from(zone.hosts)).sum();
        let load = |zone: &ZoneInput| {
            let requests = requests.get(&zone.name).copied().unwrap_or(0.0);
            requests * hosts / f64::from(zone.hosts)
        };
        self.zones.iter().map(load).collect()
    }

    /// Returns the part of all requests that leave their zone.
    fn cross_zone(&self) -> f64 {
        let zones = self.zones.iter().zip(&self.proxies);
        let away = |(zone, proxy): (&ZoneInput, &Proxy)| {
            let kept = proxy.shares().get(&zone.name).copied().unwrap_or(0.0);
            self.part(zone) * (1.0 - kept)
        };
        zones.map(away).sum()
    }
}
