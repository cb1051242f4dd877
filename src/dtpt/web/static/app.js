/** Starts the page: reads what the server offers, mounts the parts, restores the address. */

import { getJson, Refused } from "./api.js";
import { mountClasses } from "./classes.js";
import { mountCommands } from "./commands.js";
import { byId, h } from "./dom.js";
import { mountEvidence } from "./evidence.js";
import { mountImage } from "./image.js";
import { mountJumps, mountTabs, mountTheme } from "./layout.js";
import { mountMethods } from "./methods.js";
import { mountPredictions } from "./predictions.js";
import { mountQuery } from "./query.js";
import { mountScore } from "./score.js";
import { mountSettings } from "./settings.js";
import { defaults, fromAddress, makeStore } from "./store.js";
import { mountViews } from "./views.js";
import { mountWords } from "./words.js";

const FIRST = ["zero-shot", "mean-views", "tpt", "d-tpt"]; // selected at the start

async function start() {
  mountJumps();
  mountTabs();
  mountTheme();
  byId("inputs").addEventListener("submit", (event) => event.preventDefault());
  const info = await getJson("/v1/models");
  const [methods, lists, examples] = await Promise.all(["methods", "classes", "examples"].map((name) => getJson(`/v1/${name}`)));
  const server = { ...info, methods, lists, examples };
  describe(server);
  const store = makeStore(defaults());
  mountPredictions(store, server);
  mountEvidence(store, server);
  mountViews(store);
  mountWords(store);
  mountCommands(store);
  mountMethods(store, server);
  mountSettings(store, server);
  server.takeList = mountClasses(store, server).takeList;
  const image = mountImage(store, server);
  mountQuery(store);
  mountScore(server);
  await restore(store, server, image);
}

function describe({ model, parameters, device, embedded }) {
  const millions = (parameters / 1e6).toFixed(parameters < 1e7 ? 1 : 0);
  const note = embedded
    ? " This small model comes with the package. It was trained on drawings of emoji, not on photographs."
    : "";
  byId("model").replaceChildren("Model: ", h("strong", {}, model), ` (${millions} million parameters, on ${device}).`, note);
}

/** Take the settings from the address, and defaults for the rest, so that there is a result at once. */
async function restore(store, server, image) {
  const { list, drawing, ...given } = fromAddress(location.hash);
  const known = new Map(server.methods.map((method) => [method.name, method]));
  const wanted = given.methods ?? FIRST.map((name) => ({ name, lambda: null }));
  const methods = wanted.filter(({ name }) => known.has(name))
    .map(({ name, lambda }) => ({ name, lambda: known.get(name).sweep.length ? lambda ?? known.get(name).lambdas["fine-grained"] : null }));
  const views = Math.min(given.views || 64, server.limits.views);
  store.set({ ...given, views, methods, own: Boolean(given.classes?.length) });
  const example = server.examples.find(({ id }) => id === drawing) ?? server.examples[0];
  const only = server.lists.length === 1 && !given.classes ? server.lists[0].name : ""; // a model of fixed texts
  const first = server.lists.some(({ name }) => name === list) ? list : only;
  if (first) {
    await server.takeList(first);
    store.set({ own: true });
  }
  if (example && (server.embedded || drawing)) await image.takeExample(example);
}

start().catch((error) => {
  const text = error instanceof Refused ? `${error.message} ${error.remedy}` : "The page could not start. Reload it.";
  byId("problem").replaceChildren(h("p", { class: "note bad", role: "alert" }, text));
  if (!(error instanceof Refused)) throw error;
});
