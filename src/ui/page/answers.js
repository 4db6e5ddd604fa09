// The Answers page: the ranking of a model's configurations by a metric, the Pareto front of two metrics, and the effect of each field.

import { called, commandLine, compared, differing, el, later, number, quantity, replace, runLink, shortName, table, text } from './dom.js';
import { allNames, ask } from './api.js';
import { scatter } from './scatter.js';
import { setOptions } from './state.js';

const askRanking = (model, metric, where, signal) => ask('best', { model, metric, where, top: 50 }, signal);
const askFront = (model, metrics, where, signal) => ask('pareto', { model, metrics: metrics.join(','), where, dominated: 'true' }, signal);
const askEffects = (model, metric, where, signal) => ask('effects', { model, metric, where }, signal);

/** The metric beside the first one on the front, if the address names none. */
const usualSecond = (metric, metrics) => ['train_time', 'accuracy', 'loss', 'energy'].find((name) => name !== metric && metrics.includes(name)) ?? metrics.find((name) => name !== metric);

/** Requests each model's answers once, one after the other, so that the server has them before they are shown. */
export async function prepareAnswers(signal) {
  const names = await allNames();
  for (const model of names.models) {
    const metrics = names.metrics[model] ?? [];
    const first = await askRanking(model, null, '', signal).catch(() => null);
    if (signal.aborted) return;
    const metric = first?.document.metric ?? metrics[0];
    const second = usualSecond(metric, metrics);
    if (second) await askFront(model, [metric, second], '', signal).catch(() => null);
    await askEffects(model, metric, '', signal).catch(() => null);
    if (signal.aborted) return;
  }
}

export async function answersPage(model, options, signal) {
  const names = await allNames();
  if (names.models.length === 0) return el('div', {}, el('h1', { text: 'Answers' }), el('p', { text: 'No attempt has finished yet.' }));
  const chosen = model || names.models[0];
  const metrics = names.metrics[chosen] ?? [];
  const where = options.get('where') ?? '';
  const first = await askRanking(chosen, options.get('metric'), where, signal).catch((error) => ({ error }));
  const metric = options.get('metric') ?? first.document?.metric ?? metrics[0];
  const second = options.get('second') ?? usualSecond(metric, metrics);
  const pick = (label, all, value, change) => el('label', {}, label, el('select', { name: label, onchange: (event) => change(event.target.value) }, ...[...new Set([...all, value].filter(Boolean))].map((name) => el('option', { value: name, text: name, selected: name === value }))));
  const reload = (changes) => {
    setOptions(changes);
    dispatchEvent(new Event('hashchange'));
  };
  const filter = el('input', { type: 'text', name: 'where', value: where, placeholder: 'gpus == 1', onchange: (event) => reload({ where: event.target.value.trim() }) });
  const bar = el('div', { class: 'bar' },
    pick('Model', names.models, chosen, (name) => { location.hash = `#/answers/${encodeURIComponent(name)}`; }),
    pick('Metric', metrics, metric, (name) => reload({ metric: name })),
    pick('Against', metrics.filter((name) => name !== metric), second, (name) => reload({ second: name })),
    el('label', { class: 'grow' }, 'Filter', filter));
  const best = first.error ? el('pre', { class: 'error', role: 'alert', text: first.error.message }) : ranking(first, chosen);
  return el('div', {}, el('h1', { text: `Answers: ${chosen}` }), bar,
    el('h2', { text: `Best by ${metric}` }), best,
    el('h2', { text: 'Pareto front' }), later(() => front(chosen, [metric, second].filter(Boolean), where, signal)),
    el('h2', { text: `Effects on ${metric}` }), later(() => effects(chosen, metric, where, signal)));
}

function interval(place) {
  if (place.sample?.range) return place.sample.range;
  return place.half_width == null ? [place.mean, place.mean] : [place.mean - place.half_width, place.mean + place.half_width];
}

/** A mean with its interval, drawn on a scale that all rows share. */
function meanBar(place, [low, high]) {
  const x = (value) => 3 + (134 * (value - low)) / (high - low || 1);
  const [from, to] = interval(place);
  return el('svg', { class: 'mean', viewBox: '0 0 140 14', 'aria-hidden': 'true' },
    el('line', { x1: x(from), x2: x(to), y1: 7, y2: 7, stroke: 'currentColor', 'stroke-width': 1.5 }),
    el('circle', { cx: x(place.mean), cy: 7, r: 3, fill: 'currentColor' }));
}

function meanText(place, unit) {
  const [from, to] = interval(place);
  if (place.sample?.range) return `${quantity(from, unit)} to ${quantity(to, unit)}`;
  return place.half_width == null ? quantity(place.mean, unit) : `${quantity(place.mean, unit)} ± ${quantity(place.half_width, unit)}`;
}

