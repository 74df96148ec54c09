// All checks of one page in a browser: a list of [check, error or ''].

import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

import { errorText } from './harness.mjs';
import { clashes, contrasts, plots } from './inside.mjs';

const PLOTS = [
  'Rate over time',
  'Latency over time',
  'Latency by percentile',
  'Processor time',
  'Memory of the tracker',
];
const LEGIBLE = 4.5; // WCAG 2, 1.4.3: contrast of text, level AA.
const SETTLE = 10_000;

// `pictures` is the directory for screenshots, if any.
export async function look(browser, file, report, pictures) {
  const found = [];
  const add = (name, wrong) => found.push([name, errorText(wrong)]);
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(SETTLE);
  try {
    const page = await context.newPage();
    const { errors, requested } = listen(page);
    await page.goto(pathToFileURL(file).href, { waitUntil: 'load' });
    const shoot = async (name) => {
      if (pictures) await page.screenshot({ path: join(pictures, `${name}.png`), fullPage: true });
    };

    add('figures are those of the JSON report', await figures(page, report));
    for (const [name, wrong] of data(await page.evaluate(plots))) add(name, wrong);
    add('texts in plots do not overlap', await page.evaluate(clashes));
    for (const scheme of ['light', 'dark']) {
      await page.emulateMedia({ colorScheme: scheme });
      add(`legible: ${scheme}`, legible(await page.evaluate(contrasts), scheme));
      await shoot(scheme);
    }
    await page.emulateMedia({ colorScheme: 'light' });
    add('a wide window needs no scrolling to the side', await sideways(page));
    await page.setViewportSize({ width: 390, height: 844 });
    add('a phone needs no scrolling to the side', await sideways(page));
    await shoot('phone');
    await page.setViewportSize({ width: 720, height: 1000 });
    await page.emulateMedia({ media: 'print' });
    add('print: nothing is cut off', await sideways(page, true));
    const pdf = await page.pdf({ format: 'A4', ...(pictures && { path: join(pictures, 'report.pdf') }) });
    add('print: makes a PDF', pdf.subarray(0, 5).toString() === '%PDF-' ? '' : 'no PDF');
    add('no errors', errors);
    add('no network requests', requested.filter((url) => url !== pathToFileURL(file).href));
  } finally {
    await context.close();
  }
  return found;
}

export function listen(page) {
  const [errors, requested] = [[], []];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => requested.push(request.url()));
  return { errors, requested };
}

// Compares the figures of the page with the JSON report.
async function figures(page, report) {
  const wrong = [];
  const right = report.kinds.reduce((sum, kind) => sum + kind.right, 0);
  const verdict = await page.locator('.verdict').innerText();
  if (right === 0 || !verdict.includes(right.toLocaleString('en-US'))) {
    wrong.push(`${right} right replies, but the page says: ${verdict}`);
  }
  const rows = await page.locator('h2:text-is("By kind of request") + div tbody tr').count();
  const sent = report.kinds.filter((kind) => kind.requests > 0).length;
  // The last row is that of all kinds together.
  if (rows !== sent + 1) wrong.push(`${sent} kinds of requests, but ${rows} rows`);
  const title = await page.locator('h1').innerText();
  if (!title.includes(report.setup.targets[0])) wrong.push(`the heading is ${title}`);
  const headline = await page.locator('.figures dd').allInnerTexts();
  const empty = headline.filter((text) => !/\d/.test(text));
  if (headline.length < 6 || empty.length > 0) wrong.push(`headline: ${headline.join(', ')}`);
  return wrong;
}

// Checks that every plot is present and has its data within its frame.
function data(found) {
  const checks = PLOTS.map((title) => {
    const plot = found.find((plot) => plot.title === title);
    return [`plot: ${title}`, plot ? shown(plot) : `not among: ${found.map((p) => p.title)}`];
  });
  const others = found.filter((plot) => !PLOTS.includes(plot.title)).map((plot) => plot.title);
  checks.push(['no unknown plots', others]);
  return checks;
}

function shown({ frame, lines }) {
  if (!frame) return 'no axes';
  if (lines.length === 0) return 'no legend';
  const wrong = lines.filter((line) => line.points === 0).map((line) => `${line.color} has no data`);
  if (!lines.some((line) => line.points > 5)) wrong.push('no line has more than five points');
  if (!lines.some((line) => line.right - line.left > frame.width / 3)) {
    wrong.push('no line spans a third of its width');
  }
  for (const line of lines.filter((line) => line.points > 0)) {
    // Half the width of a line and the radius of a mark may extend beyond the frame.
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
  const errors = wrong.map(({ text, ratio }) => `"${text}" has contrast ${ratio.toFixed(2)}`);
  if (texts.length < 40) errors.push(`only ${texts.length} texts are visible`);
  const fits = scheme === 'dark' ? back < 0.1 : back > 0.8;
  if (!fits) errors.push(`the background's luminance is ${back.toFixed(2)}`);
  return errors.slice(0, 5);
}

// Elements that need horizontal scrolling; with `all`, inner elements too, as paper does not scroll.
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
