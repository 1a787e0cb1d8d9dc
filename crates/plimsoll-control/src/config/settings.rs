//! [`SETTINGS`]: the settings of the main file, each once, with everything that is decided by name:
//! where it may be written, when an edit takes effect, what an edit may not remove, what the audit
//! shows, and what replicas must have in common.
//!
//! Readers are the checks of included files and of removals, the audit, the list of settings that
//! need a restart, and [`Agreement`]. A test compares the table with the schema of the file.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;
use plimsoll_kubernetes::budget::NamespaceLimits;
use serde_json::{Value, json};
use xxhash_rust::xxh64::xxh64;

use super::cost::CostYaml;
use super::evacuation::EvacuationYaml;
use super::limits::LimitsYaml;
use super::yaml::FileYaml;
use super::{ConfigFile, ControlConfig, Evacuation, Limits, Listener, Relay};
use crate::fleet::FleetLimits;

/// Name of a section, and whether a configuration has it.
type Guard = (&'static str, fn(&ControlConfig) -> bool);

/// A setting of the main file, or several of a section that have everything in common.
pub(crate) struct Setting {
    /// Path in the file. Settings of a section may share the name of the section.
    pub(crate) name: &'static str,
    is_written: fn(&FileYaml) -> bool,
    is_same: fn(&ControlConfig, &ControlConfig) -> bool,
    /// Value for the audit, without secrets; `None` if it is long or may be secret.
    shown: Option<fn(&ControlConfig) -> String>,
    needs_restart: bool,
    is_in_included_files: bool,
    /// Sections whose loss opens the control plane to others, or takes services from proxies.
    guards: &'static [Guard],
    /// What of it replicas must have in common.
    agreed: Option<fn(&ControlConfig) -> Value>,
}

/// Returns a setting that takes effect at once: its name, whether a file has it, and its value.
macro_rules! setting {
    ($name:literal, $file:ident => $is_written:expr, $config:ident => $value:expr) => {
        Setting {
            name: $name,
            is_written: |$file| $is_written,
            is_same: |before, after| {
                let $config = before;
                let old = &$value;
                let $config = after;
                *old == $value
            },
            shown: None,
            needs_restart: false,
            is_in_included_files: false,
            guards: &[],
            agreed: None,
        }
    };
}

/// All settings, in the order in which errors and the audit name them.
pub(crate) static SETTINGS: [Setting; 35] = [
    setting!("identities", file => file.identities.is_some(), config => config.rules.rules)
        .guarded(&[("identities", |config| config.rules.rules.is_some())])
        // Rules decide who may connect; only the zones that they name count for demand.
        .agreed(|config| zones(config.rules.zones())),
    setting!("listen", file => file.listen.is_some(), config => config.addresses.listen)
        .shown(|config| config.addresses.listen.to_string())
        .at_restart(),
    setting!("tls", file => file.tls.is_some(), config => config.addresses.tls)
        .shown(|config| presence(config.addresses.tls.as_ref()))
        .guarded(&[
            ("tls", |config| config.addresses.tls.is_some()),
            ("tls.client_ca", |config| {
                let tls = config.addresses.tls.as_ref();
                tls.is_some_and(|tls| tls.client_ca.is_some())
            }),
        ])
        .at_restart(),
    setting!("insecure", file => file.insecure, config => config.addresses.insecure)
        .shown(|config| config.addresses.insecure.to_string()),
    setting!("admin", file => file.admin.is_some(), config => config.addresses.admin)
        .shown(|config| or_none(config.addresses.admin))
        .at_restart(),
    setting!("admin_tls", file => file.admin_tls.is_some(), config => config.addresses.admin_tls)
        .shown(|config| presence(config.addresses.admin_tls.as_ref()))
        .guarded(&[("admin_tls", |config| config.addresses.admin_tls.is_some())])
        .at_restart(),
    setting!(
        "admin_identities",
        file => file.admin_identities.is_some(),
        config => config.rules.administrators
    )
    .shown(|config| format!("{} patterns", config.rules.administrators.len())),
    setting!("read_only", file => file.read_only.is_some(), config => config.addresses.read_only)
        .shown(|config| or_none(config.addresses.read_only))
        .at_restart(),
    setting!("kubernetes", file => file.kubernetes.is_some(), config => config.sources.kubernetes)
        .shown(|config| presence(config.sources.kubernetes.as_ref()))
        .guarded(&[("kubernetes", |config| config.sources.kubernetes.is_some())]),
    setting!("consul", file => file.consul.is_some(), config => config.sources.consul)
        .shown(|config| presence(config.sources.consul.as_ref()))
        .guarded(&[("consul", |config| config.sources.consul.is_some())]),
    setting!("dns", file => file.dns.is_some(), config => config.sources.dns)
        .shown(|config| presence(config.sources.dns.as_ref()))
        .guarded(&[("dns", |config| config.sources.dns.is_some())]),
    setting!("relay", file => file.relay.is_some(), config => config.relay)
        .shown(|config| or_none(config.relay.as_ref().map(|relay| &relay.address)))
        .guarded(&[("relay", |config| config.relay.is_some())])
        .agreed(|config| config.relay.as_ref().map_or(Value::Null, relay)),
    setting!("store", file => file.store.is_some(), config => config.store)
        .shown(|config| presence(config.store.as_ref()))
        .guarded(&[("store", |config| config.store.is_some())])
        .at_restart(),
    setting!("otlp", file => file.otlp.is_some(), config => config.operation.otlp)
        .shown(|config| presence(config.operation.otlp.as_ref()))
        .at_restart(),
    setting!(
        "load_reporting.interval",
        file => file.load_reporting.interval.is_some(),
        config => config.reporting.load_reporting_interval
    )
    .shown(|config| format!("{:?}", config.reporting.load_reporting_interval))
    .agreed(|config| nanos(config.reporting.load_reporting_interval)),
    setting!(
        "load_reporting.report_endpoint_granularity",
        file => file.load_reporting.report_endpoint_granularity,
        config => config.reporting.report_endpoint_granularity
    )
    .shown(|config| config.reporting.report_endpoint_granularity.to_string()),
    setting!(
        "demand.heartbeat",
        file => file.demand.heartbeat.is_some(),
        config => config.reporting.planner.heartbeat()
    )
    .shown(|config| format!("{:?}", config.reporting.planner.heartbeat()))
    .agreed(|config| nanos(config.reporting.planner.heartbeat())),
    setting!(
        "demand.max_times_median",
        file => file.demand.max_times_median.is_some(),
        config => config.reporting.planner.max_times_median()
    )
    .shown(|config| config.reporting.planner.max_times_median().to_string())
    .at_restart()
    .agreed(|config| json!(config.reporting.planner.max_times_median())),
    setting!(
        "demand.idle_timeout",
        file => file.demand.idle_timeout.is_some(),
        config => config.reporting.planner.idle_timeout()
    )
    .shown(|config| format!("{:?}", config.reporting.planner.idle_timeout()))
    .at_restart()
    .agreed(|config| nanos(config.reporting.planner.idle_timeout())),
    setting!("limits", file => has_limits(file), config => live_limits(&config.operation.limits)),
    setting!("limits", file => has_limits(file), config => other_limits(&config.operation.limits))
        .at_restart()
        // The planner keeps the demand of this many clusters apart.
        .agreed(|config| json!(config.operation.limits.requests.clusters_per_report)),
    setting!(
        "demand.smoothing_time_constant",
        file => file.demand.smoothing_time_constant.is_some(),
        config => config.reporting.planner.tau()
    )
    .shown(|config| format!("{:?}", config.reporting.planner.tau()))
    .at_restart()
    .agreed(|config| nanos(config.reporting.planner.tau())),
    setting!(
        "demand.missed_intervals",
        file => file.demand.missed_intervals.is_some(),
        config => config.reporting.planner.missed_intervals()
    )
    .shown(|config| config.reporting.planner.missed_intervals().to_string())
    .at_restart()
    .agreed(|config| json!(config.reporting.planner.missed_intervals())),
    setting!(
        "demand.material_change_bp",
        file => file.demand.material_change_bp.is_some(),
        config => config.reporting.planner.material_change_bp()
    )
    .shown(|config| config.reporting.planner.material_change_bp().to_string())
    .at_restart()
    .agreed(|config| json!(config.reporting.planner.material_change_bp())),
    setting!(
        "fleets.local_cluster_names",
        file => file.fleets.local_cluster_names.is_some(),
        config => config.fleets.local_cluster_names
    )
    .shown(|config| format!("[{}]", config.fleets.local_cluster_names.join(", ")))
    .agreed(|config| {
        config
            .fleets
            .local_cluster_names
            .iter()
            .map(|name| &**name)
            .collect()
    }),
    setting!(
        "fleets.leave_after",
        file => file.fleets.leave_after.is_some(),
        config => config.fleets.leave_after
    )
    .shown(|config| format!("{:?}", config.fleets.leave_after))
    .agreed(|config| nanos(config.fleets.leave_after)),
    setting!(
        "fleets.endpoint_stale_after",
        file => file.fleets.endpoint_stale_after.is_some(),
        config => config.fleets.endpoint_stale_after
    )
    .shown(|config| {
        let after = config.fleets.endpoint_stale_after;
        or_none(after.map(|after| format!("{after:?}")))
    })
    .agreed(|config| {
        config
            .fleets
            .endpoint_stale_after
            .map_or(Value::Null, nanos)
    }),
    setting!("fleets.zones", file => !file.fleets.zones.is_empty(), config => config.fleets.zones)
        .agreed(|config| zones(config.fleets.zones.iter().cloned())),
    setting!(
        "reload.max_removed_percent",
        file => file.reload.is_written(),
        config => config.operation.max_removed_percent
    )
    .shown(|config| config.operation.max_removed_percent.to_string()),
    setting!("cost", file => file.cost != CostYaml::default(), config => config.operation.cost),
    setting!("evacuation", file => has_evacuation(file), config => live_evacuation(config)),
    setting!(
        "evacuation",
        file => has_evacuation(file),
        config => config.operation.evacuation.state_file
    )
    .at_restart(),
    // The services and listeners of the files that it names are compared.
    setting!("include", file => !file.include.is_empty(), _config => true),
    setting!("listeners", file => !file.listeners.is_empty(), config => config.listeners)
        .in_included_files()
        .agreed(|config| config.listeners.values().map(|one| listener(one)).collect()),
    // The audit compares them one by one.
    setting!("services", file => !file.services.is_empty(), _config => true)
        .in_included_files()
        .agreed(|config| config.services.values().map(|one| one.digest).collect()),
];

fn has_evacuation(file: &FileYaml) -> bool {
    file.evacuation != EvacuationYaml::default()
}

/// Settings of drains that take effect at once, or with the next one.
fn live_evacuation(config: &ControlConfig) -> Evacuation {
    Evacuation {
        state_file: None,
        ..config.operation.evacuation.clone()
    }
}

impl Setting {
    const fn shown(self, shown: fn(&ControlConfig) -> String) -> Self {
        Self {
            shown: Some(shown),
            ..self
        }
    }

    /// An edit takes effect at the next start.
    const fn at_restart(self) -> Self {
        Self {
            needs_restart: true,
            ..self
        }
    }

    const fn in_included_files(self) -> Self {
        Self {
            is_in_included_files: true,
            ..self
        }
    }

    const fn guarded(self, guards: &'static [Guard]) -> Self {
        Self { guards, ..self }
    }

    const fn agreed(self, agreed: fn(&ControlConfig) -> Value) -> Self {
        Self {
            agreed: Some(agreed),
            ..self
        }
    }

    pub(crate) fn differs(&self, before: &ControlConfig, after: &ControlConfig) -> bool {
        !(self.is_same)(before, after)
    }

    /// Returns the values for the audit; none if the setting is not shown, or if what is shown of
    /// it is the same.
    pub(crate) fn shown_values(
        &self,
        before: &ControlConfig,
        after: &ControlConfig,
    ) -> [Option<String>; 2] {
        let values = self.shown.map(|shown| [shown(before), shown(after)]);
        match values.filter(|[before, after]| before != after) {
            Some(values) => values.map(Some),
            None => [None, None],
        }
    }
}

/// Checks that an included file has only what included files may have.
pub(super) fn check_included(file: &FileYaml) -> Result<(), FieldError> {
    let mut refused = SETTINGS.iter().filter(|one| !one.is_in_included_files);
    match refused.find(|one| (one.is_written)(file)) {
        Some(setting) => {
            let (section, _) = setting.name.split_once('.').unwrap_or((setting.name, ""));
            let reason =
                "is only allowed in the main file; included files have services and listeners";
            Err(FieldError::new(section, reason))
        }
        None => Ok(()),
    }
}

/// Returns the first guarded section that an edit removes.
pub(super) fn removed_section(
    in_force: &ControlConfig,
    edited: &ControlConfig,
) -> Option<&'static str> {
    let mut guards = SETTINGS.iter().flat_map(|setting| setting.guards);
    let (name, _) = guards.find(|(_, has)| has(in_force) && !has(edited))?;
    Some(name)
}

