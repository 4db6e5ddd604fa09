// A table of which only the rows in sight exist: pages of rows are loaded as one scrolls.

import { el, number, replace } from './dom.js';

const PAGE = 200;
const HEIGHT = 30;
const BEYOND = 12;

export class VirtualTable {
  /** `columns` are [head, what to sort by, cell of a row]; `load(skip, limit)` gives `{rows, matching}`. */
  constructor({ columns, load, sort, onSort, select, selected, group }) {
    Object.assign(this, { columns, load, sort, onSort, select, selected, group, pages: new Map(), matching: 0 });
    const head = ([name, field]) => {
      const isSorted = field && this.sort.replace(/^-/, '') === field;
      const direction = isSorted ? (this.sort.startsWith('-') ? 'descending' : 'ascending') : 'none';
      const mark = isSorted ? (direction === 'ascending' ? ' ▲' : ' ▼') : '';
      const next = isSorted && direction === 'descending' ? field : `-${field}`;
      const content = field ? el('button', { type: 'button', text: name + mark, onclick: () => this.onSort(next) }) : name;
      return el('th', { scope: 'col', 'aria-sort': field ? direction : null }, content);
    };
    this.body = el('tbody');
    this.table = el('table', { 'aria-label': 'Attempts' }, el('thead', {}, el('tr', {}, el('th', { scope: 'col' }, el('span', { class: 'only-read', text: 'Select' })), ...columns.map(head))), this.body);
    this.element = el('div', { class: 'rows', tabindex: '0', role: 'region', 'aria-label': 'Attempts' }, this.table);
    this.element.addEventListener('scroll', () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  async start() {
    return this.page(0);
  }

  /** Loads anew what is in sight. */
  async refresh() {
    this.pages.clear();
    await this.page(Math.floor(this.first() / PAGE));
    this.draw();
  }

  async page(at) {
    const loading = this.load(at * PAGE, PAGE);
    this.pages.set(at, []);
    try {
      const loaded = await loading;
      this.matching = loaded.matching;
      this.pages.set(at, loaded.rows);
      this.draw();
      return loaded;
    } catch (error) {
      this.pages.delete(at);
      throw error;
    }
  }

  first() {
    return Math.max(0, Math.floor(this.element.scrollTop / HEIGHT) - BEYOND);
  }

  row(at) {
    const page = Math.floor(at / PAGE);
    if (!this.pages.has(page)) this.page(page).catch(() => {});
    return this.pages.get(page)?.[at % PAGE];
  }

  draw() {
    const first = this.first();
    const last = Math.min(this.matching, first + Math.ceil(this.element.clientHeight / HEIGHT) + 2 * BEYOND);
    const rows = [];
    for (let at = first; at < last; at += 1) rows.push(this.drawn(this.row(at), at));
    const space = (count) => {
      const cell = el('td', { colspan: this.columns.length + 1 });
      cell.style.height = `${count * HEIGHT}px`;
      return el('tr', { class: 'space', 'aria-hidden': 'true' }, cell);
    };
    this.table.setAttribute('aria-rowcount', this.matching + 1);
    replace(this.body, space(first), ...rows, space(this.matching - last));
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
    const before = at > 0 ? this.pages.get(Math.floor((at - 1) / PAGE))?.[(at - 1) % PAGE] : null;
    const isNew = this.group && (!before || this.group(before) !== this.group(row));
    return el('tr', { 'aria-rowindex': at + 2, class: isNew ? 'group' : null }, el('td', {}, box), ...this.columns.map(cell));
  }
}
