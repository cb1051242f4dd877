/** Sliders for λ, the strength of a method's regulariser; all of them show the same store. */

import { debounced, h, power } from "./dom.js";
import { nameOf } from "./store.js";

const STEPS = 60; // positions of a slider
const PAUSE = 120; // milliseconds without a move before a request is sent

/**
 * A slider over powers of ten, from a tenth of a method's usual λ to ten times them.
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {Object} method one with a sweep
 * @param {string} id of the input
 */
export function makeSlider(store, method, id) {
  const low = Math.log10(Math.min(...method.sweep)) - 1;
  const high = Math.log10(Math.max(...method.sweep)) + 1;
  const toLambda = (position) => Number((10 ** (low + ((high - low) * position) / STEPS)).toPrecision(2));
  const toPosition = (lambda) => Math.round(((Math.log10(lambda) - low) / (high - low)) * STEPS);
  const usual = method.lambdas["fine-grained"];
  const output = h("output", { for: id });
  const input = h("input", {
    type: "range", id, min: 0, max: STEPS, step: 1, "aria-label": `λ of ${method.title}`,
    oninput: () => {
      const lambda = toPosition(usual) === Number(input.value) ? usual : toLambda(Number(input.value));
      describe(lambda);
      change(lambda);
    },
  });

  const change = debounced((lambda) => {
    const { methods } = store.get();
    store.set({ methods: methods.map((one) => (one.name === method.name ? { name: one.name, lambda } : one)) });
  }, PAUSE);

  function describe(lambda) {
    output.textContent = `λ = ${power(lambda)}${lambda === usual ? " (default)" : ""}`;
    input.setAttribute("aria-valuetext", `λ = ${lambda}`);
  }

  function put(lambda) {
    if (document.activeElement !== input || toLambda(Number(input.value)) !== lambda) input.value = toPosition(lambda);
    describe(lambda);
  }

  return { element: h("span", { class: "slider" }, input, output), put };
}

/**
 * The slider of the method whose details are shown, beside its prediction.
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {HTMLElement} root
 * @param {Object[]} methods that have a λ
 */
export function mountLambda(store, root, methods) {
  const sliders = new Map(methods.map((method) => [method.name, makeSlider(store, method, `shown-lambda-${method.name}`)]));
  store.on(["result", "selected", "methods"], ({ result, selected, methods: active }) => {
    const name = result?.predictions.some(({ method }) => nameOf(method) === selected) ? selected : "";
    const slider = sliders.get(name);
    const lambda = active.find((method) => method.name === name)?.lambda;
    root.hidden = !slider || !lambda;
    if (root.hidden) return;
    slider.put(lambda);
    if (!root.contains(slider.element)) root.replaceChildren(h("span", { class: "soft" }, "Regulariser, weak to strong"), slider.element);
  });
}
