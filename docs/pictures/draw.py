#!/usr/bin/env python3
"""Draws the time series of `plimsoll sim --csv` as an SVG: a panel per policy, a line per zone.

Usage: draw.py [--failed] SERIES.csv PICTURE.svg TITLE [SECOND=EVENT ...]

With --failed, a panel has the share of requests that fail, over all zones. Needs nothing but Python.
docs/how-it-works.md and docs/results.md show the commands behind each picture.
"""
import csv
import sys
from html import escape

NAMES = {
    "zone_aware_hosts": "host counts",
    "lrs_by_reporter": "measured demand (LRS_REPORTED_RATE)",
    "lrs_by_destination": "demand counted at the destination (wrong)",
    "headroom": "load_aware_locality, HEADROOM",
    "convergent": "load_aware_locality, CONVERGENT",
    "hybrid": "CONVERGENT led by measured demand",
    "observed_load": "observed load (OBSERVED_LOAD)",
}
WIDTH, PANEL, LEFT, RIGHT, GAP = 880, 120, 60, 90, 44
STYLE = """
  text { fill: #1f2328; }
  .page { fill: #ffffff; }
  .quiet { fill: #59636e; }
  .grid { stroke: #d1d9e0; }
  .event { stroke: #8c959f; stroke-dasharray: 2 3; }
  .mean { stroke: #1f2328; stroke-width: 1.4; stroke-dasharray: 6 4; fill: none; }
  .zone { stroke-width: 2; fill: none; stroke-linejoin: round; }
  .z0 { stroke: #cf222e; } .z1 { stroke: #0969da; } .z2 { stroke: #1a7f37; } .z3 { stroke: #8250df; }
  text.z0, text.z1, text.z2, text.z3 { stroke: none; font-weight: 600; }
  text.z0 { fill: #cf222e; } text.z1 { fill: #0969da; } text.z2 { fill: #1a7f37; } text.z3 { fill: #8250df; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .page { fill: #0d1117; }
    .quiet { fill: #9ea7b1; }
    .grid { stroke: #30363d; }
    .event { stroke: #6e7681; }
    .mean { stroke: #e6edf3; }
    .z0 { stroke: #ff7b72; } .z1 { stroke: #58a6ff; } .z2 { stroke: #3fb950; } .z3 { stroke: #bc8cff; }
    text.z0 { fill: #ff7b72; } text.z1 { fill: #58a6ff; } text.z2 { fill: #3fb950; } text.z3 { fill: #bc8cff; }
  }
"""


def read(path):
    """{policy: {zone: [(second, utilization)]}} in the order of the file; zone `*` is the mean."""
    series = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            value = row["utilization_1s" if row["zone"] == "*" else "utilization_5s"]
            if value:
                points = series.setdefault(row["policy"], {}).setdefault(row["zone"], [])
                points.append((float(row["time_s"]), float(value)))
    for zones in series.values():
        zones["*"] = smooth(zones.get("*", []))
    return series


def read_failed(path):
    """{policy: {"failed": [(second, share of the requests that fail)]}}, means of 5 s."""
    series = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["zone"] == "*":
                share = float(row["failures_per_s"] or 0) / float(row["demand_rps"])
                points = series.setdefault(row["policy"], {"*": [], "failed": []})["failed"]
                points.append((float(row["time_s"]), share))
    for lines in series.values():
        lines["failed"] = smooth(lines["failed"])
    return series


def smooth(points):
    """Sliding means of 5 s, as those of the zones."""
    windows = [points[max(0, index - 4) : index + 1] for index in range(len(points))]
    return [(one[-1][0], sum(value for _, value in one) / len(one)) for one in windows]


def segments(points, step):
    """Every `step`-th point, split at gaps: a zone without hosts has no utilization."""
    found = [[]]
    for point in points:
        if found[-1] and point[0] - found[-1][-1][0] > step + 1:
            found.append([])
        if not found[-1] or point[0] - found[-1][-1][0] >= step:
            found[-1].append(point)
    return found


