// Number formats.
const NBSP = '\u00a0';
const three = (n) => (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toFixed(2));
function scaled(n, step, units) {
  let at = 0;
  // A value that would round up to a full step is shown in the next unit.
  while (n >= step - 0.5 && at < units.length - 1) { n /= step; at += 1; }
  return (at === 0 ? (n < 10 && n % 1 ? n.toFixed(1) : n.toFixed(0)) : three(n)) + (units[at] ? NBSP + units[at] : '');
}
const count = (n) => scaled(n, 1000, ['', 'k', 'M', 'G', 'T']);
const bytes = (n) => scaled(n, 1024, ['B', 'KiB', 'MiB', 'GiB', 'TiB']);
const bits = (n) => scaled(n * 8, 1000, ['bit/s', 'kbit/s', 'Mbit/s', 'Gbit/s']);
// A label of an axis: as `count`, without the zeros at the end of its decimals.
const tickLabel = (n) => count(n).replace(/(\.\d*?)0+(?!\d)/, '$1').replace(/\.(?!\d)/, '');
const exact = (n) => n.toLocaleString('en-US');
const percent = (part) => {
  const p = part * 100;
  return (p === 0 || p >= 10 ? p.toFixed(0) : p < 0.1 ? '<0.1' : p.toFixed(1)) + NBSP + '%';
};
function span(seconds) {
  const s = Math.floor(seconds);
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  const parts = d ? [[d, 'd'], [h, 'h']] : h ? [[h, 'h'], [m, 'min']] : m ? [[m, 'min'], [s % 60, 's']] : [[s, 's']];
  return parts.filter(([n], at) => n || at === 0).map(([n, unit]) => n + NBSP + unit).join(' ');
}
const short = (seconds) => (seconds < 1e-3 ? three(seconds * 1e6) + NBSP + 'µs' : three(seconds * 1e3) + NBSP + 'ms');
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);
// Refusals that do not count as lost.
const refusals = ({ totals }) => Object.entries(totals.refused).filter(([name]) => !(name in totals.lost));

// Swarms with peers of IPv4 and of IPv6; null where they are unknown. A pass over all swarms counts them every two minutes;
// while swarms come or go faster than that, the counts contradict the sum, which is of this moment.
function familySwarms({ families, totals }) {
  const { ipv4: { family_swarms: v4 }, ipv6: { family_swarms: v6 } } = families;
  if (v4 === undefined || v6 === undefined) return { ipv4: null, ipv6: null };
  const fits = Math.max(v4, v6) <= totals.swarms * 1.05 && totals.swarms <= (v4 + v6) * 1.05;
  return fits ? { ipv4: v4, ipv6: v6 } : { ipv4: null, ipv6: null };
}
// Gauges in the chart of stored peers and swarms; names as in history.json.
const levels = ({ families, totals }) => ({ peers_ipv4: families.ipv4.peers, peers_ipv6: families.ipv6.peers, swarms: totals.swarms });

// A counter of datagrams and the one of HTTP beside it, which is absent where the tracker does not serve HTTP.
const both = (stats, udp, http) => stats[udp] + overHttp(stats.http, http);
// A number of HTTP, with those of HTTPS and WebSocket where they are counted apart.
const overHttp = (http, key) => sum(['', 'https_', 'ws_', 'wss_'].map((transport) => http?.[transport + key] ?? 0));
const byWebSocket = (http, key) => http[`ws_${key}`] + http[`wss_${key}`];
const received = (stats) => both(stats, 'datagrams', 'requests');
const replied = (stats) => both(stats, 'replies', 'answered');

// Counters whose rates are shown in charts; names as in history.json.
function counts(stats) {
  const all = stats.totals;
  return {
    replies: replied(all),
    announces: all.announces,
    connects: all.connects,
    scrapes: all.scrapes,
    refused: sum(refusals(stats).map(([, n]) => n)),
    ...all.lost,
  };
}
// Whether both statistics are of the same process, so that their differences are rates. A counter that
// decreased belongs to another process, even where pid and uptime match.
function continues(before, after) {
  const [a, b] = [counts(before), counts(after)];
  return before.pid === after.pid && after.uptime >= before.uptime && Object.keys(a).every((name) => b[name] >= a[name]);
}
// The points of a span of history.json: times in seconds since 1970, of the middle of a step, and the values by name; null
// where the tracker did not run.
function pointsOf({ until, step, values }) {
  const names = Object.keys(values), length = values[names[0]]?.length ?? 0;
  return Array.from({ length }, (_, at) => {
    const known = names.filter((name) => values[name][at] !== null).map((name) => [name, values[name][at]]);
    return { time: until - (length - at - 0.5) * step, drawn: known.length ? Object.fromEntries(known) : null };
  });
}
