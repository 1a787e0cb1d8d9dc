//! [`Prices`]: what a request costs that is served in another zone, and the rings in them.
//!
//! Prices are ultrametric if zones form nested rings (zone < region < world) and a price depends
//! only on the smallest ring that holds both zones. Clouds have such prices, and with them filling
//! ring by ring is exact. Rings are found in the prices themselves, however they were stated.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::locality::Locality;
use crate::units::FieldError;

/// Most zones that prices may have. The checks need time in the cube of it.
const MAX_ZONES: usize = 1000;

/// Zones among which one price is paid, apart from pairs with a lower price.
pub(super) type Group = Vec<usize>;

/// Price of a request from each zone to each zone, in any unit. Cloning is cheap: all services of
/// a control plane can share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prices(Arc<Table>);

#[derive(Debug, PartialEq, Eq)]
struct Table {
    zones: usize,
    /// By row; 0 from a zone to itself.
    prices: Vec<u32>,
    structure: Structure,
}

/// How problems with the prices are solved.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// Groups of each ring, the cheapest first. Groups of one zone are left out.
    Rings(Vec<Vec<Group>>),
    /// Prices in which no rings are.
    Matrix {
        /// No detour is cheaper than the direct way, so zones serve their own requests first.
        local_first: bool,
    },
}

impl Prices {
    /// One price, of 1, between any two zones.
    pub fn uniform(zones: usize) -> Self {
        Self::of(zones, |_, _| 1)
    }

    /// A price between zones of one region, and another between regions. Localities that differ
    /// only in their sub-zone are the same zone: nothing is paid between them.
    pub fn rings(localities: &[Locality], between_zones: u32, between_regions: u32) -> Self {
        Self::of(localities.len(), |from, to| {
            let (from, to) = (&localities[from], &localities[to]);
            match from.region() == to.region() {
                false => between_regions,
                true if from.zone() == to.zone() => 0,
                true => between_zones,
            }
        })
    }

    /// Any prices, a row for each zone where requests arrive.
    pub fn matrix(rows: &[Vec<u32>]) -> Result<Self, FieldError> {
        let zones = rows.len();
        if zones > MAX_ZONES {
            let reason = format!("{zones} zones are more than {MAX_ZONES}");
            return Err(FieldError::new("prices", reason));
        }
        for (zone, row) in rows.iter().enumerate() {
            if row.len() != zones {
                let reason = format!("{} prices for {zones} zones", row.len());
                return Err(FieldError::new(format!("prices[{zone}]"), reason));
            }
            if row[zone] != 0 {
                let reason = "the price within a zone must be 0";
                return Err(FieldError::new(format!("prices[{zone}][{zone}]"), reason));
            }
        }
        Ok(Self::of(zones, |from, to| rows[from][to]))
    }

    fn of(zones: usize, price: impl Fn(usize, usize) -> u32) -> Self {
        let pairs = (0..zones).flat_map(|from| (0..zones).map(move |to| (from, to)));
        let price = |(from, to)| if from == to { 0 } else { price(from, to) };
        let mut table = Table {
            zones,
            prices: pairs.map(price).collect(),
            structure: Structure::Rings(Vec::new()),
        };
        let symmetric = table.holds(|from, to, _| table.at(from, to) == table.at(to, from));
        let largest = |from, to, via| table.at(from, via).max(table.at(via, to));
        let nested = table.holds(|from, to, via| table.at(from, to) <= largest(from, to, via));
        let detour = |from, to, via| u64::from(table.at(from, via)) + u64::from(table.at(via, to));
        table.structure = if symmetric && nested {
            Structure::Rings(table.rings())
        } else {
            let direct = |from, to, via| u64::from(table.at(from, to)) <= detour(from, to, via);
            Structure::Matrix {
                local_first: table.holds(direct),
            }
        };
        Self(Arc::new(table))
    }

    /// Returns the number of zones.
    pub fn zones(&self) -> usize {
        self.0.zones
    }

    /// Returns the price of a request that arrives in `from` and is served in `to`. Both must be
    /// below [`Prices::zones`].
    pub fn between(&self, from: usize, to: usize) -> u32 {
        self.0.at(from, to)
    }

    /// Whether there is one price between any two zones.
    pub fn is_uniform(&self) -> bool {
        match self.structure() {
            Structure::Rings(rings) => rings.len() <= 1,
            Structure::Matrix { .. } => false,
        }
    }

    /// Whether zones form rings, so that plans are exact. Otherwise their cost is at most one
    /// percent above the optimum.
    pub fn are_nested(&self) -> bool {
        matches!(self.structure(), Structure::Rings(_))
    }

    pub(super) fn is_local_first(&self) -> bool {
        !matches!(self.structure(), Structure::Matrix { local_first: false })
    }

    pub(super) fn structure(&self) -> &Structure {
        &self.0.structure
    }
}

impl Table {
    fn at(&self, from: usize, to: usize) -> u32 {
        self.prices[from * self.zones + to]
    }

    /// Whether a condition holds for all pairs and for all ways around.
    fn holds(&self, condition: impl Fn(usize, usize, usize) -> bool) -> bool {
        let zones = 0..self.zones;
        zones.clone().all(|from| {
            let mut others = zones.clone().filter(|to| *to != from);
            others.all(|to| zones.clone().all(|via| condition(from, to, via)))
        })
    }

    /// Returns the rings of ultrametric prices: at each price, zones that are no farther apart.
    fn rings(&self) -> Vec<Vec<Group>> {
        let pairs = (0..self.zones).flat_map(|from| (0..from).map(move |to| (from, to)));
        let levels: BTreeSet<u32> = pairs.map(|(from, to)| self.at(from, to)).collect();
        let groups = |level: u32| {
            let mut found: Vec<Group> = Vec::new();
            for zone in 0..self.zones {
                let near = |group: &&mut Group| self.at(group[0], zone) <= level;
                match found.iter_mut().find(near) {
                    Some(group) => group.push(zone),
                    None => found.push(vec![zone]),
                }
            }
            found.retain(|group| group.len() > 1);
            found
        };
        levels.into_iter().map(groups).collect()
    }
}
