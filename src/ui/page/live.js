// The attempts that run, as the server tells of them, and whether it still does.

const STALE_MS = 25_000;
const MOST_POINTS = 240;

const listeners = new Set();
export const live = { running: [], isStale: false, losses: new Map() };
let last = Date.now();

/** Calls `then` now and at every change; gives a function that ends it. `then` is told when attempts were sealed. */
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

export function listen() {
  const source = new EventSource('/api/live');
  const heard = () => {
    last = Date.now();
    if (live.isStale) [live.isStale] = [false];
  };
  source.addEventListener('open', heard);
  source.addEventListener('running', (event) => {
    heard();
    live.running = JSON.parse(event.data).running ?? [];
    remember(live.running);
    tell(false);
  });
  let total;
  source.addEventListener('sealed', (event) => {
    heard();
    const now = JSON.parse(event.data).total;
    const hasSealed = total !== undefined && now !== total;
    total = now;
    tell(hasSealed);
  });
  // Comments keep the connection, but no script sees them: the server repeats its state as an event.
  source.addEventListener('here', heard);
  setInterval(() => {
    const isStale = Date.now() - last > STALE_MS;
    if (isStale === live.isStale) return;
    live.isStale = isStale;
    tell(false);
  }, 1000);
}
