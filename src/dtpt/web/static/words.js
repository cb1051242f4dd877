/** How tuning changed the prompt, word by word. */

import { byId, h } from "./dom.js";
import { shownPrediction } from "./store.js";

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountWords(store) {
  store.on(["result", "selected"], ({ result, selected, template }) => {
    byId("box-words").hidden = !result;
    if (!result) return;
    const shown = shownPrediction({ result, selected });
    byId("words").replaceChildren(...(shown.words ? changed(shown, template)
      : [h("p", {}, `${shown.title} does not tune the prompt. Select a method that does, such as TPT or D-TPT.`)]));
  });
}

function changed({ title, words }, template) {
  const relative = ({ moved, norm }) => moved / norm;
  const most = Math.max(...words.map(relative));
  const equal = words.every(({ moved }) => Math.abs(moved - words[0].moved) < 1e-3 * moved);
  return [
    h("p", { class: "hint" }, "The model represents each word as a vector (its embedding). ", `${title} moved the embeddings of `, h("q", {}, template), " like this:"),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Words of the prompt" }, h("table", { class: "words" },
      h("thead", {}, h("tr", {}, ...["Word", "Distance, relative to its norm", "Nearest other words", "Moved towards"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, ...words.map((word) => h("tr", {}, h("th", { scope: "row" }, word.token),
        h("td", {}, h("span", { class: "track small", "aria-hidden": true },
          h("span", { class: "bar", style: { width: `${(100 * relative(word)) / most}%` } })),
        `${(100 * relative(word)).toFixed(0)}\u00a0%`),
        h("td", {}, word.nearest.join(", ")),
        h("td", {}, word.towards.join(", "))))))),
    equal ? h("p", { class: "hint" }, "One optimiser step (AdamW) changes every number of every embedding by the same amount, so all words move equally far; only the direction differs.") : "",
  ];
}
