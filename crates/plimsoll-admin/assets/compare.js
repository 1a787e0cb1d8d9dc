// Card that compares what proxies do now with what ENFORCE would do, both from measured demand.

import { byId, h, setAttr, setEmpty, setNumber, setText, syncRows, table } from './dom.js';
import { dollarsPerMonth, known, level, levelWords, localityName, percent, rate, zoneNames } from './format.js';
import { costOf, settings } from './cost.js';

/** Zones from which the table scrolls. */
const MANY = 12;

let showZones = null;

/** Creates the table of zones. */
function createTable() {
  const planned = (label, field, kind, value, format) => ({
    label, field, number: true,
    draw: (cell, { zone }) => {
      const number = zone[kind] ? value(zone[kind]) : null;
      setNumber(cell, number ?? null, format);
      if (value === load) {
        setAttr(cell, 'data-level', level(number));
        setAttr(cell, 'title', levelWords(number));
      }
    },
  });
  const load = (planned) => planned.load;
  const kept = (planned) => planned.kept_local;
  const served = (planned) => planned.served_requests_per_second;
  showZones = table(byId('compare-zones'), [
    { label: 'Zone', field: 'zone', class: 'nowrap', show: ({ name }) => name },
    planned('Load now', 'load-now', 'now', load, percent),
    planned('Load with ENFORCE', 'load-enforce', 'enforce', load, percent),
    planned('Served now', 'served-now', 'now', served, rate),
    planned('Served with ENFORCE', 'served-enforce', 'enforce', served, rate),
    planned('Kept local now', 'kept-now', 'now', kept, percent),
    planned('Kept local with ENFORCE', 'kept-enforce', 'enforce', kept, percent),
  ], ({ zone }) => localityName(zone.locality), 'Load by zone now and with ENFORCE');
}

/** Whether the service already routes as enforced. */
const enforced = (cluster) => cluster.mode === 'ENFORCE' && (cluster.ramp_percent ?? 100) >= 100;

/** Says in a sentence what ENFORCE would change. */
function sentence(cluster) {
  if (cluster.warming_up) {
    return 'Warming up: not every proxy has reported yet.';
  }
  const { now, enforce } = cluster;
  if (!now) {
    return '';
  }
  if (!enforce) {
    return `The highest load is ${percent(now.highest_load)} of the load line.`;
  }
  if (enforced(cluster)) {
    return `Demand steers this service: the highest load is ${percent(now.highest_load)} of the load line.`;
  }
  const change = `the highest load is ${percent(now.highest_load)} of the load line; with ENFORCE it would be ${percent(enforce.highest_load)}`;
  return cluster.mode === 'SHADOW' ? `In SHADOW, ${change}.`
    : cluster.mode === 'OFF' ? `With demand off, ${change}.`
      : `At ${percent((cluster.ramp_percent ?? 100) / 100)} of the ramp, ${change}.`;
}

/** Says why one side of the comparison is not known; null if both are. */
function unknown(cluster) {
  if (cluster.warming_up || (cluster.now && cluster.enforce)) {
    return null;
  }
  return cluster.now ? `With ENFORCE: not known, because ${cluster.enforce_unknown ?? 'it is not computed yet'}.`
    : `Not known, because ${cluster.now_unknown ?? 'it is not computed yet'}.`;
}

/** Shows the comparison; hosts without modes have none. */
export function show(state, cluster) {
  if (!showZones) {
    createTable();
  }
  const { now, enforce } = cluster;
  const card = byId('compare-card');
  // Hosts that do not compare say neither numbers nor reasons.
  const compares = now || enforce || cluster.now_unknown || cluster.enforce_unknown || cluster.warming_up;
  card.hidden = state.one_proxy || !cluster.mode || !compares;
  if (card.hidden) {
    return;
  }
  const has = Boolean(now);
  setText(byId('compare-lead'), sentence(cluster));
  setEmpty(byId('compare-empty'), unknown(cluster));
  const setting = settings(state);
  const cost = (total) => (total ? costOf(total, cluster, setting) : null);
  const pair = (name, field, value, format) => ({
    name, field, was: now ? value(now) : null, is: enforce ? value(enforce) : null, format,
  });
  const tiles = [
    pair('Highest load', 'highest', (total) => total.highest_load, percent),
    pair('Kept local', 'kept', (total) => total.kept_local, percent),
    pair('Between zones', 'cross', (total) => total.cross_zone_requests_per_second, rate),
    pair('Cost between zones', 'cost', cost, dollarsPerMonth),
  ];
  const list = byId('compare-tiles');
  list.hidden = !has;
  syncRows(list, has ? tiles : [], (tile) => tile.name,
    () => h('div', {}, h('dt'), h('dd', { 'data-kind': 'now' }), h('dd', { class: 'note' }, 'with ENFORCE ', h('span', { 'data-kind': 'enforce' }))),
    (element, tile) => {
      setAttr(element, 'data-tile', tile.field);
      setText(element.children[0], tile.name);
      setNumber(element.children[1], tile.was, tile.format);
      setAttr(element.children[1], 'data-level', tile.field === 'highest' ? level(tile.was) : null);
      setNumber(element.children[2].lastChild, tile.is, tile.format);
    });
  const names = zoneNames(cluster.zones);
  const rows = cluster.zones
    .map((zone, index) => ({ zone, name: names[index] }))
    .filter(({ zone }) => zone.now || zone.enforce);
  rows.sort((a, b) => (known(b.zone.now?.load) ? b.zone.now.load : -1) - (known(a.zone.now?.load) ? a.zone.now.load : -1));
  const scroller = byId('compare-scroller');
  scroller.hidden = rows.length === 0;
  // A few zones are shown whole; on a phone they are cards, and one would be cut.
  scroller.classList.toggle('whole', rows.length <= MANY);
  showZones(rows);
  const { cost: price } = state;
  setText(byId('compare-note'), has
    ? cluster.flow_usd_per_gigabyte.length > 0
      ? 'Both from measured demand. Cost by the prices of the service.'
      : `Both from measured demand. Cost: ${setting.usd} $/GB and ${setting.bytes / 1000} kB per request${price.assumed ? ', assumed unless set in the configuration (cost)' : ''}.`
    : '');
}
