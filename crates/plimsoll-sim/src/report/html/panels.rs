//! The charts: four sections, one panel per policy in each, all panels of a section on one scale so
//! that they can be compared by eye.

use std::fmt::Write as _;

use super::prose;
use super::svg::{Axis, Chart, Scale, Shape, Size};
use crate::report::series::Series;
use crate::report::{Facts, PolicyReport, Report};

/// Up to here each zone has its own colour; beyond, only the range and its ends are shown.
const MAX_COLOURS: usize = 6;

/// Three panels in a row on a wide page, and four.
const LARGE: Size = Size {
    width: 360.0,
    height: 180.0,
};
const SMALL: Size = Size {
    width: 260.0,
    height: 140.0,
};

pub(super) fn sections(report: &Report, page: &mut String) {
    utilization(report, page);
    cross_zone(report, page);
    latency(report, page);
    failures(report, page);
}

fn utilization(report: &Report, page: &mut String) {
    let few = report.facts.zones.len() <= MAX_COLOURS;
    let zones = if few {
        "One line per zone (sliding one-second means)."
    } else {
        "The band is the range of all zones (one-second means), the lines are the zones that are \
         highest and lowest on average."
    };
    let text = format!(
        "How loaded each zone is over time. {zones} Lines on top of each other are what we want: \
         every zone as loaded as the whole (dashed). The dotted line at 1 is capacity: above it \
         requests queue up and are refused. The shaded part is not measured."
    );
    begin("Utilization of each zone", &text, page);
    legend(&report.facts, few, page);
    let high = highest(report, |series| series.utilization.iter().flatten());
    let axis = linear((high * 1.05).clamp(1.1, 2.5), "", 1.0);
    page.push_str("<div class=\"grid\">\n");
    for policy in &report.policies {
        let shapes = utilization_shapes(policy, &report.facts, few);
        let label = format!("Utilization of each zone under {}", policy.policy.name());
        let panel = Panel {
            policy,
            caption: prose::utilization(policy),
            label,
            size: LARGE,
        };
        panel.write(&report.facts, &axis, shapes, page);
    }
    end(page);
}

fn utilization_shapes<'a>(policy: &'a PolicyReport, facts: &Facts, few: bool) -> Vec<Shape<'a>> {
    let series = &policy.series;
    let mut shapes = vec![Shape::Level {
        at: 1.0,
        class: "limit",
    }];
    if few {
        for (zone, (values, name)) in series.utilization.iter().zip(&facts.zones).enumerate() {
            let class = format!("z{zone}");
            let title = format!("zone {name}");
            shapes.push(Shape::Line {
                values,
                class,
                title,
            });
        }
    } else {
        let (low, high) = (&series.lowest, &series.highest);
        shapes.push(Shape::Band {
            low,
            high,
            class: "band",
        });
        let zones = &policy.metrics.zones;
        let by = |a: &usize, b: &usize| zones[*a].utilization.total_cmp(&zones[*b].utilization);
        let ends = [
            ((0..zones.len()).min_by(by), "cold thin", "lowest"),
            ((0..zones.len()).max_by(by), "hot thin", "highest"),
        ];
        for (zone, class, word) in ends {
            if let Some(zone) = zone {
                let title = format!("{word}: zone {}", facts.zones[zone]);
                let values = &series.utilization[zone];
                shapes.push(Shape::Line {
                    values,
                    class: class.into(),
                    title,
                });
            }
        }
    }
    let title = "all hosts together".to_owned();
    shapes.push(Shape::Line {
        values: &series.mean,
        class: "mean".into(),
        title,
    });
    shapes
}

fn legend(facts: &Facts, few: bool, page: &mut String) {
    page.push_str("<div class=\"legend\">");
    let mut entry = |style: &str, class: &str, name: &str| {
        let name = super::escape(name);
        let _ = write!(
            page,
            "<span><i class=\"{class}\" style=\"{style}\"></i>{name}</span>"
        );
    };
    if few {
        for (zone, name) in facts.zones.iter().enumerate() {
            entry(
                &format!("border-color:var(--z{zone})"),
                "",
                &format!("zone {name}"),
            );
        }
    } else {
        entry("background:var(--band)", "area", "all zones");
        entry("border-color:var(--hot)", "", "highest on average");
        entry("border-color:var(--z0)", "", "lowest on average");
    }
    entry("border-color:var(--dim)", "dash", "all hosts together");
    entry("border-color:var(--limit)", "dash", "capacity");
    page.push_str("</div>\n");
}

