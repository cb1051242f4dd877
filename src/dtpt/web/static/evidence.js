/** What is known about answers of this confidence. */

import { byId, h, percent } from "./dom.js";
import { shownAnswer } from "./store.js";

const NAMES = 8; // of a set, before "and … more"

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{evidence: string[], calibrations: string[]}} server
 */
export function mountEvidence(store, server) {
  store.on(["answer", "chosen"], ({ answer, chosen }) => {
    byId("box-evidence").hidden = !answer;
    if (!answer) return;
    const shown = shownAnswer({ answer, chosen });
    byId("evidence").replaceChildren(
      h("p", { class: "hint" }, "A model is ", h("em", {}, "calibrated"), " when answers with 80 % confidence are right 80 % of the time. Only answers whose truth is known can show that."),
      ...(shown.calibrated ? [calibrated(shown.calibrated, shown, answer)] : []),
      ...(shown.evidence.length ? shown.evidence.map((known) => statement(known, shown)) : []),
      ...(shown.calibrated || shown.evidence.length ? [] : [nothing(server, shown, answer)]));
  });
}

function statement(known, shown) {
  const share = known.right / known.count;
  const range = `${percent(known.least_confidence, 0)} and ${percent(known.most_confidence, 0)}`;
  const sure = known.mean_confidence; // of those answers, which may lie far from this one
  const judgement = sure >= known.low && sure <= known.high ? "which agrees with that" : `${sure > known.high ? "more" : "less"} than that supports`;
  return h("div", { class: "evidence" },
    h("p", { class: "big" }, `${percent(share, 0)} `, h("span", {}, "were right")),
    h("p", {}, `Of ${known.count} answers of ${shown.title} on ${known.source} with confidence between ${range}, ${known.right} were right `
      + `(95 % interval ${percent(known.low, 0)} to ${percent(known.high, 0)}). The model was ${percent(sure)} sure of them on average, ${judgement}.`));
}

/** The calibrated confidence, the prediction set, and whether to abstain. */
function calibrated(made, shown, answer) {
  const names = made.prediction_set.slice(0, NAMES).join(", ");
  const more = made.prediction_set.length > NAMES ? ` and ${made.prediction_set.length - NAMES} more` : "";
  return h("div", { class: "evidence", id: "calibrated" },
    h("p", { class: "big" }, `${percent(made.confidence, 0)} `, h("span", {}, "calibrated")),
    h("div", {},
      h("p", {}, `${shown.title} gave ${percent(shown.confidence, 0)}; calibrated on ${made.images.toLocaleString("en")} labelled images of ${made.source}. `,
        h("strong", {}, made.abstained ? "Abstains: " : "Accepted: "), reliance(made)),
      h("p", {}, `Prediction set (at least ${percent(made.coverage, 0)} of such sets contain the true class): `, h("strong", {}, names), `${more} (${made.prediction_set.length} of ${answer.classes.length} classes).`),
      h("p", { class: "hint" }, `Assumption: ${made.assumption}`)));
}

function reliance(made) {
  const least = percent(1 - made.error, 0);
  if (!made.abstained) return `at least ${least} of the accepted predictions are right (with ${percent(made.level, 0)} confidence).`;
  if (made.threshold === null) return `no confidence is high enough for ${least} to be right.`;
  return `below a calibrated confidence of ${percent(made.threshold, 0)} it is not guaranteed that ${least} are right.`;
}

function nothing(server, shown, answer) {
  if (answer.picture.remark) {
    return h("p", {}, h("strong", {}, "No evidence for such a picture. "), "It is not of the model’s kind, so answers about other pictures say nothing about it.");
  }
  const known = [...server.evidence, ...server.calibrations];
  const why = known.length
    ? `What this server was given (${known.join(", ")}) is not about ${shown.title} with this model, sentence, class list and these views.`
    : "The server was started without a run or a calibration.";
  return h("p", {}, h("strong", {}, "No evidence for this model and class list. "), why, " Make some with ", h("code", {}, "dtpt eval"), " and ",
    h("code", {}, "dtpt calibrate"), "; then ", h("code", {}, "dtpt serve --evidence RUN --calibration FILE"), ".");
}
