// Faults injected into a page, each with the start of the name of the check that must fail.

const style = (text) => (page) => page.replace('</style>', `${text}</style>`);
const add = (text) => (page) => page.replace('</main>', `${text}</main>`);

export const breakages = [
  {
    name: 'a report without a series has plots without lines',
    check: 'plot: Rate over time',
    change: (page) => page.replace(/<(polyline|circle)[^>]*stroke-width="2"[^>]*\/>|<circle[^>]*\/>/g, ''),
  },
  {
    name: 'a line of one percentile is missing',
    check: 'plot: Latency by percentile',
    change: (page) => {
      const [before, after] = page.split('aria-label="Latency by percentile"');
      return `${before}aria-label="Latency by percentile"${after.replace(/<polyline[^>]*stroke="#D55E00"[^>]*\/>/, '')}`;
    },
  },
  {
    name: 'a line leaves its frame',
    check: 'plot: Rate over time',
    change: (page) => page.replace(/(stroke="#0072B2" stroke-width="2" points=")[\d,-]+/, '$1-2000,-2000'),
  },
  {
    name: 'a plot is missing',
    check: 'plot: Memory of the tracker',
    change: (page) => page.replace(/<figure><svg[^>]*aria-label="Memory of the tracker"[^]*?<\/figure>/, ''),
  },
  {
    name: 'a label overlaps another',
    check: 'texts in plots do not overlap',
    change: (page) => page.replace(/(<text [^>]*>)([^<]*)<\/text>/, '$&$1again</text>'),
  },
  {
    name: 'figures from another run',
    check: 'figures are those of the JSON report',
    change: (page) => page.replace(/All [\d,]+ replies/, 'All 12 replies'),
  },
  {
    name: 'dark text on a dark page',
    check: 'legible: dark',
    change: style('@media (prefers-color-scheme: dark) { :root { --ink: #333; } }'),
  },
  { name: 'faint text on a light page', check: 'legible: light', change: style(':root { --faint: #bbb; }') },
  {
    name: 'a page without a dark scheme',
    check: 'legible: dark',
    change: (page) => page.replace('prefers-color-scheme: dark', 'prefers-color-scheme: none'),
  },
  {
    name: 'content wider than a phone',
    check: 'a phone needs no scrolling',
    change: add('<p style="width: 600px">wide</p>'),
  },
  {
    name: 'plots wider than paper',
    check: 'print: nothing is cut off',
    change: style('@media print { figure svg { min-width: 80rem !important; } }'),
  },
  { name: 'a script that fails', check: 'no errors', change: add('<script>nowhere()</script>') },
  {
    name: 'a picture from another host',
    check: 'no network requests',
    change: add('<img src="http://127.0.0.1:9/x.png" alt="">'),
  },
];
