//! [`ZonesOut`]: orders of all zones in the state, without IO. Part of the owner of services, which
//! leaves out the endpoints that are drained.
//!
//! Orders are changed here and announced: [`ZonesOut::poll_record`] yields those to keep, for the
//! store or the state file. Orders of the configuration are kept there, and nowhere else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::evacuation::{
    Check, DrainRequest, Drained, Evacuations, Order, Origin, Refusal, Suspect, WHOLE, ZoneName,
    ZoneState,
};
use plimsoll_core::time::Instant;

use crate::config::Evacuation;
use crate::events::{ControlEvent, EventQueue};

/// What somebody wants of a zone.
#[derive(Clone, Debug)]
pub(crate) enum ZoneCommand {
    Drain(DrainRequest, Box<Check>),
    Return {
        zone: ZoneName,
        by: Arc<str>,
    },
    /// Drain no farther than this many points, for this reason.
    Hold {
        zone: ZoneName,
        allowed: u32,
        reason: Arc<str>,
    },
}

/// Outcome of a command: the order that is in force.
pub(crate) type Commanded = Result<Order, Refusal>;

/// Orders of all zones.
#[derive(Debug, Default)]
pub(crate) struct ZonesOut {
    orders: Evacuations,
    unix_origin: Duration,
    /// What services leave out.
    applied: Drained,
    /// States that were told.
    told: BTreeMap<ZoneName, ZoneState>,
    /// Zones whose orders are to be kept, or to be deleted where they are kept.
    changed: BTreeSet<ZoneName>,
    /// Those of them that the store has not confirmed.
    unconfirmed: BTreeSet<ZoneName>,
    /// Zones that are ill, as the latest reports say.
    suspects: Vec<Suspect>,
    /// When something changes next.
    due: Option<Instant>,
    events: EventQueue,
}

impl ZonesOut {
    /// Sets the Unix time of `Instant::ORIGIN`.
    pub(crate) fn set_unix_origin(&mut self, since_epoch: Duration) {
        self.unix_origin = since_epoch;
    }

