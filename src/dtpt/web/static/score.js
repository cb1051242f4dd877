/** The second tab: metrics and a reliability diagram of a CSV file. */

import { score } from "./api.js";
import { byId, drawn, h, percent, s } from "./dom.js";

const FIRST = ["accuracy", "mean_confidence", "signed_gap", "ece", "floor", "ece_above_floor"];

/** @param {{limits: Object}} server */
export function mountScore(server) {
  const text = h("textarea", { id: "csv", rows: 12, spellcheck: "false", placeholder: "confidence,correct\n0.91,true\n0.45,false" });
  const file = h("input", { type: "file", id: "csv-file", accept: ".csv,text/csv", onchange: () => read() });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  byId("score-form").replaceChildren(h("section", { class: "card", "aria-labelledby": "h-csv" },
    h("h2", { id: "h-csv" }, "Predictions"),
    h("p", { class: "hint" }, "A CSV file with the columns ", h("code", {}, "confidence"), " and ", h("code", {}, "correct"), ", or ",
      h("code", {}, "p0, p1, …"), " and ", h("code", {}, "label"), `. It is sent to this server (${location.host}) only and not stored.`),
    h("label", { for: "csv" }, "Paste it here"), text,
    h("p", { class: "field" }, h("label", { for: "csv-file" }, "or choose a file"), file),
    h("p", { class: "row" },
      h("button", { type: "submit", class: "main" }, "Score"),
      h("button", { type: "button", class: "quiet", onclick: () => { text.value = sample(); run(); } }, "Try an example")),
    problem));
  byId("score-results").replaceChildren(h("p", { class: "later" }, "The verdict, a reliability diagram and the metrics appear here."));
  byId("score-form").addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });

  async function read() {
    const chosen = file.files[0];
    if (!chosen) return;
    const most = server.limits.body_bytes;
    if (chosen.size > most) return complain(`The file is larger than ${(most / 1e6).toFixed(0)} MB.`);
    text.value = await chosen.text();
    await run();
  }

  function complain(message) {
    problem.hidden = !message;
    problem.textContent = message;
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

function show({ verdict, count, bins: columns, metrics }) {
  const bins = binsOf(columns);
  const figure = drawn(h("div", { class: "figure" }), (width) => reliability(bins, width));
  byId("score-results").replaceChildren(
    h("section", { class: "card", "aria-labelledby": "h-verdict" }, h("h2", { id: "h-verdict" }, "Verdict"),
      h("p", { class: "headline", id: "verdict", role: "status" }, verdict),
      h("p", { class: "hint" }, `From ${count.toLocaleString("en")} predictions. In brackets: the 95\u00a0% interval of mean confidence minus accuracy. ECE is the expected calibration error.`)),
    h("section", { class: "card", "aria-labelledby": "h-diagram" }, h("h2", { id: "h-diagram" }, "Reliability diagram"),
      h("p", { class: "hint" }, "Each bar is the accuracy of the predictions in one range of confidence. On the dashed line accuracy equals confidence. The shaded band is where a perfectly calibrated model lies in 90\u00a0% of samples of this size."),
      figure, binTable(bins)),
    h("section", { class: "card", "aria-labelledby": "h-metrics" }, h("h2", { id: "h-metrics" }, "Metrics"), metricTable(metrics)));
}

function metricTable(metrics) {
  const first = FIRST.map((key) => metrics.find((metric) => metric.key === key)).filter(Boolean);
  const rest = metrics.filter(({ key }) => !FIRST.includes(key));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table of metrics" }, h("table", { class: "metrics", role: "table" }, // roles, because the narrow layout changes `display`
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Metric"), h("th", { scope: "col", class: "number" }, "Value"), h("th", { scope: "col" }, "Meaning"))),
    h("tbody", {}, ...[...first, ...rest].map(({ heading, text, unit, meaning }) => h("tr", { role: "row" }, h("th", { scope: "row", role: "rowheader" }, heading),
      h("td", { class: "number", role: "cell" }, `${text} ${unit}`), h("td", { class: "soft", role: "cell" }, meaning))))));
}

function binTable(bins) {
  return h("div", { class: "visually-hidden" }, h("table", {}, h("caption", {}, "Bins of confidence"),
    h("thead", {}, h("tr", {}, ...["Confidence", "Predictions", "Accuracy"].map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", {}, ...bins.map((bin) => h("tr", {},
      h("th", { scope: "row" }, `${percent(bin.low, 0)} to ${percent(bin.high, 0)}`), h("td", {}, bin.count), h("td", {}, percent(bin.accuracy)))))));
}

/** Bins as the server sends them, column by column, as one object each. */
export const binsOf = (columns) => columns.low.map((_, index) => Object.fromEntries(Object.entries(columns).map(([name, values]) => [name, values[index]])));

/** The accuracy in each bin of confidence, and below it the number of predictions. */
export function reliability(bins, width) {
  const side = Math.min(width, 520);
  const [left, bottom, top, counts] = [46, 44, 8, 56];
  const plot = side - left - 12;
  const height = top + plot + bottom + counts;
  const x = (value) => left + value * plot;
  const y = (value) => top + (1 - value) * plot;
  const most = Math.max(...bins.map(({ count }) => count));
  const bar = ({ low, high }) => ({ x: x(low) + 1, width: Math.max(1, x(high) - x(low) - 2) });
  const countHeight = ({ count }) => (34 * count) / most;
  return s("svg", { width: side, height, viewBox: `0 0 ${side} ${height}`, "aria-hidden": true, class: "reliability" },
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((tick) => [
      s("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), class: "grid" }),
      s("text", { x: x(0) - 8, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, 100 * tick),
      s("text", { x: x(tick), y: y(0) + 18, class: "tick", "text-anchor": "middle" }, 100 * tick)]),
    ...bins.map((bin) => s("rect", {
      x: x(bin.low), width: x(bin.high) - x(bin.low), y: y(bin.chance_high), height: Math.max(1, y(bin.chance_low) - y(bin.chance_high)), class: "chance",
    })),
    ...bins.map((bin) => s("rect", { ...bar(bin), y: y(bin.accuracy), height: y(0) - y(bin.accuracy), class: "accuracy" })),
    s("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" }),
    ...bins.map((bin) => s("circle", { cx: x(bin.confidence), cy: y(bin.accuracy), r: 4, class: "point" })),
    ...bins.map((bin) => s("rect", { ...bar(bin), y: height - 16 - countHeight(bin), height: countHeight(bin), class: "count" })),
    s("text", { x: x(0.5), y: y(0) + 36, class: "label", "text-anchor": "middle" }, "confidence (%)"),
    s("text", { x: 12, y: y(0.5), class: "label", "text-anchor": "middle", transform: `rotate(-90 12 ${y(0.5)})` }, "accuracy (%)"),
    s("text", { x: x(0.5), y: height - 2, class: "tick", "text-anchor": "middle" }, `predictions per bin (at most ${most.toLocaleString("en")})`));
}

/** An overconfident classifier; random, other numbers each time. */
function sample(count = 400) {
  const rows = Array.from({ length: count }, () => {
    const confidence = 0.35 + 0.64 * Math.random() ** 0.6;
    return `${confidence.toFixed(4)},${Math.random() < confidence - 0.12}`;
  });
  return ["confidence,correct", ...rows].join("\n");
}
