// Overview: title, notices, actions, cluster list, tiles and events.

import { announce, byId, h, post, setAttr, setEmpty, setNumber, setText, syncRows, table } from './dom.js';
import {
  basisWords, clock, count, dollarsPerMonth, duration, known, level, levelWords, localityName, percent, rate,
  stateWords, UNKNOWN, zoneNames,
} from './format.js';
import { age, clusterKey, traffic } from './store.js';
import { monthly, crossing, settings } from './cost.js';

/** Sort order of the cluster list. */
export const byName = (a, b) => (a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1
  : a.fleet < b.fleet ? -1 : a.fleet > b.fleet ? 1 : 0);

let select = () => {};
let showClusters = null;

/** Returns the total demand of all zones; null if none is known. */
export function demand(cluster) {
  const rates = cluster.zones.map((zone) => zone.demand_requests_per_second).filter(known);
  return rates.length ? rates.reduce((sum, value) => sum + value, 0) : null;
}

/** Returns the share of traffic that stays in its zone; null without traffic. */
export function keptLocal(cluster) {
  const { total, cross } = traffic(cluster);
  return total > 0 ? 1 - cross / total : null;
}

/** Returns the zone with the highest load relative to its load line. */
export function busiest(cluster) {
  const loaded = cluster.zones.filter((zone) => known(zone.load));
  return loaded.reduce((worst, zone) => (!worst || zone.load > worst.load ? zone : worst), null);
}

/** Creates the cluster table and sets up event handlers. */
export function start(draw) {
  byId('clusters-search').addEventListener('input', draw);
  showClusters = table(byId('clusters'), [
    {
      label: 'Cluster', field: 'cluster',
      draw: (cell, { cluster, key }) => {
        if (!cell.firstChild) {
          const button = h('button', { type: 'button', class: 'link' });
          button.addEventListener('click', () => select(button.dataset.key));
          cell.append(button);
        }
        cell.firstChild.dataset.key = key;
        setText(cell.firstChild, cluster.cluster);
      },
    },
    { label: 'Fleet', field: 'fleet', wide: true, show: ({ cluster }) => cluster.fleet || UNKNOWN },
    { label: 'Mode', field: 'mode', wide: true, show: ({ cluster }) => cluster.mode ?? UNKNOWN },
    { label: 'Routes by', field: 'basis', wide: true, show: ({ cluster }) => basisWords(cluster.warming_up ? 'warming_up' : cluster.basis) },
    { label: 'Demand', field: 'demand', number: true, show: ({ cluster }) => demand(cluster), format: rate },
    { label: 'Kept local', field: 'kept', number: true, wide: true, show: ({ cluster }) => keptLocal(cluster), format: percent },
    {
      label: 'Busiest zone', field: 'busiest', number: true,
      draw: (cell, { cluster }) => {
        const zone = busiest(cluster);
        setAttr(cell, 'data-level', level(zone?.load));
        setNumber(cell, zone?.load ?? null, percent);
        setAttr(cell, 'title', zone ? `${localityName(zone.locality)} is ${levelWords(zone.load)}` : null);
      },
    },
  ], ({ key }) => key, 'Upstream clusters');
}

/** Shows everything above the selected cluster, and the events below it. */
export function show(state, cluster, onSelect) {
  select = onSelect;
  setText(byId('title'), state.title);
  setText(byId('subtitle'), state.subtitle);
  setText(byId('version'), `plimsoll ${state.version}`);
  document.title = state.title;
  syncRows(byId('notices'), state.notices, (notice) => notice.text,
    () => h('li'), (element, notice) => {
      setAttr(element, 'data-severity', notice.severity);
      setText(element, notice.text);
    });
  actions(state.actions);
  clusters(state, cluster);
  events(state.events);
}

function actions(all) {
  const card = byId('actions');
  card.hidden = all.length === 0;
  const groups = [...new Set(all.map((action) => action.group))];
  syncRows(card, groups, (group) => group, (group) => h('fieldset', {}, h('legend', {}, group), h('div'), h('p', { class: 'note' })),
    (element, group) => {
      const own = all.filter((action) => action.group === group);
      syncRows(element.children[1], own, (action) => action.name, button, (each, action) => {
        setText(each, action.label);
        setAttr(each, 'title', action.unavailable ?? action.help);
        setAttr(each, 'disabled', action.unavailable ? '' : null);
        setAttr(each, 'aria-pressed', String(action.pressed));
      });
      const missing = own.filter((action) => action.unavailable);
      setText(element.children[2], missing.map((action) => `${action.label}: ${action.unavailable}.`).join(' '));
      element.children[2].hidden = missing.length === 0;
    });
}

function button(action) {
  const element = h('button', { type: 'button', 'data-action': action.name });
  element.addEventListener('click', async () => {
    element.disabled = true;
    try {
      const { done } = await post(`dashboard/actions/${encodeURIComponent(action.name)}`, {});
      announce(done);
    } catch (error) {
      announce(`${action.label}: ${error.message}`);
    }
    element.disabled = false;
  });
  return element;
}

