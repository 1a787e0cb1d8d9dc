//! Tests of the controller in a closed loop: a fluid model of zones whose backends measure with
//! delay, and proxies that see the reports. Noise is drawn from a seeded generator.

use std::collections::VecDeque;

use super::super::load_aware_locality::{SlotLoad, Smoother};
use super::*;
use crate::model::load_aware_locality::{LoadAwareLocalityParts, SpillController};
use crate::rng::{Rng, Xoshiro256};

mod ramp;
mod silence;

fn settings(change: impl FnOnce(&mut LoadAwareLocalityParts)) -> LoadAwareLocality {
    let mut parts = LoadAwareLocalityParts {
        spill_controller: SpillController::Convergent,
        ..Default::default()
    };
    change(&mut parts);
    LoadAwareLocality::try_new(parts).unwrap()
}

/// One proxy per zone and a fluid model of requests. Utilization is measured over `window` ticks.
struct Loop {
    settings: LoadAwareLocality,
    hosts: Vec<f64>,
    demand: Vec<f64>,
    window: usize,
    noise: f64,
    rng: Xoshiro256,
    proxies: Vec<(Smoother, Convergent)>,
    shares: Vec<Vec<f64>>,
    history: VecDeque<Vec<f64>>,
    /// The newest report of each zone.
    reported: Vec<f64>,
    /// Seconds since the last report of each zone; `None` while it reports.
    silence: Vec<Option<f64>>,
    /// What measured demand calls for, by proxy, own zone first.
    asked: Option<Vec<Vec<f64>>>,
}

impl Loop {
    /// `demand` in units of mean utilization: fractions × utilization × all hosts.
    fn new(hosts: &[f64], fractions: &[f64], mean: f64, window: usize) -> Self {
        let total: f64 = hosts.iter().sum();
        let zones = hosts.len();
        let own_first = |own: usize| (0..zones).map(|z| f64::from(u8::from(z == own))).collect();
        Self {
            settings: settings(|_| ()),
            hosts: hosts.to_vec(),
            demand: fractions
                .iter()
                .map(|fraction| fraction * mean * total)
                .collect(),
            window,
            noise: 0.0,
            rng: Xoshiro256::from_seed(1),
            proxies: vec![Default::default(); zones],
            shares: (0..zones).map(own_first).collect(),
            history: VecDeque::new(),
            reported: vec![0.0; zones],
            silence: vec![None; zones],
            asked: None,
        }
    }

    /// True utilization per zone under the shares in force.
    fn utilization(&self) -> Vec<f64> {
        let load = |zone: usize| {
            let flows = self.demand.iter().zip(&self.shares);
            flows
                .map(|(demand, shares)| demand * shares[zone])
                .sum::<f64>()
                / self.hosts[zone].max(1e-9)
        };
        (0..self.hosts.len()).map(load).collect()
    }

    fn step(&mut self) {
        for age in self.silence.iter_mut().flatten() {
            *age += 1.0;
        }
        self.history.push_back(self.utilization());
        if self.history.len() > self.window {
            self.history.pop_front();
        }
        #[expect(clippy::cast_precision_loss, reason = "a handful of ticks")]
        let ticks = self.history.len() as f64;
        let zones = self.hosts.len();
        let measured: Vec<f64> = (0..zones)
            .map(|z| self.history.iter().map(|u| u[z]).sum::<f64>() / ticks)
            .collect();
        for own in 0..zones {
            // Slots as the proxy of this zone holds them: its own first.
            let order: Vec<usize> = std::iter::once(own)
                .chain((0..zones).filter(|&zone| zone != own))
                .collect();
            let localities: Vec<Locality> = order
                .iter()
                .map(|zone| Locality::zone_only(&zone.to_string()))
                .collect();
            let slots: Vec<SlotLoad> = order
                .iter()
                .zip(&localities)
                .map(|(&zone, locality)| self.sample(zone, measured[zone], locality))
                .collect();
            let ages = order.iter().map(|&zone| self.silence[zone].unwrap_or(0.5));
            let ages: Vec<f64> = ages.collect();
            let (smoother, controller) = &mut self.proxies[own];
            let smoothed = smoother.smooth(
                self.settings.alpha(),
                self.settings.weight_update_period(),
                &slots,
            );
            let controlled: Vec<_> = localities
                .iter()
                .zip(smoothed.into_iter().zip(ages))
                .map(|(locality, (smoothed, report_age))| {
                    (
                        locality,
                        ControlledSlot {
                            smoothed,
                            report_age,
                            newest_age: report_age,
                        },
                    )
                })
                .collect();
            let asked = self.asked.as_ref().map(|asked| &asked[own][..]);
            let weights = controller
                .tick(
                    &ControllerSettings::from(&self.settings),
                    &controlled,
                    true,
                    asked,
                )
                .weights;
            for (&zone, weight) in order.iter().zip(weights) {
                self.shares[own][zone] = weight;
            }
        }
    }

