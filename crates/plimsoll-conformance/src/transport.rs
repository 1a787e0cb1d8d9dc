//! Suite `transport`: the cheapest split of a service's demand over zones, and which demand it is
//! made for while zones are at their target.

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::transport::{Hysteresis, Objective, Prices, Problem, ZoneLoad};
use plimsoll_core::time::Instant;
use plimsoll_core::units::FieldError;
use serde::Deserialize;
use serde_json::json;

use super::{Case, CaseError, CaseResult};

pub(super) fn run(case: &Case) -> CaseResult {
    match case.kind.as_str() {
        "plan" => plan(&case.inputs()?),
        "hysteresis" => hysteresis(&case.inputs()?),
        _ => Err(CaseError::unknown_kind(case)),
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanInputs {
    demand: Vec<u64>,
    capacity: Vec<u64>,
    target_utilization: Option<f64>,
    prices: Option<PricesInput>,
}

/// Prices of rings, or a matrix.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PricesInput {
    /// Region, zone and sub-zone; the last ones may be missing.
    localities: Option<Vec<Vec<String>>>,
    between_zones: Option<u32>,
    between_regions: Option<u32>,
    matrix: Option<Vec<Vec<u32>>>,
}

impl PricesInput {
    fn prices(&self) -> Result<Prices, CaseError> {
        let rings = (&self.localities, self.between_zones, self.between_regions);
        match (&self.matrix, rings) {
            (Some(matrix), (None, None, None)) => Ok(Prices::matrix(matrix)?),
            (None, (Some(localities), Some(between_zones), Some(between_regions))) => {
                let localities: Vec<_> = localities.iter().map(|parts| locality(parts)).collect();
                Ok(Prices::rings(&localities, between_zones, between_regions))
            }
            _ => Err(CaseError::inputs("prices are a matrix, or those of rings")),
        }
    }
}

fn plan(inputs: &PlanInputs) -> CaseResult {
    let problem = problem(&inputs.demand, &inputs.capacity, inputs.target_utilization)?;
    let uniform = || Ok(Prices::uniform(inputs.demand.len()));
    let given = inputs.prices.as_ref();
    let prices = given.map_or_else(uniform, PricesInput::prices)?;
    let solution = problem.solve(&prices)?;
    let rows: Vec<_> = (0..inputs.demand.len())
        .map(|zone| solution.row(zone))
        .collect();
    let cost = u64::try_from(solution.cost())
        .map_err(|_| CaseError::inputs("the cost exceeds what JSON can say"))?;
    Ok(json!({
        "bounds": problem.bounds(),
        "kept": solution.kept(),
        "loads": solution.loads(),
        "crossing": solution.crossing(),
        "cost": cost,
        "rows": rows,
        "virtual_demand": solution.virtual_demand(),
    })
    .into())
}

fn problem(
    demand: &[u64],
    capacity: &[u64],
    target_utilization: Option<f64>,
) -> Result<Problem, FieldError> {
    let objective = target_utilization.map_or(Ok(Objective::LEVEL), Objective::waterfall)?;
    if demand.len() != capacity.len() {
        let reason = "demand and capacity must have the same zones";
        return Err(FieldError::new("capacity", reason));
    }
    let zones = demand.iter().zip(capacity);
    let zones: Vec<_> = zones
        .map(|(&demand, &capacity)| ZoneLoad { demand, capacity })
        .collect();
    Problem::try_new(&zones, objective)
}

fn locality(parts: &[String]) -> Locality {
    let part = |at: usize| parts.get(at).map_or("", |part| part.as_str());
    Locality::new(part(0), part(1), part(2))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HysteresisInputs {
    capacity: Vec<u64>,
    target_utilization: Option<f64>,
    reports: Vec<Report>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Report {
    at_s: u64,
    demand: Vec<u64>,
}

fn hysteresis(inputs: &HysteresisInputs) -> CaseResult {
    let names = ('a'..='z').map(|name| Locality::zone_only(&name.to_string()));
    let localities: Vec<_> = names.take(inputs.capacity.len()).collect();
    let mut state = Hysteresis::default();
    let (mut planned, mut spilling) = (Vec::new(), Vec::new());
    for report in &inputs.reports {
        let problem = problem(&report.demand, &inputs.capacity, inputs.target_utilization)?;
        let now = Instant::from_secs(report.at_s);
        planned.push(state.handle_report(&localities, &problem, now));
        let names = state.spilling().map(|zone| zone.zone().to_owned());
        spilling.push(names.collect::<Vec<_>>());
    }
    Ok(json!({"planned": planned, "spilling": spilling}).into())
}
