// Functions evaluated inside the page. Each is self-contained, as the browser receives its source text.

// Every plot: its title, its frame (axes without ticks), and for each colour of the legend the number of
// points and their extent, in units of the viewBox.
export function plots() {
  const number = (element, name) => Number(element.getAttribute(name));
  return [...document.querySelectorAll('figure svg')].map((svg) => {
    const swatches = [...svg.querySelectorAll('rect')].filter((rect) => number(rect, 'width') === 18);
    const colors = swatches.map((rect) => rect.getAttribute('fill'));
    const strokes = [...svg.querySelectorAll('polyline, line')].filter(
      (line) => !colors.includes(line.getAttribute('stroke')),
    );
    const boxes = strokes.map((line) => line.getBBox());
    const longest = (side) => boxes.reduce((a, b) => (b[side] > (a?.[side] ?? 50) ? b : a), undefined);
    const [across, up] = [longest('width'), longest('height')];
    const frame = across && up && {
      left: across.x,
      right: across.x + across.width,
      top: up.y,
      bottom: up.y + up.height,
      width: across.width,
    };
    const lines = colors.map((color) => {
      const line = { color, points: 0, left: 1e9, right: -1e9, top: 1e9, bottom: -1e9 };
      for (const drawn of svg.querySelectorAll('polyline, circle')) {
        if (![drawn.getAttribute('stroke'), drawn.getAttribute('fill')].includes(color)) continue;
        const box = drawn.getBBox();
        line.points += drawn.points?.numberOfItems ?? 1;
        line.left = Math.min(line.left, box.x);
        line.right = Math.max(line.right, box.x + box.width);
        line.top = Math.min(line.top, box.y);
        line.bottom = Math.max(line.bottom, box.y + box.height);
      }
      return line;
    });
    return { title: svg.getAttribute('aria-label'), frame, lines };
  });
}

// Texts in plots that are cut off, overlap each other, or cross an axis.
export function clashes() {
  const SLACK = 1.5; // The box of a line of text is higher than its letters.
  const wrong = [];
  for (const svg of document.querySelectorAll('figure svg')) {
    const outer = svg.getBoundingClientRect();
    const texts = [...svg.querySelectorAll('text')].map((text) => {
      const { left, right, top, bottom } = text.getBoundingClientRect();
      return { left, right, top, bottom, says: text.textContent.trim() };
    });
    const overlap = (a, b) =>
      Math.min(a.right, b.right) - Math.max(a.left, b.left) > SLACK &&
      Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > SLACK;
    const title = svg.getAttribute('aria-label');
    for (const [n, text] of texts.entries()) {
      const inside =
        text.left >= outer.left && text.right <= outer.right &&
        text.top >= outer.top && text.bottom <= outer.bottom;
      if (!inside) wrong.push(`${title}: "${text.says}" is cut off`);
      for (const other of texts.slice(n + 1)) {
        if (overlap(text, other)) wrong.push(`${title}: "${text.says}" overlaps "${other.says}"`);
      }
    }
    // The shaded area of the warm-up reaches the top of the frame; its label belongs inside.
    const shade = svg.querySelector('rect[fill="#EEF0F4"]')?.getBoundingClientRect();
    for (const text of texts.filter((text) => text.says === 'warm-up')) {
      if (!shade || text.top < shade.top || text.left < shade.left) {
        wrong.push(`${title}: "${text.says}" crosses the frame`);
      }
    }
    if (texts.length < 8) wrong.push(`${title}: only ${texts.length} texts`);
  }
  return wrong.slice(0, 5);
}

// The contrast of every text with its background, by WCAG 2, and the luminance of the page.
export function contrasts() {
  const parse = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const luminance = (color) => {
    const linear = (c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = parse(color).slice(0, 3).map(linear);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  const clear = (color) => parse(color)[3] === 0;
  const behind = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (!clear(color)) return color;
    }
    return 'rgb(255, 255, 255)';
  };
  const texts = [];
  for (const element of document.body.querySelectorAll('*')) {
    const own = [...element.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE);
    const text = own.map((node) => node.data.trim()).join(' ').trim();
    if (text === '') continue;
    const svg = element.closest('svg');
    const style = getComputedStyle(element);
    // A plot in a report has its own backgrounds: its first rectangle and the shaded area.
    const rects = ['rect', 'rect[fill="#EEF0F4"]'].map((name) => svg?.querySelector(name)).filter(Boolean);
    const backgrounds = rects.length ? rects.map((rect) => getComputedStyle(rect).fill) : [behind(element)];
    const color = luminance(svg ? style.fill : style.color);
    const lowest = Math.min(...backgrounds.map((background) => ratio(color, luminance(background))));
    texts.push({ text: text.slice(0, 40), ratio: lowest });
  }
  return { back: luminance(behind(document.body)), texts };
}
