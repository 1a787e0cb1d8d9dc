// Entry point: connects the event stream to the views and keeps the viewer's selection.

import { announce, byId, clearColors, setAttr, setEmpty, setText } from './dom.js';
import { duration } from './format.js';
import { age, listen, clusterKey } from './store.js';
import * as overview from './overview.js';
import * as zones from './zones.js';
import * as map from './map.js';
import * as history from './history.js';
import * as compare from './compare.js';
import * as cost from './cost.js';
import * as whatif from './whatif.js';
import * as nodes from './nodes.js';
import * as evacuation from './evacuation.js';
import * as replicas from './replicas.js';
import * as verdict from './verdict.js';

let state = null;
let selected = decodeURIComponent(location.hash.startsWith('#c=') ? location.hash.slice(3) : '');
let drawing = false;

/** Returns the selected cluster, or the first one with traffic. */
function current() {
  const found = state.clusters.get(selected);
  if (found) {
    return found;
  }
  const all = [...state.clusters.values()].sort(overview.byName);
  return all.find((cluster) => cluster.flows.length > 0) ?? all[0] ?? null;
}

function select(key) {
  selected = key;
  // Replaced instead of pushed, so that the back button leaves the page.
  window.history.replaceState(null, '', `#c=${encodeURIComponent(key)}`);
  draw();
  announce(`Showing ${current()?.cluster ?? ''}`);
}

function draw() {
  if (drawing || document.hidden || !state) {
    return;
  }
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    render();
  });
}

function render() {
  const cluster = current();
  overview.show(state, cluster, select);
  verdict.show(state, select);
  byId('cluster').hidden = !cluster;
  setEmpty(byId('empty'), cluster ? null : 'No upstream cluster is configured yet.');
  if (cluster) {
    const key = clusterKey(cluster);
    zones.show(state, cluster);
    map.show(state, cluster);
    history.show(key, cluster, state.taken_unix_ms);
    compare.show(state, cluster);
    cost.show(state, cluster);
    whatif.show(state, key, cluster);
    overview.tiles(state, cluster);
  }
  nodes.show(state);
  evacuation.show(state);
  replicas.show(state);
  for (const link of document.querySelectorAll('.sections a')) {
    link.hidden = Boolean(byId(link.hash.slice(1)).closest('[hidden]'));
  }
  setAttr(document.body, 'data-sequence', state.sequence);
  setAttr(document.body, 'data-cluster', cluster ? cluster.cluster : '');
}

/** Sets up the theme button: system, dark or light, stored in this browser. */
function startTheme() {
  const order = ['system', 'dark', 'light'];
  const button = byId('theme');
  const set = (name) => {
    setAttr(document.documentElement, 'data-theme', name === 'system' ? null : name);
    setText(button, `Theme: ${name}`);
    localStorage.setItem('plimsoll.theme', name);
    clearColors();
    draw();
  };
  const stored = localStorage.getItem('plimsoll.theme');
  set(order.includes(stored) ? stored : 'system');
  button.addEventListener('click', () => {
    const now = localStorage.getItem('plimsoll.theme');
    set(order[(order.indexOf(now) + 1) % order.length]);
  });
}

let connection = 'connecting';

/** Shows whether documents arrive, and how old the last one is if they do not. */
function showConnection(status) {
  // The page missed documents: what it recorded itself has a gap.
  if (status === 'live' && connection === 'reconnecting') {
    history.reload();
  }
  connection = status;
  const element = byId('live');
  setAttr(element, 'data-live', status);
  const old = status === 'reconnecting' && state ? `, data is ${duration(age(state.taken_unix_ms))} old` : '';
  setText(element, `${status}${old}`);
}

// Without documents nothing else would redraw the page, and ages would stand still.
setInterval(() => {
  if (connection === 'reconnecting') {
    showConnection(connection);
    draw();
  }
}, 1000);

startTheme();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  clearColors();
  draw();
});
map.start(draw);
zones.start(draw);
history.start(draw);
nodes.start(draw);
evacuation.start();
replicas.start();
cost.start(draw);
whatif.start(() => state, current);
overview.start(draw);
byId('detail-close').addEventListener('click', () => byId('detail').close());
document.addEventListener('visibilitychange', draw);
window.addEventListener('resize', draw);
listen((next) => {
  state = next;
  for (const [key, cluster] of state.clusters) {
    history.record(key, cluster, state.taken_unix_ms);
  }
  history.prune(state.clusters);
  draw();
}, showConnection);
