// Values of every zone over time. The host keeps an hour, which is loaded when a cluster is shown;
// the page then adds the documents that it receives.

import { plot, ticks } from './chart.js';
import { boxOf, byId, color, getJson, setAttr, setEmpty, setText, table, whileOpen } from './dom.js';
import { clock, duration, known, localityName, minute, percent, rate, zoneNames } from './format.js';

/** Up to this number of zones, each zone has its own line. */
const LINES = 8;
/** Number of clusters for which samples are kept; the first one shown is dropped. */
const CLUSTERS = 20;
const COLORS = 8;
const HOUR = 3_600_000;
/** Age from which samples are at least this far apart, in milliseconds. */
const THINNED = [[900_000, 30_000], [60_000, 5_000], [0, 900]];
/** What can be drawn: field of a zone, and column of the history. */
const VALUES = {
  load: { column: 'load', of: (zone) => zone.load, format: percent, title: 'Load over time' },
  served: { column: 'served_requests_per_second', of: (zone) => zone.served_requests_per_second, format: rate, title: 'Served requests over time' },
  demand: { column: 'demand_requests_per_second', of: (zone) => zone.demand_requests_per_second, format: rate, title: 'Demand over time' },
  kept: { column: 'kept_local', of: (zone) => zone.kept_local, format: percent, title: 'Kept local over time' },
};
const NAMES = Object.keys(VALUES);

const histories = new Map();
let showTable = null;
let tableOpen = null;
let box = null;
let redraw = () => {};

/** Sets up event handlers. */
export function start(draw) {
  redraw = draw;
  box = boxOf(byId('history-box'), draw);
  tableOpen = whileOpen(byId('history-table').closest('details'), draw);
  byId('history-value').addEventListener('change', draw);
  byId('history-range').addEventListener('change', draw);
}

/** Forgets what was loaded, after a time without documents; `show` loads it again. */
export function reload() {
  histories.forEach((history) => { history.loaded = false; });
}

/** Records the values of a cluster that was shown; those of others are loaded when they are. */
export function record(key, cluster, unixMs) {
  const history = histories.get(key);
  if (!history || history.samples.at(-1)?.at >= unixMs) {
    return;
  }
  const zones = new Map(cluster.zones.map((zone) => [
    localityName(zone.locality), NAMES.map((name) => VALUES[name].of(zone) ?? null),
  ]));
  history.samples.push({ at: unixMs, zones });
  thin(history, unixMs);
}

/** Keeps fewer samples of older times, so that an hour needs a few hundred. */
function thin(history, now) {
  let last = -Infinity;
  const newest = history.samples.at(-1);
  history.samples = history.samples.filter((sample) => {
    const age = now - sample.at;
    const apart = THINNED.find(([from]) => age >= from)?.[1] ?? 0;
    const keep = age <= HOUR && (sample === newest || sample.at - last >= apart);
    last = keep ? sample.at : last;
    return keep;
  });
}

/** Removes the samples of clusters that no longer exist. */
export function prune(clusters) {
  for (const key of histories.keys()) {
    if (!clusters.has(key)) {
      histories.delete(key);
    }
  }
}

/** Loads what the host recorded about a cluster, and puts it before the page's own samples. */
async function load(history, cluster) {
  history.loaded = true;
  const query = new URLSearchParams({ cluster: cluster.cluster, fleet: cluster.fleet });
  let answer = null;
  try {
    answer = await getJson(`api/v1/history?${query}`);
  } catch {
    // A host without history: the page draws what it sees itself.
    return;
  }
  const own = answer.clusters.find((each) => each.fleet === cluster.fleet);
  if (!own) {
    return;
  }
  const zones = own.zones.map((zone) => [
    localityName(zone.locality), NAMES.map((name) => zone[VALUES[name].column]),
  ]);
  const recorded = answer.times_unix_ms.map((at, index) => ({
    at, zones: new Map(zones.map(([name, columns]) => [name, columns.map((column) => column[index])])),
  }));
  const until = recorded.at(-1)?.at ?? 0;
  const live = history.samples.filter((sample) => sample.at > until);
  // The newest value is the mean of a time that is not over.
  history.samples = [...recorded, ...live];
  history.recorded = recorded.length;
  redraw();
}

/** Shows the history of a cluster. */
export function show(key, cluster, unixMs) {
  if (!histories.has(key)) {
    if (histories.size >= CLUSTERS) {
      histories.delete(histories.keys().next().value);
    }
    histories.set(key, { samples: [], loaded: false });
    record(key, cluster, unixMs);
  }
  const history = histories.get(key);
  if (!history.loaded) {
    load(history, cluster);
  }
  const chosen = byId('history-value').value;
  const value = VALUES[chosen];
  const index = NAMES.indexOf(chosen);
  const all = history.samples;
  const last = all.at(-1)?.at ?? 0;
  const samples = all.filter((sample) => sample.at >= last - Number(byId('history-range').value) * 60_000)
    .map((sample) => summary(sample, index));
  const keys = new Set(samples.flatMap((sample) => [...sample.values.keys()]));
  const short = zoneNames(cluster.zones);
  const words = new Map(cluster.zones.map((zone, at) => [localityName(zone.locality), short[at]]));
  const zones = [...keys].sort().map((zone) => ({ zone, name: words.get(zone) ?? zone }));
  const none = zones.length ? null : 'No load reports yet.';
  setText(byId('history-title'), value.title);
  setEmpty(byId('history-empty'), none);
  const canvas = byId('history');
  canvas.hidden = Boolean(none);
  if (tableOpen()) {
    tabulate(zones, samples, value);
  }
  if (none) {
    setText(byId('history-note'), '');
    return;
  }
  const span = last - samples[0].at;
  const { highest } = samples.at(-1);
  const peak = zones.length > LINES && zones.find(({ zone }) => zone === highest);
  setText(byId('history-note'), [
    `The last ${duration(span)}.`,
    chosen === 'load' ? '100 % is the load line.' : '',
    peak ? `The highest is ${peak.name}.` : '',
  ].filter(Boolean).join(' '));
  const latest = zones.slice(0, LINES).map(({ zone, name }) => `${name} ${value.format(samples.at(-1).values.get(zone) ?? null)}`);
  setAttr(canvas, 'aria-label', `${value.title}, now: ${latest.join(', ')}. The table below has all zones.`);
  setAttr(canvas, 'data-samples', samples.length);
  setAttr(canvas, 'data-recorded', history.recorded ?? 0);
  setAttr(canvas, 'data-span', span);
  paint(canvas, zones, samples, chosen);
}

