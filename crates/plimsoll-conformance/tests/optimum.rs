//! Compares the cost of plans with the optimum that an independent solver finds, on thousands of
//! random problems: equal for one price and for rings, at most one percent above it for others.
//!
//! The solver is HiGHS, which `scripts/deps.sh test` installs (`peers/optimum`).
#![expect(clippy::unwrap_used, reason = "tests")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use plimsoll_core::planner::transport::{Objective, Prices, Problem, Solution, ZoneLoad};
use plimsoll_core::rng::{Rng as _, Xoshiro256};
use serde_json::json;

const CASES_PER_KIND: usize = 1000;
const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../peers/optimum/optimum.py"
);

type Matrix = Vec<Vec<u32>>;
/// Random prices for a number of zones.
type RandomPrices = fn(&mut Random, usize) -> Matrix;

/// Kinds of prices, and whether they are ultrametric. Few zones may be so by chance.
const KINDS: [(&str, RandomPrices, bool); 6] = [
    ("one price", one_price, true),
    ("rings", rings, true),
    ("shortest ways", shortest_ways, false),
    ("prices between regions", between_regions, false),
    ("any", any, false),
    ("nearly equal", nearly_equal, false),
];

struct Random(Xoshiro256);

impl Random {
    fn below(&mut self, limit: u32) -> u32 {
        u32::try_from(self.0.next_u64() % u64::from(limit)).unwrap()
    }

    /// A list of numbers below `limit`, one for each zone.
    fn list(&mut self, zones: usize, limit: u32) -> Vec<u32> {
        (0..zones).map(|_| self.below(limit)).collect()
    }

    /// Zones of which one in eight has no demand, and one in eight no hosts.
    fn zones(&mut self) -> Vec<ZoneLoad> {
        let unit = [1, 1000, 100_000_u32][self.below(3) as usize];
        let mut amount = |limit| match self.below(8) {
            0 => 0,
            _ => u64::from(self.below(limit * unit)),
        };
        let mut zone = || ZoneLoad {
            demand: amount(1000),
            capacity: amount(1500),
        };
        let first = zone();
        let count = 1 + first.demand % 11;
        let others = (0..count).map(|_| zone());
        std::iter::once(first).chain(others).collect()
    }

    fn objective(&mut self) -> Objective {
        match self.below(5) {
            0 => Objective::LEVEL,
            _ => Objective::waterfall(f64::from(1 + self.below(100)) / 100.0).unwrap(),
        }
    }
}

fn matrix(zones: usize, mut price: impl FnMut(usize, usize) -> u32) -> Matrix {
    let mut of = |from, to| if from == to { 0 } else { price(from, to) };
    let row = |from| (0..zones).map(|to| of(from, to)).collect();
    (0..zones).map(row).collect()
}

fn one_price(random: &mut Random, zones: usize) -> Matrix {
    let price = 1 + random.below(20);
    matrix(zones, |_, _| price)
}

fn rings(random: &mut Random, zones: usize) -> Matrix {
    let (regions, racks) = (random.list(zones, 3), random.list(zones, 3));
    let prices: Vec<u32> = [1, 1, 1].map(|least| least + random.below(9)).into();
    let (rack, region) = (prices[0], prices[0] + prices[1]);
    matrix(zones, |from, to| {
        match (regions[from] == regions[to], racks[from] == racks[to]) {
            (true, true) => rack,
            (true, false) => region,
            (false, _) => region + prices[2],
        }
    })
}

fn shortest_ways(random: &mut Random, zones: usize) -> Matrix {
    let limit = [5, 50, 5000][random.below(3) as usize];
    let mut prices = matrix(zones, |_, _| 1 + random.below(limit));
    for via in 0..zones {
        for from in 0..zones {
            for to in 0..zones {
                prices[from][to] = prices[from][to].min(prices[from][via] + prices[via][to]);
            }
        }
    }
    prices
}

fn between_regions(random: &mut Random, zones: usize) -> Matrix {
    let region = random.list(zones, 4);
    let lanes = random.list(16, 20);
    matrix(zones, |from, to| {
        let (from, to) = (region[from].min(region[to]), region[from].max(region[to]));
        if from == to {
            2
        } else {
            5 + lanes[(from * 4 + to) as usize]
        }
    })
}

fn any(random: &mut Random, zones: usize) -> Matrix {
    matrix(zones, |_, _| random.below(100))
}

fn nearly_equal(random: &mut Random, zones: usize) -> Matrix {
    matrix(zones, |_, _| 1000 + random.below(20))
}

/// Returns a random plan for prices of a kind.
fn plan(random: &mut Random, prices: RandomPrices) -> (Solution, Matrix) {
    loop {
        let (zones, objective) = (random.zones(), random.objective());
        let prices = prices(random, zones.len());
        // Without any hosts there is no plan.
        if let Ok(problem) = Problem::try_new(&zones, objective) {
            let known = Prices::matrix(&prices).unwrap();
            return (problem.solve(&known).unwrap(), prices);
        }
    }
}

/// Returns the cost of the optimum of each problem, a line of JSON each.
fn optima(problems: String) -> Vec<f64> {
    let python = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../checks/venv/bin/python");
    assert!(
        python.is_file(),
        "HiGHS is not installed: run `make test` (or scripts/deps.sh test) once"
    );
    let mut solver = Command::new(python)
        .arg(SCRIPT)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = solver.stdin.take().unwrap();
    let writer = std::thread::spawn(move || input.write_all(problems.as_bytes()));
    let output = solver.wait_with_output().unwrap();
    writer.join().unwrap().unwrap();
    assert!(
        output.status.success(),
        "the solver failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
#[expect(clippy::cast_precision_loss, reason = "costs are far below 2^53")]
fn plans_cost_what_an_independent_solver_finds() {
    let mut random = Random(Xoshiro256::from_seed(35));
    let (mut plans, mut problems) = (Vec::new(), String::new());
    for (kind, prices, nested) in KINDS {
        for _ in 0..CASES_PER_KIND {
            let (solution, price) = plan(&mut random, prices);
            let problem = solution.problem();
            let demand: Vec<u64> = problem.zones().iter().map(|zone| zone.demand).collect();
            let line = json!({"demand": demand, "bound": problem.bounds(), "price": price});
            problems += &format!("{line}\n");
            let mut loads = solution.loads().into_iter().zip(problem.bounds());
            assert!(loads.all(|(load, bound)| load <= *bound), "{line}");
            plans.push((kind, nested, solution.cost() as f64, line));
        }
    }
    let optima = optima(problems);
    assert_eq!(optima.len(), plans.len());
    let mut crossing = 0;
    for ((kind, nested, cost, line), optimum) in plans.iter().zip(&optima) {
        let rounding = 1e-9 * optimum + 1e-6;
        let most = if *nested { *optimum } else { optimum * 1.01 };
        let expected = optimum - rounding..=most + rounding;
        assert!(
            expected.contains(cost),
            "{kind}: {cost}, optimum {optimum}: {line}"
        );
        crossing += usize::from(*optimum > 0.0);
    }
    assert!(
        crossing > plans.len() / 2,
        "only {crossing} problems are hard"
    );
}
