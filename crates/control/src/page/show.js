// Updates the sections from statistics. Rows are created once and later only change their text, so the
// layout does not shift.
const by = (id) => document.getElementById(id);
function put(element, text, title) {
  if (element.textContent !== text) element.textContent = text;
  if (title !== undefined && element.title !== title) element.title = title;
}
function make(name, className, text) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
// The table row with this name and one cell per class; created on first use.
function row(body, name, label, classes) {
  let found = body.querySelector(`tr[data-name="${CSS.escape(name)}"]`);
  if (!found) {
    found = make('tr');
    found.dataset.name = name;
    const head = make('th', '', label);
    head.scope = 'row';
    found.append(head, ...classes.map((className) => make('td', className)));
    body.append(found);
  }
  return [found, ...found.querySelectorAll(':scope > td')];
}
function bar(place, part) {
  let found = place.querySelector('.bar');
  if (!found) {
    found = make('span', 'bar');
    found.setAttribute('aria-hidden', 'true');
    found.append(make('span'));
    place.append(found);
  }
  found.firstChild.style.width = `${Math.min(100, part * 100).toFixed(1)}%`;
}
const rate = (now, before, seconds) => (before === undefined ? null : (now - before) / seconds);
const rateText = (n) => (n === null ? '–' : count(n));

