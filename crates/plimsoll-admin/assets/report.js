// Report of the simulator: compares policies over time. The page is one file that contains its data
// and the modules of the dashboard.

import { plot, STROKES, ticks } from './chart.js';
import { byId, clearColors, color, h, svgElement, table, widthOf } from './dom.js';
import { count, known, percent, UNKNOWN } from './format.js';

/** Up to this number of zones, each zone has its own line; with more, the range is drawn. */
const LINES = 8;
/** Limits of highest zone ÷ mean for even and nearly even load. */
const [EVEN, NEARLY_EVEN] = [1.06, 1.12];

const report = JSON.parse(byId('report').textContent);
const { facts, policies } = report;
const simulated = policies.filter((policy) => !policy.policy.startsWith('optimum'));
const fixed = (digits) => (value) => (known(value) ? value.toFixed(digits) : UNKNOWN);
const seconds = (digits) => (value) => (known(value) ? `${value.toFixed(digits)} s` : UNKNOWN);
const few = facts.zones.length <= LINES;
const charts = [];

/** Classifies a value by two limits, for colors. */
const grade = (value, good, warn) => (value <= good ? 'at' : value <= warn ? 'above' : 'far');
const balance = (metrics) => grade(metrics.max_over_mean_5s_avg, EVEN, NEARLY_EVEN);
const card = (title, ...children) => h('section', { class: 'card' }, h('div', { class: 'card-head' }, h('h2', {}, title)), ...children);
const paragraph = (words, name) => h('p', { class: name }, words);

function head() {
  const events = facts.events.map(([moment, what], index) => h('li', {},
    h('b', {}, String(index + 1)), h('span', {}, `${moment} s`), h('span', {}, what)));
  return h('section', { class: 'card' },
    ...facts.description.split('\n\n').filter((words) => words.trim()).map((words) => paragraph(words.trim(), 'lead')),
    events.length ? h('ol', { class: 'events' }, ...events) : null,
    ...facts.notes.map((note) => paragraph(`Simplified: ${note}.`, 'note')));
}

/** Policies that ignored zones while it was measured: what they did is not what they are. */
const ignoredZones = ({ zones_ignored: times }) => times.some((time) => (time.until_s ?? facts.duration_s) > facts.measured_from_s);
const until = ({ until_s: end }) => (known(end) ? `to ${fixed(0)(end)} s` : 'on');

const names = (test) => {
  const found = simulated.filter((policy) => !ignoredZones(policy) && test(policy.metrics)).map((policy) => policy.policy);
  return found.length > 1 ? `${found.slice(0, -1).join(', ')} and ${found.at(-1)}` : found[0];
};

/** When and why policies ignored zones, as sentences. */
function ignored() {
  return simulated.flatMap((policy) => policy.zones_ignored.slice(0, 3).map((time) => {
    const proxies = time.at.length > 2 ? `proxies of ${time.at.length} zones` : `proxies of ${time.at.join(' and ')}`;
    return `${policy.policy} ignored zones from ${fixed(0)(time.from_s)} s ${until(time)} (${proxies}): ${time.reason}.`;
  }));
}

/** Summarizes the outcome in two or three sentences. */
function verdict() {
  const even = (m) => balance(m) === 'at';
  const frugal = (m) => m.cross_zone_share <= m.cross_zone_needed + 0.05;
  const best = names((m) => even(m) && frugal(m));
  const others = [
    ['Even, but with far more traffic between zones', (m) => even(m) && !frugal(m)],
    ['Oscillates', (m) => m.oscillates],
    ['More than 1 % of requests fail', (m) => m.measured_failure_share >= 0.01],
    ['Proxies locked out of their own zone', (m) => m.lock_out_s > 0],
  ].map(([words, test]) => [words, names(test)]).filter(([, found]) => found);
  return [
    ...simulated.some(ignoredZones) ? ['Zone-aware routing was off for a time, so that some numbers are not those of the policy (see below).'] : [],
    best ? `Even zones at little more traffic between them than needed: ${best}.`
      : 'No policy keeps the zones even at the traffic needed.',
    ...others.map(([words, found]) => `${words}: ${found}.`),
  ].join(' ');
}

