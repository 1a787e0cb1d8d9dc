//! Charts as SVG: axes with round numbers, lines with gaps, areas, marks for events.
//!
//! Knows nothing of policies; `panels` says what to draw. Coordinates are written with one digit,
//! so the same numbers give the same bytes.

use std::fmt::Write as _;

/// Room for the numbers of the axes and for event marks.
const LEFT: f64 = 40.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 20.0;
/// More points than this cannot be seen.
const MAX_POINTS: usize = 600;

/// Size of a chart, about as many units as the page has pixels for it, so that text keeps its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// How an axis spreads its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scale {
    Linear,
    Logarithmic,
}

/// The vertical axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axis {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) scale: Scale,
    /// Written behind every number.
    pub(super) unit: &'static str,
    /// Numbers are shown times this: 100 for percent.
    pub(super) factor: f64,
}

/// What is drawn with one class of the style sheet.
#[derive(Clone, Debug)]
pub(super) enum Shape<'a> {
    /// From below to above, where both have a value.
    Band {
        low: &'a [f64],
        high: &'a [f64],
        class: &'static str,
    },
    /// From the foot of the chart to the line.
    Area {
        values: &'a [f64],
        class: &'static str,
    },
    /// A line with gaps where there is no value.
    Line {
        values: &'a [f64],
        class: String,
        title: String,
    },
    /// A horizontal line.
    Level { at: f64, class: &'static str },
}

/// One chart.
#[derive(Clone, Debug)]
pub(super) struct Chart<'a> {
    /// What it shows, for those who cannot see it.
    pub(super) label: String,
    pub(super) size: Size,
    /// Seconds, one per value.
    pub(super) times: &'a [f64],
    /// Before this moment nothing is measured.
    pub(super) measured_from: f64,
    pub(super) axis: Axis,
    pub(super) shapes: Vec<Shape<'a>>,
    /// Moments of the events, numbered from 1.
    pub(super) marks: Vec<f64>,
}

