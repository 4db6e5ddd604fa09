// The Run page: metrics, curves, timeline, output and identity of one attempt.

import { commandLine, el, later, metric, number, quantity, replace, runLink, seconds, short, shortName, table, text, when } from './dom.js';
import { ask } from './api.js';
import { curves } from './curves.js';
import { follow, live } from './live.js';
import { livingFacts } from './runs.js';
import { setOptions } from './state.js';
import { timeline } from './timeline.js';

const HEADLINE = ['accuracy', 'perplexity', 'return', 'loss', 'train_time', 'energy', 'energy_per_sample', 'power_mean', 'throughput', 'gpu_mem_peak'];
const SHOW_FIRST = ['loss', 'eval_loss', 'accuracy', 'eval_accuracy'];

export async function runPage(id, options, signal) {
  const running = live.running.find((one) => one.nonce.startsWith(id) || one.run.startsWith(id));
  if (running?.nonce === id) return living(id, running, signal);
  // A sealed attempt has another id than the running one had. Its record keeps the old one, its nonce, and `run` leads to it.
  const { document: shown, command, notes } = await ask('show', { id }, signal).catch((error) => {
    if (running) return { document: null };
    if (options.get('run') && error.name !== 'AbortError') return ask('show', { id: options.get('run') }, signal);
    throw error;
  });
  if (!shown) return living(id, running, signal);
  const attempt = shown.attempts.find((one) => one.attempt.startsWith(id) || one.nonce === id) ?? shown.attempts[0];
  if (!attempt) return living(id, shown.running?.[0] ?? running, signal);
  const config = shown.parts.config.value;
  const wall = attempt.wall_ns / 1e9;
  const steps = attempt.series.filter((series) => series.axis === 'step').map((series) => series.name);
  const timed = attempt.series.filter((series) => series.axis === 'time_ns').map((series) => series.name);
  const order = (name) => (SHOW_FIRST.includes(name) ? SHOW_FIRST.indexOf(name) : SHOW_FIRST.length);
  steps.sort((a, b) => order(a) - order(b));
  return el('div', {},
    el('h1', {}, `${config['model.name'] ?? 'run'} `, el('span', { class: 'id', text: short(shown.run) })),
    el('p', {}, `Attempt `, el('span', { class: 'id', text: short(attempt.attempt) }), `: ${attempt.outcome}, started ${when(attempt.started_unix_ms)} UTC, took ${seconds(wall)}, seed ${text(shown.parts.seed?.value)}.`),
    notes ? el('pre', { class: 'error', text: notes }) : null,
    ...warnings(attempt),
    cards(attempt),
    others(shown, attempt),
    el('div', { class: 'sides' }, el('div', {}, el('h2', { text: 'Configuration' }), pairs('Configuration', config)), el('div', {}, el('h2', { text: 'Metrics' }), metrics(attempt))),
    el('h2', { text: 'Curves' }),
    steps.length ? curves([{ id: attempt.attempt, label: short(attempt.attempt) }], steps, signal).element : el('p', { text: 'No series over steps were recorded.' }),
    el('h2', { text: 'Timeline' }),
    timeline(attempt.attempt, timed, wall, signal),
    el('h2', { text: 'Energy by phase' }), later(() => phases(attempt.attempt, signal)),
    el('h2', { text: 'Output' }), later(() => output(attempt.attempt, signal)),
    identity(shown, attempt, signal),
    commandLine(command));
}

function warnings(attempt) {
  const said = [...(attempt.warnings ?? []), ...(attempt.outcome === 'finished' ? [] : [attempt.reason ?? attempt.stderr_tail])].filter(Boolean);
  return said.map((one) => el('pre', { class: 'error', text: text(one) }));
}

function cards(attempt) {
  const found = HEADLINE.filter((name) => attempt.metrics[name]?.value != null).slice(0, 8);
  return el('div', { class: 'cards' }, ...found.map((name) => el('div', {}, el('span', { class: 'faint', text: name }), el('b', { text: metric(attempt.metrics[name]) }))));
}

function others(shown, attempt) {
  const rest = shown.attempts.filter((one) => one !== attempt);
  if (rest.length === 0) return null;
  const links = rest.flatMap((one) => [' ', runLink(one.attempt), ` ${one.outcome},`]);
  return el('p', {}, `Other attempts of this run:`, ...links, ' ', el('a', { href: `#/compare/${shown.attempts.slice(0, 8).map((one) => one.attempt).join(',')}`, text: 'compare them' }));
}

function pairs(caption, fields) {
  return table(caption, ['field', 'value'], Object.entries(fields).map(([name, value]) => [name, text(value)]));
}

function metrics(attempt) {
  const known = Object.entries(attempt.metrics).filter(([, one]) => one.value != null);
  const missing = Object.entries(attempt.metrics).filter(([, one]) => one.value == null);
  const list = missing.length ? el('details', {}, el('summary', { text: `${missing.length} metrics have no value` }), table('Metrics without a value', ['metric', 'reason'], missing.map(([name, one]) => [name, metric(one)]))) : null;
  return el('div', {}, table('Metrics', ['metric', 'value'], known.map(([name, one]) => [name, metric(one)])), list);
}

