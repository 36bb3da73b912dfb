// The step-time model of llm_planner (step_time.py, steady.py) in the browser: the same arithmetic, line by line.
// Coefficients, shapes and devices come from the build, as JSON in the element #planner-data. A test compares the results with Python's.
"use strict";

const planner = (() => {
  // Seconds of each part of a step, as step_time.cost.
  function cost(setting, coefficients, constants) {
    const { shape, machine, weights, tp } = setting;
    const [layer, eightBit, sequence, bandwidth, kv, compute, link, token] = coefficients;
    const rate = machine.bandwidth_bytes_per_s;
    const reductions = tp > 1 ? 2 * shape.layers : 0;
    const stepBytes = shape.block * constants.weight_bytes[weights] + shape.head * 2;
    const activations =
      constants.activation_passes * shape.hidden_size +
      (4 * shape.intermediate_size + (4 * shape.heads_values) / shape.layers) / tp;
    const hidden = (reductions * shape.hidden_size * 2) / (machine.link_bytes_per_s * link);
    const passes = (shape.layers * 2 * activations) / (rate * bandwidth);
    return {
      fixed: shape.layers * layer + (reductions * constants.reduction_s) / link,
      eager: shape.layers * layer * setting.prefill_latencies,
      sequence: sequence,
      weights: stepBytes / tp / (rate * bandwidth),
      gemm: (2 * shape.block) / tp / (machine.peaks[weights] * compute * (weights === "bf16" ? 1 : eightBit)),
      kv: (shape.kv_values * setting.kv_bytes) / Math.min(tp, shape.kv_heads) / (rate * kv),
      link: (hidden * 2 * (tp - 1)) / tp + passes,
      attention: (4 * shape.heads_values) / tp / (machine.peaks.bf16 * compute * constants.attention_share),
      shot: hidden * (setting.one_shot ? tp - 1 : (2 * (tp - 1)) / tp) + passes,
      sent: token,
    };
  }

  // Seconds of one step, as scheduler.step_s.
  function step(c, decoders, context, tokens = 0, attention = 0) {
    const rows = decoders + tokens;
    const seconds = c.fixed + c.sequence * decoders + Math.hypot(c.weights, c.gemm * rows) + c.kv * context;
    return seconds + (tokens > 0 ? c.link : c.shot) * rows + c.attention * attention + (tokens > 0 ? c.eager : 0);
  }

  // Tokens of KV cache beside the weights, as step_time.kv_tokens; NaN where the model does not fit.
  function kvTokens(setting, engine, constants) {
    const { shape, machine, tp } = setting;
    const all = shape.block * constants.weight_bytes[setting.weights] + shape.head * (shape.tied ? 2 : 4);
    const weights = all / tp;
    const free = engine.of_free
      ? engine.memory_share * (machine.memory_bytes - weights - engine.buffers_bytes)
      : engine.memory_share * machine.memory_bytes - weights - engine.buffers_bytes;
    const perToken = (shape.kv_values * setting.kv_bytes) / Math.min(tp, shape.kv_heads);
    return free < perToken ? NaN : free / perToken;
  }

  // What a replica is, as steady.replica; null where the model does not fit.
  function replica(data, question, tp) {
    const engine = data.engines[question.engine];
    const setting = {
      shape: data.models[question.model],
      machine: data.devices[question.gpu],
      weights: question.weights,
      kv_bytes: data.kv_bytes[[question.engine, question.gpu, question.weights].join("|")],
      prefill_latencies: engine.prefill_latencies,
      one_shot: engine.one_shot,
      tp,
    };
    const tokens = kvTokens(setting, engine, data.constants);
    if (Number.isNaN(tokens)) return null;
    const coefficients = data.fits[`${question.engine}|${question.gpu}`].coefficients;
    return {
      cost: cost(setting, coefficients, data.constants),
      mixed: engine.mixed,
      chunk: engine.chunked ? data.constants.step_tokens : Infinity,
      kvTokens: tokens,
      request: coefficients[8],
    };
  }

  // [TTFT s, TPOT s] of a replica that always has `batch` requests, as steady.times.
  function times(one, batch, prompt, output) {
    const context = batch * (prompt + output / 2);
    const steps = one.chunk < Infinity ? Math.ceil(prompt / one.chunk) : 1;
    const chunk = prompt / steps;
    const attention = prompt ** 2 / 2 / steps;
    const decode = step(one.cost, batch, context);
    const rest = one.mixed ? batch - 1 : 0;
    const held = (context * rest) / batch;
    const prefill = steps * step(one.cost, rest, held, chunk, attention);
    let added = batch > 1 ? prefill : 0;
    if (one.mixed && rest) added = prefill - steps * step(one.cost, rest, held);
    const tpot = Math.max(decode + ((batch - 1) * added) / output, batch * one.cost.sent);
    return [one.request + (batch > 1 ? decode / 2 : 0) + prefill, tpot];
  }

  // As steady.largest_batch.
  function largestBatch(one, q, slots) {
    let low = 0;
    let high = Math.min(slots, Math.floor(one.kvTokens / (q.prompt_tokens + q.answer_tokens)));
    while (low < high) {
      const middle = Math.floor((low + high + 1) / 2);
      const [ttft, tpot] = times(one, middle, q.prompt_tokens, q.answer_tokens);
      if (ttft <= q.ttft_s && tpot <= q.tpot_s) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // What replicas of `tp` GPUs do for a question, as steady.answer; {note} where they cannot.
  function answer(data, q, tp) {
    const one = replica(data, q, tp);
    if (one === null) return { tensor_parallel: tp, note: "does not fit" };
    const batch = largestBatch(one, q, data.constants.slots);
    if (batch === 0) return { tensor_parallel: tp, note: "does not hold the goal" };
    const [ttft, tpot] = times(one, batch, q.prompt_tokens, q.answer_tokens);
    const rate = batch / (ttft + tpot * (q.answer_tokens - 1));
    const replicas = Math.ceil(q.rate / rate);
    const usd = replicas * tp * q.usd_per_gpu_hour;
    return {
      tensor_parallel: tp, replicas, gpus: replicas * tp, batch, ttft_s: ttft, tpot_s: tpot, requests_per_s: rate,
      usd_per_hour: usd, usd_per_million_output: usd / ((q.rate * 3600 * q.answer_tokens) / 1e6),
    };
  }

  return { answer, times, replica };
})();

(() => {
  const form = document.getElementById("planner");
  if (!form) return;
  const data = JSON.parse(document.getElementById("planner-data").textContent);
  const body = document.querySelector("#planner-answers tbody");
  const status = document.getElementById("planner-status");
  const shown = [
    ["replicas", 1], ["gpus", 1], ["batch", 1], ["ttft_s", 1e3], ["tpot_s", 1e3], ["requests_per_s", 1], ["usd_per_hour", 1],
    ["usd_per_million_output", 1],
  ];
  const short = (value) => (Number.isInteger(value) ? String(value) : value >= 1000 ? value.toFixed(0) : String(Number(value.toPrecision(3))));

  function question() {
    const value = (name) => form.elements[name].value;
    const wrong = [...form.elements].filter((field) => field.type === "number" && !(Number(field.value) > 0));
    for (const field of form.elements) if (field.type === "number") field.setAttribute("aria-invalid", wrong.includes(field));
    if (wrong.length) throw new Error(`“${wrong[0].labels[0].textContent}” must be a number above zero.`);
    return {
      model: value("model"), weights: value("weights"), engine: value("engine"), gpu: value("gpu"),
      prompt_tokens: Math.round(value("prompt_tokens")), answer_tokens: Math.round(value("answer_tokens")), rate: Number(value("rate")),
      ttft_s: value("ttft_ms") / 1e3, tpot_s: value("tpot_ms") / 1e3, usd_per_gpu_hour: Number(value("usd_per_gpu_hour")),
    };
  }

  function cell(kind, text, value) {
    const made = document.createElement(kind);
    made.textContent = text;
    if (kind === "th") made.scope = "row";
    if (value !== undefined) { made.className = "number"; made.dataset.sort = value; }
    return made;
  }

  function row(answer) {
    const line = document.createElement("tr");
    line.append(cell("th", `${answer.tensor_parallel} GPU${answer.tensor_parallel > 1 ? "s" : ""}`));
    for (const [name, factor] of shown) line.append(answer.note ? cell("td", "", "") : cell("td", short(answer[name] * factor), answer[name]));
    if (answer.note) line.cells[1].textContent = answer.note;
    return line;
  }

  function sentence(q, answers) {
    const holding = answers.filter((answer) => !answer.note).sort((a, b) => a.usd_per_hour - b.usd_per_hour);
    const fit = data.fits[`${q.engine}|${q.gpu}`].errors[q.model];
    const known = fit.unknown
      ? `No measurement of this ${fit.unknown} with ${q.engine} was fitted: these numbers are estimated, and where such a ${fit.unknown} was left out the model was off`
      : "On measured points that no fit saw the model was off";
    const error = `${known} by up to ${Math.round(100 * (Math.exp(fit.tpot_width) - 1))} % in TPOT and ${Math.round(100 * (Math.exp(fit.ttft_width) - 1))} % in TTFT (95 of 100).`;
    if (!holding.length) {
      const fits = answers.some((answer) => answer.note !== "does not fit");
      return fits
        ? "No configuration holds this goal, not even with one request at a time: allow more time, or take a faster GPU or fewer bits."
        : "The model does not fit on up to eight of these GPUs: take a larger GPU or fewer bits.";
    }
    const best = holding[0];
    return `Cheapest: ${best.gpus} GPU${best.gpus > 1 ? "s" : ""}, ${best.replicas} × ${best.tensor_parallel}, for ${short(best.usd_per_hour)} dollars an hour. ${error}`;
  }

  function update() {
    try {
      const q = question();
      const answers = data.tensor_parallel.map((tp) => planner.answer(data, q, tp));
      body.replaceChildren(...answers.map(row));
      status.textContent = sentence(q, answers);
    } catch (failure) {
      body.replaceChildren();
      status.textContent = failure.message;
    }
  }

  form.addEventListener("input", (event) => {
    if (event.target.name === "gpu") form.elements.usd_per_gpu_hour.value = data.prices[form.elements.gpu.value] ?? ""; // never the price of the GPU before
    update();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  update();
})();