impl Chart<'_> {
    /// The chart as an `<svg>` element.
    pub(super) fn draw(&self) -> String {
        let mut svg = String::new();
        let label = super::escape(&self.label);
        let Size { width, height } = self.size;
        let _ = writeln!(
            svg,
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">"
        );
        self.draw_axes(&mut svg);
        for shape in &self.shapes {
            self.draw_shape(shape, &mut svg);
        }
        self.draw_marks(&mut svg);
        svg.push_str("</svg>\n");
        svg
    }

    const fn right(&self) -> f64 {
        self.size.width - RIGHT
    }

    const fn foot(&self) -> f64 {
        self.size.height - BOTTOM
    }

    fn end(&self) -> f64 {
        self.times.last().copied().unwrap_or(1.0).max(1e-9)
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + (self.right() - LEFT) * (time / self.end()).clamp(0.0, 1.0)
    }

    fn y(&self, value: f64) -> f64 {
        let Axis {
            low, high, scale, ..
        } = self.axis;
        let value = value.clamp(low, high);
        let part = match scale {
            Scale::Linear => (value - low) / (high - low),
            Scale::Logarithmic => (value / low).ln() / (high / low).ln(),
        };
        self.foot() - (self.foot() - TOP) * part
    }

    fn draw_axes(&self, svg: &mut String) {
        let (right, foot) = (self.right(), self.foot());
        if self.measured_from > 0.0 {
            let width = self.x(self.measured_from) - LEFT;
            let height = foot - TOP;
            let _ = writeln!(
                svg,
                "<rect class=\"early\" x=\"{LEFT}\" y=\"{TOP}\" width=\"{width:.1}\" \
                 height=\"{height:.1}\"/>"
            );
        }
        for tick in self.axis.ticks() {
            let y = self.y(tick);
            let text = number(tick * self.axis.factor);
            let unit = self.axis.unit;
            let _ = writeln!(
                svg,
                "<path class=\"gl\" d=\"M{LEFT} {y:.1}H{right}\"/><text x=\"{:.1}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{text}{unit}</text>",
                LEFT - 5.0,
                y + 3.5
            );
        }
        let _ = writeln!(svg, "<path class=\"ax\" d=\"M{LEFT} {foot}H{right}\"/>");
        for tick in linear_ticks(0.0, self.end(), self.ticks_across()) {
            let x = self.x(tick);
            let anchor = if tick >= self.end() { "end" } else { "middle" };
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{} s</text>",
                foot + 14.0,
                number(tick)
            );
        }
    }

    fn ticks_across(&self) -> u32 {
        if self.size.width < 300.0 { 3 } else { 5 }
    }

    fn draw_shape(&self, shape: &Shape<'_>, svg: &mut String) {
        match shape {
            Shape::Band { low, high, class } => {
                let mut path = self.path(high, true);
                let back: Vec<(f64, f64)> = self.points(low).into_iter().flatten().rev().collect();
                for (x, y) in back {
                    let _ = write!(path, "L{x:.1} {y:.1}");
                }
                if !path.is_empty() {
                    let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}Z\"/>");
                }
            }
            Shape::Area { values, class } => {
                let foot = self.foot();
                for run in self.points(values).split(Option::is_none) {
                    let run: Vec<(f64, f64)> = run.iter().copied().flatten().collect();
                    let (Some(first), Some(last)) = (run.first(), run.last()) else {
                        continue;
                    };
                    let mut path = format!("M{:.1} {foot}", first.0);
                    for (x, y) in &run {
                        let _ = write!(path, "L{x:.1} {y:.1}");
                    }
                    let last = last.0;
                    let _ = writeln!(
                        svg,
                        "<path class=\"{class}\" d=\"{path}L{last:.1} {foot}Z\"/>"
                    );
                }
            }
            Shape::Line {
                values,
                class,
                title,
            } => {
                let path = self.path(values, false);
                let title = super::escape(title);
                let _ = writeln!(
                    svg,
                    "<path class=\"ln {class}\" d=\"{path}\"><title>{title}</title></path>"
                );
            }
            Shape::Level { at, class } => {
                if (self.axis.low..=self.axis.high).contains(at) {
                    let (y, right) = (self.y(*at), self.right());
                    let _ = writeln!(
                        svg,
                        "<path class=\"ln {class}\" d=\"M{LEFT} {y:.1}H{right}\"/>"
                    );
                }
            }
        }
    }

    /// Events as numbered dots above the chart, with a line down.
    fn draw_marks(&self, svg: &mut String) {
        for (number, &at) in self
            .marks
            .iter()
            .enumerate()
            .filter(|(_, at)| **at <= self.end())
        {
            let (x, foot, number) = (self.x(at), self.foot(), number + 1);
            let _ = writeln!(
                svg,
                "<path class=\"mark\" d=\"M{x:.1} {TOP}V{foot}\"/><circle class=\"dot\" \
                 cx=\"{x:.1}\" cy=\"7\" r=\"6.5\"/><text class=\"num\" x=\"{x:.1}\" y=\"10.3\" \
                 text-anchor=\"middle\">{number}</text>"
            );
        }
    }

    /// Positions of the values, as many as can be seen; `None` where there is no value.
    fn points(&self, values: &[f64]) -> Vec<Option<(f64, f64)>> {
        let stride = values.len().div_ceil(MAX_POINTS).max(1);
        let points = self.times.iter().zip(values).step_by(stride);
        points
            .map(|(&time, &value)| value.is_finite().then(|| (self.x(time), self.y(value))))
            .collect()
    }

    /// A path along the values; `joined` passes over gaps.
    fn path(&self, values: &[f64], joined: bool) -> String {
        let mut path = String::new();
        let mut pen_down = false;
        for point in self.points(values) {
            match point {
                Some((x, y)) => {
                    let command = if pen_down { 'L' } else { 'M' };
                    let _ = write!(path, "{command}{x:.1} {y:.1}");
                    pen_down = true;
                }
                None => pen_down &= joined,
            }
        }
        path
    }
}

impl Axis {
    fn ticks(&self) -> Vec<f64> {
        match self.scale {
            Scale::Linear => linear_ticks(self.low, self.high, 5),
            Scale::Logarithmic => {
                let decades = (-3..=6).map(|power| 10_f64.powi(power));
                decades
                    .filter(|tick| (self.low..=self.high).contains(tick))
                    .collect()
            }
        }
    }
}

