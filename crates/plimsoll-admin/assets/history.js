// Load of every zone over time, as this page has seen it: the host keeps no past.

import { at, attr, colour, empty, table, text, whileOpen, widthOf } from './dom.js';
import { clock, duration, known, percent, places } from './format.js';

/** Samples that are kept per cluster, one a second. */
const SAMPLES = 600;
/** Zones up to which each has a line of its own. */
const LINES = 8;
/** Clusters whose past is kept. */
const CLUSTERS = 50;
const COLOURS = 8;

const past = new Map();
let showTable = null;
let tableOpen = null;
let width = null;

/** Listens for the viewer. */
export function start(draw) {
  width = widthOf(at('history-card').querySelector('.card-head'), draw);
  tableOpen = whileOpen(at('history-table').closest('details'), draw);
}

/** Remembers a document; sums are made here, once, and not at every drawing. */
export function record(key, cluster, unixMs) {
  if (!past.has(key) && past.size >= CLUSTERS) {
    return;
  }
  const kept = past.get(key) ?? { samples: [], zones: new Set() };
  past.set(key, kept);
  if (kept.samples.at(-1)?.at >= unixMs) {
    return;
  }
  const names = places(cluster.zones);
  const sample = { at: unixMs, loads: new Map(), low: Infinity, high: -Infinity, mean: null };
  let sum = 0;
  cluster.zones.forEach(({ load }, index) => {
    if (known(load)) {
      sample.loads.set(names[index], load);
      kept.zones.add(names[index]);
      sample.low = Math.min(sample.low, load);
      sample.high = Math.max(sample.high, load);
      sum += load;
    }
  });
  sample.mean = sample.loads.size ? sum / sample.loads.size : null;
  kept.samples.push(sample);
  if (kept.samples.length > SAMPLES) {
    kept.samples.shift();
    forgetZones(kept);
  }
}

/** Zones that no sample knows any more; looked for once a minute. */
function forgetZones(kept) {
  kept.since = (kept.since ?? 0) + 1;
  if (kept.since >= 60) {
    kept.since = 0;
    kept.zones = new Set(kept.samples.flatMap((sample) => [...sample.loads.keys()]));
  }
}

/** Forgets clusters that are gone. */
export function forget(clusters) {
  for (const key of past.keys()) {
    if (!clusters.has(key)) {
      past.delete(key);
    }
  }
}

/** Shows the past of a cluster. */
export function show(key) {
  const { samples, zones } = past.get(key) ?? { samples: [], zones: new Set() };
  const names = [...zones].sort();
  const none = names.length ? null : 'No load reports yet.';
  empty(at('history-empty'), none);
  const canvas = at('history');
  canvas.hidden = Boolean(none);
  if (tableOpen()) {
    tabulate(names, samples);
  }
  if (none) {
    text(at('history-note'), '');
    return;
  }
  const span = samples.at(-1).at - samples[0].at;
  text(at('history-note'), span < 2000
    ? 'Seen since this page was opened; more with every second.'
    : `The last ${duration(span)}, as this page has seen it. 100 % is the load line.`);
  const latest = names.slice(0, LINES).map((name) => `${name} ${percent(samples.at(-1).loads.get(name) ?? null)}`);
  attr(canvas, 'aria-label', `Load against the load line now: ${latest.join(', ')}. The table below has all zones.`);
  attr(canvas, 'data-samples', samples.length);
  paint(canvas, names, samples);
}

function tabulate(names, samples) {
  showTable ??= table(at('history-table'), [
    { label: 'Zone', field: 'zone', show: (row) => row.name },
    { label: 'Now', field: 'now', number: true, show: (row) => row.now, format: percent },
    { label: 'Lowest', field: 'low', number: true, show: (row) => row.low, format: percent },
    { label: 'Highest', field: 'high', number: true, show: (row) => row.high, format: percent },
  ], (row) => row.name, 'Load against the load line');
  showTable(names.map((name) => {
    let [low, high] = [Infinity, -Infinity];
    for (const { loads } of samples) {
      const load = loads.get(name);
      if (load !== undefined) {
        low = Math.min(low, load);
        high = Math.max(high, load);
      }
    }
    return { name, now: samples.at(-1).loads.get(name) ?? null, low, high };
  }));
}

