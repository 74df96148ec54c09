// Checks the report of a load run in a browser, then injects faults and checks that each is detected.
// Called by scripts/browser-test with the directory of report.html and report.json.

import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

import { breakages } from './breakages.mjs';
import { check, checkBreakages, run } from './harness.mjs';
import { look } from './look.mjs';

const place = resolve(process.argv[2]);
const file = join(place, 'report.html');
const page = readFileSync(file, 'utf8');
const report = JSON.parse(readFileSync(join(place, 'report.json'), 'utf8'));

await run(async (browser) => {
  const found = await look(browser, file, report, place);
  for (const [name, why] of found) check(name, why);
  await checkBreakages(breakages, found, (change) => {
    const broken = change(page);
    if (broken === page) throw new Error('the text to break is not in the page');
    const file = join(place, 'broken.html');
    writeFileSync(file, broken);
    return look(browser, file, report);
  });
});