/// Round numbers from `low` to `high`, about `count` of them.
fn linear_ticks(low: f64, high: f64, count: u32) -> Vec<f64> {
    let rough = (high - low) / f64::from(count);
    if rough.is_nan() || rough <= 0.0 {
        return vec![low];
    }
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(10.0 * power);
    let first = (low / step).ceil();
    let mut ticks = Vec::new();
    let mut index = first;
    while index * step <= high * (1.0 + 1e-9) {
        ticks.push(index * step);
        index += 1.0;
    }
    ticks
}

/// A number with as many digits as it needs, four at most.
fn number(value: f64) -> String {
    let rounded = (value * 1e4).round() / 1e4;
    format!("{rounded}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(low: f64, high: f64, scale: Scale) -> Axis {
        Axis {
            low,
            high,
            scale,
            unit: "",
            factor: 1.0,
        }
    }

    fn chart<'a>(times: &'a [f64], shapes: Vec<Shape<'a>>) -> Chart<'a> {
        Chart {
            label: "a & b".into(),
            size: Size {
                width: 520.0,
                height: 200.0,
            },
            times,
            measured_from: 1.0,
            axis: axis(0.0, 2.0, Scale::Linear),
            shapes,
            marks: vec![2.0, 99.0],
        }
    }

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(linear_ticks(0.0, 1.2, 5), [0.0, 0.25, 0.5, 0.75, 1.0]);
        assert_eq!(
            linear_ticks(0.0, 120.0, 6),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0, 120.0]
        );
        assert_eq!(linear_ticks(1.0, 1.0, 5), [1.0]);
        let decades = axis(1.0, 5000.0, Scale::Logarithmic).ticks();
        assert_eq!(decades, [1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(number(0.1 + 0.2), "0.3");
    }

    #[test]
    fn a_line_has_gaps_where_there_is_no_value() {
        let values = [0.0, 2.0, f64::NAN, 1.0];
        let times = [1.0, 2.0, 3.0, 4.0];
        let line = Shape::Line {
            values: &values,
            class: "z0".into(),
            title: "zone <a>".into(),
        };
        let svg = chart(&times, vec![line]).draw();
        assert!(
            svg.contains("d=\"M158.0 180.0L276.0 14.0M512.0 97.0\""),
            "{svg}"
        );
        assert!(svg.contains("<title>zone &lt;a&gt;</title>") && svg.contains("a &amp; b"));
    }

    #[test]
    fn values_beyond_the_axis_stay_on_its_edge() {
        let (values, times) = ([9.0, -9.0], [1.0, 2.0]);
        let line = Shape::Line {
            values: &values,
            class: "z0".into(),
            title: String::new(),
        };
        let svg = chart(&times, vec![line]).draw();
        assert!(svg.contains("d=\"M276.0 14.0L512.0 180.0\""), "{svg}");
    }

    #[test]
    fn areas_and_bands_are_closed_and_marks_outside_are_left_out() {
        let (low, high, times) = ([0.5, 0.5], [1.0, 1.5], [1.0, 4.0]);
        let shapes = vec![
            Shape::Band {
                low: &low,
                high: &high,
                class: "band",
            },
            Shape::Area {
                values: &high,
                class: "fill",
            },
            Shape::Level {
                at: 1.0,
                class: "limit",
            },
            Shape::Level {
                at: 7.0,
                class: "limit",
            },
        ];
        let svg = chart(&times, shapes).draw();
        assert_eq!(svg.matches("Z\"/>").count(), 2, "{svg}");
        assert_eq!(svg.matches("ln limit").count(), 1);
        assert_eq!(svg.matches("<circle").count(), 1);
    }

    #[test]
    fn long_series_are_thinned() {
        let times: Vec<f64> = (1..=10_000).map(f64::from).collect();
        let svg = chart(
            &times,
            vec![Shape::Line {
                values: &times,
                class: "z0".into(),
                title: String::new(),
            }],
        );
        assert!(svg.draw().len() < 12_000);
    }
}
