// The fields of Start and How much: what people measured and what to expect (downloads/expect/<card>.js), looked up only.
(() => {
  const form = document.getElementById("ask"), root = form.dataset.root, fields = form.elements;
  const unpacked = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));
  const devices = unpacked(cards.devices), models = unpacked(cards.models), formats = unpacked(cards.formats);
  const bitsOf = new Map(formats.map((row) => [row.format, row.bits])), needs = (answer) => (Array.isArray(answer) ? answer[3] : answer);
  const short = (value) => (value < 10 ? String(Number(value.toPrecision(2))) : Math.round(value).toLocaleString("en"));
  const beyond = (context) => models.find((row) => row.model === fields.model.value && row.context_tokens && context > row.context_tokens); // what a model was made for
  const range = (low, high) => (short(low) === short(high) ? short(low) : `${short(low)} to ${short(high)}`);
  const kept = new Map(), UNIFIED = [8, 16, 24, 32, 36, 48, 64, 96, 128, 192, 256, 512]; // answers by card; GB that machines are sold with

  function answersOf(address) {
    const script = { src: `${root}downloads/expect/${address}.js` }, load = (done) => {
      document.head.append(Object.assign(document.createElement("script"), script, { onload: () => done(globalThis.answers), onerror: () => done(null) }));
    };
    if (!kept.has(address)) kept.set(address, new Promise(load));
    return kept.get(address);
  }

  // Fill a list, and keep what the address or the reader chose where it is still there, else take `usual`.
  function offer(field, options, usual, wish = field.dataset.wish || field.value) {
    field.dataset.wish = "";
    field.replaceChildren(...options.map(([value, text]) => new Option(text ?? value, value)));
    const values = options.map(([value]) => String(value));
    field.value = values.includes(String(wish)) ? wish : values.includes(String(usual)) ? usual : values[0];
    field.disabled = false;
  }

  function offerMemories(device, answers) {
    const shared = !cards.cards.includes(device.group), usual = answers?.gb ?? device.memory_gb ?? (shared ? measuredIn(answers) : null);
    const sizes = new Set([...(device.variants ?? []), ...(usual ? [usual] : []), ...(shared ? UNIFIED.filter((size) => !usual || size <= usual) : [])]);
    const options = [...sizes].sort((a, b) => a - b).map((size) => [size, `${size} GB`]);
    // The memory that was chosen stays where only something else changes; another card has its own.
    const wish = fields.memory.dataset.of === device.address ? fields.memory.value : fields.memory.dataset.wish;
    fields.memory.dataset.of = device.address;
    offer(fields.memory, options.length ? options : [["", "not known"]], usual, wish);
  }

  // Where nobody knows how much memory a device has: the least that holds every model that was measured on it.
  function measuredIn(answers) {
    const needed = Object.entries(answers?.measured ?? {}).flatMap(([model, own]) => Object.keys(own).map((form) => own[form][1] && needs(answers.of[model]?.[form]?.[1][0]) || 0));
    return UNIFIED.find((size) => size >= Math.max(16, ...needed)) ?? UNIFIED.at(-1);
  }

  function offerFormats(model, answers) {
    const own = formats.filter((row) => row.model === model).sort((a, b) => b.n - a.n).map((row) => row.format);
    const names = [...new Set([...Object.keys(answers?.of[model] ?? {}), ...own])];
    offer(fields.format, names.map((name) => [name]), names.find((name) => bitsOf.get(name) === 4));
  }

  // How many of a card: numbers with an answer, or with a row that somebody measured. Returns what was chosen and is none of them.
  function offerCounts(answers) {
    const [listed, rows] = [answers?.of, answers?.measured].map((of) => Object.values(of ?? {}).flatMap(Object.values)), wish = fields.count.dataset.wish || fields.count.value;
    const answered = (at) => listed.some(([, places]) => places[at * cards.asked.users.length * cards.asked.context.length]);
    const has = (count, at) => count === 1 || answered(at) || rows.some((own) => own[count]);
    offer(fields.count, cards.asked.count.filter(has).map((count) => [count]), 1);
    return wish && wish !== fields.count.value ? wish : "";
  }

  // What was measured of a format, else of another one of as many bits, which has most rows.
  function measured(own, format, count) {
    const alike = Object.keys(own).filter((form) => bitsOf.get(form) === bitsOf.get(format) && own[form][count]);
    if (!alike.length) return "not measured";
    const form = own[format]?.[count] ? format : alike[0], [low, high, least, most, rows, who] = own[form][count];
    const all = range(least, most), said = range(low, high), words = form === format ? "measured" : `not measured in ${format}; in ${form}`;
    return `${words} <b>${said} tokens/s</b> (${rows > 1 ? `all ${rows} rows` : "1 row"} of ${who}${all === said ? "" : `: ${all}`})`;
  }

  function said(device, answers, dropped) {
    const model = fields.model.value, format = fields.format.value, [count, users, context] = ["count", "users", "context"].map((name) => Number(fields[name]?.value ?? form.dataset[name]));
    const memory = Number(fields.memory.value), held = memory * count, parts = dropped ? [`nothing is listed of ${dropped} × ${device.device}, so this is <b>one</b>`] : [];
    const own = answers?.measured[model] ?? {}, long = beyond(context), brief = users === 1 && context === 1024;
    if (brief) parts.push(measured(own, format, count));
    const place = [["count", count], ["users", users], ["context", context]].reduce((at, [name, value]) => at * cards.asked[name].length + cards.asked[name].indexOf(value), 0);
    const [engine, listed] = answers?.of[model]?.[format] ?? ["", []];
    const answer = listed[place] || null, least = answer ? needs(answer) : formats.find((row) => row.model === model && row.format === format)?.needs_gb;
    const fits = !least || !memory || least <= held;
    const expected = Array.isArray(answer) && fits, before = form.dataset.engine || engine; // the engine most used with this format on this card: another of either may change it
    if (expected) form.dataset.engine = engine;
    if (expected) parts.push(`expect <b>${short(answer[0])}</b> (${range(answer[1], answer[2])})${users > 1 ? ` for each of ${users}` : ""} with ${before === engine ? engine : `<b>${engine}</b>, no longer ${before}`}${brief ? own[format]?.[count]?.[6] ?? "" : ""}`);
    const has = cards.cards.includes(device.group) ? "" : " if it has them"; // sold with more memory or less
    if (!fits) parts.push(`<b>does not fit:</b> needs ${answer ? "" : "at least "}${least} of ${held} GB`);
    else if (answer && memory) parts.push(`fits, ${least} of ${held} GB${has}`);
    if (answer?.[4] != null && fits && memory === answers.gb) parts.push(`${answer[4].toLocaleString("en")} user${answer[4] === 1 ? "" : "s"} at 10 tokens/s each`);
    if (long) parts.push(`${model} was made for ${long.context_tokens.toLocaleString("en")} tokens${long.asked === model ? "" : `, ${long.asked} for more`}`);
    else if (!answer && fits) parts.push(`what to expect is not listed here: the command below computes it${device.bandwidth_gb_per_s ? "" : " from the machine's memory bandwidth"}`);
    return parts.join(" · ");
  }

  function command(device, answers) {
    const engine = answers?.of[fields.model.value]?.[fields.format.value]?.[0] ?? "llama.cpp";
    const count = Number(fields.count.value), users = fields.users?.value ?? "1", context = fields.context?.value ?? form.dataset.context;
    const more = [`--context ${context}`, users === "1" ? "" : `--users ${users}`, fields.memory.value && Number(fields.memory.value) !== answers?.gb ? `--memory-gb ${fields.memory.value}` : "", device.bandwidth_gb_per_s ? "" : "--bandwidth-gb-per-s GB_PER_S"];
    return `llm-measured expect "${count > 1 ? `${count}x ` : ""}${device.device}" ${beyond(context)?.asked ?? fields.model.value} ${fields.format.value} ${engine} ${more.filter(Boolean).join(" ")}`;
  }

  async function update() {
    const device = devices.find((row) => row.address === fields.accelerator.value);
    const answers = await answersOf(device.address);
    if (fields.accelerator.value !== device.address) return; // another one was chosen meanwhile
    const dropped = offerCounts(answers);
    offerMemories(device, answers), offerFormats(fields.model.value, answers);
    document.getElementById("said").innerHTML = said(device, answers, dropped);
    document.getElementById("command").textContent = command(device, answers);
    // Cards filters by these: what was measured is of all formats of these bits, each row of its own one.
    const filters = { model: fields.model.value, bits: bitsOf.get(fields.format.value) ?? "", cards: fields.count.value, format: fields.format.value.replace(/^BF16$/, "F16") };
    document.getElementById("rows").href = `${root}pages/cards.html?${device.address}&${new URLSearchParams(filters)}`;
    form.dataset.ready = String(Number(form.dataset.ready ?? 0) + 1);
  }

  const query = new URLSearchParams(location.search);
  for (const field of fields) field.dataset.wish = query.get(field.name) ?? "";
  const wish = [query.get("accelerator"), fields.accelerator.value].find((address) => devices.some((row) => row.address === address));
  fields.accelerator.replaceChildren(...cards.groups.map((label) => {
    const own = devices.filter((row) => row.group === label).sort((a, b) => a.device.localeCompare(b.device, "en", { numeric: true }));
    const group = Object.assign(document.createElement("optgroup"), { label });
    group.append(...own.map((row) => new Option(row.device, row.address)));
    return group;
  }));
  Object.assign(fields.accelerator, { value: wish, disabled: false });
  offer(fields.model, [...models].sort((a, b) => a.model.localeCompare(b.model)).map((row) => [row.model]), fields.model.value, models.find((row) => row.address === query.get("model"))?.model ?? fields.model.value);
  for (const field of [fields.users, fields.context].filter(Boolean)) offer(field, cards.asked[field.name].map((value) => [value, value.toLocaleString("en")]));
  form.addEventListener("change", () => update().then(() => {
    const chosen = [...fields].filter((field) => field.name).map((field) => [field.name, field.name === "model" ? models.find((row) => row.model === field.value).address : field.value]);
    history.replaceState(null, "", `?${new URLSearchParams(chosen)}${location.hash}`);
  }));
  update();
})();
