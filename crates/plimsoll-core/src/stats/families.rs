//! Metric values by exposed name and labels, as every exporter reads them, and the Prometheus text
//! format.
//!
//! Filled when somebody scrapes; nothing here is on the request path.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Metric, MetricKind};

/// Metric families by exposed name.
#[derive(Clone, Debug, Default)]
pub struct Families(BTreeMap<String, Family>);

/// All samples of one metric.
#[derive(Clone, Debug)]
pub struct Family {
    pub metric: Metric,
    samples: BTreeMap<Vec<String>, Value>,
}

/// Value of one sample.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Value of counters and of most gauges.
    Integer(u64),
    /// Value of gauges that are not counts.
    Float(f64),
    /// Observations by upper bound, ascending up to infinity, and the sum of all observed values.
    Histogram(Vec<(f64, u64)>, f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Integer(value)
    }
}

impl From<f64> for Value {
    fn from(value: f64) -> Self {
        Self::Float(value)
    }
}

/// One line of the text format: a number with a name and labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Suffix of the family name: `_bucket`, `_sum` or `_count` of histograms, else empty.
    pub suffix: &'static str,
    pub labels: Vec<(&'static str, String)>,
    /// An integer or a float, never a histogram.
    pub value: Value,
}

/// Text exposition format for Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextFormat {
    /// Version 0.0.4: families have the names of their samples.
    Prometheus,
    /// OpenMetrics 1.0: counters are `NAME` with samples `NAME_total`.
    OpenMetrics,
}

impl TextFormat {
    /// Returns the media type for the `content-type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }

    fn family_name(self, name: &str, kind: MetricKind) -> &str {
        let ending = match (self, kind) {
            (Self::OpenMetrics, MetricKind::Counter) => "_total",
            (Self::OpenMetrics, MetricKind::Info) => "_info",
            _ => "",
        };
        name.strip_suffix(ending).unwrap_or(name)
    }
}

impl Families {
    /// Sets the value of `metric` under `name` for these label values. Integers add up: if two
    /// counters share a name, it exposes their sum.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        metric: &Metric,
        labels: &[&str],
        value: impl Into<Value>,
    ) {
        let family = self.0.entry(name.into()).or_insert_with(|| Family {
            metric: *metric,
            samples: BTreeMap::new(),
        });
        let labels = labels.iter().map(|&label| label.to_owned()).collect();
        match (family.samples.get_mut(&labels), value.into()) {
            (Some(Value::Integer(sum)), Value::Integer(value)) => *sum += value,
            (_, value) => drop(family.samples.insert(labels, value)),
        }
    }

    /// Returns every family with its name, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Family)> {
        self.0.iter().map(|(name, family)| (&**name, family))
    }

    /// Renders all families as text for Prometheus.
    pub fn text(&self, format: TextFormat) -> String {
        let mut page = String::new();
        for (name, family) in self.iter() {
            // Writing to a `String` cannot fail.
            let kind = family.metric.kind;
            let base = format.family_name(name, kind);
            let help = family.metric.help.trim_end_matches('.');
            let _ = writeln!(page, "# HELP {base} {help}.");
            let _ = writeln!(page, "# TYPE {base} {}", kind.name());
            family.write(&mut page, name);
        }
        if format == TextFormat::OpenMetrics {
            page.push_str("# EOF\n");
        }
        page
    }
}

/// Writes the part of a line after the name of the family.
fn write_series<'a>(
    page: &mut String,
    suffix: &str,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    value: &Value,
) {
    page.push_str(suffix);
    let mut before = '{';
    for (name, value) in labels {
        page.push(before);
        page.push_str(name);
        page.push_str("=\"");
        write_escaped(page, value);
        page.push('"');
        before = ',';
    }
    if before == ',' {
        page.push('}');
    }
    // Writing to a `String` cannot fail.
    let _ = match value {
        Value::Integer(value) => writeln!(page, " {value}"),
        Value::Float(value) | Value::Histogram(_, value) => {
            writeln!(page, " {}", format_float(*value))
        }
    };
}

impl Family {
    /// Writes all lines. Pages have thousands of them, so plain numbers are written without copies.
    fn write(&self, page: &mut String, name: &str) {
        let has_histograms = |value: &Value| matches!(value, Value::Histogram(..));
        if self.samples.values().any(has_histograms) {
            for series in self.series() {
                page.push_str(name);
                let pairs = series.labels.iter();
                let labels = pairs.map(|(name, value)| (*name, value.as_str()));
                write_series(page, series.suffix, labels, &series.value);
            }
            return;
        }
        for (labels, value) in &self.samples {
            page.push_str(name);
            let names = self.metric.labels.iter().copied();
            let labels = names.zip(labels.iter().map(String::as_str));
            write_series(page, "", labels, value);
        }
    }