/** Creates a column whose color classifies the value. */
function column(label, field, show, level) {
  const draw = (cell, { metrics }) => {
    cell.textContent = show(metrics);
    const found = level?.(metrics);
    if (found) {
      cell.setAttribute('data-level', found);
    }
  };
  return { label, field, number: true, draw };
}

function summary() {
  const element = h('table', { class: 'stack wrap' });
  const pair = (m, length) => `${fixed(2)(m[`max_over_mean_${length}_avg`])} / ${fixed(2)(m[`max_over_mean_${length}_peak`])}`;
  const imperfect = (value) => (value > 0 ? grade(value, 0, 0.01) : null);
  table(element, [
    { label: 'Policy', field: 'policy', show: (policy) => policy.policy },
    column('Max/mean 5 s, avg / peak', 'even', (m) => pair(m, '5s'), balance),
    column('1 s, avg / peak', 'even_1s', (m) => pair(m, '1s')),
    column('Between zones (needed)', 'cross', (m) => `${percent(m.cross_zone_share)} (${percent(m.cross_zone_needed)})`,
      (m) => grade(Math.abs(m.cross_zone_share - m.cross_zone_needed), 0.05, 0.1)),
    column('Above capacity', 'above', (m) => percent(m.above_capacity_share), (m) => imperfect(m.above_capacity_share)),
    column('Settled after', 'settled', (m) => (known(m.settled_s) ? seconds(1)(m.settled_s) : 'never'),
      (m) => grade(m.settled_s ?? Infinity, 30, 60)),
    column('Oscillates every', 'period', (m) => seconds(1)(m.oscillation_period_s), (m) => (m.oscillates ? 'far' : null)),
    column('Latency p50 / p99', 'latency', (m) => `${fixed(0)(m.latency_p50_ms)} / ${fixed(0)(m.latency_p99_ms)} ms`),
    column('Failed', 'failed', (m) => percent(m.measured_failure_share), (m) => imperfect(m.measured_failure_share)),
    column('Locked out for', 'locked', (m) => (m.lock_out_s > 0 ? seconds(0)(m.lock_out_s) : UNKNOWN), (m) => (m.lock_out_s > 0 ? 'far' : null)),
  ], (policy) => policy.policy, 'Policies side by side')(policies);
  const described = policies.flatMap((policy) => [h('dt', {}, policy.policy), h('dd', {}, policy.description)]);
  return card('Side by side', paragraph(verdict(), 'lead'), ...ignored().map((words) => paragraph(words, 'note')), h('div', { class: 'scroller whole' }, element),
    h('details', {}, h('summary', {}, 'What each policy is'), h('dl', { class: 'facts' }, ...described)));
}

/** Returns the highest value of all policies, so that all charts of a section share a scale. */
const highest = (of) => policies.reduce((most, policy) => of(policy.series)
  .reduce((all, values) => values.reduce((top, value) => (known(value) ? Math.max(top, value) : top), all), most), 0);

const axis = (high, format) => ({ high, ticks: ticks(0, high), format });

function section(title, words, keys, shown, { y, caption, lines, band, levels }) {
  const figures = shown.map((policy) => {
    const canvas = h('canvas', { role: 'img', 'aria-label': `${title}: ${policy.policy}. ${caption(policy)}` });
    charts.push((wide) => plot(canvas, wide, 190, {
      times: policy.series.times,
      x: { low: 0, high: facts.duration_s, ticks: ticks(0, facts.duration_s), format: (moment) => `${moment} s` },
      y,
      from: facts.measured_from_s,
      marks: facts.events.map(([moment]) => moment),
      lines: lines(policy),
      band: band?.(policy),
      levels: levels?.(),
    }));
    return h('figure', {}, h('h3', { title: policy.description }, policy.policy), h('figcaption', {}, caption(policy)), canvas);
  });
  const marked = facts.events.length ? [...keys, ['event', 'muted', 'mark']] : keys;
  const legend = marked.map(([name, token, kind = 'line']) => h('span', {}, key(token, STROKES[kind]), name));
  return card(title, paragraph(words, 'note'), h('p', { class: 'legend' }, ...legend), h('div', { class: 'charts' }, ...figures));
}

