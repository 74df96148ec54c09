// The cases of the tests of bittorrent-tracker's client (npm), with its client and any tracker. The package has no
// tests, and they look into its own server. WebRTC is replaced: offers and answers are texts.
//
//   announces.mjs PACKAGE URL    prints a line for each case, then counts; over WebSocket there are more cases

import { deepEqual, equal, ok } from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { EventEmitter, once } from 'node:events';
import { register } from 'node:module';

const [directory, announce] = process.argv.slice(2);
const isSocket = announce.startsWith('ws');
// Deadline of a case, milliseconds.
const DEADLINE = 60_000;

const encoded = (script) => `data:text/javascript,${encodeURIComponent(script)}`;
// This package needs a native library.
const webrtc = encoded('export const RTCPeerConnection = 0, RTCSessionDescription = 0, RTCIceCandidate = 0;');
register(encoded(`export const resolve = (name, context, next) =>
  name === 'webrtc-polyfill' ? { url: '${webrtc}', shortCircuit: true } : next(name, context);`));
const { default: Client } = await import(`${directory}/client.js`);

const offer = { type: 'offer', sdp: 'v=0\r\n"\u00ff\\/' };
const answer = { type: 'answer', sdp: 'v=0\r\n\u0000\u{1f600}' };

class Peer extends EventEmitter {
  constructor(options) {
    super();
    if (options?.initiator) queueMicrotask(() => this.emit('signal', offer));
  }

  signal(description) {
    this.remote = description;
    if (description.type === 'offer') this.emit('signal', answer);
  }

  destroy() {}
}

let failure;
let port = 7000;
let clients = [];

// A client with a connection of its own: clients with the same URL share one.
function open(infoHash, options) {
  port += 1;
  const own = { announce: `${announce}?${port}`, peerId: randomBytes(20), port };
  const client = new Client({ infoHash, wrtc: {}, ...own, ...options });
  client._trackers[0]._createPeer = (options) => new Peer(options);
  for (const event of ['error', 'warning']) client.on(event, (error) => { failure(error); });
  clients.push(client);
  return client;
}

// The counts in the next reply to an announce, or to a scrape.
async function counts(client, event = 'update') {
  const [reply] = await once(client, event);
  equal(reply.announce, client._trackers[0].announceUrl);
  return [reply.complete, reply.incomplete];
}

async function counted(client, what, options) {
  client[what](options);
  return counts(client);
}

// Over HTTP this client encodes an info hash twice unless the tracker has encoded it in UTF-8, as the package's does.
const decoded = (infoHash) => (infoHash.length === 80 ? Buffer.from(infoHash, 'hex').toString() : infoHash);
const scrape = (infoHash) => new Promise((done, failed) => {
  Client.scrape({ infoHash, announce, wrtc: {} }, (error, result) => (error ? failed(error) : done(result)));
});
const destroy = (client) => new Promise((done) => { client.destroy(done); });

// The peers of the first reply that has some.
async function peers(client, options) {
  const found = [];
  client.on('peer', (peer) => { found.push(peer); });
  client.start(options);
  await once(client, 'peer');
  return found;
}

async function empty(infoHash) {
  while ((await scrape(infoHash)).incomplete) await new Promise((next) => setTimeout(next, 50));
}