function clusters(state, cluster) {
  const all = [...state.clusters.values()].sort(byName);
  byId('clusters-card').hidden = all.length < 2;
  if (all.length < 2) {
    return;
  }
  const search = byId('clusters-search').value.trim().toLowerCase();
  const shown = all
    .filter((each) => `${each.cluster} ${each.fleet}`.toLowerCase().includes(search))
    .map((each) => ({ cluster: each, key: clusterKey(each) }));
  showClusters(shown);
  const current = cluster && clusterKey(cluster);
  for (const row of byId('clusters').tBodies[0].rows) {
    setAttr(row, 'aria-current', row.dataset.key === current ? 'true' : null);
  }
}

/** Shows the key numbers of a cluster. */
export function tiles(state, cluster) {
  const fleet = cluster.fleet ? ` from ${cluster.fleet}` : '';
  const mode = cluster.mode
    ? ` · ${cluster.mode}${known(cluster.ramp_percent) && cluster.ramp_percent < 100
      ? ` at ${cluster.ramp_percent} %` : ''}` : '';
  setText(byId('cluster-title'), `${cluster.cluster}${fleet} · ${cluster.policy}${mode}`);
  const worst = busiest(cluster);
  const worstName = worst && zoneNames(cluster.zones)[cluster.zones.indexOf(worst)];
  const cross = cluster.flows.length ? crossing(cluster) : null;
  const month = monthly(cluster, settings(state));
  const confirmed = cluster.confirmed_unix_ms ?? null;
  const states = new Set(cluster.zones.map((zone) => zone.state).filter(Boolean));
  const all = [
    {
      name: state.one_proxy ? 'Requests' : 'Demand', field: 'demand', value: demand(cluster), format: rate,
      note: state.one_proxy ? 'sent by this proxy' : demandNote(cluster),
    },
    {
      name: 'Kept local', field: 'kept', value: keptLocal(cluster), format: percent,
      note: cluster.flows_measured ? (state.one_proxy ? 'by this proxy' : 'as reported') : cluster.flows.length ? 'as planned' : 'no traffic yet',
    },
    {
      name: 'Between zones', field: 'cross', value: cross, format: rate,
      note: known(month) ? `about ${dollarsPerMonth(month)}` : '',
    },
    {
      name: 'Busiest zone', field: 'busiest', value: worst?.load ?? null, format: percent,
      note: worst ? `${worstName}, ${levelWords(worst.load)}${planned(state, cluster) ? ' as planned' : ''}` : 'no load reports yet',
      level: level(worst?.load),
    },
    {
      name: 'Routes by', field: 'basis', value: cluster.warming_up ? 'warming_up' : cluster.basis, format: basisWords,
      note: [...states].map(stateWords).join(', ') || 'no proxies yet',
    },
    {
      name: 'Confirmed', field: 'confirmed', value: confirmed, format: ago,
      note: staleness(cluster, age(confirmed)),
    },
  ];
  syncRows(byId('tiles'), all, (tile) => tile.name, () => h('div', {}, h('dt'), h('dd'), h('dd', { class: 'note' })),
    (element, tile) => {
      setAttr(element, 'data-tile', tile.field);
      setText(element.children[0], tile.name);
      setNumber(element.children[1], tile.value, tile.format);
      setAttr(element.children[1], 'class', tile.field === 'basis' ? 'words' : null);
      setAttr(element.children[1], 'data-level', tile.level ?? null);
      setText(element.children[2], tile.note);
    });
}

/** Formats how long ago a time was. */
export function ago(unixMs) {
  const since = age(unixMs);
  return known(since) ? `${duration(since)} ago` : UNKNOWN;
}
ago.changesWithTime = true;

/** Whether loads are planned instead of measured: one proxy does not see the traffic of others. */
const planned = (state, cluster) => state.one_proxy && cluster.basis !== 'utilization';

function demandNote(cluster) {
  if (cluster.warming_up) {
    return 'waiting for the first report of every proxy';
  }
  const zones = cluster.zones.filter((zone) => known(zone.demand_requests_per_second));
  return zones.length ? `in ${count(zones.length)} zones` : 'no load reports yet';
}

/** Describes when the input of routing decisions becomes stale. */
export function staleness(cluster, confirmed) {
  if (!known(confirmed)) {
    return {
      utilization: 'hosts report with responses',
      observed_load: 'proxies measure waiting times',
    }[cluster.basis] ?? 'host counts do not become stale';
  }
  const threshold = cluster.staleness_threshold_ms;
  if (!known(threshold)) {
    return 'proxies keep it';
  }
  return confirmed > threshold
    ? `stale: older than ${duration(threshold)}`
    : `stale after ${duration(threshold)}`;
}

function events(all) {
  setEmpty(byId('events-empty'), all.length ? null : 'No events yet.');
  const list = byId('events');
  list.hidden = all.length === 0;
  const keyed = all.map((event, index) => ({ ...event, key: `${event.at_unix_ms} ${all.length - index} ${event.text}` }));
  syncRows(list, keyed, (event) => event.key, () => h('li', {}, h('time'), h('span')), (element, event) => {
    setAttr(element, 'data-severity', event.severity);
    setAttr(element.children[0], 'datetime', new Date(event.at_unix_ms).toISOString());
    setText(element.children[0], clock(event.at_unix_ms));
    setText(element.children[1], event.text);
  });
}
