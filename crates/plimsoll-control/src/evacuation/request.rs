//! Questions and commands of the admin API, the dashboard and the command line about zones.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_admin::api::rounded;
use plimsoll_core::evacuation::{
    Check, CheckLimits, CheckedService, DrainRequest, Ended, ErrorMatrix, Finding, Illness, Order,
    Origin, Refusal, Suspect, ZoneName, ZoneState, check,
};
use plimsoll_core::model::assignment::LocalityLbEndpoints;
use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::zone_loss::ServiceLoad;
use plimsoll_core::units::FieldError;
use plimsoll_xds::yaml::proto_json::ProtoDuration;

use super::{OrderRecord, ZoneCommand};
use crate::config::{Evacuation, Service};
use crate::load_line::LoadLines;
use crate::run::Context;
use crate::server::Stopped;
use crate::state::State;
use crate::zone_loss::ServiceZones;

/// How long routing shares may be computed for one check.
const LOAD_BUDGET: Duration = Duration::from_secs(1);
/// Most pairs of zones in a list.
const MAX_LINKS: usize = 2_500;
/// So many times faster than a person an ill zone is drained.
const HASTE: u64 = 5;
/// Longest time that a zone may be out by one order: a year.
const MAX_TIME: Duration = Duration::from_secs(366 * 86_400);

/// What to drain, for how long, and how far: the body of `/api/v1/zones/drain`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DrainBody {
    /// Name of the zone, `ZONE` or `REGION/ZONE`, as in localities of endpoints.
    pub zone: String,
    /// Why, for the audit and for others.
    #[serde(default)]
    pub reason: String,
    /// How long the zone stays out, such as `30m`; by default until it is returned.
    #[serde(default, rename = "for")]
    pub time: Option<ProtoDuration>,
    /// Time between two steps of ten percent; by default `evacuation.step_interval`.
    #[serde(default)]
    pub step: Option<ProtoDuration>,
    /// Drain as far as fits instead of refusing.
    #[serde(default)]
    pub partial: bool,
    /// Drain whatever the check says.
    #[serde(default)]
    pub force: bool,
    /// Only tell what would happen.
    #[serde(default)]
    pub dry_run: bool,
}

/// Which zone returns to service: the body of `/api/v1/zones/return`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ReturnBody {
    /// Zone as it was named when it was drained.
    pub zone: String,
}

/// What a drain does to one service.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServiceCheck {
    cluster: String,
    /// Utilization of the fullest zone now; `null` if the capacity is not known.
    utilization_now: Option<f64>,
    /// Utilization of the fullest zone without this one; `null` if the capacity is not known.
    utilization_without: Option<f64>,
    fullest: Option<Locality>,
    /// Requests per second of capacity that the other zones lack; `null` if none.
    missing_requests_per_second: Option<f64>,
    /// Percent of the hosts of the zone that may go out of use.
    allowed_percent: u32,
    /// Why no more, as a clause.
    reason: Option<String>,
}

/// Answer to a drain.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DrainAnswer {
    /// Percent of the hosts of the zone that may go out of use.
    pub allowed_percent: u32,
    /// What the check found, as a sentence.
    pub text: String,
    /// Services with hosts in the zone; the most limited first.
    services: Vec<ServiceCheck>,
    /// Services whose hosts are all there: they stay in use.
    stays: Vec<String>,
    /// The order in force; `null` if it was only a question.
    pub order: Option<OrderRecord>,
}

/// A zone as `/api/v1/zones` has it.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneReport {
    /// `REGION/ZONE`, or `ZONE` without region.
    pub zone: String,
    /// `in_service`, `suspect` (requests to it fail), `draining`, `out` or `returning`.
    pub state: &'static str,
    /// Percent of its hosts that are out of use by the order.
    pub drained_percent: u32,
    /// Hosts of all services there, and those in use.
    pub hosts: usize,
    pub hosts_in_use: usize,
    /// Why it is not in service.
    pub order: Option<OrderRecord>,
}

