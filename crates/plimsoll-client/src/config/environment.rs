//! Locality of this process from environment variables, as the Kubernetes downward API sets them.

use plimsoll_core::model::locality::Locality;

const REGION: &str = "PLIMSOLL_REGION";
const ZONE: &str = "PLIMSOLL_ZONE";
const SUB_ZONE: &str = "PLIMSOLL_SUB_ZONE";

/// Returns the locality that the environment names; unset if it names none. `lookup` returns the
/// value of a variable.
pub(crate) fn own_locality(lookup: impl Fn(&str) -> Option<String>) -> Locality {
    let [region, zone, sub_zone] =
        [REGION, ZONE, SUB_ZONE].map(|name| lookup(name).unwrap_or_default());
    Locality::new(region.trim(), zone.trim(), sub_zone.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_the_locality() {
        let own = |set: &[(&str, &str)]| {
            own_locality(|name| {
                let mut set = set.iter();
                let found = set.find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(own(&[]).is_unset());
        assert!(own(&[("PLIMSOLL_ZONE", "")]).is_unset());
        assert_eq!(own(&[("PLIMSOLL_ZONE", "a")]), Locality::zone_only("a"));
        let all = [
            ("PLIMSOLL_REGION", "eu"),
            ("PLIMSOLL_ZONE", "eu-a\n"),
            ("PLIMSOLL_SUB_ZONE", "rack-7"),
        ];
        assert_eq!(own(&all), Locality::new("eu", "eu-a", "rack-7"));
    }
}
