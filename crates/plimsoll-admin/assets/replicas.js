// Replicas of the control plane, and the state of the store that they share.

import { byId, setAttr, setText, table } from './dom.js';
import { count } from './format.js';
import { ago } from './overview.js';
import { age } from './store.js';

/** A replica renews its record every 5 s; later it is probably dead, and its record expires. */
const LATE_MS = 12_000;

let showReplicas = null;

/** Creates the table. */
export function start() {
  showReplicas = table(byId('replicas'), [
    { label: 'Replica', field: 'name', show: (replica) => (replica.this ? `${replica.name} (this page)` : replica.name) },
    { label: 'Nodes', field: 'nodes', number: true, show: (replica) => replica.nodes, format: count },
    { label: 'Last heard', field: 'heard', number: true, draw: heard },
    { label: 'Configuration', field: 'configuration', draw: configuration },
    { label: 'Started', field: 'started', number: true, wide: true, show: (replica) => replica.started_unix_ms, format: ago },
    { label: 'Address', field: 'listen', wide: true, show: (replica) => replica.listen },
    { label: 'Version', field: 'version', wide: true, show: (replica) => replica.version },
  ], (replica) => replica.name, 'Replicas of the control plane');
}

function heard(cell, replica) {
  setAttr(cell, 'data-value', replica.heard_unix_ms);
  setAttr(cell, 'data-level', age(replica.heard_unix_ms) > LATE_MS ? 'above' : null);
  setText(cell, ago(replica.heard_unix_ms));
}

function configuration(cell, replica) {
  setAttr(cell, 'data-level', replica.same_configuration ? null : 'above');
  setText(cell, replica.same_configuration ? 'same' : 'another');
}

/** Shows the replicas of a document. */
export function show({ replicas }) {
  byId('replicas-card').hidden = !replicas;
  if (!replicas) {
    return;
  }
  const { store } = replicas;
  const word = store.connected ? 'connected' : 'not connected';
  const element = byId('replicas-store');
  setAttr(element, 'data-level', store.connected ? null : 'above');
  setText(element, `this page is ${replicas.this} · store ${word}${store.synced ? '' : ', not read yet'}`
    + ` · ${count(store.nodes)} nodes of all replicas`);
  showReplicas(replicas.list);
}
