/** One question at a time: sends it, shows its progress, can be cancelled. */

import { predict } from "./api.js";
import { summarise } from "./chrome.js";
import { byId, h } from "./dom.js";
import { ASKED, nameOf, toAddress, written } from "./store.js";

const SHOW = ["views", "words", "evidence", "commands"];
const STAGES = {
  views: (done, total) => `${done} of ${total} views made`,
  features: (done, total) => `${done} of ${total} views encoded`,
  methods: (done, total) => `${done} of ${total} methods answered`,
};
const PATIENCE = 250; // milliseconds before progress is shown

/** @param {ReturnType<import("./store.js").makeStore>} store */
export function mountAsking(store) {
  let running = null;
  let scheduled = false;
  const known = new Map(); // what the server keeps: picture and views -> its id

  store.on(ASKED, () => {
    toAddress(store.get());
    if (scheduled) return;
    scheduled = true;
    queueMicrotask(() => {
      scheduled = false;
      ask();
    });
  });

  async function ask() {
    running?.abort();
    const state = store.get();
    if (!state.picture || state.classes.length < 2 || !state.methods.length) return waiting(state);
    const own = new AbortController();
    running = own;
    const bar = progress(() => own.abort("cancelled"));
    byId("results").setAttribute("aria-busy", "true");
    try {
      const answer = await question(state, own.signal, bar.put);
      if (running === own) done(state, answer);
    } catch (error) {
      if (running === own) failed(error, own.signal.reason);
    } finally {
      bar.end();
      if (running === own) byId("results").setAttribute("aria-busy", "false");
    }
  }

  /** Name the picture if the server should still have it, send it otherwise. */
  async function question(state, signal, put) {
    const settings = {
      classes: state.classes, methods: state.methods.map(written), template: state.template,
      views: state.views, seed: state.seed, augmix: state.augmix, dropped: state.dropped, show: SHOW,
    };
    const key = `${state.picture.url} ${state.views} ${state.seed} ${state.augmix}`;
    const how = { signal, progress: put };
    if (known.has(key)) {
      try {
        return await predict(null, { ...settings, picture_id: known.get(key) }, how);
      } catch (error) {
        if (error.code !== "picture_unknown") throw error;
      }
    }
    const answer = await predict(state.picture.blob, settings, how);
    known.set(key, answer.picture.id);
    return answer;
  }

  function done(state, answer) {
    complain(null);
    const names = answer.answers.map((one) => nameOf(one.method));
    const chosen = names.includes(state.chosen) ? state.chosen : names.at(-1);
    store.set({ answer, chosen });
    const said = answer.answers.map((one) => `${one.title}: ${one.label}, ${Math.round(100 * one.confidence)} percent`);
    byId("announcement").textContent = said.join("; ");
  }

  function failed(error, reason) {
    if (reason === "cancelled") return complain({ message: "Cancelled.", remedy: "Change anything to ask again." });
    if (error.name === "AbortError") return null;
    return complain({ message: error.message, remedy: error.remedy ?? "" });
  }

  function waiting(state) {
    store.set({ answer: null });
    const missing = [
      state.picture ? "" : "a picture", state.classes.length < 2 ? "at least two classes" : "",
      state.methods.length ? "" : "a method",
    ].filter(Boolean);
    complain({ message: `Still missing: ${missing.join(", ")}.`, remedy: "", calm: true });
  }
  return { ask };
}

function complain(problem) {
  const root = byId("problem");
  if (!problem) return root.replaceChildren();
  const kind = problem.calm ? "note" : "note bad";
  summarise(problem.message);
  return root.replaceChildren(h("p", { class: kind, role: problem.calm ? "status" : "alert" },
    h("strong", {}, problem.message), " ", problem.remedy));
}

/** A bar with words and a button; shown only when an answer takes a while. */
function progress(cancel) {
  const root = byId("progress");
  const text = h("p", {}, "Asking …");
  const bar = h("progress", { max: 1, "aria-label": "Progress of the answer" });
  const box = h("div", { class: "progress" }, text, bar,
    h("button", { type: "button", id: "cancel", onclick: cancel }, "Cancel"));
  const timer = setTimeout(() => root.replaceChildren(box), PATIENCE);
  return {
    put({ stage, done, total }) {
      text.textContent = STAGES[stage](done, total);
      bar.value = done / total;
    },
    end() {
      clearTimeout(timer);
      box.remove();
    },
  };
}
