// Heat matrix for more zones than ribbons can show. Rows are zones that send, columns zones that
// serve; opacity is the share of the row's requests, the strip at the top the load of the column. A
// host that is one proxy has one row.

import { color, h, setAttr, setText } from './dom.js';
import { level, levelWords, percent, rate } from './format.js';
import { traffic } from './store.js';

const STRIP = 10;
/** Room for labels: as many letters of the longest name as are readable. */
const LETTER = 6.2;
const LETTERS = 14;
/** Least distance of labels; between them, zones have none. */
const APART = 11;
/** Largest and smallest side of a cell. */
const LARGEST = 28;
const SMALLEST = 2;
/** Side of a matrix in pixels; with fewer zones the cells have their largest side. */
const WIDEST = 720;

/** Draws the traffic of a cluster as a matrix into `map`. */
export function matrix(map, state, cluster, names, width) {
  const canvas = map.querySelector('canvas') ?? create(map);
  setAttr(map, 'data-kind', 'matrix');
  const { issued } = traffic(cluster);
  const senders = cluster.zones.map((_, index) => index)
    .filter((index) => issued[index] > 0 || (!state.one_proxy && cluster.zones[index].proxies > 0));
  Object.assign(canvas, { names, issued, senders, zones: cluster.zones });
  canvas.rates = new Map(cluster.flows.map(([from, to, value]) => [from * names.length + to, value]));
  const cross = cluster.flows.filter(([from, to]) => from !== to).length;
  setAttr(canvas, 'aria-label', `Heat matrix: ${senders.length} zones send, ${names.length} serve, ${cross} flows between different zones. Arrow keys select a cell; the table below lists the largest flows.`);
  setAttr(canvas, 'data-rows', senders.length);
  setAttr(canvas, 'data-columns', names.length);
  canvas.layout = layout(canvas, Math.min(width, WIDEST));
  paint(canvas, cluster);
  point(canvas, map.querySelector('.tip'));
}

function create(map) {
  const canvas = h('canvas', { class: 'matrix', role: 'img', tabindex: '0' });
  const tip = h('p', { class: 'note tip', 'aria-live': 'polite' });
  const legend = h('p', { class: 'note matrix-legend' },
    h('span', { class: 'swatch local' }), 'stays in its zone',
    h('span', { class: 'swatch cross' }), 'goes to another zone; the stronger, the larger its share of the row. Strip at the top: load of the column.');
  map.replaceChildren(canvas, legend, tip);
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    const { left, top, wide, high } = canvas.layout;
    const column = Math.floor((event.clientX - box.left - left) / wide);
    const row = Math.floor((event.clientY - box.top - top) / high);
    select(canvas, tip, row, column);
  };
  // A finger has no hover: a tap selects, and moving sideways goes on.
  canvas.addEventListener('pointerdown', at);
  canvas.addEventListener('pointermove', at);
  canvas.addEventListener('keydown', (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (step) {
      event.preventDefault();
      const [row, column] = canvas.cell ?? [0, 0];
      select(canvas, tip, clamp(row + step[0], canvas.senders.length - 1), clamp(column + step[1], canvas.names.length - 1));
    }
  });
  return canvas;
}

function select(canvas, tip, row, column) {
  canvas.cell = [row, column];
  point(canvas, tip);
  canvas.repaint?.();
}

const clamp = (value, last) => Math.max(0, Math.min(last, value));

/** Computes the place of the cells: `left` and `top` are the room of labels. */
function layout({ names, senders }, width) {
  const letters = Math.min(LETTERS, Math.max(...names.map((name) => name.length)));
  const label = Math.ceil(letters * LETTER) + 8;
  const room = Math.max(60, width - label - 4);
  const wide = Math.max(SMALLEST, Math.min(LARGEST, room / names.length));
  // One row would be a thin line if its cells were square.
  const high = senders.length * wide < LARGEST ? LARGEST / Math.max(1, senders.length) : wide;
  return { left: label, top: label + STRIP, wide, high };
}

