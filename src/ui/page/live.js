// The running attempts, from the server's stream of events, and the state of that stream.

import { ask } from './api.js';

const STALE_MS = 25_000;
const MOST_POINTS = 240;

const listeners = new Set();
/** `end` is the message of a session that has ended. */
export const live = { running: [], isStale: false, losses: new Map(), end: null };
let last = Date.now();

/** Calls `then` now and at every change, with `hasSealed` if attempts were sealed. Returns a function that ends it. */
export function follow(then) {
  listeners.add(then);
  then({ hasSealed: false });
  return () => listeners.delete(then);
}

function tell(hasSealed) {
  listeners.forEach((then) => then({ hasSealed }));
}

function remember(running) {
  for (const one of running) {
    const points = live.losses.get(one.nonce) ?? [];
    if (one.loss != null && points.at(-1)?.[0] !== one.step) points.push([one.step ?? points.length, one.loss]);
    live.losses.set(one.nonce, points.slice(-MOST_POINTS));
  }
  for (const nonce of live.losses.keys()) {
    if (!running.some((one) => one.nonce === nonce)) live.losses.delete(nonce);
  }
}

let source, total;

function heard() {
  last = Date.now();
  live.isStale = false;
}

function open() {
  if (source || live.end) return;
  heard();
  source = new EventSource('/api/live');
  source.addEventListener('open', heard);
  source.addEventListener('running', (event) => {
    heard();
    live.running = JSON.parse(event.data).running ?? [];
    remember(live.running);
    tell(false);
  });
  source.addEventListener('sealed', (event) => {
    heard();
    const now = JSON.parse(event.data).total;
    const hasSealed = total !== undefined && now !== total;
    total = now;
    tell(hasSealed);
  });
  // Scripts do not receive comments, so the server sends its heartbeat as an event.
  source.addEventListener('here', heard);
  source.addEventListener('error', failed);
}

function close() {
  source?.close();
  source = undefined;
}

/** A browser connects again by itself, except after a refusal. Then the answer to a request has the reason. */
async function failed() {
  if (source?.readyState !== EventSource.CLOSED) return;
  close();
  try {
    await ask('names');
    setTimeout(open, 2000);
  } catch (error) {
    if (error.isEnd) live.end = error.message.trim();
    else setTimeout(open, 5000);
    tell(false);
  }
}

export function listen() {
  // A browser opens six connections to one server. A hidden tab gives its own back, so that more tabs can be open.
  const match = () => (document.hidden ? close() : open());
  document.addEventListener('visibilitychange', match);
  match();
  setInterval(() => {
    const isStale = !document.hidden && Date.now() - last > STALE_MS;
    if (isStale === live.isStale) return;
    live.isStale = isStale;
    tell(false);
  }, 1000);
}
