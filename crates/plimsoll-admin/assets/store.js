// Current document: a full document first, then patches, received as server-sent events.

const state = { clusters: new Map(), nodes: null, members: 0, taken_unix_ms: 0, sequence: 0 };
let receivedAt = 0;

const SEPARATOR = '\u001f';
export const clusterKey = (cluster) => `${cluster.fleet}${SEPARATOR}${cluster.cluster}`;
export const nodeKey = (node) => `${node.fleet}${SEPARATOR}${node.id}`;

/** Returns the estimated time of the host's clock. */
export function now() {
  return state.taken_unix_ms + (performance.now() - receivedAt);
}

/** Returns the age of a time in milliseconds; null without a time. */
export function age(unixMs) {
  return unixMs === null || unixMs === undefined ? null : Math.max(0, now() - unixMs);
}

const sums = new WeakMap();

/** Returns traffic sums of a cluster, computed once per document. */
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
    // The list is sorted again only when nodes were added or removed.
    state.members += change.nodes_gone || state.nodes.size !== before ? 1 : 0;
    change.nodes_gone?.forEach((key) => state.nodes.delete(key));
  }
}

/**
 * Subscribes to the event stream. `changed(state)` is called for every document,
 * `connection(status)` with `live` or `reconnecting`.
 */
export function listen(changed, connection) {
  const events = new EventSource('dashboard/events');
  const on = (name, apply) => events.addEventListener(name, (event) => {
    apply(JSON.parse(event.data));
    state.sequence = Number(event.lastEventId);
    receivedAt = performance.now();
    connection('live');
    changed(state);
  });
  on('full', full);
  on('patch', patch);
  events.addEventListener('error', () => {
    connection('reconnecting');
    // Browsers do not reconnect after an error response.
    if (events.readyState === EventSource.CLOSED) {
      setTimeout(() => listen(changed, connection), 2000);
    }
  });
}
