// The timeline: phases by rank, power, utilisation, memory and clocks over one time axis. A selected interval shows its energy.

import { clock, commandLine, el, number, quantity, replace, seconds } from './dom.js';
import { ask } from './api.js';
import { Chart, Group, colours, key } from './chart.js';
import { points } from './curves.js';

const COLUMNS = 700;
/** Tracks: a title, and its quantities of every GPU, package or host. */
const TRACKS = [
  ['Power', ['power_instant', 'energy', 'power_average']],
  ['Utilisation', ['utilization_gpu', 'sm_active', 'tensor_active', 'dram_util', 'utilization_cpu']],
  ['Memory', ['memory_used', 'worker_memory']],
  ['Clocks', ['clock_sm', 'clock_memory']],
  ['Temperature', ['temperature']],
  ['Transfers', ['pcie_rx', 'pcie_tx', 'pcie_rx_rate', 'pcie_tx_rate', 'nvlink_rx_rate', 'nvlink_tx_rate']],
  ['CPU time of the worker', ['worker_cpu_time']],
];
const quantityOf = (name) => name.slice(name.lastIndexOf('.') + 1);

/** The timeline of an attempt that took `wall` seconds and has these series. */
export function timeline(id, names, wall, signal) {
  const group = new Group();
  const said = el('div', { role: 'status' }), holder = el('div');
  const views = [[0, wall]];
  const wanted = names.filter((name) => TRACKS.some(([, quantities]) => quantities.includes(quantityOf(name))) || name.endsWith('throttle_reasons'));
  const back = el('button', { type: 'button', text: 'Zoom out', hidden: true, onclick: () => {
    views.pop();
    load().then(() => holder.querySelector('canvas')?.focus({ preventScroll: true }));
  } });
  const zoom = el('button', { type: 'button', text: 'Zoom to the selection', hidden: true, onclick: () => {
    views.push(group.stretch);
    [group.stretch, group.anchor] = [null, null];
    load().then(() => back.focus());
  } });

  const select = async (from, to) => {
    zoom.hidden = false;
    replace(said, el('p', { class: 'faint', text: 'Loading…' }));
    try {
      const { document: part, command } = await ask('telemetry', { id, series: wanted.find((name) => name.endsWith('power_instant')) ?? wanted[0], from: from.toFixed(6), to: to.toFixed(6) }, signal);
      const one = (name, energy) => el('li', {}, `${name}: `, el('b', { text: `${quantity(energy.joules, 'J')} ± ${quantity(energy.uncertainty_j, 'J')}` }), ` in ${seconds(energy.seconds)}, ${quantity(energy.joules / energy.seconds, 'W')} (${energy.method})`);
      const energies = Object.entries(part.energy ?? {}).filter(([name], _, all) => all.length > 2 || name === 'all');
      const content = energies.length ? el('ul', {}, ...energies.map(([name, energy]) => one(name === 'all' ? 'Energy' : name, energy))) : el('p', { text: `Energy of this interval: unknown (${part.energy_unknown})` });
      replace(said, content, commandLine(command));
    } catch (error) {
      if (error.name !== 'AbortError') replace(said, el('pre', { class: 'error', text: error.message }));
    }
  };
  const show = (part, [from, to]) => {
    group.charts.clear();
    const shared = { group, xText: clock, onSelect: select, onReset: () => {
      zoom.hidden = true;
      replace(said);
    } };
    const tracks = [phases(part, [from, to], shared)];
    for (const [title, quantities] of TRACKS) {
      const series = quantities.flatMap((quantity_) => part.series.filter((one) => quantityOf(one.name) === quantity_ && one.positions.length));
      for (const unit of new Set(series.map((one) => one.unit))) tracks.push(track(unit && series.some((one) => one.unit !== unit) ? `${title} (${unit})` : title, series.filter((one) => one.unit === unit), unit, [from, to], shared));
    }
    const reasons = part.series.filter((one) => one.shares);
    const told = reasons.map((one) => el('p', { text: `${one.name}: ${Object.entries(one.shares).map(([reason, share]) => `${reason} ${number(share * 100)}%`).join(', ') || 'none'} (share of the shown time)` }));
    replace(holder, ...tracks, told.length ? el('h3', { text: 'Throttle reasons' }) : null, ...told);
    group.draw();
  };
  const load = async () => {
    const [from, to] = views.at(-1);
    [back.hidden, zoom.hidden] = [views.length < 2, true];
    try {
      const { document: part } = await ask('telemetry', { id, series: wanted.join(','), points: COLUMNS, from, to }, signal);
      show(part, [from, to]);
    } catch (error) {
      if (error.name !== 'AbortError') replace(holder, el('pre', { class: 'error', text: error.message }));
    }
  };
  if (wanted.length === 0) return el('p', { text: 'No hardware samples were recorded.' });
  load();
  const help = el('p', { class: 'faint', text: 'Drag over any track to select an interval and show its energy. Keys: arrows move the cursor, Shift with arrows selects, Enter shows the energy, Escape clears.' });
  return el('div', {}, help, el('div', { class: 'bar' }, zoom, back), said, holder);
}

