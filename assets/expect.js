// What to expect (expect.qmd): the model of llm_measured/predict in the browser, the same arithmetic line by line. Data come from the build
// (bench/report/published/expect_page.py); a test compares the answers with Python's on a grid of questions.
"use strict";
const expectation = (globalThis.expectation = {});

// Base64 of compressed JSON.
expectation.unpacked = async (text) => {
  const bytes = Uint8Array.from(atob(text.trim()), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
};

// The data with tables as maps of objects, and fits with their covariances as numbers.
expectation.ready = (data) => {
  const objects = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((name, k) => [name, row[k]])));
  for (const [part, key] of [["accelerators", "machine"], ["models", "model"], ["formats", "label"], ["engines", "engine"]]) data[part] = new Map(objects(data[part]).map((each) => [each[key], each]));
  for (const fit of Object.values(data.fits)) {
    fit.places = new Map(fit.keys.map((key, at) => [key, at]));
    fit.matrix = Float64Array.from(fit.covariance.split(" "), (text) => Number(text) * data.constants.unit);
  }
  if (data.points) data.points = objects(data.points);
  return data;
};

// A number as Python's :g writes it.
expectation.short = (v) => String(Number(v.toPrecision(6)));

// The accelerator of a question, or one that no table has, from its stated bandwidth and memory (machines.stated).
expectation.card = (data, { accelerator, bandwidth_gb_per_s, memory_gb }) => {
  if (accelerator !== "stated") return data.accelerators.get(accelerator);
  const rate = bandwidth_gb_per_s * 1e9;
  const memory_bytes = memory_gb ? memory_gb * 2 ** 30 : null;
  return { ...data.stated, title: `${expectation.short(bandwidth_gb_per_s)} GB/s`, bandwidth_low: rate, bandwidth: rate, bandwidth_most: rate, memory_bytes, peak_flops: rate * data.constants.operations_per_byte };
};

// The model of a question, or one that no table has, from its stated size (question._of_size).
expectation.model = (data, { model, parameters_b, active_b }) => {
  if (model !== "stated") return data.models.get(model);
  const passed = active_b || parameters_b;
  const refused = passed > parameters_b ? `active_b is ${expectation.short(passed)} and parameters_b ${expectation.short(parameters_b)}: no token passes more than there is.` : "";
  const [parameters, active] = [parameters_b * 1e9, passed * 1e9];
  const layers = Math.min(Math.max(32 * (Math.sqrt(parameters * active) / 7e9) ** 0.38, 12), 130);
  return {
    model: `${expectation.short(parameters_b)}b`, model_kind: "plain", parameters, active, read_parameters: active - 0.07 * active, layers, hidden: Math.sqrt(active / layers / 12),
    cache_bytes_per_token: 2 * 2 * layers * 1024, mixture: active < 0.95 * parameters ? "mixture" : "dense", guessed: [], longest: null, own_scheme: null, refused,
  };
};

// The format of a question, or stated bits of the kind that the model or the engine has where nobody names one (question._format).
expectation.format = (data, { format, bits }, model, engine) => {
  const known = data.formats.get(format);
  // A file "in 16 bits" of llama.cpp keeps the experts of gpt-oss as they are published.
  if (known?.bits === 16 && model.model.includes("gpt-oss") && engine.engine.startsWith("llama.cpp")) return data.formats.get("mxfp4");
  if (known) return known;
  const scheme = model.own_scheme ?? engine.own_scheme ?? ([8, 16, 32].includes(bits) ? "floating point" : "integers");
  return { format: `${scheme} ${expectation.short(bits)}`, scheme, bits, least_bits: bits };
};

