/** The classes: chips that can be added, removed, pasted, or loaded from a list. */

import { getJson } from "./api.js";
import { byId, h } from "./dom.js";

const SHOWN = 24; // chips before "and … more"

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{lists: Object[], limits: Object}} server
 */
export function mountClasses(store, server) {
  const root = byId("classes");
  const chips = h("ul", { class: "chips", "aria-label": "Classes" });
  const count = h("p", { class: "hint", role: "status" });
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  const input = h("input", {
    id: "new-class", autocomplete: "off", placeholder: "Add a name, or paste a list",
    onkeydown: (event) => {
      if (event.key !== "Enter" && event.key !== ",") return;
      event.preventDefault();
      add(input.value);
    },
    onpaste: (event) => {
      const text = event.clipboardData.getData("text");
      if (!/[\n,;]/.test(text)) return;
      event.preventDefault();
      add(text);
    },
  });
  const select = h("select", { id: "list", onchange: () => takeList(select.value) },
    h("option", { value: "" }, "Load a class list …"), ...grouped(server.lists));
  const clear = h("button", { type: "button", class: "quiet", onclick: () => put([], "") }, "Remove all");
  let all = false;

  root.replaceChildren(chips, count, problem,
    h("div", { class: "row" },
      h("label", { class: "visually-hidden", for: "new-class" }, "New class"), input,
      h("button", { type: "button", onclick: () => add(input.value) }, "Add")),
    h("div", { class: "row" },
      h("label", { class: "visually-hidden", for: "list" }, "Load a class list"), select, clear));

  function put(classes, list, expand = false) {
    all = expand;
    store.set({ classes, list, own: !list });
  }

  function add(text) {
    const names = new Set(store.get().classes);
    for (const name of text.split(/[\n,;]/).map((part) => part.trim()).filter(Boolean)) names.add(name);
    const most = server.limits.classes;
    problem.hidden = names.size <= most;
    problem.textContent = `At most ${most} classes; ${names.size - most} were left out.`;
    input.value = "";
    put([...names].slice(0, most), "", true);
  }

  async function takeList(name) {
    if (!server.lists.some((list) => list.name === name)) return;
    const names = await getJson(`/v1/classes/${name}`);
    problem.hidden = true;
    put(names, name);
  }

  function remove(name) {
    const { classes } = store.get();
    const index = classes.indexOf(name);
    put(classes.filter((other) => other !== name), "");
    const buttons = chips.querySelectorAll("button.remove");
    (buttons[Math.min(index, buttons.length - 1)] ?? input).focus();
  }

  store.on(["classes", "list"], ({ classes, list }) => {
    const shown = all ? classes : classes.slice(0, SHOWN);
    chips.replaceChildren(...shown.map((name) => h("li", { class: "chip" }, h("span", {}, name),
      h("button", { type: "button", class: "remove", "aria-label": `Remove ${name}`, onclick: () => remove(name) }, "×"))));
    if (classes.length > shown.length) {
      const more = `and ${classes.length - shown.length} more`;
      chips.append(h("li", {}, h("button", {
        type: "button", class: "quiet",
        onclick: () => { all = true; store.set({ classes: [...classes] }); },
      }, more)));
    }
    count.textContent = classes.length === 1 ? "1 class; add at least one more." : `${classes.length} classes`;
    select.value = list;
    clear.hidden = classes.length === 0;
  });
  return { takeList };
}

function grouped(lists) {
  const groups = Map.groupBy(lists, (list) => list.group);
  return [...groups].map(([label, members]) => h("optgroup", { label },
    ...members.map((list) => h("option", { value: list.name }, `${list.title} (${list.count})`))));
}
