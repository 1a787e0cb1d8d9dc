// What-if panel: traffic shares with other hosts or demand, computed by the balancer of the host.

import { byId, h, post, setAttr, setNumber, setText, syncRows, table } from './dom.js';
import { count, known, level, localityName, percent, stateWords, zoneNames } from './format.js';
import { clusterKey } from './store.js';

/** Up to this number of zones, fields follow every document; with more zones, every tenth. */
const FEW = 12;

let shown = null;
let added = [];
/** Whether the host is a single proxy, which knows shares of the demand but no rates. */
let oneProxy = false;

/** Sets up event handlers. */
export function start(state, current) {
  byId('whatif-form').addEventListener('submit', (event) => {
    event.preventDefault();
    ask(current());
  });
  byId('whatif-reset').addEventListener('click', () => {
    added = [];
    fill(current(), true);
    byId('whatif-answer').replaceChildren();
  });
  byId('whatif-add').addEventListener('click', () => {
    const field = byId('whatif-new');
    const name = field.value.trim();
    if (name && !entries(current()).some((entry) => entry.name === name || entry.key === name)) {
      added.push(name);
      fill(current(), false);
    }
    field.value = '';
  });
  byId('whatif-zones').append(
    h('caption', { class: 'said' }, 'Hypothetical hosts and demand'),
    h('thead', {}, h('tr', {}, ...['Zone', 'Healthy hosts', 'Demand, rq/s'].map((head) => h('th', { scope: 'col' }, head)))),
    h('tbody'),
  );
}

/** Shows the panel; the viewer's input is kept until another cluster is selected. */
export function show(state, key, cluster) {
  oneProxy = state.one_proxy;
  setText(byId('whatif-zones').tHead.rows[0].cells[2], `Demand, ${unit()}`);
  const offered = state.what_if && cluster.zones.length > 0;
  byId('whatif-card').hidden = !offered;
  // Without the what-if panel, the cost panel uses the full width.
  byId('cost-card').classList.toggle('span12', !offered);
  byId('cost-card').classList.toggle('span6', offered);
  if (shown !== key) {
    shown = key;
    added = [];
    fill(cluster, true);
    byId('whatif-answer').replaceChildren();
  } else if (cluster.zones.length <= FEW || state.sequence % 10 === 0) {
    fill(cluster, false);
  }
}

/** Returns the demand of every zone: requests per second, or the delivered share in percent. */
function demands(cluster) {
  if (!oneProxy) {
    return cluster.zones.map((zone) => zone.demand_requests_per_second ?? 0);
  }
  if (cluster.zones.some((zone) => known(zone.delivered_bp))) {
    return cluster.zones.map((zone) => (zone.delivered_bp ?? 0) / 100);
  }
  const proxies = cluster.zones.reduce((sum, zone) => sum + (zone.proxies ?? 0), 0);
  return cluster.zones.map((zone) => (proxies > 0 ? (100 * (zone.proxies ?? 0)) / proxies : 0));
}

/** Returns the zones of the cluster and those that the viewer added. */
function entries(cluster) {
  const names = zoneNames(cluster.zones);
  const demand = demands(cluster);
  const existing = cluster.zones.map((zone, index) => ({
    key: localityName(zone.locality),
    name: names[index],
    hosts: zone.healthy_hosts,
    demand: demand[index],
  }));
  const hypothetical = added.map((name) => ({ key: name, name, hosts: 0, demand: 0 }));
  return [...existing, ...hypothetical];
}

const unit = () => (oneProxy ? '%' : 'rq/s');

/** Updates the fields that the viewer has not edited; with `reset`, all fields. */
function fill(cluster, reset) {
  const field = (name, label) => {
    const input = h('input', { type: 'number', min: 0, step: name === 'hosts' ? 1 : 'any', 'data-field': name, inputmode: 'decimal', 'aria-label': label });
    input.addEventListener('input', () => { input.touched = true; });
    return input;
  };
  syncRows(byId('whatif-zones').tBodies[0], entries(cluster), (entry) => entry.key, (entry) => h('tr', {},
    h('th', { scope: 'row' }),
    h('td', {}, field('hosts', `healthy hosts in ${entry.name}`)),
    h('td', {}, field('demand', `demand in ${entry.name}, ${oneProxy ? 'percent' : 'requests per second'}`))),
  (row, entry) => {
    setAttr(row, 'data-key', entry.key);
    setText(row.children[0], entry.name);
    const set = (input, value) => {
      if (reset) {
        input.touched = false;
      }
      const follows = !input.touched && input.current !== value && document.activeElement !== input;
      if (reset || follows) {
        input.current = value;
        input.value = String(Number(value.toPrecision(4)));
      }
    };
    set(row.children[1].firstChild, entry.hosts);
    set(row.children[2].firstChild, entry.demand);
  });
}

