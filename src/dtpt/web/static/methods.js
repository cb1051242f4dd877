/** The methods: which ones answer, and with which weight. */

import { byId, h } from "./dom.js";
import { makeSlider } from "./slider.js";

/** What the paper's methods do, for people who have not read it; the others have their summary. */
const PLAIN = {
  "zero-shot": "the model as it is",
  tpt: "bends the sentence until the model is sure of its best views",
  "c-tpt": "TPT; its brake keeps the classes’ sentences far apart",
  "o-tpt": "TPT; its brake keeps the classes’ sentences at right angles",
  "d-tpt": "TPT; its brake keeps meaning spread over all dimensions",
};

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{methods: Object[], limits: Object}} server
 */
export function mountMethods(store, server) {
  const paper = server.methods.filter((method) => method.in_paper);
  const listed = server.methods.filter((method) => !method.name.endsWith("-static")); // variants of the others
  const others = listed.filter((method) => !method.in_paper);
  const rows = new Map(listed.map((method) => [method.name, row(method)]));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const pick = (methods) => methods.map((method) => rows.get(method.name).element);
  byId("methods").replaceChildren(
    h("ul", { class: "methods" }, ...pick(paper)),
    h("details", { class: "more" }, h("summary", {}, "More methods"), h("ul", { class: "methods" }, ...pick(others))),
    problem);

  function row(method) {
    const id = `method-${method.name}`;
    const box = h("input", { type: "checkbox", id, onchange: () => toggle(method, box.checked) });
    const slider = method.sweep.length ? makeSlider(store, method, `lambda-${method.name}`) : null;
    const element = h("li", { class: "method" },
      h("span", { class: "pick" }, box, h("label", { for: id },
        h("span", { class: "dot", style: { background: method.colour || "var(--soft)" } }),
        h("strong", {}, method.title), " ", h("span", { class: "soft", title: method.summary }, PLAIN[method.name] ?? method.summary))),
      slider?.element ?? null);
    return { element, box, slider };
  }

  function toggle(method, on) {
    const { methods } = store.get();
    const most = server.limits.methods;
    const full = on && methods.length >= most;
    problem.hidden = !full;
    problem.textContent = `At most ${most} methods at once.`;
    if (full) rows.get(method.name).box.checked = false;
    else if (on) store.set({ methods: sorted([...methods, { name: method.name, lambda: method.lambdas["fine-grained"] ?? null }]) });
    else store.set({ methods: methods.filter((one) => one.name !== method.name) });
  }

  const order = new Map(server.methods.map((method, place) => [method.name, place]));
  const sorted = (methods) => methods.toSorted((a, b) => order.get(a.name) - order.get(b.name));

  store.on(["methods"], ({ methods }) => {
    for (const [name, { box, slider }] of rows) {
      const chosen = methods.find((one) => one.name === name);
      box.checked = Boolean(chosen);
      if (!slider) continue;
      slider.element.hidden = !chosen;
      if (chosen) slider.put(chosen.lambda);
    }
  });
}
