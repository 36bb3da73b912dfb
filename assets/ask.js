// The fields of Start and How much: what people measured (downloads/cards.js) and what to expect (downloads/expect/<card>.js), looked up only.
(() => {
  const form = document.getElementById("ask"), root = form.dataset.root, fields = form.elements;
  const unpacked = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));
  const devices = unpacked(cards.devices), models = unpacked(cards.models), lookup = unpacked(cards.lookup), formats = unpacked(cards.formats);
  const bitsOf = new Map(formats.map((row) => [row.format, row.bits])).set("BF16", 16);
  const short = (value) => (value < 10 ? String(Number(value.toPrecision(2))) : Math.round(value).toLocaleString("en"));
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
    const shared = !cards.cards.includes(device.group), usual = answers?.gb ?? device.memory_gb ?? (shared ? measuredIn(device, answers) : null);
    const sizes = new Set([...(device.variants ?? []), ...(usual ? [usual] : []), ...(shared ? UNIFIED.filter((size) => !usual || size <= usual) : [])]);
    const options = [...sizes].sort((a, b) => a - b).map((size) => [size, `${size} GB`]);
    // The memory that was chosen stays where only something else changes; another card has its own.
    const wish = fields.memory.dataset.of === device.address ? fields.memory.value : fields.memory.dataset.wish;
    fields.memory.dataset.of = device.address;
    offer(fields.memory, options.length ? options : [["", "not known"]], usual, wish);
  }

  // Where nobody knows how much memory a device has: the least that holds every model that was measured on it.
  function measuredIn(device, answers) {
    const rows = lookup.filter((row) => row.device === device.device && row.accelerators === 1 && row.rows);
    const needed = rows.flatMap((row) => Object.entries(answers?.of[row.model] ?? {}).filter(([form]) => bitsOf.get(form) === row.bits).map(([, [, listed]]) => listed[0]?.[3] ?? listed[0]));
    return UNIFIED.find((size) => size >= Math.max(16, ...needed)) ?? UNIFIED.at(-1);
  }

  function offerFormats(model, answers) {
    const own = formats.filter((row) => row.model === model).sort((a, b) => b.n - a.n).map((row) => row.format);
    const names = [...new Set([...Object.keys(answers?.of[model] ?? {}), ...own])];
    offer(fields.format, names.map((name) => [name]), names.find((name) => bitsOf.get(name) === 4));
  }

  // How many of a card: numbers with an answer, or with a row that somebody measured. Returns what was chosen and is none of them.
  function offerCounts(device, answers) {
    const listed = Object.values(answers?.of ?? {}).flatMap(Object.values), wish = fields.count.dataset.wish || fields.count.value;
    const answered = (at) => listed.some(([, places]) => places[at * cards.asked.users.length * cards.asked.context.length]);
    const has = (count, at) => count === 1 || answered(at) || lookup.some((row) => row.device === device.device && row.accelerators === count);
    offer(fields.count, cards.asked.count.filter(has).map((count) => [count]), 1);
    return wish && wish !== fields.count.value ? wish : "";
  }

  function measured(device, model, bits, cards) {
    const rows = lookup.filter((row) => row.device === device && row.model === model && row.bits === bits && row.accelerators === cards && row.rows);
    if (!rows.length) return "not measured";
    const numbers = rows.map((row) => row.number).filter((number) => number != null), count = rows.reduce((sum, row) => sum + row.rows, 0);
    const all = range(Math.min(...rows.map((row) => row.least)), Math.max(...rows.map((row) => row.most)));
    const said = numbers.length ? range(Math.min(...numbers), Math.max(...numbers)) : all;
    return `measured <b>${said} tokens/s</b>${count > 1 ? ` (all ${count} rows${all === said ? "" : `: ${all}`})` : ""}`;
  }

  function said(device, answers, dropped) {
    const [model, format] = [fields.model.value, fields.format.value];
    const [count, users, context] = ["count", "users", "context"].map((name) => Number(fields[name]?.value ?? form.dataset[name]));
    const memory = Number(fields.memory.value), held = memory * count, parts = dropped ? [`nothing is listed of ${dropped} × ${device.device}, so this is <b>one</b>`] : [];
    if (users === 1 && context === 1024) parts.push(measured(device.device, model, bitsOf.get(format), count));
    const place = [["count", count], ["users", users], ["context", context]].reduce((at, [name, value]) => at * cards.asked[name].length + cards.asked[name].indexOf(value), 0);
    const [engine, listed] = answers?.of[model]?.[format] ?? ["", []];
    const answer = listed[place] || null, needs = Array.isArray(answer) ? answer[3] : answer;
    const fits = !needs || !memory || needs <= held;
    const expected = Array.isArray(answer) && fits, before = form.dataset.engine || engine; // the engine most used with this format on this card: another of either may change it
    if (expected) form.dataset.engine = engine;
    if (expected) parts.push(`expect <b>${short(answer[0])}</b> (${range(answer[1], answer[2])})${users > 1 ? ` for each of ${users}` : ""} with ${before === engine ? engine : `<b>${engine}</b>, no longer ${before}`}`);
    const has = cards.cards.includes(device.group) ? "" : " if it has them"; // sold with more memory or less
    if (needs && !fits) parts.push(`<b>does not fit:</b> needs ${needs} of ${held} GB`);
    else if (needs && memory) parts.push(`fits, ${needs} of ${held} GB${has}`);
    if (answer?.[4] != null && fits && memory === answers.gb) parts.push(`${answer[4].toLocaleString("en")} user${answer[4] === 1 ? "" : "s"} at 10 tokens/s each`);
    if (!answer) parts.push(`what to expect is not listed here: the command below computes it${device.bandwidth_gb_per_s ? "" : " from the machine's memory bandwidth"}`);
    return parts.join(" · ");
  }

  function command(device, answers) {
    const engine = answers?.of[fields.model.value]?.[fields.format.value]?.[0] ?? "llama.cpp";
    const count = Number(fields.count.value), users = fields.users?.value ?? "1";
    const more = [`--context ${fields.context?.value ?? form.dataset.context}`, users === "1" ? "" : `--users ${users}`, fields.memory.value && Number(fields.memory.value) !== answers?.gb ? `--memory-gb ${fields.memory.value}` : "", device.bandwidth_gb_per_s ? "" : "--bandwidth-gb-per-s GB_PER_S"];
    return `llm-measured expect "${count > 1 ? `${count}x ` : ""}${device.device}" ${fields.model.value} ${fields.format.value} ${engine} ${more.filter(Boolean).join(" ")}`;
  }

  async function update() {
    const device = devices.find((row) => row.address === fields.accelerator.value);
    const answers = await answersOf(device.address);
    if (fields.accelerator.value !== device.address) return; // another one was chosen meanwhile
    const dropped = offerCounts(device, answers);
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
