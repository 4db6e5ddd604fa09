// A table that renders only the visible rows and loads pages of rows while scrolling.

import { el, number } from './dom.js';

const PAGE = 200;
const HEIGHT = 30;
const BEYOND = 12;
const SETTLE_MS = 80;
const RETRY_MS = 2000;

export class VirtualTable {
  /** `columns` are [head, sort key, cell of a row]; `load(skip, limit, signal)` returns `{rows, matching}`. */
  constructor({ columns, load, sort, onSort, select, selected, group, count }) {
    Object.assign(this, { columns, load, sort, onSort, select, selected, group, count, pages: new Map(), matching: 0 });
    const head = ([name, field]) => {
      const isSorted = field && this.sort.replace(/^-/, '') === field;
      const direction = isSorted ? (this.sort.startsWith('-') ? 'descending' : 'ascending') : 'none';
      const mark = isSorted ? (direction === 'ascending' ? ' ▲' : ' ▼') : '';
      const next = isSorted && direction === 'descending' ? field : `-${field}`;
      const content = field ? el('button', { type: 'button', text: name + mark, onclick: () => this.onSort(next) }) : name;
      return el('th', { scope: 'col', 'aria-sort': field ? direction : null }, content);
    };
    const space = () => el('tr', { class: 'space', 'aria-hidden': 'true' }, el('td', { colspan: columns.length + 1 }));
    [this.above, this.below, this.shown, this.loading] = [space(), space(), new Map(), new Map()];
    this.body = el('tbody', {}, this.above, this.below);
    this.table = el('table', { 'aria-label': 'Attempts' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, el('span', { class: 'only-read', text: 'Select' })), ...columns.map(head))), this.body);
    this.element = el('div', { class: 'rows', tabindex: '0', role: 'region', 'aria-label': 'Attempts' }, this.table);
    this.element.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  async start() {
    const loaded = await this.load(0, PAGE);
    this.keep(0, loaded);
    return loaded;
  }

  /** Loads the visible rows again. The old ones stay until the answer is here. */
  async refresh() {
    this.stop(() => true);
    const at = Math.floor(this.first() / PAGE);
    const loaded = await this.load(at * PAGE, PAGE);
    this.pages.clear();
    this.keep(at, loaded);
  }

  keep(at, { rows, matching }) {
    this.pages.set(at, rows);
    this.matching = matching;
    this.draw();
  }

  /** Ends the requests for pages that `isUnwanted` names. */
  stop(isUnwanted) {
    for (const [at, request] of this.loading) if (isUnwanted(at)) {
      request.abort();
      this.loading.delete(at);
    }
  }

  /** Loads the visible pages a moment later, so that a drag over the whole table requests few of them. */
  want() {
    this.timer ??= setTimeout(() => {
      this.timer = undefined;
      const [first, last] = this.sight().map((row) => Math.floor(row / PAGE));
      this.stop((at) => at < first || at > last);
      for (let at = first; at <= last; at += 1) if (!this.pages.has(at) && !this.loading.has(at)) this.page(at);
    }, SETTLE_MS);
  }

  async page(at) {
    const request = new AbortController();
    this.loading.set(at, request);
    try {
      const loaded = await this.load(at * PAGE, PAGE, request.signal);
      if (!request.signal.aborted) this.keep(at, loaded);
    } catch (error) {
      if (error.name !== 'AbortError') setTimeout(() => this.draw(), RETRY_MS);
    } finally {
      if (this.loading.get(at) === request) this.loading.delete(at);
    }
  }

  first() {
    return Math.max(0, Math.floor(this.element.scrollTop / HEIGHT) - BEYOND);
  }

  /** The first visible row and the last one, with some more at both ends. */
  sight() {
    const first = this.first();
    const last = first + Math.ceil(this.element.clientHeight / HEIGHT) + 2 * BEYOND;
    return [first, Math.max(first, Math.min(this.matching, last) - 1)];
  }

  row(at) {
    return this.pages.get(Math.floor(at / PAGE))?.[at % PAGE];
  }

  /** Adds and removes single rows, so that the others keep the focus. */
  draw() {
    const [first, last] = this.matching ? this.sight() : [0, -1];
    const isOld = (one, at) => at < first || at > last || one.row !== this.row(at) || (this.group && one.before !== this.row(at - 1));
    for (const [at, one] of this.shown) if (isOld(one, at)) {
      if (one.element.contains(document.activeElement)) this.element.focus({ preventScroll: true });
      one.element.remove();
      this.shown.delete(at);
    }
    let before = this.above;
    for (let at = first; at <= last; at += 1) {
      const row = this.row(at);
      if (!row) this.want();
      if (!this.shown.has(at)) {
        this.shown.set(at, { row, before: this.row(at - 1), element: this.drawn(row, at) });
        before.after(this.shown.get(at).element);
      }
      before = this.shown.get(at).element;
    }
    this.element.style.maxHeight = `${(this.matching + 2) * HEIGHT + 20}px`;
    this.table.setAttribute('aria-rowcount', this.matching + 1);
    this.above.firstChild.style.height = `${first * HEIGHT}px`;
    this.below.firstChild.style.height = `${(this.matching - last - 1) * HEIGHT}px`;
  }

  /** Empties every checkbox. */
  clear() {
    this.body.querySelectorAll('input').forEach((box) => { box.checked = false; });
  }

  drawn(row, at) {
    if (!row) return el('tr', { 'aria-rowindex': at + 2 }, el('td', { colspan: this.columns.length + 1, class: 'faint', text: '…' }));
    const cell = ([, , value]) => {
      const found = value(row);
      const isNumber = typeof found === 'number';
      const shown = isNumber ? number(found) : found instanceof Node ? found : found == null ? '–' : String(found);
      return el('td', { class: isNumber ? 'number' : null, title: typeof shown === 'string' && shown.length > 30 ? shown : null }, shown);
    };
    const box = el('input', { type: 'checkbox', checked: this.selected.has(row.attempt), 'aria-label': `Select ${row.run.slice(0, 8)}`, onchange: (event) => this.select(row.attempt, event.target.checked) });
    const before = this.row(at - 1);
    const isNew = this.group && (!before || this.group(before) !== this.group(row));
    const cells = this.columns.map(cell);
    if (isNew) this.count?.(row).then((count) => { cells[1].append(` · ${count} attempts`); }, () => {});
    return el('tr', { 'aria-rowindex': at + 2, class: isNew ? 'group' : null }, el('td', {}, box), ...cells);
  }
}
