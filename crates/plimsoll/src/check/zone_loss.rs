//! `plimsoll check --lose-zone`: how full the zones of a scenario would be without one of them.

use std::path::Path;

use plimsoll_sim::zone_loss::ScenarioLoss;
use plimsoll_xds::yaml::{ConfigError, Document};

use super::Kind;
use crate::scenario::Scenario;

/// What the loss of a zone does to a scenario.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Loss {
    /// What the check prints below the file.
    pub(crate) text: String,
    /// Whether the fullest zone is above the limit, or no zone is left.
    pub(crate) exceeds: bool,
}

/// Computes the loss of `zone` in a valid scenario. An error if the file is none, or has no such
/// zone.
pub(crate) fn zone_loss(
    kind: Kind,
    path: &Path,
    text: &str,
    zone: &str,
    limit: f64,
) -> Result<Loss, String> {
    match kind {
        Kind::Sim => {
            let scenario =
                plimsoll_sim::Scenario::parse(text).map_err(|error| error.to_string())?;
            let loss = scenario.without_zone(zone);
            let loss = loss.map_err(|error| format!("--lose-zone: {}", error.reason()))?;
            Ok(of_simulation(zone, &loss, limit))
        }
        Kind::Explain => {
            let read =
                || -> Result<Scenario, ConfigError> { Scenario::read(&Document::parse(text)?) };
            let scenario = read().map_err(|error| error.to_string())?;
            of_explanation(&scenario, zone)
        }
        kind => Err(format!(
            "--lose-zone: {} is not a scenario, but {}",
            path.display(),
            kind.title()
        )),
    }
}

fn of_simulation(zone: &str, loss: &ScenarioLoss, limit: f64) -> Loss {
    let (Some((_, stay)), Some((_, moved))) = (&loss.clients_stay, &loss.clients_move) else {
        return Loss {
            text: format!("without {zone}: no zone with hosts is left"),
            exceeds: true,
        };
    };
    let utilization = loss.utilization();
    let exceeds = utilization > limit;
    let above = if exceeds {
        format!(", above {limit:.2}")
    } else {
        String::new()
    };
    let at = loss.at_s;
    Loss {
        text: format!(
            "without {zone}: {utilization:.2}{above} (clients stay {stay:.2}, clients move \
             {moved:.2}, at {at:.0} s)"
        ),
        exceeds,
    }
}

/// A scenario of explain has shares only: the others take over in proportion to their capacity.
fn of_explanation(scenario: &Scenario, zone: &str) -> Result<Loss, String> {
    let explanation = scenario.explain();
    let named = |name: &str| name == zone || name.rsplit('/').next() == Some(zone);
    let localities = &explanation.localities;
    let found = localities
        .iter()
        .find(|row| named(&row.locality().to_string()));
    let lost = found.ok_or_else(|| {
        let names: Vec<String> = localities
            .iter()
            .map(|row| row.locality().to_string())
            .collect();
        format!("--lose-zone: {zone:?} is not one of {}", names.join(", "))
    })?;
    let left = 1.0 - lost.capacity_share;
    if left <= 0.0 {
        return Ok(Loss {
            text: format!("without {zone}: no zone with hosts is left"),
            exceeds: true,
        });
    }
    Ok(Loss {
        text: format!(
            "without {zone}: the other zones are {:.2} times as full as all are today",
            1.0 / left
        ),
        exceeds: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIM: &str = "title = 'x'\nduration = '10s'\npolicies = ['none']\n[traffic]\n\
        requests_per_second = 100\n[[zone]]\nname = 'a'\ndemand = 60\n\
        hosts = [{ count = 2, capacity = 60 }]\n[[zone]]\nname = 'b'\ndemand = 40\n\
        hosts = [{ count = 2, capacity = 52 }]\n";

    #[test]
    fn scenarios_say_what_a_lost_zone_means() {
        let loss = |kind, zone, limit| zone_loss(kind, Path::new("x"), SIM, zone, limit);
        let found = loss(Kind::Sim, "a", 0.9).unwrap();
        assert!(found.exceeds);
        let expected = "without a: 0.96, above 0.90 (clients stay 0.96, clients move 0.96, at 5 s)";
        assert_eq!(found.text, expected);
        assert!(!loss(Kind::Sim, "a", 0.97).unwrap().exceeds);
        let error = loss(Kind::Sim, "z", 0.9).unwrap_err();
        assert_eq!(error, "--lose-zone: \"z\" is not one of a, b");
        let error = loss(Kind::Control, "a", 0.9).unwrap_err();
        assert!(
            error.starts_with("--lose-zone: x is not a scenario"),
            "{error}"
        );
    }
}
