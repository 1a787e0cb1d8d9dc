//! [`Noticing`]: which zone is ill, by what becomes of the requests between zones.
//!
//! Load reports say how many requests of the proxies of each zone failed in each other zone. A bad
//! column of that matrix is "the backends of this zone are ill": requests of at least two other
//! zones fail there, many times more than elsewhere. A bad row is "the clients or the network of
//! this zone": its own requests fail everywhere. A row is told and never a reason to drain.
//!
//! What one host explains is no illness of a zone: outlier detection and health checks take it out
//! of use. So the share that fails has to be more than that of one host and a half. What fails
//! alike in all zones is no matter of zones either, such as a bad release.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::locality::Locality;

/// Least share of failed requests that is worth a word.
const LEAST: f64 = 0.01;
/// So many times more must fail than in the median of the others.
const TIMES: f64 = 5.0;
/// Reports in a row that must say so.
const REPORTS: u32 = 2;
/// Zones whose proxies must say so.
const REPORTERS: usize = 2;
/// Standard deviations by which a share must be above chance.
const DEVIATIONS: f64 = 3.0;
/// Hosts whose failure is no illness of their zone.
const HOSTS: f64 = 1.5;

/// What became of requests between two zones, in the latest reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    pub requests: u64,
    pub failed: u64,
}

/// Requests by zone of the proxies, then by zone of the hosts.
pub type ErrorMatrix = BTreeMap<Locality, BTreeMap<Locality, Ended>>;

/// What is ill about a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Illness {
    /// Requests to its hosts fail.
    Backends,
    /// Requests of its proxies fail in all zones.
    Network,
}

impl Illness {
    pub const ALL: [Self; 2] = [Self::Backends, Self::Network];

    /// Returns the name in the API and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Backends => "backends",
            Self::Network => "network",
        }
    }
}

/// A zone that is ill.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    pub zone: Locality,
    pub illness: Illness,
    /// Share of the requests that fail.
    pub failed_share: f64,
    /// Share that fails elsewhere, as the median of the other zones.
    pub elsewhere: f64,
    /// Whether one bad host explains some of the reports; then it is no reason to drain.
    pub is_one_host: bool,
}

/// Remembers what the reports before said.
#[derive(Clone, Debug, Default)]
pub struct Noticing {
    /// Reports in a row in which a zone was ill, by whether one bad host explains it.
    counts: BTreeMap<(Locality, Illness, bool), u32>,
}

impl Noticing {
    /// Judges the latest reports; call it once per report interval. `hosts` are those of each zone.
    /// Returns zones that were ill in as many reports as it takes.
    pub fn handle_reports(
        &mut self,
        matrix: &ErrorMatrix,
        hosts: &BTreeMap<Locality, usize>,
    ) -> Vec<Suspect> {
        let found = judge(matrix, hosts);
        let key = |one: &Suspect, is_one_host| (one.zone.clone(), one.illness, is_one_host);
        let worse = found.iter().filter(|one| !one.is_one_host);
        let mut keys: BTreeSet<_> = found.iter().map(|one| key(one, true)).collect();
        keys.extend(worse.map(|one| key(one, false)));
        self.counts.retain(|key, _| keys.contains(key));
        for key in keys {
            *self.counts.entry(key).or_default() += 1;
        }
        let lasts = |one: &Suspect, is_one_host| {
            let count = self.counts.get(&key(one, is_one_host));
            count.is_some_and(|count| *count >= REPORTS)
        };
        let lasting = found.into_iter().filter(|one| lasts(one, true));
        lasting
            .map(|one| Suspect {
                is_one_host: !lasts(&one, false),
                ..one
            })
            .collect()
    }
}

