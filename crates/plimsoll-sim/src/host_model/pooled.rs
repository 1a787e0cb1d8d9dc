//! Waiting times when samples are too few for real queues: drawn from the stationary multi-server
//! queue at a measured utilization.

use plimsoll_core::rng::Xoshiro256;

use crate::draws;
use crate::num;

/// Longer than any queue, so that the request is refused.
const TOO_LONG: u64 = u64::MAX;

/// Draws the waiting time of one request at a host with this utilization.
///
/// Below capacity a request waits with probability ρ^(√(2(c+1)) − 1) (a well-known approximation
/// for c servers), and then for an exponential time of mean 1 ÷ (capacity · (1 − ρ)). Above
/// capacity the excess is refused, and the rest waits as long as a full queue takes.
pub(super) fn wait(utilization: f64, servers: u32, capacity: f64, rng: &mut Xoshiro256) -> u64 {
    let (chance, length) = (draws::uniform(rng), draws::exponential(rng));
    if utilization >= 1.0 {
        let refused = 1.0 - 1.0 / utilization;
        // Mean of a nearly full queue; the caller truncates it to the queue length.
        return if chance < refused {
            TOO_LONG
        } else {
            num::from_seconds(length.min(0.9))
        };
    }
    let waits = utilization.powf((2.0 * (f64::from(servers) + 1.0)).sqrt() - 1.0);
    if chance >= waits {
        return 0;
    }
    num::from_seconds(length / (capacity * (1.0 - utilization)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draws::Purpose;

    /// Returns the mean wait in seconds and the share of refused requests.
    fn mean_wait(utilization: f64) -> (f64, f64) {
        let mut rng = draws::stream(1, Purpose::Service, 0);
        let waits: Vec<u64> = (0..50_000)
            .map(|_| wait(utilization, 3, 30.0, &mut rng))
            .collect();
        let served: Vec<f64> = waits
            .iter()
            .filter(|&&w| w != TOO_LONG)
            .map(|&w| num::seconds(w))
            .collect();
        let refused = 1.0 - served.len() as f64 / 50_000.0;
        (served.iter().sum::<f64>() / served.len() as f64, refused)
    }

    #[test]
    fn waiting_rises_steeply_near_capacity() {
        let waits: Vec<f64> = [0.2, 0.5, 0.8, 0.95].map(|u| mean_wait(u).0).into();
        assert!(
            waits.windows(2).all(|pair| pair[1] > 2.0 * pair[0]),
            "{waits:?}"
        );
        // Three servers at 80 %: the exact mean wait is 0.108 s.
        assert!((waits[2] - 0.1).abs() < 0.02, "{waits:?}");
    }

    #[test]
    fn load_above_capacity_is_refused() {
        let (_, refused) = mean_wait(1.25);
        assert!((refused - 0.2).abs() < 0.01, "{refused}");
        assert_eq!(mean_wait(0.9).1, 0.0);
    }
}
