// Tests of the status page's numbers without a browser: node --test scripts/browser/numbers.test.mjs

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { runInNewContext } from 'node:vm';

import { value } from './labels.mjs';

const source = (name) => readFileSync(new URL(`../../crates/control/src/page/${name}`, import.meta.url), 'utf8');
const { age, familySwarms, pointsOf, received, step, tickLabel } = runInNewContext(`${source('numbers.js')}${source('chart.js')}
({ age, familySwarms, pointsOf, received, step, tickLabel })`);

test('every label of an axis has the value of its line', () => {
  for (let most = 1; most < 1e12; most *= 1.07) {
    for (let n = 0; n <= 4; n += 1) {
      const tick = n * step(most);
      const label = tickLabel(tick);
      assert.ok(Math.abs(value(label) - tick) <= tick * 1e-9, `${label} at ${tick}`);
      assert.doesNotMatch(label, /\.\d*0(?!\d)/, `zeros at the end of ${label}`);
    }
  }
});

test('labels are short', () => {
  const labels = (most) => [0, 1, 2, 3, 4].map((n) => tickLabel(n * step(most)).replace('\u00a0', ' '));
  assert.deepEqual(labels(150e3), ['0', '50 k', '100 k', '150 k', '200 k']);
  assert.deepEqual(labels(400e3), ['0', '100 k', '200 k', '300 k', '400 k']);
  assert.deepEqual(labels(250e6), ['0', '100 M', '200 M', '300 M', '400 M']);
  assert.deepEqual(labels(1.7e6), ['0', '500 k', '1 M', '1.5 M', '2 M']);
});

test('requests over HTTP are added where the tracker serves it', () => {
  assert.equal(received({ datagrams: 5 }), 5);
  const http = { requests: 30, https_requests: 200, ws_requests: 1000, wss_requests: 4000 };
  assert.equal(received({ datagrams: 5, http }), 5235);
});

test('swarms by family are shown only where they fit the sum', () => {
  const stats = (v4, v6, swarms) => ({
    families: { ipv4: { family_swarms: v4 }, ipv6: { family_swarms: v6 } },
    totals: { swarms },
  });
  const shown = (...numbers) => ({ ...familySwarms(stats(...numbers)) });
  const none = { ipv4: null, ipv6: null };
  assert.deepEqual(shown(85.9e3, 23.2e3, 387e3), none, 'the pass is older than most swarms');
  assert.deepEqual(shown(387e3, 23.2e3, 90e3), none, 'most swarms have left since');
  assert.deepEqual(shown(undefined, undefined, 12), none);
  assert.deepEqual(shown(80e3, 30e3, 100e3), { ipv4: 80e3, ipv6: 30e3 });
  // An IPv4 tracker on which some swarms have come since the pass.
  assert.deepEqual(shown(100e3, 0, 101e3), { ipv4: 100e3, ipv6: 0 });
  assert.deepEqual(shown(0, 0, 0), { ipv4: 0, ipv6: 0 });
});

test('points of the past have the time of the middle of their step, and gaps have no values', () => {
  const span = { until: 10_000, step: 60, values: { replies: [1, null, 3], swarms: [4, null, null] } };
  // Through JSON, as the objects are of another context.
  assert.deepEqual(JSON.parse(JSON.stringify(pointsOf(span))), [
    { time: 9_850, drawn: { replies: 1, swarms: 4 } },
    { time: 9_910, drawn: null },
    { time: 9_970, drawn: { replies: 3 } },
  ]);
  assert.equal(pointsOf({ until: 7, step: 1, values: {} }).length, 0);
});

test('labels of the time axis have the largest unit of which their distance is a multiple', () => {
  const labels = [[10, 10], [60, 30], [300, 60], [7200, 3600], [5400, 1800], [432000, 86400]];
  assert.deepEqual(labels.map(([seconds, step]) => age(seconds, step)), ['10 s', '60 s', '5 min', '2 h', '90 min', '5 d']);
});
