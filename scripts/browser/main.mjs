// Checks the report of a load run in a browser, then injects faults and checks that each is detected.
// Called by scripts/browser-test with the directory of report.html, report.json and
// node_modules/playwright-core.

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join, resolve } from 'node:path';

import { breakages } from './breakages.mjs';
import { look } from './look.mjs';

const place = resolve(process.argv[2]);
const { chromium } = createRequire(join(place, 'main.js'))('playwright-core');

let passed = 0;
let failed = 0;

function check(name, why) {
  if (why === '') passed += 1;
  else failed += 1;
  console.log(why === '' ? `ok     ${name}` : `FAILED ${name}: ${why}`);
}

// The browser's sandbox does not work as root; the page is the project's and has no scripts.
const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: ['--no-sandbox', '--disable-gpu'],
});
try {
  const report = JSON.parse(readFileSync(join(place, 'report.json'), 'utf8'));
  const page = readFileSync(join(place, 'report.html'), 'utf8');
  const file = join(place, 'report.html');
  const found = await look(browser, file, report, place);
  for (const [name, why] of found) check(name, why);

  // A check that cannot fail proves nothing, nor does one that always fails.
  const wrong = found.filter(([, why]) => why !== '').map(([name]) => name);
  for (const { name, check: expected, change } of breakages) {
    const broken = change(page);
    const file = join(place, 'broken.html');
    writeFileSync(file, broken);
    const failing = (await look(browser, file, report)).filter(([, why]) => why !== '');
    const names = failing.map(([name]) => name).filter((name) => !wrong.includes(name));
    const right = broken !== page && names.some((name) => name.startsWith(expected));
    const seen = broken === page ? 'the page has no place for this fault' : `only: ${names.join('; ')}`;
    check(`detected: ${name}`, right ? '' : `"${expected}" should have failed, but ${seen}`);
  }
} finally {
  await browser.close();
}
console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
