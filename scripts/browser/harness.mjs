// Parts of both tests in a browser: counts, the browser, and checks of pages with injected faults.

import { createRequire } from 'node:module';

let passed = 0;
let failed = 0;

// The errors of a check as one text, empty for none.
export const errorText = (wrong) => [wrong].flat().filter(Boolean).join('; ');

export function check(name, wrong) {
  const why = errorText(wrong);
  if (why === '') passed += 1;
  else failed += 1;
  console.log(why === '' ? `ok     ${name}` : `FAILED ${name}: ${why}`);
}

// Changes of a page's text.
export const style = (text) => (page) => page.replace('</style>', `${text}</style>`);

// For each breakage [name, start of the name of the check that must fail, change]: whether that check of `look`, which
// passes for the intact page (`found`), fails. A check that cannot fail proves nothing, nor does one that always fails.
export async function checkBreakages(breakages, found, look) {
  const wrong = found.filter(([, why]) => why !== '').map(([name]) => name);
  for (const [name, expected, change] of breakages) {
    const failing = (await look(change)).filter(([name, why]) => why !== '' && !wrong.includes(name)).map(([name]) => name);
    const right = failing.some((name) => name.startsWith(expected));
    check(`detected: ${name}`, right ? '' : `"${expected}" should have failed, but only: ${failing.join('; ')}`);
  }
}

// A browser, with further arguments and options. PLAYWRIGHT is the directory of the package playwright-core.
export function launch(args = [], options = {}) {
  const { chromium } = createRequire(import.meta.url)(process.env.PLAYWRIGHT);
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // The browser's sandbox does not work as root; the pages are the project's.
    args: ['--no-sandbox', '--disable-gpu', ...args],
    timeout: 120_000,
    ...options,
  });
}

// Runs `test` with a browser, then prints the counts.
export async function run(test) {
  const browser = await launch();
  try {
    await test(browser);
  } finally {
    await browser.close();
  }
  console.log(`${passed} passed, ${failed} failed`);
  process.exitCode = failed === 0 ? 0 : 1;
}
