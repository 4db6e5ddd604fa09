// The runs page: what runs now, and the table of all attempts.

import { el, number, quantity, replace, runLink, seconds, short, shortName, text, when } from './dom.js';
import { allNames, ask, forgetNames } from './api.js';
import { completed } from './complete.js';
import { follow, live } from './live.js';
import { setOptions } from './state.js';
import { VirtualTable } from './rows.js';

const FIXED = [
  ['run', null, (row) => runLink(row.attempt, short(row.run))],
  ['started (UTC)', 'started', (row) => when(row.started_unix_ms)],
  ['experiment', 'experiment', (row) => row.experiment],
  ['model', 'model', (row) => row.model],
  ['with', null, (row) => [row.with, ...(row.tags ?? []).map((tag) => `[${tag}]`)].join(' ')],
  ['seed', 'seed', (row) => row.seed],
  ['outcome', 'outcome', outcome],
  ['time', 'time', (row) => seconds(row.wall_time_s)],
  ['accuracy', 'accuracy', (row) => row.accuracy],
  ['loss', 'loss', (row) => row.loss],
];

function outcome(row) {
  const marks = [row.tainted && 'tainted', row.imported && 'imported', row.hidden && 'hidden', row.verdict && `rerun: ${row.verdict}`];
  const more = marks.filter(Boolean).join(', ');
  return more ? `${row.outcome} (${more})` : row.outcome;
}

export async function runsPage(_rest, options, signal) {
  const asked = { where: options.get('where') ?? '', sort: options.get('sort') ?? '-started', columns: options.get('columns') ?? '', group: options.get('group') ?? '', hidden: options.get('hidden') ?? '' };
  const selected = new Set((options.get('selected') ?? '').split(',').filter(Boolean));
  const fault = el('pre', { class: 'error', role: 'alert', hidden: true });
  const count = el('p', { class: 'faint', role: 'status' });
  const command = el('p', { class: 'command' });
  const holder = el('div');
  const compare = el('button', { type: 'button', onclick: () => { location.hash = `#/compare/${[...selected].join(',')}`; } });

  const select = (id, isOn) => {
    if (isOn) selected.add(id); else selected.delete(id);
    setOptions({ selected: [...selected].join(',') });
    compare.textContent = `Compare ${selected.size} selected`;
    compare.hidden = selected.size < 2 || selected.size > 8;
  };
  const load = async (skip, limit) => {
    const columns = [...new Set([...asked.columns.split(','), asked.group].filter(Boolean))].join(',');
    const { document: listing, command: typed } = await ask('ls', { limit, skip, where: asked.where, sort: asked.group || asked.sort, columns, hidden: asked.hidden }, signal);
    replace(command, el('code', { text: typed.replace(/ --limit=\d+| --skip=\d+/g, '') }));
    return { rows: listing.attempts, matching: listing.matching, listing };
  };
  const columnsOf = () => {
    const more = [...new Set([...asked.columns.split(','), asked.group].filter(Boolean))];
    const value = (name) => (row) => {
      const full = Object.keys(row.columns ?? {}).find((field) => field === name || shortName(field) === shortName(name));
      return full === undefined ? null : row.columns[full];
    };
    const columns = more.map((name) => [shortName(name), name, value(name)]);
    const grouped = columns.filter(([, name]) => name === asked.group);
    return [...FIXED.slice(0, 1), ...grouped, ...FIXED.slice(1), ...columns.filter((column) => !grouped.includes(column))];
  };
  const group = () => asked.group && ((row) => text(columnsOf().find(([, sort]) => sort === asked.group)[2](row)));
  let table;
  const show = async () => {
    setOptions({ where: asked.where, sort: asked.sort === '-started' ? '' : asked.sort, columns: asked.columns, group: asked.group, hidden: asked.hidden });
    const next = new VirtualTable({ columns: columnsOf(), load, sort: asked.group || asked.sort, select, selected, group: group(), onSort: (sort) => {
      Object.assign(asked, { sort, group: '' });
      show();
    } });
    try {
      const { listing } = await next.start();
      fault.hidden = true;
      table = next;
      replace(holder, listing.total === 0 ? el('p', {}, 'No runs yet. ', el('code', { text: 'ledger run MANIFEST' }), ' makes some.') : next.element);
      const hidden = listing.hidden ? `, ${listing.hidden} hidden` : '';
      count.textContent = asked.where ? `${listing.matching} of ${listing.total} attempts match${hidden}` : `${listing.total} attempts${hidden}`;
    } catch (error) {
      if (error.name === 'AbortError') return;
      [fault.hidden, fault.textContent] = [false, error.message];
    }
  };
  const fields = async () => {
    const names = await allNames();
    return [...names.fields, 'started', 'time', 'experiment', 'outcome'];
  };
  const change = (name) => (value) => {
    if (asked[name] === value) return;
    asked[name] = value;
    show();
  };
  const bar = el('div', { class: 'bar', role: 'search' },
    completed({ label: 'Filter', value: asked.where, placeholder: 'batch_size >= 64 and precision == "bf16"', names: fields, done: change('where') }),
    completed({ label: 'Columns', value: asked.columns, placeholder: 'energy,batch_size', names: fields, done: (value) => change('columns')(value.replace(/\s+/g, '').replace(/,+$/, '')) }),
    completed({ label: 'Group by', value: asked.group, placeholder: 'precision', names: fields, done: change('group') }),
    el('label', {}, 'Hidden', el('input', { type: 'checkbox', checked: asked.hidden === 'true', onchange: (event) => change('hidden')(event.target.checked ? 'true' : '') })));
  const living = el('div');
  const end = follow(({ hasSealed }) => {
    replace(living, livingList());
    if (hasSealed) {
      forgetNames();
      if (table) table.refresh().catch(() => {});
    }
  });
  signal.addEventListener('abort', end);
  select();
  await show();
  return el('div', {}, el('h1', { text: 'Runs' }), living, bar, fault, el('div', { class: 'bar' }, count, compare), holder, command);
}

