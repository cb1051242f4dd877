/** The methods: which ones run, and with which λ. */

import { byId, h } from "./dom.js";
import { makeSlider } from "./slider.js";

/** The methods that are listed first, for readers who have not read the paper. */
const DESCRIPTIONS = {
  "zero-shot": "the model without tuning",
  "mean-views": "averages the most confident views; tunes nothing",
  tpt: "tunes the prompt until the model is confident on its best views",
  "c-tpt": "TPT with a regulariser that spreads the class features",
  "o-tpt": "TPT with a regulariser that makes class features orthogonal",
  "d-tpt": "TPT with a regulariser that balances the feature dimensions",
};

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{methods: Object[], limits: Object}} server
 */
export function mountMethods(store, server) {
  const listed = server.methods.filter((method) => !method.name.endsWith("-static")); // variants of the others
  const rows = new Map(listed.map((method) => [method.name, row(method)]));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const first = Object.keys(DESCRIPTIONS).filter((name) => rows.has(name));
  const others = [...rows.keys()].filter((name) => !first.includes(name));
  const list = (names) => h("ul", { class: "methods" }, ...names.map((name) => rows.get(name).element));
  byId("methods").replaceChildren(list(first), h("details", { class: "more" }, h("summary", {}, "More methods"), list(others)), problem);

  function row(method) {
    const id = `method-${method.name}`;
    const box = h("input", { type: "checkbox", id, onchange: () => toggle(method, box.checked) });
    const slider = method.sweep.length ? makeSlider(store, method, `lambda-${method.name}`) : null;
    const element = h("li", { class: "method" },
      h("span", { class: "pick" }, box, h("label", { for: id },
        h("span", { class: "dot", style: { background: method.colour || "var(--soft)" } }),
        h("strong", {}, method.title), " ", h("span", { class: "soft", title: method.summary }, DESCRIPTIONS[method.name] ?? method.summary))),
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
    else store.set({ methods: methods.filter(({ name }) => name !== method.name) });
  }

  const order = new Map(server.methods.map(({ name }, index) => [name, index]));
  const sorted = (methods) => methods.toSorted((a, b) => order.get(a.name) - order.get(b.name));

  store.on(["methods"], ({ methods }) => {
    for (const [name, { box, slider }] of rows) {
      const active = methods.find((method) => method.name === name);
      box.checked = Boolean(active);
      if (!slider) continue;
      slider.element.hidden = !active;
      if (active) slider.put(active.lambda);
    }
  });
}
