"use strict";
for (const table of document.querySelectorAll("table[data-sortable]")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, at) => {
    const cell = row.cells[at];
    return cell.dataset.v === undefined ? cell.textContent.trim() : Number(cell.dataset.v);
  };
  const compare = (a, b) => {
    const numbers = [typeof a === "number", typeof b === "number"];
    if (numbers[0] && numbers[1]) return a - b;
    if (numbers[0] !== numbers[1]) return numbers[0] ? -1 : 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  heads.forEach((head, at) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
      const rows = [...body.rows].map((row) => [value(row, at), row]);
      const blank = (v) => v === "" || v === "–";
      rows.sort(([a], [b]) => {
        if (blank(a) !== blank(b)) return blank(a) ? 1 : -1;
        return falls ? compare(b, a) : compare(a, b);
      });
      body.append(...rows.map(([, row]) => row));
    });
  });
  const rows = [...body.rows];
  if (rows.length < 6) continue;
  const box = document.createElement("div");
  box.className = "filter";
  const label = document.createElement("label");
  const input = document.createElement("input");
  const count = document.createElement("span");
  input.type = "search";
  input.setAttribute("aria-describedby", table.id + "-count");
  count.id = table.id + "-count";
  count.setAttribute("role", "status");
  label.append("Show rows with all of these words: ", input);
  box.append(label, count);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const apply = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, at) => {
      row.hidden = !words.every((word) => texts[at].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = shown === rows.length ? rows.length + " rows" : shown + " of " + rows.length + " rows";
  };
  input.addEventListener("input", apply);
  apply();
  (table.closest(".wide") || table).before(box);
}
