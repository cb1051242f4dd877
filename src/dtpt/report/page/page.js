"use strict";
// Tables sort by a click (or Enter) on a heading, and a link to a folded part opens it; without
// script the page reads the same.
(function () {
  const value = (row, column) => {
    const cell = row.children[column];
    const given = cell.dataset.v;
    if (given === undefined) return cell.textContent.trim().toLowerCase();
    return given === "" ? null : Number(given);
  };
  const compare = (a, b, sign) => {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === "number" && typeof b === "number") return sign * (a - b);
    return sign * String(a).localeCompare(String(b), "en", { numeric: true });
  };
  const sort = (table, column, direction) => {
    const sign = direction === "ascending" ? 1 : -1;
    for (const body of table.tBodies) {
      const rows = Array.from(body.rows).filter((row) => !row.classList.contains("group"));
      rows.sort((a, b) => compare(value(a, column), value(b, column), sign));
      rows.forEach((row) => body.appendChild(row));
    }
    table.querySelectorAll("thead th").forEach((head, index) => {
      if (index === column) head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
  };
  document.querySelectorAll("table.sortable").forEach((table) => {
    table.querySelectorAll("thead th").forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const now = head.getAttribute("aria-sort");
        const first = head.dataset.first || "ascending";
        const other = first === "ascending" ? "descending" : "ascending";
        sort(table, column, now === first ? other : first);
      });
    });
  });
  const open = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  };
  window.addEventListener("hashchange", open);
  open();
  document.documentElement.dataset.ready = "yes";
})();