/// Judges one set of reports.
fn judge(matrix: &ErrorMatrix, hosts: &BTreeMap<Locality, usize>) -> Vec<Suspect> {
    let mut suspects = Vec::new();
    let upstream: BTreeSet<&Locality> = matrix.values().flat_map(BTreeMap::keys).collect();
    let column = |to: &Locality| sum(matrix.values().filter_map(|row| row.get(to)));
    for to in &upstream {
        let others: Vec<f64> = upstream
            .iter()
            .filter(|zone| *zone != to)
            .map(|zone| share(column(zone)))
            .collect();
        let elsewhere = median(others);
        let ill = |ended: &&Ended| is_ill(**ended, elsewhere);
        let reporters = matrix
            .values()
            .filter_map(|row| row.get(*to))
            .filter(ill)
            .count();
        let own = column(to);
        if upstream.len() > 1 && reporters >= REPORTERS && is_ill(own, elsewhere) {
            let all = hosts.get(*to).copied().unwrap_or(0).max(1);
            suspects.push(Suspect {
                zone: (*to).clone(),
                illness: Illness::Backends,
                failed_share: share(own),
                elsewhere,
                is_one_host: lowest(own) <= HOSTS / ratio(all as u64, 1),
            });
        }
    }
    let ill_columns: BTreeSet<Locality> = suspects.iter().map(|one| one.zone.clone()).collect();
    let row = |from: &Locality| -> Ended {
        // What fails in an ill zone says nothing about the zones that send there.
        let cells = matrix.get(from).into_iter().flatten();
        sum(cells
            .filter(|(to, _)| !ill_columns.contains(to))
            .map(|(_, ended)| ended))
    };
    for from in matrix.keys() {
        let others: Vec<f64> = matrix
            .keys()
            .filter(|zone| *zone != from)
            .map(|zone| share(row(zone)))
            .collect();
        let elsewhere = median(others);
        let cells = matrix[from]
            .iter()
            .filter(|(to, _)| !ill_columns.contains(to));
        let ill = cells
            .filter(|(_, ended)| is_ill(**ended, elsewhere))
            .count();
        let own = row(from);
        if matrix.len() > 1 && ill >= REPORTERS && is_ill(own, elsewhere) {
            suspects.push(Suspect {
                zone: from.clone(),
                illness: Illness::Network,
                failed_share: share(own),
                elsewhere,
                is_one_host: false,
            });
        }
    }
    suspects
}

fn is_ill(ended: Ended, elsewhere: f64) -> bool {
    lowest(ended) >= (TIMES * elsewhere).max(LEAST)
}

/// Returns the share that fails beyond chance.
fn lowest(ended: Ended) -> f64 {
    let failed = ratio(ended.failed, 1);
    let least = failed - DEVIATIONS * (failed * (1.0 - share(ended))).sqrt();
    least.max(0.0) / ratio(ended.requests.max(1), 1)
}

fn share(ended: Ended) -> f64 {
    ratio(ended.failed, ended.requests.max(1))
}

#[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
fn ratio(part: u64, all: u64) -> f64 {
    part as f64 / all as f64
}

fn sum<'a>(cells: impl Iterator<Item = &'a Ended>) -> Ended {
    cells.fold(Ended::default(), |sum, cell| Ended {
        requests: sum.requests.saturating_add(cell.requests),
        failed: sum.failed.saturating_add(cell.failed),
    })
}

