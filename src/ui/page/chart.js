// A chart on a canvas: lines with gaps, axes, a cursor, and a selected interval. Charts of one group share the cursor and the selection.

import { el, number, replace } from './dom.js';

const COLOURS = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#b58900', '#56b4e9', '#7a5195', '#888888'];
const LEFT = 84, RIGHT = 10, TOP = 8, BOTTOM = 20;

/** The colour of a name: the same on every page, as long as no other line of a chart has it. */
export function colours(names) {
  const taken = new Map();
  for (const name of names) {
    let at = [...name].reduce((sum, letter) => (sum * 31 + letter.codePointAt(0)) >>> 0, 7) % COLOURS.length;
    for (let tries = 0; tries < COLOURS.length && [...taken.values()].includes(COLOURS[at]); tries += 1) at = (at + 1) % COLOURS.length;
    taken.set(name, COLOURS[at]);
  }
  return taken;
}

/** Round numbers from low to high, about `count` of them; for bytes, round in units of 1024. */
export function ticks(low, high, count, base = 10) {
  if (base === 1024) {
    const size = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(Math.abs(low), Math.abs(high), 1)) / 10));
    return ticks(low / size, high / size, count).map((mark) => mark * size);
  }
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough);
  const first = Math.ceil(low / step) * step;
  return Array.from({ length: Math.floor((high - first) / step + 1e-9) + 1 }, (_, at) => first + at * step);
}

/** Powers of ten between two exponents, about `count` of them; within one decade the ticks are linear. */
function decades(bottom, top, count) {
  const [first, last] = [Math.ceil(bottom), Math.floor(top)];
  if (last - first < 1) return ticks(10 ** bottom, 10 ** top, count);
  const step = Math.ceil((last - first) / count);
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, at) => 10 ** (first + at * step));
}

/** The cursor and the selection that several charts share. */
export class Group {
  charts = new Set();
  cursor = null;
  stretch = null;
  /** Where a selection by keys began. */
  anchor = null;
  draw() { this.charts.forEach((chart) => chart.draw()); }
}

export class Chart {
  /** `onZoom(from, to)` and `onSelect(from, to)` take a dragged stretch; without them nothing is dragged. `onReset` ends a zoom. */
  constructor({ name, height = 220, xText = number, yText = number, group = new Group(), onZoom, onSelect, onReset, isLog = false, zero = false, base = 10 }) {
    Object.assign(this, { name, height, xText, yText, group, onZoom, onSelect, onReset, isLog, zero, base, lines: [], range: [0, 1], bars: null });
    this.canvas = el('canvas', { tabindex: '0', role: 'img', 'aria-label': name });
    this.read = el('div', { class: 'read' });
    this.hidden = el('div', { class: 'only-read' });
    this.element = el('div', { class: 'chart' }, this.canvas, this.read, this.hidden);
    group.charts.add(this);
    this.watch();
  }

  /** Shows lines `{name, colour, points: [[x, y], …], band: [[x, least, most], …], width, faint, step}` or `bars`, over a range of x. */
  set(lines, range, bars = null) {
    Object.assign(this, { lines, range, bars });
    const rows = lines.filter((line) => !line.faint).map((line) => {
      const known = line.points.map((point) => point[1]).filter(Number.isFinite);
      const cells = [line.name, known[0], Math.min(...known), Math.max(...known), known.at(-1)];
      return el('tr', {}, ...cells.map((cell) => el('td', { text: typeof cell === 'number' ? this.yText(cell) : cell ?? '–' })));
    });
    const heads = ['line', 'first', 'smallest', 'largest', 'last'].map((head) => el('th', { text: head }));
    replace(this.hidden, el('table', {}, el('caption', { text: this.name }), el('tr', {}, ...heads), ...rows));
    this.draw();
  }

