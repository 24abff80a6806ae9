// Reading Prometheus' text format, and numbers of a span of time from two readings.

const LINE = /^(\w+)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

/** name -> [{ labels, value }] */
export function parse(text) {
  const found = new Map();
  for (const line of text.split("\n")) {
    const match = LINE.exec(line);
    if (!match) continue;
    const [, name, inside = "", value] = match;
    const labels = Object.fromEntries([...inside.matchAll(LABEL)].map(([, key, text]) => [key, text]));
    if (!found.has(name)) found.set(name, []);
    found.get(name).push({ labels, value: Number(value) });
  }
  return found;
}

/** A reading at a moment, in seconds. */
export class Reading {
  constructor(text, time) {
    this.values = parse(text);
    this.time = time;
  }

  /** Sum of a metric's values with these labels; null without any. */
  get(name, labels = {}) {
    const wanted = Object.entries(labels);
    const found = (this.values.get(name) ?? []).filter((one) => wanted.every(([key, text]) => one.labels[key] === text));
    return found.length ? found.reduce((sum, one) => sum + one.value, 0) : null;
  }

  /** Label value -> sum of a metric, in numeric order of the label. */
  by(name, label) {
    const sums = new Map();
    for (const { labels, value } of this.values.get(name) ?? []) {
      sums.set(labels[label], (sums.get(labels[label]) ?? 0) + value);
    }
    return new Map([...sums].sort(([a], [b]) => Number(a.replace("+Inf", "Infinity")) - Number(b.replace("+Inf", "Infinity"))));
  }
}

/** What counters gained between two readings; without an earlier one, since the server started. */
export class Span {
  constructor(later, earlier = null) {
    this.later = later;
    this.earlier = earlier;
    this.seconds = earlier === null ? null : later.time - earlier.time;
  }

  gain(name, labels = {}) {
    return (this.later.get(name, labels) ?? 0) - (this.earlier?.get(name, labels) ?? 0);
  }

  gains(name, label) {
    const before = this.earlier?.by(name, label) ?? new Map();
    return new Map([...this.later.by(name, label)].map(([key, value]) => [key, value - (before.get(key) ?? 0)]));
  }

  /** Mean of a histogram's observations; null without any. */
  mean(name, labels = {}) {
    const count = this.gain(`${name}_count`, labels);
    return count > 0 ? this.gain(`${name}_sum`, labels) / count : null;
  }
}
