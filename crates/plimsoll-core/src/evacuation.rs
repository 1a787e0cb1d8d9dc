//! Taking zones out of use, on purpose: [`Order`], the state machine of one zone; [`Evacuations`],
//! those of all zones; `check`, what it would do to the services; `assignment`, what is left of the
//! endpoints.
//!
//! A drain moves ten points (percent of the zone's hosts) every ten seconds; a return is a slow
//! start over five minutes. Where a zone stands at a moment follows from its order and the time
//! alone, so replicas that share an order agree without talking, and a restart goes on where the
//! process ended. Times are Unix milliseconds: `Instant` means nothing to another process.
//!
//! ```text
//!              drain                        limit reached
//! IN_SERVICE ────────▶ DRAINING ───────────────────────────▶ OUT
//!     ▲  ▲ notices        │ ▲                                 │
//!     │  ▼                │ │ drain                           │
//!   SUSPECT               ▼ │          return, or `until`     │
//!     ▲                RETURNING ◀────────────────────────────┘
//!     └──────────────────┘ nothing drained any more: the order is over
//! ```
//!
//! Hosts are never marked unhealthy: with most hosts of a zone unhealthy, the panic threshold would
//! send the requests back. They leave the assignment, in every form of delivery alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::locality::Locality;
use crate::units::FieldError;

mod assignment;
mod check;
mod notice;

pub use assignment::without_drained;
pub use check::{Check, CheckLimits, CheckedService, Finding, check};
pub use notice::{Ended, ErrorMatrix, Illness, Noticing, Suspect};

/// Points of a whole zone.
pub const WHOLE: u32 = 100;
/// Points by which a drain moves.
pub const STEP: u32 = 10;
/// Time between two steps of a drain by default: a load report, so that each step shows its effect.
pub const STEP_MS: u64 = 10_000;
/// Duration of the return of a whole zone by default.
pub const RETURN_MS: u64 = 300_000;
/// Steps of a whole zone.
const STEPS: u64 = 10;
/// Longest time between two steps of a drain, and a tenth of the longest return.
const MAX_STEP_MS: u64 = 3_600_000;
/// Longest name of a zone, and longest reason.
const MAX_TEXT: usize = 256;

/// Where a zone stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ZoneState {
    InService,
    /// Requests to its hosts fail, and nothing is done about it.
    Suspect,
    /// Its hosts leave step by step.
    Draining,
    /// As far out of use as it was ordered.
    Out,
    /// Its hosts come back step by step.
    Returning,
}

impl ZoneState {
    /// Returns the name in the API and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InService => "in_service",
            Self::Suspect => "suspect",
            Self::Draining => "draining",
            Self::Out => "out",
            Self::Returning => "returning",
        }
    }
}

/// Who wants a zone out of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A person, by the API or the command line.
    Operator,
    /// The files name it, and nobody else may return it.
    File,
    /// The schedule of practice runs.
    Practice,
    /// The control plane, because requests to the zone fail.
    Automatic,
}

impl Origin {
    pub const ALL: [Self; 4] = [Self::Operator, Self::File, Self::Practice, Self::Automatic];

    /// Returns the name in records and the API.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::File => "file",
            Self::Practice => "practice",
            Self::Automatic => "automatic",
        }
    }
}

/// An order to take a zone out of use, as replicas share it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    pub zone: ZoneName,
    pub origin: Origin,
    pub by: Arc<str>,
    pub reason: Arc<str>,
    pub started_unix_ms: u64,
    /// Points that were drained when it started.
    pub from: u32,
    /// Points to drain, at most [`WHOLE`].
    pub limit: u32,
    /// Time between two steps of the drain, and between two of the return; with 0 all at once.
    pub step_ms: u64,
    pub return_step_ms: u64,
    /// When the zone returns by itself.
    pub until_unix_ms: Option<u64>,
    /// Since when it returns, if somebody said so.
    pub returned_unix_ms: Option<u64>,
    /// Whether the check was overruled.
    pub forced: bool,
}

