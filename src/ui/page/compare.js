// Two to eight attempts side by side: curves overlaid, what differs, and metrics.

import { commandLine, el, metric, number, quantity, runLink, short, table, text } from './dom.js';
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
    return { run, attempt };
  }));
  const attempts = shown.map(({ attempt }) => ({ id: attempt.attempt, label: short(attempt.attempt) }));
  const names = [...new Set(shown.flatMap(({ attempt }) => attempt.series.filter((series) => series.axis === 'step').map((series) => series.name)))].sort();
  const pair = shown.length === 2 ? await difference(attempts, signal) : null;
  return el('div', {},
    el('h1', { text: `Compare ${attempts.length} attempts` }), form,
    el('p', {}, ...attempts.flatMap(({ id }) => [runLink(id), ' '])),
    el('h2', { text: 'Configuration' }), configuration(shown),
    el('h2', { text: 'Metrics' }), pair ?? metrics(shown),
    el('h2', { text: 'Curves' }), names.length ? curves(attempts, names, signal) : el('p', { text: 'No series over steps were recorded.' }));
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
  const names = [...new Set(configs.flatMap((config) => Object.keys(config)))].filter((name) => new Set(configs.map((config) => text(config[name]))).size > 1).sort();
  if (names.length === 0) return el('p', { text: 'No field differs.' });
  return table('Fields that differ', ['field', ...shown.map(({ attempt }) => short(attempt.attempt))], names.map((name) => [name, ...configs.map((config) => text(config[name]))]));
}

function metrics(shown) {
  const names = [...new Set(shown.flatMap(({ attempt }) => Object.entries(attempt.metrics).filter(([, one]) => one.value != null).map(([name]) => name)))].sort();
  return table('Metrics', ['metric', ...shown.map(({ attempt }) => short(attempt.attempt))], names.map((name) => [name, ...shown.map(({ attempt }) => (attempt.metrics[name] ? metric(attempt.metrics[name]) : '–'))]));
}

/** What `diff` says of two. */
async function difference([a, b], signal) {
  const { document: found, command } = await ask('diff', { a: a.id, b: b.id }, signal);
  const ratio = (one) => {
    const tested = one.significance?.comparison;
    if (!tested) return one.a ? `${number(one.b / one.a)}×` : '–';
    const range = tested.low == null ? '' : ` (${number(tested.low)} to ${number(tested.high)})`;
    const p = tested.p == null ? '' : `, p ${tested.p < 0.001 ? '< 0.001' : number(tested.p)}`;
    return `${number(tested.estimate)}${tested.scale === 'ratio' ? '×' : ` ${tested.scale}`}${range}${tested.untested ? ', not tested' : p}`;
  };
  const rows = (found.metrics ?? []).map((one) => [one.name, quantity(one.a, one.unit), quantity(one.b, one.unit), ratio(one)]);
  const environment = (found.environment ?? []).map((one) => [one.field, text(one.a).slice(0, 200), text(one.b).slice(0, 200)]);
  return el('div', {}, table('Metrics', ['metric', a.label, b.label, 'second against first'], rows),
    environment.length ? el('details', {}, el('summary', { text: `${environment.length} recorded facts differ` }), table('Facts that differ', ['fact', a.label, b.label], environment)) : null,
    commandLine(command));
}
