// Makes elements and formats numbers. Texts of runs become text nodes, so that markup in them is inert.

/** Makes an element; `on…` are listeners, `text` is its text, other values are attributes (false and null: none). */
export function el(tag, attributes = {}, ...children) {
  const svg = ['svg', 'g', 'line', 'path', 'circle', 'rect', 'text', 'title', 'polyline'].includes(tag);
  const element = svg && tag !== 'title' ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'text') element.textContent = value;
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

export function replace(parent, ...children) {
  parent.replaceChildren(...children.filter((child) => child != null));
}

/** A part of the page that is loaded after the others. */
export function later(make) {
  const holder = el('div', {}, el('p', { class: 'faint', text: 'Loading…' }));
  make().then((content) => replace(holder, content), (error) => {
    if (error.name !== 'AbortError') replace(holder, el('p', { text: error.message }));
  });
  return holder;
}

/** Four significant digits; whole numbers as they are. */
export function number(value) {
  if (value == null) return '–';
  if (typeof value !== 'number') return String(value);
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  const size = Math.abs(value);
  if (size >= 1000 && size < 1e7) return String(Math.round(value));
  if (size !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(3).replace(/\.?0+e/, 'e');
  return String(Number(value.toPrecision(4)));
}

export function seconds(value) {
  if (value == null) return '–';
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) return `${value} s`;
  if (value === 0) return '0 s';
  if (value < 1e-3) return `${number(value * 1e6)} µs`;
  if (value < 1) return `${number(value * 1e3)} ms`;
  if (value < 99.95) return `${value.toFixed(1)} s`;
  const pair = (count, unit, small) => `${Math.floor(count / 60)} ${unit} ${String(count % 60).padStart(2, '0')} ${small}`;
  return Math.round(value) < 3600 ? pair(Math.round(value), 'min', 's') : pair(Math.round(value / 60), 'h', 'min');
}

/** A time on an axis: as many digits as neighbours `step` apart need. */
export function clock(value, step) {
  if (step >= 60 || (step >= 1 && value >= 100 && value < 3600)) return seconds(value);
  return `${value.toFixed(Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))))} s`;
}

const SCALED = { J: ['J', 'kJ', 'MJ', 'GJ'], W: ['W', 'kW', 'MW'], B: ['B', 'KiB', 'MiB', 'GiB', 'TiB'], 'B/s': ['B/s', 'KiB/s', 'MiB/s', 'GiB/s'] };

/** A value with its unit and an SI or binary prefix. */
export function quantity(value, unit) {
  if (value == null) return '–';
  if (unit === 's') return seconds(value);
  if (unit === 'ns') return seconds(value / 1e9);
  if (unit === 'degC') return `${number(value)} °C`;
  const units = SCALED[unit];
  if (!units || typeof value !== 'number') return unit ? `${number(value)} ${unit}` : number(value);
  const base = unit.startsWith('B') ? 1024 : 1000;
  let at = 0;
  while (at < units.length - 1 && Math.abs(value) >= base) [value, at] = [value / base, at + 1];
  return `${number(value)} ${units[at]}`;
}

/** A metric of a record: value, uncertainty and unit, or the reason why it is missing. */
export function metric(one) {
  if (one.value == null) return one.reason ?? 'not known';
  const off = one.uncertainty == null ? '' : ` ± ${quantity(one.uncertainty, one.unit)}`;
  return quantity(one.value, one.unit) + off;
}

/** A comparison with its interval and p-value. */
export function compared(one) {
  if (!one) return '–';
  const range = one.low == null ? '' : ` (${number(one.low)} to ${number(one.high)})`;
  const p = one.p == null ? '' : `, p ${one.p < 0.001 ? '< 0.001' : `= ${number(one.p)}`}`;
  return `${number(one.estimate)}${one.scale === 'ratio' ? '×' : ` ${one.scale}`}${range}${one.untested ? ', not tested' : p}`;
}

export function when(unixMs) {
  return new Date(unixMs).toISOString().replace('T', ' ').slice(0, 19);
}

export const short = (id) => String(id).slice(0, 8);

/** The last part of a field's name: `batch_size` of `training.batch_size`, and `model` of `model.name`. */
export function shortName(field) {
  const at = field.lastIndexOf('.');
  const name = field.slice(at + 1);
  return name === 'name' && at > 0 ? field.slice(0, at) : name;
}

/** The fields that differ between configurations. */
export function differing(configs) {
  const names = [...new Set(configs.flatMap((config) => Object.keys(config)))];
  return names.filter((name) => new Set(configs.map((config) => text(config[name]))).size > 1).sort();
}

/** A configuration by its fields that differ from those of others. */
export const called = (config, fields) => fields.map((field) => `${shortName(field)} ${text(config[field])}`).join(', ') || 'the only configuration';

export function text(value) {
  if (value == null) return '–';
  if (Array.isArray(value)) return value.map(text).join(', ');
  if (typeof value === 'object') return JSON.stringify(value);
  return typeof value === 'number' ? number(value) : String(value);
}

/** A table of rows of cells, each a text, an element, or a number that is aligned right. */
export function table(caption, heads, rows) {
  const cell = (value) => {
    const isNumber = typeof value === 'number';
    return el('td', { class: isNumber ? 'number' : null }, isNumber ? number(value) : value instanceof Node ? value : text(value));
  };
  const head = el('tr', {}, ...heads.map((name) => el('th', { scope: 'col', text: name })));
  const body = rows.map((row) => el('tr', {}, ...row.map(cell)));
  return el('div', { class: 'wide', tabindex: '0', role: 'region', 'aria-label': caption },
    el('table', {}, el('caption', { text: caption }), el('thead', {}, head), el('tbody', {}, ...body)));
}

export function runLink(id, label) {
  return el('a', { href: `#/run/${encodeURIComponent(id)}`, text: label ?? short(id), class: 'id' });
}

/** The command for the same answer in a terminal, with a copy button. */
export function commandLine(command) {
  if (!command) return null;
  const copy = el('button', { type: 'button', text: 'Copy', onclick: async () => {
    await navigator.clipboard.writeText(command);
    copy.textContent = 'Copied';
  } });
  return el('p', { class: 'command' }, el('code', { text: command }), ' ', copy);
}
