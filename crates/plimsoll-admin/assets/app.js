// The page: wires the document to its views, and keeps what the viewer chose.

import { at, attr, empty, forgetColours, say, text } from './dom.js';
import { listen, clusterKey } from './store.js';
import * as overview from './overview.js';
import * as zones from './zones.js';
import * as map from './map.js';
import * as history from './history.js';
import * as cost from './cost.js';
import * as whatif from './whatif.js';
import * as nodes from './nodes.js';

let state = null;
let chosen = decodeURIComponent(location.hash.startsWith('#c=') ? location.hash.slice(3) : '');
let drawing = false;

/** The cluster that is looked at: the chosen one, or the first that has demand. */
function current() {
  const found = state.clusters.get(chosen);
  if (found) {
    return found;
  }
  const all = [...state.clusters.values()].sort(overview.byName);
  return all.find((cluster) => cluster.flows.length > 0) ?? all[0] ?? null;
}

function choose(key) {
  chosen = key;
  // Replaced, not pushed: the back button leaves the page.
  window.history.replaceState(null, '', `#c=${encodeURIComponent(key)}`);
  draw();
  say(`Showing ${current()?.cluster ?? ''}`);
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
  overview.show(state, cluster, choose);
  at('cluster').hidden = !cluster;
  empty(at('empty'), cluster ? null : 'No upstream cluster is configured yet.');
  if (cluster) {
    const key = clusterKey(cluster);
    zones.show(state, cluster);
    map.show(state, cluster);
    history.show(key);
    cost.show(state, cluster);
    whatif.show(state, key, cluster);
    overview.tiles(state, cluster);
  }
  nodes.show(state);
  for (const link of document.querySelectorAll('.sections a')) {
    link.hidden = Boolean(at(link.hash.slice(1)).closest('[hidden]'));
  }
  attr(document.body, 'data-sequence', state.sequence);
  attr(document.body, 'data-cluster', cluster ? cluster.cluster : '');
}

/** System, dark or light; remembered here. */
function theme() {
  const order = ['system', 'dark', 'light'];
  const button = at('theme');
  const set = (name) => {
    attr(document.documentElement, 'data-theme', name === 'system' ? null : name);
    text(button, `Theme: ${name}`);
    localStorage.setItem('plimsoll.theme', name);
    forgetColours();
    draw();
  };
  const stored = localStorage.getItem('plimsoll.theme');
  set(order.includes(stored) ? stored : 'system');
  button.addEventListener('click', () => {
    const now = localStorage.getItem('plimsoll.theme');
    set(order[(order.indexOf(now) + 1) % order.length]);
  });
}

function live(word) {
  const element = at('live');
  attr(element, 'data-live', word);
  text(element, word);
}

theme();
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  forgetColours();
  draw();
});
map.start(draw);
zones.start(draw);
history.start(draw);
nodes.start(draw);
cost.start(draw);
whatif.start(() => state, current);
overview.start(draw);
at('detail-close').addEventListener('click', () => at('detail').close());
document.addEventListener('visibilitychange', draw);
window.addEventListener('resize', draw);
listen((next) => {
  state = next;
  for (const [key, cluster] of state.clusters) {
    history.record(key, cluster, state.taken_unix_ms);
  }
  history.forget(state.clusters);
  draw();
}, live);
