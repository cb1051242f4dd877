/** The views as thumbnails, most decided first; one can be left out and the question asked again. */

import { getBlob } from "./api.js";
import { byId, h, percent } from "./dom.js";

const COLUMNS = 8; // of the server's sheet

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountViews(store) {
  let sheet = { address: "", url: "" };
  let focused = 0;

  store.on(["answer"], async ({ answer }) => {
    byId("box-views").hidden = !answer;
    if (!answer) return;
    await load(answer.picture.thumbnails);
    if (store.get().answer === answer) draw(answer);
  });

  async function load(address) {
    if (!address || address === sheet.address) return;
    const blob = await getBlob(address).catch(() => null);
    if (sheet.url) URL.revokeObjectURL(sheet.url);
    sheet = { address, url: blob ? URL.createObjectURL(blob) : "" };
  }

  function draw(answer) {
    const views = answer.views.toSorted((a, b) => a.entropy - b.entropy);
    const kept = views.filter((view) => view.kept).length;
    const framed = kept === 1 ? "framed one" : `${kept} framed ones`;
    const { dropped } = store.get();
    const grid = h("div", { class: "views", role: "group", "aria-label": "Views, the most decided first; arrow keys move, Enter leaves one out", onkeydown: arrows },
      ...views.map((view) => thumbnail(view, answer.views.length)));
    const had = byId("views").contains(document.activeElement);
    byId("views").replaceChildren(
      h("p", { class: "hint" }, "A ", h("em", {}, "view"), ` is a random crop. Sorted by `, h("em", {}, "entropy"),
        `, which says how undecided the model is about it (0: not at all). Prompt tuning uses the ${framed}. Press a view to leave it out.`),
      grid,
      h("p", { class: "row between" },
        h("span", { class: "soft" }, dropped.length ? `${dropped.length} left out` : `${views.length} views`),
        dropped.length ? h("button", { type: "button", class: "quiet", onclick: () => store.set({ dropped: [] }) }, "Take all back") : null));
    const target = grid.querySelector(`[data-view="${focused}"]`) ?? grid.firstElementChild;
    target.tabIndex = 0;
    if (had) target.focus();
  }

  function thumbnail(view, count) {
    const states = [view.index === 0 ? "original" : "", view.kept ? "kept" : "", view.dropped ? "dropped" : ""];
    const words = `${view.index === 0 ? "The original" : `View ${view.index}`}: ${view.label}, ${percent(view.confidence)}, `
      + `entropy ${view.entropy.toFixed(2)}${view.kept ? ", tuned on" : ""}${view.dropped ? ", left out" : ""}`;
    return h("button", {
      type: "button", class: `view ${states.join(" ")}`, "data-view": view.index, tabindex: -1, title: words,
      "aria-label": words, "aria-pressed": view.index === 0 ? null : view.dropped, "aria-disabled": view.index === 0 ? true : null,
      style: sheet.url ? place(view.index, count) : {}, onclick: (event) => toggle(view, event.currentTarget),
    }, view.index === 0 ? h("span", { class: "mark" }, "original") : null);
  }

  function place(index, count) {
    const rows = Math.ceil(count / COLUMNS);
    return {
      "background-image": `url("${sheet.url}")`,
      "background-size": `${100 * COLUMNS}% ${100 * rows}%`,
      "background-position": `${(100 * (index % COLUMNS)) / (COLUMNS - 1)}% ${rows > 1 ? (100 * Math.floor(index / COLUMNS)) / (rows - 1) : 0}%`,
    };
  }

  function toggle(view, button) {
    focused = view.index;
    if (view.index === 0) return;
    const { dropped } = store.get();
    const back = dropped.includes(view.index);
    button.classList.toggle("dropped", !back); // at once; the answer draws all of them anew
    button.setAttribute("aria-pressed", !back);
    store.set({ dropped: back ? dropped.filter((one) => one !== view.index) : [...dropped, view.index] });
  }

  function arrows(event) {
    const buttons = [...event.currentTarget.children];
    const across = getComputedStyle(event.currentTarget).gridTemplateColumns.split(" ").length;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[event.key];
    const next = buttons[buttons.indexOf(event.target) + step];
    if (!next) return;
    event.preventDefault();
    event.target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    focused = Number(next.dataset.view);
  }
}
