// Cost of traffic between zones. Price and request size can be changed and are stored in this
// browser only; those of a service (`cost`) win.

import { byId, h, setAttr, setNumber, setText, syncRows, table } from './dom.js';
import { bytesPerSecond, dollars, known, percent, rate, zoneNames } from './format.js';
import { traffic } from './store.js';

const HOURS_PER_MONTH = 730;
const LISTED = 12;

let showCosts = null;

function storedNumber(name) {
  const stored = localStorage.getItem(`plimsoll.${name}`);
  const value = stored === null || stored === '' ? NaN : Number(stored);
  return Number.isFinite(value) && value >= 0 ? value : null;
}

/** Returns price and request size: the viewer's settings, or the defaults of the host. */
export function settings(state) {
  return {
    usd: storedNumber('usd') ?? state.cost.usd_per_gigabyte,
    bytes: storedNumber('bytes') ?? state.cost.bytes_per_request,
  };
}

/** Returns the requests per second that leave their zone. */
export const crossing = (cluster) => traffic(cluster).cross;

/** Returns the bytes per request: measured, as the service says, or as set. */
function bytesPerRequest(cluster, { bytes }) {
  const cross = crossing(cluster);
  const measured = cluster.cross_zone_bytes_per_second;
  return known(measured) && cross > 0 ? measured / cross : cluster.bytes_per_request ?? bytes;
}

/** Returns the price of a flow: that of the service, or as set. */
const priceOf = (cluster, index, { usd }) => cluster.flow_usd_per_gigabyte[index] ?? usd;

/** Returns dollars per hour for the traffic between zones. */
function perHour(cluster, setting) {
  const each = bytesPerRequest(cluster, setting);
  return cluster.flows.reduce((sum, [from, to, value], index) => (
    from === to ? sum : sum + costPerHour(value * each, priceOf(cluster, index, setting))), 0);
}

/** Returns dollars per month for traffic between zones; null without known traffic. */
export function monthly(cluster, setting) {
  if (cluster.flows.length === 0) {
    return null;
  }
  return perHour(cluster, setting) * HOURS_PER_MONTH;
}

/** Returns dollars per month for planned traffic: by the prices of the service, or as set. */
export const costOf = (total, cluster, setting) => (cluster.flow_usd_per_gigabyte.length > 0
  ? total.usd_per_month
  : costPerHour(total.cross_zone_requests_per_second * bytesPerRequest(cluster, setting), setting.usd) * HOURS_PER_MONTH);

const costPerHour = (bytesPerSecond, usd) => (bytesPerSecond * 3600 * usd) / 1e9;

/** Returns the requests per second that would leave their zone without zone-aware routing. */
function crossingWithoutZones(cluster) {
  if (!cluster.zones.some((zone) => known(zone.capacity_share))) {
    return null;
  }
  const { issued } = traffic(cluster);
  return cluster.zones.reduce((sum, zone, index) => sum + issued[index] * (1 - (zone.capacity_share ?? 0)), 0);
}

/** Sets up event handlers. */
export function start(draw) {
  const store = (id, name, factor) => byId(id).addEventListener('input', () => {
    const value = byId(id).value;
    localStorage.setItem(`plimsoll.${name}`, value === '' ? '' : String(Number(value) * factor));
    draw();
  });
  store('usd', 'usd', 1);
  store('size', 'bytes', 1000);
  byId('cost-form').addEventListener('submit', (event) => event.preventDefault());
  byId('cost-reset').addEventListener('click', () => {
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
  byId('size-label').hidden = measured;
  setText(byId('cost-note'), measured
    ? 'Bytes are measured. A month has 730 hours. Saved: compared with routing that ignores zones.'
    : 'Bytes are requests times the size above, because load reports do not count bytes. A month has 730 hours. Saved: compared with routing that ignores zones.');
  const flowing = cluster.flows.length > 0;
  const cross = flowing ? crossing(cluster) : null;
  const each = bytesPerRequest(cluster, setting);
  const bytes = flowing ? cross * each : null;
  const hour = flowing ? perHour(cluster, setting) : null;
  const flat = flowing && cluster.flow_usd_per_gigabyte.length === 0 ? crossingWithoutZones(cluster) : null;
  const saved = known(flat) ? costPerHour((flat - cross) * each, setting.usd) * HOURS_PER_MONTH : null;
  const { planned } = cluster;
  const tiles = [
    { name: 'Between zones', field: 'cross', value: cross, format: rate },
    { name: 'Bytes', field: 'bytes', value: bytes, format: bytesPerSecond },
    { name: 'Per hour', field: 'hour', value: hour, format: dollars },
    { name: 'Per month', field: 'month', value: known(hour) ? hour * HOURS_PER_MONTH : null, format: dollars },
    { name: 'Saved per month', field: 'saved', value: saved, format: dollars },
  ];
  if (planned) {
    tiles.push(
      { name: 'Per month as planned', field: 'planned', value: planned.usd_per_month, format: dollars },
      { name: 'Per month with LEVEL', field: 'level', value: planned.level_usd_per_month, format: dollars },
    );
  }
  syncRows(byId('cost-tiles'), tiles, (tile) => tile.name, () => h('div', {}, h('dt'), h('dd')), (element, tile) => {
    setAttr(element, 'data-tile', tile.field);
    setText(element.children[0], tile.name);
    setNumber(element.children[1], tile.value, tile.format);
  });
  edges(cluster, each, setting);
}

function edges(cluster, each, setting) {
  showCosts ??= table(byId('costs'), [
    { label: 'From', field: 'from', show: (edge) => edge.from },
    { label: 'To', field: 'to', show: (edge) => edge.to },
    { label: 'Traffic', number: true, field: 'flow', show: (edge) => edge.rate, format: rate },
    { label: 'Share of cost', number: true, wide: true, field: 'share', show: (edge) => edge.share, format: percent },
    { label: 'Per month', number: true, field: 'month', show: (edge) => edge.month, format: dollars },
  ], (edge) => `${edge.from}>${edge.to}`, 'Cost of traffic between zones, highest first');
  const names = zoneNames(cluster.zones);
  const all = perHour(cluster, setting) * HOURS_PER_MONTH;
  const dearest = cluster.flows
    .map(([from, to, value], index) => [from, to, value, priceOf(cluster, index, setting)])
    .filter(([from, to, value]) => from !== to && value > 0)
    .sort((a, b) => b[2] * b[3] - a[2] * a[3] || b[2] - a[2])
    .slice(0, LISTED)
    .map(([from, to, value, price]) => ({
      from: names[from],
      to: names[to],
      rate: value,
      share: all > 0 ? (costPerHour(value * each, price) * HOURS_PER_MONTH) / all : null,
      month: costPerHour(value * each, price) * HOURS_PER_MONTH,
    }));
  byId('costs').hidden = dearest.length === 0;
  showCosts(dearest);
}

/** Shows a setting unless the viewer is editing it. */
function input(id, value) {
  const element = byId(id);
  const formatted = String(Number(value.toPrecision(6)));
  if (document.activeElement !== element && element.value !== formatted) {
    element.value = formatted;
  }
}
