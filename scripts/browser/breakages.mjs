// Faults injected into a report: name, start of the name of the check that must fail, and change.

import { style } from './harness.mjs';

const add = (text) => (page) => page.replace('</main>', `${text}</main>`);

export const breakages = [
  ['a report without a series has plots without lines', 'plot: Rate over time', (page) => page.replace(/<(polyline|circle)[^>]*stroke-width="2"[^>]*\/>|<circle[^>]*\/>/g, '')],
  ['a line of one percentile is missing', 'plot: Latency by percentile', (page) => {
    const [before, after] = page.split('aria-label="Latency by percentile"');
    return `${before}aria-label="Latency by percentile"${after.replace(/<polyline[^>]*stroke="#D55E00"[^>]*\/>/, '')}`;
  }],
  ['a line leaves its frame', 'plot: Rate over time', (page) => page.replace(/(stroke="#0072B2" stroke-width="2" points=")[\d,-]+/, '$1-2000,-2000')],
  ['a plot is missing', 'plot: Memory of the tracker', (page) => page.replace(/<figure><svg[^>]*aria-label="Memory of the tracker"[^]*?<\/figure>/, '')],
  ['a label overlaps another', 'texts in plots do not overlap', (page) => page.replace(/(<text [^>]*>)([^<]*)<\/text>/, '$&$1again</text>')],
  ['figures from another run', 'figures are those of the JSON report', (page) => page.replace(/All [\d,]+ replies/, 'All 12 replies')],
  ['dark text on a dark page', 'legible: dark', style('@media (prefers-color-scheme: dark) { :root { --ink: #333; } }')],
  ['faint text on a light page', 'legible: light', style(':root { --faint: #bbb; }')],
  ['a page without a dark scheme', 'legible: dark', (page) => page.replace('prefers-color-scheme: dark', 'prefers-color-scheme: none')],
  ['content wider than a phone', 'a phone needs no scrolling', add('<p style="width: 600px">wide</p>')],
  ['plots wider than paper', 'print: nothing is cut off', style('@media print { figure svg { min-width: 80rem !important; } }')],
  ['a script that fails', 'no errors', add('<script>nowhere()</script>')],
  ['a picture from another host', 'no network requests', add('<img src="http://127.0.0.1:9/x.png" alt="">')],
];
