// What a reader can do with a table beside sorting it: search its rows, choose its columns, take along what is shown.
const LEAST_ROWS = 8;

function made(tag, properties, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// A cell as a file of numbers has it: the value that it is sorted by, else its text.
const content = (cell) => (cell.dataset.sort ?? cell.textContent.trim());
const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const visible = (row) => !row.hidden && !row.classList.contains("no-match");

function csv(table) {
  const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter(visible)];
  return rows.map((row) => [...row.cells].filter((cell) => !cell.hidden).map((cell) => quoted(content(cell))).join(",")).join("\n") + "\n";
}

function equip(box, table, number) {
  const rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  const name = box.getAttribute("aria-label");
  const count = made("output", { className: "rows-shown" });
  const tell = () => { count.textContent = `${rows.filter(visible).length} of ${rows.filter((row) => !row.hidden).length} rows`; };
  const search = made("input", { type: "search", placeholder: "Search the rows", autocomplete: "off", ariaLabel: `Search the rows of: ${name}` });
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.classList.toggle("no-match", !words.every((word) => row.textContent.toLowerCase().includes(word)));
    tell();
  });
  const choices = heads.map((head, place) => {
    const choice = made("input", { type: "checkbox", checked: true, disabled: place === 0 });
    choice.addEventListener("change", () => {
      for (const row of table.rows) if (row.cells.length === heads.length) row.cells[place].hidden = !choice.checked;
    });
    return made("label", {}, choice, ` ${head.textContent.trim()}`);
  });
  const columns = made("details", { className: "columns" }, made("summary", {}, "Columns"), made("fieldset", {}, made("legend", {}, "Columns shown"), ...choices));
  columns.addEventListener("keydown", (event) => { if (event.key === "Escape") { columns.open = false; columns.querySelector("summary").focus(); } });
  const save = made("button", { type: "button" }, "CSV of the rows shown");
  save.addEventListener("click", () => {
    const address = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
    made("a", { href: address, download: `${document.location.pathname.split("/").pop().replace(/\.html$/, "") || "index"}-table-${number}.csv` }).click();
    URL.revokeObjectURL(address);
  });
  const tools = made("div", { className: "table-tools", role: "group", ariaLabel: `Tools for: ${name}` }, search, columns, save, count);
  box.before(tools);
  tell();
  document.addEventListener("change", tell); // another device in front hides rows
}

for (const [place, box] of document.querySelectorAll(".table-scroll").entries()) {
  const table = box.querySelector("table.sortable");
  if (table && table.tBodies[0].querySelectorAll("tr th").length >= LEAST_ROWS) equip(box, table, place + 1);
}

// One choice for all tables of a page whose rows are of several processors; the first one of each is shown until then.
const place = document.getElementById("processor"), several = [...document.querySelectorAll("tr[data-of]")];
if (place && several.length) {
  const choice = made("select", {});
  for (const name of new Set(several.map((row) => row.dataset.of))) choice.append(made("option", {}, name));
  choice.addEventListener("change", () => {
    for (const row of several) row.hidden = row.dataset.of !== choice.value;
    for (const table of new Set(several.map((row) => row.closest("table")))) {
      table.querySelector(".of").textContent = choice.value;
      table.querySelector(".none").hidden = [...table.tBodies[0].rows].some((row) => !row.hidden && row.dataset.of);
    }
  });
  place.prepend(made("label", {}, "Processor ", choice));
}
