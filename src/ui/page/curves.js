// Curves over steps or over time. The server sends the extremes of each pixel column, and sends them again after a zoom.

import { clock, el, number, quantity, replace } from './dom.js';
import { ask } from './api.js';
import { Chart, colours, key, real } from './chart.js';

const COLUMNS = 700;

export function points(series) {
  const scale = series.axis === 'time_ns' ? 1e-9 : 1;
  return series.positions.map((position, at) => [position * scale, real(series.values[at])]);
}

/** A moving mean over a share of the points, which keeps gaps. */
export function smoothed(all, share) {
  const reach = Math.floor((all.length * share) / 2);
  return all.map(([x, y], at) => {
    if (!Number.isFinite(y)) return [x, y];
    const near = all.slice(Math.max(0, at - reach), at + reach + 1).map((point) => point[1]).filter(Number.isFinite);
    return [x, near.reduce((sum, value) => sum + value, 0) / near.length];
  });
}

/** Merges lines: for each column of a range, `[x, mean, least, most]` over the lines. Lines are interpolated between points; a column without a value of each line has none. */
export function band(lines, [from, to]) {
  const columns = Math.min(200, Math.max(...lines.map((line) => line.length)));
  const width = (to - from) / columns || 1;
  const gathered = lines.map((line) => {
    const found = Array.from({ length: columns }, () => []);
    for (const [x, y] of line) if (x >= from && x <= to) found[Math.min(columns - 1, Math.floor((x - from) / width))].push([x, y]);
    return found;
  });
  return Array.from({ length: columns }, (_, at) => {
    const all = gathered.flatMap((found) => found[at]);
    const x = all.length ? all.reduce((sum, point) => sum + point[0], 0) / all.length : from + (at + 0.5) * width;
    const values = lines.map((line, one) => {
      const own = gathered[one][at].map((point) => point[1]);
      if (own.length) return own.filter((value) => value != null);
      const next = line.findIndex((point) => point[0] >= x);
      return next < 1 || line[next - 1][1] == null || line[next][1] == null ? [] : [between(line, x, 0, 1)];
    });
    // Where a line has ended or has a gap, the mean of the others would be of another sample.
    if (values.some((own) => own.length === 0)) return [x, null, null, null];
    const means = values.map((own) => own.reduce((sum, value) => sum + value, 0) / own.length);
    return [x, means.reduce((sum, value) => sum + value, 0) / means.length, Math.min(...values.flat()), Math.max(...values.flat())];
  });
}

/** End times of steps, as `[step, seconds]` from the phases of rank 0. Merged phases contain several steps; the last one ends with step `last`. */
function stepTimes(phases, last) {
  const own = (phases ?? []).filter((phase) => phase.name === 'step' && phase.rank === 0 && phase.stop_s != null);
  return own.flatMap((phase, at) => [[phase.index - 1, phase.start_s], [own[at + 1] ? own[at + 1].index - 1 : Math.max(phase.index, last), phase.stop_s]]);
}

/** Interpolates linearly between pairs; beyond the ends it takes the nearest one. `from` and `to` (0 or 1) are the indices of the given and the returned element. */
function between(pairs, value, from, to) {
  const next = pairs.findIndex((pair) => pair[from] >= value);
  if (next <= 0) return pairs.at(next)[to];
  const [a, b] = [pairs[next - 1], pairs[next]];
  return a[to] + ((value - a[from]) / (b[from] - a[from] || 1)) * (b[to] - a[to]);
}

/** One chart for each series `names` of some attempts `[{id, label}]`. `reload` requests them again. */
export function curves(attempts, names, signal) {
  const groups = attempts.map((one) => one.group).filter((group) => group != null);
  const hasRepeats = new Set(groups).size < groups.length;
  const chosen = { isLog: false, smooth: 0, overTime: false, banded: hasRepeats };
  const charts = names.map((name) => oneCurve(attempts, name, chosen, signal));
  const option = (label, name, then) => el('label', {}, label, el('input', { type: 'checkbox', checked: chosen[name], onchange: (event) => {
    chosen[name] = event.target.checked;
    charts.forEach(then);
  } }));
  const smooth = el('label', {}, 'Smoothing', el('input', { type: 'range', min: 0, max: 0.3, step: 0.01, value: 0, oninput: (event) => {
    chosen.smooth = Number(event.target.value);
    charts.forEach((chart) => chart.show());
  } }));
  const help = el('p', { class: 'faint', text: 'Drag to zoom, double-click or Escape to return. Keys: arrows, + and −. × marks NaN, ∞ infinity.' });
  const bar = el('div', { class: 'bar' }, smooth, option('Logarithmic', 'isLog', (chart) => chart.show()), option('Over time', 'overTime', (chart) => chart.reset()), hasRepeats ? option('Seeds as a band', 'banded', (chart) => chart.show()) : null);
  const bands = hasRepeats ? el('p', { class: 'faint', text: 'A band reaches from the smallest to the largest value of n attempts that differ in their seeds alone. Its line is their mean.' }) : null;
  const element = el('div', {}, bar, help, bands, ...charts.map((chart) => chart.element));
  return { element, reload: () => charts.forEach((chart) => chart.load()) };
}

