// Load of every zone over time. The samples are kept by this page; the host has no history.

import { plot } from './chart.js';
import { byId, color, setAttr, setEmpty, setText, table, whileOpen, widthOf } from './dom.js';
import { clock, duration, known, percent, zoneNames } from './format.js';

/** Number of samples kept per cluster, one per second. */
const SAMPLES = 600;
/** Up to this number of zones, each zone has its own line. */
const LINES = 8;
/** Number of clusters for which samples are kept. */
const CLUSTERS = 50;
const COLORS = 8;

const histories = new Map();
let showTable = null;
let tableOpen = null;
let width = null;

/** Sets up event handlers. */
export function start(draw) {
  width = widthOf(byId('history-card').querySelector('.card-head'), draw);
  tableOpen = whileOpen(byId('history-table').closest('details'), draw);
}

/** Records a sample; statistics are computed once here instead of at every redraw. */
export function record(key, cluster, unixMs) {
  if (!histories.has(key) && histories.size >= CLUSTERS) {
    return;
  }
  const history = histories.get(key) ?? { samples: [], zones: new Set() };
  histories.set(key, history);
  if (history.samples.at(-1)?.at >= unixMs) {
    return;
  }
  const names = zoneNames(cluster.zones);
  const sample = { at: unixMs, loads: new Map(), low: Infinity, high: -Infinity, mean: null };
  let sum = 0;
  cluster.zones.forEach(({ load }, index) => {
    if (known(load)) {
      sample.loads.set(names[index], load);
      history.zones.add(names[index]);
      sample.low = Math.min(sample.low, load);
      sample.high = Math.max(sample.high, load);
      sum += load;
    }
  });
  sample.mean = sample.loads.size ? sum / sample.loads.size : null;
  history.samples.push(sample);
  if (history.samples.length > SAMPLES) {
    history.samples.shift();
    pruneZones(history);
  }
}

/** Removes zones without samples, once a minute. */
function pruneZones(history) {
  history.since = (history.since ?? 0) + 1;
  if (history.since >= 60) {
    history.since = 0;
    history.zones = new Set(history.samples.flatMap((sample) => [...sample.loads.keys()]));
  }
}

/** Removes the samples of clusters that no longer exist. */
export function prune(clusters) {
  for (const key of histories.keys()) {
    if (!clusters.has(key)) {
      histories.delete(key);
    }
  }
}

/** Shows the history of a cluster. */
export function show(key) {
  const { samples, zones } = histories.get(key) ?? { samples: [], zones: new Set() };
  const names = [...zones].sort();
  const none = names.length ? null : 'No load reports yet.';
  setEmpty(byId('history-empty'), none);
  const canvas = byId('history');
  canvas.hidden = Boolean(none);
  if (tableOpen()) {
    tabulate(names, samples);
  }
  if (none) {
    setText(byId('history-note'), '');
    return;
  }
  const span = samples.at(-1).at - samples[0].at;
  setText(byId('history-note'), span < 2000
    ? 'Recorded since this page was opened.'
    : `The last ${duration(span)}, recorded by this page. 100 % is the load line.`);
  const latest = names.slice(0, LINES).map((name) => `${name} ${percent(samples.at(-1).loads.get(name) ?? null)}`);
  setAttr(canvas, 'aria-label', `Current load relative to the load line: ${latest.join(', ')}. The table below has all zones.`);
  setAttr(canvas, 'data-samples', samples.length);
  paint(canvas, names, samples);
}

function tabulate(names, samples) {
  showTable ??= table(byId('history-table'), [
    { label: 'Zone', field: 'zone', show: (row) => row.name },
    { label: 'Now', field: 'now', number: true, show: (row) => row.now, format: percent },
    { label: 'Lowest', field: 'low', number: true, show: (row) => row.low, format: percent },
    { label: 'Highest', field: 'high', number: true, show: (row) => row.high, format: percent },
  ], (row) => row.name, 'Load relative to the load line');
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
  const last = samples.at(-1).at;
  const top = roundUp(samples.reduce((most, { high }) => Math.max(most, high), 1.2));
  const step = top > 2 ? 1 : top > 1.4 ? 0.5 : 0.25;
  const ink = color('zone-0');
  const few = names.length <= LINES;
  // Many zones are drawn as a band from lowest to highest with the mean as a line. A sample without
  // a load has an infinite range, which is drawn as a gap.
  const [low, high] = [samples.map((sample) => sample.low), samples.map((sample) => sample.high)];
  const lines = few ? names.map((name, index) => ({
    // The dash marks a line that ended before the last sample.
    name: samples.at(-1).loads.has(name) ? name : `${name} –`,
    ink: color(`zone-${index % COLORS}`),
    values: samples.map((sample) => sample.loads.get(name)),
  })) : [
    { name: 'highest', ink, values: high },
    { name: 'mean', ink: color('ink'), values: samples.map((sample) => sample.mean) },
    { name: 'lowest', ink, values: low },
  ];
  plot(canvas, Math.max(200, width()), 280, {
    times: samples.map((sample) => sample.at),
    x: { low: Math.min(samples[0].at, last - 60_000), high: last, format: clock },
    y: {
      high: top,
      ticks: Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, index) => index * step),
      format: percent,
    },
    levels: [{ at: 1, ink: color('ink') }],
    band: few ? null : { low, high, ink },
    lines,
    labels: true,
  });
}

/** Rounds up, so that the axis does not change with every sample. */
function roundUp(value) {
  return Math.ceil(value / 0.2 - 1e-9) * 0.2;
}
