// The head of the page: names, notices, actions, clusters, tiles and events.

import { at, attr, empty, h, num, post, rows, say, table, text } from './dom.js';
import {
  basisWords, clock, count, dollarsPerMonth, duration, known, level, levelWords, percent, place, places,
  rate, stateWords, UNKNOWN,
} from './format.js';
import { age, clusterKey, traffic } from './store.js';
import { monthly, crossing, settings } from './cost.js';

/** Order of the list. */
export const byName = (a, b) => (a.cluster < b.cluster ? -1 : a.cluster > b.cluster ? 1
  : a.fleet < b.fleet ? -1 : a.fleet > b.fleet ? 1 : 0);

let choose = () => {};
let showClusters = null;

/** Demand of all zones; null when none is known. */
export function demand(cluster) {
  const rates = cluster.zones.map((zone) => zone.demand_requests_per_second).filter(known);
  return rates.length ? rates.reduce((sum, value) => sum + value, 0) : null;
}

/** Share of measured traffic that stays in its zone; null when nothing flows. */
export function keptLocal(cluster) {
  const { total, cross } = traffic(cluster);
  return total > 0 ? 1 - cross / total : null;
}

/** The zone whose load is highest against its line. */
export function busiest(cluster) {
  const loaded = cluster.zones.filter((zone) => known(zone.load));
  return loaded.reduce((worst, zone) => (!worst || zone.load > worst.load ? zone : worst), null);
}

/** Listens for the viewer. */
export function start(draw) {
  at('clusters-search').addEventListener('input', draw);
  showClusters = table(at('clusters'), [
    {
      label: 'Cluster', field: 'cluster',
      draw: (cell, { cluster, key }) => {
        if (!cell.firstChild) {
          const button = h('button', { type: 'button', class: 'link' });
          button.addEventListener('click', () => choose(button.dataset.key));
          cell.append(button);
        }
        cell.firstChild.dataset.key = key;
        text(cell.firstChild, cluster.cluster);
      },
    },
    { label: 'Fleet', field: 'fleet', wide: true, show: ({ cluster }) => cluster.fleet || UNKNOWN },
    { label: 'Mode', field: 'mode', wide: true, show: ({ cluster }) => cluster.mode ?? UNKNOWN },
    { label: 'Goes by', field: 'basis', wide: true, show: ({ cluster }) => basisWords(cluster.basis) },
    { label: 'Demand', field: 'demand', number: true, show: ({ cluster }) => demand(cluster), format: rate },
    { label: 'Kept local', field: 'kept', number: true, wide: true, show: ({ cluster }) => keptLocal(cluster), format: percent },
    {
      label: 'Busiest zone', field: 'busiest', number: true,
      draw: (cell, { cluster }) => {
        const zone = busiest(cluster);
        attr(cell, 'data-level', level(zone?.load));
        num(cell, zone?.load ?? null, percent);
        attr(cell, 'title', zone ? `${place(zone.locality)} is ${levelWords(zone.load)}` : null);
      },
    },
  ], ({ key }) => key, 'Upstream clusters');
}

/** Everything above the chosen cluster, and the events below it. */
export function show(state, cluster, onChoose) {
  choose = onChoose;
  text(at('title'), state.title);
  text(at('subtitle'), state.subtitle);
  text(at('version'), `plimsoll ${state.version}`);
  document.title = state.title;
  rows(at('notices'), state.notices, (notice) => notice.text,
    () => h('li'), (element, notice) => {
      attr(element, 'data-severity', notice.severity);
      text(element, notice.text);
    });
  actions(state.actions);
  clusters(state, cluster);
  events(state.events);
}

function actions(all) {
  const card = at('actions');
  card.hidden = all.length === 0;
  const groups = [...new Set(all.map((action) => action.group))];
  rows(card, groups, (group) => group, (group) => h('fieldset', {}, h('legend', {}, group), h('div'), h('p', { class: 'note' })),
    (element, group) => {
      const own = all.filter((action) => action.group === group);
      rows(element.children[1], own, (action) => action.name, button, (each, action) => {
        text(each, action.label);
        attr(each, 'title', action.unavailable ?? action.help);
        attr(each, 'disabled', action.unavailable ? '' : null);
        attr(each, 'aria-pressed', String(action.pressed));
      });
      const missing = own.filter((action) => action.unavailable);
      text(element.children[2], missing.map((action) => `${action.label}: ${action.unavailable}.`).join(' '));
      element.children[2].hidden = missing.length === 0;
    });
}

