/** The image: dropped, pasted, chosen, or one of the example drawings. */

import { getBlob } from "./api.js";
import { byId, h } from "./dom.js";

/**
 * @param {ReturnType<import("./store.js").makeStore>} store
 * @param {{examples: Object[], limits: Object}} server
 */
export function mountImage(store, server) {
  const root = byId("image");
  const input = h("input", {
    type: "file", id: "file", class: "visually-hidden", accept: "image/*",
    onchange: () => take(input.files[0]),
  });
  const preview = h("div", { class: "preview" });
  const zone = h("label", { class: "zone", for: "file" }, preview,
    h("span", {}, h("strong", {}, "Choose an image"), ", or drop or paste one here"));
  const problem = h("p", { class: "problem", role: "alert", hidden: true });
  root.replaceChildren(input, zone, problem, strip(server.examples));

  function complain(text) {
    problem.hidden = !text;
    problem.textContent = text;
  }

  function take(file) {
    if (!file) return;
    const most = server.limits.body_bytes - 100_000; // the settings need some of the body
    if (!file.type.startsWith("image/")) return complain("This file is not an image. Use JPEG, PNG, WebP, GIF, BMP or AVIF.");
    if (file.size > most) return complain(`The image is larger than ${(most / 1e6).toFixed(0)} MB. Shrink it first.`);
    complain("");
    show(file, file.name || "pasted image", "");
  }

  function show(blob, name, example) {
    const before = store.get().image;
    if (before) URL.revokeObjectURL(before.url);
    store.set({ image: { blob, name, example, url: URL.createObjectURL(blob) }, dropped: [] });
  }

  function strip(examples) {
    if (!examples.length) return "";
    const buttons = examples.map((example) => {
      const thumbnail = h("img", { alt: "", width: 48, height: 48, loading: "lazy" });
      getBlob(`/v1/examples/${example.id}`).then((blob) => { thumbnail.src = URL.createObjectURL(blob); });
      return h("button", {
        type: "button", class: "example", title: example.name, "aria-label": `Drawing: ${example.name}`,
        "data-example": example.id, onclick: () => takeExample(example),
      }, thumbnail);
    });
    return h("div", {}, h("p", { class: "hint" }, "Or try a drawing (OpenMoji, CC BY-SA 4.0):"),
      h("div", { class: "strip", role: "group", "aria-label": "Example drawings" }, ...buttons));
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
    take([...event.clipboardData.files].find((file) => file.type.startsWith("image/")));
  });

  store.on(["image"], ({ image }) => {
    preview.replaceChildren(h("img", { src: image.url, alt: `The image: ${image.name}` }));
    zone.classList.add("filled");
    for (const button of root.querySelectorAll(".example")) {
      button.setAttribute("aria-pressed", button.dataset.example === image.example);
    }
  });
  return { takeExample };
}
