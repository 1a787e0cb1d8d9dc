//! Life of a request: it arrives at a proxy, the engine picks a host, the host serves it, the
//! response returns. Requests reach a host in the order in which they were sent; network delay is
//! added to their latency but does not change that order.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::host::{ActiveRequest, Host, RequestOutcome, ReservedRequest};

use super::World;
use super::queue::Event;
use crate::host_model::Outcome;
use crate::num;
use crate::scenario::DataPlane;
use crate::topology;

/// Minimum time without a local request that counts as a lock-out.
const LOCKED_OUT_TIME: u64 = 10 * num::SECOND;
/// How often Plimsoll's data planes try another host for a request that could not be sent.
const UNSENT_RETRIES: usize = 2;

#[derive(Debug)]
pub(super) struct Request {
    pub(super) host: Arc<Host>,
    pub(super) number: usize,
    pub(super) balancer: u32,
    state: AttemptState,
    arrived: u64,
    outcome: Outcome,
    /// Hosts to which no connection was possible.
    tried: Vec<Arc<Host>>,
}

#[derive(Debug)]
enum AttemptState {
    Issued(ActiveRequest),
    /// Waits for a connection. Dropping it leaves no trace in load reports.
    Unsent(#[expect(dead_code, reason = "counts as active until dropped")] ReservedRequest),
}

/// A request that arrived at a balancer and has not found a host yet.
struct Arrived {
    balancer: u32,
    at: u64,
    tried: Vec<Arc<Host>>,
}

impl World<'_> {
    pub(super) fn arrival(&mut self, balancer: u32) {
        let slot = &mut self.balancers[balancer as usize];
        if let Some(at) = self.workload.next_arrival(&mut slot.stream) {
            self.queue.post(at, Event::Arrival(balancer));
        }
        self.recorder.issued(self.now, slot.zone);
        self.send(Arrived {
            balancer,
            at: self.now,
            tried: Vec::new(),
        });
    }

    /// Picks a host and sends the request there.
    fn send(&mut self, arrived: Arrived) {
        let Arrived {
            balancer,
            at,
            tried,
        } = arrived;
        let slot = &mut self.balancers[balancer as usize];
        let (now, zone) = (self.now, slot.zone);
        let Some(proxy) = &mut slot.proxy else {
            return self.recorder.no_host(now, zone);
        };
        let Some(host) = proxy.pick(&tried, now) else {
            proxy.count_dropped();
            return self.recorder.no_host(now, zone);
        };
        let number = topology::host_number(host.address());
        let to = self.hosts.zone(number);
        let delay = self.network.delay(zone == to);
        let link = self.faults.link(zone, to);
        let served = self.hosts.serve(number, link, now + delay);
        let data_plane = self.scenario.balancer.data_plane;
        let state = match served.outcome {
            Outcome::Unconnected if data_plane == DataPlane::Plimsoll => {
                AttemptState::Unsent(host.reserve_request())
            }
            outcome => {
                // A stock Envoy counts a failed connection as an error that was never issued.
                if outcome != Outcome::Unconnected {
                    proxy.count_issued(to);
                }
                AttemptState::Issued(host.begin_request())
            }
        };
        if tried.is_empty() {
            let reachable = self.policy.prefers_local() && self.workload.capacity(now)[zone] > 0.0;
            if let Some(length) = proxy.record_locality(zone == to || !reachable, now)
                && length >= LOCKED_OUT_TIME
            {
                self.recorder.locked_out(balancer as usize, length);
            }
        }
        let request = Request {
            host,
            number,
            balancer,
            state,
            arrived: at,
            outcome: served.outcome,
            tried,
        };
        if !request.is_retried() {
            self.recorder.sent(now, zone, to);
        }
        let number = self.requests.insert(request);
        self.queue.post(served.at + delay, Event::Response(number));
    }

    pub(super) fn response(&mut self, number: u32) {
        let Some(mut request) = self.requests.take(number) else {
            return;
        };
        let slot = &mut self.balancers[request.balancer as usize];
        if let Some(proxy) = &mut slot.proxy {
            match request.state {
                AttemptState::Unsent(_) => proxy.handle_unreachable(&request.host, self.now),
                AttemptState::Issued(_) => proxy.handle_reached(&request.host),
            }
        }
        if request.is_retried() {
            request.tried.push(request.host);
            return self.send(Arrived {
                balancer: request.balancer,
                at: request.arrived,
                tried: request.tried,
            });
        }
        // A host that died while processing the request does not respond either.
        let dead = request.outcome == Outcome::Dead || self.hosts.is_dead(request.number);
        let success = request.outcome == Outcome::Success && !dead;
        let to = self.hosts.zone(request.number);
        let slot = &self.balancers[request.balancer as usize];
        let latency = self.now - request.arrived;
        if success {
            self.recorder.succeeded(self.now, latency);
        } else {
            self.recorder.failed(self.now, slot.zone, to);
        }
        let answered = matches!(request.outcome, Outcome::Success | Outcome::Error);
        if answered && !dead {
            self.report_in_band(&request, to);
            self.count_for_capacity(request.host.address(), request.number, success);
        }
        let AttemptState::Issued(active) = request.state else {
            return;
        };
        // Only successes are timed: a refusal is quick and does not show how long work takes.
        if success {
            active.finish_with_latency(RequestOutcome::Success, Duration::from_nanos(latency));
        } else {
            active.finish(RequestOutcome::Error);
        }
        if let Some(proxy) = &mut self.balancers[request.balancer as usize].proxy {
            proxy.count_response(to, success);
            if !success {
                proxy.handle_error(&request.host, self.now);
            }
        }
    }
}

impl Request {
    /// Whether the request goes to another host, because there was no connection to this one.
    fn is_retried(&self) -> bool {
        matches!(self.state, AttemptState::Unsent(_)) && self.tried.len() < UNSENT_RETRIES
    }
}
