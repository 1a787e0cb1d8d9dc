// The zone map: where requests arrive on the left, where they are served on the right, ribbons as
// wide as the traffic. The mark on the right is the load line. Many zones become a heat matrix.

import { at, attr, empty, rows, s, table, text, whileOpen, widthOf } from './dom.js';
import { count, known, level, levelWords, percent, places, rate } from './format.js';
import { matrix } from './matrix.js';
import { traffic } from './store.js';

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
let tableOpen = null;
let width = null;

/** Listens for the viewer. */
export function start(draw) {
  width = widthOf(at('map-card').querySelector('.card-head'), draw);
  tableOpen = whileOpen(at('flows').closest('details'), draw);
}

/** Shows the traffic of a cluster. */
export function show(state, cluster) {
  const names = places(cluster.zones);
  if (tableOpen()) {
    flows(cluster, names);
  }
  const { total } = traffic(cluster);
  const none = total > 0 ? null : state.one_proxy ? 'This proxy sends nothing just now.'
    : 'No load reports yet: who sends to whom is not known.';
  empty(at('map-empty'), none);
  const map = at('map');
  map.hidden = Boolean(none);
  text(at('map-note'), note(state, cluster, total));
  if (none) {
    return;
  }
  const many = cluster.zones.length > RIBBONS;
  if (attrOf(map) !== (many ? 'matrix' : 'ribbons')) {
    map.replaceChildren();
  }
  if (many) {
    matrix(map, cluster, names, width());
  } else {
    ribbons(map, state, cluster, names);
  }
}

const attrOf = (map) => map.getAttribute('data-kind');

function note(state, cluster, total) {
  if (total <= 0) {
    return '';
  }
  if (state.one_proxy) {
    const load = cluster.basis === 'utilization' ? 'is the utilization that hosts report, against the mean'
      : 'is what follows for a zone when the proxies of all zones decide as this one';
    return `Requests of this proxy during the last seconds. Load ${load}.`;
  }
  if (!cluster.flows_measured) {
    return 'As planned: proxies have not reported where requests went.';
  }
  return cluster.zones.length > RIBBONS
    ? 'As proxies reported last. The strip on top is the load of the column below it.'
    : 'As proxies reported last. The mark beside a zone is its load line: its share of the capacity.';
}

function flows(cluster, names) {
  showFlows ??= table(at('flows'), [
    { label: 'From proxies in', field: 'from', show: (flow) => flow.from },
    { label: 'To hosts in', field: 'to', show: (flow) => flow.to },
    { label: 'Traffic', field: 'flow', number: true, show: (flow) => flow.rate, format: rate },
    { label: 'Of the zone', field: 'share', number: true, show: (flow) => flow.share, format: percent },
  ], (flow) => `${flow.from}>${flow.to}`, 'Traffic from zone to zone');
  const { issued } = traffic(cluster);
  const all = cluster.flows
    .map(([from, to, value]) => ({ from: names[from], to: names[to], rate: value, share: value / issued[from] }))
    .sort((a, b) => b.rate - a.rate);
  showFlows(all.slice(0, LISTED));
  text(at('flows-note'), all.length > LISTED
    ? `The ${LISTED} largest of ${count(all.length)} flows.` : '');
}