/// Response to requests for `/api/v1/zones`.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ZoneList {
    pub zones: Vec<ZoneReport>,
    /// Zones that are ill.
    pub suspects: Vec<SuspectReport>,
    /// What became of the requests between zones, to all services, in the latest load reports.
    pub links: Vec<LinkReport>,
}

/// A zone that is ill.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SuspectReport {
    pub zone: Locality,
    /// `backends` (requests to its hosts fail) or `network` (those of its proxies fail everywhere).
    pub of: &'static str,
    /// Share of the requests that fail, and the median of that in other zones.
    pub failed_share: f64,
    pub elsewhere: f64,
    /// Whether one bad host explains it: then the zone is never drained for it.
    pub is_one_host: bool,
}

/// Requests from the proxies of one zone to the hosts of another.
#[derive(Clone, Debug, serde::Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LinkReport {
    pub from: Locality,
    pub to: Locality,
    pub requests: u64,
    pub failed: u64,
}

/// Why a request is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EvacuationError {
    #[error(transparent)]
    Stopped(#[from] Stopped),
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error("{0}")]
    Question(FieldError),
}

impl From<FieldError> for EvacuationError {
    fn from(error: FieldError) -> Self {
        Self::Question(error)
    }
}

/// What the state knows for a check.
struct Known {
    settings: Evacuation,
    services: BTreeMap<Arc<str>, KnownService>,
    has_zone: bool,
}

/// The hosts of a service.
struct KnownService {
    /// Share of them that would be out of use.
    out_share: f64,
    /// Its zones with the hosts in use there: all that is known of it without requests.
    idle: ServiceZones,
}

impl Context {
    /// Computes what a drain of a zone would do.
    pub async fn check_drain(&self, zone: &ZoneName) -> Result<Check, EvacuationError> {
        let (found, _) = self.check_with_settings(zone).await?;
        Ok(found)
    }

    async fn check_with_settings(
        &self,
        zone: &ZoneName,
    ) -> Result<(Check, Evacuation), EvacuationError> {
        let lines = self.load_lines(LOAD_BUDGET).await?;
        let asked = zone.clone();
        let known = self
            .handle
            .inspect(move |state, _| known(state, &asked))
            .await?;
        if !known.has_zone {
            let reason = format!("no service has endpoints in {zone}");
            return Err(FieldError::new("zone", reason).into());
        }
        Ok((checked(&lines, zone, &known), known.settings))
    }

    /// Drains a zone, or only tells what would happen.
    pub async fn drain(&self, body: DrainBody, by: &str) -> Result<DrainAnswer, EvacuationError> {
        let zone = ZoneName::try_new(&body.zone)?;
        let (found, settings) = self.check_with_settings(&zone).await?;
        let mut answer = DrainAnswer::from(&found);
        if body.dry_run {
            return Ok(answer);
        }
        if body.reason.trim().is_empty() {
            return Err(FieldError::new("reason", "say why, for the audit and for others").into());
        }
        let time = body.time.map(|time| time.0);
        if time.is_some_and(|time| time.is_zero() || time > MAX_TIME) {
            return Err(FieldError::new("for", "must be above 0 and at most a year").into());
        }
        let step = body.step.map_or(settings.step_interval, |step| step.0);
        let request = DrainRequest {
            zone,
            origin: Origin::Operator,
            by: by.into(),
            reason: body.reason.trim().into(),
            for_ms: time.map(millis),
            step_ms: millis(step),
            return_ms: millis(settings.return_time),
            partial: body.partial,
            force: body.force,
        };
        let command = ZoneCommand::Drain(request, Box::new(found));
        let order = self.handle.command(command, by).await??;
        answer.order = Some(OrderRecord::from(&order));
        Ok(answer)
    }

    /// Drains a zone that is ill, as far as fits.
    pub(super) async fn drain_ill(
        &self,
        zone: ZoneName,
        reason: &str,
        by: &str,
    ) -> Result<Order, EvacuationError> {
        let (found, settings) = self.check_with_settings(&zone).await?;
        let request = DrainRequest {
            zone,
            origin: Origin::Automatic,
            by: by.into(),
            reason: reason.into(),
            for_ms: Some(millis(settings.automatic_time)),
            // Requests fail meanwhile.
            step_ms: millis(settings.step_interval) / HASTE,
            return_ms: millis(settings.return_time),
            partial: true,
            force: false,
        };
        let command = ZoneCommand::Drain(request, Box::new(found));
        Ok(self.handle.command(command, by).await??)
    }

