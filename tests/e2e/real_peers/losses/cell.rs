//! One cell of the matrix: starts two fleets, takes something away, and compares them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::MOST_FAILED;
use crate::support::backends::{Cut, Death};
use crate::support::sides::{DataPlane, Outcome, Routing, Setup, Sides};
use crate::support::wait_until;

/// Requests of each side in a measured window: 8 s.
const REQUESTS: u64 = 1600;
/// Requests of each side in half a minute: while a zone comes and goes, demand and host counts
/// take turns, and with each change of their cluster Envoys forget which hosts they ejected.
const HALF_A_MINUTE: u64 = 6000;
/// Requests of each side during the connect timeout of 5 s.
const CONNECTING: u64 = 1000;
/// Windows after which a cell has failed. On an idle machine the first one is as good as host
/// counts; on a busy one a report or an update may be late.
const WINDOWS: usize = 3;
/// Failed share that may exceed that of host counts. Once host counts are in force both sides send
/// the same share of the same traffic to each zone, nothing of it is random, and the shares differ
/// by at most one tick of 10 in 1600 requests at each end of the window, 1.3 points.
const TOLERANCE: f64 = 0.025;
/// Load of a zone that may exceed the highest with host counts. Of 1600 requests a zone gets at
/// most 800 by chance, with a standard deviation of at most 20: 0.038 in load. Three windows that
/// are all 0.15 too high by chance: once in 10^12 runs.
const LOAD_TOLERANCE: f64 = 0.15;
/// Requests of each side in a minute, and the failed share that may exceed that of host counts in
/// them, which is what we promise. A tick of 10 requests at each end of the window is 0.2 points.
const A_MINUTE: u64 = 12_000;
/// Windows in which a minute is measured.
const PARTS: u64 = 3;
const PROMISED: f64 = 0.01;
/// Period of a flapping zone, near the interval of load reports.
const FLAPPING: Duration = Duration::from_millis(1300);

#[derive(Clone, Copy, Debug)]
pub(super) enum Loss {
    Zone(Death),
    HalfOfZone(Death),
    /// Of five hosts in each zone: too few for the zone to fail, and each request that moves there
    /// has a fifth of a chance to.
    OneOfFive(Death),
    TwoZones(Death),
    Flapping(Death),
    /// Of the link from zone-a to zone-b: one request in this many. Others reach both zones.
    Link(u64, Death),
    /// Connections to the control plane, or those of load reports only, are closed and refused.
    LinkClosed,
    /// They take bytes that never arrive.
    LinkHalfOpen,
    ControlKilled,
    ControlHung,
}

impl Loss {
    const fn death(self) -> Option<Death> {
        match self {
            Self::Zone(death)
            | Self::HalfOfZone(death)
            | Self::OneOfFive(death)
            | Self::TwoZones(death)
            | Self::Flapping(death)
            | Self::Link(_, death) => Some(death),
            _ => None,
        }
    }

