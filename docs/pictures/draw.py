#!/usr/bin/env python3
"""Draws the time series of `plimsoll sim --csv` as an SVG: a panel per policy, a line per zone.

Usage: draw.py SERIES.csv PICTURE.svg TITLE. Needs nothing but Python. What was run for each picture
stands beside it in docs/concepts.md.
"""
import csv
import sys
from html import escape

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
NAMES = {
    "zone_aware_hosts": "host counts",
    "lrs_by_reporter": "measured demand",
    "lrs_by_destination": "demand counted at the wrong end",
    "headroom": "headroom rule",
    "convergent": "CONVERGENT",
    "hybrid": "CONVERGENT led by demand",
}
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 880, 130, 60, 90, 46, 34


def read(path):
    """{policy: {zone: [(second, utilization)]}}, in the order of the file."""
    series = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["zone"] == "*" or not row["utilization_5s"]:
                continue
            zones = series.setdefault(row["policy"], {})
            points = zones.setdefault(row["zone"], [])
            points.append((float(row["time_s"]), float(row["utilization_5s"])))
    return series


def pieces(points):
    """Points without gaps: a zone without hosts has no utilization, and no line."""
    found = [[]]
    for point in points:
        if found[-1] and point[0] - found[-1][-1][0] > 2:
            found.append([])
        found[-1].append(point)
    return found


def panel(policy, zones, y0, end, top):
    plot = WIDTH - LEFT - RIGHT
    x = lambda second: LEFT + plot * second / end
    y = lambda value: y0 + PANEL * (1 - min(value, top) / top)
    out = [f'<text x="{LEFT}" y="{y0 - 8}" font-weight="600">{escape(NAMES.get(policy, policy))}</text>']
    for share in (0, 0.5, 1):
        if share <= top:
            out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}" stroke="#ddd"/>')
            out.append(f'<text x="{LEFT - 8}" y="{y(share) + 4:.1f}" text-anchor="end" fill="#555">{share * 100:.0f} %</text>')
    labels = []
    for index, (zone, points) in enumerate(zones.items()):
        colour = COLOURS[index % len(COLOURS)]
        for piece in pieces(points):
            line = " ".join(f"{x(s):.1f},{y(u):.1f}" for s, u in piece)
            out.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
        labels.append([y(points[-1][1]), zone, colour])
    labels.sort()
    for before, label in zip(labels, labels[1:]):
        label[0] = max(label[0], before[0] + 14)
    over = max(0, labels[-1][0] - (y0 + PANEL)) if labels else 0
    for at, zone, colour in labels:
        out.append(f'<text x="{WIDTH - RIGHT + 8}" y="{at - over + 4:.1f}" fill="{colour}">zone {escape(zone)}</text>')
    return out


def draw(series, title):
    points = [point for zones in series.values() for line in zones.values() for point in line]
    end = max(second for second, _ in points)
    top = max(1.1, max(value for _, value in points) * 1.05)
    height = TOP + len(series) * (PANEL + GAP) + 20
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, \'Liberation Sans\', Arial, sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
        f'<text x="{LEFT}" y="20" font-size="15" font-weight="600">{escape(title)}</text>',
    ]
    y0 = TOP
    for policy, zones in series.items():
        y0 += GAP - 14
        out += panel(policy, zones, y0, end, top)
        y0 += PANEL + 14
    plot = WIDTH - LEFT - RIGHT
    for minute in range(0, int(end // 60) + 1):
        x = LEFT + plot * minute * 60 / end
        out.append(f'<text x="{x:.1f}" y="{y0 + 6}" text-anchor="middle" fill="#555">{minute} min</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[2], "w", encoding="utf-8") as picture:
        picture.write(draw(read(sys.argv[1]), sys.argv[3]))