    /// Converts a moment to the Unix milliseconds that orders have.
    pub(crate) fn unix_ms(&self, now: Instant) -> u64 {
        let since = self.unix_origin + now.saturating_duration_since(Instant::ORIGIN);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    pub(crate) const fn orders(&self) -> &Evacuations {
        &self.orders
    }

    /// Returns what services leave out.
    pub(crate) const fn applied(&self) -> &Drained {
        &self.applied
    }

    /// Carries out a command. The caller calls [`ZonesOut::handle_time`] afterwards.
    pub(crate) fn handle_command(&mut self, command: ZoneCommand, now: Instant) -> Commanded {
        let now_ms = self.unix_ms(now);
        let order = match command {
            ZoneCommand::Drain(request, check) => {
                self.orders.drain(request, &check, now_ms)?.clone()
            }
            ZoneCommand::Return { zone, by } => {
                let is_by_file = |order: &Order| order.origin == Origin::File;
                if self.orders.get(&zone).is_some_and(is_by_file) {
                    return Err(Refusal::ByFile(zone));
                }
                let order = self.orders.give_back(&zone, now_ms)?.clone();
                self.events.push(ControlEvent::ZoneReturns { zone, by });
                order
            }
            ZoneCommand::Hold {
                zone,
                allowed,
                reason,
            } => {
                let held = self.orders.hold(&zone, allowed, now_ms).cloned();
                let Some(order) = held else {
                    return Err(Refusal::InService(zone));
                };
                let limit = order.limit;
                let event = ControlEvent::ZoneHeld {
                    zone,
                    limit,
                    reason,
                };
                self.events.push(event);
                order
            }
        };
        self.keep(&order.zone);
        Ok(order)
    }

    /// Puts the zones of the configuration out of use, and returns those that it has no more. At
    /// the start they are out at once: they were before.
    pub(crate) fn handle_config(&mut self, settings: &Evacuation, is_start: bool, now: Instant) {
        let now_ms = self.unix_ms(now);
        let by_file = self
            .orders
            .orders()
            .filter(|order| order.origin == Origin::File);
        let known: Vec<ZoneName> = by_file.map(|order| order.zone.clone()).collect();
        for zone in known {
            if !settings.drained.contains_key(&zone) {
                // An order that is over already stays over.
                let _ = self.orders.give_back(&zone, now_ms);
            }
        }
        for (zone, reason) in &settings.drained {
            let state = self
                .orders
                .get(zone)
                .map(|order| (order.origin, order.state(now_ms)));
            if matches!(
                state,
                Some((Origin::File, ZoneState::Draining | ZoneState::Out))
            ) {
                continue;
            }
            let drained = self
                .orders
                .get(zone)
                .map_or(0, |order| order.drained(now_ms));
            self.orders.adopt(Order {
                zone: zone.clone(),
                origin: Origin::File,
                by: "the configuration".into(),
                reason: Arc::clone(reason),
                started_unix_ms: now_ms,
                from: if is_start { WHOLE } else { drained },
                limit: WHOLE,
                step_ms: millis(settings.step_interval),
                return_step_ms: millis(settings.return_time) / 10,
                until_unix_ms: None,
                returned_unix_ms: None,
                forced: true,
            });
        }
    }

    /// Takes over all orders that are kept: of the store, or of the state file. Those that the
    /// store has not confirmed are written again.
    pub(crate) fn handle_kept(&mut self, orders: Vec<Order>) {
        let kept: BTreeSet<ZoneName> = orders.iter().map(|order| order.zone.clone()).collect();
        let own = self
            .orders
            .orders()
            .filter(|order| order.origin != Origin::File);
        let own: Vec<ZoneName> = own.map(|order| order.zone.clone()).collect();
        for zone in own {
            if self.unconfirmed.contains(&zone) {
                self.changed.insert(zone);
            } else if !kept.contains(&zone) {
                self.orders.forget(&zone);
            }
        }
        for order in orders {
            if !self.unconfirmed.contains(&order.zone) {
                self.adopt(order);
            }
        }
    }

    /// Takes over an order of another replica, or that one has ended.
    pub(crate) fn handle_stored(&mut self, zone: ZoneName, order: Option<Order>) {
        self.unconfirmed.remove(&zone);
        match order {
            Some(order) => self.adopt(order),
            None => {
                let is_by_file = |order: &Order| order.origin == Origin::File;
                if !self.orders.get(&zone).is_some_and(is_by_file) {
                    self.orders.forget(&zone);
                }
            }
        }
    }

    /// Replaces the zones that are ill, and tells of new ones. `would` says what follows.
    pub(crate) fn handle_suspects(&mut self, suspects: Vec<Suspect>, would: Option<Arc<str>>) {
        for suspect in &suspects {
            let is_same =
                |one: &Suspect| one.zone == suspect.zone && one.illness == suspect.illness;
            if !self.suspects.iter().any(is_same) {
                self.events.push(ControlEvent::ZoneSuspect {
                    suspect: suspect.clone(),
                    would: would.clone(),
                });
            }
        }
        self.suspects = suspects;
    }

    /// Returns the zones that are ill.
    pub(crate) fn suspects(&self) -> &[Suspect] {
        &self.suspects
    }

    /// Moves on to a moment. Returns what services are to leave out, if that changed.
    pub(crate) fn handle_time(&mut self, now: Instant) -> Option<Drained> {
        let now_ms = self.unix_ms(now);
        for over in self.orders.take_over(now_ms) {
            self.told.remove(&over.zone);
            self.events.push(ControlEvent::ZoneMoved {
                zone: over.zone.clone(),
                state: ZoneState::InService,
                reason: over.reason,
                by: over.by,
            });
            if over.origin != Origin::File {
                self.keep(&over.zone);
            }
        }
        for order in self.orders.orders() {
            let state = order.state(now_ms);
            if self.told.insert(order.zone.clone(), state) != Some(state) {
                self.events.push(ControlEvent::ZoneMoved {
                    zone: order.zone.clone(),
                    state,
                    reason: Arc::clone(&order.reason),
                    by: Arc::clone(&order.by),
                });
            }
        }
        let next = self.orders.next_change(now_ms);
        self.due =
            next.map(|next| now.saturating_add(Duration::from_millis(next.saturating_sub(now_ms))));
        let drained = self.orders.drained(now_ms);
        if drained == self.applied {
            return None;
        }
        self.applied = drained.clone();
        Some(drained)
    }

    /// Returns when to call [`ZonesOut::handle_time`] next.
    pub(crate) const fn poll_timeout(&self) -> Option<Instant> {
        self.due
    }

    /// Returns an order to keep; `None` as the order if it is to be deleted.
    pub(crate) fn poll_record(&mut self) -> Option<(ZoneName, Option<Order>)> {
        let zone = self.changed.pop_first()?;
        let order = self.orders.get(&zone).cloned();
        Some((zone, order))
    }

    pub(crate) fn poll_event(&mut self) -> Option<ControlEvent> {
        self.events.pop()
    }

    /// The configuration decides over a zone that it names.
    fn adopt(&mut self, order: Order) {
        let is_by_file = |order: &Order| order.origin == Origin::File;
        if !self.orders.get(&order.zone).is_some_and(is_by_file) {
            self.orders.adopt(order);
        }
    }

    fn keep(&mut self, zone: &ZoneName) {
        self.changed.insert(zone.clone());
        self.unconfirmed.insert(zone.clone());
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::order;
    use super::*;

    fn zone(name: &str) -> ZoneName {
        ZoneName::try_new(name).unwrap()
    }

    fn drain(zones: &mut ZonesOut, name: &str, now: Instant) -> Commanded {
        let request = DrainRequest {
            zone: zone(name),
            origin: Origin::Operator,
            by: "ada".into(),
            reason: "power".into(),
            for_ms: None,
            step_ms: 10_000,
            return_ms: 300_000,
            partial: false,
            force: false,
        };
        let check = Check {
            allowed: WHOLE,
            ..Check::default()
        };
        zones.handle_command(ZoneCommand::Drain(request, Box::new(check)), now)
    }

    const START: Instant = Instant::ORIGIN;

    fn at(seconds: u64) -> Instant {
        START.saturating_add(Duration::from_secs(seconds))
    }

    fn new() -> ZonesOut {
        let mut zones = ZonesOut::default();
        zones.set_unix_origin(Duration::from_secs(1_700_000_000));
        zones
    }

    #[test]
    fn orders_are_kept_until_the_zone_is_back() {
        let mut zones = new();
        drain(&mut zones, "b", START).unwrap();
        let (name, kept) = zones.poll_record().unwrap();
        assert_eq!((name, kept.unwrap().from), (zone("b"), 0));
        assert_eq!(zones.handle_time(START), Some(Drained::of(zone("b"), 10)));
        assert_eq!(zones.handle_time(at(9)), None);
        assert_eq!(zones.poll_timeout(), Some(at(10)));
        assert_eq!(zones.handle_time(at(90)), Some(Drained::of(zone("b"), 100)));
        let command = ZoneCommand::Return {
            zone: zone("b"),
            by: "ada".into(),
        };
        zones.handle_command(command, at(100)).unwrap();
        assert!(zones.poll_record().unwrap().1.is_some());
        assert_eq!(zones.handle_time(at(400)), Some(Drained::default()));
        assert_eq!(
            zones.poll_record(),
            Some((zone("b"), None)),
            "deleted where it is kept"
        );
        assert_eq!(zones.poll_timeout(), None);
        let states: Vec<ZoneState> = std::iter::from_fn(|| zones.poll_event())
            .filter_map(|event| match event {
                ControlEvent::ZoneMoved { state, .. } => Some(state),
                _ => None,
            })
            .collect();
        assert_eq!(
            states,
            [ZoneState::Draining, ZoneState::Out, ZoneState::InService],
            "the return was over when it was looked at"
        );
    }

    #[test]
    fn replicas_and_restarts_go_on_where_an_order_stands() {
        let mut zones = new();
        let now_ms = zones.unix_ms(at(35));
        zones.handle_kept(vec![order("b", now_ms - 35_000)]);
        assert_eq!(zones.handle_time(at(35)), Some(Drained::of(zone("b"), 40)));
        assert_eq!(zones.poll_record(), None, "it is kept already");
        zones.handle_stored(zone("b"), None);
        assert_eq!(zones.handle_time(at(36)), Some(Drained::default()));
    }

    #[test]
    fn an_order_that_the_store_lacks_is_written_again() {
        let mut zones = new();
        drain(&mut zones, "b", START).unwrap();
        zones.poll_record();
        // The store was away, and has been read again.
        zones.handle_kept(vec![order("c", zones.unix_ms(START))]);
        assert_eq!(zones.poll_record().unwrap().0, zone("b"));
        assert_eq!(zones.orders().orders().count(), 2);
        let own = zones.orders().get(&zone("b")).cloned();
        zones.handle_stored(zone("b"), own);
        // Another replica has ended it while this one was away.
        zones.handle_kept(vec![]);
        assert_eq!(zones.orders().orders().count(), 0);
    }

    #[test]
    fn the_configuration_decides_over_its_zones() {
        let mut zones = new();
        let drained = [(zone("b"), Arc::from("broken"))].into();
        let mut settings = Evacuation {
            drained,
            ..Evacuation::default()
        };
        zones.handle_config(&settings, true, START);
        assert_eq!(
            zones.handle_time(START),
            Some(Drained::of(zone("b"), 100)),
            "at the start"
        );
        assert_eq!(zones.poll_record(), None);
        zones.handle_kept(vec![]);
        zones.handle_stored(zone("b"), Some(order("b", 0)));
        zones.handle_stored(zone("b"), None);
        assert_eq!(zones.handle_time(at(1)), None);
        let command = ZoneCommand::Return {
            zone: zone("b"),
            by: "ada".into(),
        };
        let refused = zones.handle_command(command, at(1)).unwrap_err();
        assert_eq!(refused, Refusal::ByFile(zone("b")));
        settings.drained.clear();
        zones.handle_config(&settings, false, at(2));
        assert_eq!(
            zones.handle_time(at(2)),
            Some(Drained::of(zone("b"), 90)),
            "by steps"
        );
        settings.drained.insert(zone("c"), "new".into());
        zones.handle_config(&settings, false, at(3));
        let drained = zones.handle_time(at(3)).unwrap();
        let points =
            |name| drained.points(&plimsoll_core::model::locality::Locality::zone_only(name));
        assert_eq!((points("b"), points("c")), (90, 10));
    }
}
