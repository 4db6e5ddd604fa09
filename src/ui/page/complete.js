// A text field that completes names as one types.

import { el, replace } from './dom.js';

/** A field; `names()` returns the completions, `done(text)` is called with Enter or when the field is left. */
export function completed({ label, value, placeholder, names, done }) {
  const list = el('ul', { class: 'choices', role: 'listbox', id: `c${Math.random().toString(36).slice(2)}`, hidden: true });
  const input = el('input', { type: 'text', value, placeholder, spellcheck: 'false', autocomplete: 'off', role: 'combobox', 'aria-expanded': 'false', 'aria-controls': list.id, 'aria-autocomplete': 'list' });
  let chosen = -1, found = [];
  const word = () => input.value.slice(0, input.selectionStart).match(/[\w.]*$/)[0];
  const close = () => {
    list.hidden = true;
    input.setAttribute('aria-expanded', 'false');
    chosen = -1;
  };
  const mark = () => [...list.children].forEach((item, at) => {
    item.setAttribute('aria-selected', at === chosen);
    if (at === chosen) item.scrollIntoView({ block: 'nearest' });
  });
  const take = (name) => {
    const end = input.selectionStart;
    const start = end - word().length;
    input.setRangeText(name, start, end, 'end');
    close();
    input.focus();
  };
  const offer = async () => {
    const begun = word().toLowerCase();
    const all = await names();
    if (document.activeElement !== input || !begun) return close();
    const rank = (name) => name.toLowerCase().startsWith(begun) || name.toLowerCase().split('.').at(-1).startsWith(begun);
    found = all.filter((name) => rank(name) && name !== begun).slice(0, 40);
    replace(list, ...found.map((name) => el('li', { role: 'option', text: name, onpointerdown: (event) => {
      event.preventDefault();
      take(name);
    } })));
    list.hidden = found.length === 0;
    input.setAttribute('aria-expanded', String(!list.hidden));
    chosen = -1;
  };
  input.addEventListener('input', offer);
  input.addEventListener('keydown', (event) => {
    const isOpen = !list.hidden;
    if (isOpen && (event.key === 'ArrowDown' || event.key === 'ArrowUp')) {
      chosen = (chosen + (event.key === 'ArrowDown' ? 1 : -1) + found.length) % found.length;
      mark();
    } else if (isOpen && (event.key === 'Tab' || (event.key === 'Enter' && chosen >= 0))) take(found[Math.max(chosen, 0)]);
    else if (isOpen && event.key === 'Escape') close();
    else if (event.key === 'Enter') {
      close();
      done(input.value.trim());
    } else return;
    event.preventDefault();
  });
  input.addEventListener('change', () => done(input.value.trim()));
  input.addEventListener('blur', close);
  return el('label', { class: 'grow' }, label, el('span', { class: 'field' }, input, list));
}