/// Name of a zone: `zone`, or `region/zone`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneName(Arc<str>);

impl ZoneName {
    /// Accepts `ZONE` and `REGION/ZONE`; the error says what is wrong.
    pub fn try_new(name: &str) -> Result<Self, FieldError> {
        let parts = name.split('/').count();
        let is_printable = !name.chars().any(char::is_control);
        if name.is_empty() || name.len() > MAX_TEXT || parts > 2 || !is_printable {
            let reason = format!("{name:?} is neither ZONE nor REGION/ZONE");
            return Err(FieldError::new("zone", reason));
        }
        Ok(Self(name.into()))
    }

    /// Whether a locality is in the zone.
    pub fn has(&self, locality: &Locality) -> bool {
        match self.0.split_once('/') {
            Some((region, zone)) => locality.region() == region && locality.zone() == zone,
            None => locality.zone() == &*self.0,
        }
    }

    /// Returns the name as it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for ZoneName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Order {
    /// Checks an order that was read.
    pub fn checked(self) -> Result<Self, FieldError> {
        if self.from > WHOLE || self.limit > WHOLE {
            let reason = format!("{} and {} must be at most {WHOLE}", self.from, self.limit);
            return Err(FieldError::new("limit", reason));
        }
        if self.step_ms > MAX_STEP_MS || self.return_step_ms > MAX_STEP_MS {
            return Err(FieldError::new(
                "step_ms",
                format!("is above {MAX_STEP_MS}"),
            ));
        }
        if self.by.len() > MAX_TEXT || self.reason.len() > MAX_TEXT {
            let reason = format!("is longer than {MAX_TEXT} bytes");
            return Err(FieldError::new("reason", reason));
        }
        Ok(self)
    }

