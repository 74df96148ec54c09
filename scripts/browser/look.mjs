// One page, looked at in a browser from all sides: a list of [check, what is wrong or ''].

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { clashes, contrasts, plots } from './inside.mjs';

const PLOTS = [
  'Rate over time',
  'Latency over time',
  'Latency by percentile',
  'Processor time',
  'Memory of the tracker',
  'Datagrams that the kernel dropped before the tracker',
];
const LEGIBLE = 4.5; // WCAG 2, 1.4.3: contrast of text, level AA.
const SETTLE = 10_000;

// `pictures` is a directory for screenshots, or none.
export async function look(browser, file, report, pictures) {
  const found = [];
  const tell = (name, wrong) => found.push([name, [wrong].flat().filter(Boolean).join('; ')]);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(SETTLE);
  try {
    const page = await context.newPage();
    const { errors, asked } = listen(page);
    await page.goto(pathToFileURL(file).href, { waitUntil: 'load' });
    const shoot = async (name) => {
      if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
    };

    tell('figures are those of the JSON report', await figures(page, report));
    for (const [name, wrong] of data(await page.evaluate(plots))) tell(name, wrong);
    tell('texts in plots do not meet', await page.evaluate(clashes));
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      tell(`legible: ${scheme}`, legible(await page.evaluate(contrasts), scheme));
      await shoot(scheme);
    }
    await page.emulateMedia({ colorScheme: 'light' });
    tell('a wide window needs no scrolling to the side', await sideways(page));
    await page.setViewportSize({ width: 390, height: 844 });
    tell('a phone needs no scrolling to the side', await sideways(page));
    await shoot('phone');
    await page.setViewportSize({ width: 720, height: 1000 });
    await page.emulateMedia({ media: 'print' });
    tell('print: nothing is cut off', await sideways(page, true));
    const pdf = await page.pdf({ format: 'A4', ...(pictures && { path: join(pictures, 'report.pdf') }) });
    tell('print: makes a PDF', pdf.subarray(0, 5).toString() === '%PDF-' ? '' : 'no PDF came');
    tell('no errors', errors);
    tell('asks nobody', asked.filter((url) => url !== pathToFileURL(file).href));
  } finally {
    await context.close();
  }
  return found;
}

export function listen(page) {
  const [errors, asked] = [[], []];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => asked.push(request.url()));
  return { errors, asked };
}

// Whether the page tells what the JSON does: as many replies, rows and plots.
async function figures(page, report) {
  const wrong = [];
  const right = report.kinds.reduce((sum, kind) => sum + kind.right, 0);
  const verdict = await page.locator('.verdict').innerText();
  if (right === 0 || !verdict.includes(right.toLocaleString('en-US'))) {
    wrong.push(`${right} right replies, but the page says: ${verdict}`);
  }
  const rows = await page.locator('table.kinds tbody tr').count();
  const sent = report.kinds.filter((kind) => kind.requests > 0).length;
  if (rows !== sent) wrong.push(`${sent} kinds of requests, but ${rows} rows`);
  const title = await page.locator('h1').innerText();
  if (!title.includes(report.setup.targets[0])) wrong.push(`the heading is ${title}`);
  const headline = await page.locator('.figures dd').allInnerTexts();
  const empty = headline.filter((text) => !/\d/.test(text));
  if (headline.length < 6 || empty.length > 0) wrong.push(`headline: ${headline.join(', ')}`);
  return wrong;
}

// Whether every plot is there and has its data within its frame.
function data(found) {
  const checks = PLOTS.map((title) => {
    const plot = found.find((plot) => plot.title === title);
    return [`plot: ${title}`, plot ? shown(plot) : `not among: ${found.map((p) => p.title)}`];
  });
  const others = found.filter((plot) => !PLOTS.includes(plot.title)).map((plot) => plot.title);
  checks.push(['no plot that nobody knows', others]);
  return checks;
}

function shown({ frame, lines }) {
  if (!frame) return 'it has no axes';
  if (lines.length === 0) return 'it has no legend';
  const wrong = lines.filter((line) => line.points === 0).map((line) => `${line.color} has no data`);
  if (!lines.some((line) => line.points > 5)) wrong.push('no line has more than five points');
  if (!lines.some((line) => line.right - line.left > frame.width / 3)) {
    wrong.push('no line goes over a third of its width');
  }
  for (const line of lines.filter((line) => line.points > 0)) {
    // Half a line's width and a mark's radius may stand over.
    const over = Math.max(
      frame.left - line.left,
      line.right - frame.right,
      frame.top - line.top,
      line.bottom - frame.bottom,
    );
    if (!(over <= 4)) wrong.push(`${line.color} leaves the frame by ${over}`);
  }
  return wrong;
}

export function legible({ back, texts }, scheme) {
  const wrong = texts.filter((text) => !(text.ratio >= LEGIBLE));
  const said = wrong.map(({ text, ratio }) => `"${text}" has contrast ${ratio.toFixed(2)}`);
  if (texts.length < 40) said.push(`only ${texts.length} texts are seen`);
  const fits = scheme === 'dark' ? back < 0.1 : back > 0.8;
  if (!fits) said.push(`the background's luminance is ${back.toFixed(2)}`);
  return said.slice(0, 5);
}

// With `all`, inner parts may not need it either: paper does not scroll.
export async function sideways(page, all = false) {
  return page.evaluate((all) => {
    const root = document.documentElement;
    const wrong = [];
    if (root.scrollWidth > root.clientWidth) {
      wrong.push(`${root.scrollWidth} pixels in ${root.clientWidth}`);
    }
    for (const element of all ? document.querySelectorAll('figure, .wide') : []) {
      if (element.scrollWidth > element.clientWidth) {
        const name = `${element.tagName} ${element.className}`;
        wrong.push(`${name}: ${element.scrollWidth} in ${element.clientWidth}`);
      }
    }
    return wrong;
  }, all);
}
