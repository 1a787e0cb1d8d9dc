//! [`ControlConfig`]: validated configuration of a control plane.
//!
//! `yaml` has the format of the files; `endpoints`, `service` and `routes` have parts of it. Errors
//! name the file, the field and its line and column. `source` loads and watches the files.

mod cost;
mod endpoints;
mod faults;
mod kubernetes;
mod limits;
mod origins;
mod otlp;
mod removal;
mod routes;
#[cfg(feature = "schema")]
mod schema;
mod security;
mod service;
mod store;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::config::DEFAULT_REPORT_INTERVAL;
use plimsoll_core::planner::{PlannerConfig, PlannerConfigParts};
use plimsoll_core::units::FieldError;
use plimsoll_serve::ServerTlsSettings;
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::delivery::shortest_staleness_threshold;
use crate::identity::Rules;
use faults::ParsedFile;

pub use cost::Cost;
pub use kubernetes::Kubernetes;
pub use limits::Limits;
#[cfg(test)]
#[cfg(feature = "schema")]
pub(crate) use limits::tests::limit_fields;
pub use origins::Origins;
pub use otlp::Otlp;
pub use plimsoll_serve::ConfigFile;
pub(crate) use removal::check_removal;
pub use routes::Listener;
pub use security::{IncomingLimits, Insecure, RelayTls};
pub use service::{Delivery, Mode, Service};
pub(crate) use store::DEFAULT_LEASE_TTL;
pub use store::Store;
use store::StoreYaml;
use yaml::{FileYaml, RelayYaml};

const DEFAULT_LEAVE_AFTER: Duration = Duration::from_secs(30);
/// Default names under which a proxy requests the assignment of its own fleet.
const DEFAULT_LOCAL_CLUSTER_NAMES: [&str; 2] = ["local_cluster", "local"];
/// Shortest load reporting interval: gRPC clamps to it, and shorter ones only measure noise.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the JSON Schema of the main file and included files. Ranges and mutually exclusive
/// fields are only checked by [`ControlConfig::parse`].
#[cfg(feature = "schema")]
pub fn schema() -> schemars::Schema {
    schema::file()
}

/// A configuration error and the file that has it.
pub type FileError = plimsoll_serve::FileError<ConfigError>;

/// Another management server whose resources are relayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relay {
    /// `host:port` of the other management server.
    pub address: String,
    pub delta: bool,
    /// `None` for plain text.
    pub tls: Option<Arc<RelayTls>>,
    pub max_connections: u64,
}

/// Validated configuration of a control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlConfig {
    pub listen: SocketAddr,
    /// Certificates of ADS and LRS; `None` for plain text.
    pub tls: Option<ServerTlsSettings>,
    /// Allows `listen` and `admin` to be reachable from other machines without TLS.
    pub insecure: bool,
    pub rules: Arc<Rules>,
    /// Address of the admin API; `None` disables it.
    pub admin: Option<SocketAddr>,
    pub admin_tls: Option<ServerTlsSettings>,
    /// Address of the admin API for reading only.
    pub read_only: Option<SocketAddr>,
    pub load_reporting_interval: Duration,
    pub report_endpoint_granularity: bool,
    /// Settings of the planner as in the file; [`Self::heartbeat`] may shorten its heartbeat.
    pub planner: PlannerConfig,
    /// Error if `demand.heartbeat` is too long for the `staleness_threshold` of a service. The
    /// command `plimsoll check` reports it; a running control plane uses a shorter heartbeat.
    pub heartbeat_error: Option<FileError>,
    /// Names under which a proxy may request the assignment of its own fleet.
    pub local_cluster_names: Vec<Arc<str>>,
    pub leave_after: Duration,
    /// Time without updates after which stock Envoys discard the assignment of their own fleet.
    pub endpoint_stale_after: Option<Duration>,
    pub relay: Option<Relay>,
    /// Kubernetes cluster whose Services are used beside those of the files.
    pub kubernetes: Option<Kubernetes>,
    /// What replicas share; `None` for a single process.
    pub store: Option<Store>,
    /// Zones of proxies whose demand counts, beside those with endpoints of a service.
    pub zones: BTreeSet<Locality>,
    pub limits: Limits,
    /// Largest part of the services, listeners, endpoints or rules that an edit may remove. Below
    /// 100, it may not remove a section that protects the control plane or finds services either.
    pub max_removed_percent: u32,
    /// Price of traffic between zones, for estimates.
    pub cost: Cost,
    /// Where metrics are exported to; `None` for nowhere.
    pub otlp: Option<Otlp>,
    pub services: BTreeMap<Arc<str>, Arc<Service>>,
    pub listeners: BTreeMap<Arc<str>, Arc<Listener>>,
    pub origins: Origins,
}

