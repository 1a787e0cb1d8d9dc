// List of nodes with search and filter, nodes with problems first; only visible rows are rendered.

import { byId, h, rowWindow, setAttr, setEmpty, setNumber, setText } from './dom.js';
import { count, duration, known, localityName, rate, UNKNOWN } from './format.js';
import { ago } from './overview.js';
import { age, nodeKey } from './store.js';

const ROW = 32;

const ANSWERS = { none: 'no update sent', waiting: 'waiting', accepted: 'accepted', refused: 'refused' };
const COLUMNS = [
  ['Node', '', 'id'], ['Zone', '', 'zone'], ['Software', 'wide', 'software'], ['Delivery', 'wide', 'delivery'],
  ['Update', '', 'update'], ['Answered', 'wide number', 'answered'], ['Reported', 'wide number', 'reported'],
  ['Demand', 'wide number', 'demand'],
];

let all = [];
let state = null;
/** Key of the node in the detail dialog. */
let open = null;
/** Sorted keys, and the `state.members` for which they were sorted. */
let order = { members: 0, keys: [] };
/** Computes the range of visible rows. */
let visibleRows = null;

/** Creates the table and sets up event handlers. */
export function start(draw) {
  byId('nodes').append(
    h('caption', { class: 'said' }, 'Nodes, those with problems first'),
    h('thead', {}, h('tr', { 'aria-rowindex': 1 }, ...COLUMNS.map(([label, kind]) => h('th', { scope: 'col', class: kind }, label)))),
    h('tbody'),
  );
  for (const [id, event] of [['nodes-search', 'input'], ['nodes-filter', 'change']]) {
    byId(id).addEventListener(event, () => {
      byId('nodes-scroller').scrollTop = 0;
      draw();
    });
  }
  visibleRows = rowWindow(byId('nodes-scroller'), ROW, () => requestAnimationFrame(drawRows));
}

/** Shows the nodes of a document. */
export function show(next) {
  state = next;
  const card = byId('nodes-card');
  card.hidden = !state.nodes;
  if (!state.nodes) {
    return;
  }
  const words = byId('nodes-search').value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const filter = byId('nodes-filter').value;
  all = sorted(words, filter);
  setText(byId('nodes-count'), all.length === state.nodes.size
    ? `${count(all.length)} nodes` : `${count(all.length)} of ${count(state.nodes.size)} nodes`);
  setEmpty(byId('nodes-empty'), state.nodes.size === 0
    ? 'No proxy has connected yet. “plimsoll bootstrap envoy” prints a bootstrap for Envoy.'
    : all.length === 0 ? 'No node matches.' : null);
  byId('nodes-scroller').hidden = all.length === 0;
  setAttr(byId('nodes'), 'aria-rowcount', all.length + 1);
  drawRows();
  if (open && byId('detail').open) {
    const node = state.nodes.get(open);
    if (node) {
      detail(node);
    }
  }
}

/** Returns the matching nodes, those with problems first, then by key. */
function sorted(words, filter) {
  if (order.members !== state.members) {
    order = { members: state.members, keys: [...state.nodes.keys()].sort() };
  }
  const bySeverity = [[], [], [], []];
  for (const key of order.keys) {
    const node = state.nodes.get(key);
    if (matches(node, words, filter)) {
      bySeverity[3 - severity(node)].push(node);
    }
  }
  return bySeverity.flat();
}

function matches(node, words, filter) {
  if (filter === 'refused' && node.answer !== 'refused') {
    return false;
  }
  if (filter === 'silent' && known(node.reported_unix_ms)) {
    return false;
  }
  if (filter === 'gone' && node.connected) {
    return false;
  }
  if (words.length === 0) {
    return true;
  }
  const haystack = `${node.id} ${node.fleet} ${localityName(node.locality)} ${node.software} ${node.delivery} ${node.answer}`.toLowerCase();
  return words.every((word) => haystack.includes(word));
}

/** Returns how severe the problem of a node is; 0 without a problem. */
function severity(node) {
  return node.answer === 'refused' ? 3 : !node.connected ? 2 : late(node) ? 1 : 0;
}

/** Whether a node has missed three load reports. */
function late(node) {
  const since = age(node.reported_unix_ms);
  return known(since) && known(node.report_interval_ms) && since > 3 * node.report_interval_ms;
}

/** Draws the visible rows; two filler rows replace the others. */
function drawRows() {
  const body = byId('nodes').tBodies[0];
  const { first, last, before, after } = visibleRows(all.length);
  while (body.rows.length < last - first + 2) {
    body.append(body.rows.length < 2 ? h('tr', { class: 'filler', 'aria-hidden': 'true' }, h('td')) : row());
    // Keep the second filler at the end.
    if (body.rows.length > 2) {
      body.append(body.rows[body.rows.length - 2]);
    }
  }
  while (body.rows.length > last - first + 2) {
    body.rows[body.rows.length - 2].remove();
  }
  const list = [...body.rows];
  list[0].firstChild.style.height = `${before}px`;
  list.at(-1).firstChild.style.height = `${after}px`;
  for (let index = first; index < last; index += 1) {
    fill(list[index - first + 1], all[index], index);
  }
}

function row() {
  const button = h('button', { type: 'button', class: 'link' });
  const element = h('tr', { class: 'node' }, h('th', { scope: 'row', 'data-field': 'id' }, button),
    ...COLUMNS.slice(1).map(([, kind, field]) => h('td', { class: kind, 'data-field': field })));
  button.addEventListener('click', () => {
    open = nodeKey(element.node);
    detail(element.node);
    if (!byId('detail').open) {
      byId('detail').showModal();
    }
  });
  return element;
}

function fill(element, node, index) {
  element.node = node;
  setAttr(element, 'aria-rowindex', index + 2);
  setAttr(element, 'data-key', node.id);
  const cells = element.children;
  setText(cells[0].firstChild, node.id);
  setAttr(cells[0].firstChild, 'title', node.id);
  setText(cells[1], localityName(node.locality));
  setText(cells[2], node.software || UNKNOWN);
  setText(cells[3], node.delivery || UNKNOWN);
  setText(cells[4], node.connected ? ANSWERS[node.answer] : 'not connected');
  setAttr(cells[4], 'data-answer', node.connected ? node.answer : 'gone');
  setAttr(cells[4], 'title', node.refusal);
  setNumber(cells[5], node.answered_unix_ms, ago);
  setNumber(cells[6], node.reported_unix_ms, ago);
  setAttr(cells[6], 'data-level', late(node) ? 'above' : null);
  setNumber(cells[7], node.requests_per_second, rate);
}

function detail(node) {
  setText(byId('detail-title'), node.id);
  const interval = known(node.report_interval_ms) ? `every ${duration(node.report_interval_ms)}` : UNKNOWN;
  const facts = [
    ['Fleet', node.fleet], ['Zone', localityName(node.locality)], ['Software', node.software || UNKNOWN],
    ['Connected', node.connected ? 'yes' : 'no'],
    ['Delivery of demand', node.delivery || UNKNOWN],
    ['Last update', ANSWERS[node.answer]], ['Answered', ago(node.answered_unix_ms)],
    ['Accepted version', node.accepted_version ?? UNKNOWN],
    ['Load reports', `${interval}, last ${ago(node.reported_unix_ms)}`],
    ['Demand', rate(node.requests_per_second)],
  ];
  const list = h('dl', { class: 'facts' }, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
  const refusal = node.refusal ? [h('h3', {}, 'Reason for the refusal'), h('pre', {}, node.refusal)] : [];
  byId('detail-body').replaceChildren(list, ...refusal);
}
