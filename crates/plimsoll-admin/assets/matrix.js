// Heat matrix for more zones than ribbons can show. Rows send, columns serve; opacity is the share of
// the row's requests, the strip at the top the load of the column.

import { color, h, setAttr, setText } from './dom.js';
import { level, levelWords, percent, rate } from './format.js';
import { traffic } from './store.js';

const STRIP = 10;

/** Draws the traffic of a cluster as a matrix into `map`. */
export function matrix(map, cluster, names, width) {
  let canvas = map.querySelector('canvas');
  if (!canvas) {
    canvas = h('canvas', { class: 'matrix', role: 'img', tabindex: '0' });
    const tip = h('p', { class: 'note tip', 'aria-live': 'polite' });
    map.replaceChildren(canvas, tip);
    canvas.addEventListener('pointermove', (event) => {
      const box = canvas.getBoundingClientRect();
      const side = box.width / canvas.names.length;
      const column = Math.floor((event.clientX - box.left) / side);
      const row = Math.floor((event.clientY - box.top - STRIP) / side);
      canvas.cell = [row, column];
      point(canvas, tip);
    });
    canvas.addEventListener('keydown', (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (step) {
        event.preventDefault();
        const last = canvas.names.length - 1;
        const [row, column] = canvas.cell ?? [0, 0];
        canvas.cell = [clamp(row + step[0], last), clamp(column + step[1], last)];
        point(canvas, tip);
      }
    });
  }
  setAttr(map, 'data-kind', 'matrix');
  canvas.names = names;
  canvas.zones = cluster.zones;
  canvas.rates = new Map(cluster.flows.map(([from, to, value]) => [from * names.length + to, value]));
  const cross = cluster.flows.filter(([from, to]) => from !== to).length;
  setAttr(canvas, 'aria-label', `Heat matrix of ${names.length} zones, ${cross} flows between different zones. Arrow keys select a cell; the table below lists the largest flows.`);
  canvas.issued = traffic(cluster).issued;
  paint(canvas, cluster, Math.min(width, 620));
  point(canvas, map.querySelector('.tip'));
}

const clamp = (value, last) => Math.max(0, Math.min(last, value));

/** Draws one pixel per cell and scales the image, so that thousands of flows are one operation. */
function paint(canvas, cluster, width) {
  const zones = canvas.zones.length;
  const ratio = window.devicePixelRatio || 1;
  const side = width / zones;
  const [wide, high] = [Math.round(width * ratio), Math.round((width + STRIP) * ratio)];
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${width + STRIP}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, width + STRIP);
  context.fillStyle = color('sunken');
  context.fillRect(0, STRIP, width, width);
  canvas.zones.forEach((zone, index) => {
    context.fillStyle = color(`load-${level(zone.load)}`);
    context.fillRect(index * side, 0, Math.max(1, side - 0.5), STRIP - 3);
  });
  context.imageSmoothingEnabled = false;
  context.drawImage(cells(cluster, zones, canvas.issued), 0, STRIP, width, width);
}

function cells(cluster, zones, issued) {
  const picture = new OffscreenCanvas(zones, zones);
  const context = picture.getContext('2d');
  const image = context.createImageData(zones, zones);
  const [local, cross] = [channels(color('local')), channels(color('cross'))];
  for (const [from, to, value] of cluster.flows) {
    const at = (from * zones + to) * 4;
    image.data.set(from === to ? local : cross, at);
    // The square root keeps small shares visible.
    image.data[at + 3] = 255 * Math.sqrt(value / Math.max(issued[from], 1e-9));
  }
  context.putImageData(image, 0, 0);
  return picture;
}

/** Parses `#rrggbb` into three numbers. */
const channels = (hex) => [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16));

function point(canvas, tip) {
  const [row, column] = canvas.cell ?? [-1, -1];
  const { names, zones } = canvas;
  if (!names[row] || !names[column]) {
    setText(tip, 'Rows send, columns serve. Point at a cell, or use the arrow keys.');
    return;
  }
  const value = canvas.rates.get(row * names.length + column) ?? 0;
  const share = canvas.issued[row] > 0 ? value / canvas.issued[row] : 0;
  setText(tip, `${names[row]} sends ${rate(value)} (${percent(share)} of its demand) to ${names[column]}, which is ${levelWords(zones[column].load)}.`);
}
