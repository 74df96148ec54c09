// A page in a browser with one torrent of webtorrent. Called by peers.py with PLAYWRIGHT, the directory of
// playwright-core, and
//
//   page.mjs BUNDLE TORRENT DIRECTORY INFO_HASH TRACKER NAME PIECE KEY
//
// It seeds the file NAME if DIRECTORY has it, and otherwise downloads it to there. Other certificates than those of
// authorities are accepted with the public key KEY only (the base64 of its SHA-256). On SIGTERM it announces `stopped`.

import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { launch } from '../browser/harness.mjs';

const [bundle, torrent, directory, infoHash, tracker, name, piece, key] = process.argv.slice(2);
const file = join(directory, name);
// Pages have the functions that WebTorrent needs if their host is this one, which is not contacted.
const origin = 'http://localhost/';
const files = { webtorrent: bundle, torrent, file };
// The tracker and other peers have private addresses, and libtorrent does not resolve names of mDNS.
const features = '--disable-features=LocalNetworkAccessChecks,WebRtcHideLocalIpsWithMdns';

const browser = await launch([features, `--ignore-certificate-errors-spki-list=${key}`], { handleSIGTERM: false });
const page = await browser.newPage();
page.on('console', (message) => console.log(message.text()));
page.on('pageerror', (error) => console.log(String(error)));
await page.route(`${origin}**`, (route) => {
  const path = files[new URL(route.request().url()).pathname.slice(1)];
  const contentType = path === bundle ? 'text/javascript' : undefined;
  return route.fulfill(path ? { path, contentType } : { body: '<!doctype html>', contentType: 'text/html' });
});
await page.exposeFunction('save', (base64) => {
  writeFileSync(`${file}.part`, Buffer.from(base64, 'base64'));
  renameSync(`${file}.part`, file);
});
process.once('SIGTERM', async () => {
  await page.evaluate(() => new Promise((done) => client.destroy(done)));
  await browser.close();
  process.exit(0);
});
await page.goto(origin);
await page.evaluate(inside, { seeds: existsSync(file), infoHash, tracker, name, pieceLength: Number(piece) });

// Evaluated inside the page.
async function inside({ seeds, infoHash, tracker, name, pieceLength }) {
  const { default: WebTorrent } = await import('/webtorrent');
  const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());
  // No STUN server: all peers are on one network.
  globalThis.client = new WebTorrent({ tracker: { rtcConfig: { iceServers: [] } } });
  const torrent = seeds
    ? client.seed(new File([await bytes('/file')], name), { name, pieceLength, private: true, announce: [tracker] })
    : client.add(await bytes('/torrent'));
  torrent.on('infoHash', () => {
    if (torrent.infoHash !== infoHash) throw new Error(`the info hash is ${torrent.infoHash}, not ${infoHash}`);
  });
  for (const event of ['warning', 'error', 'wire', 'noPeers', 'trackerAnnounce', 'done']) {
    torrent.on(event, (about) => console.log(event, about?.message ?? about?.peerId ?? ''));
  }
  client.on('error', (error) => console.log('error', error.message));
  if (seeds) return;
  await new Promise((done) => torrent.once('done', done));
  const reader = new FileReader();
  reader.onload = () => save(reader.result.replace(/^.*,/, ''));
  reader.readAsDataURL(await torrent.files[0].blob());
}
