// Tests the tracker's status page in a browser: it shows the tracker's numbers under load, while the tracker is down,
// after a restart, at the sizes of public trackers, and without scripts. Then the page is broken in several ways, and
// the checks must find each. Called by scripts/browser-test with its directory and that of the programs, and `short` for
// the checks that no delay of the host can disturb. Uses ports 25121 (of ::1 too) and 25122 of 127.0.0.1; a peer over HTTP
// and one over WebSocket are in the numbers from the beginning.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { join, resolve } from 'node:path';

import { check, checkBreakages, errorText, run, style } from './harness.mjs';
import { contrasts } from './inside.mjs';
import { value } from './labels.mjs';
import { legible, listen, sideways } from './look.mjs';
import { end, load, stop, tracker, until } from './tracker.mjs';

const place = resolve(process.argv[2]);
const at = {
  bin: resolve(process.argv[3]),
  place,
  state: join(place, 'state'),
  config: join(place, 'status.toml'),
  udp: '127.0.0.1:25121',
  udp6: '[::1]:25121',
  http: '127.0.0.1:25121',
  admin: '127.0.0.1:25122',
};
const base = `http://${at.admin}`;
const DENIED = '0123456789abcdef0123456789abcdef01234567';
// Errors that the browser itself logs while the tracker is down.
const REFUSED = /Failed to load resource: net::ERR_(CONNECTION_(REFUSED|RESET)|EMPTY_RESPONSE)|status of 503/;

// An invalid or a negative number; the minutes of a chart have a different minus sign.
const NONE = /NaN|undefined|Infinity|null|(^|\s)-\d[^\s]*/m;

const text = (page, id) => page.locator(`#${id}`).innerText();
const stats = async () => (await fetch(`${base}/stats.json`)).json();
const answers = () => fetch(`${base}/ready`).then((answer) => answer.ok, () => false);

// Records the layout shifts that the browser reports from the first paint on.
function watchShifts() {
  window.shifts = { sum: 0, who: [] };
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      window.shifts.sum += entry.value;
      window.shifts.who.push(...entry.sources.map(({ node }) => node?.id || node?.nodeName));
    }
  }).observe({ type: 'layout-shift', buffered: true });
}

// Opens the page. `change` changes its text, `adjust` the statistics that it requests.
async function open(browser, change, adjust) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 1600 } });
  context.setDefaultTimeout(120_000);
  const page = await context.newPage();
  const heard = listen(page);
  await page.addInitScript(watchShifts);
  if (change) {
    await page.route(`${base}/`, async (route) => {
      const answer = await route.fetch();
      const before = await answer.text();
      const body = change(before);
      if (body === before) throw new Error('the text to break is not in the page');
      await route.fulfill({ response: answer, body });
    });
  }
  if (adjust) {
    await page.route(`${base}/stats.json`, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: adjust(await response.json()) });
    });
    // The past has other numbers.
    await page.route(`${base}/history.json`, (route) => route.fulfill({ status: 404 }));
  }
  const answer = await page.goto(`${base}/`, { waitUntil: 'load' });
  return { context, page, answer, ...heard };
}

// A screenshot of the whole page resizes the window; layout shifts from that do not count.
async function picture(page, name) {
  const before = await page.evaluate(() => window.shifts);
  await page.screenshot({ path: join(place, `status-${name}.png`), fullPage: true });
  await page.evaluate(async (before) => {
    for (let n = 0; n < 3; n += 1) await new Promise(requestAnimationFrame);
    window.shifts = before;
  }, before);
}