function ranking({ document: best, command, notes }, model) {
  const places = best.places ?? [];
  const fields = differing(places.map((place) => place.config));
  const all = places.flatMap(interval);
  const scale = [Math.min(...all), Math.max(...all)];
  const rows = places.map((place, at) => [at + 1, runLink(place.run), meanBar(place, scale), meanText(place, best.unit), place.sample?.text ?? text(place.n), at === 0 ? 'best' : compared(place.comparison), place.p_best == null ? '–' : `${number(100 * place.p_best)}%`, ...fields.map((field) => text(place.config[field]))]);
  const heads = ['#', 'run', 'interval', `${best.metric} (${best.direction === 'maximize' ? 'higher' : 'lower'} is better)`, 'sample', 'against the best', 'P(best)', ...fields.map(shortName)];
  const left = (best.left_out ?? []).map((one) => el('li', { text: `${one.count ?? one.attempts ?? ''} ${one.why ?? ''}: ${one.reason ?? text(one)}` }));
  return el('div', {},
    el('p', { text: `${best.counted} attempts of ${model} counted.` }),
    table(`Configurations by ${best.metric}`, heads, rows),
    ...(best.sentences ?? sentences(best)).map((one) => el('p', { class: 'faint', text: one })),
    left.length ? el('details', {}, el('summary', { text: `${(best.left_out ?? []).reduce((sum, one) => sum + (one.attempts ?? 0), 0)} attempts left out` }), el('ul', {}, ...left)) : null,
    notes ? el('pre', { text: notes }) : null,
    commandLine(command));
}

/** Reasons why a place is not tested against the first one. */
const UNTESTED = {
  too_few: 'with so few repetitions no p below 0.05 is possible; 3 or more each are needed',
  no_scatter: 'the repetitions do not vary',
};

/** Sentences of the ranking: tests, coverage of the intervals, the fastest configuration, and unequal work. */
function sentences(best) {
  const others = best.places.map((place, at) => ({ ...place, rank: `#${at + 1}` })).slice(1);
  const ranks = (some) => some.map((place) => place.rank).join(' ');
  const [apart, alike] = [true, false].map((differs) => others.filter((place) => place.differs === differs));
  const reasons = [...new Set(others.map((place) => place.comparison?.untested).filter(Boolean))];
  const covers = [...new Set(best.places.map((place) => place.sample?.covers).filter(Boolean))];
  const { against, unequal_samples: work } = best;
  return [
    apart.length && `#1 differs significantly from ${ranks(apart)}.`,
    alike.length && `No significant difference between #1 and ${ranks(alike)}.`,
    ...reasons.map((why) => `Not tested: ${ranks(others.filter((place) => place.comparison?.untested === why))} (${UNTESTED[why] ?? why.replaceAll('_', ' ')}).`),
    ...covers.map((one) => `Intervals cover ${one}.`),
    best.places.some((place) => place.sample?.range) && 'Two attempts show their range instead of an interval.',
    against?.is_best && `#1 is ${against.what} as well.`,
    against?.metric != null && others.some((place) => place.comparison?.scale === 'ratio') && `Against ${against.what}, ${against.run.slice(0, 8)}: ${number(1 + against.metric)}× ${best.metric}${against.time == null ? '' : ` at ${number(1 + against.time)}× ${against.time_metric}`}.`,
    work && `Not the same work: ${work.metric} is of ${work.least} to ${work.most} samples.`,
  ].filter(Boolean);
}

async function front(model, metrics, where, signal) {
  if (metrics.length < 2) return el('p', { text: 'A front needs two metrics.' });
  const { document: found, command } = await askFront(model, metrics, where, signal);
  const points = found.points.filter((point) => metrics.every((name) => point.metrics[name]));
  const fields = differing(points.map((point) => point.config));
  const chosen = el('div', { role: 'status' });
  const list = (some, caption) => table(caption, ['run', ...metrics, 'on the front', 'P(front)', 'configuration'], some.map((point) => [
    runLink(point.run), ...metrics.map((name, at) => quantity(point.metrics[name].mean, found.metrics[at].unit)), point.on_front ? 'yes' : 'no', point.p_front == null ? '–' : `${number(100 * point.p_front)}%`, called(point.config, fields)]));
  const plot = scatter(points, found.metrics.slice(0, 2), (some) => replace(chosen, some.length ? list(some, `${some.length} selected`) : null));
  return el('div', {}, el('p', { class: 'faint', text: 'Filled points are on the front. Drag over points to list them.' }), plot, chosen, list(points.filter((point) => point.on_front), 'On the front'), commandLine(command));
}

async function effects(model, metric, where, signal) {
  const { document: found, command } = await askEffects(model, metric, where, signal);
  const block = (effect) => {
    const means = effect.levels.map((level) => level.mean);
    const bar = (mean) => {
      const element = el('span', { class: 'level' });
      element.style.width = `${(8 * Math.max(0, mean)) / Math.max(...means, 1e-300)}rem`;
      return element;
    };
    return el('section', {}, el('h3', { text: shortName(effect.field) }), el('p', { text: effect.sentence }),
      table(`${metric} by ${shortName(effect.field)}`, ['value', 'mean', ''], effect.levels.map((level) => [text(level.value), quantity(level.mean, found.unit), bar(level.mean)])));
  };
  const more = [...(found.interactions ?? []).map((one) => el('p', { text: one.sentence })), ...(found.confounded ?? []).map((one) => el('div', {}, el('p', { text: one.sentence }), one.separation ? el('p', { class: 'faint', text: one.separation }) : null, commandLine(one.command))), ...(found.notes ?? []).map((note) => el('p', { class: 'faint', text: note }))];
  return el('div', {}, ...(found.main ?? []).map(block), ...(more.length ? [el('h3', { text: 'Interactions and confounded fields' }), ...more] : []), commandLine(command));
}