class Plot:
    """Scales of one picture."""

    def __init__(self, series):
        points = [point for zones in series.values() for line in zones.values() for point in line]
        self.end = max(second for second, _ in points)
        self.top = max(1.1, max(value for _, value in points) * 1.05)
        self.step = 1 if self.end <= 200 else 2 if self.end <= 1200 else self.end // 600

    def x(self, second):
        return LEFT + (WIDTH - LEFT - RIGHT) * second / self.end

    def y(self, y0, value):
        return y0 + PANEL * (1 - min(value, self.top) / self.top)

    def line(self, y0, points, classes):
        for piece in segments(points, self.step):
            line = " ".join(f"{self.x(s):.1f},{self.y(y0, u):.1f}" for s, u in piece)
            yield f'<polyline class="{classes}" points="{line}"/>'


def panel(plot, policy, zones, y0):
    out = [f'<text x="{LEFT}" y="{y0 - 10}" font-weight="600">{escape(NAMES.get(policy, policy))}</text>']
    for share in (0, 0.5, 1):
        y = plot.y(y0, share)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(f'<text class="quiet" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share * 100:.0f} %</text>')
    out += plot.line(y0, zones["*"], "mean")
    labels = []
    names = sorted(zone for zone in zones if zone != "*")
    for index, zone in reversed(list(enumerate(names))):
        out += plot.line(y0, zones[zone], f"zone z{index % 4}")
        labels.append([plot.y(y0, zones[zone][-1][1]), zone, index % 4])
    labels.sort()
    for before, label in zip(labels, labels[1:]):
        label[0] = max(label[0], before[0] + 15)
    over = max(0, labels[-1][0] - (y0 + PANEL))
    for at, zone, index in labels:
        name = zone if zone == "failed" else f"zone {zone}"
        out.append(f'<text class="z{index}" x="{WIDTH - RIGHT + 8}" y="{at - over + 4:.1f}">{escape(name)}</text>')
    return out


def draw(series, title, events, caption):
    plot = Plot(series)
    top = 58 if events else 40
    height = top + len(series) * (PANEL + GAP) + 24
    bottom = height - 36
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" aria-label="{escape(title)}" font-family="system-ui, \'Liberation Sans\', Arial, sans-serif" '
        f'font-size="14">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="600">{escape(title)}</text>',
        f'<text class="quiet" x="{WIDTH - RIGHT}" y="{top + GAP - 24}" text-anchor="end">'
        f"{caption}</text>",
    ]
    for second, text in events:
        x = plot.x(float(second))
        out.append(f'<line class="event" x1="{x:.1f}" x2="{x:.1f}" y1="{top - 4}" y2="{bottom - 8}"/>')
        out.append(f'<text class="quiet" x="{x + 4:.1f}" y="{top - 2}">{escape(text)}</text>')
    y0 = top
    for policy, zones in series.items():
        out += panel(plot, policy, zones, y0 + GAP - 14)
        y0 += PANEL + GAP
    minutes = int(plot.end // 60)
    for minute in range(0, minutes + 1, 1 if minutes <= 20 else 10):
        x = plot.x(minute * 60)
        out.append(f'<text class="quiet" x="{x:.1f}" y="{bottom + 20}" text-anchor="middle">{minute} min</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    arguments = [argument for argument in sys.argv[1:] if argument != "--failed"]
    if len(arguments) < 3:
        sys.exit(__doc__)
    failed = len(arguments) < len(sys.argv) - 1
    found = (read_failed if failed else read)(arguments[0])
    below = "share of requests that fail" if failed else "utilization of each zone; dashed: load line"
    marks = [argument.split("=", 1) for argument in arguments[3:]]
    with open(arguments[1], "w", encoding="utf-8") as picture:
        picture.write(draw(found, arguments[2], marks, below))