// What a question means, with the names of question.Setup; `refused` says why there is no answer.
expectation.setup = (data, q) => {
  const { accelerators, split, users = 1, prompt = 1000, answer = 500 } = q;
  const context = users > 1 ? Math.max(q.context, prompt) : q.context; // of several users each has its prompt in the cache
  const [card, model, engine] = [expectation.card(data, q), expectation.model(data, q), data.engines.get(q.engine)];
  const s = { ...card, ...model, ...engine, ...expectation.format(data, q, model, engine), accelerators, context, users, prompt, answer, guessed: [...card.guessed, ...model.guessed], refused: "" };
  s.memory_bytes ??= Infinity;
  s.split = accelerators === 1 ? "one" : split || (s.accelerator_class.endsWith("server") ? s.server_split : s.other_split);
  if (s.vendor && s.vendors.length && !s.vendors.includes(s.vendor)) s.refused = `No published row has ${s.engine_family} on an accelerator of ${s.vendor}; it has it on ${expectation.listed(s.vendors)}.`;
  else if (model.refused) s.refused = model.refused;
  else if (s.longest && context > s.longest) s.refused = `${s.model} was made for ${s.longest.toLocaleString("en")} tokens, and the context asked for is ${context.toLocaleString("en")}.`;
  s.width = s.split === "layers" ? 1 : accelerators;
  s.weight_bytes = (s.parameters * s.bits) / 8;
  s.cache_bytes = s.users * s.context * s.cache_bytes_per_token;
  s.held_bytes = s.memory_bytes * accelerators;
  const whole = s.weight_bytes * data.constants.room;
  s.outside = Math.min(Math.max((whole + s.cache_bytes - s.held_bytes) / whole, 0), 1);
  s.users_fit = s.held_bytes < whole ? 0 : Math.floor((s.held_bytes - whole) / Math.max(s.context * s.cache_bytes_per_token, 1));
  // One accelerator and one user of an engine that leaves the rest in the host's memory; anything else that does not fit is answered as if it did.
  s.offloaded = s.offloads && accelerators === 1 && users === 1 ? s.outside : 0;
  s.reached_flops = expectation.reached(data, s);
  s.runs = s.outside === 0 || s.offloaded > 0;
  return s;
};

expectation.listed = (words) => (words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]);

// Parameters that a step reads (step.touched).
expectation.touched = (s) => {
  const share = 1 - (1 - Math.min(s.active / s.parameters, 1)) ** s.users;
  return (s.read_parameters * s.parameters * share) / s.active;
};

// Operations of one prompt (step.prompt_operations).
expectation.promptOperations = (s, prompt) => prompt * (2 * s.active + 2 * prompt * s.layers * s.hidden);

// Operations per second of an accelerator that a prompt alone reaches (fit.reached).
expectation.reached = (data, s) => {
  const { mean, shares } = expectation.seconds(data.fits.prompt, expectation.promptParts(data.constants, s, data.constants.prompt_tokens), s);
  return expectation.promptOperations(s, data.constants.prompt_tokens) / (Math.exp(mean) * shares[0] * s.width);
};

// Logarithms of the seconds of weights, cache, layers, links and of what users beside the first add, at full speed (step.parts).
expectation.parts = (c, s, bandwidth, bits) => {
  const rate = bandwidth * s.width;
  const weights = ((expectation.touched(s) * bits) / 8) * ((1 - s.offloaded) / rate + s.offloaded / c.host_bandwidth);
  const linked = s.split === "tensor" && s.accelerators > 1;
  const others = s.users - 1;
  const reached = s.reached_flops * s.width;
  const seconds = [weights, s.cache_bytes / rate, s.layers * c.layer_s, linked ? 2 * s.layers * c.reduction_s : 0];
  seconds.push((others * 2 * s.active) / reached, others * c.sequence_s, (others * expectation.promptOperations(s, s.prompt)) / s.answer / reached);
  return seconds.map((each) => Math.max(Math.log(each), c.nothing));
};

// Logarithms of the seconds of a prompt's operations and of its start (step.prompt_parts).
expectation.promptParts = (c, s, prompt) => {
  return [Math.log(expectation.promptOperations(s, prompt) / (s.peak_flops * s.width)), Math.log(c.start_s)];
};

// Seconds that no step can pass (step.least).
expectation.least = (c, s) => {
  const faster = Math.min(Math.max(16 / s.bits, 1), 4);
  return Math.max(Math.exp(expectation.parts(c, { ...s, users: 1 }, s.bandwidth_most, s.least_bits)[0]), (2 * s.active * s.users) / (s.peak_flops * faster * s.width));
};