/// Returns the settings that differ in `edited` but take effect at a restart only.
pub(crate) fn restart_needed(started: &ControlConfig, edited: &ControlConfig) -> Vec<&'static str> {
    SETTINGS
        .iter()
        .filter(|setting| setting.needs_restart && setting.differs(started, edited))
        .map(|setting| setting.name)
        .collect()
}

/// What replicas must have in common to deliver each other's plans: a hash of the settings in
/// force. Those that need a restart count with the value at the start.
#[derive(Debug)]
pub(crate) struct Agreement {
    started: Arc<ControlConfig>,
    hash: u64,
}

impl Agreement {
    pub(crate) fn new(started: &Arc<ControlConfig>) -> Self {
        Self {
            started: Arc::clone(started),
            hash: hash(started, started),
        }
    }

    /// Takes an edit into account.
    pub(crate) fn update(&mut self, edited: &ControlConfig) {
        self.hash = hash(&self.started, edited);
    }

    pub(crate) const fn hash(&self) -> u64 {
        self.hash
    }
}

/// Hashes the agreed settings of `edited`, or of `started` if they need a restart. Those with their
/// default add nothing, so that versions with other settings agree on a file that has none of them.
pub(super) fn hash(started: &ControlConfig, edited: &ControlConfig) -> u64 {
    static DEFAULTS: LazyLock<ControlConfig> = LazyLock::new(|| {
        let file = ConfigFile {
            name: String::new(),
            text: "{}".to_owned(),
        };
        ControlConfig::parse(&file, &[]).expect("a file without settings is valid")
    });
    let agreed = SETTINGS.iter().filter_map(|setting| {
        let agreed = setting.agreed?;
        let in_force = if setting.needs_restart {
            started
        } else {
            edited
        };
        let value = agreed(in_force);
        (value != agreed(&DEFAULTS)).then_some((setting.name, value))
    });
    digest(agreed)
}