// Checks that the lines of peers by family and of swarms end at the tracker's numbers.
async function drawn(page) {
  let wrong = [];
  await until(async () => {
    const { families, totals } = await stats();
    const wanted = [families.ipv4.peers, families.ipv6.peers, totals.swarms];
    wrong = await page.evaluate((wanted) => {
      const shown = [...document.querySelectorAll('#stored-key b')].map((value) => value.textContent);
      const lines = [...document.querySelectorAll('#stored path')].map((line) => line.getAttribute('d'));
      const heights = lines.map((line) => Number(line.split(' ').at(-1)));
      // Labels of the axis are four pixels below their value.
      const ticks = [...document.querySelectorAll('#stored text[text-anchor=end]')].filter((text) => text.previousSibling?.matches('.grid'));
      const [zero, top] = [ticks[0], ticks.at(-1)].map((text) => Number(text.getAttribute('y')) - 4);
      const most = Math.max(...wanted), of = (n) => zero - (n / most) * (zero - Math.min(...heights));
      return [
        shown.length === 3 && lines.length === 3 ? '' : `${shown.length} numbers, ${lines.length} lines`,
        ...wanted.map((n, at) => (shown[at] === count(n) ? '' : `${shown[at]} is not ${count(n)}`)),
        ...lines.map((line, at) => (line.split('L').length >= 2 ? '' : `line ${at} has no length: "${line}"`)),
        ...wanted.map((n, at) => (Math.abs(heights[at] - of(n)) < 1 ? '' : `line ${at} ends at ${heights[at]}, not at ${of(n)}`)),
        Math.min(...heights) >= top - 0.1 ? '' : 'a line leaves the chart',
      ].filter(Boolean);
    }, wanted);
    return wrong.length === 0;
  }, 6);
  return wrong;
}

// Checks that hold at any time: a list of [check, error].
async function look({ page, errors, requested }, pictures) {
  const found = [];
  const shoot = (name) => pictures && picture(page, name);
  // A rate needs two sets of statistics; the page requests the second by itself.
  const counted = await until(async () => /^[\d.]+.*\/s$/.test(await text(page, 't-requests')), 8);
  found.push(['rates are shown', counted ? '' : `requests are ${await text(page, 't-requests')}`]);
  const content = await page.locator('main').innerText();
  found.push(['no invalid number', content.match(NONE)?.[0]]);
  // The page itself adds a point every two seconds.
  const past = () => page.evaluate(() => document.querySelector('#stored path').getAttribute('d').split('L').length);
  found.push(['the past is drawn', (await until(async () => (await past()) >= 10, 3)) ? '' : `${await past()} points`]);
  const points = await past();
  found.push(['the charts go on', (await until(async () => (await past()) > points, 6)) ? '' : `${points} points`]);
  const paths = await page.locator('#rates path').count();
  found.push(['the chart has its five lines', paths === 5 ? '' : `${paths} lines`]);
  for (const [name, id] of [['numbers of HTTP', 'http'], ['WebRTC peers', 'webrtc-peers']]) {
    found.push([`${name} are shown`, (await page.locator(`#${id} tr`).first().isVisible()) ? '' : 'no row']);
  }
  found.push(['peers and swarms are drawn', await drawn(page)]);
  const shifts = await page.evaluate(() => window.shifts);
  found.push(['no layout shifts', shifts.sum < 0.01 ? '' : `shifts of ${shifts.sum}: ${shifts.who}`]);
  for (const scheme of ['light', 'dark']) {
    await page.emulateMedia({ colorScheme: scheme });
    found.push([`legible: ${scheme}`, legible(await page.evaluate(contrasts), scheme)]);
    await shoot(scheme);
  }
  await page.emulateMedia({ colorScheme: 'light' });
  for (const width of [1280, 800, 360]) {
    await page.setViewportSize({ width, height: 900 });
    found.push([`${width} pixels: no scrolling to the side`, await sideways(page)]);
    found.push([`${width} pixels: no cell is cut off`, await page.evaluate(() =>
      [...document.querySelectorAll('th, td, dd, dt')]
        .filter((cell) => cell.offsetParent && cell.scrollWidth > cell.clientWidth + 1 && !cell.querySelector('.unseen'))
        .map((cell) => `"${cell.textContent.trim()}"`))]);
  }
  await shoot('phone');
  await page.setViewportSize({ width: 720, height: 1000 });
  await page.emulateMedia({ media: 'print' });
  found.push(['print: no scrolling to the side', await sideways(page)]);
  await page.emulateMedia({ media: 'screen' });
  await page.setViewportSize({ width: 1280, height: 900 });
  found.push(['no errors', errors]);
  const known = ['/', '/stats.json', '/history.json', '/favicon.ico'].map((path) => base + path);
  found.push(['no other requests', requested.filter((url) => !known.includes(url) && !url.startsWith('data:'))]);
  return found.map(([name, wrong]) => [name, errorText(wrong)]);
}

