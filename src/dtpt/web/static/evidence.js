/** What is known about answers of this confidence. */

import { byId, h, percent } from "./dom.js";
import { shownAnswer } from "./store.js";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{evidence: string[]}} server
 */
export function mountEvidence(store, server) {
  store.on(["answer", "chosen"], ({ answer, chosen }) => {
    byId("box-evidence").hidden = !answer;
    if (!answer) return;
    const shown = shownAnswer({ answer, chosen });
    byId("evidence").replaceChildren(
      h("p", { class: "hint" }, "A model is ", h("em", {}, "calibrated"), " when answers with 80 % confidence are right 80 % of the time. Only answers whose truth is known can show that."),
      ...(shown.evidence.length ? shown.evidence.map((known) => statement(known, shown)) : [nothing(server, shown, answer)]));
  });
}

function statement(known, shown) {
  const share = known.right / known.count;
  const range = `${percent(known.least_confidence, 0)} and ${percent(known.most_confidence, 0)}`;
  const inside = shown.confidence >= known.low && shown.confidence <= known.high;
  const judgement = inside
    ? "This confidence agrees with that."
    : `This confidence (${percent(shown.confidence)}) is ${shown.confidence > known.high ? "higher" : "lower"} than that supports.`;
  return h("div", { class: "evidence" },
    h("p", { class: "big" }, `${percent(share, 0)} `, h("span", {}, "were right")),
    h("p", {}, `Of ${known.count} answers of ${shown.title} on ${known.source} with confidence between ${range}, ${known.right} were right `
      + `(95 % interval ${percent(known.low, 0)} to ${percent(known.high, 0)}). ${judgement}`));
}

function nothing(server, shown, answer) {
  if (answer.picture.remark) {
    return h("p", {}, h("strong", {}, "No evidence for such a picture. "), "It is not of the model’s kind, so answers about other pictures say nothing about it.");
  }
  const why = server.evidence.length
    ? `The runs of this server (${server.evidence.join(", ")}) do not have ${shown.title} with this model, sentence, class list and these views.`
    : "The server was started without a run to draw on.";
  return h("p", {}, h("strong", {}, "No evidence for this model and class list. "), why, " Evaluate one with ", h("code", {}, "dtpt eval"), " and start ", h("code", {}, "dtpt serve --evidence RUN"), ".");
}
