//! [`ControlConfig`]: validated configuration of a control plane.
//!
//! `yaml` has the format of the files; `endpoints`, `service` and `routes` have parts of it. Errors
//! name the file, the field and its line and column. `source` loads and watches the files.

mod consul;
pub(crate) mod cost;
mod discovered;
mod dns;
mod endpoints;
mod evacuation;
mod faults;
mod groups;
mod kubernetes;
mod limits;
pub(crate) mod objective;
mod origins;
mod otlp;
mod removal;
mod routes;
#[cfg(feature = "schema")]
mod schema;
mod security;
mod service;
mod settings;
mod store;
mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::planner::config::DEFAULT_REPORT_INTERVAL;
use plimsoll_core::planner::{PlannerConfig, PlannerConfigParts};
use plimsoll_core::units::FieldError;
use plimsoll_serve::ServerTlsSettings;
use plimsoll_xds::yaml::{ConfigError, Document};

use crate::delivery::{refuse_without_effect, shortest_staleness_threshold};
use crate::identity::Rules;
use crate::sources::SourceId;
use cost::CostYaml;
use faults::ParsedFile;

pub use consul::Consul;
pub use discovered::ServiceDefaults;
pub use dns::{Dns, SrvName};
pub use evacuation::Evacuation;
pub use groups::{Addresses, FleetOptions, Operation, Reporting};
pub use kubernetes::Kubernetes;
pub use limits::Limits;
#[cfg(test)]
#[cfg(feature = "schema")]
pub(crate) use limits::tests::limit_fields;
pub use objective::Learning;
pub use origins::Origins;
pub use otlp::Otlp;
pub use plimsoll_serve::ConfigFile;
pub(crate) use removal::check_removal;
pub use routes::Listener;
pub use security::{IncomingLimits, Insecure, RelayTls};
pub use service::{BesidePolicy, Delivery, Mode, Service};
pub(crate) use settings::{Agreement, SETTINGS, restart_needed};
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

/// Where services come from beside the files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sources {
    pub kubernetes: Option<Kubernetes>,
    pub consul: Option<Consul>,
    pub dns: Option<Dns>,
}

/// Validated configuration of a control plane.
#[derive(Clone, Debug, PartialEq)]
pub struct ControlConfig {
    pub addresses: Addresses,
    pub rules: Arc<Rules>,
    pub reporting: Reporting,
    pub fleets: FleetOptions,
    pub relay: Option<Relay>,
    pub sources: Sources,
    /// What replicas share; `None` for a single process.
    pub store: Option<Store>,
    pub operation: Operation,
    pub services: Arc<BTreeMap<Arc<str>, Arc<Service>>>,
    pub listeners: BTreeMap<Arc<str>, Arc<Listener>>,
    pub origins: Origins,
}

