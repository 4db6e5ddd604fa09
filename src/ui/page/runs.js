// The Runs page: the running attempts, and the table of all attempts.

import { commandLine, el, number, quantity, replace, runLink, seconds, short, shortName, text, when } from './dom.js';
import { allNames, ask } from './api.js';
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
  const command = el('div');
  const holder = el('div');
  const compare = el('button', { type: 'button', onclick: () => { location.hash = `#/compare/${[...selected].join(',')}`; } });

  const clear = el('button', { type: 'button', text: 'Clear the selection', onclick: () => {
    selected.clear();
    table?.clear();
    showSelection();
  } });
  const showSelection = () => {
    setOptions({ selected: [...selected].join(',') });
    const isFit = selected.size >= 2 && selected.size <= 8;
    compare.textContent = isFit ? `Compare ${selected.size} selected` : `${selected.size} selected: 2 to 8 can be compared`;
    compare.disabled = !isFit;
    compare.hidden = clear.hidden = selected.size === 0;
  };
  const select = (id, isOn) => {
    if (isOn) selected.add(id); else selected.delete(id);
    showSelection();
  };
  const load = async (skip, limit, own) => {
    const columns = [...new Set([...asked.columns.split(','), asked.group].filter(Boolean))].join(',');
    const { document: listing, command: typed } = await ask('ls', { limit, skip, where: asked.where, sort: asked.group || asked.sort, columns, hidden: asked.hidden }, own ? AbortSignal.any([signal, own]) : signal);
    const said = typed.replace(/ --limit=\d+| --skip=\d+/g, '');
    if (command.textContent !== `${said} Copy`) replace(command, commandLine(said));
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
  const counts = new Map();
  /** How many attempts have a row's value of the grouping field. A missing value has no condition, and no count. */
  const countOf = (row) => {
    const name = asked.group;
    const value = columnsOf().find(([, sort]) => sort === name)[2](row);
    if (value == null) return Promise.reject(new Error('no value'));
    const where = `${asked.where ? `(${asked.where}) and ` : ''}${name} == ${JSON.stringify(value)}`;
    if (!counts.has(where)) counts.set(where, ask('ls', { limit: 0, where, hidden: asked.hidden }, signal).then((answer) => answer.document.matching));
    return counts.get(where);
  };
  let table;
  const show = async () => {
    setOptions({ where: asked.where, sort: asked.sort === '-started' ? '' : asked.sort, columns: asked.columns, group: asked.group, hidden: asked.hidden });
    const next = new VirtualTable({ columns: columnsOf(), load, sort: asked.group || asked.sort, select, selected, group: group(), count: countOf, onSort: (sort) => {
      Object.assign(asked, { sort, group: '' });
      show();
    } });
    try {
      const { listing } = await next.start();
      fault.hidden = true;
      table = next;
      replace(holder, listing.total === 0 ? el('p', {}, 'No runs yet. ', el('code', { text: 'ledger run MANIFEST' }), ' adds some.') : next.element);
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
  const living = livingList();
  const end = follow(({ hasSealed }) => {
    living.update();
    if (hasSealed) {
      counts.clear();
      if (table) table.refresh().catch(() => {});
    }
  });
  signal.addEventListener('abort', end);
  showSelection();
  await show();
  return el('div', {}, el('h1', { text: 'Runs' }), living.element, bar, fault, el('div', { class: 'bar' }, count, compare, clear), holder, command);
}

/** The list of running attempts. Each keeps its element while its values change, and with it the focus. */
function livingList() {
  const list = el('ul', { class: 'living' });
  const stale = el('p', { class: 'warn', role: 'status' });
  const element = el('section', { 'aria-label': 'Running attempts' }, el('h2', { text: 'Running' }), stale, list);
  const items = new Map();
  const update = () => {
    const running = live.running;
    element.hidden = running.length === 0;
    element.className = live.isStale ? 'stale-all' : '';
    stale.textContent = live.isStale ? 'Stale: no heartbeat for 25 s. These values are old.' : '';
    for (const nonce of items.keys()) if (!running.some((one) => one.nonce === nonce)) {
      items.get(nonce).element.remove();
      items.delete(nonce);
    }
    for (const one of running) {
      if (!items.has(one.nonce)) {
        items.set(one.nonce, livingItem(one));
        list.append(items.get(one.nonce).element);
      }
      items.get(one.nonce).update(one);
    }
  };
  return { element, update };
}

function livingItem(one) {
  const name = [one.model, one.with, `seed ${one.seed}`].filter(Boolean).join(' ');
  const progress = el('progress', { 'aria-label': 'progress' });
  const curve = el('div'), facts = el('div', { class: 'faint' });
  const update = (now) => {
    progress.hidden = !now.steps;
    [progress.max, progress.value] = [now.steps || 1, now.step ?? 0];
    replace(curve, sparkline(live.losses.get(now.nonce) ?? []));
    facts.textContent = livingFacts(now).join(' · ');
  };
  return { element: el('li', {}, runLink(one.nonce, short(one.run)), ' ', name, progress, curve, facts), update };
}

/** The values of a running attempt as texts. */
export function livingFacts(one) {
  return [
    one.steps ? `step ${one.step ?? 0} of ${one.steps}` : one.step != null ? `step ${one.step}` : one.status,
    one.loss != null && `loss ${number(one.loss)}`,
    one.power_w != null && quantity(one.power_w, 'W'),
    one.temperature_c != null && `${number(one.temperature_c)} °C`,
    one.memory_bytes != null && quantity(one.memory_bytes, 'B'),
    one.wall_time_s != null && `${seconds(one.wall_time_s)} elapsed`,
    one.left_s != null && `${seconds(one.left_s)} left`,
  ].filter(Boolean);
}

/** The losses since this page was opened; a few of them are drawn as points. */
function sparkline(points) {
  const known = points.filter(([, loss]) => Number.isFinite(loss));
  if (known.length === 0) return null;
  const [low, high] = [Math.min(...known.map((point) => point[1])), Math.max(...known.map((point) => point[1]))];
  const [first, last] = [known[0][0], known.at(-1)[0]];
  const place = ([step, loss]) => [2 + 296 * ((step - first) / (last - first || 1)), 36 - 32 * ((loss - low) / (high - low || 1))];
  const marks = known.length < 8 ? known.map((point) => el('circle', { cx: place(point)[0], cy: place(point)[1], r: 2, fill: 'currentColor' })) : [el('polyline', { points: known.map((point) => place(point).join(',')).join(' '), fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5, 'vector-effect': 'non-scaling-stroke' })];
  return el('svg', { viewBox: '0 0 300 40', preserveAspectRatio: 'none', role: 'img', 'aria-label': `loss from ${number(known[0][1])} to ${number(known.at(-1)[1])}` }, ...marks);
}
