//! [`ControlConfig`]: everything a control plane is told, checked.
//!
//! What files may say lives in `yaml`, endpoints in `endpoints`, services in `service`, listeners
//! and routes in `routes`. Finding and watching files does not live here but in `source`; here text
//! becomes checked types or an error that names the file, the field and the place.

mod endpoints;
mod routes;
#[cfg(feature = "schema")]
mod schema;
mod service;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::{PlannerConfig, PlannerConfigParts};
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::delivery::shortest_staleness;

pub use routes::{Listener, Match, Route, Target, VirtualHost};
pub use service::{Delivery, Mode, Protocol, Service};
use yaml::{ExtrasYaml, FileYaml, RelayYaml};

/// Default of `fleets.leave_after`.
const DEFAULT_LEAVE_AFTER: Duration = Duration::from_secs(30);
/// Default names under which a proxy finds its own fleet.
const DEFAULT_LOCAL_CLUSTER_NAMES: [&str; 2] = ["local_cluster", "local"];
/// Shortest interval: gRPC clamps to it, and a shorter one measures noise.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// JSON Schema of a file, included ones too. Ranges, and what cannot stand together, are known to
/// [`ControlConfig::parse`] only.
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schemars::schema_for!(FileYaml)
}

/// A file of the configuration: its name, for errors, and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// As the user knows it.
    pub name: String,
    /// The YAML.
    pub text: String,
}

/// What was wrong, and in which file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// The file; empty when no single one is at fault.
    pub file: String,
    /// Field, reason and place.
    pub error: ConfigError,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file.as_str() {
            "" => self.error.fmt(f),
            file => write!(f, "{file}: {}", self.error),
        }
    }
}

impl std::error::Error for FileError {}

/// Another management server whose resources pass through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// `host:port` of its ADS, plain text HTTP/2.
    pub address: String,
    /// Whether it is spoken to incrementally.
    pub delta: bool,
}

/// Everything a control plane is told, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlConfig {
    /// Where ADS and LRS are served.
    pub listen: SocketAddr,
    /// Where the admin API is served; `None` = nowhere.
    pub admin: Option<SocketAddr>,
    /// How often proxies are asked to report.
    pub load_reporting_interval: Duration,
    /// Whether they are asked to report per endpoint.
    pub report_endpoint_granularity: bool,
    /// Settings of demand, as they are written: see [`Self::heartbeat`].
    pub planner: PlannerConfig,
    /// What is wrong with `demand.heartbeat` as it is written, if it is: a fault for those who
    /// check files. Who runs uses a shorter one instead.
    pub heartbeat_fault: Option<FileError>,
    /// Names under which a proxy may ask for the assignment of its own fleet.
    pub local_cluster_names: Vec<Arc<str>>,
    /// How long a proxy without stream stays in its fleet.
    pub leave_after: Duration,
    /// Asks stock Envoys to forget their fleet's assignment after this silence; `None` = never.
    pub endpoint_stale_after: Option<Duration>,
    /// The management server behind this one, if any.
    pub relay: Option<Relay>,
    /// Upstream clusters by name.
    pub services: BTreeMap<Arc<str>, Arc<Service>>,
    /// Listeners for Envoys by name.
    pub listeners: BTreeMap<Arc<str>, Arc<Listener>>,
}

impl ControlConfig {
    /// Reads the main file. Services of `included` files join its own.
    pub fn parse(main: &File, included: &[File]) -> Result<Self, FileError> {
        let named = |file: &File, error| FileError {
            file: file.name.clone(),
            error,
        };
        let document = Document::parse(&main.text).map_err(|error| named(main, error))?;
        let mut yaml: FileYaml = document.read().map_err(|error| named(main, error))?;
        let at_main = |error| named(main, document.locate(error));
        let mut config = Self::settings(&yaml).map_err(at_main)?;
        let extras = document.read().map_err(|error| named(main, error))?;
        let mut seen = BTreeMap::new();
        config
            .add(&mut yaml, extras, &main.name, &mut seen)
            .map_err(at_main)?;
        for file in included {
            let document = Document::parse(&file.text).map_err(|error| named(file, error))?;
            let mut yaml: FileYaml = document.read().map_err(|error| named(file, error))?;
            let extras = document.read().map_err(|error| named(file, error))?;
            let added = yaml
                .only_services()
                .and_then(|()| config.add(&mut yaml, extras, &file.name, &mut seen));
            added.map_err(|error| named(file, document.locate(error)))?;
        }
        config.check_routes().map_err(|error| FileError {
            file: String::new(),
            error: error.into(),
        })?;
        if yaml.demand.heartbeat.is_some() {
            let fault = config.check_heartbeat().err();
            config.heartbeat_fault = fault.map(|error| named(main, document.locate(error)));
        }
        Ok(config)
    }

    /// The files and directories that the main file includes, as written.
    pub fn includes(main: &File) -> Result<Vec<String>, FileError> {
        let read = || -> Result<FileYaml, ConfigError> { Document::parse(&main.text)?.read() };
        let yaml = read().map_err(|error| FileError {
            file: main.name.clone(),
            error,
        })?;
        Ok(yaml.include)
    }