    fn sample(&mut self, zone: usize, utilization: f64, locality: &Locality) -> SlotLoad {
        #[expect(clippy::cast_precision_loss, reason = "a draw")]
        let draw = self.rng.next_u64() as f64 / u64::MAX as f64 * 2.0 - 1.0;
        let noisy = utilization * (1.0 + self.noise * draw);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "hosts"
        )]
        let eligible = self.hosts[zone] as u64;
        let is_valid = self.silence[zone].is_none_or(|age| age <= silence::EXPIRATION);
        SlotLoad {
            locality: locality.clone(),
            has_hosts: true,
            eligible,
            utilization: is_valid.then(|| self.last(zone, noisy.clamp(0.0, 1.0))),
        }
    }

    /// Returns the last report of a zone: `sample`, or the one before its silence.
    fn last(&mut self, zone: usize, sample: f64) -> f64 {
        if self.silence[zone].is_none() {
            self.reported[zone] = sample;
        }
        self.reported[zone]
    }

    /// Highest ÷ mean utilization of zones.
    fn imbalance(&self) -> f64 {
        let utilization = self.utilization();
        let load: f64 = utilization
            .iter()
            .zip(&self.hosts)
            .map(|(u, hosts)| u * hosts)
            .sum();
        let mean = load / self.hosts.iter().sum::<f64>();
        utilization.iter().fold(0.0_f64, |most, &u| most.max(u)) / mean
    }

    /// Share of all requests that leave their zone.
    fn cross_zone(&self) -> f64 {
        let total: f64 = self.demand.iter().sum();
        let away = |(zone, demand): (usize, &f64)| demand * (1.0 - self.shares[zone][zone]);
        self.demand.iter().enumerate().map(away).sum::<f64>() / total
    }

    /// Lowest share of cross-zone requests with which all zones can be equally utilized.
    fn minimum(&self) -> f64 {
        let total: f64 = self.demand.iter().sum();
        let mean = total / self.hosts.iter().sum::<f64>();
        let excess = self
            .demand
            .iter()
            .zip(&self.hosts)
            .map(|(d, hosts)| (d - hosts * mean).max(0.0));
        excess.sum::<f64>() / total
    }

    /// Runs `ticks` and returns the mean and the worst imbalance and the mean cross-zone share.
    fn run(&mut self, ticks: u32) -> (f64, f64, f64) {
        let (mut sum, mut worst, mut cross) = (0.0, 0.0_f64, 0.0);
        for _ in 0..ticks {
            self.step();
            sum += self.imbalance();
            worst = worst.max(self.imbalance());
            cross += self.cross_zone();
        }
        (sum / f64::from(ticks), worst, cross / f64::from(ticks))
    }
}

const SKEWS: [[f64; 3]; 4] = [
    [0.6, 0.2, 0.2],
    [0.5, 0.25, 0.25],
    [0.45, 0.35, 0.2],
    [0.4, 0.4, 0.2],
];

#[test]
fn it_converges_within_30_seconds_and_stays() {
    for fractions in SKEWS {
        for mean in [0.4, 0.6, 0.8] {
            for window in [1, 3, 10] {
                let mut world = Loop::new(&[4.0; 3], &fractions, mean, window);
                world.noise = 0.05;
                world.run(30);
                let (average, worst, cross) = world.run(570);
                let name = format!("{fractions:?} at {mean}, window {window}");
                assert!(average <= 1.06, "{name}: average {average}");
                assert!(worst <= 1.12, "{name}: worst {worst}");
                let bound = world.minimum() + 0.03 + 0.02;
                assert!(cross <= bound, "{name}: cross-zone {cross} of {bound}");
            }
        }
    }
}

#[test]
fn it_follows_a_step_both_ways() {
    for window in [1, 10] {
        let mut world = Loop::new(&[4.0; 3], &[0.34, 0.33, 0.33], 0.6, window);
        world.run(60);
        assert!(
            world.cross_zone() < 0.05,
            "nothing to spill: {}",
            world.cross_zone()
        );
        let even = world.demand.clone();
        world.demand = vec![0.6 * 7.2, 0.2 * 7.2, 0.2 * 7.2];
        world.run(30);
        let (average, worst, _) = world.run(60);
        assert!(
            average <= 1.06 && worst <= 1.12,
            "window {window}: {average} {worst}"
        );
        world.demand = even;
        world.run(30);
        let (average, worst, cross) = world.run(60);
        assert!(
            average <= 1.06 && worst <= 1.12,
            "window {window}: {average} {worst}"
        );
        assert!(cross < 0.06, "back home: {cross}");
    }
}

