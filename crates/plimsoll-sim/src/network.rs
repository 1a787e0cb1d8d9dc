//! [`Network`]: message delays, and noise and loss of load reports.

use plimsoll_core::model::orca::OrcaLoadReport;
use plimsoll_core::rng::Xoshiro256;

use crate::draws::{self, Purpose};
use crate::scenario::{NetworkSettings, ReportSettings, Scenario};

#[derive(Debug)]
pub(crate) struct Network {
    delays: NetworkSettings,
    reports: ReportSettings,
    rng: Xoshiro256,
    /// Reused for every report to avoid allocation.
    report: OrcaLoadReport,
}

impl Network {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            delays: scenario.network,
            reports: scenario.reports,
            rng: draws::stream(scenario.seed, Purpose::Reports, 0),
            report: OrcaLoadReport::default(),
        }
    }

    /// Returns the one-way delay between a proxy and a host.
    pub(crate) const fn delay(&self, local: bool) -> u64 {
        if local {
            self.delays.local
        } else {
            self.delays.remote
        }
    }

    /// Returns the received value of a report, with noise, or `None` if it is lost.
    pub(crate) fn transmit(&mut self, utilization: f64) -> Option<f64> {
        let ReportSettings { noise, loss, .. } = self.reports;
        if loss > 0.0 && draws::uniform(&mut self.rng) < loss {
            return None;
        }
        if noise == 0.0 {
            return Some(utilization);
        }
        Some(utilization * (1.0 + noise * draws::normal(&mut self.rng)).max(0.0))
    }

    pub(crate) fn report(&mut self, utilization: f64) -> &OrcaLoadReport {
        self.report.application_utilization = utilization;
        &self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::three_zones;

    fn network(noise: f64, loss: f64) -> Network {
        let mut parts = three_zones();
        (parts.reports.noise, parts.reports.loss) = (noise, loss);
        Network::new(&Scenario::try_new(parts).unwrap())
    }

    #[test]
    fn a_perfect_network_changes_nothing() {
        let mut network = network(0.0, 0.0);
        assert_eq!(network.transmit(0.7), Some(0.7));
        assert_eq!(network.report(0.7).application_utilization, 0.7);
        assert!(network.delay(true) < network.delay(false));
    }

    #[test]
    fn noise_is_relative_and_unbiased() {
        let mut network = network(0.05, 0.0);
        let values: Vec<f64> = (0..20_000).filter_map(|_| network.transmit(0.5)).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let deviation = (values
            .iter()
            .map(|value| (value - mean).powi(2))
            .sum::<f64>()
            / 20_000.0)
            .sqrt();
        assert!((mean - 0.5).abs() < 0.001, "{mean}");
        assert!((deviation - 0.025).abs() < 0.001, "{deviation}");
    }

    #[test]
    fn lost_reports_do_not_arrive() {
        let mut network = network(0.0, 0.25);
        let arrived = (0..20_000)
            .filter(|_| network.transmit(0.5).is_some())
            .count();
        assert!((14_600..15_400).contains(&arrived), "{arrived}");
    }
}
