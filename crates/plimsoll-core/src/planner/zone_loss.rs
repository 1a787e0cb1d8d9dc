//! [`ServiceLoad`]: how full the zones of a service would be without one of them, or with less of
//! it: "may this zone be lost?", computed from measured demand and known capacity.
//!
//! Two things can happen to the clients of a lost zone: they stay, and its proxies send their
//! requests elsewhere; or they are lost with it and arrive at the proxies of other zones, in
//! proportion to the requests there. Requests go where the service sends them: by its objective if
//! demand steers it, by the number of proxies and hosts if it does not. Prices do not count: they
//! say which of the zones fills first, not how full the fullest may get.
//!
//! `evacuation` decides with it whether a zone may be drained; a control plane shows it all the
//! time.

use super::transport::{Objective, Prices, Problem, ZoneLoad};

/// Thousandths of a request: the unit of the planning problem.
const MILLI: f64 = 1000.0;

/// Demand and capacity of one service in every zone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServiceLoad {
    /// What the hosts of each zone serve at utilization 1, in requests per second. In any other
    /// unit, such as hosts, only ratios of utilizations mean something.
    pub capacity: Vec<f64>,
    /// How full zones may get before their requests go elsewhere, where demand steers.
    pub objective: Objective,
    pub fleets: Vec<FleetLoad>,
}

/// Requests of one fleet for a service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetLoad {
    /// Requests per second that arrive at the proxies of each zone.
    pub demand: Vec<f64>,
    /// Proxies in each zone, if their number decides where requests go: zone-aware routing by host
    /// counts. `None` if demand decides.
    pub proxies: Option<Vec<f64>>,
}

/// What the clients of a lost zone do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clients {
    /// They keep sending their requests to the proxies of the zone.
    Stay,
    /// Their requests arrive at the proxies of the other zones.
    Move,
}

/// Which zone is the fullest, and how full it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fullest {
    /// Position among the zones of the service.
    pub zone: usize,
    /// Served requests ÷ capacity.
    pub utilization: f64,
}

/// What a service would be without one of its zones; `None` where no other zone has capacity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ZoneLoss {
    pub clients_stay: Option<Fullest>,
    pub clients_move: Option<Fullest>,
}

impl ZoneLoss {
    /// Returns the worse of both cases; `None` if nothing is left.
    pub fn worst(&self) -> Option<Fullest> {
        let (stay, moved) = (self.clients_stay?, self.clients_move?);
        let is_worse = moved.utilization > stay.utilization;
        Some(if is_worse { moved } else { stay })
    }
}

impl ServiceLoad {
    /// Returns the requests per second of all zones and fleets.
    pub fn demand(&self) -> f64 {
        self.fleets.iter().flat_map(|fleet| &fleet.demand).sum()
    }

    /// Returns the utilization if all zones were equally full; `None` without capacity.
    pub fn mean_utilization(&self) -> Option<f64> {
        let capacity: f64 = self.capacity.iter().sum();
        (capacity > 0.0).then(|| self.demand() / capacity)
    }

    /// Returns the fullest zone as it is; `None` without capacity or demand.
    pub fn now(&self) -> Option<Fullest> {
        self.fullest(&self.capacity, None)
    }

    /// Returns the fullest of the other zones without `zone`.
    pub fn without(&self, zone: usize) -> ZoneLoss {
        let mut capacity = self.capacity.clone();
        if let Some(lost) = capacity.get_mut(zone) {
            *lost = 0.0;
        }
        ZoneLoss {
            clients_stay: self.with_capacity(&capacity, zone, Clients::Stay),
            clients_move: self.with_capacity(&capacity, zone, Clients::Move),
        }
    }

    /// Returns the fullest zone if the zones have this capacity, and the clients of `zone` do this.
    pub fn with_capacity(
        &self,
        capacity: &[f64],
        zone: usize,
        clients: Clients,
    ) -> Option<Fullest> {
        self.fullest(capacity, (clients == Clients::Move).then_some(zone))
    }

