// Tables of a cluster: demand and capacity of every zone, and how its proxies route and why.

import {
  announce, byId, h, post, rowWindow, setAttr, setEmpty, setNumber, setText, svgElement, syncRows, table,
} from './dom.js';
import {
  basisPoints, basisWords, count, duration, known, level, levelWords, localityName, percent, rate, stateWords,
  UNKNOWN, zoneNames,
} from './format.js';
import { age, traffic } from './store.js';
import { staleness } from './overview.js';

/** With more zones than this, the tables scroll. */
const MANY = 12;
/** Zones whose loads differ by less keep their order, so that rows do not swap all the time. */
const SAME_LOAD = 0.05;

/** Row height of scrolling tables. */
const ROW = 30;
const windows = new Map();

let showZones = null;
let showRouting = null;
let current = null;

/** Creates both tables. */
function createTables() {
  const key = ({ zone }) => localityName(zone.locality);
  showZones = table(byId('zones'), [
    { label: 'Zone', field: 'zone', class: 'nowrap brief', show: ({ name }) => name },
    { label: 'Healthy hosts', field: 'hosts', number: true, draw: hosts },
    { label: 'Proxies', field: 'proxies', number: true, show: ({ zone }) => zone.proxies, format: count },
    { label: 'Capacity', field: 'capacity', number: true, show: ({ zone }) => zone.capacity_share, format: percent },
    { label: 'Demand', field: 'demand', number: true, draw: arrives, class: 'of-all brief' },
    { label: 'From this proxy', field: 'sent', number: true, show: ({ sent }) => sent, format: rate, class: 'of-one brief' },
    { label: 'Served', field: 'served', number: true, show: ({ zone }) => zone.served_requests_per_second, format: rate, class: 'of-all brief' },
    { label: 'Load line', field: 'line', number: true, show: ({ zone }) => zone.line_requests_per_second, format: rate, class: 'of-all' },
    { label: 'Demand and capacity', field: 'bars', class: 'bars of-all', draw: bars },
    { label: 'Load', field: 'load', number: true, draw: load, class: 'brief' },
    { label: 'Errors', field: 'errors', number: true, draw: errors, class: 'of-all brief' },
    { label: 'Utilization', field: 'utilization', number: true, show: ({ zone }) => zone.utilization, format: percent, class: 'utilization' },
    { label: 'Planned utilization', field: 'planned-utilization', number: true, show: plannedUtilization, class: 'objective' },
    { label: 'Without it', field: 'loss', draw: loss, class: 'of-all' },
  ], key, 'Demand and capacity by zone');
  showRouting = table(byId('routing'), [
    { label: 'Zone', field: 'zone', class: 'nowrap brief', show: ({ name }) => name },
    { label: 'State', field: 'state', draw: routingState, class: 'brief' },
    { label: 'Kept local', field: 'kept', number: true, show: ({ zone }) => zone.kept_local, format: percent, class: 'brief' },
    { label: 'Planned', field: 'planned', number: true, show: ({ zone }) => zone.kept_local_planned, format: percent, class: 'brief' },
    { label: 'Measured share', field: 'measured', number: true, show: ({ zone }) => zone.measured_bp, format: basisPoints, class: 'of-all' },
    { label: 'Delivered share', field: 'delivered', number: true, show: ({ zone }) => zone.delivered_bp, format: basisPoints },
    { label: 'Why', field: 'reason', class: 'words', draw: reason },
  ], key, 'How the proxies of every zone route, and why');
}

/** Returns how full a zone is planned to be, beside the target. */
function plannedUtilization({ zone }) {
  const target = current?.cluster.target_utilization;
  if (!known(zone.planned_utilization)) {
    return UNKNOWN;
  }
  const own = percent(zone.planned_utilization);
  return known(target) ? `${own} of ${percent(target)}` : own;
}

