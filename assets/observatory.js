// The observatory's view of the Explorer (explore.qmd): tens of thousands of published rows as columns, filtered and drawn on a canvas.
// Data: downloads/observatory.js. The address holds the state, each name with "o-" before it, beside the state of our own rows.
"use strict";
(async () => {
  const at = (id) => document.getElementById(`observatory${id ? `-${id}` : ""}`);
  if (!at() || !globalThis.observatoryData) return;
  const data = globalThis.observatoryData;
  const form = at("controls");
  const canvas = at("chart");
  const SHOWN = 200; // rows of the table; the CSV has all
  const LISTED = 400; // values of one filter
  const COLOURS = ["#0173b2", "#de8f05", "#029e73", "#d55e00", "#cc78bc", "#ca9161", "#fbafe4", "#949494", "#ece133", "#56b4e9"];
  const column = {};

  async function unpacked(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  }
  async function read(name) {
    if (column[name]) return;
    const packed = data.columns[name];
    if (packed.numbers) column[name] = { numbers: new Float32Array(await unpacked(packed.numbers)) };
    else {
      const codes = await unpacked(packed.codes);
      const values = JSON.parse(new TextDecoder().decode(await unpacked(packed.values)));
      column[name] = { codes: packed.bytes === 2 ? new Uint16Array(codes) : new Uint32Array(codes), values: ["", ...values] };
    }
    delete packed.numbers, delete packed.codes;
  }
  const text = (name, row) => column[name].values[column[name].codes[row]];
  const number = (name, row) => column[name].numbers[row];
  const short = (v) => (!Number.isFinite(v) ? "" : Math.abs(v) >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3))));
  const escaped = (words) => String(words).replace(/[&<>"]/g, (c) => `&#${c.charCodeAt(0)};`);

  // --- state ---------------------------------------------------------------------------------------------
  const DEFAULTS = { x: "bandwidth_gb_per_s", y: "output_tokens_per_s_per_request", xscale: "log", yscale: "log", colour: "kind", which: "others", a: "", b: "" };
  const state = { ...DEFAULTS, filters: {} };
  let shown = new Uint32Array(0);
  let marked = -1;
  let dots = []; // rows that have a dot, with their places on the canvas

  function fromAddress() {
    const query = new URLSearchParams(location.search);
    for (const [name, usual] of Object.entries(DEFAULTS)) state[name] = query.get(`o-${name}`) ?? usual;
    for (const axis of ["x", "y"]) if (!data.metrics[state[axis]]) state[axis] = DEFAULTS[axis];
    for (const axis of ["xscale", "yscale"]) if (!["log", "linear"].includes(state[axis])) state[axis] = DEFAULTS[axis];
    if (!data.filters[state.colour]) state.colour = DEFAULTS.colour;
    if (!["others", "mlperf"].includes(state.which)) state.which = DEFAULTS.which;
    state.filters = {};
    for (const name of Object.keys(data.filters)) {
      const known = new Set(column[name].values);
      const chosen = query.getAll(`o-${name}`).filter((value) => known.has(value));
      if (name !== "which" && chosen.length) state.filters[name] = new Set(chosen);
    }
  }

  // Our own rows keep their part of the address, and we ours.
  globalThis.observatoryState = () => {
    const found = [];
    for (const [name, usual] of Object.entries(DEFAULTS)) if (state[name] !== usual) found.push([`o-${name}`, state[name]]);
    for (const [name, values] of Object.entries(state.filters)) for (const value of values) found.push([`o-${name}`, value]);
    return found;
  };
  function toAddress() {
    const query = new URLSearchParams([...new URLSearchParams(location.search)].filter(([name]) => !name.startsWith("o-")));
    for (const [name, value] of globalThis.observatoryState()) query.append(name, value);
    history.replaceState(null, "", `?${query}${location.hash}`);
  }

  // --- which rows ----------------------------------------------------------------------------------------
  // Rows that all filters keep, but that of the column `without`.
  function filtered(without = "") {
    const tests = Object.entries(state.filters).filter(([name]) => name !== without).map(([name, values]) => {
      const wanted = new Uint8Array(column[name].values.length);
      column[name].values.forEach((value, code) => { wanted[code] = values.has(value) ? 1 : 0; });
      return [column[name].codes, wanted];
    });
    // What the checks exclude enters a picture only where the reader asks for it.
    const audit = column.audit.codes;
    const excluded = state.filters.audit ? -1 : column.audit.values.indexOf("excluded");
    const within = column.comparable_within.codes;
    const mlperf = state.which === "mlperf";
    const found = new Uint32Array(data.rows);
    let count = 0;
    next: for (let row = 0; row < data.rows; row++) {
      if ((within[row] > 0) !== mlperf || audit[row] === excluded) continue;
      for (const [codes, wanted] of tests) if (!wanted[codes[row]]) continue next;
      found[count++] = row;
    }
    return found.subarray(0, count);
  }

  // --- controls ------------------------------------------------------------------------------------------
  function fill() {
    for (const axis of ["x", "y"]) form.elements[axis].replaceChildren(...Object.entries(data.metrics).map(([name, [label, unit]]) => new Option(unit ? `${label} (${unit})` : label, name)));
    for (const name of ["x", "y", "xscale", "yscale", "colour", "which"]) form.elements[name].value = state[name];
    form.querySelector(".filters").replaceChildren(...Object.keys(data.filters).map(filter));
  }

  function filter(name) {
    const details = document.createElement("details");
    details.dataset.name = name;
    details.innerHTML = `<summary></summary><fieldset><legend>${escaped(data.filters[name])}</legend></fieldset>`;
    details.addEventListener("toggle", () => details.open && list(details));
    summarise(details);
    return details;
  }

  // The values of a filter among the rows that the other filters keep, most frequent first; made whenever it is opened.
  function list(details) {
    const { name } = details.dataset;
    const { codes, values } = column[name];
    const counts = new Uint32Array(values.length);
    for (const row of filtered(name)) counts[codes[row]]++;
    const chosen = (code) => state.filters[name]?.has(values[code]) ?? false;
    const order = [...values.keys()].filter((code) => counts[code] || chosen(code)).sort((a, b) => counts[b] - counts[a]);
    const lines = order.slice(0, LISTED).map((code) => {
      const box = Object.assign(document.createElement("input"), { type: "checkbox", name, value: values[code], checked: chosen(code) });
      const words = document.createElement("label");
      words.append(box, ` ${values[code] || "not stated"} (${counts[code].toLocaleString("en")})`);
      return words;
    });
    const search = Object.assign(document.createElement("input"), { type: "search", placeholder: "Search", ariaLabel: `Search in ${data.filters[name]}` });
    search.addEventListener("input", () => { for (const line of lines) line.hidden = !line.textContent.toLowerCase().includes(search.value.toLowerCase()); });
    details.lastChild.replaceChildren(details.lastChild.firstChild, ...(lines.length > 8 ? [search] : []), ...lines);
  }

  function summarise(details) {
    const chosen = state.filters[details.dataset.name];
    const words = chosen ? [...chosen].map((value) => value || "not stated").join(", ") : "all";
    details.firstChild.textContent = `${data.filters[details.dataset.name]}: ${words}`;
    details.classList.toggle("chosen", Boolean(chosen));
  }

  // --- the picture ---------------------------------------------------------------------------------------
  function axis(values, log) {
    let low = Infinity;
    let high = -Infinity;
    for (const v of values) if (v < low) low = v;
    for (const v of values) if (v > high) high = v;
    if (!(low <= high)) return null;
    if (log) return { log, low: Math.log(low / 1.15), high: Math.log(high * 1.15) };
    const room = (high - Math.min(low, 0)) * 0.04 || 1;
    return { log, low: Math.min(low, 0) - (low < 0 ? room : 0), high: high + room };
  }

  function ticks({ log, low, high }) {
    if (log) {
      const found = [];
      const decades = (high - low) / Math.LN10;
      for (let power = Math.floor(low / Math.LN10); power <= high / Math.LN10; power++) {
        for (const k of decades > 3 ? [1] : decades > 1.4 ? [1, 3] : [1, 2, 3, 5, 7]) {
          const v = k * 10 ** power;
          if (Math.log(v) >= low && Math.log(v) <= high) found.push(v);
        }
      }
      return found;
    }
    const rough = (high - low) / 6;
    const size = 10 ** Math.floor(Math.log10(rough));
    const by = [1, 2, 5, 10].map((k) => k * size).find((v) => v >= rough);
    const found = [];
    for (let v = Math.ceil(low / by) * by; v <= high; v += by) found.push(Number(v.toPrecision(12)));
    return found;
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const ink = getComputedStyle(at()).color;
    const [left, bottom, top, right] = [58, 46, 10, 10];
    const [xs, ys] = [column[state.x].numbers, column[state.y].numbers];
    const [fx, fy] = [data.metrics[state.x][3], data.metrics[state.y][3]];
    const [logx, logy] = [state.xscale === "log", state.yscale === "log"];
    const kept = [];
    const [vx, vy] = [[], []];
    for (const row of shown) {
      const [x, y] = [xs[row] * fx, ys[row] * fy];
      if (!(x === x && y === y) || (logx && x <= 0) || (logy && y <= 0)) continue;
      kept.push(row), vx.push(x), vy.push(y);
    }
    const [ax, ay] = [axis(vx, logx), axis(vy, logy)];
    dots = { rows: kept, x: new Float32Array(kept.length), y: new Float32Array(kept.length) };
    pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    pen.fillStyle = ink;
    if (!ax || !ay) return void pen.fillText("No row of this view has both metrics.", left, height / 2);
    const px = (v) => left + ((width - left - right) * ((logx ? Math.log(v) : v) - ax.low)) / (ax.high - ax.low);
    const py = (v) => height - bottom - ((height - bottom - top) * ((logy ? Math.log(v) : v) - ay.low)) / (ay.high - ay.low);
    pen.strokeStyle = ink;
    pen.lineWidth = 1;
    pen.textAlign = "center";
    let last = -Infinity;
    for (const v of ticks(ax)) {
      pen.globalAlpha = 0.12, pen.beginPath(), pen.moveTo(px(v), top), pen.lineTo(px(v), height - bottom), pen.stroke(), (pen.globalAlpha = 1);
      const words = short(v);
      if (px(v) - last > pen.measureText(words).width + 8) pen.fillText(words, px(v), height - bottom + 16), (last = px(v));
    }
    pen.textAlign = "right";
    for (const v of ticks(ay)) {
      pen.globalAlpha = 0.12, pen.beginPath(), pen.moveTo(left, py(v)), pen.lineTo(width - right, py(v)), pen.stroke(), (pen.globalAlpha = 1);
      pen.fillText(short(v), left - 5, py(v) + 4);
    }
    const title = (name) => `${data.metrics[name][0]}${data.metrics[name][1] ? ` (${data.metrics[name][1]})` : ""}`;
    pen.textAlign = "center";
    pen.fillText(title(state.x), left + (width - left - right) / 2, height - 8, width - left);
    pen.save(), pen.translate(12, (height - bottom + top) / 2), pen.rotate(-Math.PI / 2), pen.fillText(title(state.y), 0, 0, height - bottom), pen.restore();
    // Colours of the most frequent values; the rest is grey.
    const { codes, values } = column[state.colour];
    const counts = new Map();
    for (const row of kept) counts.set(codes[row], (counts.get(codes[row]) ?? 0) + 1);
    const order = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
    const looks = new Map(order.slice(0, COLOURS.length - 1).map((code, k) => [code, k]));
    const groups = COLOURS.map(() => []);
    kept.forEach((row, k) => {
      dots.x[k] = px(vx[k]), (dots.y[k] = py(vy[k]));
      groups[looks.get(codes[row]) ?? COLOURS.length - 1].push(k);
    });
    const size = kept.length > 5000 ? 1.6 : kept.length > 500 ? 2.2 : 3.2;
    pen.globalAlpha = kept.length > 5000 ? 0.45 : 0.75;
    groups.forEach((group, k) => {
      pen.fillStyle = COLOURS[k];
      for (const dot of group) pen.fillRect(dots.x[dot] - size, dots.y[dot] - size, 2 * size, 2 * size);
    });
    pen.globalAlpha = 1;
    rings(pen, ink);
    const words = order.slice(0, COLOURS.length - 1).map((code, k) => [values[code] || "not stated", COLOURS[k]]);
    if (order.length >= COLOURS.length) words.push([`${order.length - COLOURS.length + 1} others`, COLOURS.at(-1)]);
    at("key").replaceChildren(...words.map(([name, colour]) => {
      const entry = Object.assign(document.createElement("span"), { textContent: name });
      entry.style.setProperty("--dot", colour);
      return entry;
    }));
    picture = pen.getImageData(0, 0, canvas.width, canvas.height);
  }
  let picture = null;

  function rings(pen, ink) {
    for (const [name, row] of [["A", rowOf(state.a)], ["B", rowOf(state.b)], ["", marked]]) {
      const place = row < 0 ? -1 : dots.rows.indexOf(row);
      if (place < 0) continue;
      pen.strokeStyle = pen.fillStyle = ink;
      pen.lineWidth = 2;
      pen.beginPath(), pen.arc(dots.x[place], dots.y[place], 8, 0, 7), pen.stroke();
      if (name) pen.font = "bold 14px sans-serif", (pen.textAlign = "center"), pen.fillText(name, dots.x[place], dots.y[place] - 12);
    }
  }

  // A ring around the marked dot alone: the picture below stays as it is.
  function mark(row) {
    if (row === marked || !picture) return;
    marked = row;
    const pen = canvas.getContext("2d");
    pen.putImageData(picture, 0, 0);
    const ink = getComputedStyle(at()).color;
    const place = row < 0 ? -1 : dots.rows.indexOf(row);
    if (place >= 0) pen.strokeStyle = ink, (pen.lineWidth = 2.5), pen.beginPath(), pen.arc(dots.x[place], dots.y[place], 8, 0, 7), pen.stroke();
    at("marked").textContent = row < 0 ? "" : words(row);
  }

  const label = (row) => [text("accelerator_raw", row) || "?", text("checkpoint_raw", row), text("weights_format", row), text("engine", row)].filter(Boolean).join(" · ");
  function words(row) {
    const values = [state.x, state.y].map((name) => `${data.metrics[name][0]} ${short(number(name, row) * data.metrics[name][3])}`);
    return `${label(row)}; ${values.join("; ")}; ${text("source", row)}, ${text("source_file", row)} ${text("source_row", row)}${text("audit", row) === "ok" ? "" : `; ${text("audit", row)}: ${text("audit_notes", row)}`}`;
  }

  // --- two compared --------------------------------------------------------------------------------------
  let byId = null;
  function rowOf(id) {
    if (!id) return -1;
    if (!byId) byId = new Map(column.row_id.values.map((value, code) => [value, code]));
    const code = byId.get(id);
    return code === undefined ? -1 : column.row_id.codes.indexOf(code);
  }

  const conditions = () => [...data.texts.filter((name) => name !== "row_id" && !data.no_condition.includes(name)).map((name) => [name, data.filters[name] ?? name.replaceAll("_", " "), text]), ...Object.entries(data.set).map(([name, title]) => [name, title, (n, row) => short(number(n, row))])];

  function compare() {
    const [a, b] = [rowOf(state.a), rowOf(state.b)];
    const into = at("compared");
    if (a < 0 || b < 0) {
      const one = a >= 0 ? a : b;
      into.innerHTML = `<p>${one >= 0 ? `Chosen: ${escaped(label(one))}. ` : ""}Choose two rows: click their dots, or use the buttons A and B of the table.</p>`;
      return;
    }
    const all = conditions().map(([name, title, get]) => [title, get(name, a), get(name, b)]).filter(([, first, second]) => first || second);
    const differing = all.filter(([, first, second]) => first !== second);
    const rules = text("comparable_within", a) !== text("comparable_within", b);
    const reasons = differing.map(([title, first, second]) => (!first || !second ? `${title} not stated for one` : `other ${title}`));
    const verdict = rules ? "Not comparable: MLPerf's rules allow no comparison with other results, or across its rounds and scenarios." : differing.length ? `Not comparable as they stand: ${reasons.join(", ")}.` : "All conditions that the sources state are alike.";
    const metrics = Object.entries(data.metrics).filter(([name, [, , better]]) => better && (number(name, a) === number(name, a) || number(name, b) === number(name, b)));
    const values = metrics.map(([name, [title, unit, , factor]]) => {
      const [first, second] = [number(name, a) * factor, number(name, b) * factor];
      const ratio = rules || !(first > 0 && second > 0) ? "" : short(first / second);
      return `<tr><th scope="row">${escaped(title)}${unit ? `, ${unit}` : ""}</th><td>${short(first)}</td><td>${short(second)}</td><td>${ratio}</td></tr>`;
    });
    const lines = all.map(([title, first, second]) => `<tr${first !== second ? ' class="differs"' : ""}><th scope="row">${escaped(title)}</th><td>${escaped(first)}</td><td>${escaped(second)}</td><td>${first !== second ? "differs" : ""}</td></tr>`);
    const cited = [a, b].map((row) => { const [citation, address] = data.sources[text("source", row)]; return `<p class="small"><b>${escaped(label(row))}</b>: <a href="${escaped(address)}">${escaped(citation)}</a>, ${escaped(text("source_file", row))} ${escaped(text("source_row", row))}${text("audit_notes", row) ? `; ${escaped(text("audit", row))}: ${escaped(text("audit_notes", row))}` : ""}</p>`; });
    into.innerHTML = `<p class="${differing.length || rules ? "mixed" : ""}">${escaped(verdict)}</p><div class="table-scroll" role="region" tabindex="0" aria-label="Two published rows compared"><table class="sortable"><thead><tr><th scope="col">what</th><th scope="col">A</th><th scope="col">B</th><th scope="col">A ÷ B, or differs</th></tr></thead><tbody>${values.join("")}${lines.join("")}</tbody></table></div>${cited.join("")}`;
  }

  function choose(row, name = state.a ? "b" : "a") {
    state[name] = text("row_id", row);
    update(false);
  }

  // --- the table and the CSV -----------------------------------------------------------------------------
  function tabulate() {
    const heads = ["row", "compare", ...[state.x, state.y].map((name) => data.metrics[name][0]), "source", "audit", "engine", "workload"];
    at("table").tHead.innerHTML = `<tr>${heads.map((h, k) => `<th scope="col"${k === 1 ? ' class="no-sort"' : k === 2 || k === 3 ? ' class="number"' : ""}>${escaped(h)}</th>`).join("")}</tr>`;
    const rows = Array.from(shown.subarray(0, SHOWN));
    at("table").tBodies[0].innerHTML = rows.map((row) => {
      const id = text("row_id", row);
      const buttons = ["a", "b"].map((name) => `<button type="button" data-pick="${name}" data-row="${row}" aria-pressed="${state[name] === id}" aria-label="Take ${escaped(label(row))} as ${name.toUpperCase()}">${name.toUpperCase()}</button>`);
      const numbers = [state.x, state.y].map((name) => { const v = number(name, row) * data.metrics[name][3]; return `<td data-sort="${Number.isFinite(v) ? v : ""}">${short(v)}</td>`; });
      const submitted = text("comparable_within", row) ? `; ${text("submitter", row)}, ${text("division", row)}, ${text("category", row)}, ${text("original_id", row)}` : "";
      return `<tr><th scope="row">${escaped(label(row) + submitted)}</th><td>${buttons.join("")}</td>${numbers.join("")}<td>${escaped(text("source", row))}</td><td>${escaped(text("audit", row))}</td><td>${escaped(text("engine", row))}</td><td>${escaped(text("workload", row))}</td></tr>`;
    }).join("");
  }

  async function csv() {
    const names = [...data.texts, ...data.numbers];
    const quoted = (v) => (/[",\n]/.test(v) ? `"${v.replaceAll('"', '""')}"` : v);
    const cell = (name, row) => (column[name].values ? quoted(text(name, row)) : number(name, row) === number(name, row) ? String(Number(number(name, row).toPrecision(7))) : "");
    return [names.join(","), ...Array.from(shown, (row) => names.map((name) => cell(name, row)).join(",")), ""].join("\n");
  }

  async function download() {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(new Blob([await csv()], { type: "text/csv" })), download: "observatory-view.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  // --- all together --------------------------------------------------------------------------------------
  function update(redraw = true) {
    const began = performance.now();
    if (redraw) shown = filtered();
    performance.measure("observatory-filter", { start: began });
    toAddress();
    marked = -1;
    draw();
    if (!at().dataset.ready) performance.mark("observatory-first");
    compare();
    tabulate();
    const lacking = shown.length - dots.rows.length;
    at("count").textContent = `${shown.length.toLocaleString("en")} of ${data.rows.toLocaleString("en")} published rows` + (lacking ? `; ${lacking.toLocaleString("en")} of them lack one of the two metrics` : "") + (shown.length > SHOWN ? `. The table has the first ${SHOWN}, the CSV all.` : ".");
    at("rules").hidden = state.which !== "mlperf";
    at("rules").textContent = data.trademarks;
    performance.measure("observatory-update", { start: began });
    at().dataset.ready = String(Number(at().dataset.ready ?? 0) + 1);
  }

  form.addEventListener("change", ({ target }) => {
    const details = target.closest("details");
    if (target.type === "search") return;
    if (details) {
      const { name } = details.dataset;
      const chosen = [...details.querySelectorAll("input:checked")].map((box) => box.value);
      if (chosen.length) state.filters[name] = new Set(chosen);
      else delete state.filters[name];
      summarise(details);
    } else state[target.name] = target.value;
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  at("table").addEventListener("click", ({ target }) => target.dataset.pick && choose(Number(target.dataset.row), target.dataset.pick));
  at("csv").addEventListener("click", download);
  at("clear").addEventListener("click", () => { state.filters = {}; fill(); update(); });

  function near(event) {
    const box = canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    let best = -1;
    let least = 12 ** 2;
    for (let k = 0; k < dots.rows.length; k++) {
      const far = (dots.x[k] - x) ** 2 + (dots.y[k] - y) ** 2;
      if (far < least) (least = far), (best = k);
    }
    return best < 0 ? -1 : dots.rows[best];
  }
  canvas.addEventListener("mousemove", (event) => mark(near(event)));
  canvas.addEventListener("click", (event) => { const row = near(event); if (row >= 0) choose(row); });
  canvas.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const steps = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, Home: -Infinity, End: Infinity };
    const key = event.key.toLowerCase();
    if (event.key in steps && dots.rows.length) {
      event.preventDefault();
      const order = [...dots.rows.keys()].sort((a, b) => dots.x[a] - dots.x[b] || dots.y[a] - dots.y[b]);
      const now = order.findIndex((k) => dots.rows[k] === marked);
      const next = Math.min(Math.max(now + steps[event.key], 0), order.length - 1);
      mark(dots.rows[order[next]]);
    } else if (["enter", " ", "a", "b"].includes(key) && marked >= 0) {
      event.preventDefault();
      choose(marked, key === "a" || key === "b" ? key : undefined);
    }
  });
  let later = 0;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(draw, 150); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  new MutationObserver(draw).observe(document.body, { attributeFilter: ["class"] });

  await Promise.all(Object.keys(data.columns).map(read));
  at().hidden = false;
  fromAddress();
  fill();
  update();
})();