// One announce over HTTP, and one over WebSocket by a page that keeps its connection.
async function announceOverHttp(browser) {
  const query = `info_hash=${'%01'.repeat(20)}&peer_id=-XX0001-123456789012&port=6881&left=0`;
  const reply = await fetch(`http://${at.http}/announce?${query}`).then((answer) => answer.text());
  check('an announce over HTTP is answered', reply.startsWith('d8:completei1e') ? '' : reply);
  const page = await browser.newPage();
  const message = { action: 'announce', info_hash: '\u0001'.repeat(20), peer_id: '-XX0001-123456789012', left: 1 };
  const counts = await page.evaluate(([url, message]) => new Promise((done) => {
    const socket = new WebSocket(url);
    socket.onopen = () => socket.send(message);
    socket.onmessage = ({ data }) => done(data);
    socket.onclose = ({ code }) => done(`closed with ${code}`);
    window.socket = socket;
  }), [`ws://${at.http}/`, JSON.stringify(message)]);
  check('an announce over WebSocket is answered', counts.includes('"incomplete":1') ? '' : counts);
}

// After these two announces the page has their rows.
async function overHttp({ page }) {
  const wanted = {
    // The upgrade to WebSocket is a request, too.
    http: { Requests: 3, answered: 3, 'closed before the reply': 0, Connections: 2 },
    'webrtc-peers': { Swarms: 1, Seeders: 0, Leechers: 1, 'Connections by ws': 1, 'Connections by wss': 0 },
    'webrtc-messages': { 'Requests by ws': 1, 'Requests by wss': 0, 'Offers sent': 0, 'Answers sent': 0 },
  };
  for (const [id, rows] of Object.entries(wanted)) {
    // The last cell of a row is the number since the start, or now; a worker publishes it up to a second late.
    const shown = () => page.locator(`#${id} tr`).evaluateAll((rows) =>
      Object.fromEntries(rows.map(({ innerText }) => innerText.split('\t')).map((cells) => [cells[0], Number(cells.at(-1))])));
    const agrees = (shown) => Object.entries(rows).every(([label, number]) => shown[label] === number);
    check(`rows of ${id}`, (await until(async () => agrees(await shown()))) ? '' : JSON.stringify(await shown()));
  }
}

async function head({ page, answer }) {
  const policy = answer.headers()['content-security-policy'] ?? '';
  check('a policy that permits no other content', policy.startsWith("default-src 'none'") ? '' : `it is: ${policy}`);
  check('kept out of caches', answer.headers()['cache-control'] === 'no-store' ? '' : 'no Cache-Control: no-store');
  const { version } = await stats();
  const versionLine = await text(page, 'version');
  check('version and address', versionLine.includes(version) && versionLine.includes(at.udp) ? '' : `it is: ${versionLine}`);
  const title = await page.title();
  check('the title names the host', title.endsWith(`${hostname()} · onrush`) ? '' : title);
  const icon = await fetch(`${base}/favicon.ico`);
  check('an icon', icon.ok && icon.headers.get('content-type') === 'image/svg+xml' ? '' : `status ${icon.status}`);
  const serves = await until(async () => (await text(page, 'state')).includes('Serving'));
  check('it serves', serves ? '' : await text(page, 'state'));
}