const REASONS = {
  connection_id: 'connection id wrong or expired', forbidden: 'info hash forbidden', blocked: 'source blocked',
  bogon: 'source not routable on the internet', short: 'too short', magic: 'connect without the magic number',
  action: 'unknown action', source_port: 'from port 0', port: 'announces port 0', no_hash: 'scrape without info hash',
  malformed: 'HTTP: not a request', body: 'HTTP: with a body', target_length: 'HTTP: target too long', head_length: 'HTTP: head too long',
  method: 'HTTP: not GET', version: 'HTTP: other version', path: 'HTTP: other path', info_hash: 'HTTP: info hash missing or invalid',
  info_hashes: 'HTTP: two info hashes', peer_id: 'HTTP: peer id missing or invalid', port_value: 'HTTP: port missing or invalid',
  no_tls: 'HTTP: on the port of HTTPS', no_client: 'HTTP: proxy names no client', upgrade: 'WebSocket: invalid upgrade',
  upgrade_version: 'WebSocket: other version', message: 'WebSocket: invalid message', answer: 'WebSocket: invalid answer',
  other_peer_id: 'WebSocket: second peer id for a swarm',
};
// Causes for the end of a connection over HTTP.
const CLOSED = {
  client: 'closed by the client', served: 'closed after the last reply', idle: 'idle for http.keep_alive', timeout: 'slower than http.timeout, or no answer to a ping',
  reset: 'reset', bad_request: 'after a malformed request', proxy_header: 'proxy without a PROXY header', tls: 'TLS on the plain port', tls_error: 'TLS failed',
  frame: 'invalid frame or message', memberships: 'beyond webtorrent.memberships',
  blocked: 'source blocked', bogon: 'source not routable on the internet',
  source_limit: 'beyond http.connections_per_source', full: 'refused: beyond http.connections', replaced: 'idle longest, replaced',
  memory: 'beyond http.buffer_memory', stop: 'the tracker stops',
};
function counted(body, name, label, now, before, seconds) {
  const [line, a, b] = row(by(body), name, label, ['', '']);
  put(a, rateText(rate(now, before, seconds)));
  put(b, count(now), exact(now));
  line.classList.toggle('none', now === 0);
  return line;
}
function showTiles(stats, before, seconds) {
  const { totals } = stats;
  const per = (of) => (before ? rate(of(totals), of(before.totals), seconds) : null);
  const tile = (name, text, sub, title) => { put(by(`t-${name}`), text, title); put(by(`t-${name}-sub`), sub); };
  const speed = (n) => (n === null ? '–' : count(n) + '/s');
  const flow = (n, way) => (n === null ? NBSP : `${bits(n)} ${way}`);
  tile('requests', speed(per(received)), flow(per((t) => both(t, 'bytes_in', 'received_bytes')), 'in'), `${exact(received(totals))} since start`);
  tile('replies', speed(per(replied)), flow(per((t) => both(t, 'bytes_out', 'sent_bytes')), 'out'), `${exact(replied(totals))} since start`);
  tile('peers', count(totals.peers), `${count(totals.seeders)} seeders`, exact(totals.peers));
  tile('swarms', count(totals.swarms), `${count(totals.idle_swarms)} idle`, exact(totals.swarms));
  const lost = (totals) => sum(Object.values(totals.lost));
  tile('lost', speed(per(lost)), `${count(lost(totals))} since start`, exact(lost(totals)));
  tile('memory', bytes(stats.memory.resident), before ? `CPU ${percent(rate(stats.cpu.seconds, before.cpu.seconds, seconds))} of a core` : NBSP, `${exact(stats.memory.resident)} bytes in use`);
}
function showFamilies(stats, before, seconds) {
  const families = [['ipv4', stats.families.ipv4], ['ipv6', stats.families.ipv6], ['all', stats.totals]];
  const old = before && { ...before.families, all: before.totals };
  const line = (name, label, of) => {
    const [, ...cells] = row(by('families'), name, label, ['', '', '']);
    families.forEach(([family, data], n) => put(cells[n], ...of(data, old?.[family], family)));
  };
  const level = (key) => (data) => [count(data[key]), exact(data[key])];
  const speed = (key) => (data, old) => [rateText(rate(data[key], old?.[key], seconds)), `${exact(data[key])} since start`];
  line('peers', 'Peers', level('peers'));
  line('seeders', 'Seeders', level('seeders'));
  line('leechers', 'Leechers', level('leechers'));
  line('share', 'Share of peers', (data) => [stats.totals.peers ? percent(data.peers / stats.totals.peers) : '–', '']);
  // A swarm with peers of both families is one swarm, so the last cell is not a sum.
  const swarms = { ...familySwarms(stats), all: stats.totals.swarms };
  line('swarms', 'Swarms with such peers', (data, old, family) => (swarms[family] === null ? ['–', 'being counted, which takes two minutes'] : [count(swarms[family]), exact(swarms[family])]));
  line('announces', 'Announces per second', speed('announces'));
  line('partial', 'of them partial seeds', (data, old) => [rateText(rate(data.events.paused, old?.events.paused, seconds)), `${exact(data.events.paused)} since start`]);
  line('scrapes', 'Scrapes per second', speed('scrapes'));
  line('errors', 'Error replies per second', (data, old) => [rateText(rate(data.answered.error, old?.answered.error, seconds)), `${exact(data.answered.error)} since start`]);
  line('completed', 'Downloads completed', (data) => [count(data.events.completed), `${exact(data.events.completed)} announced since start`]);
}
function showCounted(stats, before, seconds) {
  const order = (name) => (Object.keys(REASONS).indexOf(name) + 1 || 99);
  for (const [name, now] of refusals(stats).sort(([a], [b]) => order(a) - order(b))) {
    counted('refused', name, REASONS[name] ?? name, now, before?.totals.refused[name], seconds);
  }
  for (const [at, { key, label, help }] of LOSSES.entries()) {
    const line = counted('losses', key, label, stats.totals.lost[key], before?.totals.lost[key], seconds);
    if (!line.title) { line.title = help; line.firstChild.prepend(sample(style(at))); }
  }
  const { step, interval } = stats.overload;
  put(by('pressure'), step ? `▲ overload level ${step} of 8: announce interval ${span(interval)}` : `no overload: announce interval ${span(interval)}`);
}
function showHttp({ totals }, before, seconds) {
  const now = totals.http;
  by('over-http').hidden = !now;
  if (!now) return;
  const old = before?.totals.http;
  const line = (key, label) => counted('http', key, label, overHttp(now, key), old && overHttp(old, key), seconds);
  line('requests', 'Requests');
  line('answered', 'answered');
  line('abandoned', 'closed before the reply');
  line('accepted', 'Connections');
  line('accept_errors', 'not accepted: no descriptors or memory');
  for (const cause of Object.keys({ ...CLOSED, ...now.closed })) {
    counted('http', `closed-${cause}`, CLOSED[cause] ?? cause, now.closed[cause], old?.closed[cause], seconds);
  }
}
// WebRTC peers, once there were any.
function showWebrtc({ totals }, before, seconds) {
  const now = totals.http;
  by('webrtc').hidden = !now || byWebSocket(now, 'open') + byWebSocket(now, 'requests') === 0;
  if (by('webrtc').hidden) return;
  const level = (key, label) => put(row(by('webrtc-peers'), key, label, [''])[1], count(now[key]), exact(now[key]));
  level('webrtc_swarms', 'Swarms');
  level('webrtc_seeders', 'Seeders');
  level('webrtc_leechers', 'Leechers');
  level('ws_open', 'Connections by ws');
  level('wss_open', 'Connections by wss');
  const old = before?.totals.http;
  const line = (key, label) => counted('webrtc-messages', key, label, now[key], old?.[key], seconds);
  line('ws_requests', 'Requests by ws');
  line('wss_requests', 'Requests by wss');
  line('webrtc_offers', 'Offers sent');
  line('webrtc_offers_dropped', 'Offers dropped');
  line('webrtc_answers', 'Answers sent');
  line('webrtc_answers_dropped', 'Answers dropped');
}
function showWorkers(stats, before, seconds) {
  const old = Object.fromEntries((before?.workers ?? []).map((worker) => [worker.name, worker]));
  for (const worker of stats.workers) {
    const was = old[worker.name];
    const [line, load, requests, replies, turn, lost, peers, waiting] = row(by('workers'), worker.name, worker.name, ['load', '', 'more', 'more', 'more', 'more', 'more']);
    if (!load.firstChild) { load.append(make('span', 'both')); load.firstChild.append(make('span'), make('span')); }
    const stalled = worker.stalled_seconds >= 5;
    const busy = was ? Math.min(1, rate(worker.busy_seconds, was.busy_seconds, seconds)) : 0;
    bar(load.firstChild.firstChild, busy);
    put(load.firstChild.lastChild, stalled ? '✕ stalled' : was ? percent(busy) : '–');
    const per = (of) => rateText(was ? rate(of(worker), of(was), seconds) : null);
    put(requests, per(received), `${exact(received(worker))} since start`);
    put(replies, per(replied), `${exact(replied(worker))} since start`);
    const turns = was ? worker.busy_turns - was.busy_turns : 0;
    put(turn, turns ? short((worker.busy_seconds - was.busy_seconds) / turns) : '–');
    put(lost, per((w) => w.lost), `${exact(worker.lost)} since start`);
    put(peers, worker.swarm_side ? count(worker.peers) : '–', `${exact(worker.peers)} peers in ${exact(worker.swarms)} swarms`);
    put(waiting, worker.lane_capacity ? `${worker.lane_waiting} of ${worker.lane_capacity}` : '–');
    line.title = [worker.socket_side && 'has sockets', worker.http && 'serves HTTP', worker.program && 'XDP program', worker.swarm_side && 'owns swarms'].filter(Boolean).join(', ');
  }
  for (const line of [...by('workers').children]) {
    if (!stats.workers.some(({ name }) => name === line.dataset.name)) line.remove();
  }
}
const SHOWN_CLIENTS = 8;
function showClients({ clients }) {
  const each = clients.software.map(({ name, ipv4, ipv6 }) => [name, ipv4 + ipv6]);
  const known = each.filter(([name]) => name !== 'other');
  const rest = sum(known.slice(SHOWN_CLIENTS).map(([, n]) => n)) + sum(each.filter(([name]) => name === 'other').map(([, n]) => n));
  const all = sum(each.map(([, n]) => n));
  const lines = known.slice(0, SHOWN_CLIENTS);
  if (rest) lines.push(['all others', rest]);
  if (!lines.length) lines.push(['none seen yet', 0]);
  const body = by('clients');
  while (body.children.length > lines.length) body.lastChild.remove();
  lines.forEach(([name, n], at) => {
    const [line, share, drawn] = row(body, String(at), '', ['share', '']);
    put(line.firstChild, name);
    put(share, all ? percent(n / all) : '–', `${exact(n)} of ${exact(all)}`);
    bar(drawn, all ? n / all : 0);
  });
  put(by('sample'), `one announce in ${clients.sample} sampled`);
}
function showLimits(stats) {
  const { limits, totals, list, admin, workers } = stats;
  const usage = (name, label, now, most, format = count) => {
    let value = by(`l-${name}`);
    if (!value) {
      value = make('dd');
      value.id = `l-${name}`;
      by('limits').append(make('dt', '', label), value, make('dd', 'bar'));
      value.nextSibling.append(make('span'));
      value.nextSibling.setAttribute('aria-hidden', 'true');
    }
    const part = most ? now / most : 0;
    put(value, `${part >= 0.9 ? '▲ ' : ''}${format(now)} of ${format(most)} (${percent(part)})`, `${exact(now)} of ${exact(most)}`);
    value.nextSibling.firstChild.style.width = `${Math.min(100, part * 100).toFixed(2)}%`;
  };
  usage('peers', 'Peers stored', totals.peers, limits.peers);
  usage('idle', 'Swarms without peers', totals.idle_swarms, limits.idle_swarms);
  usage('list', 'Listed info hashes', list.entries, limits.list_entries);
  usage('admin', 'Admin connections', admin.connections, limits.admin_connections);
  if (totals.http) {
    usage('http', 'Connections over HTTP', overHttp(totals.http, 'open'), limits.http_connections);
    usage('buffers', 'Memory for HTTP', totals.http.buffered_bytes, limits.http_buffer_memory, bytes);
  }
  usage('lanes', 'Batches waiting in lanes', sum(workers.map((w) => w.lane_waiting)), sum(workers.map((w) => w.lane_capacity)));
}
const MODES = { open: 'every info hash is served', allow: 'only listed info hashes are served', deny: 'all but listed info hashes are served' };
function showFacts(stats) {
  const fact = (name, label, text, title) => {
    let value = by(`f-${name}`);
    if (!value) {
      value = make('dd');
      value.id = `f-${name}`;
      by('facts').append(make('dt', '', label), value);
    }
    put(value, text, title);
  };
  const { list } = stats;
  fact('addresses', 'Addresses', stats.addresses.join('  '));
  fact('started', 'Started', `${new Date(stats.started * 1000).toISOString().slice(0, 16).replace('T', ' ')} UTC`);
  fact('uptime', 'Up for', span(stats.uptime), `${exact(Math.floor(stats.uptime))} seconds`);
  fact('process', 'Process', `${stats.pid}, ${stats.placement}, ${stats.workers.length} worker${stats.workers.length === 1 ? '' : 's'}`);
  fact('access', 'Info hashes', MODES[list.mode] ?? list.mode);
  fact('list', 'Listed', `${count(list.entries)} info hash${list.entries === 1 ? '' : 'es'}`, exact(list.entries));
  if (list.published && !by('lists')) {
    const link = make('a', '', 'show the list');
    Object.assign(link, { id: 'lists', href: 'lists' });
    const place = make('dd');
    place.append(link);
    by('facts').append(make('dt', '', 'Published'), place);
  }
  if (!list.published && by('lists')) { by('lists').parentNode.previousSibling.remove(); by('lists').parentNode.remove(); }
  fact('blocked', 'Blocked sources', `${count(list.blocked_sources)} range${list.blocked_sources === 1 ? '' : 's'}`, exact(list.blocked_sources));
  fact('expired', 'Peers expired', `${count(stats.totals.expired)} without another announce`, exact(stats.totals.expired));
  const { not_stored: full, not_stored_per_swarm: perSwarm, not_stored_of_source: ofSource, not_stored_new_swarms: newSwarms } = stats.totals;
  fact('full', 'Not stored', `${count(full)} peers at limits.peers, ${count(perSwarm + ofSource + newSwarms)} at limits of sources`, exact(full + perSwarm + ofSource + newSwarms));
  put(by('version'), `version ${stats.version} · up for ${span(stats.uptime)} · ${stats.addresses.join(' · ')}`);
}
