/** Sentence, number of views, seed: what one rarely changes. */

import { byId, debounced, h } from "./dom.js";
import { TEMPLATE } from "./store.js";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{limits: Object}} server
 */
export function mountAdvanced(store, server) {
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const template = h("input", { id: "set-template", value: TEMPLATE, oninput: debounced(() => read(), 500) });
  const views = number("set-views", 1, server.limits.views);
  const seed = number("set-seed", 0, 2 ** 31);
  const augmix = h("input", { type: "checkbox", id: "set-augmix", checked: true, onchange: () => read() });
  byId("advanced").replaceChildren(
    field("set-template", "The sentence", template, "{} stands for the class. Its other words are what is tuned."),
    field("set-views", "Views", views, "Random crops that a method looks at; the first is the picture itself."),
    field("set-seed", "Seed", seed, "Another seed, other crops."),
    h("p", {}, augmix, h("label", { for: "set-augmix" }, " AugMix: crops are also turned, shifted and recoloured")),
    problem);

  function number(id, min, max) {
    return h("input", { type: "number", id, min, max, step: 1, inputmode: "numeric", oninput: debounced(() => read(), 500) });
  }

  function field(id, label, input, hint) {
    const about = h("span", { class: "hint", id: `${id}-hint` }, hint);
    input.setAttribute("aria-describedby", `${id}-hint`);
    return h("p", { class: "field" }, h("label", { for: id }, label), input, about);
  }

  function read() {
    const fits = template.value.split("{}").length === 2 && views.validity.valid && seed.validity.valid && views.value && seed.value;
    problem.hidden = Boolean(fits);
    problem.textContent = template.value.split("{}").length === 2
      ? `Views go from 1 to ${server.limits.views}; the seed is a whole number.`
      : "The sentence needs exactly one {} where the class goes.";
    if (!fits) return;
    const next = { template: template.value, views: Number(views.value), seed: Number(seed.value), augmix: augmix.checked };
    const { views: a, seed: b, augmix: c } = store.get();
    const same = a === next.views && b === next.seed && c === next.augmix;
    store.set(same ? next : { ...next, dropped: [] });
  }

  function put(state) {
    if (document.activeElement !== template) template.value = state.template;
    if (document.activeElement !== views) views.value = state.views;
    if (document.activeElement !== seed) seed.value = state.seed;
    augmix.checked = state.augmix;
  }

  put(store.get());
  store.on(["template", "views", "seed", "augmix"], put);
}
