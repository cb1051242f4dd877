/** The picture: dropped, pasted, chosen, or one of the server's drawings. */

import { getBlob } from "./api.js";
import { byId, h } from "./dom.js";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{examples: Object[], limits: Object}} server
 */
export function mountPicture(store, server) {
  const root = byId("picture");
  const input = h("input", {
    type: "file", id: "file", class: "visually-hidden", accept: "image/*",
    onchange: () => take(input.files[0]),
  });
  const preview = h("div", { class: "preview" });
  const zone = h("label", { class: "zone", for: "file" }, preview,
    h("span", { class: "zone-text" }, h("strong", {}, "Choose a picture"), " or drop or paste one here"));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  root.replaceChildren(input, zone, problem, strip(server.examples));

  function complain(text) {
    problem.hidden = !text;
    problem.textContent = text;
  }

  function take(file) {
    if (!file) return;
    if (!file.type.startsWith("image/")) return complain("This is no picture. JPEG, PNG, WebP, GIF, BMP and AVIF work.");
    if (file.size > server.limits.body_bytes - 100_000) return complain("This picture is larger than 10 MB: shrink it first.");
    complain("");
    show(file, file.name || "pasted picture", "");
  }

  function show(blob, name, example) {
    const before = store.get().picture;
    if (before) URL.revokeObjectURL(before.url);
    store.set({ picture: { blob, name, example, url: URL.createObjectURL(blob) }, dropped: [] });
  }

  function strip(examples) {
    if (!examples.length) return "";
    const buttons = examples.map((example) => {
      const image = h("img", { alt: "", width: 48, height: 48, loading: "lazy" });
      getBlob(`/v1/examples/${example.id}`).then((blob) => { image.src = URL.createObjectURL(blob); });
      return h("button", {
        type: "button", class: "example", title: example.name, "aria-label": `Drawing: ${example.name}`,
        "data-example": example.id, onclick: () => takeExample(example),
      }, image);
    });
    return h("div", {}, h("p", { class: "hint" }, "Or try a drawing (OpenMoji, CC BY-SA 4.0):"),
      h("div", { class: "strip", role: "group", "aria-label": "Drawings to try" }, ...buttons));
  }

  async function takeExample(example) {
    complain("");
    const blob = await getBlob(`/v1/examples/${example.id}`);
    if (!store.get().own) await server.takeList(example.classes);
    show(blob, example.name, example.id);
  }

  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      zone.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => {
    const file = [...event.clipboardData.files].find((one) => one.type.startsWith("image/"));
    if (file) take(file);
  });

  store.on(["picture"], ({ picture }) => {
    preview.replaceChildren(h("img", { src: picture.url, alt: `The picture: ${picture.name}` }));
    zone.classList.add("filled");
    for (const button of root.querySelectorAll(".example")) {
      button.setAttribute("aria-pressed", button.dataset.example === picture.example);
    }
  });
  return { takeExample };
}
