// Makes the headers of tables buttons that sort, and adds a filter for the names of mechanisms.
// It reads text and writes text; nothing from the record becomes markup.
"use strict";
(() => {
  const DIRECTIONS = ["ascending", "descending"];

  // The value of a cell: a number if it has one, else its text.
  const valueOf = (row, column) => {
    const cell = row.cells[column];
    if (!cell) return { number: NaN, text: "" };
    const number = cell.dataset.value === undefined ? NaN : Number(cell.dataset.value);
    return { number, text: cell.textContent.trim() };
  };

  // Numbers come before text, whatever the direction.
  const compare = (a, b, sign) => {
    const [noA, noB] = [Number.isNaN(a.number), Number.isNaN(b.number)];
    if (noA !== noB) return noA ? 1 : -1;
    if (noA) return sign * a.text.localeCompare(b.text, "en", { numeric: true });
    return sign * (a.number - b.number);
  };

  const sort = (table, header, column) => {
    const direction = header.getAttribute("aria-sort") === DIRECTIONS[0] ? DIRECTIONS[1] : DIRECTIONS[0];
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", direction);
    const sign = direction === DIRECTIONS[0] ? 1 : -1;
    const rows = Array.from(table.tBodies[0].rows, (row) => ({ row, value: valueOf(row, column) }));
    rows.sort((a, b) => compare(a.value, b.value, sign));
    table.tBodies[0].append(...rows.map(({ row }) => row));
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    Array.from(table.tHead.rows[0].cells).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "sort";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sort(table, header, column));
      header.replaceChildren(button);
    });
  }

  const cells = Array.from(document.querySelectorAll(".cell"));
  if (cells.length === 0) return;
  const bar = document.createElement("div");
  bar.className = "filter";
  const label = document.createElement("label");
  label.textContent = "Filter mechanisms in tables:";
  label.htmlFor = "filter";
  const input = document.createElement("input");
  input.type = "search";
  input.id = "filter";
  input.autocomplete = "off";
  const status = document.createElement("p");
  status.className = "facts";
  status.setAttribute("role", "status");
  bar.append(label, input, status);
  document.querySelector("#answers").after(bar);

  const rows = cells.map((cell) => Array.from(cell.querySelectorAll("tbody tr")));
  const filter = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    let shown = 0;
    let all = 0;
    cells.forEach((cell, at) => {
      let visible = 0;
      for (const row of rows[at]) {
        const name = row.querySelector("th").textContent.toLowerCase();
        row.hidden = !words.every((word) => name.includes(word));
        visible += row.hidden ? 0 : 1;
      }
      cell.hidden = visible === 0 ? words.length > 0 : false;
      shown += visible;
      all += rows[at].length;
    });
    status.textContent = words.length === 0 ? "" : `${shown} of ${all} rows`;
  };
  input.addEventListener("input", filter);
})();
