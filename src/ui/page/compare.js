// The Compare page: differences, metrics and curves of two to eight attempts.

import { called, commandLine, compared, differing, el, metric, number, runLink, short, table, text } from './dom.js';
import { ask } from './api.js';
import { curves } from './curves.js';

const MOST = 8;

export async function comparePage(ids, _options, signal) {
  const wanted = ids.split(',').filter(Boolean).slice(0, MOST);
  const form = chooser(wanted);
  if (wanted.length < 2) return el('div', {}, el('h1', { text: 'Compare' }), el('p', { text: 'Select two to eight attempts on the Runs page, or name them here: ids or tags, separated by commas.' }), form);
  const shown = await Promise.all(wanted.map(async (id) => {
    const { document: run } = await ask('show', { id }, signal);
    const attempt = run.attempts.find((one) => one.attempt.startsWith(id)) ?? run.attempts[0];
    if (!attempt) throw new Error(`\`${id}\` has no finished attempt yet.`);
    return { run, attempt };
  }));
  const configs = shown.map(({ run }) => ({ ...run.parts.config.value, device: run.parts.device?.value, program: run.parts.program?.digest }));
  const fields = differing(configs);
  const attempts = shown.map(({ attempt }, at) => ({ id: attempt.attempt, label: short(attempt.attempt), group: fields.length ? called(configs[at], fields) : 'mean' }));
  const names = [...new Set(shown.flatMap(({ attempt }) => attempt.series.filter((series) => series.axis === 'step').map((series) => series.name)))].sort();
  const against = await differences(shown, attempts, signal);
  return el('div', {},
    el('h1', { text: `Compare ${attempts.length} attempts` }), form,
    el('p', {}, ...attempts.flatMap(({ id }) => [runLink(id), ' '])),
    el('h2', { text: 'Configuration' }), configuration(shown),
    el('h2', { text: 'Metrics' }), against,
    el('h2', { text: 'Curves' }), names.length ? curves(attempts, names, signal).element : el('p', { text: 'No series over steps were recorded.' }));
}

function chooser(wanted) {
  const input = el('input', { type: 'text', value: wanted.join(','), 'aria-label': 'Attempts', placeholder: 'latest,latest~1' });
  return el('form', { class: 'bar', onsubmit: (event) => {
    event.preventDefault();
    location.hash = `#/compare/${encodeURIComponent(input.value.replace(/\s/g, ''))}`;
  } }, el('label', { class: 'grow' }, 'Attempts', input), el('button', { text: 'Compare' }));
}

function configuration(shown) {
  const configs = shown.map(({ run }) => ({ ...run.parts.config.value, seed: run.parts.seed?.value, ...Object.fromEntries(['device', 'driver', 'cuda', 'container'].map((part) => [part, text(run.parts[part]?.value)])) }));
  const names = differing(configs);
  if (names.length === 0) return el('p', { text: 'No field differs.' });
  return table('Fields that differ', ['field', ...shown.map(({ attempt }) => short(attempt.attempt))], names.map((name) => [name, ...configs.map((config) => text(config[name]))]));
}

/** Metrics and recorded facts of each attempt against the first one, from one `diff` for each. */
async function differences(shown, attempts, signal) {
  const [first, ...others] = attempts;
  const found = await Promise.all(others.map((other) => ask('diff', { a: first.id, b: other.id }, signal)));
  const documents = found.map((answer) => answer.document);
  const names = [...new Set(documents.flatMap((one) => (one.metrics ?? []).map((each) => each.name)))];
  const value = ({ attempt }, name) => (attempt.metrics[name] ? metric(attempt.metrics[name]) : '–');
  const heads = attempts.length === 2 ? [first.label, others[0].label, 'second against first'] : [first.label, ...others.flatMap(({ label }) => [label, 'against the first'])];
  const rows = names.map((name) => [name, value(shown[0], name), ...documents.flatMap((one, at) => [value(shown[at + 1], name), ratio(one.metrics.find((each) => each.name === name))])]);
  return el('div', {}, table('Metrics', ['metric', ...heads], rows),
    el('p', { class: 'faint', text: 'Ratios and tests use the means of all repetitions of a configuration, if there are several.' }),
    environment(documents, attempts), ...found.map(({ command }) => commandLine(command)));
}

function ratio(one) {
  const tested = one?.significance?.comparison;
  if (!tested && Number.isFinite(one?.b / one?.a)) return `${number(one.b / one.a)}×`;
  return compared(tested);
}

/** Recorded facts that differ from those of the first attempt. */
function environment(documents, attempts) {
  const maps = documents.map((one) => new Map((one.environment ?? []).map((fact) => [fact.field, fact])));
  const fields = [...new Set(maps.flatMap((map) => [...map.keys()]))].sort();
  if (fields.length === 0) return null;
  const first = (field) => maps.find((map) => map.has(field)).get(field).a;
  const cut = (value) => text(value).slice(0, 200);
  const rows = fields.map((field) => [field, cut(first(field)), ...maps.map((map) => (map.has(field) ? cut(map.get(field).b) : 'same'))]);
  return el('details', {}, el('summary', { text: `${fields.length} recorded facts differ` }), table('Facts that differ', ['fact', ...attempts.map((one) => one.label)], rows));
}
