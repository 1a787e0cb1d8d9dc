//! TLS handshakes that failed: what an operator should do about them, and events.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_serve::{CancellationToken, ConnectionStats, FailedHandshake, HandshakeFailure};

use crate::events::streams::handshake_failed;
use crate::run::Listeners;
use crate::server::Handle;

/// How long a failure counts as recent: clients that are refused come back within seconds.
const RECENT: Duration = Duration::from_secs(60);

/// Says who failed and why, as a clause.
pub(crate) fn text(failed: &FailedHandshake) -> String {
    let FailedHandshake { peer, error, .. } = failed;
    format!("TLS handshake with {peer} failed: {error}")
}

/// Says what to do about a failure, as a clause.
pub(crate) const fn remedy(failure: HandshakeFailure) -> &'static str {
    match failure {
        HandshakeFailure::CertificateExpired => "renew the certificate of the client",
        HandshakeFailure::UnknownIssuer => {
            "sign the certificate of the client with an authority in tls.client_ca"
        }
        HandshakeFailure::CertificateInvalid => "correct the certificate of the client",
        HandshakeFailure::NoCertificate => {
            "give the client a certificate (plimsoll bootstrap envoy --tls-directory)"
        }
        HandshakeFailure::NotTls => {
            "let the client use TLS (plimsoll bootstrap envoy --tls-directory)"
        }
        HandshakeFailure::RefusedByClient => {
            "give the client the authority of tls.certificate, and dial a name that is in it"
        }
        HandshakeFailure::Other => "look at the log of the client",
    }
}

/// Returns the latest failure at a listener, if that was a moment ago.
pub(crate) fn recent(listeners: &Listeners) -> Option<FailedHandshake> {
    let latest = |stats: &Arc<ConnectionStats>| stats.watch_failed_handshakes().borrow().clone();
    let all = [&listeners.xds, &listeners.admin];
    let latest = all.into_iter().filter_map(latest);
    let recent = latest.filter(|failed| failed.at.elapsed() < RECENT);
    recent.max_by_key(|failed| failed.at)
}

/// Tells every failure at a listener as an event; of a flood only some.
pub(crate) async fn tell(stats: Arc<ConnectionStats>, handle: Handle, stop: CancellationToken) {
    let mut failures = stats.watch_failed_handshakes();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            changed = failures.changed() => if changed.is_err() { return },
        }
        let failed = failures.borrow_and_update().clone();
        if let Some(failed) = failed {
            handle.tell(handshake_failed(&text(&failed)));
        }
    }
}
