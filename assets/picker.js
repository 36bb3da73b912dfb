// The front page's picker: what people measured of an accelerator, a model and a number of bits, and what comes nearest. The data stand in the page;
// the same sentences as bench/report/front.py, which writes the first answer (a test compares them).
"use strict";
const picker = (globalThis.picker = {});

// {rate, low, high} in tokens/s of one user by the calculator, or null: the one place that asks it (assets/expect.js with downloads/expected.js).
picker.expectedRange = async (data, device, model, bits) => {
  const accelerator = data.devices.find((row) => row[0] === device)[2];
  if (!accelerator) return null;
  const known = await picker.calculator();
  const [format, engine] = data.asked[bits];
  if (!known.models.has(model)) return null;
  const setup = expectation.setup(known, { accelerator, model, format, engine, accelerators: 1, split: "", context: data.context });
  return setup.refused || setup.outside > 0 ? null : expectation.predict(known, setup);
};

// The calculator's data, loaded when it is first asked.
picker.calculator = () =>
  (picker.loaded ??= new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: document.getElementById("picker-data").dataset.expected });
    script.onload = () => resolve(expectation.unpacked(globalThis.expectedData));
    script.onerror = reject;
    document.head.append(script);
  }).then(expectation.ready));

// Two digits below 10, else none after the point: lookup.rate_text.
picker.short = (v) => (v < 10 ? String(Number(v.toPrecision(2))) : Math.round(v).toLocaleString("en"));
picker.plural = (n, word) => `${n} ${word}${n === 1 ? "" : "s"}`;

picker.link = (data, device, model, bits) => {
  const names = data.models.find((row) => row[0] === model)[2];
  const query = new URLSearchParams([["o-accelerator_family", device], ...names.map((name) => ["o-model", name]), ["o-one_user_bits", `${bits} bits`]]);
  return `pages/explore.html?${query}#published-by-others`;
};

picker.nearest = (data, device, model, bits) => {
  const size = Object.fromEntries(data.models.map((row) => [row[0], row[1]]));
  const width = Object.fromEntries(data.devices.map((row) => [row[0], row[4]]));
  const rows = data.measured.map(([d, m, b, ...cell]) => [data.devices[d][0], data.models[m][0], b, cell]).filter((row) => row[2] === bits);
  const far = (m) => Math.round(1e4 * Math.abs(size[m] / size[model] - 1)) / 1e4;
  const apart = (d) => Math.abs(width[d] - (width[device] ?? 0));
  const order = (a, b, by, at) => by(a[at]) - by(b[at]) || (a[at] < b[at] ? -1 : 1);
  const here = rows.filter(([d, m]) => d === device && m !== model).sort((a, b) => order(a, b, far, 1));
  const there = rows.filter(([d, m]) => m === model && d !== device && width[d]).sort((a, b) => order(a, b, apart, 0));
  return [...here.slice(0, 2), ...there.slice(0, 2)].map(([d, m, , cell]) => [`${m} on ${d}`, cell[2], cell[0], picker.link(data, d, m, bits)]);
};

// A link to the calculator, asked for many users of an accelerator; empty for one that it does not know.
picker.many = (data, device, model, bits) => {
  const accelerator = data.devices.find((row) => row[0] === device)[2];
  const query = new URLSearchParams({ accelerator, model, format: data.asked[bits][0], users: data.users });
  return accelerator && picker.fits(data, device, model, bits) ? `<a href="pages/expect.html?${query}">${data.users} users at once</a>` : "";
};

// The least GB of the weights, an accelerator's memory in GB (null: unknown), and whether the one fits the other.
picker.leastBytes = (data, model, bits) => (data.models.find((row) => row[0] === model)[1] * data.least[bits]) / 8;
picker.memory = (data, device) => data.devices.find((row) => row[0] === device)[3];
picker.fits = (data, device, model, bits) => !picker.memory(data, device) || picker.leastBytes(data, model, bits) <= picker.memory(data, device);

picker.said = (data, device, model, bits) => {
  const { short, plural } = picker;
  const at = [data.devices.findIndex((row) => row[0] === device), data.models.findIndex((row) => row[0] === model)];
  const cell = data.measured.find((row) => row[0] === at[0] && row[1] === at[1] && row[2] === bits)?.slice(3);
  let words = "";
  if (cell && cell[0] > 1) words = `<b>${short(cell[1])} to ${short(cell[3])} tokens/s</b> for one user in ${cell[0]} measurements of ${cell[6]} (${cell[5]}); ${short(cell[2])} in the median${cell[4] > 1 ? ` of the medians of ${cell[4]} sources` : ", all of one source"}.`;
  else if (cell) words = `<b>${short(cell[2])} tokens/s</b> for one user: one measurement of ${cell[6]} (${cell[5]}).`;
  else if (!picker.fits(data, device, model, bits)) words = `<b>Does not fit:</b> the weights have at least ${short(picker.leastBytes(data, model, bits))} GB, one ${device} has ${short(picker.memory(data, device))} GB.`;
  else words = "<b>Nobody here has measured exactly this.</b>";
  const near = picker.nearest(data, device, model, bits).map(([text, rate, n, address]) => `<a href="${address}">${text}</a>: ${short(rate)} (n ${n})`);
  const rows = cell ? `<a href="${picker.link(data, device, model, bits)}">The ${plural(cell[0], "row")}</a>` : "";
  return `<p>${words} <span id="picker-expected"></span></p><p>${[rows, picker.many(data, device, model, bits), ...near].filter(Boolean).join(" · ")}</p>`;
};

picker.expectedWords = (data, found, bits, measured) => {
  const engine = data.asked[bits][1];
  const asked = engine === "any" ? "" : `, asked for ${engine},`;
  return found ? `A calculation from all published rows${asked} says about ${picker.short(found.rate)} (${picker.short(found.low)} to ${picker.short(found.high)})${measured ? ": trust the measurements more" : ""}.` : "";
};

picker.isMeasured = (data, device, model, bits) =>
  data.measured.some(([d, m, b]) => data.devices[d][0] === device && data.models[m][0] === model && b === bits);

(async () => {
  const form = document.getElementById("picker");
  if (!form) return;
  const data = (picker.data = await expectation.unpacked(document.getElementById("picker-data").textContent));
  const said = document.getElementById("picker-said");
  const NAMES = ["device", "model", "bits"];
  for (const name of NAMES) form.elements[name].disabled = false; // without this script they would look alive
  const usual = NAMES.map((name) => form.elements[name].value).join();

  async function update() {
    const [device, model, bits] = NAMES.map((name) => form.elements[name].value);
    history.replaceState(null, "", `?${new URLSearchParams({ device, model, bits })}${location.hash}`);
    said.innerHTML = picker.said(data, device, model, Number(bits));
    const words = picker.expectedWords(data, await picker.expectedRange(data, device, model, Number(bits)), bits, picker.isMeasured(data, device, model, Number(bits)));
    if (NAMES.map((name) => form.elements[name].value).join() === [device, model, bits].join()) document.getElementById("picker-expected").textContent = words;
    form.dataset.ready = String(Number(form.dataset.ready ?? 0) + 1);
  }

  form.addEventListener("input", update);
  form.addEventListener("submit", (event) => event.preventDefault());
  const query = new URLSearchParams(location.search);
  for (const name of NAMES) if ([...form.elements[name].options].some((option) => option.value === query.get(name))) form.elements[name].value = query.get(name);
  // The first answer stands in the page already.
  if (NAMES.map((name) => form.elements[name].value).join() !== usual) await update();
  else form.dataset.ready = "0";
})();
