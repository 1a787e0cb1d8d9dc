//! [`XdsIncoming`]: connections of ADS and LRS, within limits and with the identity of the client.
//!
//! plimsoll-serve accepts connections and performs TLS handshakes; `socket` limits the time until
//! the first request and passes the bytes through `frames`; plimsoll-xds serves the streams.

mod authority;
mod frames;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod socket;

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use plimsoll_serve::{ConnectionStats, Incoming};
use plimsoll_xds::driver::{Accept, ClientIdentity, ClientInfo, Connection};
use tokio::time::Instant;

use socket::XdsSocket;

/// Name of the listener of ADS and LRS in log lines.
pub(crate) const LISTENER: &str = "xds";

/// Source of the connections of ADS and LRS.
#[derive(Debug)]
pub(crate) struct XdsIncoming {
    pub(crate) incoming: Incoming,
    /// Time from accepting a connection to its first request.
    pub(crate) handshake_timeout: Duration,
    /// Age at which connections end, with a tenth more or less.
    pub(crate) connection_age: Option<Duration>,
    pub(crate) stats: Arc<ConnectionStats>,
}

impl Accept for XdsIncoming {
    async fn accept(&mut self) -> Connection {
        let accepted = self.incoming.next().await;
        let identity = accepted.identity.map(|identity| {
            Arc::new(ClientIdentity {
                uris: identity.uris.clone(),
                dns_names: identity.dns_names.clone(),
            })
        });
        let deadline = accepted.since + self.handshake_timeout;
        let age = self.connection_age.map(|age| spread(age, random_share()));
        let expires = accepted.certificate_expires;
        let valid = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let ends_at = ends_at(accepted.since, age, valid);
        let stats = Arc::clone(&self.stats);
        let socket = XdsSocket::new(accepted.stream, accepted.peer, deadline, stats);
        Connection {
            socket: Box::new(socket),
            client: ClientInfo {
                peer: Some(accepted.peer),
                identity,
            },
            ends_at,
        }
    }
}

/// Returns when a connection ends: at its age, or when its certificate is no longer valid.
fn ends_at(since: Instant, age: Option<Duration>, valid: Option<Duration>) -> Option<Instant> {
    let of_age = age.map(|age| since + age);
    // Certificates without an end are valid for millennia, which no clock can add.
    let of_certificate = valid.and_then(|valid| Instant::now().checked_add(valid));
    of_age.into_iter().chain(of_certificate).min()
}

/// Returns an age between 9 and 11 tenths, by a share between 0 and 1.
fn spread(age: Duration, share: f64) -> Duration {
    age.mul_f64(0.2f64.mul_add(share, 0.9))
}

/// Returns a random number between 0 and 1, from the keys of a new hash table.
fn random_share() -> f64 {
    let random = RandomState::new().hash_one(());
    (random >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_ends_with_its_age_or_its_certificate() {
        let since = Instant::now();
        let after = |seconds| Some(Duration::from_secs(seconds));
        assert_eq!(ends_at(since, None, None), None);
        assert_eq!(
            ends_at(since, after(10), None),
            after(10).map(|age| since + age)
        );
        assert_eq!(
            ends_at(since, after(10), after(7)),
            after(7).map(|age| since + age)
        );
        assert_eq!(
            ends_at(since, None, after(0)),
            Some(since),
            "it has expired"
        );
        assert_eq!(ends_at(since, None, Some(Duration::MAX)), None);
    }

    #[test]
    fn ages_are_spread_by_a_tenth() {
        let age = Duration::from_secs(1800);
        assert_eq!(spread(age, 0.0).as_secs(), 1620);
        assert_eq!(spread(age, 0.5).as_secs(), 1800);
        assert_eq!(spread(age, 1.0).as_secs(), 1980);
        // Of 1,000 connections that come together, each tenth of the window gets some: the chance
        // that one gets none is below 10 x 0.9^1000 < 1e-44.
        let shares: Vec<f64> = (0..1000).map(|_| random_share()).collect();
        for tenth in 0..10 {
            let window = f64::from(tenth) / 10.0..f64::from(tenth + 1) / 10.0;
            assert!(
                shares.iter().any(|share| window.contains(share)),
                "{window:?}"
            );
        }
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
    }
}