/// Hashes named values, as JSON; `null` adds nothing.
pub(super) fn digest<'a>(values: impl IntoIterator<Item = (&'a str, Value)>) -> u64 {
    let written = values.into_iter().filter(|(_, value)| !value.is_null());
    let list: Value = written.map(|(name, value)| json!([name, value])).collect();
    xxh64(list.to_string().as_bytes(), 0)
}

fn nanos(time: Duration) -> Value {
    json!(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn zones(zones: impl Iterator<Item = Locality>) -> Value {
    let zones: BTreeSet<Locality> = zones.collect();
    let parts = |zone: &Locality| json!([zone.region(), zone.zone(), zone.sub_zone()]);
    zones.iter().map(parts).collect()
}

fn relay(relay: &Relay) -> Value {
    let Relay {
        address,
        delta,
        tls,
        max_connections,
    } = relay;
    let tls = tls.as_ref().map(|tls| {
        let files: Vec<_> = tls.settings.files().collect();
        json!([files, tls.server_name])
    });
    json!([address, delta, tls, max_connections])
}

fn listener(listener: &Listener) -> Value {
    let Listener {
        name,
        address,
        routes,
    } = listener;
    json!([&**name, address, xxh64(&routes.message.0, 0)])
}

fn has_limits(file: &FileYaml) -> bool {
    file.limits != LimitsYaml::default()
}

/// Limits that an edit changes at once.
const fn live_limits(limits: &Limits) -> (FleetLimits, usize, NamespaceLimits) {
    (limits.fleets, limits.what_if_zones, limits.namespaces)
}

fn other_limits(limits: &Limits) -> Limits {
    let (fleets, what_if_zones, namespaces) = live_limits(&Limits::default());
    Limits {
        fleets,
        what_if_zones,
        namespaces,
        ..*limits
    }
}

fn presence<T>(section: Option<&T>) -> String {
    or_none(section.map(|_| "set"))
}

fn or_none(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "none".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests;