    fn settings(yaml: &FileYaml) -> Result<Self, FieldError> {
        let interval = yaml.load_reporting.interval.map_or(
            plimsoll_core::planner::config::DEFAULT_REPORT_INTERVAL,
            |interval| interval.0,
        );
        if !(MIN_INTERVAL..=Duration::from_secs(3600)).contains(&interval) {
            let reason = format!("{interval:?} is outside {MIN_INTERVAL:?} to 1 h");
            return Err(FieldError::new("load_reporting.interval", reason));
        }
        let demand = &yaml.demand;
        let planner = PlannerConfig::try_new(PlannerConfigParts {
            tau: demand.smoothing_time_constant.map(|tau| tau.0),
            missed_intervals: demand.missed_intervals.map(|missed| missed.0),
            material_change_bp: demand.material_change_bp.map(|change| change.0),
            heartbeat: demand.heartbeat.map(|heartbeat| heartbeat.0),
            default_report_interval: Some(interval),
            min_cluster_size: None,
            upstream_locality_basis: plimsoll_core::model::zone_aware::CapacityBasis::default(),
        })
        .map_err(|error| error.under("demand"))?;
        let names = yaml.fleets.local_cluster_names.clone();
        let names = names.unwrap_or_else(|| DEFAULT_LOCAL_CLUSTER_NAMES.map(str::to_owned).into());
        Ok(Self {
            listen: yaml.address("listen", yaml.listen.as_deref(), "127.0.0.1:18000")?,
            admin: match yaml.admin.as_deref() {
                Some("") => None,
                admin => Some(yaml.address("admin", admin, "127.0.0.1:18001")?),
            },
            load_reporting_interval: interval,
            report_endpoint_granularity: yaml.load_reporting.report_endpoint_granularity,
            planner,
            heartbeat_fault: None,
            local_cluster_names: names.into_iter().map(Arc::from).collect(),
            leave_after: yaml
                .fleets
                .leave_after
                .map_or(DEFAULT_LEAVE_AFTER, |after| after.0),
            endpoint_stale_after: yaml.fleets.endpoint_stale_after.map(|after| after.0),
            relay: yaml.relay.as_ref().map(RelayYaml::checked).transpose()?,
            services: BTreeMap::new(),
            listeners: BTreeMap::new(),
        })
    }

    /// Takes the services and listeners of one file.
    fn add(
        &mut self,
        yaml: &mut FileYaml,
        extras: ExtrasYaml,
        file: &str,
        seen: &mut BTreeMap<Arc<str>, String>,
    ) -> Result<(), FieldError> {
        let services = std::mem::take(&mut yaml.services);
        let pairs = services.into_iter().zip(extras.services);
        for (index, (service, extras)) in pairs.enumerate() {
            let service = service
                .checked(extras)
                .map_err(|error| error.under(&format!("services[{index}]")))?;
            let name = Arc::clone(service.name());
            if self.relay.is_some() && !service.assignment.endpoints().is_empty() {
                return Err(FieldError::new(
                    format!("services[{index}].endpoints"),
                    "come from the management server behind the relay",
                ));
            }
            if let Some(other) = seen.insert(Arc::clone(&name), file.to_owned()) {
                return Err(FieldError::new(
                    format!("services[{index}].cluster.name"),
                    format!("{name} is already defined in {other}"),
                ));
            }
            self.services.insert(name, Arc::new(service));
        }
        for (index, listener) in std::mem::take(&mut yaml.listeners).into_iter().enumerate() {
            let path = format!("listeners[{index}]");
            let listener = listener.checked().map_err(|error| error.under(&path))?;
            let name = Arc::clone(&listener.name);
            if self.listeners.insert(name, Arc::new(listener)).is_some() {
                return Err(FieldError::new(
                    format!("{path}.name"),
                    "is already defined",
                ));
            }
        }
        Ok(())
    }

    /// How often demand is confirmed: `demand.heartbeat`, but at least three times within the
    /// shortest staleness threshold of those who are sent it (decisions D3). With it the service
    /// that made it shorter than it is written.
    pub fn heartbeat(&self) -> (Duration, Option<(&Service, Duration)>) {
        let written = self.planner.heartbeat();
        let services = self.services.values().map(AsRef::as_ref);
        match shortest_staleness(services) {
            Some((service, threshold)) if written > threshold / 3 => {
                (threshold / 3, Some((service, threshold)))
            }
            _ => (written, None),
        }
    }

    fn check_heartbeat(&self) -> Result<(), FieldError> {
        let (longest, shortened) = self.heartbeat();
        let Some((service, threshold)) = shortened else {
            return Ok(());
        };
        let reason = format!(
            "{:?} is too long for service {}: its staleness_threshold is {threshold:?}, and demand \
             must be confirmed three times in that time; at most {longest:?}",
            self.planner.heartbeat(),
            service.name(),
        );
        Err(FieldError::new("demand.heartbeat", reason))
    }

    /// Every route must lead somewhere. Behind a relay the other server may know the cluster.
    fn check_routes(&self) -> Result<(), FieldError> {
        if self.relay.is_some() {
            return Ok(());
        }
        let known: BTreeSet<&str> = self.services.keys().map(AsRef::as_ref).collect();
        for listener in self.listeners.values() {
            for cluster in listener.clusters() {
                if !known.contains(&**cluster) {
                    let reason = format!("routes to {cluster}, which no service defines");
                    return Err(FieldError::new(
                        format!("listener {}", listener.name),
                        reason,
                    ));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
