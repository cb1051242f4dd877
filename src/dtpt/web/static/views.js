/** The views as thumbnails, lowest entropy first; one can be left out and the prediction repeated. */

import { getBlob } from "./api.js";
import { byId, h, percent } from "./dom.js";

const COLUMNS = 8; // of the server's sheet

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountViews(store) {
  let sheet = { address: "", url: "" };
  let focused = 0;

  store.on(["result"], async ({ result }) => {
    byId("box-views").hidden = !result;
    if (!result) return;
    await load(result.image.thumbnails);
    if (store.get().result === result) draw(result);
  });

  async function load(address) {
    if (!address || address === sheet.address) return;
    const blob = await getBlob(address).catch(() => null);
    if (sheet.url) URL.revokeObjectURL(sheet.url);
    sheet = { address, url: blob ? URL.createObjectURL(blob) : "" };
  }

  function draw(result) {
    const views = result.views.toSorted((a, b) => a.entropy - b.entropy);
    const kept = views.filter((view) => view.kept).length;
    const { dropped } = store.get();
    const grid = h("div", { class: "views", role: "group", "aria-label": "Views, lowest entropy first; arrow keys move, Enter leaves one out", onkeydown: arrows },
      ...views.map((view) => thumbnail(view, views.length)));
    const hadFocus = byId("views").contains(document.activeElement);
    byId("views").replaceChildren(
      h("p", { class: "hint" }, "A ", h("em", {}, "view"), " is a random crop of the image. Views are sorted by the ", h("em", {}, "entropy"),
        ` of their zero-shot prediction: the lower, the more confident. Prompt tuning uses the ${kept === 1 ? "framed view" : `${kept} framed views`}. Click a view to leave it out.`),
      grid,
      h("p", { class: "row between" },
        h("span", { class: "soft" }, dropped.length ? `${dropped.length} of ${views.length} views left out` : `${views.length} views`),
        dropped.length ? h("button", { type: "button", class: "quiet", onclick: () => store.set({ dropped: [] }) }, "Use all views") : null));
    const target = grid.querySelector(`[data-view="${focused}"]`) ?? grid.firstElementChild;
    target.tabIndex = 0;
    if (hadFocus) target.focus();
  }

  function thumbnail({ index, label, confidence, entropy, kept, dropped }, count) {
    const original = index === 0;
    const states = [original ? "original" : "", kept ? "kept" : "", dropped ? "dropped" : ""];
    const text = `${original ? "The original" : `View ${index}`}: ${label}, ${percent(confidence)}, `
      + `entropy ${entropy.toFixed(2)}${kept ? ", used for tuning" : ""}${dropped ? ", left out" : ""}`;
    return h("button", {
      type: "button", class: `view ${states.join(" ")}`, "data-view": index, tabindex: -1, title: text,
      "aria-label": text, "aria-pressed": original ? null : dropped, "aria-disabled": original ? true : null,
      style: sheet.url ? background(index, count) : {}, onclick: (event) => toggle(index, event.currentTarget),
    }, original ? h("span", { class: "mark" }, "original") : null);
  }

  function background(index, count) {
    const rows = Math.ceil(count / COLUMNS);
    return {
      "background-image": `url("${sheet.url}")`,
      "background-size": `${100 * COLUMNS}% ${100 * rows}%`,
      "background-position": `${(100 * (index % COLUMNS)) / (COLUMNS - 1)}% ${rows > 1 ? (100 * Math.floor(index / COLUMNS)) / (rows - 1) : 0}%`,
    };
  }

  function toggle(index, button) {
    focused = index;
    if (index === 0) return;
    const { dropped } = store.get();
    const restored = dropped.includes(index);
    button.classList.toggle("dropped", !restored); // at once; the result draws all of them again
    button.setAttribute("aria-pressed", !restored);
    store.set({ dropped: restored ? dropped.filter((view) => view !== index) : [...dropped, index] });
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