const cases = {
  'start, update, stop': async (hash) => {
    const client = open(hash);
    deepEqual(await counted(client, 'start'), [0, 1]);
    deepEqual(await counted(client, 'update'), [0, 1]);
    deepEqual(await counted(client, 'stop'), [0, 0]);
  },
  'announces at an interval': async (hash) => {
    const client = open(hash);
    await counted(client, 'start');
    client.setInterval(200);
    deepEqual(await counts(client), [0, 1]);
  },
  'stop and destroy at once': async (hash) => {
    const client = open(hash);
    await counted(client, 'start');
    client.on('update', () => failure(new Error('an update after destroy')));
    client.stop();
    client.destroy();
    await empty(hash);
  },
  'no update after destroy': async (hash) => {
    const client = open(hash);
    client.on('update', () => failure(new Error('an update after destroy')));
    client.update();
    await destroy(client);
  },
  'complete, scrape': async (hash) => {
    const client = open(hash);
    await counted(client, 'start');
    // Over HTTP this client announces 16384 bytes left if none are named.
    deepEqual(await counted(client, 'complete', isSocket ? {} : { left: 0 }), [1, 0]);
    client.scrape();
    const [reply] = await once(client, 'scrape');
    deepEqual([decoded(reply.infoHash), reply.complete, reply.incomplete, reply.downloaded], [hash, 1, 0, 1]);
  },
  'a seeder and leechers': async (hash) => {
    const [seeder, ...leechers] = [open(hash), open(hash), open(hash)];
    deepEqual(await counted(seeder, 'start', { left: 0 }), [1, 0]);
    // Without offers: some trackers add a peer again that answers an offer after its stop.
    deepEqual(await counted(leechers[0], 'start', { numwant: 0 }), [1, 1]);
    deepEqual(await counted(leechers[1], 'start', { numwant: 0 }), [1, 2]);
    deepEqual(await counted(leechers[0], 'stop'), [1, 1]);
    await destroy(leechers[0]);
    deepEqual(await counted(leechers[1], 'stop'), [1, 0]);
  },
  'one peer is wanted': async (hash) => {
    for (const client of [open(hash), open(hash)]) await counted(client, 'start');
    equal((await peers(open(hash), { numwant: 1 })).length, 1);
  },
  'a scrape of an unknown torrent': async (hash) => {
    const { infoHash, complete, incomplete, downloaded } = await scrape(hash);
    deepEqual([decoded(infoHash), complete, incomplete, downloaded], [hash, 0, 0, 0]);
  },
  'a scrape of two torrents': async (hash) => {
    await counted(open(hash), 'start');
    const other = randomBytes(20).toString('hex');
    const found = Object.entries(await scrape([hash, other]));
    deepEqual(
      Object.fromEntries(found.map(([infoHash, { incomplete }]) => [decoded(infoHash), incomplete])),
      { [hash]: 1, [other]: 0 },
    );
  },
  'unknown parameters': async (hash) => {
    const getAnnounceOpts = () => ({ testParam: 'this is a test' });
    const client = open(hash, { getAnnounceOpts, userAgent: 'WebTorrent/0.98.0 (https://webtorrent.io)' });
    deepEqual(await counted(client, 'start', { other: 1 }), [0, 1]);
  },
};
if (isSocket) {
  Object.assign(cases, {
    'an offer is answered': async (hash) => {
      const [first, second] = [open(hash), open(hash)];
      await counted(first, 'start');
      const offered = once(first, 'peer');
      second.start();
      const [[answering], [offering]] = await Promise.all([once(second, 'peer'), offered]);
      deepEqual([answering.id, answering.remote], [first.peerId, answer]);
      deepEqual([offering.id, offering.remote], [second.peerId, offer]);
    },
    'two torrents on one connection': async (hash) => {
      const shared = { announce, peerId: randomBytes(20) };
      const [first, second] = [open(hash, shared), open(randomBytes(20).toString('hex'), shared)];
      await counted(first, 'start');
      deepEqual(await counted(second, 'start'), [0, 1]);
      await destroy(first);
      deepEqual(await counted(second, 'update'), [0, 1]);
    },
    'a connection closes without stop': async (hash) => {
      const client = open(hash);
      await counted(client, 'start');
      await destroy(client);
      await empty(hash);
    },
    // Those of the package's own tests.
    'offers without description and id': async (hash) => {
      const client = open(hash);
      client._trackers[0]._generateOffers = (number, done) => {
        done(Array.from({ length: number }, (_, index) => ({ fake_offer: `fake_offer_${index}` })));
      };
      deepEqual(await counted(client, 'start'), [0, 1]);
    },
  });
} else {
  cases['peers as a list'] = async (hash) => {
    const client = open(hash);
    await counted(client, 'start');
    const found = await peers(open(hash), { compact: 0 });
    ok(found.some((peer) => peer.endsWith(`:${client._port}`)), found.join());
  };
}

let [passed, failed] = [0, 0];
for (const [name, run] of Object.entries(cases)) {
  clients = [];
  let timer;
  try {
    const ends = new Promise((_, fail) => {
      failure = fail;
      timer = setTimeout(() => fail(new Error('the tracker does not answer')), DEADLINE);
    });
    await Promise.race([run(randomBytes(20).toString('hex')), ends]);
    passed += 1;
    console.log(`passed  ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}: ${error.message}`);
  }
  clearTimeout(timer);
  failure = () => {};
  // Those that the case has left, so that the next one has a connection of its own.
  await Promise.all(clients.filter((client) => !client.destroyed).map(destroy));
}
console.log(`${passed} passed, ${failed} failed`);
process.exit(failed === 0 ? 0 : 1);
