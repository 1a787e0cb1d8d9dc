//! Short names of localities: no region where all have the same.

use plimsoll_core::explain::{Explanation, LocalityExplanation};
use plimsoll_core::model::locality::Locality;

/// How localities are called on one page.
pub(super) struct Names {
    with_region: bool,
}

impl Names {
    pub(super) fn new(explanation: &Explanation) -> Self {
        let mut regions: Vec<&str> = explanation
            .localities
            .iter()
            .map(|row| row.region.as_str())
            .collect();
        regions.extend(explanation.zones.iter().map(|zone| zone.locality.region()));
        regions.sort_unstable();
        regions.dedup();
        Self {
            with_region: regions.len() > 1,
        }
    }

    /// The name of a row.
    pub(super) fn row(&self, row: &LocalityExplanation) -> String {
        self.short(&Locality::new(&row.region, &row.zone, &row.sub_zone))
    }

    /// The name of a locality.
    pub(super) fn short(&self, locality: &Locality) -> String {
        if self.with_region {
            return locality.to_string();
        }
        Locality::new("", locality.zone(), locality.sub_zone()).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_that_all_share_is_left_out() {
        let locality = Locality::new("eu", "a", "rack-1");
        assert_eq!(Names { with_region: true }.short(&locality), "eu/a/rack-1");
        assert_eq!(Names { with_region: false }.short(&locality), "a/rack-1");
    }
}
