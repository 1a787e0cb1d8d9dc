// The zone map: where requests arrive on the left, where they are served on the right, ribbons as
// wide as the traffic. The mark on the right is the load line. Many zones become a heat matrix.

import { at, attr, empty, s, table, text } from './dom.js';
import { count, known, level, levelWords, percent, places, rate } from './format.js';
import { matrix } from './matrix.js';

/** Zones up to which ribbons can be told apart. */
const RIBBONS = 12;
/** Flows in the table beside the map. */
const LISTED = 50;
const LABELS = 150;
const LEAST_LABELS = 104;
const BAR = 12;
const SLOT = 40;
const GAP = 12;

let showFlows = null;

/** Shows the traffic of a cluster. */
export function show(state, cluster) {
  const names = places(cluster.zones);
  flows(cluster, names);
  const total = cluster.flows.reduce((sum, [, , value]) => sum + value, 0);
  const none = total > 0 ? null : state.one_proxy ? 'This proxy sends nothing just now.'
    : 'No load reports yet: who sends to whom is not known.';
  empty(at('map-empty'), none);
  const map = at('map');
  map.hidden = Boolean(none);
  text(at('map-note'), note(state, cluster, total));
  if (none) {
    return;
  }
  if (cluster.zones.length > RIBBONS) {
    matrix(map, cluster, names);
  } else {
    ribbons(map, state, cluster, names);
  }
}

function note(state, cluster, total) {
  if (total <= 0) {
    return '';
  }
  if (state.one_proxy) {
    const load = cluster.basis === 'utilization' ? 'is the utilization that hosts report, against the mean'
      : 'is what follows for a zone when the proxies of all zones decide as this one';
    return `Requests of this proxy during the last seconds. Load ${load}.`;
  }
  return cluster.flows_measured
    ? 'As proxies reported last. The mark beside a zone is its load line: its share of the capacity.'
    : 'As planned: proxies have not reported where requests went.';
}

function flows(cluster, names) {
  showFlows ??= table(at('flows'), [
    { label: 'From proxies in', show: (flow) => flow.from },
    { label: 'To hosts in', show: (flow) => flow.to },
    { label: 'Traffic', field: 'flow', number: true, show: (flow) => flow.rate, format: rate },
    { label: 'Of the zone', field: 'share', number: true, show: (flow) => flow.share, format: percent },
  ], (flow) => `${flow.from}>${flow.to}`, 'Traffic from zone to zone');
  const issued = new Map();
  cluster.flows.forEach(([from, , value]) => issued.set(from, (issued.get(from) ?? 0) + value));
  const all = cluster.flows
    .map(([from, to, value]) => ({ from: names[from], to: names[to], rate: value, share: value / issued.get(from) }))
    .sort((a, b) => b.rate - a.rate);
  showFlows(all.slice(0, LISTED));
  text(at('flows-note'), all.length > LISTED
    ? `The ${LISTED} largest of ${count(all.length)} flows.` : '');
}

/** Heights and places of both columns, in pixels. */
function layout(state, cluster, height) {
  const zones = cluster.zones.map((zone, index) => ({
    index,
    zone,
    issued: sum(cluster.flows.filter(([from]) => from === index)),
    served: sum(cluster.flows.filter(([, to]) => to === index)),
    line: zone.line_requests_per_second ?? 0,
  }));
  // What other proxies send is not known to one: that is not nothing.
  const left = zones.filter((zone) => zone.issued > 0 || (!state.one_proxy && zone.zone.proxies > 0));
  const right = zones.filter((zone) => zone.served > 0 || zone.zone.hosts > 0);
  const reach = (zone) => Math.max(zone.served, zone.line);
  const most = Math.max(
    left.reduce((all, zone) => all + zone.issued, 0),
    right.reduce((all, zone) => all + reach(zone), 0),
  );
  const scale = (height - GAP * Math.max(left.length, right.length)) / most;
  const stack = (column, value) => {
    let y = GAP / 2;
    for (const zone of column) {
      const slot = Math.max(SLOT, value(zone) * scale);
      zone.y = y;
      zone.slot = slot;
      y += slot + GAP;
    }
    return y;
  };
  const leftCopy = left.map((zone) => ({ ...zone }));
  const rightCopy = right.map((zone) => ({ ...zone }));
  const bottom = Math.max(stack(leftCopy, (zone) => zone.issued), stack(rightCopy, reach));
  return { left: leftCopy, right: rightCopy, scale, bottom };
}

