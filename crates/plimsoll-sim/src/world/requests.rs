//! Life of a request: it arrives at a proxy, the engine picks a host, the host serves it, the
//! response returns. Requests reach a host in the order in which they were sent; network delay is
//! added to their latency but does not change that order.

use std::time::Duration;

use plimsoll_core::host::{ActiveRequest, RequestOutcome};
use plimsoll_core::picker::{PickArgs, PickResult};

use super::World;
use super::queue::Event;
use crate::host_model::Outcome;
use crate::num;
use crate::topology;

/// Minimum time without a local request that counts as a lock-out.
const LOCKED_OUT_TIME: u64 = 10 * num::SECOND;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) active: ActiveRequest,
    pub(super) balancer: u32,
    pub(super) host: u32,
    sent: u64,
    outcome: Outcome,
}

impl World<'_> {
    pub(super) fn arrival(&mut self, balancer: u32) {
        let slot = &mut self.balancers[balancer as usize];
        if let Some(at) = self.workload.next_arrival(&mut slot.stream) {
            self.queue.post(at, Event::Arrival(balancer));
        }
        let (now, zone) = (self.now, slot.zone);
        self.recorder.issued(now, zone);
        let Some(proxy) = &mut slot.proxy else {
            return self.recorder.no_host(now);
        };
        let PickResult::Complete(pick) = proxy.picker.pick(PickArgs::default()) else {
            proxy.count_dropped();
            return self.recorder.no_host(now);
        };
        let active = pick.host.begin_request();
        let host = topology::host_number(active.host().address());
        let to = self.hosts.zone(host);
        proxy.count_issued(to);
        self.recorder.sent(now, zone, to);
        let reachable = self.policy.prefers_local() && self.workload.capacity(now)[zone] > 0.0;
        if let Some(length) = proxy.record_locality(zone == to || !reachable, now)
            && length >= LOCKED_OUT_TIME
        {
            self.recorder.locked_out(balancer as usize, length);
        }
        let delay = self.network.delay(zone == to);
        let served = self.hosts.serve(host, now + delay);
        let request = Request {
            active,
            balancer,
            host: num::index(host),
            sent: now,
            outcome: served.outcome,
        };
        let number = self.requests.insert(request);
        self.queue.post(served.at + delay, Event::Response(number));
    }

    pub(super) fn response(&mut self, number: u32) {
        let Some(request) = self.requests.take(number) else {
            return;
        };
        let host = request.host as usize;
        // A host that died while processing the request does not respond either.
        let dead = request.outcome == Outcome::Dead || self.hosts.is_dead(host);
        let success = request.outcome == Outcome::Success && !dead;
        self.recorder
            .responded(self.now, self.now - request.sent, success);
        let zone = self.hosts.zone(host);
        if let Some(proxy) = &mut self.balancers[request.balancer as usize].proxy {
            proxy.count_response(zone, success);
        }
        if !dead {
            self.report_in_band(&request, zone);
        }
        // Only successes are timed: a refusal is quick and does not show how long work takes.
        if success {
            let latency = Duration::from_nanos(self.now - request.sent);
            request
                .active
                .finish_with_latency(RequestOutcome::Success, latency);
        } else {
            request.active.finish(RequestOutcome::Error);
        }
    }
}
