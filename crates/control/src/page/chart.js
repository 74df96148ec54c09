// A line chart over time, as SVG. Each line has its own dash pattern, so colour is not required. A span shows the shortest
// of its windows that has room for all points, in seconds; a line ends where points are further apart than its gap.
const SPANS = {
  hour: { windows: [60, 120, 300, 900, 1800, 3600], gap: 7 },
  month: { windows: [6, 24, 72, 168, 336, 744].map((hours) => hours * 3600), gap: 5400 },
};
const APART = [10, 20, 30, 60, 120, 300, 600, 1200, 3600, 7200, 21600, 43200, 86400, 172800, 432000];
const SVG = 'http://www.w3.org/2000/svg';
function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
// The class of a line.
const style = (at) => `line${at % 5}`;
// A sample of a line for a legend.
function sample(style) {
  const element = svg('svg', { class: 'sample', viewBox: '0 0 28 8', 'aria-hidden': 'true' });
  element.append(svg('path', { class: style, d: 'M0 4H28' }));
  return element;
}
// The smallest step of the form 1, 2 or 5 times a power of ten of which four reach the value.
function step(most) {
  const power = 10 ** Math.floor(Math.log10(Math.max(most, 4) / 4));
  return [1, 2, 5, 10].map((n) => n * power).find((n) => n * 4 >= most * 0.999);
}
// The commands of a line.
function path(points, gap, name, x, y) {
  let path = '', before = null;
  for (const { time, drawn } of points) {
    if (drawn?.[name] === undefined) { before = null; continue; }
    path += `${before !== null && time - before < gap ? 'L' : 'M'}${x(time).toFixed(1)} ${y(drawn[name]).toFixed(1)}`;
    before = time;
  }
  return path;
}
// A time in the largest unit of which `step` is a multiple: labels of an axis have the unit of their distance.
function age(seconds, step) {
  const [size, unit] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']].find(([size]) => step % size === 0);
  return `${seconds / size} ${unit}`;
}
class Chart {
  // `lines` are [name, label, class]; `key` is the element of the legend, if any.
  constructor(element, lines, key) {
    Object.assign(this, { element, lines, points: [], months: [], span: 'hour', values: {}, pointed: null });
    for (const [name, label, style] of key ? lines : []) {
      const item = document.createElement('li');
      this.values[name] = document.createElement('b');
      this.values[name].textContent = '–';
      item.append(sample(style), label + ' ', this.values[name]);
      key.append(item);
    }
    this.title = element.getAttribute('aria-label');
    element.addEventListener('pointermove', (event) => { this.pointed = event.offsetX; this.draw(); });
    element.addEventListener('pointerleave', () => { this.pointed = null; this.draw(); });
    new ResizeObserver(() => this.draw()).observe(element);
  }
  // `drawn` has a number for each line; null interrupts the lines.
  add(time, drawn) {
    // The clock was set back.
    if (time < this.points.at(-1)?.time) this.points = [];
    this.points.push({ time, drawn });
    while (this.points[0].time < time - SPANS.hour.windows.at(-1) - 10) this.points.shift();
    this.draw();
  }
  // Replaces the points of the past; those that are newer stay.
  setPast(hour, months) {
    const until = hour.at(-1)?.time ?? 0;
    this.points = [...hour, ...this.points.filter((point) => point.time > until)];
    this.months = months;
    this.draw();
  }
  setSpan(span) {
    this.span = span;
    this.draw();
  }
  draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width) return;
    // The line of a month goes on to this moment.
    const points = this.span === 'hour' ? this.points : [...this.months, ...this.points.slice(-1)];
    const { windows, gap } = SPANS[this.span];
    const last = points.at(-1)?.time ?? 0;
    const length = windows.find((window) => last - (points[0]?.time ?? last) <= window + 1) ?? windows.at(-1);
    const left = 46, right = width - 4, top = 10, bottom = height - 22;
    let most = 4;
    for (const { drawn } of points) for (const [name] of drawn ? this.lines : []) most = Math.max(most, drawn[name] ?? 0);
    const tick = step(most);
    const x = (time) => right - ((last - time) / length) * (right - left);
    const y = (value) => bottom - (value / (tick * 4)) * (bottom - top);
    const parts = [];
    for (let n = 0; n <= 4; n += height > 150 ? 1 : 2) {
      parts.push(svg('line', { class: 'grid', x1: left, x2: right, y1: y(n * tick), y2: y(n * tick) }));
      parts.push(svg('text', { x: left - 7, y: y(n * tick) + 4, 'text-anchor': 'end' }, tickLabel(n * tick)));
    }
    parts.push(...this.times(length, right - left, (ago) => x(last - ago), height - 5));
    const shown = points.filter((point) => point.time >= last - length);
    for (const [name, , style] of this.lines) parts.push(svg('path', { class: style, d: path(shown, gap, name, x, y) }));
    const at = this.nearest(points, x);
    if (at) parts.push(svg('line', { class: 'at', x1: x(at.time), x2: x(at.time), y1: top, y2: bottom }));
    this.element.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.element.replaceChildren(...parts);
    this.showValues(at ?? points.at(-1), at && last - at.time);
  }
  // Labels of the time axis, as many as fit.
  times(length, width, x, y) {
    const apart = APART.find((apart) => (width * apart) / length > 80) ?? length;
    const labels = [];
    for (let ago = 0; ago <= length; ago += apart) {
      const anchor = ago === 0 ? 'end' : ago === length ? 'start' : 'middle';
      labels.push(svg('text', { x: x(ago), y, 'text-anchor': anchor }, ago === 0 ? 'now' : `−${age(ago, apart)}`));
    }
    return labels;
  }
  // The point below the pointer, if there is one.
  nearest(points, x) {
    if (this.pointed === null) return undefined;
    const far = (point) => Math.abs(x(point.time) - this.pointed);
    return points.filter((point) => point.drawn).reduce((a, b) => (a && far(a) < far(b) ? a : b), undefined);
  }
  showValues(point, ago) {
    // A point of another version may lack a line.
    const shown = (name) => (point?.drawn?.[name] === undefined ? '–' : count(point.drawn[name]));
    const now = this.lines.map(([name, label]) => `${label} ${shown(name)}`);
    this.element.setAttribute('aria-label', `${this.title}: ${now.join(', ')}`);
    for (const [name, value] of Object.entries(this.values)) {
      value.textContent = shown(name);
      value.title = ago ? `${span(ago)} ago` : '';
    }
  }
}