  watch() {
    const at = (event) => this.place(event.offsetX);
    let start = null;
    const canvas = this.canvas;
    canvas.addEventListener('pointerdown', (event) => {
      [start, this.group.anchor] = [event.offsetX, null];
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      this.group.cursor = at(event);
      if (start !== null && this.drags && Math.abs(event.offsetX - start) > 4) {
        this.group.stretch = [this.place(start), at(event)].sort((a, b) => a - b);
      }
      this.group.draw();
    });
    canvas.addEventListener('pointerup', (event) => {
      const isDragged = start !== null && Math.abs(event.offsetX - start) > 4;
      start = null;
      if (isDragged) this.take(this.group.stretch);
    });
    canvas.addEventListener('pointerleave', () => {
      this.group.cursor = null;
      this.group.draw();
    });
    canvas.addEventListener('dblclick', () => this.reset());
    canvas.addEventListener('redraw', () => this.draw());
    canvas.addEventListener('keydown', (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  get drags() { return Boolean(this.onZoom || this.onSelect); }

  take(stretch) {
    if (!stretch) return;
    if (this.onZoom) {
      [this.group.stretch, this.group.anchor] = [null, null];
      this.onZoom(...stretch);
    } else this.onSelect?.(...stretch);
  }

  reset() {
    [this.group.stretch, this.group.anchor] = [null, null];
    this.onReset?.();
    this.group.draw();
  }

  key(event) {
    const [from, to] = this.range;
    const step = (to - from) / 50;
    const cursor = this.group.cursor ?? (from + to) / 2;
    const zoom = (factor) => this.onZoom?.(cursor - (cursor - from) * factor, cursor + (to - cursor) * factor);
    if (event.key === 'ArrowLeft' || event.key === 'ArrowRight') {
      const next = Math.min(to, Math.max(from, cursor + (event.key === 'ArrowLeft' ? -step : step)));
      if (event.shiftKey && this.drags) {
        this.group.anchor ??= cursor;
        this.group.stretch = [Math.min(this.group.anchor, next), Math.max(this.group.anchor, next)];
      } else this.group.anchor = null;
      this.group.cursor = next;
      this.group.draw();
    } else if (event.key === '+') zoom(0.5);
    else if (event.key === '-') zoom(2);
    else if (event.key === 'Enter') this.take(this.group.stretch);
    else if (event.key === 'Escape') this.reset();
    else return;
    event.preventDefault();
  }

  /** The cursor's place, as exact as the plot shows it. */
  cursorText(cursor) {
    const [from, to] = this.range;
    return this.xText(cursor, 10 ** Math.floor(Math.log10((to - from) / 300 || 1)));
  }

  get width() { return this.canvas.clientWidth; }
  place(x) {
    const [from, to] = this.range;
    return from + Math.min(1, Math.max(0, (x - LEFT) / (this.width - LEFT - RIGHT))) * (to - from);
  }
  x(value) {
    const [from, to] = this.range;
    return LEFT + ((value - from) / (to - from || 1)) * (this.width - LEFT - RIGHT);
  }

  scale() {
    const [from, to] = this.range;
    const usable = (y) => Number.isFinite(y) && (!this.isLog || y > 0);
    let low = Infinity, high = -Infinity;
    for (const line of this.lines) {
      for (const [x, y] of line.points) if (x >= from && x <= to && usable(y)) [low, high] = [Math.min(low, y), Math.max(high, y)];
      for (const [x, ...ends] of line.band ?? []) for (const y of ends) if (x >= from && x <= to && usable(y)) [low, high] = [Math.min(low, y), Math.max(high, y)];
    }
    if (low > high) return null;
    if (this.zero && !this.isLog) low = Math.min(0, low);
    if (low === high) [low, high] = this.isLog ? [low / 2, high * 2] : [low - Math.abs(low || 1) * 0.1, high + Math.abs(high || 1) * 0.1];
    const turn = this.isLog ? Math.log10 : (y) => y;
    const [bottom, top] = [turn(low), turn(high)];
    const room = (top - bottom) * 0.04;
    const y = (value) => TOP + (1 - (turn(value) - bottom + room) / (top - bottom + 2 * room)) * (this.height - TOP - BOTTOM);
    return { y, usable, marks: this.isLog ? decades(bottom, top, this.height / 45) : ticks(low, high, this.height / 45, this.base) };
  }

  draw() {
    const { canvas, width, height } = this;
    if (!width) return;
    const ratio = devicePixelRatio || 1;
    [canvas.width, canvas.height, canvas.style.height] = [width * ratio, height * ratio, `${height}px`];
    const context = canvas.getContext('2d');
    context.scale(ratio, ratio);
    const style = getComputedStyle(document.documentElement);
    this.ink = { text: style.getPropertyValue('--faint'), line: style.getPropertyValue('--line'), select: style.getPropertyValue('--select'), accent: style.getPropertyValue('--accent') };
    context.font = '11px system-ui, sans-serif';
    const { stretch, cursor } = this.group;
    if (stretch) {
      context.fillStyle = this.ink.select;
      context.fillRect(this.x(stretch[0]), TOP, this.x(stretch[1]) - this.x(stretch[0]), height - TOP - BOTTOM);
    }
    const scale = this.scale();
    this.axes(context, scale);
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, height - BOTTOM + 1);
    context.clip();
    if (this.bars) this.bars(context, this);
    if (scale) this.lines.forEach((line) => this.line(context, line, scale));
    context.restore();
    if (cursor !== null) {
      context.fillStyle = this.ink.accent;
      context.fillRect(this.x(cursor), TOP, 1, height - TOP - BOTTOM);
    }
    this.tell(cursor);
  }

  axes(context, scale) {
    const { width, height } = this;
    context.fillStyle = this.ink.text;
    context.strokeStyle = this.ink.line;
    context.lineWidth = 1;
    const rule = (x0, y0, x1, y1) => {
      context.beginPath();
      context.moveTo(x0, Math.round(y0) + 0.5);
      context.lineTo(x1, Math.round(y1) + 0.5);
      context.stroke();
    };
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const mark of scale?.marks ?? []) {
      rule(LEFT, scale.y(mark), width - RIGHT, scale.y(mark));
      context.fillText(this.yText(mark), LEFT - 5, scale.y(mark));
    }
    rule(LEFT, height - BOTTOM, width - RIGHT, height - BOTTOM);
    context.textAlign = 'center';
    context.textBaseline = 'top';
    const marks = ticks(...this.range, width / 110);
    for (const mark of marks) context.fillText(this.xText(mark, marks[1] - marks[0] || 1), Math.min(width - 24, this.x(mark)), height - BOTTOM + 4);
  }

  line(context, line, { y, usable }) {
    context.strokeStyle = line.colour;
    context.fillStyle = line.colour;
    const ends = (line.band ?? []).filter(([, least, most]) => usable(least) && usable(most));
    if (ends.length) {
      context.globalAlpha = 0.2;
      context.beginPath();
      ends.forEach(([x, least]) => context.lineTo(this.x(x), y(least)));
      ends.toReversed().forEach(([x, , most]) => context.lineTo(this.x(x), y(most)));
      context.fill();
    }
    context.globalAlpha = line.faint ? 0.3 : 1;
    context.lineWidth = line.width ?? 1.5;
    context.beginPath();
    let isOpen = false, before = null;
    for (const [x, value] of line.points) {
      if (!usable(value)) {
        // NaN and infinity interrupt the line and have a mark at the edge; a gap has none.
        if (value != null) context.fillText(value === -Infinity ? '−∞' : value === Infinity ? '∞' : '×', this.x(x), TOP);
        isOpen = false;
        continue;
      }
      const [left, high] = [this.x(x), y(value)];
      if (!isOpen) context.moveTo(left, high);
      else {
        if (line.step) context.lineTo(left, before);
        context.lineTo(left, high);
      }
      [isOpen, before] = [true, high];
    }
    context.stroke();
    if (line.points.length < 30) line.points.filter(([, value]) => usable(value)).forEach(([x, value]) => context.fillRect(this.x(x) - 2, y(value) - 2, 4, 4));
    context.globalAlpha = 1;
  }

  tell(cursor) {
    if (cursor === null) {
      this.read.textContent = '';
      return;
    }
    const said = this.lines.filter((line) => !line.faint && line.points.length).map((line) => {
      let [low, high] = [0, line.points.length - 1];
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (line.points[middle][0] <= cursor) low = middle; else high = middle - 1;
      }
      const value = line.points[low][1];
      return `${line.name} ${value == null || Number.isNaN(value) ? 'not known' : this.yText(value)}`;
    });
    this.read.textContent = [this.cursorText(cursor), ...said].join(' · ');
  }
}

/** The legend: the colour and the name of each line. */
export function key(lines) {
  const swatch = (colour) => el('svg', { viewBox: '0 0 22 8', 'aria-hidden': 'true' }, el('line', { x1: 0, x2: 22, y1: 4, y2: 4, stroke: colour, 'stroke-width': 3 }));
  return el('ul', { class: 'key' }, ...lines.filter((line) => !line.faint).map((line) => el('li', {}, swatch(line.colour), ' ', line.name)));
}

/** A number of a JSON document, in which NaN and infinities are texts. */
export function real(value) {
  if (typeof value !== 'string') return value;
  return { NaN, Infinity, '-Infinity': -Infinity }[value] ?? NaN;
}