const sum = (list) => list.reduce((all, [, , value]) => all + value, 0);

function ribbons(map, state, cluster, names) {
  const width = Math.max(300, map.clientWidth);
  const labels = Math.max(LEAST_LABELS, Math.min(LABELS, width * 0.22));
  const { left, right, scale, bottom } = layout(state, cluster, Math.max(300, cluster.zones.length * 70));
  const x = { left: labels, right: width - labels - BAR };
  const parts = [];
  const leftAt = new Map(left.map((zone) => [zone.index, { ...zone, next: zone.y }]));
  const rightAt = new Map(right.map((zone) => [zone.index, { ...zone, next: zone.y }]));
  const ordered = [...cluster.flows].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  for (const [from, to, value] of ordered) {
    const [a, b] = [leftAt.get(from), rightAt.get(to)];
    if (!a || !b || value <= 0) {
      continue;
    }
    const thick = Math.max(1, value * scale);
    const zone = cluster.zones[to];
    parts.push(s('path', {
      class: from === to ? 'ribbon local' : 'ribbon cross',
      d: ribbon(x.left + BAR, a.next, x.right, b.next, thick),
      'data-level': level(zone.load),
      'data-from': names[from],
      'data-to': names[to],
      'data-value': value,
    }, s('title', {}, `${names[from]} to ${names[to]}: ${rate(value)}`)));
    a.next += value * scale;
    b.next += value * scale;
  }
  for (const zone of left) {
    const y = zone.y;
    parts.push(s('rect', { class: 'arrival', x: x.left, y, width: BAR, height: Math.max(2, zone.issued * scale) }));
    parts.push(label(x.left - 8, y, 'end', names[zone.index], [rate(zone.issued)]));
  }
  for (const zone of right) {
    const { load } = zone.zone;
    const y = zone.y;
    parts.push(s('rect', { class: 'served', x: x.right, y, width: BAR, height: Math.max(2, zone.served * scale), 'data-level': level(load) }));
    if (zone.line > 0) {
      const line = y + zone.line * scale;
      parts.push(s('path', { class: 'load-line', d: `M${x.right - 5} ${line}H${x.right + BAR + 5}` }));
    }
    const words = known(load) ? [rate(zone.served), `${percent(load)} of line`] : [rate(zone.served)];
    parts.push(label(x.right + BAR + 9, y, 'start', names[zone.index], words));
  }
  const words = right.map((zone) => `${names[zone.index]} serves ${rate(zone.served)}, ${levelWords(zone.zone.load)}`);
  const svg = s('svg', {
    width, height: bottom, viewBox: `0 0 ${width} ${bottom}`, role: 'img',
    'aria-label': `Traffic between ${names.length} zones. ${words.join('; ')}.`,
  }, ...parts);
  map.replaceChildren(svg);
  attr(map, 'data-kind', 'ribbons');
}

function ribbon(x1, y1, x2, y2, thick) {
  const bend = (x1 + x2) / 2;
  return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}V${y2 + thick}`
    + `C${bend} ${y2 + thick} ${bend} ${y1 + thick} ${x1} ${y1 + thick}Z`;
}

function label(x, y, anchor, name, lines) {
  const children = [s('tspan', { class: 'name', x, dy: 11 }, name)];
  for (const line of lines) {
    children.push(s('tspan', { class: 'detail', x, dy: 14 }, line));
  }
  return s('text', { x, y, 'text-anchor': anchor }, ...children);
}
