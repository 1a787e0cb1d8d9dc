// Tables of a cluster: demand and capacity of every zone, and how its proxies route, with reasons.

import { at, attr, empty, h, num, post, rows, rowWindow, s, say, table, text } from './dom.js';
import {
  basisPoints, basisWords, count, duration, known, level, levelWords, percent, place, places, rate,
  stateWords, UNKNOWN,
} from './format.js';
import { age, traffic } from './store.js';
import { staleness } from './overview.js';

/** More zones than this are shown worst first, in a box of their own. */
const MANY = 12;

/** Height of a row where there are many. */
const ROW = 30;
const CARDS = matchMedia('(max-width: 760px)');
const windows = new Map();
const LEVELS = ['far', 'above', 'at', 'under', 'unknown'];

let showZones = null;
let showRouting = null;
let current = null;

/** Both tables, made when first needed. */
function make() {
  const key = ({ zone }) => place(zone.locality);
  showZones = table(at('zones'), [
    { label: 'Zone', field: 'zone', class: 'nowrap', show: ({ name }) => name },
    { label: 'Healthy hosts', field: 'hosts', number: true, draw: hosts },
    { label: 'Proxies', field: 'proxies', number: true, show: ({ zone }) => zone.proxies, format: count },
    { label: 'Capacity', field: 'capacity', number: true, show: ({ zone }) => zone.capacity_share, format: percent },
    { label: 'Arrives', field: 'demand', number: true, draw: arrives, class: 'of-all' },
    { label: 'From this proxy', field: 'sent', number: true, show: ({ sent }) => sent, format: rate, class: 'of-one' },
    { label: 'Served', field: 'served', number: true, show: ({ zone }) => zone.served_requests_per_second, format: rate, class: 'of-all' },
    { label: 'Load line', field: 'line', number: true, show: ({ zone }) => zone.line_requests_per_second, format: rate, class: 'of-all' },
    { label: 'Demand and capacity', field: 'bars', class: 'bars of-all', draw: bars },
    { label: 'Load', field: 'load', number: true, draw: load },
    { label: 'Utilization', field: 'utilization', number: true, show: ({ zone }) => zone.utilization, format: percent, class: 'utilization' },
  ], key, 'Demand and capacity by zone');
  showRouting = table(at('routing'), [
    { label: 'Zone', field: 'zone', class: 'nowrap', show: ({ name }) => name },
    { label: 'State', field: 'state', draw: routingState },
    { label: 'Kept local', field: 'kept', number: true, show: ({ zone }) => zone.kept_local, format: percent },
    { label: 'Planned', field: 'planned', number: true, show: ({ zone }) => zone.kept_local_planned, format: percent },
    { label: 'Measured share', field: 'measured', number: true, show: ({ zone }) => zone.measured_bp, format: basisPoints, class: 'of-all' },
    { label: 'Told share', field: 'delivered', number: true, show: ({ zone }) => zone.delivered_bp, format: basisPoints },
    { label: 'Why', field: 'reason', class: 'words', draw: reason },
  ], key, 'How the proxies of every zone route, and why');
}

/** Shows the zones of a cluster. */
export function show(state, cluster) {
  if (!showZones) {
    make();
  }
  current = { state, cluster };
  const names = places(cluster.zones);
  const scale = Math.max(1e-9, ...cluster.zones.flatMap((zone) => [
    zone.demand_requests_per_second, zone.served_requests_per_second, zone.line_requests_per_second,
  ]).filter(known));
  const { served } = traffic(cluster);
  const sent = (index) => (cluster.flows_measured ? served[index] : null);
  const items = cluster.zones.map((zone, index) => ({ zone, name: names[index], scale, sent: sent(index) }));
  const many = items.length > MANY;
  if (many) {
    // By level and not by load: rows that change places every second cannot be read.
    items.sort((a, b) => LEVELS.indexOf(level(a.zone.load)) - LEVELS.indexOf(level(b.zone.load)));
  }
  showZones(items, windowOf('zones', many, items));
  const routed = items.filter(({ zone }) => zone.state || zone.proxies > 0);
  showRouting(routed, windowOf('routing', many, routed));
  empty(at('routing-empty'), routed.length ? null : 'No proxies yet: nobody routes.');
  at('routing-scroller').hidden = routed.length === 0;
  for (const box of [at('zones-scroller'), at('routing-scroller')]) {
    attr(box, 'tabindex', many ? '0' : null);
    box.classList.toggle('whole', !many);
    box.classList.toggle('many', many);
  }
  const reports = cluster.zones.some((zone) => known(zone.utilization));
  at('zones').classList.toggle('without-utilization', !reports);
  for (const id of ['zones-card', 'routing-card']) {
    at(id).classList.toggle('one-proxy', state.one_proxy);
  }
  fractions(cluster);
  rows(at('notes'), cluster.notes, (note) => note, () => h('li'), text);
}

/** Listens for the viewer. */
export function start(draw) {
  for (const id of ['zones', 'routing']) {
    windows.set(id, rowWindow(at(`${id}-scroller`), ROW, draw));
  }
}

/** The rows of a box to show: all where they become cards, which have no common height. */
const windowOf = (id, many, items) => (many && !CARDS.matches ? windows.get(id)(items.length) : null);