impl Sources {
    fn defaults_mut(&mut self) -> impl Iterator<Item = &mut ServiceDefaults> {
        let kubernetes = self.kubernetes.iter_mut().map(|one| &mut one.defaults);
        let consul = self.consul.iter_mut().map(|one| &mut one.defaults);
        let dns = self.dns.iter_mut().map(|one| &mut one.defaults);
        kubernetes.chain(consul).chain(dns)
    }
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
        let general = yaml.cost.clone();
        let mut files = BTreeMap::new();
        config
            .add(&mut yaml, &main.name, document, &general, &mut files)
            .map_err(at_main)?;
        for file in included {
            let mut yaml: FileYaml = file.read()?;
            let added = settings::check_included(&yaml).and_then(|()| {
                config.add(&mut yaml, &file.name, &file.document, &general, &mut files)
            });
            added.map_err(|error| file.error(file.document.locate(error)))?;
        }
        config.check_routes().map_err(ConfigError::from)?;
        Arc::make_mut(&mut config.rules).services = config.services.keys().cloned().collect();
        if yaml.demand.heartbeat.is_some() {
            let error = config.check_heartbeat().err();
            config.reporting.heartbeat_error =
                error.map(|error| main.error(document.locate(error)));
        }
        let (heartbeat, _) = config.heartbeat();
        for defaults in config.sources.defaults_mut() {
            defaults.keep_heartbeat(heartbeat);
        }
        Ok(config)
    }

    /// Returns the files and directories in `include` of the main file, as written.
    pub fn includes(main: &ConfigFile) -> Result<Vec<String>, FileError> {
        let read = || -> Result<FileYaml, ConfigError> { Document::parse(&main.text)?.read() };
        let yaml = read().map_err(|error| main.error(error))?;
        Ok(yaml.include)
    }

    /// Takes over the services of an earlier reading of the files that are the same in this one, so
    /// that the writer finds out by their addresses that they did not change.
    #[must_use]
    pub fn sharing_services(mut self, before: &Self) -> Self {
        for (name, service) in Arc::make_mut(&mut self.services) {
            if let Some(same) = before.services.get(name).filter(|same| *same == service) {
                *service = Arc::clone(same);
            }
        }
        self
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
            administrators: security::administrators(yaml)?,
            relays: yaml.relay.is_some(),
        };
        Ok(Self {
            addresses: addresses(yaml, tls)?,
            rules: Arc::new(rules),
            reporting: Reporting {
                load_reporting_interval: interval,
                report_endpoint_granularity: yaml.load_reporting.report_endpoint_granularity,
                planner,
                heartbeat_error: None,
            },
            fleets: FleetOptions {
                local_cluster_names,
                leave_after: yaml
                    .fleets
                    .leave_after
                    .map_or(DEFAULT_LEAVE_AFTER, |after| after.0),
                endpoint_stale_after: yaml.fleets.endpoint_stale_after.map(|after| after.0),
                zones: yaml.fleets.zones()?,
            },
            relay: yaml.relay.as_ref().map(RelayYaml::validate).transpose()?,
            sources: yaml.sources()?,
            store: yaml.store.as_ref().map(StoreYaml::validate).transpose()?,
            operation: Operation {
                limits,
                max_removed_percent: yaml.reload.max_removed_percent()?,
                cost: yaml.cost()?.into(),
                otlp: yaml.otlp()?,
                evacuation: yaml.evacuation()?,
            },
            services: Arc::default(),
            listeners: BTreeMap::new(),
            origins: Origins::default(),
        })
    }

    fn add(
        &mut self,
        yaml: &mut FileYaml,
        file: &str,
        document: &Document,
        general: &CostYaml,
        files: &mut BTreeMap<Arc<str>, String>,
    ) -> Result<(), FieldError> {
        let services = std::mem::take(&mut yaml.services);
        for (index, service) in services.into_iter().enumerate() {
            let under = |error: FieldError| error.under(&format!("services[{index}]"));
            if self.relay.is_some() {
                service.check_relayed().map_err(under)?;
            }
            let service = service.validate(general).map_err(under)?;
            refuse_without_effect(&service).map_err(under)?;
            let name = Arc::clone(service.name());
            if self.relay.is_some() && !service.assignment.endpoints().is_empty() {
                return Err(FieldError::new(
                    format!("services[{index}].endpoints"),
                    "must be empty with a relay: endpoints come from the relayed server",
                ));
            }
            if self.relay.is_some() {
                let checked = service.settings.check_relayed();
                checked.map_err(|error| under(error.under("cluster")))?;
            }
            if let Some(other) = files.insert(Arc::clone(&name), file.to_owned()) {
                return Err(FieldError::new(
                    format!("services[{index}].cluster.name"),
                    format!("{name} is already defined in {other}"),
                ));
            }
            self.origins.add(&name, file, document, index);
            Arc::make_mut(&mut self.services).insert(name, Arc::new(service));
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

    /// Whether another configuration differs in its services at most.
    pub(crate) fn has_same_settings(&self, other: &Self) -> bool {
        // The rules have the names of the services, and the error depends on their thresholds.
        let without_services = |config: &Self| {
            let mut settings = Self {
                services: Arc::default(),
                rules: Arc::default(),
                ..config.clone()
            };
            settings.reporting.heartbeat_error = None;
            settings
        };
        self.rules.has_same_settings(&other.rules)
            && without_services(self) == without_services(other)
    }

    /// Whether demand for every reported cluster counts: if a relay is configured without services.
    pub(crate) fn wants_all_reports(&self) -> bool {
        self.relay.is_some() && self.services.is_empty()
    }

    /// Returns a hash of what all replicas of a control plane should have in common, if all of it
    /// is in force; the same in all versions that understand the file.
    pub fn fingerprint(&self) -> u64 {
        settings::hash(self, self)
    }

    /// Returns the longest interval at which demand is confirmed to proxies: `demand.heartbeat`, or
    /// a third of the shortest `staleness_threshold` if that is shorter (decision 0024). Then it
    /// also returns the service with this threshold, and the threshold.
    pub fn heartbeat(&self) -> (Duration, Option<(&Service, Duration)>) {
        let written = self.reporting.planner.heartbeat();
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
            self.reporting.planner.heartbeat(),
            service.name(),
        );
        Err(FieldError::new("demand.heartbeat", reason))
    }

    /// Checks that other machines reach ADS, LRS and the admin API only with TLS, and the control
    /// plane its store, unless the file allows it.
    pub fn check_exposure(&self) -> Result<(), FieldError> {
        let Insecure { xds, admin, store } = self.insecure_listeners();
        if store && !self.addresses.insecure {
            let reason = "records are sent to other machines without TLS, and who can write them \
                          sets the demand of all services; set tls, or insecure: true";
            return Err(FieldError::new("store.etcd", reason));
        }
        let admin = self.addresses.admin.filter(|_| admin);
        let listeners = [
            ("listen", xds.then_some(self.addresses.listen), "tls"),
            ("admin", admin, "admin_tls"),
        ];
        for (field, address, tls) in listeners {
            if let Some(address) = address
                && !self.addresses.insecure
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
            ("listen", Some(self.addresses.listen)),
            ("admin", self.addresses.admin),
            ("read_only", self.addresses.read_only),
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

    /// Returns what is reached over the network without TLS: listeners and the store. `read_only`
    /// is none of them: it takes no secrets and changes nothing.
    pub fn insecure_listeners(&self) -> Insecure {
        Insecure {
            xds: self.addresses.tls.is_none() && security::is_exposed(self.addresses.listen),
            admin: self.addresses.admin_tls.is_none()
                && self.addresses.admin.is_some_and(security::is_exposed),
            store: self.store.as_ref().is_some_and(Store::is_exposed),
        }
    }

    /// Checks that every route refers to a service. With a relay or a source beside the files,
    /// other clusters are accepted.
    fn check_routes(&self) -> Result<(), FieldError> {
        // Discovered services come and go.
        if self.relay.is_some() || !SourceId::discovered(self).is_empty() {
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

fn addresses(yaml: &FileYaml, tls: Option<ServerTlsSettings>) -> Result<Addresses, FieldError> {
    Ok(Addresses {
        listen: yaml.address("listen", yaml.listen.as_deref(), "127.0.0.1:18000")?,
        tls,
        insecure: yaml.insecure,
        admin_tls: yaml.admin_tls.as_ref().map(|tls| tls.validate(false)),
        read_only: match yaml.read_only.as_deref() {
            None | Some("") => None,
            address => Some(yaml.address("read_only", address, "127.0.0.1:18002")?),
        },
        admin: match yaml.admin.as_deref() {
            Some("") => None,
            admin => Some(yaml.address("admin", admin, "127.0.0.1:18001")?),
        },
    })
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
