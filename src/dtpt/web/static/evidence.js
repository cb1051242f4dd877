/** Evidence about a confidence: accuracy of similar predictions, and calibrations. */

import { byId, drawn, h, percent } from "./dom.js";
import { binsOf, reliability } from "./score.js";
import { shownPrediction } from "./store.js";

const NAMES = 8; // of a prediction set, before "and … more"

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{evidence: string[], calibrations: string[]}} server
 */
export function mountEvidence(store, server) {
  store.on(["result", "selected"], ({ result, selected }) => {
    byId("box-evidence").hidden = !result;
    if (!result) return;
    const shown = shownPrediction({ result, selected });
    const parts = [
      ...(shown.calibrated ? [calibrated(shown.calibrated, shown, result)] : []),
      ...shown.evidence.map((evidence, index) => accuracy(evidence, shown, index === 0))];
    byId("evidence").replaceChildren(
      h("p", { class: "hint" }, "A model is ", h("em", {}, "calibrated"), " if predictions with 80\u00a0% confidence are correct 80\u00a0% of the time. Only labelled images can show whether it is."),
      ...(parts.length ? parts : [none(server, shown, result)]));
  });
}

/** How often predictions of similar confidence were correct; of a record without rows, how often all were. */
function accuracy(evidence, shown, open) {
  const { dataset, correct, count, low, high, mean_confidence: mean, bins } = evidence;
  const number = (value) => value.toLocaleString("en");
  const which = evidence.lowest_confidence === null
    ? `In the recorded run that comes with the package, ${shown.title} predicted the ${number(count)} images of ${dataset}; ${number(correct)} predictions`
    : `Of the ${count} predictions of ${shown.title} on ${dataset} with the most similar confidence `
      + `(${percent(evidence.lowest_confidence, 0)} to ${percent(evidence.highest_confidence, 0)}), ${correct}`;
  const verdict = mean < low ? "underconfident" : mean > high ? "overconfident" : "consistent with good calibration";
  return h("div", { class: "evidence" },
    h("p", { class: "big" }, `${percent(correct / count, 0)} `, h("span", {}, "correct")),
    h("div", {},
      h("p", {}, `${which} were correct (95\u00a0% interval ${percent(low, 0)} to ${percent(high, 0)}). Their mean confidence was ${percent(mean)}: ${verdict}.`),
      ...(bins ? [diagram(bins, dataset, open)] : [])));
}

function diagram(bins, dataset, open) {
  return h("details", { open }, h("summary", {}, `Reliability diagram on ${dataset}`),
    h("p", { class: "hint" }, "Bars: accuracy in each range of confidence. On the dashed line accuracy equals confidence; the band is where a perfectly calibrated model lies in 90\u00a0% of samples of this size."),
    drawn(h("div", { class: "figure" }), (width) => reliability(binsOf(bins), Math.min(width, 340))));
}

/** The calibrated confidence, the prediction set, and whether to abstain. */
function calibrated(calibration, shown, result) {
  const { confidence, prediction_set: members, abstained, targets, provenance } = calibration;
  const names = members.slice(0, NAMES).join(", ") || "empty";
  const more = members.length > NAMES ? ` and ${members.length - NAMES} more` : "";
  return h("div", { class: "evidence", id: "calibrated" },
    h("p", { class: "big" }, `${percent(confidence, 0)} `, h("span", {}, "calibrated")),
    h("div", {},
      h("p", {}, `${shown.title} gave ${percent(shown.confidence, 0)}; calibrated on ${provenance.images.toLocaleString("en")} labelled images of ${provenance.dataset}. `,
        h("strong", {}, abstained ? "Abstain: " : "Accepted: "), guarantee(calibration)),
      h("p", {}, `Prediction set (at least ${percent(targets.coverage, 0)} of such sets contain the true class): `, h("strong", {}, names), `${more} (${members.length} of ${result.classes.length} classes).`),
      h("p", { class: "hint" }, `Assumption: ${calibration.assumption}`)));
}

function guarantee({ abstained, threshold, targets }) {
  const least = percent(1 - targets.error, 0);
  if (!abstained) return `at least ${least} of accepted predictions are correct (with ${percent(targets.confidence, 0)} confidence).`;
  if (threshold === null) return `no confidence is high enough to guarantee that ${least} are correct.`;
  return `below a calibrated confidence of ${percent(threshold, 0)} there is no guarantee that ${least} are correct.`;
}

function none(server, shown, result) {
  if (result.image.warning) {
    return h("p", {}, h("strong", {}, "No evidence for this image. "), "It is out of distribution, so results on other images do not apply to it.");
  }
  const available = [...server.evidence, ...server.calibrations];
  const why = available.length
    ? `The runs and calibrations of this server (${available.join(", ")}) are not for ${shown.title} with this model, prompt, class list and these views.`
    : "The server was started without a run or a calibration.";
  return h("p", {}, h("strong", {}, "No evidence for this setup. "), why, " Create some with ", h("code", {}, "dtpt eval"), " and ",
    h("code", {}, "dtpt calibrate"), ", then start ", h("code", {}, "dtpt serve"), " with ",
    h("code", {}, "--evidence RUN"), " and ", h("code", {}, "--calibration FILE"), ".");
}
