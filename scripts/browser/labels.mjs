// Labels of the status page's axes.

const UNITS = { k: 1e3, M: 1e6, G: 1e9, T: 1e12 };

// The value of a label: 150000 for `150 k`.
export function value(label) {
  const [number, unit] = label.split('\u00a0');
  return Number(number) * (unit ? UNITS[unit] : 1);
}
