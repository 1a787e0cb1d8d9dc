//! Formats of recorded demand: CSV, and what Prometheus answers to a query over a range.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, bail};
use plimsoll_sim::Recording;
use serde::Deserialize;

/// Labels that name a zone, in the order in which they are looked for.
const ZONE_LABELS: [&str; 3] = ["zone", "locality", "topology_kubernetes_io_zone"];

type Curves = BTreeMap<String, Vec<(f64, f64)>>;

/// Reads a recording: JSON if it begins with a brace, CSV otherwise.
pub(super) fn read(text: &str) -> anyhow::Result<Recording> {
    let curves = if text.trim_start().starts_with('{') {
        prometheus(text)?
    } else {
        csv(text)?
    };
    Ok(Recording::try_new(curves)?)
}

/// The answer of `/api/v1/query_range`.
#[derive(Deserialize)]
struct Answer {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    result: Vec<Series>,
}

#[derive(Deserialize)]
struct Series {
    metric: BTreeMap<String, String>,
    values: Vec<(f64, String)>,
}

/// Reads a matrix; series of one zone, such as those of several fleets, are added up. The zone of a
/// locality like `r1/a` is `a`.
fn prometheus(text: &str) -> anyhow::Result<Curves> {
    let answer: Answer = serde_json::from_str(text)
        .context("is no answer of Prometheus to a query over a range (query_range)")?;
    let mut sums: Curves = BTreeMap::new();
    for series in answer.data.result {
        let mut labels = ZONE_LABELS.iter();
        let label = labels.find_map(|label| series.metric.get(*label));
        let label = label.ok_or_else(|| {
            let labels = ZONE_LABELS.join(", ");
            anyhow!(
                "a series has none of the labels {labels}: {:?}",
                series.metric
            )
        })?;
        let zone = label.split('/').nth(1).unwrap_or(label);
        let curve = sums.entry(zone.to_owned()).or_default();
        for (at, value) in series.values {
            let rate: f64 = value
                .parse()
                .with_context(|| format!("{value:?} of {zone} is no number"))?;
            match curve.binary_search_by(|(time, _)| time.total_cmp(&at)) {
                Ok(index) => curve[index].1 += rate,
                Err(index) => curve.insert(index, (at, rate)),
            }
        }
    }
    Ok(sums)
}

/// Reads a table whose first column is the time, and whose other columns are zones.
fn csv(text: &str) -> anyhow::Result<Curves> {
    let mut lines = text.lines().enumerate().filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && !line.starts_with('#')
    });
    let (_, header) = lines.next().context("is empty")?;
    let zones: Vec<&str> = header.split(',').skip(1).map(str::trim).collect();
    if zones.is_empty() || zones.contains(&"") {
        bail!("the header must be the time and the names of zones, such as time,a,b");
    }
    let empty = |zone: &&str| ((*zone).to_owned(), Vec::new());
    let mut curves: Curves = zones.iter().map(empty).collect();
    if curves.len() < zones.len() {
        bail!("the header names a zone twice");
    }
    for (index, line) in lines {
        let number = index + 1;
        let mut cells = line.split(',').map(str::trim);
        let at = cells.next().unwrap_or_default();
        let at = seconds(at).with_context(|| {
            format!("line {number}: {at:?} is no time: seconds, or 2026-01-31 12:00:00")
        })?;
        let cells: Vec<&str> = cells.collect();
        if cells.len() != zones.len() {
            bail!(
                "line {number}: {} values for {} zones",
                cells.len(),
                zones.len()
            );
        }
        // A gap in a recording is a straight line.
        let known = zones.iter().zip(cells).filter(|(_, cell)| !cell.is_empty());
        for (zone, cell) in known {
            let rate: f64 = cell
                .parse()
                .with_context(|| format!("line {number}: {cell:?} of {zone} is no number"))?;
            curves
                .entry((*zone).to_owned())
                .or_default()
                .push((at, rate));
        }
    }
    Ok(curves)
}

/// Reads seconds, or date and time without a time zone.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let (date, time) = text.trim_end_matches('Z').split_once([' ', 'T'])?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    if !(1.0..=12.0).contains(&month) || !(1.0..=31.0).contains(&day) {
        return None;
    }
    Some(days(year, month, day) * 86_400.0 + hour * 3600.0 + minute * 60.0 + second)
}

