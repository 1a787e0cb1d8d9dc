//! One attempt of a request, as an upstream HTTP filter sees it: the load report in its response,
//! and for policies that need it, that the request is in flight and how long the host takes.
//!
//! Envoy chooses the host of an attempt and then creates its upstream filters, on the same thread
//! and without another choice between. So the host that was picked last on a thread is that of the
//! next attempt; the address in its response confirms it.

use std::cell::RefCell;
use std::sync::Arc;

use plimsoll_core::host::{ActiveRequest, Host, RequestOutcome};
use plimsoll_core::time::Instant;
use plimsoll_xds::orca::FirstReport;

use crate::host_sets::parse_address;
use crate::orca::{Headers, OrcaHosts};

thread_local! {
    static PICKED: RefCell<Option<Arc<Host>>> = const { RefCell::new(None) };
}

/// Records the host that was picked on this thread; `None` if its requests are not counted.
pub fn set_picked(host: Option<Arc<Host>>) {
    PICKED.set(host);
}

/// State of one attempt. A request that ends without a response counts as failed.
#[derive(Debug, Default)]
pub struct Attempt {
    report: FirstReport,
    request: Option<Timed>,
}

#[derive(Debug)]
struct Timed {
    request: ActiveRequest,
    issued_at: Instant,
    outcome: Option<RequestOutcome>,
}

impl Attempt {
    /// Starts the attempt on the host that was picked last on this thread.
    pub fn start(now: impl FnOnce() -> Instant) -> Self {
        let picked = PICKED.with_borrow_mut(Option::take);
        let request = picked.map(|host| Timed {
            request: host.begin_request(),
            issued_at: now(),
            outcome: None,
        });
        Self {
            report: FirstReport::default(),
            request,
        }
    }

    /// Handles response headers of the host at `address`.
    pub fn response_started<'a>(
        &mut self,
        hosts: &OrcaHosts,
        address: impl Fn() -> &'a str,
        headers: &impl Headers,
        now: impl Fn() -> Instant,
    ) {
        if let Some(timed) = self.request.take() {
            self.request = timed.answered(address(), headers, now());
        }
        self.find_report(hosts, address, headers, now);
    }

    /// Looks for a load report in headers or trailers; the first one counts.
    pub fn find_report<'a>(
        &mut self,
        hosts: &OrcaHosts,
        address: impl FnOnce() -> &'a str,
        headers: &impl Headers,
        now: impl FnOnce() -> Instant,
    ) {
        hosts.observe(address, headers, &mut self.report, now);
    }

    /// Ends the attempt. A request without response headers has failed; attempts without a request
    /// end nothing.
    pub fn finish(self) {
        if let Some(timed) = self.request {
            let outcome = timed.outcome.unwrap_or(RequestOutcome::Error);
            timed.request.finish(outcome);
        }
    }
}

impl Timed {
    /// Records the response. Returns `None` if another host answered: Envoy chose that one without
    /// asking the policy.
    fn answered(mut self, address: &str, headers: &impl Headers, now: Instant) -> Option<Self> {
        if parse_address(address) != Some(self.request.host().address()) {
            self.request.withdraw();
            return None;
        }
        let is_error = headers
            .get(":status")
            .is_some_and(|status| status >= &b"500"[..]);
        let outcome = if is_error {
            RequestOutcome::Error
        } else {
            RequestOutcome::Success
        };
        let latency = now.saturating_duration_since(self.issued_at);
        self.request.response_started(outcome, latency);
        self.outcome = Some(outcome);
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plimsoll_core::model::locality::Locality;

    use super::*;
    use crate::cluster::Cluster;
    use crate::config::ModuleConfig;
    use crate::host_sets::assignment;
    use crate::host_sets::tests::Fake;

    const NOW: Instant = Instant::from_secs(1);

    struct Status(&'static str);

    impl Headers for Status {
        fn get(&self, name: &str) -> Option<&[u8]> {
            (name == ":status").then_some(self.0.as_bytes())
        }
    }

    fn host() -> Arc<Host> {
        let config = ModuleConfig::parse("{}")
            .unwrap()
            .cluster("orders")
            .unwrap();
        let cluster = Cluster::new(config, Locality::zone_only("a"), None, NOW);
        let hosts = assignment(&Fake::zones(&[("a", 1)]), "orders").unwrap();
        cluster.handle_hosts(hosts, NOW);
        let snapshot = cluster.snapshot();
        Arc::clone(snapshot.hosts().next().unwrap())
    }

    fn respond(attempt: &mut Attempt, address: &'static str, status: &'static str) {
        let later = || NOW.saturating_add(Duration::from_millis(20));
        attempt.response_started(&OrcaHosts::default(), || address, &Status(status), later);
    }

    #[test]
    fn the_picked_host_has_the_request_until_the_attempt_ends() {
        let host = host();
        set_picked(Some(Arc::clone(&host)));
        let mut attempt = Attempt::start(|| NOW);
        assert_eq!(host.active_requests(), 1);
        // A pick is used once.
        drop(Attempt::start(|| NOW));
        assert_eq!(host.active_requests(), 1);
        respond(&mut attempt, "10.0.1.1:80", "200");
        assert_eq!(host.active_requests(), 1, "the body is still to come");
        attempt.finish();
        assert_eq!(host.active_requests(), 0);
        assert_eq!(host.totals(), (1, 1, 0), "issued, successes, errors");
    }

    #[test]
    fn errors_and_attempts_without_a_response_have_failed() {
        let host = host();
        for status in [Some("503"), None] {
            set_picked(Some(Arc::clone(&host)));
            let mut attempt = Attempt::start(|| NOW);
            if let Some(status) = status {
                respond(&mut attempt, "10.0.1.1:80", status);
            }
            attempt.finish();
        }
        assert_eq!(host.totals(), (2, 0, 2));
        assert_eq!(host.active_requests(), 0);
    }

    #[test]
    fn a_response_of_another_host_takes_the_request_back() {
        let host = host();
        set_picked(Some(Arc::clone(&host)));
        let mut attempt = Attempt::start(|| NOW);
        respond(&mut attempt, "10.0.9.9:80", "200");
        attempt.finish();
        assert_eq!((host.active_requests(), host.totals()), (0, (0, 0, 0)));
        set_picked(Some(Arc::clone(&host)));
        set_picked(None);
        Attempt::start(|| NOW).finish();
        assert_eq!(host.totals(), (0, 0, 0), "not counted");
    }
}