    /// Returns the utilization of every zone if they have this capacity; the clients of `left`
    /// arrive elsewhere. Zones without capacity have utilization 0. `None` if no zone has capacity.
    pub fn utilizations(&self, capacity: &[f64], left: Option<usize>) -> Option<Vec<f64>> {
        let zones = capacity.len();
        let mut served = vec![0.0; zones];
        let mut steered = vec![0.0; zones];
        for fleet in &self.fleets {
            let mut demand = fleet.demand.clone();
            demand.resize(zones, 0.0);
            moved(&mut demand, left, capacity);
            match &fleet.proxies {
                None => add(&mut steered, &demand),
                Some(proxies) => {
                    let mut proxies = proxies.clone();
                    proxies.resize(zones, 0.0);
                    moved(&mut proxies, left, capacity);
                    add(&mut served, &by_host_counts(&demand, &proxies, capacity)?);
                }
            }
        }
        add(&mut served, &by_demand(&steered, capacity, self.objective)?);
        let utilization = |(served, capacity): (&f64, &f64)| {
            if *capacity > 0.0 {
                served / capacity
            } else {
                0.0
            }
        };
        Some(served.iter().zip(capacity).map(utilization).collect())
    }

    fn fullest(&self, capacity: &[f64], left: Option<usize>) -> Option<Fullest> {
        let utilizations = self.utilizations(capacity, left)?;
        let with_capacity = utilizations
            .into_iter()
            .enumerate()
            .filter(|(zone, _)| capacity[*zone] > 0.0);
        let fullest = with_capacity.reduce(|most, next| if next.1 > most.1 { next } else { most });
        fullest.map(|(zone, utilization)| Fullest { zone, utilization })
    }
}

/// Moves what is in a zone to the others, in proportion to what is there, or to their capacity if
/// nothing is.
fn moved(amounts: &mut [f64], left: Option<usize>, capacity: &[f64]) {
    let Some(left) = left.filter(|left| *left < amounts.len()) else {
        return;
    };
    let amount = std::mem::take(&mut amounts[left]);
    let is_other = |zone: &usize| *zone != left;
    let others = || (0..capacity.len()).filter(is_other);
    let weights: Vec<f64> = if others().any(|zone| amounts[zone] > 0.0) {
        amounts.to_vec()
    } else {
        capacity.to_vec()
    };
    let total: f64 = others().map(|zone| weights[zone]).sum();
    if total > 0.0 {
        for zone in others() {
            amounts[zone] += amount * weights[zone] / total;
        }
    }
}

fn add(sums: &mut [f64], amounts: &[f64]) {
    for (sum, amount) in sums.iter_mut().zip(amounts) {
        *sum += amount;
    }
}

/// Returns what each zone serves by the plan for an objective; `None` without capacity.
fn by_demand(demand: &[f64], capacity: &[f64], objective: Objective) -> Option<Vec<f64>> {
    let loads: Vec<ZoneLoad> = demand
        .iter()
        .zip(capacity)
        .map(|(demand, capacity)| ZoneLoad {
            demand: milli(*demand),
            capacity: milli(*capacity),
        })
        .collect();
    let problem = Problem::try_new(&loads, objective).ok()?;
    let solution = problem.solve(&Prices::uniform(loads.len())).ok()?;
    Some(solution.loads().into_iter().map(per_second).collect())
}

/// Returns what each zone serves by zone-aware routing that takes the share of the proxies for that
/// of the demand; `None` without capacity.
fn by_host_counts(demand: &[f64], proxies: &[f64], capacity: &[f64]) -> Option<Vec<f64>> {
    let (all_proxies, all): (f64, f64) = (proxies.iter().sum(), capacity.iter().sum());
    if all <= 0.0 {
        return None;
    }
    let zones = 0..capacity.len();
    let share = |zone: usize| capacity[zone] / all;
    let believed = |zone: usize| proxies[zone] / all_proxies.max(f64::MIN_POSITIVE);
    let kept = |zone: usize| match believed(zone) {
        believed if believed > share(zone) => share(zone) / believed,
        // A zone without proxies has no requests of its own.
        _ => 1.0,
    };
    let headroom = |zone: usize| (share(zone) - believed(zone)).max(0.0);
    let mut served: Vec<f64> = zones
        .clone()
        .map(|zone| demand[zone] * kept(zone))
        .collect();
    let left: f64 = zones
        .clone()
        .map(|zone| demand[zone] * (1.0 - kept(zone)))
        .sum();
    let room: f64 = zones.clone().map(headroom).sum();
    for zone in zones {
        // Without headroom every zone keeps its requests, but for rounding.
        let part = if room > 1e-12 {
            headroom(zone) / room
        } else {
            share(zone)
        };
        served[zone] += left * part;
    }
    Some(served)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates when it is cast to an integer"
)]
fn milli(rate: f64) -> u64 {
    (rate * MILLI).round().max(0.0) as u64
}

