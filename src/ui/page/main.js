// Chooses the page by the address, and says whether the server is still there.

import { el, replace } from './dom.js';
import { follow, listen, live } from './live.js';
import { place } from './state.js';
import { runsPage } from './runs.js';
import { answersPage } from './answers.js';
import { runPage } from './run.js';
import { comparePage } from './compare.js';

const PAGES = { runs: ['Runs', runsPage], answers: ['Answers', answersPage], run: ['Run', runPage], compare: ['Compare', comparePage] };
const main = document.getElementById('main');
let leave;

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
    if (!here.signal.aborted) replace(main, content);
  } catch (error) {
    if (error.name === 'AbortError' || here.signal.aborted) return;
    replace(main, el('h1', { text: title }), el('pre', { class: 'error', role: 'alert', text: error.message }));
  }
}

const pulse = document.getElementById('pulse');
follow(() => {
  const count = live.running.length;
  pulse.className = live.isStale ? 'stale' : '';
  pulse.textContent = live.isStale ? 'No connection: this page shows old values' : count ? `${count} running` : '';
});
listen();
addEventListener('hashchange', show);
show();