    const fn is_silence(self) -> bool {
        matches!(
            self,
            Self::LinkClosed | Self::LinkHalfOpen | Self::ControlKilled | Self::ControlHung
        )
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Cell {
    data_plane: DataPlane,
    routing: Routing,
    delivery: &'static str,
    loss: Loss,
    /// Requests per tick in each zone before the loss.
    demand: [u64; 3],
    /// The same after it.
    then: [u64; 3],
    /// Field of the cluster that tells data planes about dead hosts.
    remedy: &'static str,
}

impl Cell {
    /// Half of the demand is in zone-a, whose excess goes to zone-b, which dies; or signals are
    /// lost while the demand moves to zone-b, which has no spare capacity any more.
    pub(super) const fn new(data_plane: DataPlane, delivery: &'static str, loss: Loss) -> Self {
        let demand = [5, 2, 3];
        let then = if loss.is_silence() { [4, 4, 2] } else { demand };
        let cell = Self {
            data_plane,
            routing: Routing::Demand,
            delivery,
            loss,
            demand,
            then,
            remedy: "",
        };
        cell.connecting_in_time()
    }

    /// The same with the `connect_timeout` of docs/control.md, shorter than clients wait. A part
    /// of a zone that swallows connections is in no load report otherwise (docs/operations.md).
    const fn connecting_in_time(mut self) -> Self {
        if matches!(self.loss, Loss::HalfOfZone(Death::BlackHole)) {
            self.remedy = "connect_timeout: 1s";
        }
        self
    }

    /// The same with other demand.
    pub(super) const fn with_demand(mut self, demand: [u64; 3]) -> Self {
        (self.demand, self.then) = (demand, demand);
        self
    }

    /// The same with another kind of routing.
    pub(super) const fn routed(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    pub(super) const fn with_remedy(mut self, remedy: &'static str) -> Self {
        self.remedy = remedy;
        self
    }

    /// Whether this data plane cannot know that its weights are old: locality weights of xDS do not
    /// expire, and nobody can send others. No request fails, but a step in demand is not followed.
    fn keeps_weights(&self) -> bool {
        let is_cut_off = match self.loss {
            Loss::ControlKilled | Loss::ControlHung => true,
            // The link of stock Envoys carries load reports only.
            Loss::LinkClosed | Loss::LinkHalfOpen => self.data_plane.is_grpc(),
            _ => false,
        };
        is_cut_off && self.delivery == "LOCALITY_WEIGHTS"
    }

    /// Returns the highest load if weights stay those of the demand before the loss: each zone
    /// keeps what fits into its third of all requests, and the excess goes where there was room.
    fn load_of_kept_weights(&self) -> f64 {
        let parts = |demand: [u64; 3]| {
            let total = demand.iter().sum::<u64>() as f64;
            demand.map(|requests| requests as f64 * 3.0 / total)
        };
        let (before, then) = (parts(self.demand), parts(self.then));
        let room = before.map(|part| (1.0 - part).max(0.0));
        let all_room: f64 = room.iter().sum();
        let mut load = [0.0; 3];
        for (from, part) in then.into_iter().enumerate() {
            let kept = if before[from] > 1.0 {
                1.0 / before[from]
            } else {
                1.0
            };
            load[from] += part * kept;
            for (to, room) in room.into_iter().enumerate() {
                load[to] += part * (1.0 - kept) * room / all_room.max(f64::MIN_POSITIVE);
            }
        }
        load.into_iter().fold(0.0, f64::max)
    }

    pub(super) fn name(&self) -> String {
        let loss = format!("{:?}", self.loss).to_lowercase();
        let routing = match self.routing {
            Routing::Demand => self.delivery.to_owned(),
            Routing::RelayedDemand => format!("relayed-{}", self.delivery),
            routing => format!("{routing:?}"),
        };
        let name = format!("{:?}-{routing}-{loss}", self.data_plane).to_lowercase();
        let words = name.replace(|other: char| !other.is_ascii_alphanumeric(), "-");
        words.trim_end_matches('-').to_owned()
    }
}

/// Runs a cell and prints its figures. Returns a line if demand was worse.
pub(super) fn run(cell: &Cell) -> Option<String> {
    let name = cell.name();
    let mut sides = start(cell);
    let _flapping = lose(cell.loss, &mut sides);
    sides.set(cell.then);
    settle(cell.loss, &mut sides);
    let mut worse = None;
    for number in 1..=WINDOWS {
        let [by_demand, by_hosts] = sides.window(REQUESTS);
        let line = format!(
            "{name:<45} window {number}: {}",
            compare(by_demand, by_hosts)
        );
        eprintln!("matrix {line}");
        let too_many = by_demand.tally.failed_share() > by_hosts.tally.failed_share() + TOLERANCE;
        let allowed = if cell.keeps_weights() {
            cell.load_of_kept_weights()
        } else {
            by_hosts.highest_load()
        };
        let too_high = by_demand.highest_load() > allowed + LOAD_TOLERANCE;
        worse = (too_many || too_high).then_some(line);
        if worse.is_none() {
            break;
        }
    }
    assert!(sides.by_demand.is_alive() && sides.by_hosts.is_alive());
    worse
}

/// Compares both sides for a minute from the second load report on, once. Returns a line if demand
/// failed more requests than we promise.
pub(super) fn breaks_promise(cell: &Cell) -> Option<String> {
    let mut sides = start(cell);
    let _flapping = lose(cell.loss, &mut sides);
    settle(cell.loss, &mut sides);
    let mut sums = [Outcome::default(); 2];
    for _ in 0..PARTS {
        for (sum, part) in sums.iter_mut().zip(sides.window(A_MINUTE / PARTS)) {
            sum.tally.add(part.tally);
            sum.served
                .iter_mut()
                .zip(part.served)
                .for_each(|(sum, count)| *sum += count);
        }
    }
    let [by_demand, by_hosts] = sums;
    let line = format!("{:<45} {}", cell.name(), compare(by_demand, by_hosts));
    eprintln!("matrix {line}");
    let limit = by_hosts.tally.failed_share() + PROMISED;
    (by_demand.tally.failed_share() > limit).then_some(line)
}

/// Runs a cell with a remedy, and returns the share of requests that fail from 30 s on, in the
/// better one of two windows.
pub(super) fn failed_after_30_s(cell: &Cell) -> f64 {
    let mut sides = start(cell);
    let _flapping = lose(cell.loss, &mut sides);
    let [before, _] = sides.window(HALF_A_MINUTE);
    let requests = if matches!(cell.loss, Loss::Flapping(_)) {
        HALF_A_MINUTE
    } else {
        REQUESTS
    };
    let failed = before.tally.failed_share();
    let mut least = f64::INFINITY;
    // A remedy that works works from here on. On a busy machine an answer that takes longer than
    // clients wait counts as failed, too, but hardly 2 % of them in two windows.
    for _ in 0..2 {
        let [after, by_hosts] = sides.window(requests);
        let line = compare(after, by_hosts);
        eprintln!(
            "matrix {:<45} failed {failed:.3} for 30 s, then: {line}",
            cell.name()
        );
        least = least.min(after.tally.failed_share());
        if least <= MOST_FAILED {
            break;
        }
    }
    least
}

fn start(cell: &Cell) -> Sides {
    let setup = Setup {
        data_plane: cell.data_plane,
        routing: cell.routing,
        delivery: cell.delivery,
        hosts: match cell.loss {
            Loss::OneOfFive(_) => 5,
            _ => 2,
        },
        field: cell.remedy,
    };
    Sides::start(&cell.name(), setup, cell.demand)
}

fn compare(by_demand: Outcome, by_hosts: Outcome) -> String {
    let failed = |side: Outcome| 100.0 * side.tally.failed_share();
    format!(
        "failed {:5.1} %, by host counts {:5.1} %; highest load {:.2}, by host counts {:.2}",
        failed(by_demand),
        failed(by_hosts),
        by_demand.highest_load(),
        by_hosts.highest_load(),
    )
}

/// Takes something away, on both sides if hosts die.
fn lose(loss: Loss, sides: &mut Sides) -> Option<Flapping> {
    match loss {
        Loss::Zone(death) => sides.for_backends(|backends| backends.kill("zone-b", death)),
        Loss::HalfOfZone(death) | Loss::OneOfFive(death) => {
            sides.for_backends(|backends| backends.kill_some("zone-b", 1, death));
        }
        Loss::TwoZones(death) => sides.for_backends(|backends| {
            backends.kill("zone-b", death);
            backends.kill("zone-c", death);
        }),
        Loss::Flapping(death) => return Some(Flapping::start(sides, death)),
        Loss::Link(one_of, death) => sides.for_backends(|backends| {
            backends.cut(Cut {
                from: "zone-a",
                to: "zone-b",
                one_of,
                death,
            });
        }),
        Loss::LinkClosed => sides.by_demand.gate.close(),
        Loss::LinkHalfOpen => sides.by_demand.gate.set_open(false),
        Loss::ControlKilled => sides.by_demand.control.kill(),
        Loss::ControlHung => sides.by_demand.control.hang(),
    }
    None
}

/// Waits until a loss should have been noticed: two reports of every node, or the time until
/// silence is noticed, which is 5 s at most.
fn settle(loss: Loss, sides: &mut Sides) {
    if loss.is_silence() {
        sides.window(REQUESTS);
        return;
    }
    if loss.death() == Some(Death::BlackHole) {
        // Until the connect timeout, requests wait for a connection and nobody can tell.
        sides.window(CONNECTING);
    }
    let reports = |sides: &Sides| sides.by_demand.load_reports();
    let from = reports(sides);
    wait_until("two reports of each node", || reports(sides) >= from + 6);
    sides.window(1);
}

/// Thread that kills and revives zone-b; stopped when dropped.
struct Flapping {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flapping {
    fn start(sides: &Sides, death: Death) -> Self {
        let backends = [&sides.by_demand, &sides.by_hosts].map(|side| Arc::clone(&side.backends));
        let stop = Arc::<AtomicBool>::default();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                backends.iter().for_each(|side| side.kill("zone-b", death));
                std::thread::sleep(FLAPPING / 2);
                backends.iter().for_each(|side| side.revive("zone-b"));
                std::thread::sleep(FLAPPING / 2);
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Flapping {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already printed.
            let _ = thread.join();
        }
    }
}
