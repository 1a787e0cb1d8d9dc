//! [`Cost`]: what requests between zones cost, in US dollars.
//!
//! The one declaration of prices: the planner minimizes their sum ([`Cost::prices`]), and admin
//! API, metrics and dashboard estimate money by them ([`Cost::usd_per_month`]). Clouds charge by
//! volume, so prices are stated per gigabyte. What a request weighs is a property of the service,
//! which changes bills and not plans.

use super::transport::Prices;
use crate::model::locality::Locality;
use crate::units::FieldError;

/// A month of cloud bills: 730 hours.
const SECONDS_PER_MONTH: f64 = 730.0 * 3600.0;
/// Bytes of a gigabyte as clouds charge it.
const GIGABYTE: f64 = 1e9;
/// Units of a price in plans, per dollar and gigabyte.
const MICRO: f64 = 1e6;
/// Highest price of a gigabyte; four times as much would exceed the units.
const MAX_PRICE: f64 = 1000.0;
/// Most entries of a price list. Each pair of zones is looked up in all of them.
const MAX_PAIRS: usize = 1000;
/// One cent per direction, as large cloud providers charge between zones.
const ASSUMED_PRICE: f64 = 0.02;
const ASSUMED_BYTES: f64 = 10_000.0;

/// Prices of requests between zones. Between one pair of zones or another it may be one price,
/// depend on the region, or be listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    between_zones: f64,
    between_regions: f64,
    pairs: Vec<PairPrice>,
    bytes_per_request: f64,
    is_assumed: bool,
}

/// Price of requests that arrive in one place and are served in another.
#[derive(Clone, Debug, PartialEq)]
pub struct PairPrice {
    /// Where requests arrive: a zone, or all zones of a region.
    pub from: Locality,
    /// Where they are served, likewise.
    pub to: Locality,
    pub usd_per_gigabyte: f64,
}

/// What is written about prices; `None` for values that are assumed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostParts {
    /// US dollars per gigabyte (10⁹ bytes) between zones, both directions together.
    pub usd_per_gigabyte: Option<f64>,
    /// The same between regions; as between zones by default.
    pub usd_per_gigabyte_between_regions: Option<f64>,
    /// Prices of pairs of zones or regions. The first entry that matches wins over both.
    pub between: Vec<PairPrice>,
    /// Bytes of a request and its response: load reports do not count bytes.
    pub bytes_per_request: Option<f64>,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Default for Cost {
    fn default() -> Self {
        Self {
            between_zones: ASSUMED_PRICE,
            between_regions: ASSUMED_PRICE,
            pairs: Vec::new(),
            bytes_per_request: ASSUMED_BYTES,
            is_assumed: true,
        }
    }
}

impl Cost {
    /// Checks prices. Errors name the field.
    pub fn try_new(parts: CostParts) -> Result<Self, FieldError> {
        let prices = [
            ("usd_per_gigabyte", parts.usd_per_gigabyte),
            (
                "usd_per_gigabyte_between_regions",
                parts.usd_per_gigabyte_between_regions,
            ),
        ];
        for (field, price) in prices {
            check_price(field, price.unwrap_or(0.0))?;
        }
        let bytes = parts.bytes_per_request;
        if let Some(bytes) = bytes.filter(|bytes| !(bytes.is_finite() && *bytes >= 0.0)) {
            let reason = format!("{bytes} is not a number of at least 0");
            return Err(FieldError::new("bytes_per_request", reason));
        }
        check_pairs(&parts.between)?;
        let between_zones = parts.usd_per_gigabyte.unwrap_or(ASSUMED_PRICE);
        let between_regions = parts.usd_per_gigabyte_between_regions;
        Ok(Self {
            between_zones,
            between_regions: between_regions.unwrap_or(between_zones),
            pairs: parts.between,
            bytes_per_request: bytes.unwrap_or(ASSUMED_BYTES),
            is_assumed: parts.usd_per_gigabyte.is_none() || bytes.is_none(),
        })
    }

    /// Returns the US dollars per gigabyte between zones of a region.
    pub const fn usd_per_gigabyte(&self) -> f64 {
        self.between_zones
    }

    /// Returns the US dollars per gigabyte between regions.
    pub const fn usd_per_gigabyte_between_regions(&self) -> f64 {
        self.between_regions
    }

    /// Returns the pairs of zones or regions with a price of their own.
    pub fn pairs(&self) -> &[PairPrice] {
        &self.pairs
    }

    /// Returns the bytes of a request and its response.
    pub const fn bytes_per_request(&self) -> f64 {
        self.bytes_per_request
    }

    /// Whether the price between zones or the size of a request is the default, not a written one.
    pub const fn is_assumed(&self) -> bool {
        self.is_assumed
    }

