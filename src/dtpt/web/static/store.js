/** The state of the page, and its listeners. */

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
      for (const { names, call } of listeners) if (names.some((name) => changed.includes(name))) call(state);
    },
    on(names, call) {
      listeners.push({ names, call });
    },
  };
}

/** Settings whose change needs a new prediction. */
export const INPUTS = ["image", "classes", "methods", "template", "views", "seed", "augmix", "dropped"];

export const TEMPLATE = "a photo of a {}.";

/** @returns the state at the start */
export function defaults() {
  return {
    image: null, // {blob, url, name, example}
    classes: [],
    list: "", // name of the class list that `classes` is, if it is one
    methods: [], // {name, lambda}
    template: TEMPLATE,
    views: 64,
    seed: 0,
    augmix: true,
    dropped: [],
    selected: "", // name of the method whose details are shown
    result: null, // the server's response
  };
}

/**
 * Write the settings into the fragment of the address, which browsers do not send.
 * The image is not part of it, except for the id of an example drawing.
 */
export function toAddress(state) {
  const fields = new URLSearchParams();
  if (state.list) fields.set("list", state.list);
  else for (const name of state.classes) fields.append("class", name);
  for (const { name, lambda } of state.methods) fields.append("method", lambda ? `${name}@${lambda}` : name);
  if (state.template !== TEMPLATE) fields.set("template", state.template);
  if (state.views !== 64) fields.set("views", state.views);
  if (state.seed !== 0) fields.set("seed", state.seed);
  if (!state.augmix) fields.set("augmix", "no");
  if (state.image?.example) fields.set("drawing", state.image.example);
  history.replaceState(null, "", `#${fields}`);
}

/** Read the settings of an address; missing and invalid ones are left out. */
export function fromAddress(fragment) {
  const fields = new URLSearchParams(fragment.replace(/^#/, ""));
  const settings = {};
  for (const name of ["list", "template", "drawing"]) if (fields.has(name)) settings[name] = fields.get(name);
  if (fields.has("class")) settings.classes = fields.getAll("class");
  if (fields.has("method")) settings.methods = fields.getAll("method").map(readMethod);
  for (const name of ["views", "seed"]) {
    const number = Number.parseInt(fields.get(name) ?? "", 10);
    if (Number.isSafeInteger(number) && number >= 0) settings[name] = number;
  }
  if (fields.get("augmix") === "no") settings.augmix = false;
  return settings;
}

/** @param {string} text such as "d-tpt@1e5" */
function readMethod(text) {
  const [name, number] = text.split("@");
  const lambda = Number.parseFloat(number);
  return { name, lambda: Number.isFinite(lambda) && lambda > 0 ? lambda : null };
}

/** The name of a method without its λ: "d-tpt@1e5" is d-tpt. */
export const nameOf = (label) => label.split("@")[0];

/** The prediction whose details are shown: the selected method's, or else the last. */
export const shownPrediction = ({ result, selected }) => result.predictions.find(({ method }) => nameOf(method) === selected) ?? result.predictions.at(-1);

/** The label of a method for the server. */
export const labelOf = ({ name, lambda }) => (lambda === null ? name : `${name}@${lambda}`);