/** A stroke for the legend, drawn as in the charts. */
function key(token, { width, dash }) {
  return svgElement('svg', { class: 'key', viewBox: '0 0 28 8', 'aria-hidden': 'true' }, svgElement('line', {
    x1: 0, x2: 28, y1: 4, y2: 4, style: `stroke: var(--${token})`, 'stroke-width': width, 'stroke-dasharray': dash.join(' ') || 'none',
  }));
}

function utilization() {
  const zones = few ? 'One line per zone (sliding one-second means).'
    : 'The band is the range of all zones (one-second means), the lines are the zones that are highest and lowest on average.';
  const keys = [
    ...few ? facts.zones.map((zone, index) => [`zone ${zone}`, `zone-${index}`]) : [['highest', 'load-far'], ['lowest', 'load-under']],
    ['all hosts together', 'ink', 'dash'], ['capacity', 'load-above', 'level'],
  ];
  const extremes = ({ metrics, series }) => {
    const order = metrics.zones.map((zone, index) => [zone.utilization, index]).sort((a, b) => a[0] - b[0]);
    return [['load-under', order[0][1]], ['load-far', order.at(-1)[1]]]
      .map(([token, zone]) => ({ ink: color(token), values: series.utilization[zone] }));
  };
  const high = Math.min(2.5, Math.max(1.1, highest((series) => series.utilization) * 1.05));
  return section('Utilization of each zone', `${zones} Lines on top of each other are what we want: every zone as loaded as the whole.`
    + ' Above capacity requests queue up and are refused. The shaded part is not measured.', keys, policies, {
    y: axis(high, fixed(1)),
    caption: evenness,
    band: ({ series }) => (few ? null : { low: series.lowest, high: series.highest, ink: color('zone-0') }),
    lines: (policy) => [
      ...few ? policy.series.utilization.map((values, index) => ({ ink: color(`zone-${index}`), values })) : extremes(policy),
      { ink: color('ink'), dash: true, values: policy.series.mean },
    ],
    levels: () => [{ at: 1, ink: color('load-above') }],
  });
}

function evenness({ metrics: m }) {
  const ratio = fixed(2)(m.max_over_mean_5s_avg);
  const words = {
    at: `Zones are even: the highest is ${ratio} × the mean.`,
    above: `Nearly even: the highest is ${ratio} × the mean.`,
    far: `The highest zone is ${ratio} × the mean, mostly zone ${m.hottest_zone}.`,
  };
  return [
    words[balance(m)],
    known(m.oscillation_period_s) ? `It oscillates every ${fixed(1)(m.oscillation_period_s)} s.` : null,
    m.lock_out_s > 0 ? `A proxy sent nothing to its own zone for ${fixed(0)(m.lock_out_s)} s.` : null,
    m.above_capacity_share >= 0.001 ? `${percent(m.above_capacity_share)} of requests come to a zone above its capacity.` : null,
  ].filter(Boolean).join(' ');
}

function crossZone() {
  const caption = ({ metrics: m }) => {
    const surplus = m.cross_zone_share - m.cross_zone_needed;
    const words = surplus > 0.05 ? 'more than needed' : surplus < -0.05
      ? 'too little: some zone carries more than its share' : 'about what is needed';
    return `${percent(m.cross_zone_share)} leave their zone, ${percent(m.cross_zone_needed)} needed: ${words}.`;
  };
  const high = Math.min(1, Math.max(0.1, highest((series) => [series.cross_zone, series.needed]) * 1.05));
  return section('Traffic between zones', 'Share of requests that leave the zone they arrived in: slower, and often paid for.'
    + ' Below the least that is needed a zone is overloaded; far above it traffic is sent around for nothing.',
  [['leave their zone', 'cross'], ['needed', 'ink', 'dash']], policies, {
    y: axis(high, percent),
    caption,
    lines: ({ series }) => [
      { ink: color('cross'), fill: true, values: series.cross_zone },
      { ink: color('ink'), dash: true, values: series.needed },
    ],
  });
}

