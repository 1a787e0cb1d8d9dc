//! Validation of zones: expands groups, and maps proxies to balancers and names to indexes.

use std::collections::BTreeMap;

use plimsoll_core::model::locality::Locality;
use plimsoll_core::units::FieldError;

use super::check::{not_negative, positive};
use super::parts::{HostGroupParts, ZoneParts};
use super::{HostGroup, Zone};

const MAX_ZONES: usize = 1000;
const MAX_PROXIES: u32 = 100_000;
const MAX_HOSTS: u32 = 100_000;

#[derive(Debug, Default)]
pub(super) struct Names {
    zones: BTreeMap<String, Vec<usize>>,
    count: usize,
}

impl Names {
    /// Returns the zones of a name.
    pub(super) fn of(&self, name: &str, path: &str) -> Result<Vec<usize>, FieldError> {
        self.zones.get(name).cloned().ok_or_else(|| {
            let names: Vec<&str> = self.zones.keys().map(String::as_str).collect();
            let reason = format!("there is no zone {name:?}: {}", names.join(", "));
            FieldError::new(path, reason)
        })
    }

    pub(super) fn of_or_all(
        &self,
        name: Option<&str>,
        path: &str,
    ) -> Result<Vec<usize>, FieldError> {
        match name {
            Some(name) => self.of(name, path),
            None => Ok((0..self.count).collect()),
        }
    }

    fn insert(&mut self, name: &str, zones: Vec<usize>, path: &str) -> Result<(), FieldError> {
        match self.zones.insert(name.to_owned(), zones) {
            Some(_) => Err(FieldError::new(path, format!("{name:?} is listed twice"))),
            None => Ok(()),
        }
    }
}

/// Returns all zones, with demand as shares that sum to 1.
pub(super) fn zones(
    parts: &[ZoneParts],
    cap: Option<u32>,
) -> Result<(Vec<Zone>, Names), FieldError> {
    if cap == Some(0) {
        return Err(FieldError::new(
            "scale.balancers_per_zone",
            "must be at least 1",
        ));
    }
    let (mut zones, mut names) = (Vec::new(), Names::default());
    for (index, zone) in parts.iter().enumerate() {
        let path = |field: &str| format!("zone[{index}].{field}");
        if zone.name.is_empty() {
            return Err(FieldError::new(path("name"), "must not be empty"));
        }
        let first = zones.len();
        for name in member_names(zone) {
            names.count += 1;
            names.insert(&name, vec![zones.len()], &path("name"))?;
            let one = one_zone(zone, name, cap).map_err(|e| e.under(&format!("zone[{index}]")))?;
            zones.push(one);
        }
        if zone.count.is_some() {
            names.insert(&zone.name, (first..zones.len()).collect(), &path("name"))?;
        }
    }
    if zones.is_empty() || zones.len() > MAX_ZONES {
        let reason = format!("there must be 1 to {MAX_ZONES} zones");
        return Err(FieldError::new("zone", reason));
    }
    let total: f64 = zones.iter().map(|zone| zone.share).sum();
    if total <= 0.0 {
        return Err(FieldError::new("zone", "no zone has any demand"));
    }
    if zones.iter().all(|zone| zone.hosts.is_empty()) {
        return Err(FieldError::new("zone", "no zone has any hosts"));
    }
    zones.iter_mut().for_each(|zone| zone.share /= total);
    Ok((zones, names))
}

/// Returns `name`, or `name01`, `name02` … with as many digits as the last needs.
fn member_names(zone: &ZoneParts) -> Vec<String> {
    match zone.count {
        None => vec![zone.name.clone()],
        Some(count) => {
            let width = count.to_string().len();
            (1..=count)
                .map(|number| format!("{}{number:0width$}", zone.name))
                .collect()
        }
    }
}

fn one_zone(parts: &ZoneParts, name: String, cap: Option<u32>) -> Result<Zone, FieldError> {
    let proxies = parts.proxies.unwrap_or(1);
    if !(1..=MAX_PROXIES).contains(&proxies) {
        let reason = format!("{proxies} is outside 1 to {MAX_PROXIES}");
        return Err(FieldError::new("proxies", reason));
    }
    let heavy = match parts.heavy_proxy {
        Some(heavy) => positive(heavy, "heavy_proxy")?,
        None => 1.0,
    };
    let exaggeration = match parts.liar {
        Some(factor) => positive(factor, "liar")?,
        None => 1.0,
    };
    let hosts: Result<Vec<HostGroup>, FieldError> = parts
        .hosts
        .iter()
        .enumerate()
        .map(|(index, group)| host_group(group).map_err(|e| e.under(&format!("hosts[{index}]"))))
        .collect();
    let zone = Zone {
        locality: Locality::zone_only(&name),
        name,
        share: not_negative(parts.demand, "demand")?,
        proxies,
        balancers: balancers(proxies, cap, heavy),
        exaggeration,
        hosts: hosts?,
    };
    if zone.host_count() > MAX_HOSTS {
        let reason = format!("more than {MAX_HOSTS} hosts in one zone");
        return Err(FieldError::new("hosts", reason));
    }
    Ok(zone)
}

/// Returns the share of the zone's requests per balancer. With fewer balancers than proxies, each
/// represents equally many; the heavy proxy belongs to the first.
fn balancers(proxies: u32, cap: Option<u32>, heavy: f64) -> Vec<f64> {
    let count = proxies.min(cap.unwrap_or(proxies));
    let each = f64::from(proxies) / f64::from(count);
    let total = f64::from(proxies) - 1.0 + heavy;
    let share = |balancer| match balancer {
        0 => (each - 1.0 + heavy) / total,
        _ => each / total,
    };
    (0..count).map(share).collect()
}

fn host_group(parts: &HostGroupParts) -> Result<HostGroup, FieldError> {
    if parts.count == 0 {
        return Err(FieldError::new("count", "must be at least 1"));
    }
    if parts.weight == Some(0) {
        return Err(FieldError::new("weight", "must be at least 1 when set"));
    }
    Ok(HostGroup {
        count: parts.count,
        capacity: positive(parts.capacity, "capacity")?,
        weight: parts.weight,
    })
}
