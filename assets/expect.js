// What to expect (expect.qmd): the model of llm_observatory/expect.py in the browser, the same arithmetic line by line. Data come from
// the build; a test compares the results with Python's.
"use strict";
const expectation = (globalThis.expectation = {});

// What the names of a question mean: bytes, bound (tokens/s of one user), and the columns whose levels have effects, as expect.setups and expect._factors.
expectation.setup = (data, { accelerator, model, format, engine, accelerators }) => {
  const card = data.accelerators.find((row) => row[0] === accelerator);
  const weights = data.models.find((row) => row[0] === model);
  const [, bits, form, scheme] = data.formats.find((row) => row[0] === format);
  const [, family, kind, byLayers] = data.engines.find((row) => row[0] === engine);
  const read = (weights[1] * 1e9 * bits) / 8;
  const held = (weights[2] * 1e9 * bits) / 8;
  const bound = (accelerators * card[3] * 1e9) / read;
  const capacity = card[4] === null ? Infinity : card[4] * 1e9 * accelerators;
  const several = Math.log(accelerators);
  const levels = { engine_kind: kind, engine_family: family, accelerator_class: card[6], architecture: card[2], family: card[5], scheme, format: form, mixture: weights[3] ? "mixture" : "dense", model_kind: weights[5] };
  const factors = { one: 1, several, several_by_layers: byLayers ? several : 0, several_together: byLayers ? 0 : several };
  return { machine: card[0], title: card[1], architecture: card[2], model, bits, form, engine, family, accelerators, layers: weights[4], read, held, capacity, bound, levels, factors };
};

// {rate, low, high, bound, reading} in tokens/s of one user, as Fit.share and expect.of_setups of a variant that is known; `reading` is the share of a
// token's time in which weights are read.
expectation.predict = (data, s) => {
  const { fit } = data;
  const sums = { reading: 0, layers: 0 };
  const never = { reading: 0, layers: 0 };
  const seen = [];
  for (const [part, effect, columns, factor, variance] of fit.asked) {
    const at = fit.places.get(`${effect}|${columns.map((name) => s.levels[name]).join("|")}`);
    if (at === undefined) never[part] += variance * s.factors[factor] ** 2;
    else {
      seen.push([at, s.factors[factor], part]);
      sums[part] += fit.effects[at] * s.factors[factor];
    }
  }
  const reading = -Math.log(s.bound) - sums.reading;
  const layers = Math.log(s.layers * fit.layer_s) + sums.layers;
  const time = Math.max(reading, layers) + Math.log1p(Math.exp(-Math.abs(reading - layers)));
  const part = Math.exp(reading - time);
  const slope = { reading: part, layers: part - 1 };
  let variance = fit.unseen + slope.reading ** 2 * never.reading + slope.layers ** 2 * never.layers;
  for (const [i, first, of] of seen) for (const [j, second, and] of seen) variance += first * slope[of] * second * slope[and] * fit.matrix[(Math.max(i, j) * (Math.max(i, j) + 1)) / 2 + Math.min(i, j)];
  const mean = fit.shift - time;
  const half = fit.width * Math.sqrt(variance);
  const rate = (log) => Math.min(Math.exp(log), s.bound);
  return { rate: rate(mean), low: rate(mean - half), high: rate(mean + half), bound: s.bound, reading: part };
};

// The published points that come nearest: another accelerator is further than another model, and that further than another engine.
expectation.nearest = (data, s, count) => {
  const names = data.points.columns;
  const points = data.points.rows.map((row) => Object.fromEntries(names.map((name, k) => [name, row[k]])));
  const step = (same, near, far) => (same ? 0 : near ? far / 2 : far);
  for (const p of points) {
    p.far = step(p.machine === s.machine, p.architecture === s.architecture, 3) + step(p.model === s.model, false, 1);
    p.far += Math.abs(Math.log(p.bound / p.accelerators / (s.bound / s.accelerators))) + step(p.engine === s.engine, p.engine_family === s.family, s.family === "any" ? 0 : 1.5);
    p.far += 0.3 * Math.abs(Math.log2(p.bits / s.bits)) + Math.abs(Math.log2(p.accelerators / s.accelerators));
  }
  return points.sort((a, b) => a.far - b.far || a.rate - b.rate).slice(0, count);
};