    /// Whether there is one price between any two localities. Only then can data planes that
    /// compute zone-aware routing themselves follow a plan.
    pub fn is_uniform(&self) -> bool {
        self.pairs.is_empty() && units(self.between_zones) == units(self.between_regions)
    }

    /// Returns the US dollars per gigabyte of requests that arrive in `from` and are served in
    /// `to`. Where prices differ, nothing is paid between sub-zones of a zone.
    pub fn between(&self, from: &Locality, to: &Locality) -> f64 {
        let is_same_region = from.region() == to.region();
        if self.is_uniform() {
            return if from == to { 0.0 } else { self.between_zones };
        }
        if is_same_region && from.zone() == to.zone() {
            return 0.0;
        }
        let listed = |pair: &&PairPrice| covers(&pair.from, from) && covers(&pair.to, to);
        match self.pairs.iter().find(listed) {
            Some(pair) => pair.usd_per_gigabyte,
            None if is_same_region => self.between_zones,
            None => self.between_regions,
        }
    }

    /// Returns the prices of a planning problem. An error if there are too many zones.
    pub fn prices(&self, zones: &[Locality]) -> Result<Prices, FieldError> {
        if self.is_uniform() {
            return Ok(Prices::uniform(zones.len()));
        }
        let row = |from: &Locality| -> Vec<u32> {
            let price = |to: &Locality| units(self.between(from, to));
            zones.iter().map(price).collect()
        };
        Prices::matrix(&zones.iter().map(row).collect::<Vec<_>>())
    }

    /// Returns the US dollars per month for these requests per second from zone to zone.
    pub fn usd_per_month<'a>(
        &self,
        flows: impl IntoIterator<Item = (&'a Locality, &'a Locality, f64)>,
    ) -> f64 {
        let priced = flows.into_iter();
        self.bill(
            priced
                .map(|(from, to, rate)| rate * self.between(from, to))
                .sum(),
        )
    }

    /// Returns the US dollars per month of a plan: of the sum of `prices` over thousandths of
    /// requests per second.
    #[expect(clippy::cast_precision_loss, reason = "an estimate of money")]
    pub(super) fn usd_per_month_of(&self, sum: u128) -> f64 {
        let unit = if self.is_uniform() {
            self.between_zones
        } else {
            1.0 / MICRO
        };
        self.bill(sum as f64 / 1000.0 * unit)
    }

    /// Converts requests per second, each times the price of its gigabytes.
    fn bill(&self, priced: f64) -> f64 {
        priced * self.bytes_per_request * SECONDS_PER_MONTH / GIGABYTE
    }
}

fn check_price(field: &str, price: f64) -> Result<(), FieldError> {
    if (0.0..=MAX_PRICE).contains(&price) {
        return Ok(());
    }
    let reason = format!("{price} is not a number of at least 0 and at most {MAX_PRICE}");
    Err(FieldError::new(field, reason))
}

fn check_pairs(pairs: &[PairPrice]) -> Result<(), FieldError> {
    if pairs.len() > MAX_PAIRS {
        let reason = format!("{} entries are more than {MAX_PAIRS}", pairs.len());
        return Err(FieldError::new("between", reason));
    }
    for (index, pair) in pairs.iter().enumerate() {
        let path = |field: &str| format!("between[{index}].{field}");
        check_price(&path("usd_per_gigabyte"), pair.usd_per_gigabyte)?;
        for (field, place) in [("from", &pair.from), ("to", &pair.to)] {
            if place.is_unset() {
                let reason = "has neither region nor zone";
                return Err(FieldError::new(path(field), reason));
            }
            if !place.sub_zone().is_empty() {
                let reason = "has a sub_zone; nothing is paid within a zone";
                return Err(FieldError::new(path(field), reason));
            }
        }
        if pair.from == pair.to && !pair.from.zone().is_empty() {
            return Err(FieldError::new(path("to"), "is the zone that `from` is"));
        }
        let is_same = |other: &PairPrice| (&other.from, &other.to) == (&pair.from, &pair.to);
        if let Some(first) = pairs[..index].iter().position(is_same) {
            let reason = format!("has the zones of between[{first}]");
            return Err(FieldError::new(format!("between[{index}]"), reason));
        }
    }
    Ok(())
}

/// Whether a place of a price list is the zone, or the region of the zone.
fn covers(place: &Locality, zone: &Locality) -> bool {
    place.region() == zone.region() && (place.zone().is_empty() || place.zone() == zone.zone())
}

