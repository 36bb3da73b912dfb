// The explorer (explore.qmd): filters, axes and comparison of the rows that the page carries. Vega-Lite draws; the address holds the state.
"use strict";
(async () => {
  const at = (id) => document.getElementById(`explorer${id ? `-${id}` : ""}`);
  const form = at("controls");
  const two = ["a", "b"];
  const data = await unpacked(at("data").textContent);
  if (!data.experiments.length) return;
  const state = {};
  let all, shown, view, drawn, marked;
  let tabulated = {};
  let points = [];

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }

  // --- state: what the controls hold, and what the address does ------------------------------------------
  const experiment = () => data.experiments.find((each) => each.name === state.experiment);
  const SCALES = ["linear", "log"];
  const defaults = () => {
    const { x, y } = experiment();
    return { x, y, xscale: scaleOf(x), yscale: scaleOf(y), front: "1", bars: "1", a: "", b: "" };
  };

  // Where the largest value is more than WIDE times the smallest, a linear axis would press most points into one corner.
  const WIDE = 50;
  function scaleOf(metric) {
    const means = all.map((row) => value(row, metric).mean).filter(Number.isFinite);
    return Math.min(...means) > 0 && Math.max(...means) > WIDE * Math.min(...means) ? "log" : "linear";
  }

  function fromAddress() {
    const query = new URLSearchParams(location.search);
    const name = query.get("experiment");
    open(data.experiments.some((each) => each.name === name) ? name : data.experiments[0].name);
    for (const [key, value] of Object.entries(defaults())) state[key] = query.get(key) ?? value;
    for (const axis of ["x", "y"]) if (!experiment().metrics.includes(state[axis])) state[axis] = defaults()[axis];
    for (const axis of ["xscale", "yscale"]) if (!SCALES.includes(state[axis])) state[axis] = defaults()[axis];
    for (const name of Object.keys(data.filters)) {
      const known = new Set(all.map((row) => row[name]));
      const chosen = query.getAll(name).filter((value) => known.has(value));
      if (chosen.length) state.filters[name] = new Set(chosen);
    }
  }

  function toAddress() {
    const query = new URLSearchParams({ experiment: state.experiment });
    for (const [key, value] of Object.entries(defaults())) if (state[key] !== value) query.set(key, state[key]);
    for (const [name, values] of Object.entries(state.filters)) for (const value of values) query.append(name, value);
    // What the view of published rows keeps there stays (observatory.js).
    for (const [name, value] of new URLSearchParams(location.search)) if (name.startsWith("o-")) query.append(name, value);
    history.replaceState(null, "", `?${query}${location.hash}`);
  }

  function open(name) {
    Object.assign(state, { experiment: name, filters: {} });
    all = explorer.rows(experiment().csv).map(prepared);
    const several = (column) => new Set(all.map((row) => row[column])).size > 1;
    const versions = new Map();
    for (const row of all) versions.set(row.configuration, (versions.get(row.configuration) ?? new Set()).add(row.backend_version));
    for (const row of all) row.upgraded = versions.get(row.configuration).size > 1;
    for (const row of all) row.label = label(row, several);
  }

  // --- rows ----------------------------------------------------------------------------------------------
  function prepared(row) {
    for (const name of Object.keys(data.filters)) row[name] ??= "";
    const named = ["backend", "backend_version", "option", "model", "weights", "gpu", "host", "tensor_parallel", "data_parallel"];
    row.key = [...named, ...data.conditions].map((name) => row[name] ?? "").join("~");
    row.configuration = named.filter((name) => name !== "backend_version").map((name) => row[name]).join("~");
    row.machine = `${row.gpu} (${row.host})`;
    row.setting = [row.machine, row.model, row.weights].join("~");
    row.curve = [...named, "loop", "prompt_tokens", "max_new_tokens"].map((name) => row[name]).join("~");
    row.condition = data.conditions.filter((name) => row[name] && name !== "loop").map((name) => `${data.titles[name]} ${row[name]}`).join(", ");
    return row;
  }

  function label(row, several) {
    const parts = [row.backend, row.option];
    if (row.tensor_parallel > 1) parts.push(`TP ${row.tensor_parallel}`);
    if (row.data_parallel > 1) parts.push(`DP ${row.data_parallel}`);
    if (row.upgraded) parts.push(row.backend_version);
    if (several("model")) parts.push(row.model);
    if (row.weights === "synthetic") parts.push("(synthetic)");
    if (row.condition) parts.push(`· ${row.condition}`);
    if (several("machine")) parts.push(`on ${row.machine}`);
    return parts.join(" ");
  }

  function value(row, metric) {
    const { factor } = data.metrics[metric];
    const text = row[metric];
    const runs = !text ? 0 : experiment().uneven[metric]?.[row.place] ?? Number(row.runs);
    const half = row[`${metric}_interval`];
    return { mean: text ? text * factor : NaN, half: half ? half * factor : NaN, runs };
  }

  const passes = (row) => Object.entries(state.filters).every(([name, values]) => values.has(row[name]));
  const spelled = ({ mean, half }) => explorer.number(mean) + (half >= 0 ? ` ± ${explorer.number(half)}` : "");

  // --- controls ------------------------------------------------------------------------------------------
  function fill() {
    const option = (name) => new Option(data.metrics[name].label, name);
    for (const axis of ["x", "y"]) form.elements[axis].replaceChildren(...experiment().metrics.map(option));
    for (const name of ["experiment", "x", "y", "xscale", "yscale"]) form.elements[name].value = state[name];
    for (const name of ["front", "bars"]) form.elements[name].checked = state[name] === "1";
    const folded = Object.entries(data.filters).map(([name, title]) => filter(name, title)).filter(Boolean);
    form.querySelector(".filters").replaceChildren(...folded);
  }

  function filter(name, title) {
    const values = [...new Set(all.map((row) => row[name]))].sort((a, b) => a - b || a.localeCompare(b, "en", { numeric: true }));
    if (values.length === 1 && !data.always.includes(name)) return null;
    const details = document.createElement("details");
    details.innerHTML = `<summary></summary><fieldset><legend>${title}</legend></fieldset>`;
    details.dataset.name = name;
    for (const value of values) {
      const box = Object.assign(document.createElement("input"), { type: "checkbox", name, value, checked: state.filters[name]?.has(value) ?? false });
      const words = document.createElement("label");
      words.append(box, ` ${value || "not stated"}`);
      details.lastChild.append(words);
    }
    summarise(details, title);
    return details;
  }

  function summarise(details) {
    const chosen = state.filters[details.dataset.name];
    const words = chosen ? [...chosen].map((value) => value || "not stated").join(", ") : "all";
    details.firstChild.textContent = `${data.filters[details.dataset.name]}: ${words}`;
    details.classList.toggle("chosen", Boolean(chosen));
  }

  // --- the picture ---------------------------------------------------------------------------------------
  function point(row) {
    const [x, y] = [value(row, state.x), value(row, state.y)];
    const [xlow, xhigh] = ends(x, state.xscale);
    const [ylow, yhigh] = ends(y, state.yscale);
    const chosen = two.filter((name) => state[name] === row.key).join("").toUpperCase();
    return { key: row.key, x: x.mean, y: y.mean, xlow, xhigh, ylow, yhigh, chosen, backend: row.backend, bits: row.bits || "other", curve: row.curve,
      order: Number(row.concurrency || row.request_rate || row.batch_size || 0) * 1e6 + Number(row.prompt_tokens || 0), setting: row.setting, hover: hover(row, x, y) };
  }

  // No metric is below zero, so a whisker ends there at the latest; on a log axis, which has no zero, at a tenth of its point.
  function ends({ mean, half }, scale) {
    if (!(half >= 0)) return [mean, mean];
    return [Math.max(mean - half, scale === "log" ? mean / 10 : Math.min(mean, 0)), mean + half];
  }

  function hover(row, x, y) {
    const first = { title: row.label, version: row.backend_version, machine: row.machine, model: `${row.model} (${row.weights} weights)` };
    for (const [name, each] of [[state.x, x], [state.y, y]]) first[data.metrics[name].label] = spelled(each) + (each.half >= 0 ? ` (95 %${each.runs === 1 ? ", one run" : ""})` : ", no interval");
    if (row.state && row.state !== "steady") first.state = row.state;
    return { ...first, runs: `${row.runs}: ${row.run_ids}`, command: row.command };
  }

  function fronts(points) {
    const [xd, yd] = [state.x, state.y].map((name) => data.metrics[name].direction);
    if (state.front !== "1" || !xd || !yd) return [];
    const groups = new Map(points.filter(usable).map((p) => [p.setting, []]));
    for (const p of points.filter(usable)) groups.get(p.setting).push(p);
    return [...groups.values()].flatMap((group) => explorer.front(group, xd, yd));
  }

  const usable = (p) => Number.isFinite(p.x) && Number.isFinite(p.y) && (state.xscale !== "log" || p.x > 0) && (state.yscale !== "log" || p.y > 0);

  function specification() {
    const engines = Object.keys(data.colours).filter((name) => all.some((row) => row.backend === name));
    const axis = (name) => ({ field: name, type: "quantitative", title: data.metrics[state[name]].label, scale: { type: state[`${name}scale`], ...(state[`${name}scale`] === "linear" && { zero: true }) } });
    const xy = { x: axis("x"), y: axis("y") };
    const color = { field: "backend", type: "nominal", title: "engine", scale: { domain: engines, range: engines.map((name) => data.colours[name]) } };
    const from = (name) => ({ data: { name } });
    const whisker = (own) => ({ ...from("whiskers"), mark: { type: "rule", opacity: 0.55, clip: true }, encoding: { ...xy, ...own, color } });
    const point = { type: "point", filled: true, size: 90, opacity: 0.95, tooltip: { content: "data" }, stroke: getComputedStyle(at()).color, strokeWidth: 0.7 };
    return {
      width: "container", height: 420, background: null, autosize: { type: "fit", contains: "padding" }, padding: 4,
      datasets: { points: [], whiskers: [], front: [], curves: [], marked: [] }, ...from("points"),
      layer: [
        { ...from("curves"), mark: { type: "line", opacity: 0.5, strokeWidth: 1.2 }, encoding: { ...xy, color, detail: { field: "curve" }, order: { field: "order" } } },
        { ...from("front"), mark: { type: "line", strokeDash: [5, 4], strokeWidth: 1.5, color: "gray" }, encoding: { ...xy, detail: { field: "setting" }, order: { field: "x" } } },
        whisker({ x: { ...xy.x, field: "xlow" }, x2: { field: "xhigh" } }),
        whisker({ y: { ...xy.y, field: "ylow" }, y2: { field: "yhigh" } }),
        { mark: point, encoding: { ...xy, color, shape: { field: "bits", type: "nominal", title: "bits", sort: ["32", "16", "8", "6", "5", "4", "3", "2", "other"] } } },
        { ...from("marked"), mark: { type: "point", size: 420, strokeWidth: 2.5, color: getComputedStyle(at()).color }, encoding: xy },
        { mark: { type: "text", dy: -13, fontWeight: "bold", fontSize: 14 }, encoding: { ...xy, text: { field: "chosen" } } },
      ],
      config: theme(),
    };
  }

  function theme() {
    const ink = getComputedStyle(at()).color;
    const font = getComputedStyle(document.body).fontFamily;
    const narrow = innerWidth < 700;
    return {
      font, text: { color: ink }, view: { stroke: null },
      axis: { labelColor: ink, titleColor: ink, tickColor: ink, domainColor: ink, gridColor: ink, gridOpacity: 0.12, labelFontSize: 12, titleFontSize: 13 },
      legend: { symbolBaseFillColor: ink, symbolBaseStrokeColor: ink, symbolOpacity: 1, labelColor: ink, titleColor: ink, labelFontSize: 12, titleFontSize: 12, orient: narrow ? "bottom" : "right", columns: narrow ? 2 : 1, direction: narrow ? "horizontal" : "vertical" },
    };
  }

  const dark = () => getComputedStyle(at()).color.match(/[\d.]+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) > 384;

  async function build() {
    const wanted = JSON.stringify([state.experiment, state.x, state.y, state.xscale, state.yscale, innerWidth < 700, dark()]);
    if (wanted === drawn) return;
    drawn = wanted;
    view?.finalize();
    const actions = { export: true, source: false, compiled: false, editor: false };
    const tooltip = { theme: dark() ? "dark" : "light", formatTooltip: (value, safe) => hint(value.hover ?? {}, safe) };
    // Log level 1: errors. That a set is empty until its rows come is none.
    view = (await vegaEmbed(at("chart"), specification(), { actions, tooltip, renderer: "canvas", mode: "vega-lite", logLevel: 1 })).view;
    at("chart").querySelector("summary")?.setAttribute("aria-label", "Save the chart as a picture");
    view.addEventListener("click", (_, item) => item?.datum?.key && choose(item.datum.key));
  }

  // --- one point at a time: with the arrow keys in the chart, or by way of its row in the table -----------
  // A ring around the point of the row `key`; around none for a row without a point.
  function mark(key) {
    if (key === marked) return;
    marked = key;
    view.data("marked", points.filter((p) => p.key === key)).runAsync();
  }

  // From the marked point to the next one (`by` 1 or -1) from left to right; without a marked one, to an end.
  function walk(by) {
    const order = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
    if (!order.length) return;
    const place = order.findIndex((p) => p.key === marked);
    const from = place < 0 && by === -1 ? order.length : place;
    const next = Math.min(Math.max(from + by, 0), order.length - 1);
    mark(order[next].key);
    const { title, version, machine, model, runs, command, ...values } = order[next].hover;
    const words = Object.entries(values).map(([name, text]) => `${name} ${text}`).join("; ");
    at("marked").textContent = `${next + 1} of ${order.length}: ${title}: ${words}`;
  }

  const KEYS = { ArrowRight: () => walk(1), ArrowUp: () => walk(1), ArrowLeft: () => walk(-1), ArrowDown: () => walk(-1), Home: () => walk(-Infinity), End: () => walk(Infinity) };

  function pressed(event) {
    if (event.target !== at("chart") || event.altKey || event.ctrlKey || event.metaKey) return;
    const chosen = event.key === "Enter" || event.key === " ";
    if (!chosen && !KEYS[event.key]) return;
    event.preventDefault(); // an arrow or the space bar would scroll the page
    if (!chosen) KEYS[event.key]();
    else if (points.some((p) => p.key === marked)) choose(marked);
  }

  const hint = ({ title, ...rows }, safe) => `<h2>${safe(title ?? "")}</h2><table>${Object.entries(rows).map(([name, words]) => `<tr><th scope="row">${safe(name)}</th><td>${safe(words)}</td></tr>`).join("")}</table>`;

  function choose(key) {
    const free = two.find((name) => !state[name]) ?? "b";
    if (!two.some((name) => state[name] === key)) state[free] = key;
    update();
  }

  // --- the comparison ------------------------------------------------------------------------------------
  function pick() {
    const options = shown.map((row) => new Option(row.label, row.key));
    for (const name of two) {
      const select = form.elements[name];
      const outside = all.find((row) => row.key === state[name] && !shown.includes(row));
      if (state[name] && !all.some((row) => row.key === state[name])) state[name] = "";
      select.replaceChildren(new Option("choose a row", ""), ...(outside ? [new Option(`${outside.label} (filtered out)`, outside.key)] : []), ...options.map((each) => each.cloneNode(true)));
      select.value = state[name];
    }
    const [first, second] = two.map((name) => all.find((row) => row.key === state[name]));
    at("compared").innerHTML = first && second ? compared(first, second) : "<p>Choose two rows: in the lists above, by a click on their points, or with the buttons A and B of the table.</p>";
  }

  const escaped = (text) => String(text).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  function compared(first, second) {
    const both = experiment().metrics.filter((name) => first[name] && second[name]);
    const alike = ["setting", "loop", "condition"].every((name) => first[name] === second[name]);
    const rows = [...new Set([state.y, state.x, ...both])].filter((name) => both.includes(name)).map((name) => {
      const { label, direction } = data.metrics[name];
      const [a, b] = [value(first, name), value(second, name)];
      const half = explorer.half(experiment().comparisons, name, first.place, second.place);
      const found = explorer.ratio(a, b, half, alike, data.verdicts, direction);
      const interval = Number.isFinite(found.low) ? `${explorer.number(found.low)} to ${explorer.number(found.high)}` : "";
      const cells = [spelled(a), spelled(b), explorer.number(found.ratio), interval, found.verdict].map((text) => `<td>${escaped(text)}</td>`);
      return `<tr data-metric="${name}" data-ratio="${found.ratio}" data-low="${found.low}" data-high="${found.high}"><th scope="row">${escaped(label)}</th>${cells.join("")}</tr>`;
    });
    const heads = ["metric", "first", "second", "first / second", "95 % interval", "verdict on the first"].map((text) => `<th scope="col">${text}</th>`);
    const runs = [first, second].map((row) => `<p class="small"><b>${escaped(row.label)}</b>, version ${escaped(row.backend_version)}, ${escaped(row.machine)}; runs <code>${escaped(row.run_ids)}</code><br><code>${escaped(row.command)}</code></p>`);
    return `${warnings(first, second)}<div class="table-scroll" role="region" tabindex="0" aria-label="The two compared"><table><thead><tr>${heads.join("")}</tr></thead><tbody>${rows.join("")}</tbody></table></div>${runs.join("")}<p class="small">Means have the measuring sessions taken out. Each interval holds for itself.</p>`;
  }

  function warnings(first, second) {
    const found = [];
    if (first.machine !== second.machine) found.push(`These two ran on different machines, ${first.machine} and ${second.machine}: the ratio is of machine and engine together.`);
    if (first.model !== second.model || first.weights !== second.weights) found.push("They ran different models or weights.");
    if (first.condition !== second.condition || first.loop !== second.loop) found.push(`Their conditions differ: ${first.loop} ${first.condition} and ${second.loop} ${second.condition}.`);
    for (const row of [first, second]) if (row.state && row.state !== "steady") found.push(`${row.label}: ${row.state}, so no steady state was measured.`);
    for (const row of [first, second]) if (Number(row.failed)) found.push(`${row.label}: ${row.failed} requests failed.`);
    return found.map((words) => `<p class="mixed">${escaped(words)}</p>`).join("");
  }

  // --- the table -----------------------------------------------------------------------------------------
  function tabulate(front) {
    const columns = [...new Set([state.x, state.y])];
    const anew = all !== tabulated.all || columns.join() !== tabulated.columns;
    if (anew) make(columns);
    // A choice changes no row: the table keeps its order, and the button its focus.
    const same = !anew && shown.length === tabulated.shown.length && shown.every((row, place) => row === tabulated.shown[place]);
    if (!same) at("table").tBodies[0].replaceChildren(...shown.map((row) => row.tr));
    tabulated = { all, shown, columns: columns.join() };
    const best = new Set(front.map((p) => p.key));
    for (const row of shown) choices(row, best.has(row.key) ? "front" : "");
  }

  // The head, and the line of every row of the experiment: made once, for a filter only takes them out and in.
  function make(columns) {
    const heads = ['<th scope="col">configuration</th><th scope="col" class="no-sort">compare</th>'];
    for (const name of columns) heads.push(`<th scope="col" class="number">${escaped(data.metrics[name].label)}</th><th scope="col" class="number">± 95 %</th>`);
    heads.push('<th scope="col" class="number">runs</th><th scope="col">front</th><th scope="col">version</th><th scope="col">machine</th>');
    at("table").tHead.innerHTML = `<tr>${heads.join("")}</tr>`;
    const cell = (number) => `<td class="number" data-sort="${Number.isFinite(number) ? number : ""}">${explorer.number(number)}</td>`;
    const button = (row, name, word) => `<button type="button" data-pick="${name}" aria-pressed="false" aria-label="Compare: ${escaped(row.label)} as the ${word}">${name.toUpperCase()}</button>`;
    const body = document.createElement("tbody");
    body.innerHTML = all.map((row) => {
      const numbers = columns.map((name) => value(row, name)).map(({ mean, half }) => cell(mean) + cell(half)).join("");
      const buttons = button(row, "a", "first") + button(row, "b", "second");
      return `<tr data-key="${escaped(row.key)}"><th scope="row">${escaped(row.label)}</th><td class="buttons">${buttons}</td>${numbers}${cell(Number(row.runs))}<td class="front"></td><td>${escaped(row.backend_version)}</td><td>${escaped(row.machine)}</td></tr>`;
    }).join("");
    [...body.rows].forEach((tr, place) => { all[place].tr = tr; all[place].chosen = ""; });
  }

  // What a choice or a filter changes in the line of a row: the front, and which of the two compared it is.
  function choices(row, front) {
    const pressed = two.filter((name) => state[name] === row.key);
    const now = [front, ...pressed].join();
    if (now === row.chosen) return;
    row.chosen = now;
    row.tr.querySelector(".front").textContent = front;
    row.tr.classList.toggle("chosen", pressed.length > 0);
    for (const each of row.tr.querySelectorAll("[data-pick]")) each.setAttribute("aria-pressed", pressed.includes(each.dataset.pick));
  }

  function csv() {
    return [experiment().csv.slice(0, experiment().csv.indexOf("\n")), ...shown.map((row) => row.line), ""].join("\n");
  }

  function download() {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([csv()], { type: "text/csv" })), download: `${state.experiment}.csv` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- all together --------------------------------------------------------------------------------------
  async function update() {
    const began = performance.now();
    shown = all.filter(passes);
    toAddress();
    await build();
    points = shown.map(point).filter(usable);
    const front = fronts(points);
    const whiskers = state.bars === "1" ? points.filter((p) => p.xlow < p.xhigh || p.ylow < p.yhigh) : [];
    const sets = { points, whiskers, front, curves: all.some((row) => row.condition) ? points : [], marked: points.filter((p) => p.key === marked) };
    for (const [name, rows] of Object.entries(sets)) view.data(name, rows);
    // Labels of the axes may be wider than before: without a new layout they push the axis' title out of the picture.
    await view.resize().runAsync();
    if (!at().dataset.ready) performance.mark("explorer-first");
    tabulate(front);
    pick();
    say(points);
    performance.measure("explorer-update", { start: began });
    at().dataset.ready = String(Number(at().dataset.ready ?? 0) + 1);
  }

  function say(points) {
    const missing = shown.length - points.length;
    at("count").textContent = `${shown.length} of ${all.length} rows` + (missing ? `; ${missing} of them have no point: a value is missing, or not above zero on a log axis.` : ".");
    const machines = new Set(shown.map((row) => row.machine));
    at("mixed").hidden = machines.size < 2;
    at("mixed").textContent = `This view shows ${machines.size} machines beside each other: ${[...machines].join(", ")}. A difference between two machines is not one between engines.`;
    const undirected = [state.x, state.y].some((name) => !data.metrics[name].direction);
    const settings = new Set(shown.map((row) => row.setting)).size;
    at("front-note").textContent = state.front !== "1" ? "" : undirected ? "No front: of one of these metrics neither more nor less is better." : `Dashed: the Pareto front of the means, which no other row beats in both${settings > 1 ? ", for each machine, model and kind of weights by itself" : ""}.`;
  }

  form.addEventListener("change", ({ target }) => {
    if (target.closest("details")) {
      const { name } = target.closest("details").dataset;
      const chosen = [...form.querySelectorAll(`details[data-name="${name}"] input:checked`)].map((box) => box.value);
      if (chosen.length) state.filters[name] = new Set(chosen);
      else delete state.filters[name];
      summarise(target.closest("details"));
    } else if (target.name === "experiment") {
      open(target.value);
      Object.assign(state, defaults());
      fill();
    } else state[target.name] = target.type === "checkbox" ? String(Number(target.checked)) : target.value;
    update();
  });
  for (const name of two) form.elements[name].addEventListener("change", ({ target }) => { state[name] = target.value; update(); });
  form.addEventListener("submit", (event) => event.preventDefault());
  at("table").addEventListener("click", ({ target }) => {
    if (!target.dataset.pick) return;
    state[target.dataset.pick] = target.closest("tr").dataset.key;
    update();
  });
  at("chart").addEventListener("keydown", pressed);
  at("chart").addEventListener("focusout", () => { at("marked").textContent = ""; mark(undefined); });
  for (const event of ["focusin", "mouseover"]) at("table").addEventListener(event, ({ target }) => mark(target.closest("tr")?.dataset.key));
  for (const event of ["focusout", "mouseleave"]) at("table").addEventListener(event, () => mark(undefined));
  at("csv").addEventListener("click", download);
  at("clear").addEventListener("click", () => { state.filters = {}; fill(); update(); });
  addEventListener("popstate", () => { fromAddress(); fill(); update(); });
  const repaint = () => view && update();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  matchMedia("(max-width: 700px)").addEventListener("change", repaint);
  new MutationObserver(repaint).observe(document.body, { attributeFilter: ["class"] });

  // Whatever an old browser lacks, its reader keeps the figure and the table.
  const live = (on) => Object.assign(at(), { hidden: !on }) && Object.assign(document.getElementById("explorer-static"), { hidden: on });
  live(true);
  try {
    fromAddress();
    fill();
    await update();
  } catch (error) {
    live(false);
    throw error;
  }
})();