#[test]
fn uneven_host_counts_and_many_zones() {
    let hosts = [10.0, 4.0, 2.0, 8.0, 6.0, 3.0, 7.0, 9.0, 5.0, 6.0];
    let fractions = [0.05, 0.2, 0.1, 0.05, 0.2, 0.1, 0.1, 0.05, 0.1, 0.05];
    let mut world = Loop::new(&hosts, &fractions, 0.6, 3);
    world.noise = 0.05;
    world.run(40);
    let (average, worst, cross) = world.run(300);
    assert!(average <= 1.08 && worst <= 1.14, "{average} {worst}");
    assert!(
        cross <= world.minimum() + 0.06,
        "{cross} of {}",
        world.minimum()
    );
}

#[test]
fn the_local_locality_is_never_locked_out() {
    // The lock-out of loop-quality.md: the first reports of the local zone say 1.0, then it is
    // idle.
    let settings = settings(|_| ());
    let mut controller = Convergent::default();
    let zones = ["a", "b", "c"].map(Locality::zone_only);
    let mut tick = |own: f64| {
        let slots: Vec<_> = zones
            .iter()
            .zip([own, 0.3, 0.4])
            .map(|(zone, utilization)| {
                let smoothed = SmoothedSlot {
                    eligible: 4.0,
                    utilization,
                    ..Default::default()
                };
                (
                    zone,
                    ControlledSlot {
                        smoothed,
                        report_age: 0.5,
                        newest_age: 0.5,
                    },
                )
            })
            .collect();
        controller
            .tick(&ControllerSettings::from(&settings), &slots, true, None)
            .weights[0]
    };
    for _ in 0..300 {
        assert!(tick(1.0) >= 0.03 - 1e-9, "a probe always stays");
    }
    let back = (0..60).map(|_| tick(0.1)).last().unwrap();
    assert!(back > 0.9, "and it comes home when it can: {back}");
}

#[test]
fn measured_demand_leads_and_reports_trim() {
    let settings = settings(|_| ());
    let mut controller = Convergent::default();
    let zones = ["a", "b", "c"].map(Locality::zone_only);
    let slots: Vec<_> = zones
        .iter()
        .map(|zone| {
            let smoothed = SmoothedSlot {
                eligible: 4.0,
                utilization: 0.5,
                ..Default::default()
            };
            (
                zone,
                ControlledSlot {
                    smoothed,
                    report_age: 0.5,
                    newest_age: 0.5,
                },
            )
        })
        .collect();
    let asked = [0.6, 0.3, 0.1];
    let first = controller
        .tick(
            &ControllerSettings::from(&settings),
            &slots,
            true,
            Some(&asked),
        )
        .weights;
    assert!(
        (first[0] - 0.6).abs() < 0.02,
        "from the first tick on: {first:?}"
    );
    let mut kept = Vec::new();
    for _ in 0..200 {
        let shares = controller
            .tick(
                &ControllerSettings::from(&settings),
                &slots,
                true,
                Some(&asked),
            )
            .weights;
        kept.push(shares[0]);
    }
    // Balanced reports call for keeping more: slowly at first, completely if they persist.
    assert!(kept[1] <= 0.6 + TRIM, "{kept:?}");
    assert!(kept[199] > 0.9, "{kept:?}");
}

#[test]
fn all_overloaded_is_set_only_if_every_zone_is() {
    let zones = ["a", "b", "c"].map(Locality::zone_only);
    let all_overloaded = |utilization: [Option<f64>; 3]| {
        let slot = |utilization: Option<f64>| ControlledSlot {
            smoothed: SmoothedSlot {
                eligible: 4.0,
                utilization: utilization.unwrap_or(0.0),
                cold: utilization.is_none(),
                stale: false,
                ..Default::default()
            },
            report_age: 0.5,
            newest_age: 0.5,
        };
        let slots: Vec<_> = zones.iter().zip(utilization.map(slot)).collect();
        let controls = ControllerSettings::from(&settings(|_| ()));
        Convergent::default()
            .tick(&controls, &slots, true, None)
            .all_overloaded
    };
    assert!(all_overloaded([Some(1.0), Some(0.9995), Some(1.0)]));
    assert!(!all_overloaded([Some(1.0), Some(0.9), Some(1.0)]));
    assert!(
        !all_overloaded([Some(1.0), None, Some(1.0)]),
        "b has not reported"
    );
    let nobody = Convergent::default().tick(
        &ControllerSettings::from(&settings(|_| ())),
        &[],
        false,
        None,
    );
    assert!(!nobody.all_overloaded);
}

