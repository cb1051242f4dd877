/** The methods: which ones answer, and with which weight. */

import { byId, debounced, h, weight } from "./dom.js";

const STEPS = 60; // positions of a slider

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
    const slider = method.sweep.length ? makeSlider(method, (lambda) => setLambda(method.name, lambda)) : null;
    const element = h("li", { class: "method" },
      h("span", { class: "pick" }, box, h("label", { for: id },
        h("span", { class: "dot", style: { background: method.colour || "var(--soft)" } }),
        h("strong", {}, method.title), " ", h("span", { class: "soft" }, method.summary))),
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

  const setLambda = debounced((name, lambda) => {
    store.set({ methods: store.get().methods.map((one) => (one.name === name ? { name, lambda } : one)) });
  }, 120);

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

/** A slider over powers of ten, from a tenth of a method's usual weights to ten times them. */
function makeSlider(method, change) {
  const low = Math.log10(Math.min(...method.sweep)) - 1;
  const high = Math.log10(Math.max(...method.sweep)) + 1;
  const toLambda = (place) => Number((10 ** (low + ((high - low) * place) / STEPS)).toPrecision(2));
  const toPlace = (lambda) => Math.round(((Math.log10(lambda) - low) / (high - low)) * STEPS);
  const id = `lambda-${method.name}`;
  const output = h("output", { for: id });
  const usual = method.lambdas["fine-grained"];
  const input = h("input", {
    type: "range", id, min: 0, max: STEPS, step: 1, "aria-label": `λ of ${method.title}`,
    oninput: () => {
      const lambda = toPlace(usual) === Number(input.value) ? usual : toLambda(Number(input.value));
      name(lambda);
      change(lambda);
    },
  });

  function name(lambda) {
    output.textContent = `λ = ${weight(lambda)}${lambda === usual ? " (authors’)" : ""}`;
    input.setAttribute("aria-valuetext", `λ = ${lambda}`);
  }

  function put(lambda) {
    if (document.activeElement !== input || toLambda(Number(input.value)) !== lambda) input.value = toPlace(lambda);
    name(lambda);
  }

  return { element: h("span", { class: "slider", hidden: true }, input, output), put };
}
