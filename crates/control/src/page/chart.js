// A line chart of the last minutes, as SVG. Each line has its own dash pattern, so colour is not required.
const WINDOWS = [60, 120, 300], GAP = 7;
const SVG = 'http://www.w3.org/2000/svg';
function svg(name, attributes, text) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
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
class Chart {
  // `lines` are [name, label, class]; `key` is the element of the legend, if any.
  constructor(element, lines, key) {
    Object.assign(this, { element, lines, points: [], values: {}, pointed: null });
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
    this.points.push({ time, drawn });
    while (this.points[0].time < time - WINDOWS.at(-1) - 10) this.points.shift();
    this.draw();
  }
  draw() {
    const { clientWidth: width, clientHeight: height } = this.element;
    if (!width) return;
    const last = this.points.at(-1)?.time ?? 0;
    const length = WINDOWS.find((window) => last - (this.points[0]?.time ?? last) <= window + 1) ?? WINDOWS.at(-1);
    const left = 46, right = width - 4, top = 10, bottom = height - 22;
    const seen = this.points.filter((point) => point.drawn);
    const tick = step(Math.max(4, ...seen.flatMap(({ drawn }) => this.lines.map(([name]) => drawn[name]))));
    const x = (time) => right - ((last - time) / length) * (right - left);
    const y = (value) => bottom - (value / (tick * 4)) * (bottom - top);
    const parts = [];
    for (let n = 0; n <= 4; n += height > 150 ? 1 : 2) {
      parts.push(svg('line', { class: 'grid', x1: left, x2: right, y1: y(n * tick), y2: y(n * tick) }));
      parts.push(svg('text', { x: left - 7, y: y(n * tick) + 4, 'text-anchor': 'end' }, tickLabel(n * tick)));
    }
    parts.push(...this.times(length, right - left, (ago) => x(last - ago), height - 5));
    for (const [name, , style] of this.lines) parts.push(svg('path', { class: style, d: this.path(name, x, y, last - length) }));
    const at = this.nearest(x);
    if (at) parts.push(svg('line', { class: 'at', x1: x(at.time), x2: x(at.time), y1: top, y2: bottom }));
    this.element.setAttribute('viewBox', `0 0 ${width} ${height}`);
    this.element.replaceChildren(...parts);
    this.showValues(at ?? this.points.at(-1), at && last - at.time);
  }
  // Labels of the time axis, as many as fit.
  times(length, width, x, y) {
    const apart = [10, 20, 30, 60, 120].find((apart) => (width * apart) / length > 80) ?? length;
    const labels = [];
    for (let ago = 0; ago <= length; ago += apart) {
      const anchor = ago === 0 ? 'end' : ago === length ? 'start' : 'middle';
      const text = ago === 0 ? 'now' : ago % 60 ? `−${ago} s` : `−${ago / 60} min`;
      labels.push(svg('text', { x: x(ago), y, 'text-anchor': anchor }, text));
    }
    return labels;
  }
  path(name, x, y, start) {
    let path = '', before = null;
    for (const { time, drawn } of this.points) {
      if (!drawn || time < start) { before = null; continue; }
      path += `${before !== null && time - before < GAP ? 'L' : 'M'}${x(time).toFixed(1)} ${y(drawn[name]).toFixed(1)}`;
      before = time;
    }
    return path;
  }
  nearest(x) {
    if (this.pointed === null) return undefined;
    const far = (point) => Math.abs(x(point.time) - this.pointed);
    return this.points.filter((point) => point.drawn).sort((a, b) => far(a) - far(b))[0];
  }
  showValues(point, ago) {
    const now = this.lines.map(([name, label]) => `${label} ${point?.drawn ? count(point.drawn[name]) : '–'}`);
    this.element.setAttribute('aria-label', `${this.title}: ${now.join(', ')}`);
    for (const [name, value] of Object.entries(this.values)) {
      value.textContent = point?.drawn ? count(point.drawn[name]) : '–';
      value.title = ago ? `${ago.toFixed(0)} s ago` : '';
    }
  }
}
