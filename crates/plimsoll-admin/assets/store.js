// The document as it is now: the whole first, then what changes, over one stream of events.

const state = { clusters: new Map(), nodes: null, members: 0, taken_unix_ms: 0, sequence: 0 };
let receivedAt = 0;

const SEPARATOR = '\u001f';
export const clusterKey = (cluster) => `${cluster.fleet}${SEPARATOR}${cluster.cluster}`;
export const nodeKey = (node) => `${node.fleet}${SEPARATOR}${node.id}`;

/** The host's clock, as far as one can tell from here. */
export function now() {
  return state.taken_unix_ms + (performance.now() - receivedAt);
}

/** Age of a moment; null when there is none. */
export function age(unixMs) {
  return unixMs === null || unixMs === undefined ? null : Math.max(0, now() - unixMs);
}

const sums = new WeakMap();

/** Sums of the traffic of a cluster, made once per document. */
export function traffic(cluster) {
  let found = sums.get(cluster);
  if (!found) {
    const zones = cluster.zones.length;
    found = { issued: new Float64Array(zones), served: new Float64Array(zones), total: 0, cross: 0 };
    for (const [from, to, value] of cluster.flows) {
      found.issued[from] += value;
      found.served[to] += value;
      found.total += value;
      found.cross += from === to ? 0 : value;
    }
    sums.set(cluster, found);
  }
  return found;
}

function byKey(items, key) {
  return new Map(items.map((item) => [key(item), item]));
}

function full(document) {
  const { clusters, nodes, ...head } = document;
  Object.assign(state, head);
  state.clusters = byKey(clusters, clusterKey);
  state.nodes = nodes && byKey(nodes, nodeKey);
  state.members += 1;
}

function patch(change) {
  state.taken_unix_ms = change.taken_unix_ms;
  Object.assign(state, change.head);
  change.clusters?.forEach((item) => state.clusters.set(clusterKey(item), item));
  change.clusters_gone?.forEach((key) => state.clusters.delete(key));
  if (change.nodes || change.nodes_gone) {
    state.nodes ??= new Map();
    const before = state.nodes.size;
    change.nodes?.forEach((item) => state.nodes.set(nodeKey(item), item));
    // Who is there is sorted again only when somebody came or went.
    state.members += change.nodes_gone || state.nodes.size !== before ? 1 : 0;
    change.nodes_gone?.forEach((key) => state.nodes.delete(key));
  }
}

/**
 * Listens for as long as the page is open. `changed(state)` hears of every document, `live(word)`
 * of the stream: `live`, `reconnecting`.
 */
export function listen(changed, live) {
  const events = new EventSource('dashboard/events');
  const on = (name, apply) => events.addEventListener(name, (event) => {
    apply(JSON.parse(event.data));
    state.sequence = Number(event.lastEventId);
    receivedAt = performance.now();
    live('live');
    changed(state);
  });
  on('full', full);
  on('patch', patch);
  events.addEventListener('error', () => {
    live('reconnecting');
    // A stream that was refused is not tried again by the browser.
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(() => listen(changed, live), 2000);
    }
  });
}