function oneCurve(attempts, name, chosen, signal) {
  const groups = [...new Set(attempts.map((one) => one.group ?? one.label))];
  const palettes = [attempts.length > 1 ? attempts.map((one) => one.label) : [name], groups].map(colours);
  const holder = el('div'), keys = el('div'), note = el('p', { class: 'faint', hidden: true });
  let zoom = null, whole = null, loaded = [], chart;

  /** The zoomed range of an attempt, in steps. */
  const range = (one) => {
    if (!zoom) return {};
    const [from, to] = isTimed(one) ? zoom.map((end, at) => Math[at ? 'ceil' : 'floor'](between(one.times, end, 1, 0))) : zoom;
    return { from: Math.max(0, from), to };
  };
  const isTimed = (one) => chosen.overTime && one?.series.axis === 'step' && one.times.length > 1;
  const load = async () => {
    try {
      const answers = await Promise.all(attempts.map((one) => ask('telemetry', { id: one.id, series: chosen.overTime ? `${name},step_duration` : name, points: COLUMNS, ...range(loaded.find((old) => old.one === one)) }, signal).catch((error) => {
        if (error.name === 'AbortError') throw error;
      })));
      const old = new Map(loaded.map((one) => [one.one, one]));
      loaded = answers.map((answer, at) => {
        const all = answer?.document.series ?? [];
        const series = all.find((each) => each.name === name);
        // The phases of a zoomed answer do not cover the whole attempt.
        const times = zoom ? old.get(attempts[at])?.times ?? [] : stepTimes(answer?.document.phases, Math.max(...all.map((each) => each.positions.at(-1) ?? 0)));
        return { one: attempts[at], series, times };
      }).filter(({ series }) => series?.positions.length);
      show();
    } catch (error) {
      if (error.name !== 'AbortError') replace(holder, el('pre', { class: 'error', text: error.message }));
    }
  };
  const zoomTo = (from, to) => {
    const isAll = whole && from <= whole[0] && to >= whole[1];
    zoom = isAll ? null : [Math.max(from, whole?.[0] ?? from), Math.min(to, whole?.[1] ?? to)];
    load();
  };
  const reset = () => {
    zoom = null;
    load();
  };
  const make = (unit) => new Chart({ name, height: 220, isLog: chosen.isLog, yText: (value) => quantity(value, unit), base: unit.startsWith('B') ? 1024 : 10, onZoom: zoomTo, onReset: reset });
  const show = () => {
    if (loaded.length === 0) return;
    const { axis, unit } = loaded[0].series;
    if (chart?.isLog !== chosen.isLog) {
      chart = make(unit);
      replace(holder, chart.element);
    }
    const timed = loaded.filter(isTimed);
    const isOverTime = axis === 'time_ns' || timed.length > 0;
    chart.xText = isOverTime ? clock : number;
    const drawn = timed.length ? timed : loaded;
    note.hidden = !chosen.overTime || axis === 'time_ns' || timed.length === loaded.length;
    note.textContent = timed.length ? 'Attempts without times of steps are not drawn.' : 'Over steps: the times of the steps were not recorded.';
    const placed = drawn.map(({ one, series, times }) => ({ one, all: timed.length ? points(series).map(([step, value]) => [between(times, step, 0, 1), value]) : points(series) }));
    const single = ({ one, all }) => {
      const label = attempts.length > 1 ? one.label : name;
      const colour = palettes[0].get(label);
      if (chosen.smooth === 0) return [{ name: label, colour, points: all }];
      return [{ name: `${label} (raw)`, colour, points: all, faint: true }, { name: label, colour, points: smoothed(all, chosen.smooth), width: 2 }];
    };
    const xs = placed.flatMap(({ all }) => [all[0][0], all.at(-1)[0]]);
    const ends = [Math.min(...xs), Math.max(...xs)];
    const joined = (group) => {
      const own = placed.filter(({ one }) => (one.group ?? one.label) === group);
      if (own.length < 2) return own.flatMap(single);
      const rows = band(own.map(({ all }) => smoothed(all, chosen.smooth)), zoom ?? ends);
      return [{ name: `${group} (n = ${own.length})`, colour: palettes[1].get(group), width: 2, points: rows.map(([x, mean]) => [x, mean]), band: rows.map(([x, , least, most]) => [x, least, most]) }];
    };
    const lines = chosen.banded ? groups.flatMap(joined) : placed.flatMap(single);
    if (!zoom) whole = ends;
    chart.set(lines, zoom ?? ends);
    replace(keys, attempts.length > 1 ? key(lines) : null);
  };
  load();
  return { element: el('section', { 'aria-label': name }, el('h3', { text: name }), keys, note, holder), show, load, reset };
}