    /// Returns when the zone begins to return, as far as that is known.
    fn returns(&self) -> Option<u64> {
        match (self.returned_unix_ms, self.until_unix_ms) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Returns the points that are drained at a moment.
    pub fn drained(&self, now_unix_ms: u64) -> u32 {
        match self.returns() {
            Some(since) if now_unix_ms >= since => {
                let from = self.drained_at(since);
                from.saturating_sub(moved(now_unix_ms - since, self.return_step_ms))
            }
            _ => self.drained_at(now_unix_ms),
        }
    }

    /// Returns the points that are drained if it does not return.
    fn drained_at(&self, at: u64) -> u32 {
        // A clock that is behind that of the replica that gave the order.
        let moved = moved(at.saturating_sub(self.started_unix_ms), self.step_ms);
        if self.from >= self.limit {
            return self.from.saturating_sub(moved).max(self.limit);
        }
        self.from.saturating_add(moved).min(self.limit)
    }

    /// Returns where the zone stands.
    pub fn state(&self, now_unix_ms: u64) -> ZoneState {
        if self.returns().is_some_and(|since| now_unix_ms >= since) {
            return match self.drained(now_unix_ms) {
                0 => ZoneState::InService,
                _ => ZoneState::Returning,
            };
        }
        if self.drained(now_unix_ms) == self.limit {
            ZoneState::Out
        } else {
            ZoneState::Draining
        }
    }

    /// Whether the zone has returned.
    pub fn is_over(&self, now_unix_ms: u64) -> bool {
        self.state(now_unix_ms) == ZoneState::InService
    }

    /// Returns when the drained points or the state change next, if they will.
    pub fn next_change(&self, now_unix_ms: u64) -> Option<u64> {
        let state = self.state(now_unix_ms);
        let after = |since: u64, every: u64| {
            // All at once is never between two steps.
            let every = every.max(1);
            let passed = now_unix_ms.saturating_sub(since) / every;
            since.saturating_add((passed + 1).saturating_mul(every))
        };
        match state {
            ZoneState::Returning => Some(after(self.returns()?, self.return_step_ms)),
            ZoneState::Draining => {
                let step = after(self.started_unix_ms, self.step_ms);
                Some(self.returns().map_or(step, |returns| returns.min(step)))
            }
            ZoneState::Out => self.returns(),
            ZoneState::InService | ZoneState::Suspect => None,
        }
    }
}

/// Points that move in this time: one step at once, the next ones after `step_ms` each.
fn moved(elapsed_ms: u64, step_ms: u64) -> u32 {
    let steps = elapsed_ms
        .checked_div(step_ms)
        .map_or(STEPS, |steps| steps.saturating_add(1));
    u32::try_from(steps).unwrap_or(WHOLE).saturating_mul(STEP)
}

/// What somebody asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainRequest {
    pub zone: ZoneName,
    pub origin: Origin,
    pub by: Arc<str>,
    pub reason: Arc<str>,
    /// How long the zone stays out; `None` until somebody returns it.
    pub for_ms: Option<u64>,
    /// Time between two steps, and duration of the return.
    pub step_ms: u64,
    pub return_ms: u64,
    /// Drain as far as fits instead of refusing.
    pub partial: bool,
    /// Drain whatever the check says.
    pub force: bool,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The check found that something is missing; the text says what.
    Check(String),
    Already {
        zone: ZoneName,
        state: ZoneState,
        reason: Arc<str>,
        by: Arc<str>,
    },
    /// The control plane never takes a second zone out by itself.
    SecondZone {
        other: ZoneName,
    },
    InService(ZoneName),
    /// The files name the zone: only an edit returns it.
    ByFile(ZoneName),
    Invalid(FieldError),
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Check(text) => f.write_str(text),
            Self::Already {
                zone,
                state,
                reason,
                by,
            } => write!(f, "{zone} is {} already: {reason} ({by})", state.name()),
            Self::SecondZone { other } => {
                write!(
                    f,
                    "{other} is out of use already: never a second zone by itself"
                )
            }
            Self::InService(zone) => write!(f, "{zone} is in service"),
            Self::ByFile(zone) => {
                write!(
                    f,
                    "{zone} is out of use by evacuation.drained of the configuration"
                )
            }
            Self::Invalid(error) => write!(f, "{error}"),
        }
    }
}

impl std::error::Error for Refusal {}

impl From<FieldError> for Refusal {
    fn from(error: FieldError) -> Self {
        Self::Invalid(error)
    }
}

/// Orders of all zones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evacuations {
    orders: BTreeMap<ZoneName, Order>,
}

impl Evacuations {
    /// Returns the orders by zone.
    pub fn orders(&self) -> impl Iterator<Item = &Order> {
        self.orders.values()
    }

    /// Returns the order about a zone; `None` if it is in service.
    pub fn get(&self, zone: &ZoneName) -> Option<&Order> {
        self.orders.get(zone)
    }

    /// Orders a drain, if the check allows it. A zone that returns is drained from where it is.
    pub fn drain(
        &mut self,
        request: DrainRequest,
        check: &Check,
        now_unix_ms: u64,
    ) -> Result<&Order, Refusal> {
        let before = self.orders.get(&request.zone);
        let state = before.map(|order| order.state(now_unix_ms));
        if let (Some(order), Some(state @ (ZoneState::Draining | ZoneState::Out))) = (before, state)
        {
            return Err(Refusal::Already {
                zone: request.zone,
                state,
                reason: Arc::clone(&order.reason),
                by: Arc::clone(&order.by),
            });
        }
        let mut others = self
            .orders
            .values()
            .filter(|order| order.zone != request.zone && !order.is_over(now_unix_ms));
        let is_by_itself = matches!(request.origin, Origin::Automatic | Origin::Practice);
        if let Some(other) = others.next().filter(|_| is_by_itself) {
            let other = other.zone.clone();
            return Err(Refusal::SecondZone { other });
        }
        let limit = match check.allowed {
            _ if request.force => WHOLE,
            WHOLE => WHOLE,
            allowed if request.partial && allowed > 0 => allowed,
            _ => return Err(Refusal::Check(check.text())),
        };
        let from = before.map_or(0, |order| order.drained(now_unix_ms));
        let order = Order {
            from,
            limit,
            origin: request.origin,
            by: request.by,
            reason: request.reason,
            started_unix_ms: now_unix_ms,
            until_unix_ms: request.for_ms.map(|time| now_unix_ms.saturating_add(time)),
            returned_unix_ms: None,
            forced: request.force,
            step_ms: request.step_ms,
            return_step_ms: request.return_ms / STEPS,
            zone: request.zone.clone(),
        }
        .checked()?;
        let entry = self.orders.entry(request.zone);
        let kept = entry.or_insert_with(|| order.clone());
        *kept = order;
        Ok(kept)
    }