// The axis of a chart at the sizes of public trackers: its labels rise from 0 by equal steps, and the line of IPv4 peers
// ends at their number by these labels. Returns errors.
async function axes(browser, change = (page) => page) {
  const wrong = [];
  for (const peers of [150e3, 400e3, 250e6]) {
    const adjust = (stats) => { stats.families.ipv4.peers = peers; return stats; };
    const empty = (page) => change(page.replace(/(id="first">)[^<]*/, '$1null'));
    const { context, page } = await open(browser, empty, adjust);
    await until(() => page.evaluate(() => document.querySelector('#stored path')?.getAttribute('d')));
    const { ticks, end } = await page.evaluate(() => {
      const texts = [...document.querySelectorAll('#stored text[text-anchor=end]')].filter((text) => text.previousSibling?.matches('.grid'));
      return {
        // Labels of the axis are four pixels below their value.
        ticks: texts.map((text) => [text.textContent, Number(text.getAttribute('y')) - 4]),
        end: Number(document.querySelector('#stored path').getAttribute('d').split(' ').at(-1)),
      };
    });
    await context.close();
    const values = ticks.map(([label]) => value(label));
    const [zero, top] = [ticks[0][1], ticks.at(-1)[1]];
    const drawn = (values.at(-1) * (zero - end)) / (zero - top);
    if (!values.every((n, at) => n === at * values[1])) wrong.push(`labels at ${peers} peers: ${ticks.map(([label]) => label)}`);
    if (!(Math.abs(drawn - peers) < peers * 0.02)) wrong.push(`${peers} peers are drawn at ${drawn}`);
  }
  return wrong;
}

async function withoutScripts(browser) {
  const context = await browser.newContext({ javaScriptEnabled: false, viewport: { width: 1280, height: 900 } });
  context.setDefaultTimeout(120_000);
  const page = await context.newPage();
  let peers, content;
  // A worker publishes its peers up to a second late.
  const agree = await until(async () => {
    await page.goto(`${base}/`, { waitUntil: 'load' });
    content = await page.locator('body').innerText();
    peers = (await stats()).totals.peers.toLocaleString('en-US');
    return peers !== '0' && content.includes(peers);
  });
  await page.screenshot({ path: join(place, 'status-noscript.png'), fullPage: true });
  check('without scripts the page has the numbers', agree ? '' : `no ${peers} in ${content}`);
  check('without scripts nothing stays empty', content.match(/Connecting|–/)?.[0]);
  await context.close();
}

// After a load the page has the tracker's numbers.
async function agrees(page, running) {
  const status = await running.over;
  check('the replies under load are correct', status === 0 ? '' : `onrush-load ended in ${status}`);
  for (const name of ['peers', 'swarms']) {
    // A worker publishes its peers up to a second late: compare until both sides agree.
    const both = async () => [(await stats()).totals[name].toLocaleString('en-US'), await page.locator(`#t-${name}`).getAttribute('title')];
    const same = await until(async () => { const [want, shown] = await both(); return want === shown && want !== '0'; });
    check(`${name} are those of the tracker`, same ? '' : `not the same: ${await both()}`);
  }
}

// The page follows the tracker's numbers.
async function underLoad({ page }) {
  const running = load(at, 12);
  const seen = new Set();
  const look = async () => `${await text(page, 't-requests')}, ${await page.locator('#t-requests').getAttribute('title')}`;
  await until(async () => { seen.add(await look()); return seen.size >= 4; }, 15);
  const busily = [...seen].some((said) => /^[\d.]+\u00a0k\/s/.test(said));
  check('numbers change while load runs', seen.size >= 4 && busily ? '' : `only ${[...seen].join('; ')}`);
  await picture(page, 'load');
  const busy = await page.locator('#workers .both > span:last-child').allInnerTexts();
  check('workers are busy', busy.some((share) => /[1-9]/.test(share)) ? '' : `loads are ${busy}`);
  await agrees(page, running);
  const points = await page.evaluate(() => document.querySelectorAll('#rates path')[1].getAttribute('d').split('L').length);
  check('the chart has a line of announces', points >= 4 ? '' : `${points} points`);
  const grown = await page.locator('#stored path').first().getAttribute('d');
  const heights = grown.split('L').map((point) => Number(point.split(' ').at(-1)));
  check('the chart of peers rises under load', heights.at(-1) < heights[0] - 20 ? '' : grown);
  const clients = await page.locator('#clients tr').allInnerTexts();
  check('software of clients', clients.some((line) => line.includes('qBittorrent')) ? '' : `${clients}`);
}

