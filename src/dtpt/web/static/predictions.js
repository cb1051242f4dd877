/** The predictions of all methods side by side, and what one of them changed, class by class. */

import { byId, drawn, h, percent, points, s } from "./dom.js";
import { summarise } from "./layout.js";
import { mountLambda } from "./slider.js";
import { nameOf, shownPrediction } from "./store.js";

const CLASSES = 6; // rows of the figure
const OOD = "Out of distribution";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{methods: Object[]}} server
 */
export function mountPredictions(store, server) {
  const colours = new Map(server.methods.map((method) => [method.name, method.colour]));
  const colour = ({ method }) => colours.get(nameOf(method).split("+")[0]) || "var(--soft)";

  mountLambda(store, byId("lambda"), server.methods.filter((method) => method.sweep.length));
  store.on(["result", "selected"], ({ result, selected }) => {
    byId("box-predictions").hidden = !result;
    byId("warning").replaceChildren(...(result?.image.warning ? [warning(result.image.warning)] : []));
    if (!result) return;
    const shown = shownPrediction({ result, selected });
    summarise(result.image.warning ? OOD : `${shown.label}, ${percent(shown.confidence)}`);
    byId("predictions").replaceChildren(
      headline(result, shown),
      h("div", { class: "predictions", role: "radiogroup", "aria-label": "Show the details of" },
        ...result.predictions.map((prediction) => row(prediction, result, shown))),
      h("p", { class: "hint" }, "The vertical line marks the zero-shot probability of the same class; the last number is the difference in percentage points. Select a row for its details."),
      h("button", { type: "button", class: "quiet", onclick: () => byId("box-commands").scrollIntoView() }, "Reproduce in Python or on the command line"),
      ...duplicates(result));
    byId("changes").replaceChildren(...(shown.method === "zero-shot" ? [] : changes(result, shown, colour(shown))));
  });

  function row(prediction, result, shown) {
    const before = result.zero_shot.probabilities[prediction.index];
    const checked = prediction === shown;
    const tuned = prediction.method !== "zero-shot";
    return h("button", {
      type: "button", class: "prediction", role: "radio", "aria-checked": checked, tabindex: checked ? 0 : -1,
      "data-method": prediction.method, onclick: () => store.set({ selected: nameOf(prediction.method) }), onkeydown: arrows,
    },
    h("span", { class: "title" }, h("span", { class: "dot", style: { background: colour(prediction) } }), prediction.title),
    h("span", { class: "class" }, prediction.label),
    h("span", { class: "track", "aria-hidden": true },
      h("span", { class: "bar", style: { width: percentage(prediction.confidence), background: colour(prediction) } }),
      h("span", { class: "before", style: { left: percentage(before) } })),
    h("span", { class: "confidence" }, percent(prediction.confidence)),
    h("span", { class: "change" }, tuned ? points(prediction.confidence - before) : "",
      h("span", { class: "visually-hidden" }, tuned ? " points compared with zero-shot for this class" : "")));
  }

  function arrows(event) {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const { result, selected } = store.get();
    const names = result.predictions.map(({ method }) => nameOf(method));
    store.set({ selected: names.at((names.indexOf(selected) + step) % names.length) });
    byId("predictions").querySelector('[aria-checked="true"]').focus();
  }
}

const percentage = (value) => `${(100 * value).toFixed(2)}%`;

function warning(text) {
  return h("p", { class: "note bad", id: "ood", role: "alert" }, h("strong", {}, `${OOD}. `), text);
}

function headline(result, shown) {
  const untuned = result.zero_shot;
  const parts = [`${shown.title} predicts `, h("strong", {}, shown.label), ` with ${percent(shown.confidence)} confidence.`];
  if (shown.method !== "zero-shot") {
    parts.push(untuned.label === shown.label
      ? ` Without tuning: the same class with ${percent(untuned.confidence)}.`
      : ` Without tuning: ${untuned.label} with ${percent(untuned.confidence)}.`);
  }
  return h("p", { class: "headline" }, ...parts);
}

function duplicates(result) {
  if (!result.duplicates.length) return [];
  const groups = result.duplicates.map((group) => group.join(" = ")).join("; ");
  return [h("p", { class: "note" }, `Classes with the same prompt share their probability: ${groups}.`)];
}

/** A figure from zero-shot (open circle) to tuned (filled circle), and the same numbers as a table. */
function changes(result, shown, colour) {
  const before = result.zero_shot.probabilities;
  const after = shown.probabilities;
  const order = result.classes.map((_, index) => index)
    .sort((a, b) => Math.max(before[b], after[b]) - Math.max(before[a], after[a]))
    .slice(0, CLASSES);
  const rows = order.map((index) => ({ name: result.classes[index], before: before[index], after: after[index] }));
  const figure = drawn(h("div", { class: "figure" }), (width) => dumbbells(rows, colour, width));
  return [
    h("h3", {}, `What ${shown.title} changed`),
    h("p", { class: "hint" }, `Probability of the ${rows.length} most probable classes: `, h("span", { class: "key open" }), " zero-shot, ",
      h("span", { class: "key", style: { background: colour } }), ` ${shown.title}.`),
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
  const marks = rows.flatMap(({ name, before, after }, index) => {
    const y = top + index * row + row / 2;
    return [
      s("text", { x: names, y: y + 5, class: "name", "text-anchor": "end" }, cut(name, names / 8)),
      s("line", { x1: x(before), x2: x(after), y1: y, y2: y, class: "path", stroke: colour }),
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