fn numbers(text: &str, separator: char) -> Option<[f64; 3]> {
    let parts: Option<Vec<f64>> = text
        .split(separator)
        .map(|part| part.parse().ok())
        .collect();
    parts?.try_into().ok()
}

/// Returns the days since March of the year 0: if years begin in March, a leap day is the last.
fn days(year: f64, month: f64, day: f64) -> f64 {
    let (year, month) = if month < 3.0 {
        (year - 1.0, month + 9.0)
    } else {
        (year, month - 3.0)
    };
    let leap_days = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    year * 365.0 + leap_days + ((153.0 * month + 2.0) / 5.0).floor() + day
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(zones: &[(&str, &[(f64, f64)])]) -> Recording {
        let curve = |(zone, curve): &(&str, &[(f64, f64)])| ((*zone).to_owned(), curve.to_vec());
        Recording::try_new(zones.iter().map(curve).collect()).unwrap()
    }

    #[test]
    fn a_table_has_a_column_for_each_zone() {
        let read = read("# demand\ntime,a,b\n0,1,2\n60, 3.5 ,\n120,5,4\n").unwrap();
        let a: &[(f64, f64)] = &[(0.0, 1.0), (60.0, 3.5), (120.0, 5.0)];
        assert_eq!(
            read,
            recording(&[("a", a), ("b", &[(0.0, 2.0), (120.0, 4.0)])])
        );
    }

    #[test]
    fn times_are_seconds_or_dates() {
        let between = |one: &str, next: &str| seconds(next).unwrap() - seconds(one).unwrap();
        for (one, next, expected) in [
            ("2014-07-01 00:00:00", "2014-07-01 00:30:00", 1800.0),
            ("2014-12-31 23:59:59", "2015-01-01T00:00:00Z", 1.0),
            ("2024-02-28 00:00:00", "2024-03-01 00:00:00", 2.0 * 86_400.0),
            ("2100-02-28 00:00:00", "2100-03-01 00:00:00", 86_400.0),
            (
                "1970-01-01 00:00:00",
                "2026-01-01 00:00:00",
                1_767_225_600.0,
            ),
            ("5", "1.5e1", 10.0),
        ] {
            assert!((between(one, next) - expected).abs() < 1e-6, "{one} {next}");
        }
        for wrong in [
            "",
            "noon",
            "2014-13-01 00:00:00",
            "2014-07-01",
            "1:2:3 4-5-6",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }

    /// As Prometheus answers to `sum by (locality, fleet) (plimsoll_control_demand_…)`.
    #[test]
    fn series_of_a_zone_are_added_up() {
        let json = r#"{"status":"success","data":{"resultType":"matrix","result":[
            {"metric":{"locality":"r1/a","fleet":"x"},
             "values":[[1700000000,"1.5"],[1700000060,"2"]]},
            {"metric":{"locality":"r1/a","fleet":"y"},
             "values":[[1700000000,"1"],[1700000060,"3"]]},
            {"metric":{"zone":"b"},"values":[[1700000000,"4"],[1700000060,"4"]]}]}}"#;
        let (from, to) = (1_700_000_000.0, 1_700_000_060.0);
        let a: &[(f64, f64)] = &[(from, 2.5), (to, 5.0)];
        let expected = recording(&[("a", a), ("b", &[(from, 4.0), (to, 4.0)])]);
        assert_eq!(read(json).unwrap(), expected);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, reason) in [
            ("", "is empty"),
            ("time\n0\n", "the header must be"),
            ("time,a,a\n", "names a zone twice"),
            ("time,a\n0,1,2\n", "line 2: 2 values for 1 zones"),
            ("time,a\nsoon,1\n", "line 2: \"soon\" is no time"),
            ("time,a\n0,many\n", "line 2: \"many\" of a is no number"),
            ("time,a\n0,1\n", "has less than two samples"),
            ("{}", "query_range"),
            (
                r#"{"data":{"result":[{"metric":{},"values":[]}]}}"#,
                "none of the labels",
            ),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