/** Heights and places of both columns, in pixels. */
function layout(state, cluster, height) {
  const { issued, served } = traffic(cluster);
  const zones = cluster.zones.map((zone, index) => ({
    index, zone, issued: issued[index], served: served[index], line: zone.line_requests_per_second ?? 0,
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
  let bottom = 0;
  const stack = (column, value) => {
    let y = GAP / 2;
    const placed = column.map((zone) => {
      const slot = Math.max(SLOT, value(zone) * scale);
      const own = { ...zone, y, next: y };
      y += slot + GAP;
      return own;
    });
    bottom = Math.max(bottom, y);
    return placed;
  };
  return { left: stack(left, (zone) => zone.issued), right: stack(right, reach), scale, bottom };
}

function ribbons(map, state, cluster, names) {
  const wide = Math.max(300, width());
  const labels = Math.max(LEAST_LABELS, Math.min(LABELS, wide * 0.22));
  const { left, right, scale, bottom } = layout(state, cluster, Math.max(300, cluster.zones.length * 70));
  const x = { left: labels, right: wide - labels - BAR };
  const parts = [
    ...bands(cluster, names, { left, right, scale, x }),
    ...left.flatMap((zone) => arrivals(zone, names[zone.index], scale, x)),
    ...right.flatMap((zone) => servers(zone, names[zone.index], scale, x)),
  ];
  if (!map.firstChild) {
    map.append(s('svg', { role: 'img' }));
  }
  const svg = map.firstChild;
  const words = right.map((zone) => `${names[zone.index]} serves ${rate(zone.served)}, ${levelWords(zone.zone.load)}`);
  attr(svg, 'width', wide);
  attr(svg, 'height', bottom);
  attr(svg, 'viewBox', `0 0 ${wide} ${bottom}`);
  attr(svg, 'aria-label', `Traffic between ${names.length} zones. ${words.join('; ')}.`);
  attr(map, 'data-kind', 'ribbons');
  rows(svg, parts, (part) => part.key, (part) => s(part.tag, { class: part.class }, ...part.children ?? []), update);
}

/** What is drawn stays where it is: a hint that somebody reads does not go away. */
function update(element, part) {
  for (const [name, value] of Object.entries(part.attributes)) {
    attr(element, name, value);
  }
  part.texts?.forEach((words, index) => {
    const child = element.children[index];
    text(child, words);
    if (part.tag === 'text') {
      attr(child, 'x', part.attributes.x);
    }
  });
}

function bands(cluster, names, { left, right, scale, x }) {
  const leftAt = new Map(left.map((zone) => [zone.index, zone]));
  const rightAt = new Map(right.map((zone) => [zone.index, zone]));
  const parts = [];
  const ordered = [...cluster.flows].sort((a, b) => a[0] - b[0] || a[1] - b[1]);
  for (const [from, to, value] of ordered) {
    const [a, b] = [leftAt.get(from), rightAt.get(to)];
    if (!a || !b || value <= 0) {
      continue;
    }
    const thick = Math.max(1, value * scale);
    parts.push({
      key: `ribbon ${names[from]}>${names[to]}`,
      tag: 'path',
      class: from === to ? 'ribbon local' : 'ribbon cross',
      attributes: {
        d: ribbon(x.left + BAR, a.next, x.right, b.next, thick),
        'data-level': level(cluster.zones[to].load),
        'data-from': names[from],
        'data-to': names[to],
        'data-value': value,
        'data-width': thick.toFixed(2),
      },
      children: [s('title')],
      texts: [`${names[from]} to ${names[to]}: ${rate(value)}`],
    });
    a.next += value * scale;
    b.next += value * scale;
  }
  return parts;
}

function arrivals(zone, name, scale, x) {
  return [
    {
      key: `arrival ${name}`, tag: 'rect', class: 'arrival',
      attributes: {
        x: x.left, y: zone.y, width: BAR, height: Math.max(2, zone.issued * scale),
        'data-zone': name, 'data-value': zone.issued,
      },
    },
    label(`from ${name}`, [x.left - 8, zone.y, 'end'], name, [rate(zone.issued)]),
  ];
}

function servers(zone, name, scale, x) {
  const { load } = zone.zone;
  const parts = [{
    key: `served ${name}`, tag: 'rect', class: 'served',
    attributes: {
      x: x.right, y: zone.y, width: BAR, height: Math.max(2, zone.served * scale),
      'data-level': level(load), 'data-zone': name, 'data-value': zone.served,
    },
  }];
  if (zone.line > 0) {
    const line = zone.y + zone.line * scale;
    // A thin box reaches from what is served to the mark, so that one can see whose it is.
    parts.push({
      key: `reach ${name}`, tag: 'rect', class: 'reach',
      attributes: {
        x: x.right, y: zone.y + zone.served * scale, width: BAR,
        height: Math.max(0, (zone.line - zone.served) * scale),
      },
    }, {
      key: `line ${name}`, tag: 'path', class: 'load-line',
      attributes: { d: `M${x.right - 5} ${line}H${x.right + BAR + 5}`, 'data-zone': name, 'data-value': zone.line },
    });
  }
  const words = known(load) ? [rate(zone.served), `${percent(load)} of line`] : [rate(zone.served)];
  parts.push(label(`to ${name}`, [x.right + BAR + 9, zone.y, 'start'], name, words));
  return parts;
}

function ribbon(x1, y1, x2, y2, thick) {
  const bend = (x1 + x2) / 2;
  return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}V${y2 + thick}`
    + `C${bend} ${y2 + thick} ${bend} ${y1 + thick} ${x1} ${y1 + thick}Z`;
}

/** The name of a zone and lines below it; another number of lines is another element. */
function label(key, [x, y, anchor], name, lines) {
  return {
    key: `label ${key} ${lines.length}`,
    tag: 'text',
    class: null,
    attributes: { x, y, 'text-anchor': anchor },
    children: [s('tspan', { class: 'name', dy: 11 }), ...lines.map(() => s('tspan', { class: 'detail', dy: 14 }))],
    texts: [name, ...lines],
  };
}