function button(action) {
  const element = h('button', { type: 'button', 'data-action': action.name });
  element.addEventListener('click', async () => {
    element.disabled = true;
    try {
      const { done } = await post(`dashboard/actions/${encodeURIComponent(action.name)}`, {});
      say(done);
    } catch (error) {
      say(`${action.label}: ${error.message}`);
    }
    element.disabled = false;
  });
  return element;
}

function clusters(state, cluster) {
  const all = [...state.clusters.values()].sort(byName);
  at('clusters-card').hidden = all.length < 2;
  if (all.length < 2) {
    return;
  }
  const wanted = at('clusters-search').value.trim().toLowerCase();
  const shown = all
    .filter((each) => `${each.cluster} ${each.fleet}`.toLowerCase().includes(wanted))
    .map((each) => ({ cluster: each, key: clusterKey(each) }));
  showClusters(shown);
  const current = cluster && clusterKey(cluster);
  for (const row of at('clusters').tBodies[0].rows) {
    attr(row, 'aria-current', row.dataset.key === current ? 'true' : null);
  }
}

/** The numbers of a cluster at a glance. */
export function tiles(state, cluster) {
  const fleet = cluster.fleet ? ` from ${cluster.fleet}` : '';
  const mode = cluster.mode
    ? ` · ${cluster.mode}${known(cluster.ramp_percent) && cluster.ramp_percent < 100
      ? ` at ${cluster.ramp_percent} %` : ''}` : '';
  text(at('cluster-title'), `${cluster.cluster}${fleet} · ${cluster.policy}${mode}`);
  const worst = busiest(cluster);
  const worstName = worst && places(cluster.zones)[cluster.zones.indexOf(worst)];
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
      note: cluster.flows_measured ? (state.one_proxy ? 'by this proxy' : 'as reported') : cluster.flows.length ? 'as planned' : 'nothing flows yet',
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
      name: 'Goes by', field: 'basis', value: cluster.basis, format: basisWords,
      note: [...states].map(stateWords).join(', ') || 'no proxies yet',
    },
    {
      name: 'Confirmed', field: 'confirmed', value: confirmed, format: ago,
      note: staleness(cluster, age(confirmed)),
    },
  ];
  rows(at('tiles'), all, (tile) => tile.name, () => h('div', {}, h('dt'), h('dd'), h('dd', { class: 'note' })),
    (element, tile) => {
      attr(element, 'data-tile', tile.field);
      text(element.children[0], tile.name);
      num(element.children[1], tile.value, tile.format);
      attr(element.children[1], 'class', tile.field === 'basis' ? 'words' : null);
      attr(element.children[1], 'data-level', tile.level ?? null);
      text(element.children[2], tile.note);
    });
}

/** How long ago a moment was. */
export function ago(unixMs) {
  const since = age(unixMs);
  return known(since) ? `${duration(since)} ago` : UNKNOWN;
}
ago.moves = true;

/** Whether loads follow from what is planned: one proxy does not see the traffic of others. */
const planned = (state, cluster) => state.one_proxy && cluster.basis !== 'utilization';

function demandNote(cluster) {
  if (cluster.warming_up) {
    return 'waiting for the first reports of all';
  }
  const zones = cluster.zones.filter((zone) => known(zone.demand_requests_per_second));
  return zones.length ? `in ${count(zones.length)} zones` : 'no load reports yet';
}

/** How far what routing goes by is from being too old. */
export function staleness(cluster, confirmed) {
  if (!known(confirmed)) {
    return cluster.basis === 'utilization' ? 'hosts report as they serve' : 'host counts do not age';
  }
  const threshold = cluster.staleness_threshold_ms;
  if (!known(threshold)) {
    return 'by load reports';
  }
  return confirmed > threshold
    ? `stale: older than ${duration(threshold)}`
    : `stale after ${duration(threshold)}`;
}

function events(all) {
  empty(at('events-empty'), all.length ? null : 'Nothing has happened yet.');
  const list = at('events');
  list.hidden = all.length === 0;
  const keyed = all.map((event, index) => ({ ...event, key: `${event.at_unix_ms} ${all.length - index} ${event.text}` }));
  rows(list, keyed, (event) => event.key, () => h('li', {}, h('time'), h('span')), (element, event) => {
    attr(element, 'data-severity', event.severity);
    attr(element.children[0], 'datetime', new Date(event.at_unix_ms).toISOString());
    text(element.children[0], clock(event.at_unix_ms));
    text(element.children[1], event.text);
  });
}