impl ControlConfig {
    /// Parses the main file and adds the services and listeners of the included files.
    pub fn parse(main: &ConfigFile, included: &[ConfigFile]) -> Result<Self, FileError> {
        let parsed = |file: &ConfigFile| {
            let document = Document::parse(&file.text).map_err(|error| file.error(error))?;
            let name = file.name.clone();
            Ok(ParsedFile { name, document })
        };
        let main = parsed(main)?;
        let included: Result<Vec<_>, FileError> = included.iter().map(parsed).collect();
        Self::read(&main, included?.iter())
    }

    /// Validates files that have been parsed.
    fn read<'a>(
        main: &ParsedFile,
        included: impl Iterator<Item = &'a ParsedFile>,
    ) -> Result<Self, FileError> {
        let document = &main.document;
        let mut yaml: FileYaml = main.read()?;
        let at_main = |error| main.error(document.locate(error));
        let mut config = Self::settings(&yaml).map_err(at_main)?;
        config.check_exposure().map_err(at_main)?;
        let written = |field: &str| match field {
            "admin" => yaml.admin.is_some(),
            "read_only" => yaml.read_only.is_some(),
            _ => yaml.listen.is_some(),
        };
        config.check_addresses(written).map_err(at_main)?;
        let mut files = BTreeMap::new();
        config
            .add(&mut yaml, &main.name, document, &mut files)
            .map_err(at_main)?;
        for file in included {
            let mut yaml: FileYaml = file.read()?;
            let added = yaml
                .check_included()
                .and_then(|()| config.add(&mut yaml, &file.name, &file.document, &mut files));
            added.map_err(|error| file.error(file.document.locate(error)))?;
        }
        config.check_routes().map_err(ConfigError::from)?;
        Arc::make_mut(&mut config.rules).services = config.services.keys().cloned().collect();
        if yaml.demand.heartbeat.is_some() {
            let error = config.check_heartbeat().err();
            config.heartbeat_error = error.map(|error| main.error(document.locate(error)));
        }
        Ok(config)
    }

    /// Returns the files and directories in `include` of the main file, as written.
    pub fn includes(main: &ConfigFile) -> Result<Vec<String>, FileError> {
        let read = || -> Result<FileYaml, ConfigError> { Document::parse(&main.text)?.read() };
        let yaml = read().map_err(|error| main.error(error))?;
        Ok(yaml.include)
    }

    fn settings(yaml: &FileYaml) -> Result<Self, FieldError> {
        let interval = report_interval(yaml)?;
        let demand = &yaml.demand;
        let limits = yaml
            .limits
            .validate()
            .map_err(|error| error.under("limits"))?;
        let planner = PlannerConfig::try_new(PlannerConfigParts {
            tau: demand.smoothing_time_constant.map(|tau| tau.0),
            missed_intervals: demand.missed_intervals.map(|missed| missed.0),
            material_change_bp: demand.material_change_bp.map(|change| change.0),
            heartbeat: demand.heartbeat.map(|heartbeat| heartbeat.0),
            default_report_interval: Some(interval),
            max_times_median: demand.max_times_median.map(|times| times.0),
            idle_timeout: demand.idle_timeout.map(|timeout| timeout.0),
            max_upstream_clusters: Some(limits.requests.clusters_per_report),
            _non_exhaustive: (),
        })
        .map_err(|error| error.under("demand"))?;
        let names = yaml
            .fleets
            .local_cluster_names
            .clone()
            .unwrap_or_else(|| DEFAULT_LOCAL_CLUSTER_NAMES.map(str::to_owned).into());
        let tls = yaml.tls.as_ref().map(|tls| tls.validate(true));
        let local_cluster_names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
        let rules = Rules {
            rules: security::rules(yaml.identities.as_deref(), tls.as_ref())?,
            local_cluster_names: local_cluster_names.clone(),
            services: BTreeSet::new(),
            relays: yaml.relay.is_some(),
        };
        Ok(Self {
            listen: yaml.address("listen", yaml.listen.as_deref(), "127.0.0.1:18000")?,
            tls,
            insecure: yaml.insecure,
            rules: Arc::new(rules),
            admin_tls: yaml.admin_tls.as_ref().map(|tls| tls.validate(false)),
            read_only: match yaml.read_only.as_deref() {
                None | Some("") => None,
                address => Some(yaml.address("read_only", address, "127.0.0.1:18002")?),
            },
            admin: match yaml.admin.as_deref() {
                Some("") => None,
                admin => Some(yaml.address("admin", admin, "127.0.0.1:18001")?),
            },
            load_reporting_interval: interval,
            report_endpoint_granularity: yaml.load_reporting.report_endpoint_granularity,
            planner,
            heartbeat_error: None,
            local_cluster_names,
            leave_after: yaml
                .fleets
                .leave_after
                .map_or(DEFAULT_LEAVE_AFTER, |after| after.0),
            endpoint_stale_after: yaml.fleets.endpoint_stale_after.map(|after| after.0),
            relay: yaml.relay.as_ref().map(RelayYaml::validate).transpose()?,
            kubernetes: yaml.kubernetes()?,
            store: yaml.store.as_ref().map(StoreYaml::validate).transpose()?,
            zones: yaml.fleets.zones()?,
            limits,
            max_removed_percent: yaml.reload.max_removed_percent()?,
            cost: yaml.cost()?,
            otlp: yaml.otlp()?,
            services: BTreeMap::new(),
            listeners: BTreeMap::new(),
            origins: Origins::default(),
        })
    }

    fn add(
        &mut self,
        yaml: &mut FileYaml,
        file: &str,
        document: &Document,
        files: &mut BTreeMap<Arc<str>, String>,
    ) -> Result<(), FieldError> {
        let services = std::mem::take(&mut yaml.services);
        for (index, service) in services.into_iter().enumerate() {
            let service = service
                .validate()
                .map_err(|error| error.under(&format!("services[{index}]")))?;
            let name = Arc::clone(service.name());
            if self.relay.is_some() && !service.assignment.endpoints().is_empty() {
                return Err(FieldError::new(
                    format!("services[{index}].endpoints"),
                    "must be empty with a relay: endpoints come from the relayed server",
                ));
            }
            if let Some(other) = files.insert(Arc::clone(&name), file.to_owned()) {
                return Err(FieldError::new(
                    format!("services[{index}].cluster.name"),
                    format!("{name} is already defined in {other}"),
                ));
            }
            self.origins.add(&name, file, document, index);
            self.services.insert(name, Arc::new(service));
        }
        for (index, listener) in std::mem::take(&mut yaml.listeners).into_iter().enumerate() {
            let path = format!("listeners[{index}]");
            let listener = listener.validate().map_err(|error| error.under(&path))?;
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

    /// Returns a hash of what all replicas of a control plane should have in common.
    pub fn fingerprint(&self) -> u64 {
        let Self {
            load_reporting_interval,
            planner,
            local_cluster_names,
            leave_after,
            endpoint_stale_after,
            relay,
            zones,
            rules,
            services,
            listeners,
            ..
        } = self;
        let settings = (load_reporting_interval, planner, local_cluster_names);
        let rule_zones: BTreeSet<Locality> = rules.zones().collect();
        let fleets = (leave_after, endpoint_stale_after, relay, zones, rule_zones);
        // Debug output is the same in all processes of a version: the maps are sorted.
        let text = format!("{settings:?}{fleets:?}{services:?}{listeners:?}");
        xxhash_rust::xxh64::xxh64(text.as_bytes(), 0)
    }

    /// Returns the interval at which demand is confirmed to proxies: `demand.heartbeat`, or a third
    /// of the shortest `staleness_threshold` if that is shorter (decision 0024). If it is
    /// shortened, also returns the service with this threshold, and the threshold.
    pub fn heartbeat(&self) -> (Duration, Option<(&Service, Duration)>) {
        let written = self.planner.heartbeat();
        let services = self.services.values().map(AsRef::as_ref);
        match shortest_staleness_threshold(services) {
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

    /// Checks that other machines reach ADS, LRS and the admin API only with TLS, unless the file
    /// allows it.
    pub fn check_exposure(&self) -> Result<(), FieldError> {
        let Insecure { xds, admin } = self.insecure_listeners();
        let admin = self.admin.filter(|_| admin);
        let listeners = [
            ("listen", xds.then_some(self.listen), "tls"),
            ("admin", admin, "admin_tls"),
        ];
        for (field, address, tls) in listeners {
            if let Some(address) = address
                && !self.insecure
            {
                let reason = format!(
                    "other machines can connect to {address} without TLS; set {tls}, or insecure: \
                     true"
                );
                return Err(FieldError::new(field, reason));
            }
        }
        Ok(())
    }

    /// Checks that no two listening sockets have the same address. The error is about the field
    /// that is `written`, if the other one has its default.
    pub fn check_addresses(&self, written: impl Fn(&str) -> bool) -> Result<(), FieldError> {
        let sockets = [
            ("listen", Some(self.listen)),
            ("admin", self.admin),
            ("read_only", self.read_only),
        ];
        for (index, (field, address)) in sockets.iter().enumerate() {
            for (other, earlier) in &sockets[..index] {
                if let (Some(address), Some(earlier)) = (address, earlier)
                    && plimsoll_serve::same_socket(*address, *earlier)
                {
                    let (field, other) = if written(field) {
                        (field, other)
                    } else {
                        (other, field)
                    };
                    let reason = format!("{address} is already the address of {other}");
                    return Err(FieldError::new(*field, reason));
                }
            }
        }
        Ok(())
    }

    /// Returns the listeners that other machines reach without TLS. `read_only` is none of them:
    /// it takes no secrets and changes nothing.
    pub fn insecure_listeners(&self) -> Insecure {
        Insecure {
            xds: self.tls.is_none() && security::is_exposed(self.listen),
            admin: self.admin_tls.is_none() && self.admin.is_some_and(security::is_exposed),
        }
    }

    /// Checks that every route refers to a service. With a relay, and with services of Kubernetes,
    /// other clusters are accepted.
    fn check_routes(&self) -> Result<(), FieldError> {
        // Services of Kubernetes come and go.
        if self.relay.is_some() || self.kubernetes.is_some() {
            return Ok(());
        }
        let known: BTreeSet<&str> = self.services.keys().map(AsRef::as_ref).collect();
        for listener in self.listeners.values() {
            for cluster in listener.routes.clusters() {
                if !known.contains(cluster) {
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

fn report_interval(yaml: &FileYaml) -> Result<Duration, FieldError> {
    let written = yaml.load_reporting.interval.map(|interval| interval.0);
    let interval = written.unwrap_or(DEFAULT_REPORT_INTERVAL);
    if !(MIN_INTERVAL..=Duration::from_secs(3600)).contains(&interval) {
        let reason = format!("{interval:?} is outside {MIN_INTERVAL:?} to 1 h");
        return Err(FieldError::new("load_reporting.interval", reason));
    }
    Ok(interval)
}

#[cfg(test)]
mod tests;
