//! [`Certificates`]: until when the certificates in use can be used, and a warning before that.
//!
//! An expired certificate breaks new connections only, so that nobody notices before a restart:
//! metrics, the dashboard and events say so two weeks and three days before.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use plimsoll_core::log_line;
use plimsoll_serve::{CancellationToken, CertificateUse, Expiry};
use tokio::time::MissedTickBehavior;

use crate::config::ControlConfig;
use crate::events::Description;
use crate::log_lines;
use crate::server::Handle;

const DAY: i64 = 24 * 60 * 60;
/// Time before the end within which somebody should renew it.
const SOON: i64 = 14 * DAY;
/// Time before the end within which an automatic renewal must have failed.
const IMMINENT: i64 = 3 * DAY;
/// Certificates that are renewed are found at the next check.
const CHECK_INTERVAL: Duration = Duration::from_secs(60);

type Expiries = Box<dyn Fn() -> Vec<Expiry> + Send + Sync>;

/// Certificates in use, by the label of metrics for what they are used.
#[derive(Default)]
pub struct Certificates(Mutex<BTreeMap<&'static str, Expiries>>);

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

/// A file of certificates in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// What it is used for: `xds`, `admin`, `relay`, `store` or `otlp`.
    pub of: &'static str,
    pub expiry: Expiry,
}

/// How near the end of a certificate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Expired,
    /// It ends within three days.
    Imminent,
    /// It ends within two weeks.
    Soon,
    Fine,
}

impl Certificates {
    /// Adds certificates, or replaces those with the same use. `expiries` is called often, and
    /// says what is loaded.
    pub(crate) fn watch(
        &self,
        of: &'static str,
        expiries: impl Fn() -> Vec<Expiry> + Send + Sync + 'static,
    ) {
        self.lock().insert(of, Box::new(expiries));
    }

    /// Returns all certificates in use.
    pub fn all(&self) -> Vec<Certificate> {
        let all = self.lock();
        let loaded = all.iter().flat_map(|(&of, expiries)| {
            let certificate = move |expiry| Certificate { of, expiry };
            expiries().into_iter().map(certificate)
        });
        loaded.collect()
    }

