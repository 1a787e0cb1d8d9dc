// Time-series chart on a canvas: axes with round numbers, lines with gaps, labels at line ends.

import { color } from './dom.js';
import { known } from './format.js';

/**
 * Draws `{times, x, y, lines, band, levels, marks, from, labels}`. Axes are `{low, high, ticks,
 * format}`, `y` may be `log`; lines are `{name, ink, values, dash, fill}` with one value per time
 * and null for a gap; `band` is `{low, high, ink}`; `levels` are dashed horizontal lines `{at,
 * ink}`; `marks` are numbered times; the part before `from` is shaded.
 */
export function plot(canvas, wide, height, chart) {
  const context = sized(canvas, wide, height);
  const { times, x, y } = chart;
  const box = {
    left: 46, top: chart.marks?.length ? 18 : 8, right: wide - (chart.labels ? 84 : 14), bottom: height - 24,
  };
  const scale = y.log ? Math.log10 : (value) => value;
  const [foot, head] = [scale(y.low ?? 0), scale(y.high)];
  const place = {
    x: (time) => box.left + ((time - x.low) / (x.high - x.low)) * (box.right - box.left),
    y: (value) => box.bottom - ((scale(value) - foot) / (head - foot)) * (box.bottom - box.top),
  };
  axes(context, box, chart, place);
  context.save();
  context.beginPath();
  context.rect(box.left, box.top - 2, box.right - box.left + 4, box.bottom - box.top + 4);
  context.clip();
  if (chart.band) {
    area(context, times, chart.band.low, chart.band.high, { ...place, ink: chart.band.ink });
  }
  const ends = chart.lines.map((own) => {
    if (own.fill) {
      area(context, times, own.values.map((value) => known(value) ? 0 : null), own.values, { ...place, ink: own.ink });
    }
    return { name: own.name, ink: own.ink, y: line(context, times, own, place) };
  });
  context.restore();
  marks(context, box, chart.marks ?? [], place);
  if (chart.labels) {
    labels(context, ends.filter((end) => end.y !== null), box);
  }
}

/** Returns at most six round numbers from `low` to `high`; powers of ten for a logarithmic axis. */
export function ticks(low, high, log) {
  if (log) {
    const between = high / low < 100 ? [1, 2, 5] : [1];
    const powers = Array.from({ length: 10 }, (_, index) => 10 ** (index - 2));
    const round = powers.flatMap((power) => between.map((factor) => factor * power));
    return round.filter((value) => value >= low && value <= high);
  }
  const rough = (high - low) / 5;
  const ten = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * ten).find((size) => size >= rough * 0.999);
  const count = Math.floor((high - low) / step + 1e-9);
  return Array.from({ length: count + 1 }, (_, index) => low + index * step);
}

/** Strokes of what is drawn, by kind; legends use them too. */
export const STROKES = {
  line: { width: 2, dash: [] },
  dash: { width: 1.5, dash: [4, 3] },
  level: { width: 1.5, dash: [5, 4] },
  mark: { width: 1, dash: [1, 3] },
};

function sized(canvas, wide, height) {
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
  return context;
}

function across(context, box, y) {
  context.beginPath();
  context.moveTo(box.left, y);
  context.lineTo(box.right, y);
  context.stroke();
}

function axes(context, box, { x, y, from, levels = [] }, place) {
  if (from > x.low) {
    context.fillStyle = color('sunken');
    context.fillRect(box.left, box.top, place.x(from) - box.left, box.bottom - box.top);
  }
  context.strokeStyle = color('line');
  context.fillStyle = color('muted');
  context.textAlign = 'right';
  context.textBaseline = 'middle';
  for (const value of y.ticks) {
    across(context, box, Math.round(place.y(value)) + 0.5);
    context.fillText(y.format(value), box.left - 6, place.y(value));
  }
  context.lineWidth = STROKES.level.width;
  context.setLineDash(STROKES.level.dash);
  for (const level of levels) {
    context.strokeStyle = level.ink;
    across(context, box, place.y(level.at));
  }
  context.setLineDash([]);
  context.lineWidth = 1;
  context.textBaseline = 'top';
  const moments = x.ticks ?? [x.low, x.high];
  moments.forEach((moment, index) => {
    context.textAlign = index === 0 ? 'left' : moment === x.high ? 'right' : 'center';
    context.fillText(x.format(moment), place.x(moment), box.bottom + 6);
  });
}

/** Draws one line; returns the y coordinate of its end. */
function line(context, times, { values, ink, dash }, place) {
  context.strokeStyle = ink;
  const stroke = dash ? STROKES.dash : STROKES.line;
  context.lineWidth = stroke.width;
  context.setLineDash(stroke.dash);
  context.beginPath();
  let end = null;
  let open = false;
  const alone = [];
  values.forEach((value, index) => {
    if (!known(value)) {
      open = false;
      return;
    }
    end = place.y(value);
    context[open ? 'lineTo' : 'moveTo'](place.x(times[index]), end);
    if (!open && !known(values[index + 1])) {
      alone.push([place.x(times[index]), end]);
    }
    open = true;
  });
  context.stroke();
  // A value without neighbors has no line: a page that has just been opened is not empty.
  context.fillStyle = ink;
  for (const [x, y] of alone) {
    context.beginPath();
    context.arc(x, y, 3, 0, 2 * Math.PI);
    context.fill();
  }
  context.setLineDash([]);
  context.lineWidth = 1;
  return end;
}

/** Fills the area between two lines where both have a value. */
function area(context, times, low, high, { x, y, ink }) {
  const both = times.map((_, index) => index).filter((index) => known(low[index]) && known(high[index]));
  context.fillStyle = ink;
  context.globalAlpha = 0.25;
  context.beginPath();
  both.forEach((index, first) => context[first ? 'lineTo' : 'moveTo'](x(times[index]), y(high[index])));
  [...both].reverse().forEach((index) => context.lineTo(x(times[index]), y(low[index])));
  context.fill();
  context.globalAlpha = 1;
}

function marks(context, box, moments, place) {
  context.textAlign = 'center';
  context.textBaseline = 'bottom';
  context.strokeStyle = color('muted');
  context.fillStyle = color('muted');
  context.setLineDash(STROKES.mark.dash);
  moments.forEach((moment, index) => {
    context.beginPath();
    context.moveTo(place.x(moment), box.top);
    context.lineTo(place.x(moment), box.bottom);
    context.stroke();
    context.fillText(String(index + 1), place.x(moment), box.top - 2);
  });
  context.setLineDash([]);
}

/** Draws labels at the ends of lines, moved apart where they would overlap. */
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
