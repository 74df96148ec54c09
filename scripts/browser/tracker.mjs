// A tracker and a load generator as child processes; `end` stops all of them.

import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';

const started = new Set();

function run(program, args, log) {
  const file = openSync(log, 'a');
  const child = spawn(program, args, { stdio: ['ignore', file, file] });
  closeSync(file);
  child.over = new Promise((done) => {
    child.on('exit', (code, signal) => { started.delete(child); done(code ?? signal); });
    child.on('error', (error) => { started.delete(child); done(String(error)); });
  });
  started.add(child);
  return child;
}

// Polls `condition` until its value is true; returns the last value.
export async function until(condition, seconds = 120) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value || Date.now() > end) return value;
    await new Promise((next) => setTimeout(next, 100));
  }
}

export function tracker({ bin, place, state, config, udp, udp6, http, admin }) {
  const args = ['--config', config, '--listen', udp, '--listen', udp6, '--http', http, '--admin', admin, '--state-dir', state];
  return run(join(bin, 'onrush'), args, join(place, 'onrush-status.log'));
}

export function load({ bin, place, udp, udp6 }, seconds) {
  const args = ['--target', udp, '--target', udp6, '--set', 'v6=0.3', '--rate', '1500', '--duration', String(seconds), '--seed', '1', '--swarms', '1000', '--quiet'];
  return run(join(bin, 'onrush-load'), args, join(place, 'load-status.log'));
}

export async function stop(child) {
  child.kill('SIGTERM');
  return child.over;
}

export async function end() {
  await Promise.all([...started].map(stop));
}
