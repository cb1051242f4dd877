/** The answers of all methods side by side, and what one of them changed, class by class. */

import { summarise } from "./chrome.js";
import { byId, drawn, h, percent, points, s } from "./dom.js";
import { mountWeight } from "./slider.js";
import { nameOf, shownAnswer } from "./store.js";

const CLASSES = 6; // rows of the figure
const STRANGE = "Not a picture for this model";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{methods: Object[]}} server
 */
export function mountAnswers(store, server) {
  const colours = new Map(server.methods.map((method) => [method.name, method.colour]));
  const colour = (answer) => colours.get(nameOf(answer.method).split("+")[0]) || "var(--soft)";

  mountWeight(store, byId("weight"), server.methods.filter((method) => method.sweep.length));
  store.on(["answer", "chosen"], ({ answer, chosen }) => {
    byId("box-answers").hidden = !answer;
    byId("remark").replaceChildren(...(answer?.picture.remark ? [remark(answer.picture.remark)] : []));
    if (!answer) return;
    const shown = shownAnswer({ answer, chosen });
    summarise(answer.picture.remark ? STRANGE : `${shown.label}, ${percent(shown.confidence)}`);
    byId("answers").replaceChildren(
      headline(answer, shown),
      h("div", { class: "answers", role: "radiogroup", "aria-label": "Show the details of" },
        ...answer.answers.map((one) => line(one, answer, shown))),
      h("p", { class: "hint" }, "The upright line marks where zero-shot stood for the same class; the last number is the difference in points. Choose a line for its details."),
      ...duplicates(answer));
    byId("changes").replaceChildren(...(shown.method === "zero-shot" ? [] : changes(answer, shown, colour(shown))));
  });

  function line(one, answer, shown) {
    const before = answer.zero_shot.probabilities[one.index];
    const checked = one === shown;
    return h("button", {
      type: "button", class: "answer", role: "radio", "aria-checked": checked, tabindex: checked ? 0 : -1,
      "data-method": one.method, onclick: () => store.set({ chosen: nameOf(one.method) }), onkeydown: arrows,
    },
    h("span", { class: "who" }, h("span", { class: "dot", style: { background: colour(one) } }), one.title),
    h("span", { class: "what" }, one.label),
    h("span", { class: "track", "aria-hidden": true },
      h("span", { class: "bar", style: { width: percentage(one.confidence), background: colour(one) } }),
      h("span", { class: "was", style: { left: percentage(before) } })),
    h("span", { class: "sure" }, percent(one.confidence)),
    h("span", { class: "moved" }, one.method === "zero-shot" ? "" : points(one.confidence - before),
      h("span", { class: "visually-hidden" }, one.method === "zero-shot" ? "" : " points against zero-shot for this class")));
  }

  function arrows(event) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const { answer, chosen } = store.get();
    const names = answer.answers.map((one) => nameOf(one.method));
    store.set({ chosen: names.at((names.indexOf(chosen) + step) % names.length) });
    byId("answers").querySelector('[aria-checked="true"]').focus();
  }
}

const percentage = (value) => `${(100 * value).toFixed(2)}%`;

function remark(text) {
  return h("p", { class: "note bad", id: "unfamiliar", role: "alert" }, h("strong", {}, `${STRANGE}. `), text);
}

function headline(answer, shown) {
  const plain = answer.zero_shot;
  const parts = [h("strong", {}, shown.label), `, says ${shown.title}, and is ${percent(shown.confidence)} sure.`];
  if (shown.method !== "zero-shot") {
    const same = plain.label === shown.label;
    parts.push(same
      ? ` Without tuning it is ${percent(plain.confidence)} sure of the same.`
      : ` Without tuning the answer is ${plain.label} (${percent(plain.confidence)}).`);
  }
  return h("p", { class: "headline" }, ...parts);
}

function duplicates(answer) {
  if (!answer.duplicates.length) return [];
  const groups = answer.duplicates.map((group) => group.join(" = ")).join("; ");
  return [h("p", { class: "note" }, `Names with the same sentence share their probability: ${groups}.`)];
}

/** A figure from zero-shot (open circle) to tuned (full circle), and the same numbers as a table. */
function changes(answer, shown, colour) {
  const before = answer.zero_shot.probabilities;
  const after = shown.probabilities;
  const order = answer.classes.map((_, place) => place)
    .sort((a, b) => Math.max(before[b], after[b]) - Math.max(before[a], after[a]))
    .slice(0, CLASSES);
  const rows = order.map((place) => ({ name: answer.classes[place], before: before[place], after: after[place] }));
  const figure = drawn(h("div", { class: "figure" }), (width) => dumbbells(rows, colour, width));
  return [
    h("h3", {}, `What ${shown.title} changed`),
    h("p", { class: "hint" }, h("span", { class: "key open" }), " zero-shot  ",
      h("span", { class: "key", style: { background: colour } }), ` ${shown.title}. Probability of the ${rows.length === 1 ? "class" : `${rows.length} most likely classes`}.`),
    figure, table(rows, shown)];
}

function dumbbells(rows, colour, width) {
  const longest = Math.max(...rows.map(({ name }) => name.length));
  const names = Math.min(8 * longest + 4, width * 0.36);
  const [row, top] = [34, 6];
  const height = top + rows.length * row + 26;
  const x = (value) => names + 10 + value * (width - names - 30);
  const axis = [0, 0.25, 0.5, 0.75, 1].flatMap((tick) => [
    s("line", { x1: x(tick), x2: x(tick), y1: top, y2: height - 24, class: "grid" }),
    s("text", { x: x(tick), y: height - 6, class: "tick", "text-anchor": "middle" }, `${100 * tick} %`)]);
  const marks = rows.flatMap(({ name, before, after }, place) => {
    const y = top + place * row + row / 2;
    return [
      s("text", { x: names, y: y + 5, class: "name", "text-anchor": "end" }, cut(name, names / 7.6)),
      s("line", { x1: x(before), x2: x(after), y1: y, y2: y, class: "way", stroke: colour }),
      s("circle", { cx: x(before), cy: y, r: 5.5, class: "open" }),
      s("circle", { cx: x(after), cy: y, r: 5.5, fill: colour })];
  });
  return s("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": true }, ...axis, ...marks);
}

const cut = (text, most) => (text.length > most ? `${text.slice(0, Math.max(3, most - 1))}…` : text);

function table(rows, shown) {
  return h("div", { class: "visually-hidden" }, h("table", {},
    h("caption", {}, `Probabilities before and after ${shown.title}`),
    h("thead", {}, h("tr", {}, ...["Class", "Zero-shot", shown.title, "Change in points"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...rows.map(({ name, before, after }) => h("tr", {}, h("th", { scope: "row" }, name),
      h("td", {}, percent(before)), h("td", {}, percent(after)), h("td", {}, points(after - before)))))));
}