    /// Returns a zone to service.
    pub async fn give_back(
        &self,
        body: &ReturnBody,
        by: &str,
    ) -> Result<OrderRecord, EvacuationError> {
        let zone = ZoneName::try_new(&body.zone)?;
        let command = ZoneCommand::Return {
            zone,
            by: by.into(),
        };
        let order: Order = self.handle.command(command, by).await??;
        Ok(OrderRecord::from(&order))
    }

    /// Lists zones with endpoints of some service, and what is ill.
    pub async fn zones(&self) -> Result<ZoneList, Stopped> {
        let lines = self.load_lines(LOAD_BUDGET).await?;
        self.handle
            .inspect(move |state, now| zone_list(state, &lines, now))
            .await
    }
}

fn known(state: &State, zone: &ZoneName) -> Known {
    let drained = state.zones_out().applied();
    let mut services = BTreeMap::new();
    let mut has_zone = false;
    for (name, service) in state.services().whole() {
        let entries = service.assignment.endpoints();
        has_zone |= entries.iter().any(|entry| zone.has(&entry.locality));
        let hosts = |entry: &LocalityLbEndpoints| count(entry.lb_endpoints.len());
        let all: f64 = entries.iter().map(hosts).sum();
        let mut out = 0.0;
        let mut in_use: BTreeMap<Locality, f64> = BTreeMap::new();
        for entry in entries {
            let share = f64::from(drained.points(&entry.locality)) / 100.0;
            out += hosts(entry)
                * if zone.has(&entry.locality) {
                    1.0
                } else {
                    share
                };
            *in_use.entry(entry.locality.clone()).or_default() += hosts(entry) * (1.0 - share);
        }
        let known = KnownService {
            out_share: if all > 0.0 { out / all } else { 0.0 },
            idle: ServiceZones {
                cluster: Arc::clone(name),
                zones: in_use.keys().cloned().collect(),
                load: ServiceLoad {
                    capacity: in_use.into_values().collect(),
                    ..ServiceLoad::default()
                },
                has_capacity: false,
            },
        };
        services.insert(Arc::clone(name), known);
    }
    Known {
        settings: state.config().operation.evacuation.clone(),
        services,
        has_zone,
    }
}

fn checked(lines: &LoadLines, zone: &ZoneName, known: &Known) -> Check {
    let busy = lines.services();
    let names: BTreeSet<&Arc<str>> = busy.iter().map(|service| &service.cluster).collect();
    let idle = known.services.values().map(|service| &service.idle);
    let all = busy
        .iter()
        .chain(idle.filter(|service| !names.contains(&service.cluster)));
    let limits = CheckLimits {
        max_utilization: known.settings.max_utilization,
        max_capacity_share: known.settings.max_capacity_share,
    };
    let checked = all.map(|service| CheckedService {
        name: &service.cluster,
        zones: &service.zones,
        load: &service.load,
        has_capacity: service.has_capacity,
        out_share: known
            .services
            .get(&service.cluster)
            .map_or(0.0, |known| known.out_share),
    });
    check(zone, checked, limits)
}