// {mean, spread, shares}: logarithm of the seconds, its standard deviation for a source never seen, and the share of each part (Fit.seconds).
expectation.seconds = (fit, bare, s) => {
  const several = Math.log(s.accelerators);
  const factors = { one: 1, several_tensor: s.split === "tensor" ? several : 0, several_layers: s.split === "layers" ? several : 0, users: Math.log(s.users), several_users: Number(s.users > 1) };
  const logs = [...bare];
  const seen = [];
  const never = {};
  for (const [name, on, columns, factor, variance] of fit.askable) {
    const by = factors[factor];
    const at = fit.places.get(`${name}|${columns.map((column) => s[column]).join("|")}`);
    if (at === undefined) never[on] = (never[on] ?? 0) + variance * by ** 2;
    else if (by !== 0) {
      seen.push([at, by, on]);
      fit.on[on].forEach((sign, k) => (logs[k] += sign * by * fit.effects[at]));
    }
  }
  // Of parts that run at the same time the longest hides the others (fit.total).
  const inner = logs.map(() => 1);
  if (fit.hidden.length) {
    const longest = Math.max(...fit.hidden.map((k) => logs[k]));
    const powers = fit.hidden.map((k) => Math.exp(fit.sharp * (logs[k] - longest)));
    const powersSum = powers.reduce((sum, power) => sum + power, 0);
    fit.hidden.forEach((k, at) => {
      inner[k] = powers[at] / powersSum;
      logs[k] = longest + Math.log(powersSum) / fit.sharp;
    });
  }
  const most = Math.max(...logs);
  const parts = logs.map((log, k) => Math.exp(log - most) * inner[k]);
  const whole = parts.reduce((sum, part) => sum + part, 0);
  const shares = parts.map((part) => part / whole);
  const weight = Object.fromEntries(Object.entries(fit.on).map(([on, signs]) => [on, signs.reduce((sum, sign, k) => sum + sign * shares[k], 0)]));
  const own = fit.of_sources.reduce((sum, [factor, width]) => sum + width * factors[factor] ** 2, fit.noise);
  let variance = own + (Math.log(s.bandwidth_most / s.bandwidth_low) / 2) ** 2;
  for (const [on, sum] of Object.entries(never)) variance += weight[on] ** 2 * sum;
  for (const [i, first, on] of seen) for (const [j, second, and] of seen) variance += first * weight[on] * second * weight[and] * fit.matrix[(Math.max(i, j) * (Math.max(i, j) + 1)) / 2 + Math.min(i, j)];
  return { mean: most + Math.log(whole), spread: Math.sqrt(variance), shares };
};

// {rate, low, high, bound, shares} in tokens/s of each user (answer.interval).
expectation.predict = (data, s) => {
  const c = data.constants;
  const fit = data.fits[new RegExp(data.small).test(s.accelerator_class) ? "small" : "step"];
  const made = (setup) => expectation.seconds(fit, expectation.parts(c, setup, setup.bandwidth, setup.bits), setup);
  const { mean: together, spread, shares } = made(s);
  // A step of several users takes at least as long as that of fewer of them.
  let mean = together;
  for (let users = 1; users < s.users; users *= 2) mean = Math.max(mean, made({ ...s, users, cache_bytes: (s.cache_bytes / s.users) * users }).mean);
  const load = data.loads.find((most) => s.users <= most);
  const stretch = data.stretches[[s.accelerator_class, s.engine_family, s.split, s.mixture, load].join("|")];
  const half = Math.hypot(c.quantile * stretch * spread, s.offloaded > 0 ? c.quantile * c.offload_spread : 0);
  const least = expectation.least(c, s);
  const rate = (log) => 1 / Math.max(Math.exp(log), least);
  return { rate: rate(mean), low: rate(mean + half), high: rate(mean - half), bound: 1 / least, shares };
};

// The price of an accelerator: dollars per hour and who says so; `own` is the reader's. Undefined where nobody states one (prices.of).
expectation.price = (data, s, own) => (own ? { usd_per_gpu_hour: own, source: "stated here" } : data.prices[s.machine]);

// {usd, low, high} per million output tokens of all users, null without a price or of what does not run (prices.per_million).
expectation.cost = (s, p, price) => {
  if (!price || !s.runs) return null;
  const usd = (rate) => ((price.usd_per_gpu_hour * s.accelerators) / (3600 * rate * s.users)) * 1e6;
  return { usd: usd(p.rate), low: usd(p.high), high: usd(p.low) };
};

