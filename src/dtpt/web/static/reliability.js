/** A reliability diagram: how often answers of each confidence were right. */

import { s } from "./dom.js";

/**
 * @param {Object[]} bins of the server's answer
 * @param {number} width in pixels
 * @returns {SVGElement}
 */
export function reliability(bins, width) {
  const side = Math.min(width, 520);
  const [left, bottom, top, counts] = [46, 44, 8, 56];
  const plot = side - left - 12;
  const height = top + plot + bottom + counts;
  const x = (value) => left + value * plot;
  const y = (value) => top + (1 - value) * plot;
  const most = Math.max(...bins.map((bin) => bin.count));
  const floor = height - 16;
  const full = bins.filter((bin) => bin.count);
  return s("svg", { width: side, height, viewBox: `0 0 ${side} ${height}`, "aria-hidden": true, class: "reliability" },
    ...[0, 0.25, 0.5, 0.75, 1].flatMap((tick) => [
      s("line", { x1: x(0), x2: x(1), y1: y(tick), y2: y(tick), class: "grid" }),
      s("text", { x: x(0) - 8, y: y(tick) + 4, class: "tick", "text-anchor": "end" }, 100 * tick),
      s("text", { x: x(tick), y: y(0) + 18, class: "tick", "text-anchor": "middle" }, 100 * tick)]),
    ...full.map((bin) => s("rect", {
      x: x(bin.low), width: x(bin.high) - x(bin.low), y: y(bin.chance_high), height: Math.max(1, y(bin.chance_low) - y(bin.chance_high)), class: "chance",
    })),
    ...full.map((bin) => s("rect", {
      x: x(bin.low) + 1, width: Math.max(1, x(bin.high) - x(bin.low) - 2), y: y(bin.accuracy), height: y(0) - y(bin.accuracy), class: "right",
    })),
    s("line", { x1: x(0), y1: y(0), x2: x(1), y2: y(1), class: "diagonal" }),
    ...full.map((bin) => s("circle", { cx: x(bin.confidence), cy: y(bin.accuracy), r: 4, class: "point" })),
    ...full.map((bin) => s("rect", {
      x: x(bin.low) + 1, width: Math.max(1, x(bin.high) - x(bin.low) - 2), y: floor - (34 * bin.count) / most, height: (34 * bin.count) / most, class: "count",
    })),
    s("text", { x: x(0.5), y: y(0) + 36, class: "label", "text-anchor": "middle" }, "confidence (%)"),
    s("text", { x: 12, y: y(0.5), class: "label", "text-anchor": "middle", transform: `rotate(-90 12 ${y(0.5)})` }, "right (%)"),
    s("text", { x: x(0.5), y: height - 2, class: "tick", "text-anchor": "middle" }, `answers per bin (at most ${most.toLocaleString("en")})`));
}
