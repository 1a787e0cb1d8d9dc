// The list of nodes: searched, filtered, worst first, and only as many rows as can be seen.

import { at, attr, empty, h, num, rowWindow, text } from './dom.js';
import { count, duration, known, place, rate, UNKNOWN } from './format.js';
import { ago } from './overview.js';
import { age, nodeKey } from './store.js';

const ROW = 32;

const ANSWERS = { none: 'nothing sent', waiting: 'waiting', accepted: 'accepted', refused: 'refused' };
const COLUMNS = [
  ['Node', '', 'id'], ['Zone', '', 'zone'], ['Software', 'wide', 'software'], ['Delivery', 'wide', 'delivery'],
  ['Update', '', 'update'], ['Answered', 'wide number', 'answered'], ['Reported', 'number', 'reported'],
  ['Demand', 'wide number', 'demand'],
];

let all = [];
let state = null;
let open = null;
/** Keys in order, and for which members that is so. */
let order = { members: 0, keys: [] };
/** Which rows are near what is seen. */
let rowsIn = null;

/** Makes the table and listens for the viewer. */
export function start(draw) {
  at('nodes').append(
    h('caption', { class: 'said' }, 'Nodes, those with trouble first'),
    h('thead', {}, h('tr', { 'aria-rowindex': 1 }, ...COLUMNS.map(([label, kind]) => h('th', { scope: 'col', class: kind }, label)))),
    h('tbody'),
  );
  for (const [id, event] of [['nodes-search', 'input'], ['nodes-filter', 'change']]) {
    at(id).addEventListener(event, () => {
      at('nodes-scroller').scrollTop = 0;
      draw();
    });
  }
  rowsIn = rowWindow(at('nodes-scroller'), ROW, () => requestAnimationFrame(drawRows));
}

/** Shows the nodes of a document. */
export function show(next) {
  state = next;
  const card = at('nodes-card');
  card.hidden = !state.nodes;
  if (!state.nodes) {
    return;
  }
  const words = at('nodes-search').value.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const filter = at('nodes-filter').value;
  all = sorted(words, filter);
  text(at('nodes-count'), all.length === state.nodes.size
    ? `${count(all.length)} nodes` : `${count(all.length)} of ${count(state.nodes.size)} nodes`);
  empty(at('nodes-empty'), state.nodes.size === 0
    ? 'No proxy has connected yet. “plimsoll bootstrap envoy” prints what an Envoy needs.'
    : all.length === 0 ? 'No node matches.' : null);
  at('nodes-scroller').hidden = all.length === 0;
  attr(at('nodes'), 'aria-rowcount', all.length + 1);
  drawRows();
  if (open && at('detail').open) {
    const node = state.nodes.get(open);
    if (node) {
      detail(node);
    }
  }
}

/** Those that are wanted, worst first, then by key. */
function sorted(words, filter) {
  if (order.members !== state.members) {
    order = { members: state.members, keys: [...state.nodes.keys()].sort() };
  }
  const byTrouble = [[], [], [], []];
  for (const key of order.keys) {
    const node = state.nodes.get(key);
    if (wanted(node, words, filter)) {
      byTrouble[3 - trouble(node)].push(node);
    }
  }
  return byTrouble.flat();
}

function wanted(node, words, filter) {
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
  const own = `${node.id} ${node.fleet} ${place(node.locality)} ${node.software} ${node.delivery} ${node.answer}`.toLowerCase();
  return words.every((word) => own.includes(word));
}

/** How much attention a node needs. */
function trouble(node) {
  return node.answer === 'refused' ? 3 : !node.connected ? 2 : late(node) ? 1 : 0;
}

/** Three intervals without a report. */
function late(node) {
  const since = age(node.reported_unix_ms);
  return known(since) && known(node.report_interval_ms) && since > 3 * node.report_interval_ms;
}

/** Draws the rows that can be seen. The others are two rows as high as all of them. */
function drawRows() {
  const body = at('nodes').tBodies[0];
  const { first, last, before, after } = rowsIn(all.length);
  while (body.rows.length < last - first + 2) {
    body.append(body.rows.length < 2 ? h('tr', { class: 'filler', 'aria-hidden': 'true' }, h('td')) : row());
    // The second filler stays at the end.
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
    if (!at('detail').open) {
      at('detail').showModal();
    }
  });
  return element;
}

function fill(element, node, index) {
  element.node = node;
  attr(element, 'aria-rowindex', index + 2);
  attr(element, 'data-key', node.id);
  const cells = element.children;
  text(cells[0].firstChild, node.id);
  attr(cells[0].firstChild, 'title', node.id);
  text(cells[1], place(node.locality));
  text(cells[2], node.software || UNKNOWN);
  text(cells[3], node.delivery || UNKNOWN);
  text(cells[4], node.connected ? ANSWERS[node.answer] : 'not connected');
  attr(cells[4], 'data-answer', node.connected ? node.answer : 'gone');
  attr(cells[4], 'title', node.refusal);
  num(cells[5], node.answered_unix_ms, ago);
  num(cells[6], node.reported_unix_ms, ago);
  attr(cells[6], 'data-level', late(node) ? 'above' : null);
  num(cells[7], node.requests_per_second, rate);
}

function detail(node) {
  text(at('detail-title'), node.id);
  const interval = known(node.report_interval_ms) ? `every ${duration(node.report_interval_ms)}` : UNKNOWN;
  const facts = [
    ['Fleet', node.fleet], ['Zone', place(node.locality)], ['Software', node.software || UNKNOWN],
    ['Connected', node.connected ? 'yes' : 'no'],
    ['How demand reaches it', node.delivery || UNKNOWN],
    ['Last update', ANSWERS[node.answer]], ['Answered', ago(node.answered_unix_ms)],
    ['Accepted version', node.accepted_version ?? UNKNOWN],
    ['Load reports', `${interval}, last ${ago(node.reported_unix_ms)}`],
    ['Demand there', rate(node.requests_per_second)],
  ];
  const list = h('dl', { class: 'facts' }, ...facts.flatMap(([name, value]) => [h('dt', {}, name), h('dd', {}, value)]));
  const refusal = node.refusal ? [h('h3', {}, 'Why it refused'), h('pre', {}, node.refusal)] : [];
  at('detail-body').replaceChildren(list, ...refusal);
}