/// Lists all zones with their state.
pub fn zone_list(state: &State, lines: &LoadLines, now: plimsoll_core::time::Instant) -> ZoneList {
    let mut zones: BTreeMap<Locality, (usize, usize)> = BTreeMap::new();
    let place = |locality: &Locality| Locality::new(locality.region(), locality.zone(), "");
    let hosts = |service: &Arc<Service>| -> Vec<(Locality, usize)> {
        let entries = service.assignment.endpoints().iter();
        entries
            .map(|entry| (place(&entry.locality), entry.lb_endpoints.len()))
            .collect()
    };
    for (_, service) in state.services().whole() {
        for (zone, count) in hosts(service) {
            zones.entry(zone).or_default().0 += count;
        }
    }
    for service in state.config().services.values() {
        for (zone, count) in hosts(service) {
            zones.entry(zone).or_default().1 += count;
        }
    }
    let out = state.zones_out();
    let suspects = out.suspects();
    let is_suspect = |zone: &Locality| {
        let mut backends = suspects
            .iter()
            .filter(|one| one.illness == Illness::Backends);
        backends.any(|one| place(&one.zone) == *zone)
    };
    let fails = |zone: &Locality| {
        let mut all = lines.iter().flat_map(|line| &line.zones);
        all.any(|own| own.fails && own.fails_only_from.is_empty() && place(&own.locality) == *zone)
    };
    let now_ms = out.unix_ms(now);
    let report = |(zone, (hosts, in_use)): (&Locality, &(usize, usize))| {
        let mut orders = out.orders().orders();
        let order = orders.find(|order| order.zone.has(zone) && !order.is_over(now_ms));
        let state = match order {
            Some(order) => order.state(now_ms),
            None if fails(zone) || is_suspect(zone) => ZoneState::Suspect,
            None => ZoneState::InService,
        };
        ZoneReport {
            zone: match zone.region() {
                "" => zone.zone().to_owned(),
                region => format!("{region}/{}", zone.zone()),
            },
            state: state.name(),
            drained_percent: order.map_or(0, |order| order.drained(now_ms)),
            hosts: *hosts,
            hosts_in_use: *in_use,
            order: order.map(OrderRecord::from),
        }
    };
    ZoneList {
        zones: zones.iter().map(report).collect(),
        suspects: suspects.iter().map(SuspectReport::from).collect(),
        links: links(&errors(state, now)),
    }
}

/// Returns what became of the requests between zones, of all fleets.
pub(crate) fn errors(state: &State, now: plimsoll_core::time::Instant) -> ErrorMatrix {
    let mut all = ErrorMatrix::new();
    for fleet in state.planner().fleets(now) {
        for (from, row) in fleet.errors() {
            let sums = all.entry(from).or_default();
            for (to, ended) in row {
                let sum = sums.entry(to).or_default();
                sum.requests = sum.requests.saturating_add(ended.requests);
                sum.failed = sum.failed.saturating_add(ended.failed);
            }
        }
    }
    all
}

fn links(errors: &ErrorMatrix) -> Vec<LinkReport> {
    let row = |(from, row): (&Locality, &BTreeMap<Locality, Ended>)| {
        let link = |(to, ended): (&Locality, &Ended)| LinkReport {
            from: from.clone(),
            to: to.clone(),
            requests: ended.requests,
            failed: ended.failed,
        };
        row.iter().map(link).collect::<Vec<_>>()
    };
    errors.iter().flat_map(row).take(MAX_LINKS).collect()
}

impl From<&Suspect> for SuspectReport {
    fn from(suspect: &Suspect) -> Self {
        Self {
            zone: suspect.zone.clone(),
            of: suspect.illness.name(),
            failed_share: rounded(suspect.failed_share),
            elsewhere: rounded(suspect.elsewhere),
            is_one_host: suspect.is_one_host,
        }
    }
}

impl From<&Check> for DrainAnswer {
    fn from(check: &Check) -> Self {
        Self {
            allowed_percent: check.allowed,
            text: check.text(),
            services: check.findings.iter().map(ServiceCheck::from).collect(),
            stays: check.stays.clone(),
            order: None,
        }
    }
}

impl From<&Finding> for ServiceCheck {
    fn from(finding: &Finding) -> Self {
        Self {
            cluster: finding.service.clone(),
            utilization_now: finding.now.map(rounded),
            utilization_without: finding.without.map(rounded),
            fullest: finding.fullest.clone(),
            missing_requests_per_second: finding.missing.map(rounded),
            allowed_percent: finding.allowed,
            reason: finding.reason.clone(),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of hosts")]
fn count(hosts: usize) -> f64 {
    hosts as f64
}