function livingList() {
  if (live.running.length === 0) return el('div');
  const items = live.running.map((one) => {
    const facts = [
      one.steps ? `step ${one.step} of ${one.steps}` : one.step != null ? `step ${one.step}` : one.status,
      one.loss != null && `loss ${number(one.loss)}`,
      one.power_w != null && quantity(one.power_w, 'W'),
      one.temperature_c != null && `${number(one.temperature_c)} °C`,
      one.memory_bytes != null && quantity(one.memory_bytes, 'B'),
      one.wall_time_s != null && `${seconds(one.wall_time_s)} so far`,
      one.left_s != null && `${seconds(one.left_s)} left`,
    ].filter(Boolean).join(' · ');
    const name = [one.model, one.with, `seed ${one.seed}`].filter(Boolean).join(' ');
    const progress = one.steps ? el('progress', { max: one.steps, value: one.step ?? 0, 'aria-label': 'progress' }) : null;
    return el('li', {}, runLink(one.nonce, short(one.run)), ' ', name, progress, sparkline(live.losses.get(one.nonce) ?? []), el('div', { class: 'faint', text: facts }));
  });
  const stale = live.isStale ? el('p', { class: 'warn', text: 'No connection: these values are old.' }) : null;
  return el('section', { 'aria-label': 'Running attempts', class: live.isStale ? 'stale-all' : null }, el('h2', { text: 'Running' }), stale, el('ul', { class: 'living' }, ...items));
}

/** The losses that this page has seen; few of them are points. */
function sparkline(points) {
  const known = points.filter(([, loss]) => Number.isFinite(loss));
  if (known.length === 0) return null;
  const [low, high] = [Math.min(...known.map((point) => point[1])), Math.max(...known.map((point) => point[1]))];
  const [first, last] = [known[0][0], known.at(-1)[0]];
  const place = ([step, loss]) => [2 + 296 * ((step - first) / (last - first || 1)), 36 - 32 * ((loss - low) / (high - low || 1))];
  const marks = known.length < 8 ? known.map((point) => el('circle', { cx: place(point)[0], cy: place(point)[1], r: 2, fill: 'currentColor' })) : [el('polyline', { points: known.map((point) => place(point).join(',')).join(' '), fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'vector-effect': 'non-scaling-stroke' })];
  return el('svg', { viewBox: '0 0 300 40', preserveAspectRatio: 'none', role: 'img', 'aria-label': `loss from ${number(known[0][1])} to ${number(known.at(-1)[1])}` }, ...marks);
}