    /// Returns the certificates that end within two weeks, those that end first before others.
    pub fn ending(&self, now_unix_seconds: i64) -> Vec<Certificate> {
        let mut all = self.all();
        all.retain(|each| each.stage(now_unix_seconds) != Stage::Fine);
        all.sort_by_key(|each| each.expiry.unix_seconds);
        all
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Expiries>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Certificate {
    /// Returns how near the end is.
    pub const fn stage(&self, now_unix_seconds: i64) -> Stage {
        match self.expiry.unix_seconds.saturating_sub(now_unix_seconds) {
            ..=0 => Stage::Expired,
            1..=IMMINENT => Stage::Imminent,
            left if left <= SOON => Stage::Soon,
            _ => Stage::Fine,
        }
    }

    /// Says what ends when, as a clause.
    pub fn text(&self, now_unix_seconds: i64) -> String {
        let Expiry { usage, file, .. } = &self.expiry;
        let what = match usage {
            CertificateUse::Own => "certificate",
            CertificateUse::Authorities => "authority",
        };
        let seconds = self.expiry.unix_seconds.saturating_sub(now_unix_seconds);
        let when = if seconds <= 0 {
            format!("expired {} ago", span(seconds.saturating_neg()))
        } else {
            format!("expires in {}", span(seconds))
        };
        format!("the {what} of {}, {file}, {when}", self.of)
    }
}

/// Formats a time in whole days, or in hours if it is less than two days.
fn span(seconds: i64) -> String {
    let (count, unit) = if seconds < 2 * DAY {
        (seconds / 3600, "hour")
    } else {
        (seconds / DAY, "day")
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

/// Returns the certificates that a configuration names, as they are on the disk.
pub fn configured(config: &ControlConfig) -> Vec<Certificate> {
    let listening = [
        ("xds", &config.addresses.tls),
        ("admin", &config.addresses.admin_tls),
    ];
    let relay = config.relay.as_ref().and_then(|relay| relay.tls.as_ref());
    let store = config.store.as_ref().and_then(|store| store.tls.as_ref());
    let otlp = config.operation.otlp.as_ref();
    let otlp = otlp.and_then(|otlp| otlp.tls.as_ref());
    let dialing = [("relay", relay), ("store", store), ("otlp", otlp)];
    let servers = listening
        .into_iter()
        .filter_map(|(of, tls)| Some((of, tls.as_ref()?.expiries())));
    let clients = dialing
        .into_iter()
        .filter_map(|(of, tls)| Some((of, tls?.settings.expiries())));
    let all = servers.chain(clients).flat_map(|(of, expiries)| {
        let certificate = move |expiry| Certificate { of, expiry };
        expiries.into_iter().map(certificate)
    });
    all.collect()
}

/// Returns the time of the wall clock, which certificates refer to.
pub fn unix_seconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_secs()).unwrap_or(i64::MAX))
}

/// What has been said about each certificate.
#[derive(Debug, Default)]
struct Told(BTreeMap<(&'static str, CertificateUse), Stage>);

impl Told {
    /// Returns the certificates whose end has come nearer than anybody was told.
    fn news(&mut self, all: Vec<Certificate>, now_unix_seconds: i64) -> Vec<Certificate> {
        let is_news = |each: &Certificate| {
            let stage = each.stage(now_unix_seconds);
            let before = self.0.insert((each.of, each.expiry.usage), stage);
            stage < before.unwrap_or(Stage::Fine)
        };
        all.into_iter().filter(is_news).collect()
    }
}

/// Warns of certificates that end, at the start and whenever an end comes near.
pub(crate) async fn warn_of_ends(handle: Handle, stopping: CancellationToken) {
    let mut told = Told::default();
    let mut ticks = tokio::time::interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stopping.cancelled() => return,
            _ = ticks.tick() => {}
        }
        let now = unix_seconds();
        for each in told.news(handle.certificates().all(), now) {
            handle.tell(ends(&each, now));
        }
    }
}

fn ends(certificate: &Certificate, now: i64) -> Description<'_> {
    let text = certificate.text(now);
    let event = Description::logged(move |_| {
        let (of, Expiry { file, .. }) = (certificate.of, &certificate.expiry);
        let days_left = (certificate.expiry.unix_seconds - now).div_euclid(DAY);
        log_line!(log_lines::CERTIFICATE_EXPIRES, of, file, days_left);
    });
    if certificate.stage(now) == Stage::Soon {
        event.warning(text)
    } else {
        event.error(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn certificate(unix_seconds: i64) -> Certificate {
        Certificate {
            of: "xds",
            expiry: Expiry {
                usage: CertificateUse::Own,
                file: "tls.crt".to_owned(),
                unix_seconds,
            },
        }
    }

    #[test]
    fn ends_come_nearer_in_stages() {
        let stage = |left: i64| certificate(100 * DAY).stage(100 * DAY - left);
        assert_eq!(stage(14 * DAY + 1), Stage::Fine);
        assert_eq!(stage(14 * DAY), Stage::Soon);
        assert_eq!(stage(3 * DAY), Stage::Imminent);
        assert_eq!(stage(1), Stage::Imminent);
        assert_eq!(stage(0), Stage::Expired);
        let text = |left: i64| certificate(100 * DAY).text(100 * DAY - left);
        let start = "the certificate of xds, tls.crt,";
        assert_eq!(text(9 * DAY + 7), format!("{start} expires in 9 days"));
        assert_eq!(text(3600), format!("{start} expires in 1 hour"));
        assert_eq!(text(-2 * DAY), format!("{start} expired 2 days ago"));
    }

    #[test]
    fn each_stage_is_told_once_and_again_after_a_renewal() {
        let mut told = Told::default();
        let mut news = |end: i64, now: i64| told.news(vec![certificate(end)], now).len();
        assert_eq!(news(100 * DAY, 0), 0);
        assert_eq!(news(100 * DAY, 90 * DAY), 1);
        assert_eq!(news(100 * DAY, 91 * DAY), 0);
        assert_eq!(news(100 * DAY, 98 * DAY), 1);
        assert_eq!(news(100 * DAY, 101 * DAY), 1);
        assert_eq!(news(200 * DAY, 101 * DAY), 0);
        assert_eq!(news(200 * DAY, 190 * DAY), 1);
    }

    #[test]
    fn those_that_end_within_two_weeks_are_listed_by_time() {
        let certificates = Certificates::default();
        assert_eq!(certificates.all(), []);
        for (of, days) in [("admin", 9), ("relay", 90), ("xds", 2)] {
            let expiry = certificate(days * DAY).expiry;
            certificates.watch(of, move || vec![expiry.clone()]);
        }
        let ending = certificates.ending(0);
        let names: Vec<&str> = ending.iter().map(|each| each.of).collect();
        assert_eq!(names, ["xds", "admin"]);
    }
}