/** Returns one value of all zones with the lowest, highest and mean. */
function summary({ at, zones }, index) {
  const sample = { at, values: new Map(), low: Infinity, high: -Infinity, highest: null, mean: null };
  let sum = 0;
  for (const [zone, columns] of zones) {
    const value = columns[index];
    if (known(value)) {
      sample.values.set(zone, value);
      sample.low = Math.min(sample.low, value);
      if (value > sample.high) {
        [sample.high, sample.highest] = [value, zone];
      }
      sum += value;
    }
  }
  sample.mean = sample.values.size ? sum / sample.values.size : null;
  return sample;
}

function tabulate(zones, samples, value) {
  const format = (number) => value.format(number);
  byId('history-table').format = format;
  const shown = (number) => byId('history-table').format(number);
  showTable ??= table(byId('history-table'), [
    { label: 'Zone', field: 'zone', show: (row) => row.name },
    { label: 'Now', field: 'now', number: true, show: (row) => row.now, format: shown },
    { label: 'Lowest', field: 'low', number: true, show: (row) => row.low, format: shown },
    { label: 'Highest', field: 'high', number: true, show: (row) => row.high, format: shown },
  ], (row) => row.name, 'Values over time');
  showTable(zones.map(({ zone, name }) => {
    let [low, high] = [Infinity, -Infinity];
    for (const { values } of samples) {
      const number = values.get(zone);
      if (number !== undefined) {
        low = Math.min(low, number);
        high = Math.max(high, number);
      }
    }
    return { name, now: samples.at(-1).values.get(zone) ?? null, low, high };
  }));
}

/** Returns the y axis of a value. */
function axis(chosen, samples) {
  const most = samples.reduce((high, sample) => Math.max(high, sample.high), 0);
  if (chosen === 'kept') {
    return { high: 1, ticks: [0, 0.25, 0.5, 0.75, 1], format: percent };
  }
  if (chosen === 'load') {
    const high = roundUp(Math.max(most, 1.2));
    const step = high > 2 ? 1 : high > 1.4 ? 0.5 : 0.25;
    const count = Math.floor(high / step + 1e-9) + 1;
    const few = Array.from({ length: count }, (_, index) => index * step);
    return { high, ticks: high > 5 ? ticks(0, high) : few, format: percent };
  }
  const high = Math.max(most * 1.1, 1e-3);
  return { high, ticks: ticks(0, high), format: rate };
}

function paint(canvas, zones, samples, chosen) {
  const last = samples.at(-1).at;
  const ink = color('zone-0');
  const few = zones.length <= LINES;
  // Many zones are drawn as a band from lowest to highest with the mean as a line. A sample without
  // a value has an infinite range, which is drawn as a gap.
  const [low, high] = [samples.map((sample) => sample.low), samples.map((sample) => sample.high)];
  const { highest } = samples.at(-1);
  const peak = zones.find(({ zone }) => zone === highest)?.name;
  const lines = few ? zones.map(({ zone, name }, index) => ({
    // The dash marks a line that ended before the last sample.
    name: samples.at(-1).values.has(zone) ? name : `${name} –`,
    ink: color(`zone-${index % COLORS}`),
    values: samples.map((sample) => sample.values.get(zone)),
  })) : [
    { name: peak ? `↑ ${peak}` : 'highest', ink, values: high },
    { name: 'mean', ink: color('ink'), values: samples.map((sample) => sample.mean) },
    { name: 'lowest', ink, values: low },
  ];
  setAttr(canvas, 'data-highest', peak ?? null);
  const from = Math.min(samples[0].at, last - 60_000);
  const { width, height } = box();
  plot(canvas, Math.max(200, width), Math.max(240, height), {
    times: samples.map((sample) => sample.at),
    x: { low: from, high: last, format: last - from > 600_000 ? minute : clock, ticks: moments(from, last, width) },
    y: axis(chosen, samples),
    levels: chosen === 'load' ? [{ at: 1, ink: color('ink') }] : [],
    band: few ? null : { low, high, ink },
    lines,
    labels: true,
  });
}

/** Returns times for the x axis: both ends, and round times between them if there is room. */
function moments(from, to, width) {
  const steps = to - from > 600_000 ? [300_000, 900_000, 1_800_000] : [];
  // A label needs about 60 pixels.
  const step = steps.find((each) => (each / (to - from)) * (width - 130) > 60) ?? 0;
  const between = [];
  for (let at = step && Math.ceil(from / step) * step; step && at < to; at += step) {
    if (at - from > step / 2 && to - at > step / 2) {
      between.push(at);
    }
  }
  return [from, ...between, to];
}

/** Rounds up, so that the axis does not change with every sample. */
function roundUp(value) {
  return Math.ceil(value / 0.2 - 1e-9) * 0.2;
}
