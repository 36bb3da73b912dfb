// What the explorer computes of its rows: reading the CSV, ratios with their intervals, the Pareto front. No page is touched here.
"use strict";
const explorer = (globalThis.explorer = {});

// Rows of a CSV that pandas wrote: objects of text, with `line`, the row as it stands in the file. A value holds no line break.
explorer.rows = (text) => {
  const lines = text.trimEnd().split("\n");
  const head = lines[0].split(",");
  return lines.slice(1).map((line, place) => {
    const cells = line.includes('"') ? [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^,]*))/g)].map((m) => m[1]?.replaceAll('""', '"') ?? m[2]) : line.split(",");
    return Object.assign(Object.fromEntries(head.map((name, k) => [name, cells[k]])), { line, place });
  });
};

// Student's two-sided quantile: `series` are Chebyshev coefficients in 1 / freedom on [0, 1] (Clenshaw's recurrence).
explorer.quantile = (series, freedom) => {
  const x = 2 / freedom - 1;
  let [one, two] = [0, 0];
  for (const c of series.slice(1).reverse()) [one, two] = [2 * x * one - two + c, one];
  return x * one - two + series[0];
};

// The ratio of two means with its interval, as bench/analysis/statistics.py has it. `first` and `second` are {mean, half, runs}.
explorer.ratio = (first, second, { student, freedom, verdicts }, direction) => {
  const found = { ratio: NaN, low: NaN, high: NaN };
  if (!(first.runs && second.runs)) return { ...found, verdict: verdicts.none };
  if (!(first.mean > 0 && second.mean > 0)) return { ...found, verdict: verdicts.zero };
  found.ratio = first.mean / second.mean;
  if (first.runs < 2 || second.runs < 2) return { ...found, verdict: first.runs === second.runs ? verdicts.one_each : verdicts.one_of_one };
  const [a, b] = [first, second].map((each) => {
    const free = freedom[each.runs];
    return { free, square: (each.half / explorer.quantile(student, free) / each.mean) ** 2 };
  });
  const sum = a.square + b.square;
  const free = sum > 0 ? sum ** 2 / (a.square ** 2 / a.free + b.square ** 2 / b.free) : a.free + b.free;
  const half = explorer.quantile(student, free) * Math.sqrt(sum);
  found.low = Math.exp(Math.log(found.ratio) - half);
  found.high = Math.exp(Math.log(found.ratio) + half);
  const apart = found.low > 1 || found.high < 1;
  const more = found.low > 1;
  return { ...found, verdict: !apart ? verdicts.equal : direction === 0 ? (more ? "more" : "less") : more === direction > 0 ? "better" : "worse" };
};

// Which of `points` ({x, y}) no other beats: none is at least as good in both and better in one. Directions: 1 more is better, -1 less.
explorer.front = (points, xdirection, ydirection) => {
  const sorted = points.map((p) => ({ p, x: p.x * xdirection, y: p.y * ydirection })).sort((a, b) => b.x - a.x || b.y - a.y);
  const front = [];
  let best = -Infinity;
  let at = NaN;
  for (const { p, x, y } of sorted) {
    if (y > best || (y === best && x === at)) front.push(p);
    if (y > best) [best, at] = [y, x];
  }
  return front;
};

// A number as the tables have it: three significant digits, counts in full.
explorer.number = (value) => {
  if (!Number.isFinite(value)) return "";
  if (Number.isInteger(value) && Math.abs(value) < 1e6) return value.toLocaleString("en-US");
  const decimals = Math.max(0, 2 - Math.floor(Math.log10(Math.abs(value))));
  const rounded = Number(value.toPrecision(Math.max(3, Math.ceil(Math.log10(Math.abs(value))))));
  return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
};
