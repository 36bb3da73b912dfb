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

// Half the width of the interval of the log of the ratio of `metric` of two rows (their places), from `comparisons` as bench/topics/explorer.py
// ships them. null: the two never met in a measuring session; undefined: no run was repeated; false: one of them is in no model.
explorer.half = (comparisons, metric, first, second) => {
  if (first === second) return 0;
  for (const { rows, classes, halves } of comparisons) {
    const [i, j] = [rows.indexOf(first), rows.indexOf(second)];
    if (!halves[metric] || i < 0 || j < 0) continue;
    const [low, high] = [classes[i], classes[j]].sort((a, b) => a - b);
    return halves[metric][(high * (high + 1)) / 2 + low];
  }
  return false;
};

// The ratio of two adjusted means {mean, runs} with its interval and verdict, as Fit.compare of bench/topics/comparison.py has it. `half` is
// explorer.half; `alike` says whether both are of one machine, model and condition, which alone are compared.
explorer.ratio = (first, second, half, alike, verdicts, direction) => {
  const found = { ratio: NaN, low: NaN, high: NaN };
  if (!(first.runs && second.runs)) return { ...found, verdict: verdicts.none };
  if (!alike) return { ...found, verdict: verdicts.elsewhere };
  if (half === false || !(first.mean > 0 && second.mean > 0)) return { ...found, verdict: verdicts.zero };
  if (half === null) return { ...found, verdict: verdicts.not_connected };
  found.ratio = first.mean / second.mean;
  if (half === undefined) return { ...found, verdict: first.runs === 1 && second.runs === 1 ? verdicts.one_each : verdicts.no_scatter };
  found.low = found.ratio * Math.exp(-half);
  found.high = found.ratio * Math.exp(half);
  const more = found.low > 1;
  if (!more && !(found.high < 1)) return { ...found, verdict: verdicts.equal };
  return { ...found, verdict: direction === 0 ? (more ? verdicts.more : verdicts.less) : more === direction > 0 ? verdicts.better : verdicts.worse };
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
