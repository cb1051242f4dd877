/** The second tab: scores of a CSV file. */

import { score } from "./api.js";
import { byId, drawn, h, percent } from "./dom.js";
import { reliability } from "./reliability.js";

const FIRST = ["accuracy", "mean_confidence", "signed_gap", "ece", "floor", "ece_above_floor"];

/** @param {{limits: Object}} server */
export function mountScore(server) {
  const text = h("textarea", { id: "csv", rows: 12, spellcheck: "false", placeholder: "confidence,correct\n0.91,true\n0.45,false" });
  const file = h("input", { type: "file", id: "csv-file", accept: ".csv,text/csv", onchange: () => read() });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  byId("score-form").replaceChildren(h("section", { class: "card", "aria-labelledby": "h-csv" },
    h("h2", { id: "h-csv" }, "Confidences and truth"),
    h("p", { class: "hint" }, "A CSV with the columns ", h("code", {}, "confidence"), " and ", h("code", {}, "correct"), ", or ",
      h("code", {}, "p0, p1, …"), " and ", h("code", {}, "label"), `. It goes to this server (${location.host}) only and is not stored.`),
    h("label", { for: "csv" }, "Paste it here"), text,
    h("p", { class: "field" }, h("label", { for: "csv-file" }, "or choose a file"), file),
    h("p", { class: "row" },
      h("button", { type: "submit", class: "main" }, "Score"),
      h("button", { type: "button", class: "quiet", onclick: () => { text.value = sample(); run(); } }, "Try an example")),
    problem));
  byId("score-results").replaceChildren(h("p", { class: "later" }, "The verdict, a picture of confidence against truth, and the numbers with their meaning come here."));
  byId("score-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });

  async function read() {
    const chosen = file.files[0];
    if (!chosen) return;
    if (chosen.size > server.limits.body_bytes) return complain("The file is larger than 10 MB.");
    text.value = await chosen.text();
    await run();
  }

  function complain(words) {
    problem.hidden = !words;
    problem.textContent = words;
  }

  async function run() {
    complain("");
    try {
      show(await score(text.value));
    } catch (error) {
      byId("score-results").replaceChildren();
      complain(`${error.message} ${error.remedy ?? ""}`);
    }
  }
}

function show(found) {
  const figure = drawn(h("div", { class: "figure" }), (width) => reliability(found.bins, width));
  byId("score-results").replaceChildren(
    h("section", { class: "card", "aria-labelledby": "h-verdict" }, h("h2", { id: "h-verdict" }, "Verdict"),
      h("p", { class: "headline", id: "verdict", role: "status" }, found.verdict),
      h("p", { class: "hint" }, `From ${found.count.toLocaleString("en")} answers. In brackets: the 95 % interval of the difference between confidence and truth. ECE is the calibration error; the numbers below explain it.`)),
    h("section", { class: "card", "aria-labelledby": "h-diagram" }, h("h2", { id: "h-diagram" }, "Confidence against truth"),
      h("p", { class: "hint" }, "Each bar: how often answers of that confidence were right. On the dashed line confidence equals truth. The shaded band is where a perfectly calibrated model would lie by chance, nine times in ten."),
      figure, binTable(found.bins)),
    h("section", { class: "card", "aria-labelledby": "h-metrics" }, h("h2", { id: "h-metrics" }, "Numbers"), metrics(found.metrics)));
}

function metrics(found) {
  const first = FIRST.map((key) => found.find((one) => one.key === key)).filter(Boolean);
  const rest = found.filter((one) => !FIRST.includes(one.key));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Metrics" }, h("table", { class: "metrics", role: "table" }, // roles, because a phone's style takes the table apart
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Metric"), h("th", { scope: "col", class: "number" }, "Value"), h("th", { scope: "col" }, "What it means"))),
    h("tbody", {}, ...[...first, ...rest].map((one) => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, one.heading),
      h("td", { class: "number", role: "cell" }, `${one.text} ${one.unit}`), h("td", { class: "soft", role: "cell" }, one.meaning))))));
}

function binTable(bins) {
  return h("div", { class: "visually-hidden" }, h("table", {}, h("caption", {}, "Bins of confidence"),
    h("thead", {}, h("tr", {}, ...["Confidence", "Answers", "Right"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...bins.filter((bin) => bin.count).map((bin) => h("tr", {},
      h("th", { scope: "row" }, `${percent(bin.low, 0)} to ${percent(bin.high, 0)}`), h("td", {}, bin.count), h("td", {}, percent(bin.accuracy)))))));
}

/** An overconfident classifier, drawn anew each time. */
function sample(count = 400) {
  const rows = Array.from({ length: count }, () => {
    const confidence = 0.35 + 0.64 * Math.random() ** 0.6;
    return `${confidence.toFixed(4)},${Math.random() < confidence - 0.12}`;
  });
  return ["confidence,correct", ...rows].join("\n");
}
