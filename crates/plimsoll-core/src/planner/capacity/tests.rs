//! Tests of learned capacity: in a closed loop with late and noisy reports, and with reports that
//! lie. Single steps are cases of `vectors/capacity.json`.

use proptest::prelude::*;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::*;

const WINDOW: Duration = Duration::from_secs(5);

fn host(number: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, u8::try_from(number).unwrap()], 80))
}

fn estimator(hosts: usize) -> CapacityEstimator {
    let mut estimator = CapacityEstimator::default();
    estimator.handle_hosts(&(0..hosts).map(host).collect());
    estimator
}

/// Highest and mean utilization of hosts that share requests by weight.
struct Loop {
    capacity: Vec<f64>,
    estimator: CapacityEstimator,
    /// Weights that are on their way, the newest last.
    pending: Vec<Option<LearnedCapacity>>,
    in_force: Option<LearnedCapacity>,
    random: Xoshiro256PlusPlus,
}

impl Loop {
    fn noise(&mut self, most: f64) -> f64 {
        let unit = f64::from(u32::try_from(self.random.next_u64() >> 32).unwrap()) / 2_f64.powi(32);
        1.0 + most * (2.0 * unit - 1.0)
    }

    /// Runs a window with this mean utilization; returns the highest utilization ÷ the mean.
    fn window(&mut self, number: u32, mean: f64) -> f64 {
        let weight = |index: usize| {
            self.in_force
                .as_ref()
                .map_or(1, |one| one.weight(host(index)))
        };
        let weights: Vec<f64> = (0..self.capacity.len())
            .map(|at| f64::from(weight(at)))
            .collect();
        let all: f64 = self.capacity.iter().sum();
        let total: f64 = weights.iter().sum();
        let rates: Vec<f64> = weights.iter().map(|own| own / total * mean * all).collect();
        let utilization: Vec<f64> = rates
            .iter()
            .zip(&self.capacity)
            .map(|(rate, capacity)| rate / capacity)
            .collect();
        let samples = rates.iter().zip(&utilization).enumerate();
        let samples: Vec<_> = samples
            // A full host answers what it can, not what it is sent.
            .map(|(at, (rate, own))| (at, rate / own.max(1.0), own.min(1.0)))
            .collect();
        let mut told = BTreeMap::new();
        for (at, rate, own) in samples {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a count"
            )]
            let succeeded = (rate * WINDOW.as_secs_f64()).round() as u64;
            let utilization = own * self.noise(0.05);
            let sample = HostSample {
                succeeded,
                failed: 0,
                utilization,
            };
            told.insert(host(at), sample);
        }
        let _ = self.estimator.handle_window(WINDOW, &told);
        let now = Instant::from_secs(u64::from(number + 1) * WINDOW.as_secs());
        self.pending.push(self.estimator.poll_learned(now));
        if let Some(arrived) = self.pending.remove(0) {
            self.in_force = Some(arrived);
        }
        utilization.into_iter().fold(0.0, f64::max) / mean
    }
}

/// Twelve hosts of a half, one and twice the strength, demand that moves by 30 %, reports with 5 %
/// noise, weights that arrive one to three windows late: the same quality for every delay, because
/// nothing is integrated.
#[test]
fn late_reports_do_not_make_weights_swing() {
    for delay in 1..=3 {
        let strengths = [0.5, 1.0, 2.0, 1.0];
        let mut run = Loop {
            capacity: (0..12).map(|at| 40.0 * strengths[at % 4]).collect(),
            estimator: estimator(12),
            pending: vec![None; delay],
            in_force: None,
            random: Xoshiro256PlusPlus::seed_from_u64(35),
        };
        let mean = |number: u32| 0.5 + 0.15 * (f64::from(number) / 9.0).sin();
        let first = run.window(0, mean(0));
        assert!(first > 1.9, "alike at first: {first}");
        let later: Vec<f64> = (1..260)
            .map(|number| run.window(number, mean(number)))
            .collect();
        // From the twelfth window, a minute, on.
        let settled = &later[11..];
        let count = f64::from(u32::try_from(settled.len()).unwrap());
        let average = settled.iter().sum::<f64>() / count;
        let peak = settled.iter().copied().fold(0.0, f64::max);
        assert!(
            average <= 1.05,
            "delay {delay}: average {average}, peak {peak}"
        );
        assert!(
            peak <= 1.12,
            "delay {delay}: average {average}, peak {peak}"
        );
    }
}

/// A host on a machine of a third of the strength, without a restart that anybody noticed.
#[test]
fn a_host_that_becomes_weaker_is_found_out() {
    let mut run = Loop {
        capacity: vec![40.0; 6],
        estimator: estimator(6),
        pending: vec![None],
        in_force: None,
        random: Xoshiro256PlusPlus::seed_from_u64(7),
    };
    for number in 0..30 {
        run.window(number, 0.5);
    }
    run.capacity[2] = 13.0;
    let highest: Vec<f64> = (30..70).map(|number| run.window(number, 0.5)).collect();
    assert!(highest[0] > 1.5, "{highest:?}");
    assert!(highest[39] < 1.1, "{highest:?}");
}

#[test]
fn a_service_whose_reports_stop_keeps_what_it_learned() {
    let mut learned = estimator(2);
    let sample = |utilization| HostSample {
        succeeded: 500,
        failed: 0,
        utilization,
    };
    let samples = BTreeMap::from([(host(0), sample(0.8)), (host(1), sample(0.2))]);
    for second in 0..20 {
        learned.handle_window(WINDOW, &samples).unwrap();
        learned.poll_learned(Instant::from_secs(second * 10));
    }
    let before = learned.delivered().cloned().unwrap();
    assert_eq!(
        learned.handle_window(WINDOW, &BTreeMap::new()),
        Err(Frozen::FewHosts)
    );
    assert_eq!(learned.poll_learned(Instant::from_secs(1000)), None);
    assert_eq!(learned.delivered(), Some(&before));
    assert_eq!(learned.frozen(), Some(Frozen::FewHosts));
}

proptest! {
    /// Whatever reports say: no weight is 0 or above the limits, and no step above 1.4.
    #[test]
    fn weights_are_bounded(
        windows in prop::collection::vec(
            prop::collection::vec((0_u64..100_000, 0_u64..1000, prop_oneof![
                Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(0.0), 0.0_f64..12.0,
            ]), 0..6),
            1..40,
        ),
    ) {
        let mut learned = estimator(4);
        let mut before: BTreeMap<SocketAddr, u32> = BTreeMap::new();
        for (number, samples) in windows.into_iter().enumerate() {
            let sample = |(at, (succeeded, failed, utilization))| {
                (host(at), HostSample { succeeded, failed, utilization })
            };
            let told: BTreeMap<_, _> = samples.into_iter().enumerate().map(sample).collect();
            let _ = learned.handle_window(WINDOW, &told);
            let now = Instant::from_secs(u64::try_from(number).unwrap() * 10);
            let Some(next) = learned.poll_learned(now) else { continue };
            prop_assert!(next.unit().rate() > 0.0);
            for at in 0..4 {
                let (from, to) = (before.get(&host(at)).copied(), next.weight(host(at)));
                let from = f64::from(from.unwrap_or(MEDIAN_WEIGHT));
                prop_assert!((13..=200).contains(&to));
                prop_assert!(f64::from(to) <= from * 1.4 + 0.5, "{from} to {to}");
                prop_assert!(f64::from(to) >= from / 1.4 - 0.5, "{from} to {to}");
                before.insert(host(at), to);
            }
        }
    }
}