// {seconds, low, high} to the first token of a prompt, alone on the machine (answer.first_token).
expectation.firstToken = (data, s, prompt) => {
  const c = data.constants;
  const { mean, spread } = expectation.seconds(data.fits.prompt, expectation.promptParts(c, s, prompt), s);
  const half = c.quantile * c.prompt_stretch * spread;
  const least = Math.exp(expectation.parts(c, { ...s, offloaded: 0 }, s.bandwidth, s.bits)[0]);
  const at = (log) => Math.max(Math.exp(log), least);
  return { seconds: at(mean), low: at(mean - half), high: at(mean + half) };
};

// How far a published case is from a setup (nearest.distance).
expectation.distance = (s, p) => {
  let far = (p.machine === s.machine ? 0 : p.architecture === s.architecture ? 1.5 : 3) + (p.model === s.model ? 0 : 1) + Math.abs(Math.log(p.active / s.active));
  if (s.engine_family !== "any") far += p.engine === s.engine ? 0 : p.engine_family === s.engine_family ? 0.75 : 1.5;
  far += (p.mixture === s.mixture ? 0 : 1.5) + 0.3 * Math.abs(Math.log2(p.bits / s.bits)) + Math.abs(Math.log2(p.accelerators / s.accelerators));
  far += 0.5 * Math.abs(Math.log2(p.users / s.users));
  return far + 0.2 * Math.abs(Math.log2((p.context + 512) / (s.context + 512)));
};

expectation.nearest = (data, s, count) => {
  const far = new Map(data.points.map((p) => [p, Math.round(1e9 * expectation.distance(s, p))])); // ties as in Python
  return data.points.filter((p) => (p.users === 1) === (s.users === 1)).sort((a, b) => far.get(a) - far.get(b)).slice(0, count);
};

// Published cases of the very setup (nearest.exact), the fastest first.
expectation.exact = (data, s) =>
  data.points
    .filter((p) => ["machine", "accelerators", "model", "format", "engine_family"].every((name) => p[name] === s[name]) && Math.abs(Math.log(p.users / s.users)) < Math.log(1.5) && Math.abs(Math.log((p.context + 512) / (s.context + 512))) < Math.log(4))
    .sort((a, b) => b.rate - a.rate);

// Tokens/s of one user at the whole bandwidth over the active weights, of a setup or a published case.
expectation.division = (p) => (p.bandwidth * (p.split === "layers" ? 1 : p.accelerators)) / ((p.active * p.bits) / 8);