/** Shows the zones of a cluster. */
export function show(state, cluster) {
  if (!showZones) {
    createTables();
  }
  current = { state, cluster };
  const names = zoneNames(cluster.zones);
  const scale = Math.max(1e-9, ...cluster.zones.flatMap((zone) => [
    zone.demand_requests_per_second, zone.served_requests_per_second, zone.line_requests_per_second,
  ]).filter(known));
  const { served } = traffic(cluster);
  const sent = (index) => (cluster.flows_measured ? served[index] : null);
  const items = cluster.zones.map((zone, index) => ({ zone, name: names[index], scale, sent: sent(index) }));
  const many = items.length > MANY;
  // Zones that are farthest above their line come first.
  const above = ({ zone }) => (known(zone.load) ? Math.round(zone.load / SAME_LOAD) : -1);
  items.sort((a, b) => above(b) - above(a));
  showZones(items, windowOf('zones', many, items));
  const routed = items.filter(({ zone }) => zone.state || zone.proxies > 0);
  showRouting(routed, windowOf('routing', many, routed));
  setEmpty(byId('routing-empty'), routed.length ? null : 'No proxies yet.');
  byId('routing-scroller').hidden = routed.length === 0;
  for (const [id, shown] of [['zones', items], ['routing', routed]]) {
    const box = byId(`${id}-scroller`);
    setText(byId(`${id}-more`), many ? `${count(shown.length)} zones, highest load first; scroll for all.` : '');
    setAttr(box, 'tabindex', many ? '0' : null);
    box.classList.toggle('whole', !many);
    box.classList.toggle('many', many);
  }
  const reports = cluster.zones.some((zone) => known(zone.utilization));
  byId('zones').classList.toggle('without-utilization', !reports);
  const planned = cluster.zones.some((zone) => known(zone.planned_utilization));
  byId('zones').classList.toggle('without-objective', !planned);
  for (const id of ['zones-card', 'routing-card']) {
    byId(id).classList.toggle('one-proxy', state.one_proxy);
  }
  fractions(cluster);
  syncRows(byId('notes'), cluster.notes, (note) => note, () => h('li'), setText);
}

/** Sets up scrolling. */
export function start(draw) {
  for (const id of ['zones', 'routing']) {
    windows.set(id, rowWindow(byId(`${id}-scroller`), ROW, draw));
  }
}

/** Returns the range of rows to show; all rows of a table that does not scroll. */
const windowOf = (id, many, items) => (many ? windows.get(id)(items.length) : null);

function fractions(cluster) {
  const confirmed = age(cluster.confirmed_unix_ms);
  const words = known(confirmed)
    ? `routes by ${basisWords(cluster.basis)}, confirmed ${duration(confirmed)} ago, ${staleness(cluster, confirmed)}`
    : `routes by ${basisWords(cluster.basis)}`;
  const stale = known(confirmed) && confirmed > (cluster.staleness_threshold_ms ?? Infinity);
  setAttr(byId('fractions'), 'data-level', stale ? 'far' : null);
  setText(byId('fractions'), words);
}

function hosts(cell, { zone }) {
  setAttr(cell, 'data-value', zone.healthy_hosts);
  setAttr(cell, 'data-total', zone.hosts);
  setAttr(cell, 'data-level', zone.healthy_hosts < zone.hosts ? 'above' : null);
  setText(cell, `${count(zone.healthy_hosts)} of ${count(zone.hosts)}`);
}

function arrives(cell, { zone }) {
  setNumber(cell, zone.demand_requests_per_second, zone.demand_estimated ? about : rate);
  setAttr(cell, 'title', zone.demand_estimated
    ? 'no load reports from this zone: estimated from the other zones' : null);
}

const about = (value) => `≈ ${rate(value)}`;

function load(cell, { zone }) {
  setNumber(cell, zone.load, percent);
  setAttr(cell, 'data-level', level(zone.load));
  setAttr(cell, 'title', levelWords(zone.load));
}

function errors(cell, { zone }) {
  setNumber(cell, zone.failed_share, percent);
  setAttr(cell, 'data-level', zone.fails ? 'far' : null);
  setAttr(cell, 'title', zone.fails
    ? 'many more requests fail here than in another zone: host counts decide' : 'requests to the zone that failed');
}

/** Says how full the fullest other zone would be without this one. */
function loss(cell, { zone }) {
  const lost = zone.loss;
  setText(cell, lost ? sentence(lost.text) : UNKNOWN);
  setAttr(cell, 'data-level', lost?.exceeds ? 'above' : null);
  setAttr(cell, 'title', lost ? lossCases(lost) : null);
}

/** Lists both things that the clients of a lost zone may do. */
function lossCases({ clients_stay: stay, clients_move: moved }) {
  const words = (figure) => (known(figure.utilization) ? percent(figure.utilization) : `${percent(figure.load)} of the mean of today`);
  const one = (name, figure) => (figure ? `${name}: ${words(figure)} in ${localityName(figure.fullest)}` : `${name}: no zone is left`);
  return `${one('clients stay', stay)}; ${one('clients move', moved)}`;
}