/// Converts a checked price to whole units.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a price is at least 0 and at most MAX_PRICE"
)]
fn units(price: f64) -> u32 {
    (price * MICRO).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone(region: &str, name: &str) -> Locality {
        Locality::new(region, name, "")
    }

    fn link(from: Locality, to: Locality, usd_per_gigabyte: f64) -> PairPrice {
        PairPrice {
            from,
            to,
            usd_per_gigabyte,
        }
    }

    #[test]
    fn a_month_of_one_request_per_second() {
        let cost = Cost::default();
        let (a, b) = (zone("r1", "a"), zone("r1", "b"));
        // 730 h · 3600 s · 10 kB = 26.28 GB at two cents.
        let month = cost.usd_per_month([(&a, &b, 1.0), (&a, &a, 5.0)]);
        assert!((month - 0.5256).abs() < 1e-9);
        assert!(cost.is_assumed() && cost.is_uniform());
    }

    #[test]
    fn a_month_of_traffic_has_a_price() {
        let cost = Cost::try_new(CostParts {
            usd_per_gigabyte: Some(0.5),
            bytes_per_request: Some(1000.0),
            ..CostParts::default()
        });
        let (a, b) = (zone("r1", "a"), zone("r1", "b"));
        let month = cost.unwrap().usd_per_month([(&a, &b, 1000.0)]);
        assert!((month - 1314.0).abs() < 0.0005, "{month}");
    }

    #[test]
    fn written_values_replace_the_assumed_ones() {
        let parts = CostParts {
            usd_per_gigabyte: Some(0.01),
            ..CostParts::default()
        };
        let cost = Cost::try_new(parts.clone()).unwrap();
        assert!(cost.is_assumed(), "the size is still assumed");
        assert!(cost.is_uniform(), "regions cost what zones cost");
        let both = CostParts {
            bytes_per_request: Some(0.0),
            ..parts
        };
        assert!(!Cost::try_new(both).unwrap().is_assumed());
    }

    /// A list of prices wins over rings, and its first entry over later ones.
    #[test]
    fn prices_depend_on_regions_and_lists() {
        let [a, b, c, d] = [("r1", "a"), ("r1", "b"), ("r2", "c"), ("r3", "d")]
            .map(|(region, name)| zone(region, name));
        let parts = CostParts {
            usd_per_gigabyte: Some(0.01),
            usd_per_gigabyte_between_regions: Some(0.08),
            between: vec![
                link(a.clone(), c.clone(), 0.0),
                link(zone("r1", ""), zone("r2", ""), 0.05),
            ],
            ..CostParts::default()
        };
        let cost = Cost::try_new(parts).unwrap();
        let inner = Locality::new("r1", "a", "rack");
        for (from, to, expected) in [
            (&a, &a, 0.0),
            (&a, &inner, 0.0),
            (&a, &b, 0.01),
            (&a, &c, 0.0),
            (&b, &c, 0.05),
            (&c, &b, 0.08),
            (&b, &d, 0.08),
        ] {
            let found = cost.between(from, to);
            assert!((found - expected).abs() < 1e-12, "{from} to {to}: {found}");
        }
        assert!(!cost.is_uniform());
        let prices = cost.prices(&[a, b, c, d]).unwrap();
        assert_eq!(prices.between(1, 2), 50_000);
        assert_eq!(prices.between(0, 2), 0);
    }

    #[test]
    fn prices_that_cannot_be_are_refused() {
        let (a, b) = (zone("r1", "a"), zone("r1", "b"));
        let with = |between: Vec<PairPrice>| CostParts {
            between,
            ..CostParts::default()
        };
        let price = |price: f64| CostParts {
            usd_per_gigabyte: Some(price),
            ..CostParts::default()
        };
        let regions = CostParts {
            usd_per_gigabyte_between_regions: Some(-0.1),
            ..CostParts::default()
        };
        let bytes = CostParts {
            bytes_per_request: Some(f64::NAN),
            ..CostParts::default()
        };
        let rack = Locality::new("r1", "b", "rack");
        for (parts, path) in [
            (price(-1.0), "usd_per_gigabyte"),
            (price(f64::NAN), "usd_per_gigabyte"),
            (price(1001.0), "usd_per_gigabyte"),
            (regions, "usd_per_gigabyte_between_regions"),
            (bytes, "bytes_per_request"),
            (
                with(vec![link(a.clone(), b.clone(), f64::INFINITY)]),
                "between[0].usd_per_gigabyte",
            ),
            (
                with(vec![link(Locality::default(), b.clone(), 0.0)]),
                "between[0].from",
            ),
            (with(vec![link(a.clone(), rack, 0.0)]), "between[0].to"),
            (with(vec![link(a.clone(), a.clone(), 0.0)]), "between[0].to"),
            (
                with(vec![link(a.clone(), b.clone(), 0.1), link(a, b, 0.2)]),
                "between[1]",
            ),
        ] {
            let error = Cost::try_new(parts).unwrap_err();
            assert_eq!(error.path(), path, "{error}");
        }
    }
}