(async () => {
  const form = document.getElementById("expect");
  if (!form) return;
  async function unpacked(id) {
    const bytes = Uint8Array.from(atob(document.getElementById(id).textContent.trim()), (c) => c.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
  }
  const data = await unpacked("expect-data");
  const planning = await unpacked("expect-planner");
  data.fit.places = new Map(data.fit.keys.map((key, at) => [key, at]));
  data.fit.matrix = new Float32Array(Uint8Array.from(atob(data.fit.covariance), (c) => c.charCodeAt(0)).buffer);
  globalThis.expectation.data = data;
  const said = document.getElementById("expect-said");
  const picture = document.getElementById("expect-picture");
  const body = document.querySelector("#expect-nearest tbody");
  const NAMES = ["accelerator", "model", "format", "engine", "accelerators", "claim", "users", "prompt", "answer"];
  const short = (v) => (v >= 1000 ? Math.round(v).toLocaleString("en") : String(Number(v.toPrecision(3))));

  function fromAddress() {
    const query = new URLSearchParams(location.search);
    for (const name of NAMES) {
      const value = query.get(name);
      const field = form.elements[name];
      if (value !== null && (field.type === "number" || [...field.options].some((o) => o.value === value))) field.value = value;
    }
  }

  function question() {
    for (const field of form.elements) field.setAttribute("aria-invalid", String(!field.checkValidity()));
    const wrong = [...form.elements].find((field) => !field.checkValidity());
    if (wrong) throw new Error(`“${wrong.labels[0].textContent}”: ${wrong.validationMessage}`);
    const q = Object.fromEntries(NAMES.map((name) => [name, form.elements[name].value]));
    for (const name of ["accelerators", "users", "prompt", "answer"]) q[name] = Number(q[name]);
    return q;
  }

  function sentences(q, s, p) {
    const found = [];
    const count = `${s.accelerators > 1 ? `${s.accelerators} × ` : ""}${s.title}`;
    found.push(`<b>${short(p.rate)} tokens/s</b> for one user is to be expected, ${short(p.low)} to ${short(p.high)} in 95 of 100 sources. Estimated from what comparable hardware reached, not measured.`);
    found.push(`By the model ${Math.round(100 * p.reading)} % of a token's time goes into reading weights, the rest into what each of ${Math.round(s.layers)} layers takes however few bytes it has.`);
    found.push(`The bound: a token reads ${short(s.read / 1e9)} GB of weights, so the bandwidth of ${count} allows at most ${short(s.bound)} tokens/s. Whoever claims more for one user, without speculative decoding, contradicts the datasheet.`);
    if (q.claim) {
      const claim = Number(q.claim);
      const where = claim > s.bound ? "is impossible: the weights cannot be read so fast" : claim > p.high ? "is possible, but more than comparable sources reached: look for speculation, a smaller format, or several users" : claim < p.low ? "is less than comparable sources reached: look for offloading, a power limit or a long context" : "is what comparable sources reached";
      found.push(`${short(claim)} tokens/s ${where}.`);
    }
    return found;
  }

  // What the planner says of many users, where it has coefficients for engine, accelerator, model and format.
  function many(q, s) {
    if (q.users <= 1) return "";
    const names = { gpu: planning.devices[s.machine], model: planning.models[s.model], weights: planning.weights[s.bits], engine: planning.engines[s.engine] };
    const lacking = Object.entries({ accelerator: names.gpu, model: names.model, format: names.weights, engine: names.engine }).filter(([, name]) => !name).map(([word]) => word);
    if (!names.gpu || !names.model || !names.weights || !names.engine) return `For ${q.users} users the planner says nothing: it does not know this ${lacking.join(", ")}.`;
    const one = planner.replica(planning.data, names, s.accelerators);
    if (one === null) return `For ${q.users} users: the planner finds that the model does not fit.`;
    if (q.users * (q.prompt + q.answer) > one.kvTokens) return `For ${q.users} users: the KV cache holds ${Math.floor(one.kvTokens / (q.prompt + q.answer))} such requests at a time, says the planner; the others wait.`;
    const [ttft, tpot] = planner.times(one, q.users, q.prompt, q.answer);
    const fit = planning.data.fits[`${names.engine}|${names.gpu}`];
    const off = Math.round(100 * (Math.exp(fit.tpot_width) - 1));
    return `For ${q.users} users at a time the planner says: TPOT ${short(1e3 * tpot)} ms, so ${short(1 / tpot)} tokens/s for each and ${short(q.users * q.answer / (ttft + tpot * (q.answer - 1)))} for all, TTFT ${short(1e3 * ttft)} ms; off by up to ${off} % in TPOT on 95 of 100 points${fit.estimated ? ", estimated from other engines and devices" : ""}.`;
  }

  function cell(kind, text, value) {
    const made = document.createElement(kind);
    if (kind === "th") made.scope = "row";
    if (value !== undefined) Object.assign(made, { className: "number" }).dataset.sort = value;
    if (text instanceof Node) made.append(text);
    else made.textContent = text;
    return made;
  }

  function row(p) {
    const line = document.createElement("tr");
    const [citation, address] = data.sources[p.source];
    const link = Object.assign(document.createElement("a"), { href: address, textContent: p.source, title: citation });
    const number = (value, digits = value) => cell("td", short(digits), value);
    line.append(cell("th", p.machine), cell("td", p.model), cell("td", p.format), cell("td", p.engine), number(p.accelerators), number(p.rate), number((100 * p.rate) / p.bound), cell("td", link));
    return line;
  }

  // One axis of tokens/s: the interval, what is expected, the bound, and the nearest points by their share of it.
  function draw(s, p, near) {
    const width = Math.max(300, Math.min(picture.clientWidth, 900));
    const height = 142;
    const scaled = near.map((each) => (each.rate / each.bound) * s.bound);
    const low = Math.min(p.low, ...scaled) * 0.8;
    const high = Math.max(s.bound, ...scaled) * 1.25;
    const x = (v) => 12 + ((width - 24) * Math.log(v / low)) / Math.log(high / low);
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) for (const k of [1, 2, 5]) if (k * 10 ** power >= low && k * 10 ** power <= high) ticks.push(k * 10 ** power);
    const words = `Expected ${short(p.rate)} tokens/s, from ${short(p.low)} to ${short(p.high)}; the bound is ${short(s.bound)}.`;
    const wide = x(s.bound) > width / 2;
    picture.innerHTML = `<svg role="img" aria-label="${words}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<rect x="${x(p.low)}" y="34" width="${Math.max(2, x(p.high) - x(p.low))}" height="22" class="interval"/>
<line x1="${x(p.rate)}" x2="${x(p.rate)}" y1="28" y2="62" class="expected"/>
<line x1="${x(s.bound)}" x2="${x(s.bound)}" y1="16" y2="88" class="bound"/>
<rect x="${x(s.bound)}" y="16" width="${Math.max(0, width - 12 - x(s.bound))}" height="72" class="impossible"/>
<text x="${x(p.rate)}" y="22" text-anchor="middle">expected</text>
<text x="${x(s.bound) + (wide ? -4 : 4)}" y="12" text-anchor="${wide ? "end" : "start"}">bound</text>
${near.map((each, k) => `<circle cx="${x(scaled[k])}" cy="${72 + 4 * (k % 3)}" r="4.5"><title>${each.machine}, ${each.model}, ${each.engine}: ${short(each.rate)} tokens/s, ${Math.round((100 * each.rate) / each.bound)} % of its bound (${each.source})</title></circle>`).join("")}
<line x1="12" x2="${width - 12}" y1="96" y2="96" class="axis"/>
${ticks.map((t) => `<line x1="${x(t)}" x2="${x(t)}" y1="96" y2="101" class="axis"/><text x="${x(t)}" y="114" text-anchor="middle">${short(t)}</text>`).join("")}
<text x="12" y="136">tokens/s of one user; points: nearest published, by their share</text></svg>`;
  }

  function update() {
    try {
      const q = question();
      const s = expectation.setup(data, q);
      const near = expectation.nearest(data, s, 8);
      body.replaceChildren(...near.map(row));
      if (s.held > s.capacity) {
        picture.replaceChildren();
        said.textContent = `The weights have ${short(s.held / 1e9)} GB and the memory ${short(s.capacity / 1e9)}: what is offloaded is not predicted. Take more accelerators or fewer bits.`;
      } else {
        const p = expectation.predict(data, s);
        said.innerHTML = [...sentences(q, s, p), many(q, s)].filter(Boolean).map((words) => `<p>${words}</p>`).join("");
        draw(s, p, near);
      }
      const set = NAMES.filter((name) => q[name] !== "").map((name) => [name, q[name]]);
      history.replaceState(null, "", `?${new URLSearchParams(set)}${location.hash}`);
    } catch (failure) {
      said.textContent = failure.message;
    }
    form.dataset.ready = String(Number(form.dataset.ready ?? 0) + 1);
  }

  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", update);
  fromAddress();
  update();
})();
