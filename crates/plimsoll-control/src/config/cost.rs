//! Prices of traffic between zones as a file has them: `cost` of the file, and `cost` of a service,
//! whose fields replace those of the file. `plimsoll_core::planner::cost` has the checked type.

use plimsoll_core::model::locality::Locality;
use plimsoll_core::planner::cost::{Cost, CostParts, PairPrice};
use plimsoll_core::units::FieldError;
use serde::Deserialize;

/// Prices of traffic between zones. Estimates of money use them; where they differ from pair to
/// pair, they also steer what leaves a zone.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Cost"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct CostYaml {
    /// US dollars per gigabyte (10⁹ bytes) between zones, both directions together, at most 1000.
    /// Default 0.02, one cent per direction, as large cloud providers charge.
    usd_per_gigabyte: Option<f64>,
    /// The same between regions. Default as between zones.
    usd_per_gigabyte_between_regions: Option<f64>,
    /// Prices of pairs of zones or regions, at most 1000; the first entry that matches wins over
    /// both. Default none.
    between: Option<Vec<PairPriceYaml>>,
    /// Bytes of a request and its response. Default 10000.
    bytes_per_request: Option<f64>,
}

/// Price of requests that arrive in one place and are served in another.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "PairPrice"))]
#[serde(deny_unknown_fields)]
pub(super) struct PairPriceYaml {
    /// Zone or region of the proxies at which requests arrive.
    from: PlaceYaml,
    /// Zone or region of the hosts that serve them.
    to: PlaceYaml,
    /// US dollars per gigabyte (10⁹ bytes), at most 1000.
    usd_per_gigabyte: f64,
}

/// A zone, or all zones of a region.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "Place"))]
#[serde(default, deny_unknown_fields)]
pub(super) struct PlaceYaml {
    /// Region, as in `locality`. Default empty.
    region: String,
    /// Zone, as in `locality`. Default all zones of the region.
    zone: String,
}

impl CostYaml {
    /// Checks the prices. Errors name the field.
    pub(super) fn validate(&self) -> Result<Cost, FieldError> {
        let place = |place: &PlaceYaml| Locality::new(&place.region, &place.zone, "");
        let pair = |pair: &PairPriceYaml| PairPrice {
            from: place(&pair.from),
            to: place(&pair.to),
            usd_per_gigabyte: pair.usd_per_gigabyte,
        };
        Cost::try_new(CostParts {
            usd_per_gigabyte: self.usd_per_gigabyte,
            usd_per_gigabyte_between_regions: self.usd_per_gigabyte_between_regions,
            between: self.between.iter().flatten().map(pair).collect(),
            bytes_per_request: self.bytes_per_request,
            ..CostParts::default()
        })
    }

    /// Returns the prices of a service, with those of the file where it has none.
    pub(super) fn over(&self, general: &Self) -> Self {
        let (own, general) = (self.clone(), general.clone());
        Self {
            usd_per_gigabyte: own.usd_per_gigabyte.or(general.usd_per_gigabyte),
            usd_per_gigabyte_between_regions: own
                .usd_per_gigabyte_between_regions
                .or(general.usd_per_gigabyte_between_regions),
            between: own.between.or(general.between),
            bytes_per_request: own.bytes_per_request.or(general.bytes_per_request),
        }
    }
}

/// Returns the prices of a service as in a file, for the audit.
pub(crate) fn shown(cost: &Cost) -> String {
    let mut text = format!("${}/GB", cost.usd_per_gigabyte());
    if !cost.is_uniform() {
        text += &format!(
            ", ${}/GB between regions",
            cost.usd_per_gigabyte_between_regions()
        );
    }
    for pair in cost.pairs() {
        text += &format!(
            ", ${}/GB {} to {}",
            pair.usd_per_gigabyte, pair.from, pair.to
        );
    }
    text + &format!(", {} bytes per request", cost.bytes_per_request())
}

#[cfg(test)]
mod tests {
    use super::shown;
    use crate::state::tests::driver::{ENDPOINTS, HEAD, config, parse, try_config_of};

    /// A service takes from the file what it does not say itself.
    #[test]
    fn a_service_has_prices_of_its_own() {
        let general = "cost: {usd_per_gigabyte: 0.01, usd_per_gigabyte_between_regions: 0.05}";
        let config = parse(&format!(
            "{HEAD}{general}\nservices:\n- {{cluster: {{name: orders}}, {ENDPOINTS}}}\n\
             - {{cluster: {{name: own}}, cost: {{usd_per_gigabyte: 0.03, bytes_per_request: 500}}}}"
        ));
        for (name, expected) in [
            (
                "orders",
                "$0.01/GB, $0.05/GB between regions, 10000 bytes per request",
            ),
            (
                "own",
                "$0.03/GB, $0.05/GB between regions, 500 bytes per request",
            ),
        ] {
            assert_eq!(shown(&config.services[name].goal.cost), expected);
            assert!(config.services[name].has_own_plan, "{name}");
        }
        assert_eq!(
            shown(&config.operation.cost),
            "$0.01/GB, $0.05/GB between regions, 10000 bytes per request"
        );
    }

    #[test]
    fn one_price_is_an_estimate_and_plans_nothing() {
        let config = config("cost: {usd_per_gigabyte: 0.5}");
        let service = &config.services["orders"];
        assert!(!service.has_own_plan && service.demand_field.is_none());
    }

    /// Every error names the field.
    #[test]
    fn prices_that_cannot_be_followed_are_refused() {
        let pair = "between: [{from: {zone: a}, to: {zone: b}, usd_per_gigabyte: 0.1}]";
        for (cluster, written, path, reason) in [
            (
                "",
                "cost: {usd_per_gigabyte: -1}".to_owned(),
                "cost.usd_per_gigabyte",
                "at least 0",
            ),
            (
                "",
                "cost: {between: [{from: {zone: a}, to: {}, usd_per_gigabyte: 1}]}".to_owned(),
                "cost.between[0].to",
                "neither region nor zone",
            ),
            (
                "",
                "cost: {between: [{from: {zone: a, sub_zone: x}, to: {zone: b}, \
                 usd_per_gigabyte: 1}]}"
                    .to_owned(),
                "cost.between[0].from",
                "sub_zone",
            ),
            (
                "",
                format!("cost: {{{pair}}}, delivery: FLEET_WEIGHTS"),
                "delivery",
                "more than one price",
            ),
            (
                "lb_policy: RING_HASH",
                format!("cost: {{{pair}}}"),
                "cost",
                "consistent hashing",
            ),
        ] {
            let error = try_config_of(cluster, &written).unwrap_err();
            assert!(
                error.contains(path) && error.contains(reason),
                "{written}: {error}"
            );
        }
    }
}