#[expect(clippy::cast_precision_loss, reason = "sums are below 2^52")]
fn per_second(milli: u64) -> f64 {
    milli as f64 / MILLI
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steered(demand: &[f64], capacity: &[f64], objective: Objective) -> ServiceLoad {
        ServiceLoad {
            capacity: capacity.to_vec(),
            objective,
            fleets: vec![FleetLoad {
                demand: demand.to_vec(),
                proxies: None,
            }],
        }
    }

    fn close(one: Option<Fullest>, other: f64) {
        let one = one.unwrap().utilization;
        assert!((one - other).abs() < 1e-4, "{one} {other}");
    }

    #[test]
    fn level_zones_share_what_the_lost_one_served() {
        let load = steered(&[60.0, 20.0, 20.0], &[66.0, 66.0, 66.0], Objective::LEVEL);
        close(load.now(), 100.0 / 198.0);
        for zone in 0..3 {
            let loss = load.without(zone);
            close(loss.clients_stay, 100.0 / 132.0);
            close(loss.clients_move, 100.0 / 132.0);
        }
    }

    #[test]
    fn a_waterfall_is_fuller_where_the_clients_go() {
        let objective = Objective::waterfall(0.8).unwrap();
        let load = steered(&[30.0, 30.0, 0.0], &[100.0, 50.0, 100.0], objective);
        // Clients of zone 0 stay: its requests go by headroom, to 10 of zone 1 and 80 of zone 2.
        let loss = load.without(0);
        close(loss.clients_stay, (30.0 + 30.0 * 10.0 / 90.0) / 50.0);
        // They move to zone 1, the only one with clients, which is full at 40 requests.
        close(loss.clients_move, 0.8);
        assert_eq!(loss.worst(), loss.clients_move);
        assert_eq!(loss.clients_move.unwrap().zone, 1);
    }

    #[test]
    fn host_counts_overload_the_zone_with_most_demand() {
        let mut load = steered(&[60.0, 20.0, 20.0], &[66.0, 66.0, 66.0], Objective::LEVEL);
        load.fleets[0].proxies = Some(vec![1.0, 1.0, 1.0]);
        close(load.now(), 60.0 / 66.0);
        // Zones 0 and 1 keep their requests and share those of zone 2.
        let loss = load.without(2);
        close(loss.clients_stay, 70.0 / 66.0);
        close(loss.clients_move, 75.0 / 66.0);
    }

    #[test]
    fn fleets_that_demand_steers_are_planned_together() {
        let mut load = steered(&[80.0, 20.0], &[100.0, 100.0], Objective::LEVEL);
        load.fleets.push(FleetLoad {
            demand: vec![20.0, 80.0],
            proxies: None,
        });
        close(load.now(), 1.0);
        close(load.without(1).clients_stay, 2.0);
        assert!((load.demand() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_left_without_the_only_zone_with_hosts() {
        let load = steered(&[10.0, 10.0], &[50.0, 0.0], Objective::LEVEL);
        assert_eq!(load.without(0).worst(), None);
        close(load.without(1).worst(), 0.4);
        assert_eq!(ServiceLoad::default().now(), None);
        assert_eq!(ServiceLoad::default().mean_utilization(), None);
    }

    /// No request is lost or made, and every zone that is not lost gets as full as before or more,
    /// for any number of zones, by demand and by host counts.
    #[test]
    fn requests_are_kept_in_number() {
        let mut state = 7_u64;
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            f64::from(u32::try_from(state >> 40).unwrap() % 1000) / 10.0
        };
        for round in 0..2000 {
            let zones = 2 + round % 5;
            let mut draw = || -> Vec<f64> { (0..zones).map(|_| next() + 0.1).collect() };
            let (demand, capacity, proxies) = (draw(), draw(), draw());
            let mut load = steered(&demand, &capacity, Objective::waterfall(0.7).unwrap());
            load.fleets[0].proxies = (round % 2 == 0).then_some(proxies);
            let mut lost = capacity.clone();
            lost[round % zones] = 0.0;
            for left in [None, Some(round % zones)] {
                let found = load.utilizations(&lost, left).unwrap();
                let served: f64 = found.iter().zip(&lost).map(|(u, c)| u * c).sum();
                assert!((served - load.demand()).abs() < 0.01, "{load:?}");
            }
        }
    }
}