/// Returns the median, the higher of two; 0 of none.
fn median(mut shares: Vec<f64>) -> f64 {
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Rng as _, Xoshiro256};

    const ZONES: [&str; 3] = ["a", "b", "c"];

    fn zone(name: &str) -> Locality {
        Locality::zone_only(name)
    }

    /// A matrix in which each pair of zones has this share of 100 requests.
    fn matrix(failed: impl Fn(usize, usize) -> u64) -> ErrorMatrix {
        let row = |from: usize| {
            let cell = |to: usize| {
                (
                    zone(ZONES[to]),
                    Ended {
                        requests: 100,
                        failed: failed(from, to),
                    },
                )
            };
            (zone(ZONES[from]), (0..3).map(cell).collect())
        };
        (0..3).map(row).collect()
    }

    fn hosts(count: usize) -> BTreeMap<Locality, usize> {
        ZONES.iter().map(|name| (zone(name), count)).collect()
    }

    fn found(failed: impl Fn(usize, usize) -> u64, count: usize) -> Vec<(String, Illness, bool)> {
        let suspects = judge(&matrix(failed), &hosts(count));
        let short = |one: Suspect| (one.zone.zone().to_owned(), one.illness, one.is_one_host);
        suspects.into_iter().map(short).collect()
    }

    #[test]
    fn a_bad_column_is_backends_and_a_bad_row_is_network() {
        let backends = ("b".to_owned(), Illness::Backends, false);
        let network = ("b".to_owned(), Illness::Network, false);
        assert_eq!(found(|_, to| if to == 1 { 30 } else { 0 }, 12), [backends]);
        assert_eq!(
            found(|from, _| if from == 1 { 30 } else { 0 }, 12),
            [network]
        );
        assert_eq!(found(|_, _| 30, 12), [], "a bad release in all zones");
        assert_eq!(
            found(|from, to| if (from, to) == (0, 1) { 90 } else { 0 }, 12),
            [],
            "one link"
        );
        assert_eq!(
            found(|_, to| if to == 1 { 30 } else { 10 }, 12),
            [],
            "three times is not five"
        );
        assert_eq!(found(|_, to| if to == 1 { 1 } else { 0 }, 12), [], "chance");
        let one_host = ("b".to_owned(), Illness::Backends, true);
        assert_eq!(found(|_, to| if to == 1 { 30 } else { 0 }, 4), [one_host]);
    }

    #[test]
    fn it_takes_two_reports_in_a_row() {
        let mut noticing = Noticing::default();
        let bad = matrix(|_, to| if to == 1 { 30 } else { 0 });
        let good = matrix(|_, _| 0);
        assert_eq!(noticing.handle_reports(&bad, &hosts(12)), []);
        assert_eq!(noticing.handle_reports(&good, &hosts(12)), []);
        assert_eq!(noticing.handle_reports(&bad, &hosts(12)), []);
        assert_eq!(noticing.handle_reports(&bad, &hosts(12)).len(), 1);
        assert_eq!(noticing.handle_reports(&good, &hosts(12)), []);
    }

    fn unit(rng: &mut Xoshiro256) -> f64 {
        ratio(rng.next_u64() >> 11, 1 << 53)
    }

    fn binomial(rng: &mut Xoshiro256, requests: u64, share: f64) -> u64 {
        (0..requests).filter(|_| unit(rng) < share).count() as u64
    }

    /// Reports in which this share of the requests of each pair of zones fails.
    fn reports(rng: &mut Xoshiro256, requests: u64, rate: impl Fn(usize) -> f64) -> ErrorMatrix {
        let mut matrix = ErrorMatrix::new();
        for from in ZONES {
            let row = matrix.entry(zone(from)).or_default();
            for (to, name) in ZONES.iter().enumerate() {
                let failed = binomial(rng, requests, rate(to));
                row.insert(zone(name), Ended { requests, failed });
            }
        }
        matrix
    }

    /// What goes on in a random hour that is no illness of a zone.
    #[derive(Debug)]
    struct Noise {
        requests: u64,
        hosts: usize,
        /// Share that fails everywhere, all the time.
        background: f64,
        /// Reports during which all zones fail this share: a bad release.
        release: (usize, usize, f64),
        /// Zone with one bad host, which fails everything.
        bad_host: Option<usize>,
        /// Zone of which each report this share fails, for one report: hosts restart.
        deploy: Option<(usize, usize, f64)>,
    }

    fn noise(rng: &mut Xoshiro256) -> Noise {
        let below =
            |rng: &mut Xoshiro256, most: u64| usize::try_from(rng.next_u64() % most).unwrap();
        let zone = |rng: &mut Xoshiro256| below(rng, 3);
        let start = below(rng, 25);
        Noise {
            requests: 20 + rng.next_u64() % 400,
            hosts: 2 + below(rng, 20),
            background: 0.02 * unit(rng),
            release: (start, start + 10, 0.5 * unit(rng)),
            bad_host: rng.next_u64().is_multiple_of(2).then(|| zone(rng)),
            deploy: rng
                .next_u64()
                .is_multiple_of(2)
                .then(|| (zone(rng), start, 0.3 * unit(rng))),
        }
    }

    /// 1,000 random hours of one report a minute, none of which has an ill zone: no reason to
    /// drain any. The generator is fixed, so that this passes for certain.
    #[test]
    fn a_thousand_hours_of_noise_drain_no_zone() {
        let mut explained = 0;
        for seed in 0..1000 {
            let mut rng = Xoshiro256::from_seed(seed);
            let noise = noise(&mut rng);
            let mut noticing = Noticing::default();
            for report in 0..30 {
                let rate = |to: usize| {
                    let (from, until, release) = noise.release;
                    let mut rate = noise.background;
                    if (from..until).contains(&report) {
                        rate = rate.max(release);
                    }
                    if noise.bad_host == Some(to) {
                        rate += (1.0 - rate) * ratio(1, noise.hosts as u64);
                    }
                    match noise.deploy {
                        Some((zone, at, share)) if (zone, at) == (to, report) => rate.max(share),
                        _ => rate,
                    }
                };
                let reports = reports(&mut rng, noise.requests, rate);
                for suspect in noticing.handle_reports(&reports, &hosts(noise.hosts)) {
                    assert!(suspect.is_one_host, "{seed} {report} {suspect:?} {noise:?}");
                    explained += 1;
                }
            }
        }
        assert!(
            explained > 1000,
            "bad hosts are noticed, and no reason to drain: {explained}"
        );
    }

    #[test]
    fn an_ill_zone_is_found_within_two_reports_in_every_one_of_a_thousand_hours() {
        for seed in 0..1000 {
            let mut rng = Xoshiro256::from_seed(seed);
            let mut noticing = Noticing::default();
            let mut last = Vec::new();
            for _ in 0..2 {
                let reports = reports(&mut rng, 240, |to| if to == 1 { 0.3 } else { 0.002 });
                last = noticing.handle_reports(&reports, &hosts(12));
            }
            assert!(
                matches!(&last[..], [one] if !one.is_one_host),
                "{seed} {last:?}"
            );
        }
    }
}