function fractions(cluster) {
  const confirmed = age(cluster.confirmed_unix_ms);
  const words = known(confirmed)
    ? `goes by ${basisWords(cluster.basis)}, confirmed ${duration(confirmed)} ago, ${staleness(cluster, confirmed)}`
    : `goes by ${basisWords(cluster.basis)}`;
  const stale = known(confirmed) && confirmed > (cluster.staleness_threshold_ms ?? Infinity);
  attr(at('fractions'), 'data-level', stale ? 'far' : null);
  text(at('fractions'), words);
}

function hosts(cell, { zone }) {
  attr(cell, 'data-value', zone.healthy_hosts);
  attr(cell, 'data-total', zone.hosts);
  attr(cell, 'data-level', zone.healthy_hosts < zone.hosts ? 'above' : null);
  text(cell, `${count(zone.healthy_hosts)} of ${count(zone.hosts)}`);
}

function arrives(cell, { zone }) {
  num(cell, zone.demand_requests_per_second, zone.demand_estimated ? about : rate);
  attr(cell, 'title', zone.demand_estimated
    ? 'nobody reports there: estimated from the other zones' : null);
}

const about = (value) => `≈ ${rate(value)}`;

function load(cell, { zone }) {
  num(cell, zone.load, percent);
  attr(cell, 'data-level', level(zone.load));
  attr(cell, 'title', levelWords(zone.load));
}

/** What arrives as an outline, what is served filled, the load line as a mark. */
function bars(cell, { zone, scale }) {
  if (!cell.firstChild) {
    cell.append(s('svg', { class: 'bar', viewBox: '0 0 100 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      s('rect', { class: 'bar-served', y: 4, height: 8, x: 0 }),
      s('rect', { class: 'bar-demand', y: 1, height: 14, x: 0 }),
      s('rect', { class: 'bar-line', y: 0, height: 16, width: 0.8 })));
  }
  const [served, arrived, line] = cell.firstChild.children;
  const width = (value) => (known(value) ? Math.max(0, (value / scale) * 98) : 0);
  attr(served, 'width', width(zone.served_requests_per_second).toFixed(2));
  attr(served, 'data-level', level(zone.load));
  attr(arrived, 'width', width(zone.demand_requests_per_second).toFixed(2));
  attr(line, 'x', width(zone.line_requests_per_second).toFixed(2));
  attr(line, 'visibility', known(zone.line_requests_per_second) ? null : 'hidden');
}

function routingState(cell, { zone }) {
  if (!cell.firstChild) {
    cell.append(h('span', { class: 'badge' }));
  }
  attr(cell.firstChild, 'data-state', zone.state ?? 'unknown');
  attr(cell.firstChild, 'title', zone.state ?? 'not known');
  text(cell.firstChild, stateWords(zone.state));
}

function reason(cell, { zone, name }) {
  if (!cell.firstChild) {
    const button = h('button', { type: 'button', class: 'link', hidden: true }, 'explain');
    button.addEventListener('click', () => explain(button.place, button.zoneName));
    cell.append(h('span'), ' ', button);
  }
  const [words, button] = [cell.children[0], cell.children[1]];
  text(words, zone.reason ?? (current.state.one_proxy ? 'its own proxies know' : current.state.explain && zone.state ? '' : UNKNOWN));
  // A proxy knows its own reasons only.
  button.hidden = !current.state.explain || !zone.state || (current.state.one_proxy && !zone.reason);
  button.place = zone.locality;
  button.zoneName = name;
  attr(button, 'aria-label', `explain ${name}`);
}

/** What the control plane sends otherwise than it is written, and why. */
function changes(list) {
  if (!list.length) return [];
  const item = ({ setting, written, sent, reason }) =>
    h('li', {}, `${setting} is sent as ${sent} instead of ${written ?? 'the default'}: ${reason}`);
  return [h('h3', {}, 'Sent otherwise than written'), h('ul', { class: 'changes' }, ...list.map(item))];
}

async function explain(locality, name) {
  const { cluster } = current;
  const question = { cluster: cluster.cluster, fleet: cluster.fleet, ...locality };
  try {
    const answer = await post('dashboard/explain', question);
    const body = at('detail-body');
    text(at('detail-title'), `Why ${name} sends ${cluster.cluster} where it does`);
    const tests = answer.preconditions.map((test) => h('li', { 'data-passed': String(test.passed) },
      `${test.passed ? 'holds' : 'fails'}: ${test.text}`));
    const shares = answer.localities.map((each) => h('tr', {},
      h('th', { scope: 'row' }, place(each)),
      h('td', { class: 'number' }, percent(each.demand_share)),
      h('td', { class: 'number' }, percent(each.capacity_share)),
      h('td', { class: 'number' }, percent(each.expected_share))));
    const heads = ['Zone', 'Demand', 'Capacity', 'Gets of this zone'];
    body.replaceChildren(
      h('p', { class: 'lead' }, h('span', { class: 'badge', 'data-state': answer.state }, stateWords(answer.state)), ' ', answer.reason),
      h('table', {}, h('thead', {}, h('tr', {}, ...heads.map((head, index) => h('th', { scope: 'col', class: index ? 'number' : null }, head)))), h('tbody', {}, ...shares)),
      h('h3', {}, 'Tests before zones matter'),
      h('ul', { class: 'tests' }, ...tests),
      ...answer.notes.map((note) => h('p', { class: 'note' }, note)),
      ...changes(answer.changes ?? []));
    at('detail').showModal();
  } catch (error) {
    say(error.message);
  }
}