/** Builds the request: edited hosts, and the demand of all zones if any of it was edited. */
function question(cluster) {
  const hosts = {};
  const demand = {};
  let demandEdited = false;
  for (const row of byId('whatif-zones').tBodies[0].rows) {
    const key = row.dataset.key;
    const [count, rate] = [row.children[1].firstChild, row.children[2].firstChild];
    if (count.touched) {
      hosts[key] = Math.max(0, Math.round(Number(count.value)));
    }
    demandEdited ||= rate.touched;
    if (Number(rate.value) > 0) {
      demand[key] = Number(rate.value);
    }
  }
  return { cluster: cluster.cluster, fleet: cluster.fleet, hosts, demand: demandEdited ? demand : {} };
}

/** Returns the zones of an answer: what their hosts serve and, as `proxies`, where their proxies send requests. */
function zonesOf({ localities, zones }) {
  const proxies = new Map(zones.map((zone) => [localityName(zone.locality), zone]));
  const all = localities.map((shares) => ({ ...shares, proxies: proxies.get(localityName(shares.locality)) }));
  return all.sort((a, b) => (localityName(a.locality) < localityName(b.locality) ? -1 : 1));
}

async function ask(cluster) {
  const box = byId('whatif-answer');
  const key = clusterKey(cluster);
  try {
    const answer = await post('dashboard/what-if', question(cluster));
    if (shown === key) {
      showAnswer(box, answer);
    }
  } catch (error) {
    box.replaceChildren(h('p', { class: 'error', role: 'alert' }, error.message));
  }
}

function showAnswer(box, { before, after, enforce }) {
  const element = h('table', { class: 'stack', id: 'whatif-shares' });
  const zones = zonesOf(after);
  const old = new Map(zonesOf(before).map((zone) => [localityName(zone.locality), zone]));
  const names = zoneNames(zones);
  const pair = (label, field, value) => ({
    label, number: true, field,
    draw: (cell, item) => {
      const [was, is] = [item.was && value(item.was), value(item.is)];
      setAttr(cell, 'data-before', was ?? '');
      setNumber(cell, is ?? null, (now) => (known(was) && percent(was) !== percent(now)
        ? `${percent(was)} → ${percent(now)}` : percent(now)));
      if (field === 'load') {
        setAttr(cell, 'data-level', level(is));
      }
    },
  });
  const show = table(element, [
    { label: 'Zone', field: 'zone', show: (item) => item.name },
    { label: 'Hosts', number: true, field: 'hosts', show: (item) => item.is.hosts, format: count },
    pair('Demand', 'demand', (zone) => zone.demand_share),
    pair('Serves', 'traffic', (zone) => zone.traffic_share),
    pair('Load', 'load', (zone) => zone.load_factor),
    pair('Kept local', 'kept', (zone) => zone.proxies?.kept_local),
    { label: 'State', wide: true, field: 'state', show: (item) => stateWords(item.is.proxies?.state) },
  ], (item) => item.name, 'Shares before and after');
  show(zones.map((zone, index) => ({ name: names[index], is: zone, was: old.get(localityName(zone.locality)) })));
  const withEnforce = enforce ? enforceTable(enforce) : [];
  const [was, is] = [before.cross_zone_share, after.cross_zone_share];
  const change = percent(was) === percent(is) ? `stays at ${percent(is)}` : `changes from ${percent(was)} to ${percent(is)}`;
  box.replaceChildren(
    h('p', { class: 'lead', 'data-cross': is }, `Traffic between zones ${change} of all requests.`),
    element,
    ...withEnforce,
    ...(enforce ? enforce.after.notes : []).filter((note) => !after.notes.includes(note))
      .map((note) => h('p', { class: 'note' }, `With ENFORCE: ${note}`)),
    ...after.notes.map((note) => h('p', { class: 'note' }, note)),
  );
}

/** Draws the same question with ENFORCE, if that makes a difference to what proxies do. */
function enforceTable({ before, after }) {
  const element = h('table', { class: 'stack', id: 'whatif-enforce' });
  const zones = zonesOf(after);
  const old = new Map(zonesOf(before).map((zone) => [localityName(zone.locality), zone]));
  const names = zoneNames(zones);
  const pair = (label, field, value) => ({
    label, number: true, field,
    draw: (cell, item) => {
      const [was, is] = [item.was && value(item.was), value(item.is)];
      setNumber(cell, is ?? null, (now) => (known(was) && percent(was) !== percent(now)
        ? `${percent(was)} → ${percent(now)}` : percent(now)));
      setAttr(cell, 'data-level', field === 'load' ? level(is) : null);
    },
  });
  const show = table(element, [
    { label: 'Zone', field: 'zone', show: (item) => item.name },
    pair('Load', 'load', (zone) => zone.load_factor),
    pair('Kept local', 'kept', (zone) => zone.proxies?.kept_local),
  ], (item) => item.name, 'The same with ENFORCE');
  show(zones.map((zone, index) => ({ name: names[index], is: zone, was: old.get(localityName(zone.locality)) })));
  return [h('h4', {}, 'The same with ENFORCE'), element];
}
