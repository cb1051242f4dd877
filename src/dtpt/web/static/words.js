/** What moved in the sentence, word by word. */

import { byId, h } from "./dom.js";
import { shownAnswer } from "./store.js";

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountWords(store) {
  store.on(["answer", "chosen"], ({ answer, chosen, template }) => {
    byId("box-words").hidden = !answer;
    if (!answer) return;
    const shown = shownAnswer({ answer, chosen });
    byId("words").replaceChildren(...(shown.words ? moved(shown, template) : [untouched(shown)]));
  });
}

function untouched(shown) {
  return h("p", {}, `${shown.title} leaves the sentence as it is. Choose a method that tunes it, such as TPT or D-TPT.`);
}

function moved(shown, template) {
  const most = Math.max(...shown.words.map((word) => word.moved / word.length));
  const equal = shown.words.every((word) => Math.abs(word.moved - shown.words[0].moved) < 1e-3 * word.moved);
  return [
    h("p", { class: "hint" }, "To the model a word is a point among all words it knows. Tuning moves the points of the sentence ",
      h("q", {}, template), ` a little; ${shown.title} did this:`),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Words that moved" }, h("table", { class: "words" },
      h("thead", {}, h("tr", {}, ...["Word", "Moved by, of its length", "Nearest other words now", "Moved towards"].map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, ...shown.words.map((word) => h("tr", {}, h("th", { scope: "row" }, word.token),
        h("td", {}, h("span", { class: "track small", "aria-hidden": true },
          h("span", { class: "bar", style: { width: `${(100 * word.moved) / word.length / most}%` } })),
        `${((100 * word.moved) / word.length).toFixed(0)}\u00a0%`),
        h("td", {}, word.nearest.map(([token]) => token).join(", ")),
        h("td", {}, word.towards.join(", "))))))),
    equal ? h("p", { class: "hint" }, "One step of the optimiser moves every number of every word by the same small amount, so all words come equally far; only the direction differs.") : "",
  ];
}
