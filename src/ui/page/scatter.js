// A scatter plot of configurations by two metrics, with intervals, the front, and a frame to select points.

import { clock, el, quantity } from './dom.js';
import { ticks } from './chart.js';

const WIDTH = 720, HEIGHT = 380, LEFT = 70, BOTTOM = 40, EDGE = 12;

/** `metrics` are two `{metric, unit}`; `onSelect` is called with the points in the frame. */
export function scatter(points, metrics, onSelect) {
  const [across, up] = metrics;
  const mark = (value, unit, all) => (unit === 's' && all.length > 1 ? clock(value, all[1] - all[0]) : quantity(value, unit));
  const range = ({ metric }) => {
    const ends = points.flatMap(({ metrics: of }) => [of[metric].mean - (of[metric].half_width ?? 0), of[metric].mean + (of[metric].half_width ?? 0)]);
    const means = points.map(({ metrics: of }) => of[metric].mean);
    // Intervals of two attempts may be so wide that the plot would be useless.
    const room = (Math.max(...means) - Math.min(...means) || Math.abs(means[0]) || 1) * 0.5;
    const [low, high] = [Math.max(Math.min(...ends), Math.min(...means) - room), Math.min(Math.max(...ends), Math.max(...means) + room)];
    const edge = (high - low || Math.abs(high) || 1) * 0.05;
    return [low - edge, high + edge];
  };
  const [xs, ys] = [range(across), range(up)];
  const x = (value) => LEFT + ((value - xs[0]) / (xs[1] - xs[0])) * (WIDTH - LEFT - EDGE);
  const y = (value) => HEIGHT - BOTTOM - ((value - ys[0]) / (ys[1] - ys[0])) * (HEIGHT - BOTTOM - EDGE);
  const place = ({ metrics: of }) => [x(of[across.metric].mean), y(of[up.metric].mean)];
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  const bar = (point) => {
    const [left, top] = place(point);
    const reach = (metric) => point.metrics[metric].half_width ?? 0;
    const line = (x1, y1, x2, y2) => el('line', { x1: clamp(x1, LEFT, WIDTH - EDGE), x2: clamp(x2, LEFT, WIDTH - EDGE), y1: clamp(y1, EDGE, HEIGHT - BOTTOM), y2: clamp(y2, EDGE, HEIGHT - BOTTOM), stroke: 'currentColor', 'stroke-opacity': 0.45 });
    const [mx, my] = [point.metrics[across.metric].mean, point.metrics[up.metric].mean];
    return [line(x(mx - reach(across.metric)), top, x(mx + reach(across.metric)), top), line(left, y(my - reach(up.metric)), left, y(my + reach(up.metric)))];
  };
  const dot = (point) => {
    const [cx, cy] = place(point);
    return el('circle', { cx, cy, r: 5, fill: point.on_front ? 'var(--accent)' : 'var(--ground)', stroke: 'var(--accent)', 'stroke-width': 1.5 });
  };
  const front = points.filter((point) => point.on_front).map(place).sort((a, b) => a[0] - b[0]);
  const marks = [
    ...ticks(...xs, 6).map((value, _, all) => el('text', { x: x(value), y: HEIGHT - BOTTOM + 15, 'text-anchor': 'middle' }, mark(value, across.unit, all))),
    ...ticks(...ys, 6).flatMap((value, _, all) => [el('line', { x1: LEFT, x2: WIDTH - EDGE, y1: y(value), y2: y(value), stroke: 'var(--line)' }), el('text', { x: LEFT - 6, y: y(value) + 4, 'text-anchor': 'end' }, mark(value, up.unit, all))]),
    el('text', { x: (LEFT + WIDTH) / 2, y: HEIGHT - 6, 'text-anchor': 'middle' }, across.metric),
    el('text', { x: 14, y: HEIGHT / 2, 'text-anchor': 'middle', transform: `rotate(-90 14 ${HEIGHT / 2})` }, up.metric),
  ];
  const frame = el('rect', { fill: 'var(--accent)', 'fill-opacity': 0.15, stroke: 'var(--accent)', visibility: 'hidden' });
  const line = el('polyline', { points: front.map((one) => one.join(',')).join(' '), fill: 'none', stroke: 'var(--accent)', 'stroke-dasharray': '4 3' });
  const svg = el('svg', { class: 'plot', viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: 'img', 'aria-label': `${up.metric} against ${across.metric}; the list below has the same points` }, ...marks, line, ...points.flatMap(bar), ...points.map(dot), frame);
  brush(svg, frame, (left, top, right, bottom) => onSelect(points.filter((point) => {
    const [px, py] = place(point);
    return px >= left && px <= right && py >= top && py <= bottom;
  })));
  return svg;
}

function brush(svg, frame, done) {
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * WIDTH, ((event.clientY - box.top) / box.height) * HEIGHT];
  };
  let start = null;
  const edges = (end) => [Math.min(start[0], end[0]), Math.min(start[1], end[1]), Math.max(start[0], end[0]), Math.max(start[1], end[1])];
  svg.addEventListener('pointerdown', (event) => {
    start = at(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener('pointermove', (event) => {
    if (!start) return;
    const [left, top, right, bottom] = edges(at(event));
    Object.entries({ x: left, y: top, width: right - left, height: bottom - top, visibility: 'visible' }).forEach(([name, value]) => frame.setAttribute(name, value));
  });
  svg.addEventListener('pointerup', (event) => {
    const found = edges(at(event));
    start = null;
    const isClick = found[2] - found[0] < 4 && found[3] - found[1] < 4;
    if (isClick) frame.setAttribute('visibility', 'hidden');
    done(...(isClick ? [1, 1, 0, 0] : found));
  });
}
