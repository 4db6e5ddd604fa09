// Curves over steps or over time: the server sends what so many pixel columns show, and again after a zoom.

import { el, number, quantity, replace, seconds } from './dom.js';
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

/** One chart for each series of some attempts: `[{id, label}]`, whose names are `names`. */
export function curves(attempts, names, signal) {
  const chosen = { isLog: false, smooth: 0, overTime: false };
  const charts = names.map((name) => oneCurve(attempts, name, chosen, signal));
  const again = () => charts.forEach((chart) => chart.show());
  const option = (label, name) => el('label', {}, label, el('input', { type: 'checkbox', onchange: (event) => {
    chosen[name] = event.target.checked;
    again();
  } }));
  const smooth = el('label', {}, 'Smoothing', el('input', { type: 'range', min: 0, max: 0.3, step: 0.01, value: 0, oninput: (event) => {
    chosen.smooth = Number(event.target.value);
    again();
  } }));
  const help = el('p', { class: 'faint', text: 'Drag to zoom, double-click or Escape to return. Keys: arrows, + and −. × marks NaN, ∞ infinity.' });
  return el('div', {}, el('div', { class: 'bar' }, smooth, option('Logarithmic', 'isLog')), help, ...charts.map((chart) => chart.element));
}

function oneCurve(attempts, name, chosen, signal) {
  const palette = colours(attempts.length > 1 ? attempts.map((one) => one.label) : [name]);
  let zoom = {}, loaded = [];
  const holder = el('div'), keys = el('div');
  let chart;
  const load = async () => {
    const answers = await Promise.all(attempts.map((one) => ask('telemetry', { id: one.id, series: name, points: COLUMNS, ...zoom }, signal).catch(() => null)));
    loaded = answers.map((answer, at) => ({ one: attempts[at], series: answer?.document.series[0] })).filter(({ series }) => series?.positions.length);
    show();
  };
  const show = () => {
    if (loaded.length === 0) return;
    const { axis, unit } = loaded[0].series;
    if (!chart || chart.isLog !== chosen.isLog) {
      chart = new Chart({ name, height: 220, isLog: chosen.isLog, xText: axis === 'time_ns' ? seconds : number, yText: (value) => quantity(value, unit), base: unit.startsWith('B') ? 1024 : 10, onZoom: (from, to) => {
        zoom = { from: Math.max(0, from), to };
        load().catch(() => {});
      }, onReset: () => {
        zoom = {};
        load().catch(() => {});
      } });
      replace(holder, chart.element);
    }
    const lines = loaded.flatMap(({ one, series }) => {
      const all = points(series);
      const label = attempts.length > 1 ? one.label : name;
      const colour = palette.get(label);
      if (chosen.smooth === 0) return [{ name: label, colour, points: all }];
      return [{ name: `${label} (raw)`, colour, points: all, faint: true }, { name: label, colour, points: smoothed(all, chosen.smooth), width: 2 }];
    });
    const xs = lines.flatMap((line) => [line.points[0][0], line.points.at(-1)[0]]);
    chart.set(lines, [zoom.from ?? Math.min(...xs), zoom.to ?? Math.max(...xs)]);
    replace(keys, attempts.length > 1 ? key(lines) : null);
  };
  load().catch((error) => {
    if (error.name !== 'AbortError') replace(holder, el('pre', { class: 'error', text: error.message }));
  });
  return { element: el('section', { 'aria-label': name }, el('h3', { text: name }), keys, holder), show };
}