    /// Returns the labels and value of every sample.
    pub fn samples(&self) -> impl Iterator<Item = (Vec<(&'static str, String)>, &Value)> {
        self.samples.iter().map(|(labels, value)| {
            let names = self.metric.labels.iter().copied();
            (names.zip(labels.iter().cloned()).collect(), value)
        })
    }

    /// Returns all samples, with histograms expanded into their series.
    pub fn series(&self) -> Vec<Series> {
        let mut all = Vec::new();
        for (labels, value) in self.samples() {
            let mut add = |suffix, le: Option<String>, value| {
                let mut labels = labels.clone();
                labels.extend(le.map(|le| ("le", le)));
                all.push(Series {
                    suffix,
                    labels,
                    value,
                });
            };
            let Value::Histogram(buckets, sum) = value else {
                add("", None, value.clone());
                continue;
            };
            let count: u64 = buckets.iter().map(|(_, count)| count).sum();
            add("_sum", None, Value::Float(*sum));
            add("_count", None, Value::Integer(count));
            let mut below = 0;
            for (bound, count) in buckets {
                below += count;
                add("_bucket", Some(format_float(*bound)), Value::Integer(below));
            }
        }
        all
    }
}

/// Formats as Prometheus does, with a decimal point in whole numbers.
fn format_float(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else {
        format!("{value:?}")
    }
}

/// Writes a label value; few have characters that need an escape.
fn write_escaped(page: &mut String, label: &str) {
    for part in label.split_inclusive(['\\', '"', '\n']) {
        let plain = part.trim_end_matches(['\\', '"', '\n']);
        page.push_str(plain);
        page.push_str(match &part[plain.len()..] {
            "\\" => "\\\\",
            "\"" => "\\\"",
            "\n" => "\\n",
            _ => "",
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWERS: Metric = Metric::new(
        "answers_total",
        MetricKind::Counter,
        &["cluster", "class"],
        "Answers",
    );
    const LOAD: Metric = Metric::new("load", MetricKind::Gauge, &[], "Load.");
    const TIME: Metric = Metric::new("time", MetricKind::Histogram, &["cluster"], "Times");
    const BUILD: Metric = Metric::new("build_info", MetricKind::Info, &["version"], "Version");

    fn families() -> Families {
        let mut families = Families::default();
        families.add("answers_total", &ANSWERS, &["b", "2xx"], 3);
        families.add("answers_total", &ANSWERS, &["a\\\n\"", "5xx"], 1);
        families.add("answers_total", &ANSWERS, &["b", "2xx"], 4);
        families.add("load", &LOAD, &[], 300.0);
        families.add("load", &LOAD, &[], 0.25);
        let buckets = vec![(0.5, 2), (10.0, 0), (f64::INFINITY, 1)];
        families.add("time", &TIME, &["b"], Value::Histogram(buckets, 70.5));
        families.add("build_info", &BUILD, &["1.0"], 1);
        families
    }

    #[test]
    fn classic_families_have_the_names_of_their_samples() {
        let expected = r#"# HELP answers_total Answers.
# TYPE answers_total counter
answers_total{cluster="a\\\n\"",class="5xx"} 1
answers_total{cluster="b",class="2xx"} 7
# HELP build_info Version.
# TYPE build_info info
build_info{version="1.0"} 1
# HELP load Load.
# TYPE load gauge
load 0.25
# HELP time Times.
# TYPE time histogram
time_sum{cluster="b"} 70.5
time_count{cluster="b"} 3
time_bucket{cluster="b",le="0.5"} 2
time_bucket{cluster="b",le="10.0"} 2
time_bucket{cluster="b",le="+Inf"} 3
"#;
        assert_eq!(families().text(TextFormat::Prometheus), expected);
    }

    #[test]
    fn openmetrics_families_have_no_total_suffix() {
        let text = families().text(TextFormat::OpenMetrics);
        for line in [
            "# HELP answers Answers.",
            "# TYPE answers counter",
            "answers_total{cluster=\"b\",class=\"2xx\"} 7",
            "# TYPE build info",
            "build_info{version=\"1.0\"} 1",
            "# TYPE load gauge",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn formats_have_their_media_types() {
        let formats = [TextFormat::Prometheus, TextFormat::OpenMetrics];
        let types = formats.map(TextFormat::content_type);
        assert!(types[0].starts_with("text/plain;"));
        assert!(types[1].starts_with("application/openmetrics-text;"));
    }

    #[test]
    fn a_family_keeps_its_first_description() {
        let mut families = Families::default();
        families.add("x", &LOAD, &[], 1);
        families.add("x", &BUILD, &[], 1);
        let (name, family) = families.iter().next().unwrap();
        assert_eq!((name, family.metric), ("x", LOAD));
        let (labels, value) = family.samples().next().unwrap();
        assert_eq!((labels.len(), value), (0, &Value::Integer(2)));
    }
}