// The charts show an hour or a month.
async function spans({ page }) {
  const labels = () => page.locator('#stored text').allTextContents();
  await page.getByRole('button', { name: 'Month' }).click();
  const [month, pressed] = [await labels(), await page.locator('#spans [aria-pressed=true]').allInnerTexts()];
  check('the charts show a month', month.some((label) => / h$/.test(label)) && `${pressed}` === 'Month' ? '' : `${month}; ${pressed}`);
  await page.getByRole('button', { name: 'Hour' }).click();
  const hour = await labels();
  check('the charts show an hour', hour.some((label) => / (s|min)$/.test(label)) ? '' : `${hour}`);
}

// A hidden page sends no requests.
async function hidden({ page, requested }) {
  const hide = (hidden) => page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await hide(true);
  await page.waitForTimeout(500); // Requests in progress.
  const before = requested.length;
  await page.waitForTimeout(5000);
  check('a hidden page sends no requests', requested.length === before ? '' : `${requested.length - before} requests`);
  await hide(false);
  check('a visible page sends requests again', (await until(() => requested.length > before, 2)) ? '' : 'no request in 2 s');
}

async function restart({ page, errors }, running) {
  const before = errors.length;
  await stop(running);
  const lost = await until(async () => (await text(page, 'state')).includes('Not reachable'), 15);
  check('the page reports that the tracker is down', lost ? '' : await text(page, 'state'));
  const waits = await until(async () => /No answer for \d.*Asking (again in \d+ s|now)/.test((await text(page, 'says')).replace(/\u00a0/g, ' ')), 5);
  check('the page reports when it retries', waits ? '' : await text(page, 'says'));
  await picture(page, 'lost');
  check('legible while the tracker is down', legible(await page.evaluate(contrasts), 'light'));
  writeFileSync(at.config, `[access]\nmode = "deny"\nfiles = ["${join(place, 'deny.txt')}"]\n[admin]\npublish_lists = true\n`);
  const again = tracker({ ...at });
  check('the tracker starts again', (await until(answers)) ? '' : 'no reply');
  const back = await until(async () => (await text(page, 'state')).includes('Serving'), 25);
  check('the page recovers by itself', back ? '' : await text(page, 'state'));
  check('the page reports the restart', (await text(page, 'says')).includes('restarted') ? '' : await text(page, 'says'));
  const rate = await until(async () => /^\d/.test(await text(page, 't-requests')), 10);
  const content = await page.locator('main').innerText();
  const { hour } = await (await fetch(`${base}/history.json`)).json();
  const replies = hour.values.replies;
  const kept = replies.slice(0, -Math.ceil((await stats()).uptime) - 1).some((rate) => rate > 100);
  check('the history is kept over the restart', kept ? '' : `replies per second: ${replies.join(' ')}`);
  check('decreased counters make no rates', rate ? content.match(NONE)?.[0] : 'there are no rates');
  const other = errors.slice(before).filter((error) => !REFUSED.test(error));
  check('no other errors in between', other);
  errors.length = 0;
  check('the size of the list', (await text(page, 'f-list')).startsWith('1') ? '' : await text(page, 'f-list'));
  const list = await page.locator('#lists').evaluate((link) => fetch(link.href).then((answer) => answer.text()));
  check('the published list is linked', list.includes(DENIED) ? '' : list.slice(0, 100));
  return again;
}

