// What if: other hosts or other demand, asked of the host, which answers with its real balancer.

import { at, attr, h, num, post, rows, table, text } from './dom.js';
import { count, known, level, percent, place, places, stateWords } from './format.js';
import { clusterKey } from './store.js';

/** Zones up to which fields follow every document; those of more follow every tenth. */
const FEW = 12;

let shown = null;
let added = [];
/** Whether the host is one proxy, which knows shares of the demand and no rates. */
let one = false;

/** Listens for the viewer. */
export function start(state, current) {
  at('whatif-form').addEventListener('submit', (event) => {
    event.preventDefault();
    ask(current());
  });
  at('whatif-reset').addEventListener('click', () => {
    added = [];
    fill(current(), true);
    at('whatif-answer').replaceChildren();
  });
  at('whatif-add').addEventListener('click', () => {
    const field = at('whatif-new');
    const name = field.value.trim();
    if (name && !entries(current()).some((entry) => entry.name === name || entry.key === name)) {
      added.push(name);
      fill(current(), false);
    }
    field.value = '';
  });
  at('whatif-zones').append(
    h('caption', { class: 'said' }, 'Hosts and demand to ask for'),
    h('thead', {}, h('tr', {}, ...['Zone', 'Healthy hosts', 'Demand, rq/s'].map((head) => h('th', { scope: 'col' }, head)))),
    h('tbody'),
  );
}

/** Shows the panel; what the viewer typed stays until another cluster is chosen. */
export function show(state, key, cluster) {
  one = state.one_proxy;
  text(at('whatif-zones').tHead.rows[0].cells[2], `Demand, ${unit()}`);
  const offered = state.what_if && cluster.zones.length > 0;
  at('whatif-card').hidden = !offered;
  // Without a neighbour the cost has the row for itself.
  at('cost-card').classList.toggle('span12', !offered);
  at('cost-card').classList.toggle('span6', offered);
  if (shown !== key) {
    shown = key;
    added = [];
    fill(cluster, true);
    at('whatif-answer').replaceChildren();
  } else if (cluster.zones.length <= FEW || state.sequence % 10 === 0) {
    fill(cluster, false);
  }
}

/** Demand of every zone: requests per second, or of one proxy what it was told, in percent. */
function demands(cluster) {
  if (!one) {
    return cluster.zones.map((zone) => zone.demand_requests_per_second ?? 0);
  }
  if (cluster.zones.some((zone) => known(zone.delivered_bp))) {
    return cluster.zones.map((zone) => (zone.delivered_bp ?? 0) / 100);
  }
  const proxies = cluster.zones.reduce((sum, zone) => sum + (zone.proxies ?? 0), 0);
  return cluster.zones.map((zone) => (proxies > 0 ? (100 * (zone.proxies ?? 0)) / proxies : 0));
}

/** Zones of the cluster, and those the viewer added. */
function entries(cluster) {
  const names = places(cluster.zones);
  const demand = demands(cluster);
  const there = cluster.zones.map((zone, index) => ({
    key: place(zone.locality),
    name: names[index],
    hosts: zone.healthy_hosts,
    demand: demand[index],
  }));
  const invented = added.map((name) => ({ key: name, name, hosts: 0, demand: 0 }));
  return [...there, ...invented];
}

const unit = () => (one ? '%' : 'rq/s');

/** Fields that nobody touched follow the numbers as they are. */
function fill(cluster, anew) {
  const field = (name, label) => {
    const input = h('input', { type: 'number', min: 0, step: name === 'hosts' ? 1 : 'any', 'data-field': name, inputmode: 'decimal', 'aria-label': label });
    input.addEventListener('input', () => { input.touched = true; });
    return input;
  };
  rows(at('whatif-zones').tBodies[0], entries(cluster), (entry) => entry.key, (entry) => h('tr', {},
    h('th', { scope: 'row' }),
    h('td', {}, field('hosts', `healthy hosts in ${entry.name}`)),
    h('td', {}, field('demand', `demand in ${entry.name}, ${one ? 'percent' : 'requests per second'}`))),
  (row, entry) => {
    attr(row, 'data-key', entry.key);
    text(row.children[0], entry.name);
    const set = (input, value) => {
      if (anew) {
        input.touched = false;
      }
      const follows = !input.touched && input.is !== value && document.activeElement !== input;
      if (anew || follows) {
        input.is = value;
        input.value = String(Number(value.toPrecision(4)));
      }
    };
    set(row.children[1].firstChild, entry.hosts);
    set(row.children[2].firstChild, entry.demand);
  });
}

/** Hosts that were changed, and demand if any of it was. */
function question(cluster) {
  const hosts = {};
  const demand = {};
  let moved = false;
  for (const row of at('whatif-zones').tBodies[0].rows) {
    const key = row.dataset.key;
    const [wanted, rate] = [row.children[1].firstChild, row.children[2].firstChild];
    if (wanted.touched) {
      hosts[key] = Math.max(0, Math.round(Number(wanted.value)));
    }
    moved ||= rate.touched;
    if (Number(rate.value) > 0) {
      demand[key] = Number(rate.value);
    }
  }
  return { cluster: cluster.cluster, fleet: cluster.fleet, hosts, demand: moved ? demand : {} };
}

async function ask(cluster) {
  const box = at('whatif-answer');
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

function showAnswer(box, { before, after }) {
  const element = h('table', { class: 'stack', id: 'whatif-shares' });
  const old = new Map(before.zones.map((zone) => [place(zone.locality), zone]));
  const names = places(after.zones);
  const pair = (label, field, value) => ({
    label, number: true, field,
    draw: (cell, item) => {
      const [was, is] = [item.was && value(item.was), value(item.is)];
      attr(cell, 'data-before', was ?? '');
      num(cell, is ?? null, (now) => (known(was) && percent(was) !== percent(now)
        ? `${percent(was)} → ${percent(now)}` : percent(now)));
      if (field === 'load') {
        attr(cell, 'data-level', level(is));
      }
    },
  });
  const show = table(element, [
    { label: 'Zone', field: 'zone', show: (item) => item.name },
    { label: 'Hosts', number: true, field: 'hosts', show: (item) => item.is.healthy_hosts, format: count },
    pair('Demand', 'demand', (zone) => zone.demand_share),
    pair('Serves', 'traffic', (zone) => zone.traffic_share),
    pair('Load', 'load', (zone) => zone.load),
    pair('Kept local', 'kept', (zone) => zone.kept_local),
    { label: 'State', wide: true, field: 'state', show: (item) => stateWords(item.is.state) },
  ], (item) => item.name, 'Shares before and after');
  show(after.zones.map((zone, index) => ({ name: names[index], is: zone, was: old.get(place(zone.locality)) })));
  const [was, is] = [before.cross_zone_share, after.cross_zone_share];
  const words = percent(was) === percent(is) ? `stays at ${percent(is)}` : `goes from ${percent(was)} to ${percent(is)}`;
  box.replaceChildren(
    h('p', { class: 'lead', 'data-cross': is }, `Traffic between zones ${words} of all requests.`),
    element,
    ...after.notes.map((note) => h('p', { class: 'note' }, note)),
  );
}
