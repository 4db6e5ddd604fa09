// One attempt: what it gave, its curves, its timeline, its output, and what it is.

import { commandLine, el, metric, number, quantity, replace, runLink, seconds, short, shortName, table, text, when } from './dom.js';
import { ask } from './api.js';
import { curves } from './curves.js';
import { follow, live } from './live.js';
import { timeline } from './timeline.js';

const HEADLINE = ['accuracy', 'perplexity', 'return', 'loss', 'train_time', 'energy', 'energy_per_sample', 'power_mean', 'throughput', 'gpu_mem_peak'];
const SHOW_FIRST = ['loss', 'eval_loss', 'accuracy', 'eval_accuracy'];

export async function runPage(id, _options, signal) {
  const running = live.running.find((one) => one.nonce.startsWith(id) || one.run.startsWith(id));
  const { document: shown, command, notes } = await ask('show', { id }, signal).catch((error) => {
    if (running) return { document: null };
    throw error;
  });
  if (!shown) return living(id, running, signal);
  const attempt = shown.attempts.find((one) => one.attempt.startsWith(id)) ?? shown.attempts[0];
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
    steps.length ? curves([{ id: attempt.attempt, label: short(attempt.attempt) }], steps, signal) : el('p', { text: 'No series over steps were recorded.' }),
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
  const list = missing.length ? el('details', {}, el('summary', { text: `${missing.length} metrics have no value` }), table('Metrics without a value', ['metric', 'because'], missing.map(([name, one]) => [name, metric(one)]))) : null;
  return el('div', {}, table('Metrics', ['metric', 'value'], known.map(([name, one]) => [name, metric(one)])), list);
}

/** A part of the page that is asked for after the others. */
function later(make) {
  const holder = el('div', {}, el('p', { class: 'faint', text: 'Loading…' }));
  make().then((content) => replace(holder, content), (error) => {
    if (error.name !== 'AbortError') replace(holder, el('p', { text: error.message }));
  });
  return holder;
}

async function phases(id, signal) {
  const { document: events, command } = await ask('events', { id }, signal);
  const rows = (events.phases ?? []).map((phase) => [
    phase.phase, phase.rank, phase.gpu ?? '–', phase.count, seconds(phase.time_s), seconds(phase.median_s), `${number(100 * phase.share)}%`,
    phase.energy ? `${quantity(phase.energy.joules, 'J')} ± ${quantity(phase.energy.uncertainty_j, 'J')}` : phase.energy_unknown ?? phase.unknown ?? 'not known',
    phase.power_w == null ? '–' : quantity(phase.power_w, 'W'),
  ]);
  return el('div', {}, table('Phases', ['phase', 'rank', 'GPU', 'count', 'time', 'median', 'share', 'energy', 'power'], rows), commandLine(command));
}

async function output(id, signal, tail = 500) {
  const { document: logs, command } = await ask('logs', { id, tail }, signal);
  const names = { stdout: 'Standard output', stderr: 'Standard error' };
  const said = (logs.output ?? []).map((one) => el('div', {}, el('h3', { text: names[one.stream] ?? one.stream }), el('pre', { class: 'log', tabindex: '0', text: one.text })));
  return el('div', {}, ...(said.length ? said : [el('p', { text: 'It has written nothing.' })]), commandLine(command));
}

function identity(shown, attempt, signal) {
  const found = el('div');
  const other = el('input', { type: 'text', 'aria-label': 'Another run', placeholder: 'id or tag' });
  const form = el('form', { class: 'bar', onsubmit: async (event) => {
    event.preventDefault();
    try {
      const { document: why, command } = await ask('why', { a: attempt.attempt, b: other.value.trim() }, signal);
      const rows = why.parts.flatMap((part) => part.fields?.map((field) => [part.part, field.field, text(field.a), text(field.b)]) ?? [[part.part, '', text(part.a), text(part.b)]]);
      replace(found, why.same_run ? el('p', { text: 'Both are the same run.' }) : table('Why the ids differ', ['part', 'field', 'this run', 'the other'], rows), commandLine(command));
    } catch (error) {
      replace(found, el('pre', { class: 'error', text: error.message }));
    }
  } }, el('label', {}, 'Why is another run another run?', other), el('button', { text: 'Compare ids' }));
  const parts = Object.entries(shown.parts).filter(([name]) => name !== 'config');
  const rows = parts.map(([name, part]) => [name, typeof part.value === 'object' ? Object.entries(part.value ?? {}).slice(0, 60).map(([field, value]) => `${shortName(field)} ${text(value)}`).join(', ').slice(0, 400) : text(part.value)]);
  const verdicts = (shown.origins ?? []).flatMap((origin) => (origin.verdicts ?? []).map((verdict) => [short(origin.attempt), text(verdict.verdict ?? verdict)]));
  return el('section', {},
    el('h2', { text: 'Identity' }),
    table('Parts of the id', ['part', 'value'], rows),
    form, found,
    verdicts.length ? table('Verdicts of reruns', ['attempt', 'verdict'], verdicts) : null,
    el('details', {}, el('summary', { text: 'Everything else that was recorded' }), pairs('Facts', { ...attempt.settings, ...attempt.facts })));
}

/** An attempt that still runs: what is known so far, looked at anew as it goes on. */
function living(id, running, signal) {
  const nonce = running?.nonce ?? id;
  const head = el('p', { role: 'status' }), log = el('div');
  const shown = { last: 0 };
  const names = new Set();
  const charts = el('div');
  const update = async ({ hasSealed }) => {
    const one = live.running.find((other) => other.nonce === nonce);
    if (hasSealed && !one) {
      dispatchEvent(new Event('hashchange'));
      return;
    }
    if (one) head.textContent = [`${one.model} ${one.with ?? ''} seed ${one.seed}`, one.steps ? `step ${one.step} of ${one.steps}` : one.step != null && `step ${one.step}`, one.loss != null && `loss ${number(one.loss)}`, one.power_w != null && quantity(one.power_w, 'W'), one.left_s != null && `${seconds(one.left_s)} left`].filter(Boolean).join(' · ');
    if (Date.now() - shown.last < 2000) return;
    shown.last = Date.now();
    const { document: part } = await ask('telemetry', { id: nonce, points: 2, series: '*' }, signal).catch(() => ({ document: { series: [] } }));
    const steps = part.series.filter((series) => series.axis === 'step').map((series) => series.name);
    if (steps.length && (names.size !== steps.length || Date.now() - (shown.charts ?? 0) > 10_000)) {
      shown.charts = Date.now();
      steps.forEach((name) => names.add(name));
      replace(charts, curves([{ id: nonce, label: short(nonce) }], steps, signal));
    }
    replace(log, await output(nonce, signal, 200).catch((error) => el('p', { class: 'faint', text: error.message })));
  };
  const end = follow((change) => update(change).catch(() => {}));
  signal.addEventListener('abort', end);
  return el('div', {}, el('h1', {}, 'Running ', el('span', { class: 'id', text: short(nonce) })), head, el('h2', { text: 'Curves' }), charts, el('h2', { text: 'Output' }), log);
}
