// Requests statistics every two seconds while the page is visible. After a failure it retries less often
// and shows a countdown.
const INTERVAL = 2000, RETRY_AFTER = [2000, 4000, 8000, 10000], TIMEOUT = 5000;
// The name of the host, and of the program.
const TITLE = document.title;
const rates = new Chart(by('rates'), [['replies', 'Replies', 'line0'], ['announces', 'Announces', 'line1'], ['connects', 'Connects', 'line2'], ['scrapes', 'Scrapes', 'line3'], ['refused', 'Refused', 'line4']], by('rates-key'));
const stored = new Chart(by('stored'), [['peers_ipv4', 'IPv4 peers', 'line1'], ['peers_ipv6', 'IPv6 peers', 'line2'], ['swarms', 'Swarms with peers', 'line3']], by('stored-key'));
const lost = new Chart(by('lost'), LOSSES.map(({ key, label }, at) => [key, label, style(at)]));
let before = null, failures = 0, since = 0, timer = 0, asking = false, retryAt = 0, restarted = false;

const charts = [rates, stored, lost];
for (const button of by('spans').children) {
  button.addEventListener('click', () => {
    for (const other of by('spans').children) other.setAttribute('aria-pressed', String(other === button));
    for (const chart of charts) chart.setSpan(button.dataset.span);
  });
}
// Draws what was before the page was opened, or while it was hidden. Without an answer the charts begin now.
async function askPast() {
  try {
    const answer = await fetch('history.json', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT) });
    if (!answer.ok) return;
    const { hour, month } = await answer.json();
    const [hours, months] = [pointsOf(hour), pointsOf(month)];
    for (const chart of charts) chart.setPast(hours, months);
  } catch {}
}
function state(level, mark, text) {
  const element = by('state');
  // Screen readers announce this element, so it is set only when it changes.
  put(element, `${mark} ${text}`);
  element.dataset.level = level;
}
function showState(stats) {
  const stalled = stats.workers.filter((worker) => worker.stalled_seconds >= 5).map((worker) => worker.name);
  if (stalled.length) return state('bad', '✕', `Stalled: ${stalled.join(', ')}`);
  if (stats.stage !== 'serving') return state('warn', '◌', stats.stage === 'stopping' ? 'Stopping' : 'Starting');
  if (stats.overload.step) return state('warn', '▲', 'Serving, overloaded');
  return state('good', '●', 'Serving');
}
function take(stats) {
  failures = 0;
  document.body.classList.remove('stale');
  const seconds = before ? stats.time - before.time : 0;
  const same = before && continues(before, stats);
  restarted = (restarted || (before && !same)) && stats.uptime < 120;
  put(by('says'), restarted ? `The tracker was restarted ${span(stats.uptime)} ago: counters start from 0.` : NBSP);
  // Statistics too close together or too far apart give no meaningful current rate.
  const old = same && seconds > 0.2 && seconds < 12 ? before : null;
  if (!old) askPast();
  const [a, b] = [counts(stats), old && counts(old)];
  const perSecond = b && Object.fromEntries(Object.keys(a).map((name) => [name, (a[name] - b[name]) / seconds]));
  if (before) for (const chart of [rates, lost]) chart.add(stats.time, perSecond);
  stored.add(stats.time, levels(stats));
  showTiles(stats, old, seconds);
  showFamilies(stats, old, seconds);
  showCounted(stats, old, seconds);
  showHttp(stats, old, seconds);
  showWebrtc(stats, old, seconds);
  showWorkers(stats, old, seconds);
  showClients(stats);
  showLimits(stats);
  showFacts(stats);
  showState(stats);
  document.title = perSecond ? `${count((stats.totals.datagrams - old.totals.datagrams) / seconds)}/s · ${TITLE}` : TITLE;
  before = stats;
}
function fail(starting) {
  if (failures === 0) {
    since = Date.now();
    for (const chart of charts) if (chart.points.length) chart.add(chart.points.at(-1).time, null);
  }
  failures += 1;
  document.body.classList.add('stale');
  state(starting ? 'warn' : 'bad', starting ? '◌' : '✕', starting ? 'Starting' : 'Not reachable');
  document.title = `not reachable · ${TITLE}`;
  return RETRY_AFTER[Math.min(failures, RETRY_AFTER.length) - 1];
}
function wait(milliseconds) {
  clearTimeout(timer);
  retryAt = Date.now() + milliseconds;
  if (!document.hidden) timer = setTimeout(ask, milliseconds);
}
async function ask() {
  if (asking || document.hidden) return;
  asking = true;
  let next = INTERVAL;
  try {
    const answer = await fetch('stats.json', { cache: 'no-store', signal: AbortSignal.timeout(TIMEOUT) });
    if (answer.ok) take(await answer.json());
    else next = fail(answer.status === 503);
  } catch {
    next = fail(false);
  }
  asking = false;
  wait(next);
}
setInterval(() => {
  if (!failures || document.hidden) return;
  const soon = Math.max(0, Math.ceil((retryAt - Date.now()) / 1000));
  put(by('says'), `No answer for ${span((Date.now() - since) / 1000)}; the numbers are older. ${asking ? 'Asking now.' : `Asking again in ${soon} s.`}`);
}, 1000);
document.addEventListener('visibilitychange', () => { if (document.hidden) clearTimeout(timer); else ask(); });

// The page embeds its first statistics, so its layout does not shift later.
const first = JSON.parse(by('first').textContent);
if (first) take(first);
wait(first ? 1000 : 0);