function track(title, series, unit, range, shared) {
  const palette = colours(series.map((one) => one.name));
  const lines = series.map((one) => ({ name: one.name, colour: palette.get(one.name), points: points(one), width: 1.2 }));
  const chart = new Chart({ ...shared, name: title, height: 120, yText: (value) => quantity(value, unit), zero: true, base: unit.startsWith('B') ? 1024 : 10 });
  requestAnimationFrame(() => chart.set(lines, range));
  return el('section', { 'aria-label': title }, el('h3', { text: title }), key(lines), chart.element);
}

/** Phases as bars, one row for each rank and depth. */
function phases(part, range, shared) {
  const all = part.phases ?? [];
  const names = [...new Set(all.map((phase) => phase.name))];
  const palette = colours(names);
  const rows = [...new Set(all.map((phase) => `${phase.rank} ${phase.name}`))].sort((a, b) => a.localeCompare(b, 'en', { numeric: true }));
  const hasRanks = new Set(all.map((phase) => phase.rank)).size > 1;
  const chart = new Chart({ ...shared, name: 'Phases', height: Math.max(48, 34 + 16 * rows.length), yText: () => '' });
  const bars = (context, { x }) => {
    for (const phase of all) {
      const top = 8 + 16 * rows.indexOf(`${phase.rank} ${phase.name}`);
      const left = x.call(chart, phase.start_s);
      const width = Math.max(1, x.call(chart, phase.stop_s ?? range[1]) - left);
      context.fillStyle = palette.get(phase.name);
      context.fillRect(left, top, Math.max(1, width - 0.5), 13);
    }
  };
  // The names of the rows are in the margin.
  chart.axes = (context, scale) => {
    Chart.prototype.axes.call(chart, context, scale);
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    rows.forEach((row, at) => context.fillText(hasRanks ? row : row.slice(row.indexOf(' ') + 1), 80, 15 + 16 * at, 78));
  };
  chart.tell = (cursor) => {
    const now = cursor === null ? [] : all.filter((phase) => phase.start_s <= cursor && cursor <= (phase.stop_s ?? Infinity));
    const told = now.map((phase) => `${hasRanks ? `rank ${phase.rank} ` : ''}${phase.name}${part.phases_merged ? '' : ` ${phase.index}`}`);
    chart.read.textContent = cursor === null ? '' : [chart.cursorText(cursor), ...told].join(' · ');
  };
  requestAnimationFrame(() => chart.set([], range, bars));
  const note = part.phases_merged ? el('p', { class: 'faint', text: 'Adjacent phases of one name are merged, because single ones are narrower than a pixel.' }) : null;
  const keys = key(names.map((name) => ({ name, colour: palette.get(name) })));
  return el('section', { 'aria-label': 'Phases over time' }, el('h3', { text: 'Phases' }), all.length ? keys : el('p', { text: 'No phases were recorded.' }), chart.element, note);
}
