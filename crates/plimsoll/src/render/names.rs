//! Short names of localities: the region is omitted if all of them, and this proxy's, are the same.

use plimsoll_core::explain::{Explanation, LocalityExplanation};
use plimsoll_core::model::locality::Locality;

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
        regions.extend(explanation.own_locality.iter().map(Locality::region));
        regions.sort_unstable();
        regions.dedup();
        Self {
            with_region: regions.len() > 1,
        }
    }

    pub(super) fn row(&self, row: &LocalityExplanation) -> String {
        self.short(&row.locality())
    }

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
    fn a_common_region_is_omitted() {
        let locality = Locality::new("eu", "a", "rack-1");
        assert_eq!(Names { with_region: true }.short(&locality), "eu/a/rack-1");
        assert_eq!(Names { with_region: false }.short(&locality), "a/rack-1");
    }
}