async function phases(id, signal) {
  const { document: events, command } = await ask('events', { id }, signal);
  const rows = (events.phases ?? []).map((phase) => [
    phase.phase, phase.rank, phase.gpu ?? '–', phase.count, seconds(phase.time_s), seconds(phase.median_s), `${number(100 * phase.share)}%`,
    phase.energy ? `${quantity(phase.energy.joules, 'J')} ± ${quantity(phase.energy.uncertainty_j, 'J')}` : phase.energy_reason ?? 'not known',
    phase.power_w == null ? '–' : quantity(phase.power_w, 'W'),
  ]);
  return el('div', {}, table('Phases', ['phase', 'rank', 'GPU', 'count', 'time', 'median', 'share', 'energy', 'power'], rows), commandLine(command));
}

async function output(id, signal, tail = 500) {
  const { document: logs, command } = await ask('logs', { id, tail }, signal);
  const names = { stdout: 'Standard output', stderr: 'Standard error' };
  const said = (logs.output ?? []).map((one) => el('div', {}, el('h3', { text: names[one.stream] ?? one.stream }), el('pre', { class: 'log', tabindex: '0', text: one.text })));
  return el('div', {}, ...(said.length ? said : [el('p', { text: 'No output.' })]), commandLine(command));
}

/** Shows newer output. A reader at its end stays at the end, and one elsewhere stays there. */
function renew(holder, content) {
  if (holder.textContent === content.textContent) return;
  const before = [...holder.querySelectorAll('pre')].map((log) => ({ top: log.scrollTop, isAtEnd: log.scrollTop + log.clientHeight >= log.scrollHeight - 4 }));
  replace(holder, content);
  holder.querySelectorAll('pre').forEach((log, at) => { log.scrollTop = before[at]?.isAtEnd === false ? before[at].top : log.scrollHeight; });
}

function identity(shown, attempt, signal) {
  const found = el('div');
  const other = el('input', { type: 'text', 'aria-label': 'Another run', placeholder: 'id or tag' });
  const form = el('form', { class: 'bar', onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { document: why, command } = await ask('why', { a: attempt.attempt, b: other.value.trim() }, signal);
      const rows = why.parts.flatMap((part) => part.fields?.map((field) => [part.part, field.field, text(field.a), text(field.b)]) ?? [[part.part, '', text(part.a), text(part.b)]]);
      replace(found, why.same_run ? el('p', { text: 'The run ids are equal.' }) : table('Differences of identity', ['part', 'field', 'this run', 'the other run'], rows), commandLine(command));
    } catch (error) {
      replace(found, el('pre', { class: 'error', text: error.message }));
    }
  } }, el('label', {}, 'Compare the run id with that of', other), el('button', { text: 'Compare ids' }));
  const parts = Object.entries(shown.parts).filter(([name]) => name !== 'config');
  const rows = parts.map(([name, part]) => [name, typeof part.value === 'object' ? Object.entries(part.value ?? {}).slice(0, 60).map(([field, value]) => `${shortName(field)} ${text(value)}`).join(', ').slice(0, 400) : text(part.value)]);
  const verdicts = (shown.origins ?? []).flatMap((origin) => (origin.verdicts ?? []).map((verdict) => [short(origin.attempt), text(verdict.verdict ?? verdict)]));
  return el('section', {},
    el('h2', { text: 'Identity' }),
    table('Parts of the id', ['part', 'value'], rows),
    form, found,
    verdicts.length ? table('Verdicts of reruns', ['attempt', 'verdict'], verdicts) : null,
    el('details', {}, el('summary', { text: 'All recorded facts' }), pairs('Facts', { ...attempt.settings, ...attempt.facts })));
}

/** A running attempt. Its curves and its output are loaded again while it runs. */
function living(id, running, signal) {
  const nonce = running?.nonce ?? id;
  const head = el('p'), stale = el('p', { class: 'warn', role: 'status' }), log = el('div');
  const progress = el('progress', { 'aria-label': 'progress', hidden: true });
  const shown = { last: 0, names: '', curves: null };
  const charts = el('div');
  if (running) setOptions({ run: running.run });
  const update = async ({ hasSealed }) => {
    const one = live.running.find((other) => other.nonce === nonce);
    if (hasSealed && !one) {
      dispatchEvent(new Event('hashchange'));
      return;
    }
    if (one) {
      head.textContent = [`${[one.model, one.with].filter(Boolean).join(' ')} seed ${one.seed}`, ...livingFacts(one)].join(' · ');
      progress.hidden = !one.steps;
      [progress.max, progress.value] = [one.steps || 1, one.step ?? 0];
    }
    stale.textContent = live.isStale ? 'Stale: no heartbeat for 25 s. These values are old.' : '';
    if (Date.now() - shown.last < 2000) return;
    shown.last = Date.now();
    const { document: part } = await ask('telemetry', { id: nonce, points: 2, series: '*' }, signal).catch(() => ({ document: { series: [] } }));
    const steps = part.series.filter((series) => series.axis === 'step').map((series) => series.name);
    if (steps.join() === shown.names) shown.curves?.reload();
    else {
      shown.names = steps.join();
      shown.curves = curves([{ id: nonce, label: short(nonce) }], steps, signal);
      replace(charts, shown.curves.element);
    }
    renew(log, await output(nonce, signal, 200).catch((error) => el('p', { class: 'faint', text: error.message })));
  };
  const end = follow((change) => update(change).catch(() => {}));
  signal.addEventListener('abort', end);
  return el('div', {}, el('h1', {}, 'Running ', el('span', { class: 'id', text: short(nonce) })), stale, head, progress, el('h2', { text: 'Curves' }), charts, el('h2', { text: 'Output' }), log);
}
