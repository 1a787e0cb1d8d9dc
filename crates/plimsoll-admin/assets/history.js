// Load of every zone over time, as this page has seen it: the host keeps no past.

import { at, attr, empty, table, text } from './dom.js';
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

/** Remembers a document. */
export function record(key, cluster, unixMs) {
  if (!past.has(key) && past.size >= CLUSTERS) {
    return;
  }
  const samples = past.get(key) ?? [];
  past.set(key, samples);
  if (samples.at(-1)?.at >= unixMs) {
    return;
  }
  const names = places(cluster.zones);
  const loads = new Map();
  cluster.zones.forEach((zone, index) => {
    if (known(zone.load)) {
      loads.set(names[index], zone.load);
    }
  });
  samples.push({ at: unixMs, loads });
  if (samples.length > SAMPLES) {
    samples.shift();
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
export function show(key, cluster) {
  const samples = past.get(key) ?? [];
  const names = [...new Set(samples.flatMap((sample) => [...sample.loads.keys()]))].sort();
  const none = names.length ? null : 'No load reports yet.';
  empty(at('history-empty'), none);
  const canvas = at('history');
  canvas.hidden = Boolean(none);
  if (none) {
    text(at('history-note'), '');
    tabulate([], samples);
    return;
  }
  const span = samples.at(-1).at - samples[0].at;
  text(at('history-note'), span < 2000
    ? 'Seen since this page was opened; more with every second.'
    : `The last ${duration(span)}, as this page has seen it. 100 % is the load line.`);
  tabulate(names, samples);
  const latest = names.map((name) => `${name} ${percent(samples.at(-1).loads.get(name) ?? null)}`);
  attr(canvas, 'aria-label', `Load against the load line now: ${latest.slice(0, LINES).join(', ')}. The table below has all zones.`);
  paint(canvas, names, samples);
}

function tabulate(names, samples) {
  showTable ??= table(at('history-table'), [
    { label: 'Zone', show: (row) => row.name },
    { label: 'Now', field: 'now', number: true, show: (row) => row.now, format: percent },
    { label: 'Lowest', number: true, show: (row) => row.low, format: percent },
    { label: 'Highest', number: true, show: (row) => row.high, format: percent },
  ], (row) => row.name, 'Load against the load line');
  showTable(names.map((name) => {
    const values = samples.map((sample) => sample.loads.get(name)).filter(known);
    return {
      name,
      now: samples.at(-1).loads.get(name) ?? null,
      low: Math.min(...values),
      high: Math.max(...values),
    };
  }));
}

function paint(canvas, names, samples) {
  const width = canvas.parentElement.clientWidth - 24;
  const height = 280;
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d');
  context.scale(ratio, ratio);
  context.font = '12px system-ui, sans-serif';
  const style = getComputedStyle(canvas);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  const box = { left: 46, top: 8, right: width - 84, bottom: height - 24 };
  const last = samples.at(-1).at;
  const first = Math.min(samples[0].at, last - 60_000);
  const values = samples.flatMap((sample) => [...sample.loads.values()]);
  const top = nice(Math.max(1.2, ...values));
  const x = (unixMs) => box.left + ((unixMs - first) / (last - first)) * (box.right - box.left);
  const y = (load) => box.bottom - (load / top) * (box.bottom - box.top);
  axes(context, { box, top, y, colour, first, last });
  if (names.length <= LINES) {
    const ends = names.map((name, index) => {
      const ink = colour(`zone-${index % COLOURS}`);
      const end = line(context, samples, (sample) => sample.loads.get(name), { x, y, ink });
      return { name, ink, y: end };
    });
    labels(context, ends.filter((end) => end.y !== null), box);
  } else {
    band(context, samples, { x, y, box, colour });
  }
}

/** The next round number above, so that the axis does not move with every sample. */
function nice(value) {
  return Math.ceil(value / 0.2 - 1e-9) * 0.2;
}

function axes(context, { box, top, y, colour, first, last }) {
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
function band(context, samples, { x, y, box, colour }) {
  const spans = samples.filter((sample) => sample.loads.size > 0).map((sample) => {
    const loads = [...sample.loads.values()];
    return {
      at: sample.at,
      low: Math.min(...loads),
      high: Math.max(...loads),
      mean: loads.reduce((sum, load) => sum + load, 0) / loads.length,
      loads: sample.loads,
    };
  });
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
