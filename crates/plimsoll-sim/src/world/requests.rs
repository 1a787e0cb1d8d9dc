//! Requests: they arrive at a proxy, the engine picks a host, the host serves them, the answer
//! comes back.
//!
//! Requests reach a host in the order in which they were sent; the milliseconds of the network are
//! added to their latency, not to that order.

use std::time::Duration;

use plimsoll_core::host::{ActiveRequest, RequestOutcome};
use plimsoll_core::picker::{PickArgs, PickResult};

use super::World;
use super::queue::Event;
use crate::host_model::Outcome;
use crate::num;
use crate::topology;

/// Shorter times without a local request are nobody's lock-out.
const LOCKED_OUT_TIME: u64 = 10 * num::SECOND;

/// A request under way.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) active: ActiveRequest,
    pub(super) balancer: u32,
    pub(super) host: u32,
    sent: u64,
    outcome: Outcome,
}

impl World<'_> {
    /// A request arrives at a proxy.
    pub(super) fn arrival(&mut self, balancer: u32) {
        let place = &mut self.balancers[balancer as usize];
        if let Some(at) = self.workload.next_arrival(&mut place.stream) {
            self.queue.post(at, Event::Arrival(balancer));
        }
        let (now, zone) = (self.now, place.zone);
        self.recorder.issued(now, zone);
        let Some(proxy) = &mut place.proxy else {
            return self.recorder.unpicked(now);
        };
        let PickResult::Complete(pick) = proxy.picker.pick(PickArgs::default()) else {
            proxy.count_dropped();
            return self.recorder.unpicked(now);
        };
        let active = pick.host.begin_request();
        let host = topology::host_number(active.host().address());
        let to = self.hosts.zone(host);
        proxy.count_issued(to);
        self.recorder.sent(now, zone, to);
        let reachable = self.policy.prefers_local() && self.workload.capacity(now)[zone] > 0.0;
        if let Some(length) = proxy.note_locality(zone == to || !reachable, now)
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
        self.queue.post(served.at + delay, Event::Answer(number));
    }

    /// An answer arrives at its proxy.
    pub(super) fn answer(&mut self, number: u32) {
        let Some(request) = self.requests.take(number) else {
            return;
        };
        let host = request.host as usize;
        // A host that died with the request in hand does not answer either.
        let dead = request.outcome == Outcome::Dead || self.hosts.is_dead(host);
        let success = request.outcome == Outcome::Success && !dead;
        self.recorder
            .answered(self.now, self.now - request.sent, success);
        let zone = self.hosts.zone(host);
        if let Some(proxy) = &mut self.balancers[request.balancer as usize].proxy {
            proxy.count_answer(zone, success);
        }
        if !dead {
            self.report_in_band(&request, zone);
        }
        // Only answers are timed: a refusal is quick, and says nothing about how long work takes.
        if success {
            let latency = Duration::from_nanos(self.now - request.sent);
            request
                .active
                .finish_after(RequestOutcome::Success, latency);
        } else {
            request.active.finish(RequestOutcome::Error);
        }
    }
}
