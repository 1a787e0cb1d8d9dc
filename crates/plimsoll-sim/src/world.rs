//! [`World`]: one policy, one run: the clock, the queue of events, and who handles what.
//!
//! Virtual time lives here and nowhere else. Handlers live below: `requests` (arrivals and
//! answers), `reports` (load of hosts), `control` (load of proxies, fractions), `changes` (starts,
//! failures, the oracle). Everything that decides is the core's: balancers, pickers, hosts, the
//! planner.

mod changes;
mod control;
mod queue;
mod reports;
mod requests;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::locality_picking::demand::FractionMap;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::units::FieldError;

use crate::control_plane::ControlPlane;
use crate::host_model::Hosts;
use crate::metrics::recorder::Recorder;
use crate::network::Network;
use crate::num;
use crate::policy::Policy;
use crate::proxy::Proxy;
use crate::scenario::{NEVER, Scenario};
use crate::situation::Situation;
use crate::topology;
use crate::workload::{Stream, Workload};
use queue::{Event, EventQueue, Slab};
use requests::Request;

/// What a run leaves behind.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) recorder: Recorder,
    /// What the first proxy of each zone says about its routing at the end.
    pub(crate) endings: Vec<Ending>,
}

/// How a proxy routes at the end of a run, in the words of `explain`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Ending {
    pub(crate) zone: String,
    pub(crate) reason: String,
}

/// Everything in one run.
#[derive(Debug)]
pub(crate) struct World<'a> {
    scenario: &'a Scenario,
    workload: &'a Workload,
    policy: Policy,
    config: Arc<ClusterConfig>,
    now: u64,
    queue: EventQueue,
    recorder: Recorder,
    network: Network,
    hosts: Hosts,
    balancers: Vec<Balancer>,
    requests: Slab<Request>,
    reports: Slab<DelayedReport>,
    control: Option<ControlPlane>,
    planner_armed: u64,
    load_reports: Slab<(Node, ClusterStats)>,
    fractions: Slab<FractionMap>,
    /// What is broken now, and what of it is known.
    situation: Situation,
    upstream: ClusterLoadAssignment,
    fleet: ClusterLoadAssignment,
    /// Demand that the oracle has told.
    told: Vec<f64>,
}

/// A place for a proxy, alive or not, and the requests that arrive there.
#[derive(Debug)]
struct Balancer {
    zone: usize,
    /// Number within its zone.
    number: usize,
    stream: Stream,
    proxy: Option<Proxy>,
    /// When its timer event is posted for; [`NEVER`] = none.
    armed: u64,
    /// How often it has been started.
    starts: usize,
}

/// A load report of a host on its way.
#[derive(Debug)]
struct DelayedReport {
    balancer: u32,
    host: Arc<Host>,
    utilization: f64,
}

impl<'a> World<'a> {
    pub(crate) fn new(
        scenario: &'a Scenario,
        workload: &'a Workload,
        policy: Policy,
    ) -> Result<Self, FieldError> {
        let situation = Situation::at(scenario, 0);
        let told = workload.rates(0).to_vec();
        let true_demand = policy.is_oracle().then_some(told.as_slice());
        let upstream = topology::upstream(scenario, &situation, policy.is_oracle())?;
        let fleet = topology::fleet(scenario, &situation, true_demand)?;
        let mut control = match policy.keying() {
            Some(keying) => Some(ControlPlane::new(scenario, keying)?),
            None => None,
        };
        if let Some(control) = &mut control {
            control.handle_endpoints(&upstream, 0);
            control.handle_endpoints(&fleet, 0);
        }
        let mut hosts = Hosts::new(scenario);
        hosts.apply(&situation);
        let mut world = Self {
            scenario,
            workload,
            policy,
            config: policy.checked_config(scenario)?,
            now: 0,
            queue: EventQueue::default(),
            recorder: Recorder::new(scenario),
            network: Network::new(scenario),
            hosts,
            balancers: balancers(scenario),
            requests: Slab::default(),
            reports: Slab::default(),
            control,
            planner_armed: NEVER,
            load_reports: Slab::default(),
            fractions: Slab::default(),
            situation,
            upstream,
            fleet,
            told,
        };
        world.post_beginnings();
        Ok(world)
    }

    /// Lets everything happen. `progress` is told the time about every simulated second.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(u64)) -> Run {
        let mut next_progress = 0;
        while let Some((at, event)) = self.queue.next(self.scenario.duration) {
            debug_assert!(at >= self.now, "time goes on");
            self.now = at;
            if at >= next_progress {
                progress(at);
                next_progress = at + num::SECOND;
            }
            self.handle(event);
        }
        self.recorder.finish(self.requests.len());
        progress(self.scenario.duration);
        Run {
            endings: self.endings(),
            recorder: self.recorder,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Answer(number) => self.answer(number),
            Event::Arrival(balancer) => self.arrival(balancer),
            Event::Detected(step) => self.detected(step),
            Event::Fractions(number) => self.fractions_arrive(number),
            Event::LoadReport(balancer) => self.send_load_report(balancer),
            Event::LoadReportArrives(number) => self.load_report_arrives(number),
            Event::Oracle => self.oracle(),
            Event::OutOfBand(host) => self.out_of_band(host),
            Event::PlannerTimer => self.planner_timer(),
            Event::Report(number) => self.report_arrives(number),
            Event::Start(balancer) => self.start(balancer),
            Event::Step(step) => self.step(step),
            Event::Timer(balancer) => self.timer(balancer),
        }
    }

    /// A balancer wants to be woken.
    fn timer(&mut self, balancer: u32) {
        let place = &mut self.balancers[balancer as usize];
        place.armed = NEVER;
        if let Some(proxy) = &mut place.proxy
            && proxy.poll_timeout() <= self.now
        {
            proxy.handle_timeout(self.now);
        }
        self.arm(balancer);
    }

    /// Posts the timer of a balancer, if it is not posted for that moment or an earlier one.
    fn arm(&mut self, balancer: u32) {
        let place = &mut self.balancers[balancer as usize];
        let Some(proxy) = &place.proxy else { return };
        let due = proxy.poll_timeout().max(self.now);
        if due < place.armed {
            place.armed = due;
            self.queue.post(due, Event::Timer(balancer));
        }
    }

    fn endings(&mut self) -> Vec<Ending> {
        let zones = &self.scenario.zones;
        let first = self.balancers.iter_mut().filter(|place| place.number == 0);
        first
            .filter_map(|place| {
                let explanation = place.proxy.as_mut()?.explain();
                Some(Ending {
                    zone: zones[place.zone].name.clone(),
                    reason: explanation.reason,
                })
            })
            .collect()
    }
}

fn balancers(scenario: &Scenario) -> Vec<Balancer> {
    let zones = scenario.zones.iter().enumerate();
    let places = zones.flat_map(|(zone, settings)| {
        let shares = settings.balancers.iter().enumerate();
        shares.map(move |(number, &share)| (zone, number, share))
    });
    places
        .enumerate()
        .map(|(index, (zone, number, share))| Balancer {
            zone,
            number,
            stream: Stream::new(scenario, index, (zone, share)),
            proxy: None,
            armed: NEVER,
            starts: 0,
        })
        .collect()
}