/** Draws one pixel per cell and scales the image, so that thousands of flows are one operation. */
function paint(canvas, cluster) {
  const { left, top, wide, high } = canvas.layout;
  const [columns, rows] = [canvas.names.length, canvas.senders.length];
  const size = { width: left + columns * wide + 2, height: top + rows * high + 2 };
  const context = prepared(canvas, size);
  context.fillStyle = color('sunken');
  context.fillRect(left, top, columns * wide, rows * high);
  canvas.zones.forEach((zone, index) => {
    context.fillStyle = color(`load-${level(zone.load)}`);
    context.fillRect(left + index * wide, top - STRIP, Math.max(1, wide - 0.5), STRIP - 3);
  });
  context.imageSmoothingEnabled = false;
  if (rows > 0) {
    context.drawImage(cells(cluster, canvas), left, top, columns * wide, rows * high);
  }
  labels(context, canvas);
  outline(context, canvas);
  canvas.repaint = () => paint(canvas, cluster);
}

function prepared(canvas, { width, height }) {
  const ratio = window.devicePixelRatio || 1;
  const [wide, high] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Writes names of rows and columns, as many as there is room for; the selected ones always. */
function labels(context, { names, senders, layout: { left, top, wide, high }, cell }) {
  context.font = '11px system-ui, sans-serif';
  context.textBaseline = 'middle';
  const [row, column] = cell ?? [-1, -1];
  const cut = (name) => (name.length > LETTERS ? `${name.slice(0, LETTERS - 1)}…` : name);
  const write = (name, selected) => {
    context.fillStyle = color(selected ? 'ink' : 'muted');
    context.fillText(cut(name), 0, 0);
  };
  const shown = (index, chosen, size) => {
    const every = Math.ceil(APART / size);
    return index === chosen || (index % every === 0 && (chosen < 0 || Math.abs(index - chosen) >= every));
  };
  senders.forEach((zone, index) => {
    if (shown(index, row, high)) {
      context.save();
      context.textAlign = 'right';
      context.translate(left - 5, top + (index + 0.5) * high);
      write(names[zone], index === row);
      context.restore();
    }
  });
  names.forEach((name, index) => {
    if (shown(index, column, wide)) {
      context.save();
      context.textAlign = 'left';
      context.translate(left + (index + 0.5) * wide, top - STRIP - 4);
      context.rotate(-Math.PI / 2);
      write(name, index === column);
      context.restore();
    }
  });
}

/** Marks the selected cell. */
function outline(context, { names, senders, cell, layout: { left, top, wide, high } }) {
  const [row, column] = cell ?? [-1, -1];
  if (senders[row] !== undefined && names[column] !== undefined) {
    context.strokeStyle = color('ink');
    context.lineWidth = 1.5;
    context.strokeRect(left + column * wide, top + row * high, wide, high);
  }
}

function cells(cluster, { names, senders, issued }) {
  const picture = new OffscreenCanvas(names.length, senders.length);
  const context = picture.getContext('2d');
  const image = context.createImageData(names.length, senders.length);
  const [local, cross] = [channels(color('local')), channels(color('cross'))];
  const rows = new Map(senders.map((zone, row) => [zone, row]));
  for (const [from, to, value] of cluster.flows) {
    const row = rows.get(from);
    if (row !== undefined) {
      const at = (row * names.length + to) * 4;
      image.data.set(from === to ? local : cross, at);
      // The square root and the least opacity keep small shares visible.
      image.data[at + 3] = 255 * (0.2 + 0.8 * Math.sqrt(value / Math.max(issued[from], 1e-9)));
    }
  }
  context.putImageData(image, 0, 0);
  return picture;
}

/** Parses `#rrggbb` into three numbers. */
const channels = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

function point(canvas, tip) {
  const [row, column] = canvas.cell ?? [-1, -1];
  const { names, zones, senders } = canvas;
  const from = senders[row];
  if (from === undefined || !names[column]) {
    setText(tip, 'Rows send, columns serve. Point at a cell, tap it, or use the arrow keys.');
    return;
  }
  const value = canvas.rates.get(from * names.length + column) ?? 0;
  const share = canvas.issued[from] > 0 ? value / canvas.issued[from] : 0;
  setText(tip, `${names[from]} sends ${rate(value)} (${percent(share)} of its demand) to ${names[column]}, which is ${levelWords(zones[column].load)}.`);
}