#[test]
fn cold_start_and_edge_cases() {
    let zones = ["a", "b"].map(Locality::zone_only);
    let cold = |eligible: [f64; 2]| {
        let slot = |eligible| ControlledSlot {
            smoothed: SmoothedSlot {
                eligible,
                cold: true,
                ..Default::default()
            },
            report_age: 0.0,
            newest_age: 0.0,
        };
        zones.iter().zip(eligible.map(slot)).collect::<Vec<_>>()
    };
    let tick = |settings: &LoadAwareLocality, slots: &[(&Locality, ControlledSlot)], local| {
        Convergent::default()
            .tick(&ControllerSettings::from(settings), slots, local, None)
            .weights
    };
    assert_eq!(
        tick(&settings(|_| ()), &cold([2.0, 2.0]), true),
        [0.97, 0.03]
    );
    let by_count = settings(|parts| parts.cold_start = ColdStart::HostCount);
    assert_eq!(tick(&by_count, &cold([3.0, 1.0]), true), [0.75, 0.25]);
    assert_eq!(
        tick(&settings(|_| ()), &cold([3.0, 1.0]), false),
        [0.75, 0.25]
    );
    assert_eq!(tick(&settings(|_| ()), &cold([0.0, 1.0]), true), [0.0, 1.0]);
    assert_eq!(tick(&settings(|_| ()), &cold([2.0, 0.0]), true), [1.0, 0.0]);
    assert!(tick(&settings(|_| ()), &[], false).is_empty());
}

#[test]
fn a_zone_without_hosts_spills_evenly_and_returns_to_local() {
    let mut world = Loop::new(&[4.0; 3], &[0.4, 0.3, 0.3], 0.5, 3);
    world.noise = 0.05;
    world.run(60);
    let demand: f64 = world.demand.iter().sum();
    world.hosts[0] = 0.0;
    world.run(30);
    for _ in 0..60 {
        world.step();
        for zone in 1..3 {
            let load = world.utilization()[zone] * 8.0 / demand;
            assert!((0.9..1.1).contains(&load), "zone {zone} is at {load}");
        }
    }
    world.hosts[0] = 4.0;
    world.run(60);
    let (average, _, cross) = world.run(60);
    assert!(average < 1.06, "{average}");
    assert!(cross < world.minimum() + 0.08, "{cross}");
}

#[test]
fn needless_exchange_between_zones_ends() {
    let mut world = Loop::new(&[4.0; 3], &[1.0 / 3.0; 3], 0.6, 3);
    world.run(5);
    for (own, (_, controller)) in world.proxies.iter_mut().enumerate() {
        for (zone, flow) in controller.flows.values_mut().enumerate() {
            *flow = Flow::new(if zone == own { 0.2 } else { 0.4 });
        }
    }
    world.step();
    assert!(world.cross_zone() > 0.5, "{}", world.cross_zone());
    world.run(180);
    assert!(world.cross_zone() < 0.1, "{}", world.cross_zone());
}

#[test]
fn shares_follow_moving_demand_and_never_overshoot_it() {
    let mut flow = Flow::new(0.9);
    flow.lead(0.9, 1.0, 1.0);
    flow.lead(0.5, 1.0, 1.0);
    assert!((flow.share - 0.75).abs() < 1e-9, "slewed: {flow:?}");
    flow.lead(0.5, 1.0, 10.0);
    assert!((flow.share - 0.5).abs() < 1e-9, "{flow:?}");
    // Reports were quicker: the share is already where demand only now says it should be.
    let mut flow = Flow::new(0.9);
    flow.lead(0.9, 1.0, 1.0);
    flow.share = 0.5;
    flow.lead(0.6, 1.0, 10.0);
    assert!((flow.share - 0.5).abs() < 1e-9, "{flow:?}");
}

/// What a tick reports about its shares: all local, local preferred, spills, probes.
#[test]
fn flags_follow_from_the_shares() {
    let flags = |shares: &[f64], has_local: bool| {
        let places = ["a", "b"].map(Locality::zone_only);
        let slot = ControlledSlot {
            smoothed: SmoothedSlot {
                eligible: 4.0,
                utilization: 0.5,
                ..SmoothedSlot::default()
            },
            report_age: 0.0,
            newest_age: 0.0,
        };
        let slots: Vec<_> = places
            .iter()
            .zip(shares)
            .map(|(at, _)| (at, slot))
            .collect();
        let controls = ControllerSettings::from(&settings(|_| ()));
        let limits = Limits::new(&controls, &slots, has_local);
        let outcome = outcome(shares.to_vec(), &slots, &limits);
        [
            outcome.all_local,
            outcome.local_preferred,
            outcome.spill_active,
            outcome.probe_active,
        ]
    };
    assert_eq!(flags(&[1.0, 0.0], true), [true, true, false, true]);
    assert_eq!(flags(&[0.97, 0.03], true), [false, true, false, true]);
    assert_eq!(flags(&[0.5, 0.5], true), [false, false, true, false]);
    assert_eq!(flags(&[1.0, 0.0], false), [false; 4], "no zone is local");
    assert_eq!(flags(&[1.0], true), [true, false, false, false], "no other");
}
