//! [`World`]: the simulation of one policy: clock, event queue and event handlers. Virtual time is
//! kept here only. The handlers are in `requests` (arrivals and responses), `reports` (load reports
//! of hosts), `control` (load reports of proxies, fractions) and `changes` (starts, failures, the
//! oracle). All decisions are made by the core: balancers, pickers, hosts, the planner.

mod capacity;
mod changes;
mod control;
mod objective;
mod queue;
mod reports;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_core::host::Host;
use plimsoll_core::model::assignment::ClusterLoadAssignment;
use plimsoll_core::model::cluster::ClusterConfig;
use plimsoll_core::model::load_report::{ClusterStats, Node};
use plimsoll_core::planner::Plan;
use plimsoll_core::planner::capacity::LearnedCapacity;
use plimsoll_core::planner::fractions::ZoneFraction;
use plimsoll_core::planner::weights::ReceiverWeights;
use plimsoll_core::units::FieldError;

use crate::control_plane::ControlPlane;
use crate::faults::Faults;
use crate::host_model::Hosts;
use crate::ignored_zones::Ignored;
use crate::metrics::recorder::Recorder;
use crate::network::Network;
use crate::num;
use crate::policy::Policy;
use crate::proxy::Proxy;
use crate::report::ZonesIgnored;
use crate::scenario::{NEVER, Scenario};
use crate::topology;
use crate::workload::{Stream, Workload};
use capacity::Learning;
use objective::Planning;
use queue::{Event, EventQueue, Slab};
use requests::Request;

#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) recorder: Recorder,
    /// Final routing of the first proxy of each zone.
    pub(crate) endings: Vec<FinalRouting>,
    pub(crate) zones_ignored: Vec<ZonesIgnored>,
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
    /// Sent instead while a zone fails into which measured demand would spill.
    failing_config: Arc<ClusterConfig>,
    /// Sent while a zone is tried.
    trial_config: Arc<ClusterConfig>,
    delivery: Delivery,
    /// The latest plan that arrived.
    plan: Option<Arc<Plan>>,
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
    plans: Slab<Arc<Plan>>,
    /// Demand that stock Envoys were sent last; if empty, host counts.
    sent_zones: Vec<ZoneFraction>,
    /// Faults in effect now; `upstream` and `fleet` reflect those that have been detected.
    faults: Faults,
    upstream: ClusterLoadAssignment,
    fleet: ClusterLoadAssignment,
    /// Demand last given to the oracle policy.
    announced: Vec<f64>,
    /// `None` if all zones shall be equally full.
    planning: Option<Planning>,
    /// `None` if capacity is as written.
    learning: Option<Learning>,
    learned: Slab<LearnedCapacity>,
}

/// What proxies are sent for the cluster.
#[derive(Debug, PartialEq)]
enum Delivery {
    /// The settings of the policy, without weights.
    Steered,
    HostCounts,
    /// Locality weights between host counts and demand, while a zone is tried that was unseen.
    Trial(Vec<ReceiverWeights>),
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
    /// When zones were ignored by proxies that ended.
    ignored: Vec<Ignored>,
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
            Some(demand_key) => Some(ControlPlane::new(scenario, demand_key, 0)?),
            None => None,
        };
        if let Some(control) = &mut control {
            control.handle_endpoints(&fleet, 0);
        }
        let mut hosts = Hosts::new(scenario);
        hosts.apply(&faults);
        let config = policy.cluster_config(scenario)?;
        let mut world = Self {
            scenario,
            workload,
            policy,
            trial_config: Arc::new(config.with_locality_weights()),
            config: Arc::new(config),
            failing_config: Arc::new(policy.config_while_failing(scenario)?),
            delivery: Delivery::Steered,
            plan: None,
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
            plans: Slab::default(),
            sent_zones: Vec::new(),
            planning: Planning::new(scenario, policy),
            learning: Learning::new(scenario, policy),
            learned: Slab::default(),
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
            zones_ignored: self.zones_ignored(),
            recorder: self.recorder,
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Response(number) => self.response(number),
            Event::Arrival(balancer) => self.arrival(balancer),
            Event::Capacity(number) => self.capacity_arrives(number),
            Event::Detected(step) => self.detected(step),
            Event::LoadReport(balancer) => self.send_load_report(balancer),
            Event::LoadReportArrives(number) => self.load_report_arrives(number),
            Event::Oracle => self.oracle(),
            Event::OutOfBand(host) => self.out_of_band(host),
            Event::Plan(number) => self.plan_arrives(number),
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

    /// Returns when zones were ignored. Proxies that did at the same time for the same reason are
    /// listed together.
    fn zones_ignored(&mut self) -> Vec<ZonesIgnored> {
        let mut found: BTreeMap<(u64, u64, Arc<str>), Vec<String>> = BTreeMap::new();
        for slot in self.balancers.iter_mut().filter(|slot| slot.number == 0) {
            let end = self.scenario.duration;
            if let Some(proxy) = &mut slot.proxy {
                slot.ignored.extend(proxy.take_ignored_zones(end));
            }
            for one in slot.ignored.drain(..) {
                let zones = found.entry((one.from, one.until, one.reason)).or_default();
                zones.push(self.scenario.zones[slot.zone].name.clone());
            }
        }
        let entries = found.into_iter().map(|((from, until, reason), at)| {
            let ended = until < self.scenario.duration;
            ZonesIgnored {
                at,
                from_s: num::seconds(from),
                until_s: ended.then(|| num::seconds(until)),
                reason: reason.to_string(),
            }
        });
        entries.collect()
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
            ignored: Vec::new(),
        })
        .collect()
}
