// Shows the page that the address names, and the state of the connection.

import { el, replace } from './dom.js';
import { follow, listen, live } from './live.js';
import { place } from './state.js';
import { runsPage } from './runs.js';
import { answersPage, prepareAnswers } from './answers.js';
import { forgetNames } from './api.js';
import { runPage } from './run.js';
import { comparePage } from './compare.js';

const PAGES = { runs: ['Runs', runsPage], answers: ['Answers', answersPage], run: ['Run', runPage], compare: ['Compare', comparePage] };
const main = document.getElementById('main');
let leave, before;

async function show() {
  leave?.abort();
  const here = new AbortController();
  leave = here;
  const { page, rest, options } = place();
  const [title, make] = PAGES[page] ?? PAGES.runs;
  document.title = rest ? `${title} ${rest.slice(0, 8)} – ledger` : `${title} – ledger`;
  document.querySelectorAll('nav a').forEach((link) => {
    if (link.hash.startsWith(`#/${page}`)) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  });
  try {
    const content = await make(rest, options, here.signal);
    if (!here.signal.aborted) put(content, `${page}/${rest}`);
  } catch (error) {
    if (error.name === 'AbortError' || here.signal.aborted) return;
    replace(main, el('h1', { text: title }), el('pre', { class: 'error', role: 'alert', text: error.message }));
  }
}

/** Replaces the page. A reload of the same page keeps the focus on the same control; a new page begins at its top. */
function put(content, name) {
  const control = main.contains(document.activeElement) && document.activeElement.name;
  replace(main, content);
  const same = control && main.querySelector(`[name="${CSS.escape(control)}"]`);
  if (same) same.focus({ preventScroll: true });
  else if (before !== undefined && before !== name) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
  before = name;
}

const pulse = document.getElementById('pulse');
follow(() => {
  const count = live.running.length;
  const state = live.end ?? (live.isStale ? 'No connection: this page shows old values' : count ? `${count} running` : '');
  pulse.className = live.end || live.isStale ? 'stale' : '';
  // An unchanged text is not set again: a screen reader would repeat it.
  if (pulse.textContent !== state) pulse.textContent = state;
});
listen();
// The address holds the page, so the link to the content moves the focus only.
document.querySelector('.skip').addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
  document.querySelectorAll('canvas').forEach((canvas) => canvas.dispatchEvent(new Event('redraw')));
});
addEventListener('hashchange', show);

/** How long nothing happens before answers are prepared. The server keeps no answer of a file that changed less than 2 s ago. */
const QUIET_MS = 3000;
/** After a sealed attempt, the next one of a sweep may follow. */
const QUIET_AFTER_SEALED_MS = 60_000;
let preparing, quiet;

/** Whether preparing disturbs no measurement, as far as this page knows. */
const isQuiet = () => live.running.length === 0 && !live.isStale && !live.end && !document.hidden;

function prepare(wait_ms = QUIET_MS) {
  clearTimeout(quiet);
  preparing?.abort();
  if (!isQuiet()) return;
  quiet = setTimeout(() => {
    if (!isQuiet()) return;
    preparing = new AbortController();
    prepareAnswers(preparing.signal).catch(() => {});
  }, wait_ms);
}
let wasQuiet = true;
follow(({ hasSealed }) => {
  if (hasSealed) forgetNames();
  // A running attempt reports often: only its start and its end matter here.
  if (hasSealed || isQuiet() !== wasQuiet) prepare(QUIET_AFTER_SEALED_MS);
  wasQuiet = isQuiet();
});
// A hidden page does not hear of attempts that start.
document.addEventListener('visibilitychange', () => prepare());
show().then(() => prepare());
