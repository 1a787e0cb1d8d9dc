// Traffic map: zones where requests arrive on the left, zones that serve them on the right, and
// ribbons as wide as the traffic. The mark on the right is the load line. More zones than ribbons can
// show are drawn as a heat matrix.

import { byId, setAttr, setEmpty, setText, svgElement, syncRows, table, whileOpen, widthOf } from './dom.js';
import { count, known, level, levelWords, percent, rate, zoneNames } from './format.js';
import { matrix } from './matrix.js';
import { traffic } from './store.js';

/** Up to this number of zones, ribbons can be distinguished. */
const RIBBONS = 12;
/** Number of flows in the table below the map. */
const LISTED = 50;
const LABELS = 150;
const MIN_LABELS = 104;
const BAR = 12;
const SLOT = 40;
const GAP = 12;

let showFlows = null;
let tableOpen = null;
let width = null;

/** Sets up event handlers. */
export function start(draw) {
  width = widthOf(byId('map-card').querySelector('.card-head'), draw);
  tableOpen = whileOpen(byId('flows').closest('details'), draw);
}

/** Shows the traffic of a cluster. */
export function show(state, cluster) {
  const names = zoneNames(cluster.zones);
  if (tableOpen()) {
    flows(cluster, names);
  }
  const { total } = traffic(cluster);
  const none = total > 0 ? null : state.one_proxy ? 'This proxy is not sending any requests.'
    : 'No load reports yet: traffic between zones is unknown.';
  setEmpty(byId('map-empty'), none);
  const map = byId('map');
  map.hidden = Boolean(none);
  setText(byId('map-note'), note(state, cluster, total));
  if (none) {
    return;
  }
  const many = cluster.zones.length > RIBBONS;
  if (attrOf(map) !== (many ? 'matrix' : 'ribbons')) {
    map.replaceChildren();
  }
  if (many) {
    matrix(map, state, cluster, names, width());
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
    const load = cluster.basis === 'utilization' ? 'is the utilization reported by hosts, relative to the mean'
      : 'is computed as if the proxies of all zones decided like this one';
    return `Requests of this proxy during the last seconds. Load ${load}.`;
  }
  if (!cluster.flows_measured) {
    return 'Planned traffic: proxies have not reported where requests went.';
  }
  return cluster.zones.length > RIBBONS
    ? 'From the last reports of the proxies.'
    : 'From the last reports of the proxies. The mark at a zone is its load line: its share of the capacity.';
}

function flows(cluster, names) {
  showFlows ??= table(byId('flows'), [
    { label: 'From proxies in', field: 'from', show: (flow) => flow.from },
    { label: 'To hosts in', field: 'to', show: (flow) => flow.to },
    { label: 'Traffic', field: 'flow', number: true, show: (flow) => flow.rate, format: rate },
    { label: 'Share of zone', field: 'share', number: true, show: (flow) => flow.share, format: percent },
  ], (flow) => `${flow.from}>${flow.to}`, 'Traffic from zone to zone');
  const { issued } = traffic(cluster);
  const all = cluster.flows
    .map(([from, to, value]) => ({ from: names[from], to: names[to], rate: value, share: value / issued[from] }))
    .sort((a, b) => b.rate - a.rate);
  showFlows(all.slice(0, LISTED));
  setText(byId('flows-note'), all.length > LISTED
    ? `The ${LISTED} largest of ${count(all.length)} flows.` : '');
}

/** Computes heights and positions of both columns, in pixels. */
function layout(state, cluster, height) {
  const { issued, served } = traffic(cluster);
  const zones = cluster.zones.map((zone, index) => ({
    index, zone, issued: issued[index], served: served[index], line: zone.line_requests_per_second ?? 0,
  }));
  // A single proxy does not know the traffic of others, so zones without its own are left out.
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
  const labels = Math.max(MIN_LABELS, Math.min(LABELS, wide * 0.22));
  const { left, right, scale, bottom } = layout(state, cluster, Math.max(300, cluster.zones.length * 70));
  const x = { left: labels, right: wide - labels - BAR };
  const parts = [
    ...bands(cluster, names, { left, right, scale, x }),
    ...left.flatMap((zone) => arrivals(zone, names[zone.index], scale, x)),
    ...right.flatMap((zone) => servers(zone, names[zone.index], scale, x)),
  ];
  if (!map.firstChild) {
    map.append(svgElement('svg', { role: 'img' }));
  }
  const svg = map.firstChild;
  const words = right.map((zone) => `${names[zone.index]} serves ${rate(zone.served)}, ${levelWords(zone.zone.load)}`);
  setAttr(svg, 'width', wide);
  setAttr(svg, 'height', bottom);
  setAttr(svg, 'viewBox', `0 0 ${wide} ${bottom}`);
  setAttr(svg, 'aria-label', `Traffic between ${names.length} zones. ${words.join('; ')}.`);
  setAttr(map, 'data-kind', 'ribbons');
  syncRows(svg, parts, (part) => part.key, (part) => svgElement(part.tag, { class: part.class }, ...part.children ?? []), update);
}

/** Updates an element in place, so that an open tooltip stays open. */
function update(element, part) {
  for (const [name, value] of Object.entries(part.attributes)) {
    setAttr(element, name, value);
  }
  part.texts?.forEach((words, index) => {
    const child = element.children[index];
    setText(child, words);
    if (part.tag === 'text') {
      setAttr(child, 'x', part.attributes.x);
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
      children: [svgElement('title')],
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
    // A thin box connects the served bar with its mark.
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
  const words = known(load) ? [rate(zone.served), `load ${percent(load)}`] : [rate(zone.served)];
  parts.push(label(`to ${name}`, [x.right + BAR + 9, zone.y, 'start'], name, words));
  return parts;
}

function ribbon(x1, y1, x2, y2, thick) {
  const bend = (x1 + x2) / 2;
  return `M${x1} ${y1}C${bend} ${y1} ${bend} ${y2} ${x2} ${y2}V${y2 + thick}`
    + `C${bend} ${y2 + thick} ${bend} ${y1 + thick} ${x1} ${y1 + thick}Z`;
}

/** A zone name with lines below it; the key includes the number of lines. */
function label(key, [x, y, anchor], name, lines) {
  return {
    key: `label ${key} ${lines.length}`,
    tag: 'text',
    class: null,
    attributes: { x, y, 'text-anchor': anchor },
    children: [svgElement('tspan', { class: 'name', dy: 11 }), ...lines.map(() => svgElement('tspan', { class: 'detail', dy: 14 }))],
    texts: [name, ...lines],
  };
}