function latency() {
  const positive = simulated.flatMap(({ series }) => series.p50).filter((value) => value > 0);
  const low = Math.max(0.05, 0.7 * positive.reduce((least, value) => Math.min(least, value), 1e3));
  const high = Math.max(low * 15, highest((series) => [series.p99]) * 1.3);
  return section('Latency', 'Milliseconds that successful requests take, second by second. The scale is logarithmic.',
    [['median', 'zone-0'], ['99th percentile', 'zone-1']], simulated, {
      y: { low, high, log: true, ticks: ticks(low, high, true), format: String },
      caption: ({ metrics: m }) => (known(m.latency_p50_ms)
        ? `Median ${fixed(0)(m.latency_p50_ms)} ms, 99th percentile ${fixed(0)(m.latency_p99_ms)} ms.` : 'No request was answered.'),
      lines: ({ series }) => [{ ink: color('zone-0'), values: series.p50 }, { ink: color('zone-1'), values: series.p99 }],
    });
}

function failures() {
  const keys = few ? facts.zones.map((zone, index) => [`arrived in zone ${zone}`, `zone-${index}`]) : [];
  const worst = (zones) => zones.filter((zone) => zone.failure_share > 0).sort((a, b) => b.failure_share - a.failure_share)
    .slice(0, 3).map((zone) => `${percent(zone.failure_share)} of zone ${zone.zone}`).join(', ');
  return section('Failures', 'Requests per second that failed: refused by a host whose queue was full, sent to a host that fails or'
    + ' had died, or without any host to go to.', [['failed', 'load-far'], ...keys], simulated, {
    y: axis(Math.max(1, highest((series) => [series.failures]) * 1.1), count),
    caption: ({ metrics: m }) => (m.failures === 0 ? 'No request failed.'
      : `${percent(m.failure_share)} failed: ${count(m.failures)} of ${count(m.requests)} requests.`
        + (m.measured_failure_share > 0 ? ` From ${facts.measured_from_s} s on ${percent(m.measured_failure_share)}: ${worst(m.zones)}.` : '')),
    lines: ({ series }) => [
      { ink: color('load-far'), fill: true, values: series.failures },
      ...few ? series.failures_by_zone.map((values, index) => ({ ink: color(`zone-${index}`), values })) : [],
    ],
  });
}

function checks() {
  if (!report.checks.length) {
    return null;
  }
  const failed = report.checks.filter((check) => !check.passed).length;
  const rows = report.checks.map((check) => h('tr', {},
    h('td', { 'data-level': check.passed ? 'at' : 'far' }, check.passed ? 'holds' : 'fails'),
    h('td', {}, check.policy), h('td', {}, check.text), h('td', { class: 'number' }, fixed(4)(check.found))));
  return card('Checks', paragraph(failed ? `${failed} of ${rows.length} bounds of this scenario do not hold.`
    : 'All bounds of this scenario hold.'), h('details', { open: failed > 0 }, h('summary', {}, 'Every bound'), h('table', {}, ...rows)));
}

function endings() {
  const told = policies.filter((policy) => policy.endings.length);
  const details = told.map((policy) => h('details', {}, h('summary', {}, policy.policy), h('table', {},
    ...policy.endings.map(([zone, reason]) => h('tr', {}, h('th', {}, zone), h('td', {}, reason))))));
  return told.length ? card('Why they route as they do',
    paragraph('What the first proxy of each zone says about itself at the end of the run (the words of plimsoll explain).', 'note'), ...details) : null;
}

function foot() {
  return h('footer', { class: 'foot' }, 'Utilization is the requests per second sent to a zone ÷ what its usable hosts can serve.'
    + ' Max/mean is the highest zone’s utilization ÷ that of all hosts together: 1.00 is even. 1 s are sliding means over one second,'
    + ` 5 s trailing means over five. Averages, peaks and latencies count from ${facts.measured_from_s} s on, the rest over the whole run.`
    + ' Needed is the least share of traffic between zones at which all zones are equally loaded. Settled is the time after the last step'
    + ` until the 5 s max/mean stays at or below 1.12. plimsoll sim, seed ${facts.seed}: the same scenario and seed give the same page.`);
}

const parts = [head(), summary(), utilization(), crossZone(), latency(), failures(), checks(), endings()];
const main = h('main', {}, ...parts.filter(Boolean));
document.body.append(h('header', { class: 'top' }, h('div', { class: 'names' }, h('h1', {}, facts.title),
  h('p', { id: 'subtitle' }, report.in_words))), main, foot());
const width = widthOf(main.querySelector('figure'), draw);
function draw() {
  charts.forEach((chart) => chart(width()));
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  clearColors();
  draw();
});
draw();