    /// Orders the return of a zone.
    pub fn give_back(&mut self, zone: &ZoneName, now_unix_ms: u64) -> Result<&Order, Refusal> {
        let in_service = || Refusal::InService(zone.clone());
        let order = self.orders.get_mut(zone).ok_or_else(in_service)?;
        match order.state(now_unix_ms) {
            ZoneState::InService | ZoneState::Suspect => Err(in_service()),
            ZoneState::Returning => Ok(order),
            ZoneState::Draining | ZoneState::Out => {
                order.returned_unix_ms = Some(now_unix_ms);
                Ok(order)
            }
        }
    }

    /// Lowers how far a zone is drained, to what fits now, but not below what is drained already.
    /// Returns the order if that changes it.
    pub fn hold(&mut self, zone: &ZoneName, allowed: u32, now_unix_ms: u64) -> Option<&Order> {
        let order = self.orders.get_mut(zone)?;
        let drained = order.drained(now_unix_ms);
        let limit = allowed.max(drained).min(order.limit);
        let is_draining = order.state(now_unix_ms) == ZoneState::Draining;
        if !is_draining || order.forced || limit == order.limit {
            return None;
        }
        (order.from, order.started_unix_ms) = (drained.saturating_sub(STEP), now_unix_ms);
        order.limit = limit;
        Some(order)
    }

    /// Takes over an order of another replica, or of before a restart.
    pub fn adopt(&mut self, order: Order) {
        self.orders.insert(order.zone.clone(), order);
    }

    /// Forgets the order of a zone. Returns it.
    pub fn forget(&mut self, zone: &ZoneName) -> Option<Order> {
        self.orders.remove(zone)
    }

    /// Takes out the orders of zones that have returned.
    pub fn take_over(&mut self, now_unix_ms: u64) -> Vec<Order> {
        let is_over = |order: &&Order| order.is_over(now_unix_ms);
        let over: Vec<Order> = self.orders.values().filter(is_over).cloned().collect();
        for order in &over {
            self.orders.remove(&order.zone);
        }
        over
    }

    /// Returns the points that are drained, by zone; zones without any are left out.
    pub fn drained(&self, now_unix_ms: u64) -> Drained {
        let orders = self.orders.values();
        let drained = orders.map(|order| (order.zone.clone(), order.drained(now_unix_ms)));
        Drained(drained.filter(|(_, points)| *points > 0).collect())
    }

    /// Returns when something changes next.
    pub fn next_change(&self, now_unix_ms: u64) -> Option<u64> {
        let orders = self.orders.values();
        orders
            .filter_map(|order| order.next_change(now_unix_ms))
            .min()
    }
}

/// Points that are drained, by zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drained(BTreeMap<ZoneName, u32>);

impl Drained {
    /// Drains whole zones, for what-ifs.
    pub fn of(zone: ZoneName, points: u32) -> Self {
        Self([(zone, points)].into())
    }

    /// Whether no zone has hosts out of use.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the points that are drained of a locality.
    pub fn points(&self, locality: &Locality) -> u32 {
        let named = self.0.iter().filter(|(zone, _)| zone.has(locality));
        named.map(|(_, points)| *points).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
