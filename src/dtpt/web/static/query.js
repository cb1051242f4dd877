/** One request at a time: sends it, shows its progress, can be cancelled. */

import { predict } from "./api.js";
import { byId, h } from "./dom.js";
import { summarise } from "./layout.js";
import { INPUTS, labelOf, nameOf, toAddress } from "./store.js";

const SHOW = ["views", "words", "evidence", "commands"];
const STAGES = { views: "views rendered", features: "views encoded", methods: "methods finished" };
const DELAY = 250; // milliseconds before progress is shown

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountQuery(store) {
  let running = null;
  let scheduled = false;
  const known = new Map(); // what the server keeps: image and views -> its id

  store.on(INPUTS, () => {
    toAddress(store.get());
    if (scheduled) return;
    scheduled = true;
    queueMicrotask(() => {
      scheduled = false;
      run();
    });
  });

  async function run() {
    running?.abort();
    const state = store.get();
    if (!state.image || state.classes.length < 2 || !state.methods.length) return showMissing(state);
    const request = new AbortController();
    running = request;
    const bar = progress(() => request.abort("cancelled"));
    byId("results").setAttribute("aria-busy", "true");
    try {
      const result = await send(state, request.signal, bar.put);
      if (running === request) finish(state, result);
    } catch (error) {
      if (running === request) fail(error, request.signal.reason);
    } finally {
      bar.end();
      if (running === request) byId("results").setAttribute("aria-busy", "false");
    }
  }

  /** Refer to the image by its id if the server should still have it; upload it otherwise. */
  async function send(state, signal, put) {
    const settings = {
      classes: state.classes, methods: state.methods.map(labelOf), template: state.template,
      views: state.views, seed: state.seed, augmix: state.augmix, dropped: state.dropped, show: SHOW,
    };
    const key = `${state.image.url} ${state.views} ${state.seed} ${state.augmix}`;
    const options = { signal, progress: put };
    if (known.has(key)) {
      try {
        return await predict(null, { ...settings, image_id: known.get(key) }, options);
      } catch (error) {
        if (error.code !== "image_unknown") throw error;
      }
    }
    const result = await predict(state.image.blob, settings, options);
    known.set(key, result.image.id);
    return result;
  }

  function finish(state, result) {
    showProblem(null);
    const names = result.predictions.map(({ method }) => nameOf(method));
    store.set({ result, selected: names.includes(state.selected) ? state.selected : names.at(-1) });
    const texts = result.predictions.map(({ title, label, confidence }) => `${title}: ${label}, ${Math.round(100 * confidence)} percent`);
    byId("announcement").textContent = texts.join("; ");
  }

  function fail(error, reason) {
    if (reason === "cancelled") return showProblem({ message: "Cancelled.", remedy: "Change any input to start again." });
    if (error.name === "AbortError") return null;
    return showProblem({ message: error.message, remedy: error.remedy ?? "" });
  }

  function showMissing(state) {
    store.set({ result: null });
    const missing = [
      state.image ? "" : "an image", state.classes.length < 2 ? "at least two classes" : "",
      state.methods.length ? "" : "a method",
    ].filter(Boolean);
    showProblem({ message: `Still missing: ${missing.join(", ")}.`, remedy: "", calm: true });
  }
}

function showProblem(problem) {
  const root = byId("problem");
  if (!problem) return root.replaceChildren();
  summarise(problem.message);
  return root.replaceChildren(h("p", { class: problem.calm ? "note" : "note bad", role: problem.calm ? "status" : "alert" },
    h("strong", {}, problem.message), " ", problem.remedy));
}

/** A progress bar with a button; shown only when a result takes a while. */
function progress(cancel) {
  const root = byId("progress");
  const text = h("p", {}, "Waiting …");
  const bar = h("progress", { max: 1, "aria-label": "Progress" });
  const box = h("div", { class: "progress" }, text, bar,
    h("button", { type: "button", id: "cancel", onclick: cancel }, "Cancel"));
  const timer = setTimeout(() => root.replaceChildren(box), DELAY);
  return {
    put({ stage, done, total }) {
      text.textContent = `${done} of ${total} ${STAGES[stage]}`;
      bar.value = done / total;
    },
    end() {
      clearTimeout(timer);
      box.remove();
    },
  };
}
