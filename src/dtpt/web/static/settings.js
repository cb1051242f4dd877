/** Prompt template, number of views, seed: what is rarely changed. */

import { byId, debounced, h } from "./dom.js";
import { TEMPLATE } from "./store.js";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{limits: Object}} server
 */
export function mountSettings(store, server) {
  const most = server.limits.views;
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const template = h("input", { id: "set-template", value: TEMPLATE, oninput: debounced(() => read(), 500) });
  const views = number("set-views", 1, most);
  const seed = number("set-seed", 0, 2 ** 31);
  const augmix = h("input", { type: "checkbox", id: "set-augmix", checked: true, onchange: () => read() });
  byId("settings").replaceChildren(
    field("set-template", "Prompt", template, "{} is replaced by the class name. The other words are tuned."),
    field("set-views", "Views", views, "Random crops of the image; the first view is the image itself."),
    field("set-seed", "Seed", seed, "Of the random crops."),
    h("p", {}, augmix, h("label", { for: "set-augmix" }, " AugMix: crops are also rotated, shifted and recoloured")),
    problem);

  function number(id, min, max) {
    return h("input", { type: "number", id, min, max, step: 1, inputmode: "numeric", oninput: debounced(() => read(), 500) });
  }

  function field(id, label, input, hint) {
    input.setAttribute("aria-describedby", `${id}-hint`);
    return h("p", { class: "field" }, h("label", { for: id }, label), input, h("span", { class: "hint", id: `${id}-hint` }, hint));
  }

  function read() {
    const hasName = template.value.split("{}").length === 2;
    const fits = hasName && views.validity.valid && seed.validity.valid && views.value && seed.value;
    problem.hidden = Boolean(fits);
    problem.textContent = hasName ? `Use 1 to ${most} views and a whole number as seed.` : "The prompt needs exactly one {} for the class name.";
    if (!fits) return;
    const next = { template: template.value, views: Number(views.value), seed: Number(seed.value), augmix: augmix.checked };
    const now = store.get();
    const sameViews = ["views", "seed", "augmix"].every((name) => now[name] === next[name]);
    store.set(sameViews ? next : { ...next, dropped: [] });
  }

  function put(state) {
    for (const [input, name] of [[template, "template"], [views, "views"], [seed, "seed"]]) {
      if (document.activeElement !== input) input.value = state[name];
    }
    augmix.checked = state.augmix;
  }

  put(store.get());
  store.on(["template", "views", "seed", "augmix"], put);
}
