/** Sliders for λ, the weight of a method's brake; all of them show the same store. */

import { debounced, h, weight } from "./dom.js";
import { nameOf } from "./store.js";

const STEPS = 60; // positions of a slider
const PAUSE = 120; // milliseconds without a move before the question is asked

/**
 * A slider over powers of ten, from a tenth of a method's usual weights to ten times them.
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {Object} method one with a sweep
 * @param {string} id of the input
 */
export function makeSlider(store, method, id) {
  const low = Math.log10(Math.min(...method.sweep)) - 1;
  const high = Math.log10(Math.max(...method.sweep)) + 1;
  const toLambda = (place) => Number((10 ** (low + ((high - low) * place) / STEPS)).toPrecision(2));
  const toPlace = (lambda) => Math.round(((Math.log10(lambda) - low) / (high - low)) * STEPS);
  const usual = method.lambdas["fine-grained"];
  const output = h("output", { for: id });
  const input = h("input", {
    type: "range", id, min: 0, max: STEPS, step: 1, "aria-label": `λ of ${method.title}`,
    oninput: () => {
      const lambda = toPlace(usual) === Number(input.value) ? usual : toLambda(Number(input.value));
      describe(lambda);
      change(lambda);
    },
  });

  const change = debounced((lambda) => {
    const { methods } = store.get();
    store.set({ methods: methods.map((one) => (one.name === method.name ? { name: one.name, lambda } : one)) });
  }, PAUSE);

  function describe(lambda) {
    output.textContent = `λ = ${weight(lambda)}${lambda === usual ? " (authors’)" : ""}`;
    input.setAttribute("aria-valuetext", `λ = ${lambda}`);
  }

  function put(lambda) {
    if (document.activeElement !== input || toLambda(Number(input.value)) !== lambda) input.value = toPlace(lambda);
    describe(lambda);
  }

  return { element: h("span", { class: "slider" }, input, output), put };
}

/**
 * The slider of the method whose details are shown, beside its answer.
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {HTMLElement} root
 * @param {Object[]} methods that have a λ
 */
export function mountWeight(store, root, methods) {
  const sliders = new Map(methods.map((method) => [method.name, makeSlider(store, method, `weight-${method.name}`)]));
  store.on(["answer", "chosen", "methods"], ({ answer, chosen, methods: asked }) => {
    const name = answer?.answers.some((one) => nameOf(one.method) === chosen) ? chosen : "";
    const slider = sliders.get(name);
    const lambda = asked.find((one) => one.name === name)?.lambda;
    root.hidden = !slider || !lambda;
    if (root.hidden) return;
    slider.put(lambda);
    if (!root.contains(slider.element)) root.replaceChildren(h("span", { class: "soft" }, "Its brake, weaker to stronger"), slider.element);
  });
}
