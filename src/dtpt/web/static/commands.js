/** Lines to copy that give the same numbers. */

import { byId, h } from "./dom.js";

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountCommands(store) {
  store.on(["result"], ({ result, image }) => {
    byId("box-commands").hidden = !result;
    if (!result) return;
    byId("commands").replaceChildren(
      h("p", { class: "hint" }, "With ", image.example
        ? h("a", { href: image.url, download: "image.png" }, "the drawing saved as image.png")
        : "your image saved as image.png", ":"),
      block("Command line", result.commands.shell), block("Python", result.commands.python));
  });
}

function block(title, text) {
  const button = h("button", { type: "button", class: "quiet", "aria-label": `Copy: ${title}`, onclick: copy }, "Copy");
  const code = h("code", {}, text);
  async function copy() {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  }
  return h("div", { class: "code" }, h("div", { class: "row between" }, h("h3", {}, title), button),
    h("pre", { tabindex: 0, "aria-label": title }, code));
}