/** Draws demand as an outline, served requests as a bar and the load line as a mark. */
function bars(cell, { zone, scale }) {
  if (!cell.firstChild) {
    cell.append(svgElement('svg', { class: 'bar', viewBox: '0 0 100 16', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      svgElement('rect', { class: 'bar-served', y: 4, height: 8, x: 0 }),
      svgElement('rect', { class: 'bar-demand', y: 1, height: 14, x: 0 }),
      svgElement('rect', { class: 'bar-line', y: 0, height: 16, width: 0.8 })));
  }
  const [served, arrived, line] = cell.firstChild.children;
  const width = (value) => (known(value) ? Math.max(0, (value / scale) * 98) : 0);
  setAttr(served, 'width', width(zone.served_requests_per_second).toFixed(2));
  setAttr(served, 'data-level', level(zone.load));
  setAttr(arrived, 'width', width(zone.demand_requests_per_second).toFixed(2));
  setAttr(line, 'x', width(zone.line_requests_per_second).toFixed(2));
  setAttr(line, 'visibility', known(zone.line_requests_per_second) ? null : 'hidden');
}

function routingState(cell, { zone }) {
  if (!cell.firstChild) {
    cell.append(h('span', { class: 'badge' }));
  }
  setAttr(cell.firstChild, 'data-state', zone.state ?? 'unknown');
  setAttr(cell.firstChild, 'title', zone.state ?? 'unknown');
  setText(cell.firstChild, stateWords(zone.state));
}

/** Writes a clause of the engine as a sentence. */
const sentence = (clause) => `${clause.charAt(0).toUpperCase()}${clause.slice(1)}.`;

function reason(cell, { zone, name }) {
  if (!cell.firstChild) {
    const button = h('button', { type: 'button', class: 'link', hidden: true }, 'explain');
    button.addEventListener('click', () => explain(current.cluster, button.place, button.zoneName));
    cell.append(h('span'), ' ', button);
  }
  const [words, button] = [cell.children[0], cell.children[1]];
  const unknown = current.state.one_proxy ? 'known to its own proxies' : current.state.explain && zone.state ? '' : UNKNOWN;
  const above = zone.above_line ? `Above its line: ${zone.above_line}.` : '';
  const why = zone.reason ? sentence(zone.reason) : above ? '' : unknown;
  setText(words, [above, why].filter(Boolean).join(' '));
  // A proxy can explain only its own zone.
  button.hidden = !current.state.explain || !zone.state || (current.state.one_proxy && !zone.reason);
  button.place = zone.locality;
  button.zoneName = name;
  setAttr(button, 'aria-label', `explain ${name}`);
}

/** Lists settings that the control plane changed before sending them, and why. */
function changes(list) {
  if (!list.length) return [];
  const item = ({ setting, written, sent, reason }) =>
    h('li', {}, `${setting} is sent as ${sent} instead of ${written ?? 'the default'}: ${reason}`);
  return [h('h3', {}, 'Settings changed by the control plane'), h('ul', { class: 'changes' }, ...list.map(item))];
}

/** Opens the dialog that explains how the proxies of a zone route to a cluster. */
export async function explain(cluster, locality, name) {
  const question = { cluster: cluster.cluster, fleet: cluster.fleet, ...locality };
  try {
    const answer = await post('dashboard/explain', question);
    const body = byId('detail-body');
    setText(byId('detail-title'), `How ${name} routes to ${cluster.cluster}, and why`);
    const tests = answer.preconditions.map((test) => h('li', { 'data-passed': String(test.passed) },
      `${test.passed ? 'holds' : 'fails'}: ${test.text}`));
    const shares = answer.localities.map((each) => h('tr', {},
      h('th', { scope: 'row' }, localityName(each)),
      h('td', { class: 'number' }, percent(each.demand_share)),
      h('td', { class: 'number' }, percent(each.capacity_share)),
      h('td', { class: 'number' }, percent(each.expected_share))));
    const heads = ['Zone', 'Demand', 'Capacity', 'Receives from this zone'];
    body.replaceChildren(
      h('p', { class: 'lead' }, h('span', { class: 'badge', 'data-state': answer.state }, stateWords(answer.state)), ' ', sentence(answer.reason)),
      h('table', {}, h('thead', {}, h('tr', {}, ...heads.map((head, index) => h('th', { scope: 'col', class: index ? 'number' : null }, head)))), h('tbody', {}, ...shares)),
      h('h3', {}, 'Preconditions of zone-aware routing'),
      h('ul', { class: 'tests' }, ...tests),
      ...answer.notes.map((note) => h('p', { class: 'note' }, note)),
      ...changes(answer.changes ?? []));
    byId('detail').showModal();
  } catch (error) {
    announce(error.message);
  }
}