(async () => {
  const form = document.getElementById("expect");
  if (!form) return;
  const data = (expectation.data = expectation.ready(await expectation.unpacked(document.getElementById("expect-data").textContent)));
  const said = document.getElementById("expect-said");
  const picture = document.getElementById("expect-picture");
  const body = document.querySelector("#expect-nearest tbody");
  const NAMES = ["accelerator", "model", "format", "engine", "accelerators", "split", "context", "claim", "users", "prompt", "answer"];
  const STATED = ["bandwidth_gb_per_s", "memory_gb", "parameters_b", "active_b", "bits"];
  NAMES.push(...STATED, "usd_per_gpu_hour");
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
    for (const name of ["accelerators", "context", "users", "prompt", "answer"]) q[name] = Number(q[name]);
    for (const name of [...STATED, "usd_per_gpu_hour"]) q[name] = q[name] === "" || form.elements[name].disabled ? null : Number(q[name]);
    return q;
  }

  // What is stated of an accelerator, a model or a format is asked for where no name is chosen.
  function toggle() {
    for (const part of form.querySelectorAll("[data-stated]")) {
      part.hidden = form.elements[part.dataset.stated].value !== "stated";
      part.querySelector("input").disabled = part.hidden;
    }
  }

  function memory(s) {
    const several = s.users > 1;
    const needs = `weights ${short(s.weight_bytes / 1e9)} GB and cache ${short(s.cache_bytes / 1e9)} GB${several ? ` of ${s.users} users` : ""}`;
    const most = several && s.held_bytes !== Infinity ? ` ${short(s.users_fit)} users would fit with ${short(s.context)} tokens each.` : "";
    if (s.held_bytes === Infinity) return `Memory: ${needs}; how much there is nobody stated.`;
    if (!s.outside) return `It fits: ${needs} of ${short(s.held_bytes / 1e9)} GB.${most}`;
    const not = `<b>Does not fit:</b> ${needs}, ${short(s.held_bytes / 1e9)} GB held.`;
    if (s.offloaded) return `${not} ${Math.round(100 * s.outside)} % of the weights are taken to be read from the host's memory at ${short(data.constants.host_bandwidth / 1e9)} GB/s, one after the other.`;
    return `${not}${most} What follows is what it would be if it did.`;
  }

  function sentences(q, s, p) {
    const found = [];
    const who = s.users > 1 ? `each of ${s.users} users` : "one user";
    const exact = expectation.exact(data, s);
    const rates = exact.map((each) => each.rate);
    if (rates.length) found.push(`Measured by others, exactly this: <b>${rates.length > 1 ? `${short(Math.min(...rates))} to ${short(Math.max(...rates))}` : short(rates[0])} tokens/s</b> (${rates.length > 1 ? "medians of " : ""}${[...new Set(exact.map((each) => each.source))].join(", ")}).`);
    found.push(memory(s));
    found.push(`<b>${short(p.rate)} tokens/s</b> for ${who} is to be expected, ${short(p.low)} to ${short(p.high)} in 95 of 100 sources${p.high > 0.999 * p.bound ? " (the interval ends at the bound)" : ""}. Estimated from what comparable hardware reached, not measured.`);
    if (s.users > 1) found.push(`All ${s.users} together: <b>${short(s.users * p.rate)} tokens/s</b>, ${short(s.users * p.low)} to ${short(s.users * p.high)}, while each sends prompts of ${short(s.prompt)} tokens and gets answers of ${short(s.answer)}.`);
    const parts = ["reading weights", "reading the cache", `what each of ${Math.round(s.layers)} layers takes however few bytes it has`, "links", "arithmetic", "the host, for each further user", "prompts of the others"];
    const shares = parts.map((name, k) => [name, Math.round(100 * p.shares[k])]).filter(([, share]) => share >= 1);
    found.push(`By the model a token's time goes into ${expectation.listed(shares.map(([name, share]) => `${name} (${share} %)`))}.`);
    const count = `${s.accelerators > 1 ? `${s.accelerators} × ` : ""}${s.title}`;
    found.push(`The bound: ${count} ${s.offloaded ? "and the host's memory allow" : "allows"} at most ${short(p.bound)} tokens/s. Whoever claims more for ${who}, without speculative decoding, contradicts the datasheet.`);
    if (q.claim) {
      // Whoever asks this asks it first.
      const claim = Number(q.claim);
      const where = claim > p.bound ? "is impossible: the weights cannot be read so fast" : claim > p.high ? "is possible, but more than comparable sources reached: look for speculation, a smaller format, or several users" : claim < p.low ? "is less than comparable sources reached: look for offloading, a power limit or a longer context" : "is what comparable sources reached";
      found.unshift(`<b>${short(claim)} tokens/s ${where}.</b>`);
    }
    found.push(cost(q, s, p));
    const first = expectation.firstToken(data, s, q.prompt);
    const beside = s.users > 1 ? "; how long it waits beside the others is not answered" : "";
    if (!s.outside) found.push(`The first token of a prompt of ${short(q.prompt)} tokens comes after ${short(first.seconds)} s (${short(first.low)} to ${short(first.high)}), alone on the machine${beside}.`);
    if (s.guessed.length) found.push(`Guessed: ${s.guessed.join("; ")}.`);
    return found;
  }

  const dollars = (v) => `$${short(v)}`;

  function cost(q, s, p) {
    const price = expectation.price(data, s, q.usd_per_gpu_hour);
    const found = expectation.cost(s, p, price);
    if (!s.runs) return "";
    if (!found) return "Nobody states a price of this accelerator: state dollars per hour for what a million tokens cost.";
    return `<b>${dollars(found.usd)} per million output tokens</b> for ${s.users > 1 ? `all ${s.users} users` : "one user"} (${dollars(found.low)} to ${dollars(found.high)}), at $${price.usd_per_gpu_hour.toFixed(2)} an hour of each accelerator (${price.source}); the time of ${s.users > 1 ? "the own prompt" : "prompts"} is not in it.`;
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
    line.append(cell("th", p.machine), number(p.rate), cell("td", p.model), cell("td", p.format), cell("td", p.engine), number(p.accelerators), number(p.users), number(p.context), number((100 * p.rate) / expectation.division(p)), cell("td", link));
    return line;
  }

  // One axis of tokens/s: the interval, what is expected, the bound, and the nearest points, each times the ratio of bandwidth ÷ bytes.
  function draw(s, p, near) {
    const width = Math.max(300, Math.min(picture.clientWidth, 900));
    const height = 142;
    const scaled = near.map((each) => (each.rate / expectation.division(each)) * expectation.division(s));
    const low = Math.min(p.low, ...scaled) * 0.8;
    const high = Math.max(p.bound, ...scaled) * 1.25;
    const x = (v) => 12 + ((width - 24) * Math.log(v / low)) / Math.log(high / low);
    const ticks = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power++) for (const k of [1, 2, 5]) if (k * 10 ** power >= low && k * 10 ** power <= high) ticks.push(k * 10 ** power);
    const words = `Expected ${short(p.rate)} tokens/s, from ${short(p.low)} to ${short(p.high)}; the bound is ${short(p.bound)}.`;
    const wide = x(p.bound) > width / 2;
    picture.innerHTML = `<svg role="img" aria-label="${words}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}">
<rect x="${x(p.low)}" y="34" width="${Math.max(2, x(p.high) - x(p.low))}" height="22" class="interval"/>
<line x1="${x(p.rate)}" x2="${x(p.rate)}" y1="28" y2="62" class="expected"/>
<line x1="${x(p.bound)}" x2="${x(p.bound)}" y1="16" y2="88" class="bound"/>
<rect x="${x(p.bound)}" y="16" width="${Math.max(0, width - 12 - x(p.bound))}" height="72" class="impossible"/>
<text x="${x(p.rate)}" y="22" text-anchor="middle">expected</text>
<text x="${x(p.bound) + (wide ? -4 : 4)}" y="12" text-anchor="${wide ? "end" : "start"}">bound</text>
${near.map((each, k) => `<circle cx="${x(scaled[k])}" cy="${72 + 4 * (k % 3)}" r="4.5"><title>${each.machine}, ${each.model}, ${each.engine}: ${short(each.rate)} tokens/s, ${Math.round((100 * each.rate) / expectation.division(each))} % of its bandwidth ÷ bytes (${each.source})</title></circle>`).join("")}
<line x1="12" x2="${width - 12}" y1="96" y2="96" class="axis"/>
${ticks.map((t) => `<line x1="${x(t)}" x2="${x(t)}" y1="96" y2="101" class="axis"/><text x="${x(t)}" y="114" text-anchor="middle">${short(t)}</text>`).join("")}
<text x="12" y="136">tokens/s of ${s.users > 1 ? "each user" : "one user"}; points: nearest published, brought to this bandwidth ÷ bytes</text></svg>`;
  }

  function update() {
    toggle();
    try {
      const q = question();
      const s = expectation.setup(data, q);
      const listed = data.prices[s.machine];
      form.elements.usd_per_gpu_hour.placeholder = listed ? listed.usd_per_gpu_hour.toFixed(2) : "not listed";
      const near = expectation.nearest(data, s, 8);
      body.replaceChildren(...near.map(row));
      if (s.refused) {
        picture.replaceChildren();
        said.textContent = s.refused;
      } else {
        const p = expectation.predict(data, s);
        said.innerHTML = sentences(q, s, p).filter(Boolean).map((words) => `<p>${words}</p>`).join("");
        draw(s, p, near);
      }
      const set = NAMES.filter((name) => q[name] !== "" && q[name] !== null).map((name) => [name, q[name]]);
      history.replaceState(null, "", `?${new URLSearchParams(set)}${location.hash}`);
    } catch (failure) {
      said.textContent = failure.message;
    }
    form.dataset.ready = String(Number(form.dataset.ready ?? 0) + 1);
  }

  form.addEventListener("input", (event) => {
    // A price is that of the accelerator for which it was stated.
    if (event.target.name === "accelerator") form.elements.usd_per_gpu_hour.value = "";
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("resize", update);
  fromAddress();
  update();
})();
