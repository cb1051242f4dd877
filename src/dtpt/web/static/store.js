/** What the page knows, and who wants to hear of changes. */

/**
 * @param {Object<string, any>} initial
 * @returns {{get: () => Object<string, any>, set: (change: Object<string, any>) => void,
 *   on: (names: string[], call: (state: Object<string, any>) => void) => void}}
 */
export function makeStore(initial) {
  let state = { ...initial };
  const listeners = [];
  return {
    get: () => state,
    set(change) {
      const changed = Object.keys(change).filter((name) => state[name] !== change[name]);
      if (!changed.length) return;
      state = { ...state, ...change };
      for (const { names, call } of listeners) if (names.some((n) => changed.includes(n))) call(state);
    },
    on(names, call) {
      listeners.push({ names, call });
    },
  };
}

/** Settings whose change makes a new question. */
export const ASKED = ["picture", "classes", "methods", "template", "views", "seed", "augmix", "dropped"];

export const TEMPLATE = "a photo of a {}.";

/** @returns what the settings are before anybody touches them */
export function defaults() {
  return {
    picture: null, // {blob, url, name, example}
    classes: [],
    list: "", // name of the class list that `classes` is, if it is one
    methods: [], // {name, lambda}
    template: TEMPLATE,
    views: 64,
    seed: 0,
    augmix: true,
    dropped: [],
    chosen: "", // name of the method whose details are shown
    answer: null,
  };
}

/**
 * Write the settings into the fragment of the address, which is never sent anywhere.
 * The picture is not part of it, except for the name of one of the server's own drawings.
 */
export function toAddress(state) {
  const words = new URLSearchParams();
  if (state.list) words.set("list", state.list);
  else for (const name of state.classes) words.append("class", name);
  for (const { name, lambda } of state.methods) words.append("method", lambda ? `${name}@${lambda}` : name);
  if (state.template !== TEMPLATE) words.set("template", state.template);
  if (state.views !== 64) words.set("views", state.views);
  if (state.seed !== 0) words.set("seed", state.seed);
  if (!state.augmix) words.set("augmix", "no");
  if (state.picture?.example) words.set("drawing", state.picture.example);
  history.replaceState(null, "", `#${words}`);
}

/** Read the settings that an address carries; what is missing or odd is left out. */
export function fromAddress(fragment) {
  const words = new URLSearchParams(fragment.replace(/^#/, ""));
  const found = {};
  if (words.has("list")) found.list = words.get("list");
  if (words.has("class")) found.classes = words.getAll("class");
  if (words.has("method")) found.methods = words.getAll("method").map(readMethod);
  if (words.has("template")) found.template = words.get("template");
  for (const name of ["views", "seed"]) {
    const number = Number.parseInt(words.get(name) ?? "", 10);
    if (Number.isSafeInteger(number) && number >= 0) found[name] = number;
  }
  if (words.get("augmix") === "no") found.augmix = false;
  if (words.has("drawing")) found.drawing = words.get("drawing");
  return found;
}

/** @param {string} text such as "d-tpt@100000" */
export function readMethod(text) {
  const [name, written] = text.split("@");
  const lambda = Number.parseFloat(written);
  return { name, lambda: Number.isFinite(lambda) && lambda > 0 ? lambda : null };
}

/** The plain name of a method as an answer has it: "d-tpt@100000" is d-tpt. */
export const nameOf = (text) => text.split("@")[0];

/** The answer whose details are shown: the chosen method's, or else the last. */
export const shownAnswer = ({ answer, chosen }) => answer.answers.find((one) => nameOf(one.method) === chosen) ?? answer.answers.at(-1);

/** How a method of the store is written for the server. */
export const written = ({ name, lambda }) => (lambda === null ? name : `${name}@${lambda}`);
