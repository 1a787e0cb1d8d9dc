// Traffic between zones and what it costs. The price and the size of a request can be set here and
// are remembered by this browser only.

import { at, attr, h, num, rows, table, text } from './dom.js';
import { bytesPerSecond, dollars, known, percent, places, rate } from './format.js';
import { traffic } from './store.js';

const HOURS_PER_MONTH = 730;
const LISTED = 12;

let showCosts = null;

function remembered(name) {
  const stored = localStorage.getItem(`plimsoll.${name}`);
  const value = stored === null || stored === '' ? NaN : Number(stored);
  return Number.isFinite(value) && value >= 0 ? value : null;
}

/** Price and size in force: what the viewer set, or what the host says. */
export function settings(state) {
  return {
    usd: remembered('usd') ?? state.cost.usd_per_gigabyte,
    bytes: remembered('bytes') ?? state.cost.bytes_per_request,
  };
}

/** Requests per second that leave their zone. */
export const crossing = (cluster) => traffic(cluster).cross;

/** Bytes per second of one request per second. */
function bytesOf(cluster, { bytes }) {
  const cross = crossing(cluster);
  const measured = cluster.cross_zone_bytes_per_second;
  return known(measured) && cross > 0 ? measured / cross : bytes;
}

/** Dollars per month for the traffic between zones; null when nothing is known to flow. */
export function monthly(cluster, setting) {
  if (cluster.flows.length === 0) {
    return null;
  }
  return cost(crossing(cluster) * bytesOf(cluster, setting), setting) * HOURS_PER_MONTH;
}

const cost = (bytes, { usd }) => (bytes * 3600 * usd) / 1e9;

/** What would cross if every request went to any host: the bill without zones. */
function withoutZones(cluster) {
  if (!cluster.zones.some((zone) => known(zone.capacity_share))) {
    return null;
  }
  const { issued } = traffic(cluster);
  return cluster.zones.reduce((sum, zone, index) => sum + issued[index] * (1 - (zone.capacity_share ?? 0)), 0);
}

/** Listens for the viewer. */
export function start(draw) {
  const remember = (id, name, factor) => at(id).addEventListener('input', () => {
    const value = at(id).value;
    localStorage.setItem(`plimsoll.${name}`, value === '' ? '' : String(Number(value) * factor));
    draw();
  });
  remember('usd', 'usd', 1);
  remember('size', 'bytes', 1000);
  at('cost-form').addEventListener('submit', (event) => event.preventDefault());
  at('cost-reset').addEventListener('click', () => {
    localStorage.removeItem('plimsoll.usd');
    localStorage.removeItem('plimsoll.bytes');
    draw();
  });
}

/** Shows the cost of a cluster. */
export function show(state, cluster) {
  const setting = settings(state);
  input('usd', setting.usd);
  input('size', setting.bytes / 1000);
  const measured = known(cluster.cross_zone_bytes_per_second);
  at('size-label').hidden = measured;
  text(at('cost-note'), measured
    ? 'Bytes are measured. A month has 730 hours. Saved: against sending every request to any host.'
    : 'Bytes are requests times the size above: load reports do not count bytes. A month has 730 hours. Saved: against sending every request to any host.');
  const flowing = cluster.flows.length > 0;
  const cross = flowing ? crossing(cluster) : null;
  const each = bytesOf(cluster, setting);
  const bytes = flowing ? cross * each : null;
  const hour = flowing ? cost(bytes, setting) : null;
  const flat = flowing ? withoutZones(cluster) : null;
  const saved = known(flat) ? cost((flat - cross) * each, setting) * HOURS_PER_MONTH : null;
  const tiles = [
    { name: 'Crosses zones', field: 'cross', value: cross, format: rate },
    { name: 'Bytes', field: 'bytes', value: bytes, format: bytesPerSecond },
    { name: 'Per hour', field: 'hour', value: hour, format: dollars },
    { name: 'Per month', field: 'month', value: known(hour) ? hour * HOURS_PER_MONTH : null, format: dollars },
    { name: 'Saved a month', field: 'saved', value: saved, format: dollars },
  ];
  rows(at('cost-tiles'), tiles, (tile) => tile.name, () => h('div', {}, h('dt'), h('dd')), (element, tile) => {
    attr(element, 'data-tile', tile.field);
    text(element.children[0], tile.name);
    num(element.children[1], tile.value, tile.format);
  });
  edges(cluster, each, setting);
}

function edges(cluster, each, setting) {
  showCosts ??= table(at('costs'), [
    { label: 'From', field: 'from', show: (edge) => edge.from },
    { label: 'To', field: 'to', show: (edge) => edge.to },
    { label: 'Traffic', number: true, field: 'flow', show: (edge) => edge.rate, format: rate },
    { label: 'Of the bill', number: true, wide: true, field: 'share', show: (edge) => edge.share, format: percent },
    { label: 'Per month', number: true, field: 'month', show: (edge) => edge.month, format: dollars },
  ], (edge) => `${edge.from}>${edge.to}`, 'Cost from zone to zone, dearest first');
  const names = places(cluster.zones);
  const cross = crossing(cluster);
  const all = cluster.flows
    .filter(([from, to, value]) => from !== to && value > 0)
    .sort((a, b) => b[2] - a[2])
    .slice(0, LISTED)
    .map(([from, to, value]) => ({
      from: names[from],
      to: names[to],
      rate: value,
      share: value / cross,
      month: cost(value * each, setting) * HOURS_PER_MONTH,
    }));
  at('costs').hidden = all.length === 0;
  showCosts(all);
}

/** Shows a setting, unless the viewer is at it. */
function input(id, value) {
  const element = at(id);
  const words = String(Number(value.toPrecision(6)));
  if (document.activeElement !== element && element.value !== words) {
    element.value = words;
  }
}
