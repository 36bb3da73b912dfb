// Cards: the table with filters, and everything about the card or model that the address names (cards.html?rtx-4090). Tabulator draws; the data
// are downloads/cards.js and a file of rows for each card and model (bench/report/cards.py).
(() => {
  const box = document.getElementById("cards");
  const unpacked = ({ columns, rows }) => rows.map((row) => Object.fromEntries(columns.map((name, place) => [name, row[place]])));
  const made = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children.filter((child) => child != null && child !== ""));
    return node;
  };
  const link = (text, href) => made("a", { href }, text);
  const devices = unpacked(cards.devices), models = unpacked(cards.models);
  const cardOf = (name) => devices.find((row) => row.device === name?.split(": ")[0]), modelOf = (name) => models.find((row) => row.model === name?.split(": ")[0]);
  const NUMBER = { sorter: "number", hozAlign: "right", headerHozAlign: "right", headerFilterPlaceholder: "≥ or =" };
  const matches = (asked, value) => (asked.startsWith("=") ? String(value) === asked.slice(1) : typeof value === "number" ? value >= Number(asked) : String(value ?? "").toLowerCase().includes(asked.toLowerCase()));
  const query = new URLSearchParams(location.search); // cards.html?rtx-4090&model=llama-3.1-8b&bits=4: a filter by the name of its column
  const LINKS = {
    card: (name) => (cardOf(name) ? link(name, `?${cardOf(name).address}`) : name ?? ""),
    model: (name) => (modelOf(name) ? link(name, `?${modelOf(name).address}`) : name ?? ""),
    source: (name) => (cards.sources[name] ? link(name, cards.sources[name]) : name ?? ""),
  };

  // A table that can be sorted and filtered, and a button that saves the rows and columns that are shown.
  function grid(place, title, columns, data, more = {}) {
    const holder = made("div", {}), save = made("button", { type: "button" }, "CSV of the rows shown"), count = made("output", {});
    place.append(made("div", { className: "table-tools" }, made("b", {}, title), save, count), holder);
    const table = new Tabulator(holder, {
      data, layout: "fitDataStretch", maxHeight: "75vh", placeholder: "no such row: clear a filter", nestedFieldSeparator: false,
      columnDefaults: { headerFilter: "input", headerFilterFunc: matches, headerSortTristate: true },
      initialHeaderFilter: columns.filter((column) => query.get(column.title)).map((column) => ({ field: column.field, value: (column.sorter ? "=" : "") + query.get(column.title) })),
      columns: columns.map((column) => ({ ...column, headerFilterParams: { elementAttributes: { "aria-label": `Filter: ${column.title}` } } })),
      ...more,
    });
    table.on("dataFiltered", (_, rows) => { count.textContent = `${rows.length.toLocaleString("en")} of ${data.length.toLocaleString("en")} rows`; });
    save.addEventListener("click", () => table.download("csv", `${title.toLowerCase().replace(/[^a-z0-9.]+/g, "-")}.csv`));
    return new Promise((done) => table.on("tableBuilt", () => {
      // What takes the focus may not stand between a grid and its rows, so the scrolled box is the rows' group.
      holder.removeAttribute("aria-owns"); holder.querySelector(".tabulator-table").role = "presentation"; holder.querySelector(".tabulator-tableholder").role = "rowgroup"; done(table);
    }));
  }
  const columnsOf = (data, names) => names.map(([field, title]) => ({
    field, title, frozen: field === names[0][0],
    ...(data.some((row) => typeof row[field] === "number") ? NUMBER : {}),
    ...(LINKS[field === "device" ? "card" : field] ? { formatter: (cell) => LINKS[field === "device" ? "card" : field](cell.getValue()) } : {}),
  }));

  // The plain table of the page, which stands without this script.
  function everyCard() {
    const plain = box.querySelector("table"), heads = [...plain.tHead.rows[0].cells].map((cell) => cell.textContent);
    const data = [...plain.tBodies[0].rows].map((row) => Object.fromEntries([...row.cells].map((cell, place) => {
      return [heads[place], place === 0 ? cell.textContent.trim() : !cell.dataset.sort ? null : Number(cell.dataset.sort)];
    })));
    const texts = new Map([...plain.tBodies[0].rows].map((row) => [row.cells[0].textContent, [...row.cells].map((cell) => cell.textContent)]));
    const columns = columnsOf(data, heads.map((head) => [head, head])).map((column, place) => (place === 0 ? { ...column, minWidth: 170, widthGrow: 1.5 } : {
      ...column, ...NUMBER, sorterParams: { alignEmptyValues: "bottom" }, formatter: (cell) => texts.get(cell.getData()[heads[0]])[place],
    }));
    box.replaceChildren();
    const choose = made("select", { ariaLabel: "A model" }, made("option", {}, "choose a model …"), ...models.map((row) => made("option", { value: row.address }, row.model)));
    choose.addEventListener("change", () => { location.search = choose.value; });
    return grid(box, "Tokens/s of one user, 4 bits", columns, data, { height: "85vh", maxHeight: false, layout: "fitColumns", columnDefaults: { headerFilter: "input", headerFilterFunc: matches, headerWordWrap: true, minWidth: 95 } }).then(() => box.querySelector(".table-tools").append(choose));
  }

  async function one(own, name, kind) {
    const other = kind === "device" ? "model" : "device";
    const words = kind === "device" ? ["next faster memory", "equally fast memory", "next slower memory"] : ["next larger", "of equal size", "next smaller"];
    const neighbours = ["up", "equal", "down"].flatMap((side, place) => (own[side] ? [` · ${words[place]}: `, LINKS[kind === "device" ? "card" : "model"](own[side])] : []));
    const facts = [own.memory_gb && `${own.memory_gb} GB`, own.bandwidth_gb_per_s && `${own.bandwidth_gb_per_s.toLocaleString("en")} GB/s`, own.unsure && `${own.unsure} unsure: no datasheet was seen`, own.size,
      `${own.rows.toLocaleString("en")} rows of ${own.sources} source${own.sources === 1 ? "" : "s"}`,
      own.best && `${own.best[0]} was fastest in ${own.best[1]} of ${own.best[2]} settings that one source measured with two engines`];
    const data = unpacked(cards.lookup).filter((row) => row[kind] === name);
    box.replaceChildren(made("h2", {}, name), made("p", {}, facts.filter(Boolean).join(" · "), ...neighbours, " · ", link("all cards", "?"),
      " · ", link("how much?", `how-much.html?${kind === "device" ? "accelerator" : "model"}=${own.address}`)));
    await grid(box, `${name}, one user, by source`, columnsOf(data, [[other, other === "device" ? "card" : "model"], ["bits", "bits"], ["accelerators", "cards"], ["number", "the number"],
      ["median", "median"], ["least", "least"], ["most", "most"], ["rows", "rows"], ["source", "source"], ["formats", "formats"], ["engines", "engines"]]), data,
      { initialSort: [{ column: other, dir: "asc" }] });
    const script = made("script", { src: `../downloads/cards/${own.address}.js` });
    await new Promise((done) => { script.onload = script.onerror = done; document.head.append(script); });
    const rows = unpacked(cardRows), names = cardRows.columns.filter((column) => rows.some((row) => row[column] !== name));
    await grid(box, `${name}, every row`, columnsOf(rows, names.map((column) => [column, column])), rows);
  }

  const asked = decodeURIComponent(location.search.slice(1)).split("&")[0];
  const card = devices.find((row) => row.address === asked), model = models.find((row) => row.address === asked);
  const shown = card ? one(card, card.device, "device") : model ? one(model, model.model, "model") : everyCard();
  shown.then(() => { box.dataset.ready = "1"; });
})();
