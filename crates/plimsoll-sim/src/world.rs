//! [`World`]: the simulation of one policy: clock, event queue and event handlers. Virtual time is
//! kept here only. The handlers are in `requests` (arrivals and responses), `reports` (load reports
//! of hosts), `control` (load reports of proxies, fractions) and `changes` (starts, failures, the
//! oracle). All decisions are made by the core: balancers, pickers, hosts, the planner.

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
use crate::faults::Faults;
use crate::host_model::Hosts;
use crate::metrics::recorder::Recorder;
use crate::network::Network;
use crate::num;
use crate::policy::Policy;
use crate::proxy::Proxy;
use crate::scenario::{NEVER, Scenario};
use crate::topology;
use crate::workload::{Stream, Workload};
use queue::{Event, EventQueue, Slab};
use requests::Request;

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) recorder: Recorder,
    /// Final routing of the first proxy of each zone.
    pub(crate) endings: Vec<FinalRouting>,
}

/// Why a proxy routes as it does at the end of a run, as `explain` reports it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FinalRouting {
    pub(crate) zone: String,
    pub(crate) reason: String,
}

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
    balancers: Vec<BalancerSlot>,
    requests: Slab<Request>,
    reports: Slab<DelayedReport>,
    control: Option<ControlPlane>,
    planner_timer_at: u64,
    load_reports: Slab<(Node, ClusterStats)>,
    fractions: Slab<FractionMap>,
    /// Faults in effect now; `upstream` and `fleet` reflect those that have been detected.
    faults: Faults,
    upstream: ClusterLoadAssignment,
    fleet: ClusterLoadAssignment,
    /// Demand last given to the oracle policy.
    announced: Vec<f64>,
}

#[derive(Debug)]
struct BalancerSlot {
    zone: usize,
    /// Index of the balancer within its zone.
    number: usize,
    stream: Stream,
    proxy: Option<Proxy>,
    /// Time of the balancer's posted timer event; [`NEVER`] = none.
    timer_at: u64,
    starts: usize,
}

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
        let faults = Faults::at(scenario, 0);
        let announced = workload.rates(0).to_vec();
        let true_demand = policy.is_oracle().then_some(announced.as_slice());
        let upstream = topology::upstream(scenario, &faults, policy.is_oracle())?;
        let fleet = topology::fleet(scenario, &faults, true_demand)?;
        let mut control = match policy.demand_key() {
            Some(demand_key) => Some(ControlPlane::new(scenario, demand_key)?),
            None => None,
        };
        if let Some(control) = &mut control {
            control.handle_endpoints(&fleet, 0);
        }
        let mut hosts = Hosts::new(scenario);
        hosts.apply(&faults);
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
            planner_timer_at: NEVER,
            load_reports: Slab::default(),
            fractions: Slab::default(),
            faults,
            upstream,
            fleet,
            announced,
        };
        world.post_initial_events();
        Ok(world)
    }

    /// Runs to the end. `progress` gets the time about once per simulated second.
    pub(crate) fn run(mut self, progress: &mut dyn FnMut(u64)) -> Run {
        let mut next_progress = 0;
        while let Some((at, event)) = self.queue.next(self.scenario.duration) {
            debug_assert!(at >= self.now, "time never goes back");
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
            Event::Response(number) => self.response(number),
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

    fn timer(&mut self, balancer: u32) {
        let slot = &mut self.balancers[balancer as usize];
        slot.timer_at = NEVER;
        if let Some(proxy) = &mut slot.proxy
            && proxy.poll_timeout() <= self.now
        {
            proxy.handle_timeout(self.now);
        }
        self.arm(balancer);
    }

    /// Posts the timer of a balancer, unless one is posted for the same or an earlier time.
    fn arm(&mut self, balancer: u32) {
        let slot = &mut self.balancers[balancer as usize];
        let Some(proxy) = &slot.proxy else { return };
        let due = proxy.poll_timeout().max(self.now);
        if due < slot.timer_at {
            slot.timer_at = due;
            self.queue.post(due, Event::Timer(balancer));
        }
    }

    fn endings(&mut self) -> Vec<FinalRouting> {
        let zones = &self.scenario.zones;
        let first = self.balancers.iter_mut().filter(|slot| slot.number == 0);
        first
            .filter_map(|slot| {
                let explanation = slot.proxy.as_mut()?.explain();
                Some(FinalRouting {
                    zone: zones[slot.zone].name.clone(),
                    reason: explanation.reason,
                })
            })
            .collect()
    }
}

fn balancers(scenario: &Scenario) -> Vec<BalancerSlot> {
    let zones = scenario.zones.iter().enumerate();
    let slots = zones.flat_map(|(zone, settings)| {
        let shares = settings.balancers.iter().enumerate();
        shares.map(move |(number, &share)| (zone, number, share))
    });
    slots
        .enumerate()
        .map(|(index, (zone, number, share))| BalancerSlot {
            zone,
            number,
            stream: Stream::new(scenario, index, zone, share),
            proxy: None,
            timer_at: NEVER,
            starts: 0,
        })
        .collect()
}