const script = (text) => (page) => page.replace("'use strict';", `'use strict';${text};`);
const breakages = [
  ['a page without a dark scheme', 'legible: dark', (page) => page.replace('prefers-color-scheme: dark', 'prefers-color-scheme: none')],
  ['faint text on a light page', 'legible: light', style(':root { --faint: #bbb; }')],
  ['content wider than a phone', '360 pixels: no scrolling', style('section { min-width: 40rem; }')],
  ['cells too narrow', '1280 pixels: no cell', style('td { font-size: 2.5rem; }')],
  ['a page without its first reading', 'no layout shifts', (page) => page.replace(/(id="first">)[^<]*/, '$1null').replace('wait(first ? 1000 : 0)', 'wait(700)')],
  ['a script without the nonce of the response', 'no errors', (page) => page.replace('</body>', '<script>1</script></body>')],
  ['a picture from another host', 'no errors', (page) => page.replace('<footer>', '<img src="http://127.0.0.1:9/x.png" alt=""><footer>')],
  ['a page that requests once', 'rates are shown', (page) => page.replace('wait(first ? 1000 : 0);', '')],
  ['rates divided by undefined', 'no invalid number', (page) => page.replace('(now - before) / seconds', 'before / undefined')],
  ['a family that is not drawn', 'peers and swarms are drawn', (page) => page.replace('peers_ipv6: families.ipv6.peers', 'peers_ipv6: 0')],
  ['a chart of peers without updates', 'the charts go on', (page) => page.replace('stored.add(stats.time, levels(stats));', 'if (!before) stored.add(stats.time, levels(stats));')],
  ['charts that begin with the page', 'the past is drawn', (page) => page.replace('if (!old) askPast();', '')],
  ['a page without WebRTC peers', 'WebRTC peers are shown', (page) => page.replace('showWebrtc(stats, old, seconds);', '')],
  ['a request to another path', 'no other requests', script("fetch('lists')")],
];

async function shortPass(browser) {
  const intact = await open(browser);
  await head(intact);
  await overHttp(intact);
  // Its exit status is 3 where the host leaves it no time for a reply.
  const done = await until(async () => { const run = load(at, 3); return (await run.over) !== 3 && run; });
  await agrees(intact.page, done || { over: 3 });
  check('labels of axes are right', await axes(browser));
  await withoutScripts(browser);
  check('no errors', intact.errors);
  await intact.context.close();
}

async function longPass(browser, running) {
  const intact = await open(browser);
  await head(intact);
  await overHttp(intact);
  await underLoad(intact);
  const found = await look(intact, true);
  for (const [name, why] of found) check(name, why);
  check('labels of axes are right', await axes(browser));
  const cut = await axes(browser, (page) => page.replace('tickLabel(n * tick)', "count(n * tick).replace(/\\.?0+(?=\\u00a0)/, '')"));
  check('detected: labels without the zeros of whole numbers', cut.length >= 3 ? '' : `only: ${cut.join('; ')}`);
  await withoutScripts(browser);
  await spans(intact);
  await hidden(intact);
  await restart(intact, running);
  await intact.context.close();

  // The pages below show WebRTC peers like the first one.
  await announceOverHttp(browser);
  await checkBreakages(breakages, found, async (change) => {
    const broken = await open(browser, change);
    const found = await look(broken);
    await broken.context.close();
    return found;
  });
}

rmSync(at.state, { recursive: true, force: true });
mkdirSync(at.state);
writeFileSync(join(place, 'deny.txt'), `${DENIED}\n`);
writeFileSync(at.config, '');
try {
  await run(async (browser) => {
    const running = tracker(at);
    if (!(await until(answers))) throw new Error(`the tracker does not answer: see ${place}/onrush-status.log`);
    await announceOverHttp(browser);
    if (process.argv[4] === 'short') await shortPass(browser);
    else await longPass(browser, running);
  });
} finally {
  await end();
}