fn cross_zone(report: &Report, page: &mut String) {
    begin(
        "Traffic between zones",
        "Share of requests that leave the zone they arrived in: slower, and often paid for. The \
         dashed line is the least that any policy needs to keep the zones even. Below it, a zone \
         is overloaded; far above it, traffic is sent around for nothing.",
        page,
    );
    let high = highest(report, |series| {
        series.cross_zone.iter().chain(&series.needed)
    });
    let axis = linear((high * 1.05).clamp(0.1, 1.0), " %", 100.0);
    page.push_str("<div class=\"grid small\">\n");
    for policy in &report.policies {
        let series = &policy.series;
        let name = policy.policy.name();
        let title = "leave their zone".to_owned();
        let shapes = vec![
            Shape::Area {
                values: &series.cross_zone,
                class: "fill",
            },
            Shape::Line {
                values: &series.cross_zone,
                class: "z0".into(),
                title,
            },
            Shape::Line {
                values: &series.needed,
                class: "mean".into(),
                title: "needed".into(),
            },
        ];
        let label = format!("Share of requests that leave their zone under {name}");
        let panel = Panel {
            policy,
            caption: prose::cross_zone(policy),
            label,
            size: SMALL,
        };
        panel.write(&report.facts, &axis, shapes, page);
    }
    end(page);
}

fn latency(report: &Report, page: &mut String) {
    begin(
        "Latency",
        "How long successful requests take, second by second: the lower line is the median, the \
         upper one the 99th percentile. The scale is logarithmic: one line up is ten times slower.",
        page,
    );
    let high = highest(report, |series| &series.p99);
    let low = report.policies.iter().flat_map(|policy| &policy.series.p50);
    let low = low
        .copied()
        .filter(|value| value.is_finite())
        .fold(f64::INFINITY, f64::min);
    let low = if low.is_finite() { low } else { 1.0 };
    let axis = Axis {
        low: (low * 0.7).max(0.05),
        high: (high * 1.3).max(low * 10.0),
        scale: Scale::Logarithmic,
        unit: " ms",
        factor: 1.0,
    };
    page.push_str("<div class=\"grid small\">\n");
    for policy in simulated(report) {
        let series = &policy.series;
        let line = |values, class: &str, title: &str| Shape::Line {
            values,
            class: class.into(),
            title: title.into(),
        };
        let shapes = vec![
            line(&series.p50, "z0", "median"),
            line(&series.p99, "z1", "99th percentile"),
        ];
        let label = format!("Latency under {}", policy.policy.name());
        let panel = Panel {
            policy,
            caption: prose::latency(policy),
            label,
            size: SMALL,
        };
        panel.write(&report.facts, &axis, shapes, page);
    }
    end(page);
}

fn failures(report: &Report, page: &mut String) {
    begin(
        "Failures",
        "Requests per second that failed: refused by a host whose queue was full, sent to a host \
         that had died, or without any host to go to.",
        page,
    );
    let high = highest(report, |series| &series.failures);
    let axis = linear((high * 1.1).max(1.0), "", 1.0);
    page.push_str("<div class=\"grid small\">\n");
    for policy in simulated(report) {
        let values = &policy.series.failures;
        let title = "failed per second".to_owned();
        let shapes = vec![
            Shape::Area {
                values,
                class: "fail",
            },
            Shape::Line {
                values,
                class: "hot".into(),
                title,
            },
        ];
        let label = format!("Failed requests per second under {}", policy.policy.name());
        let panel = Panel {
            policy,
            caption: prose::failures(policy),
            label,
            size: SMALL,
        };
        panel.write(&report.facts, &axis, shapes, page);
    }
    end(page);
}

fn simulated(report: &Report) -> impl Iterator<Item = &PolicyReport> {
    report
        .policies
        .iter()
        .filter(|policy| !policy.policy.is_computed())
}

/// One chart with its name and what it shows.
struct Panel<'a> {
    policy: &'a PolicyReport,
    caption: String,
    label: String,
    size: Size,
}

impl Panel<'_> {
    fn write(self, facts: &Facts, axis: &Axis, shapes: Vec<Shape<'_>>, page: &mut String) {
        let chart = Chart {
            label: self.label,
            size: self.size,
            times: &self.policy.series.times,
            measured_from: facts.measured_from_s,
            axis: axis.clone(),
            shapes,
            marks: facts.events.iter().map(|(at, _)| *at).collect(),
        };
        let (name, description) = (self.policy.policy.name(), self.policy.description);
        let _ = writeln!(
            page,
            "<figure>\n<h3 title=\"{description}\">{name}</h3>\n<figcaption>{}</figcaption>\n\
             {}</figure>",
            self.caption,
            chart.draw()
        );
    }
}

fn begin(title: &str, text: &str, page: &mut String) {
    let _ = writeln!(page, "<section>\n<h2>{title}</h2>\n<p>{text}</p>");
}

fn end(page: &mut String) {
    page.push_str("</div>\n</section>\n");
}

/// The highest value that a chart of any policy must have room for.
fn highest<'a, I>(report: &'a Report, values: impl Fn(&'a Series) -> I) -> f64
where
    I: IntoIterator<Item = &'a f64>,
{
    let all = report
        .policies
        .iter()
        .flat_map(|policy| values(&policy.series));
    all.copied()
        .filter(|value| value.is_finite())
        .fold(0.0, f64::max)
}

const fn linear(high: f64, unit: &'static str, factor: f64) -> Axis {
    Axis {
        low: 0.0,
        high,
        scale: Scale::Linear,
        unit,
        factor,
    }
}