function paint(canvas, names, samples) {
  const wide = Math.max(200, width());
  const height = 280;
  const ratio = window.devicePixelRatio || 1;
  const [pixels, rows] = [Math.round(wide * ratio), Math.round(height * ratio)];
  if (canvas.width !== pixels || canvas.height !== rows) {
    canvas.width = pixels;
    canvas.height = rows;
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext('2d');
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, wide, height);
  context.font = '12px system-ui, sans-serif';
  const box = { left: 46, top: 8, right: wide - 84, bottom: height - 24 };
  const last = samples.at(-1).at;
  const first = Math.min(samples[0].at, last - 60_000);
  const top = nice(samples.reduce((most, { high }) => Math.max(most, high), 1.2));
  const x = (unixMs) => box.left + ((unixMs - first) / (last - first)) * (box.right - box.left);
  const y = (load) => box.bottom - (load / top) * (box.bottom - box.top);
  axes(context, { box, top, y, first, last });
  if (names.length <= LINES) {
    const ends = names.map((name, index) => {
      const ink = colour(`zone-${index % COLOURS}`);
      const end = line(context, samples, (sample) => sample.loads.get(name), { x, y, ink });
      // A line that ended earlier says so.
      return { name: samples.at(-1).loads.has(name) ? name : `${name} –`, ink, y: end };
    });
    labels(context, ends.filter((end) => end.y !== null), box);
  } else {
    band(context, samples, { x, y, box });
  }
}

/** The next round number above, so that the axis does not move with every sample. */
function nice(value) {
  return Math.ceil(value / 0.2 - 1e-9) * 0.2;
}

function axes(context, { box, top, y, first, last }) {
  context.strokeStyle = colour('line');
  context.fillStyle = colour('muted');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  const step = top > 2 ? 1 : top > 1.4 ? 0.5 : 0.25;
  for (let load = 0; load <= top + 1e-9; load += step) {
    context.beginPath();
    context.moveTo(box.left, Math.round(y(load)) + 0.5);
    context.lineTo(box.right, Math.round(y(load)) + 0.5);
    context.stroke();
    context.fillText(percent(load), box.left - 6, y(load));
  }
  context.strokeStyle = colour('ink');
  context.lineWidth = 1.5;
  context.setLineDash([5, 4]);
  context.beginPath();
  context.moveTo(box.left, y(1));
  context.lineTo(box.right, y(1));
  context.stroke();
  context.setLineDash([]);
  context.lineWidth = 1;
  context.textBaseline = 'top';
  context.textAlign = 'left';
  context.fillText(clock(first), box.left, box.bottom + 6);
  context.textAlign = 'right';
  context.fillText(clock(last), box.right, box.bottom + 6);
}

/** Draws one line; returns where it ends. */
function line(context, samples, value, { x, y, ink }) {
  context.strokeStyle = ink;
  context.lineWidth = 2;
  context.beginPath();
  let end = null;
  let open = false;
  for (const sample of samples) {
    const load = value(sample);
    if (!known(load)) {
      open = false;
      continue;
    }
    end = y(load);
    if (open) {
      context.lineTo(x(sample.at), end);
    } else {
      context.moveTo(x(sample.at), end);
    }
    open = true;
  }
  context.stroke();
  context.lineWidth = 1;
  return end;
}

/** Names at the ends of lines, pushed apart where they would overlap. */
function labels(context, ends, box) {
  ends.sort((a, b) => a.y - b.y);
  const apart = 15;
  ends.forEach((end, index) => {
    end.place = Math.max(end.y, index ? ends[index - 1].place + apart : box.top + 6);
  });
  let limit = box.bottom;
  for (const end of [...ends].reverse()) {
    end.place = Math.min(end.place, limit);
    limit = end.place - apart;
  }
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  for (const end of ends) {
    context.fillStyle = end.ink;
    context.fillText(end.name, box.right + 8, end.place, 76);
  }
}

/** Lowest to highest as a band, the mean as a line: a hundred lines say nothing. */
function band(context, samples, { x, y, box }) {
  const spans = samples.filter((sample) => sample.loads.size > 0);
  context.fillStyle = colour('zone-0');
  context.globalAlpha = 0.25;
  context.beginPath();
  spans.forEach((span, index) => context[index ? 'lineTo' : 'moveTo'](x(span.at), y(span.high)));
  [...spans].reverse().forEach((span) => context.lineTo(x(span.at), y(span.low)));
  context.fill();
  context.globalAlpha = 1;
  const ink = colour('zone-0');
  const high = line(context, spans, (span) => span.high, { x, y, ink });
  const mean = line(context, spans, (span) => span.mean, { x, y, ink: colour('ink') });
  const low = line(context, spans, (span) => span.low, { x, y, ink });
  const ends = [
    { name: 'highest', ink, y: high },
    { name: 'mean', ink: colour('ink'), y: mean },
    { name: 'lowest', ink, y: low },
  ];
  labels(context, ends.filter((end) => end.y !== null), box);
}
