/** Starts the page: asks the server what it has, mounts the parts, takes over the address. */

import { mountAdvanced } from "./advanced.js";
import { mountAnswers } from "./answers.js";
import { getJson, Refused } from "./api.js";
import { mountAsking } from "./asking.js";
import { mountJumps, mountTabs, mountTheme } from "./chrome.js";
import { mountClasses } from "./classes.js";
import { mountCommands } from "./commands.js";
import { byId, h } from "./dom.js";
import { mountEvidence } from "./evidence.js";
import { mountMethods } from "./methods.js";
import { mountPicture } from "./picture.js";
import { mountScore } from "./score.js";
import { defaults, fromAddress, makeStore } from "./store.js";
import { mountViews } from "./views.js";
import { mountWords } from "./words.js";

const FIRST = ["zero-shot", "tpt", "c-tpt", "d-tpt"]; // what answers before anybody chooses

async function start() {
  mountJumps();
  mountTabs();
  mountTheme();
  byId("ask").addEventListener("submit", (event) => event.preventDefault());
  const about = await getJson("/v1/models");
  const [methods, lists, examples] = await Promise.all(["methods", "classes", "examples"].map((name) => getJson(`/v1/${name}`)));
  const server = { ...about, model: about.models[0], methods, lists, examples };
  describe(server.model);
  const store = makeStore(defaults());
  mountAnswers(store, server);
  mountEvidence(store, server);
  mountViews(store);
  mountWords(store);
  mountCommands(store);
  mountMethods(store, server);
  mountAdvanced(store, server);
  server.takeList = mountClasses(store, server).takeList;
  const picture = mountPicture(store, server);
  mountAsking(store);
  mountScore(server);
  await restore(store, server, picture);
}

function describe(model) {
  const millions = (model.parameters / 1e6).toFixed(model.parameters < 1e7 ? 1 : 0);
  const note = model.embedded
    ? " It is small, comes with the package and knows drawings of emoji; it has never seen a photograph."
    : "";
  byId("model").replaceChildren("This server runs ", h("strong", {}, model.name), ` (${millions} million weights, on ${model.device}).`, note);
}

/** Take over what the address says; fill the rest so that there is something to see at once. */
async function restore(store, server, picture) {
  const { list, drawing, ...given } = fromAddress(location.hash);
  const known = new Map(server.methods.map((method) => [method.name, method]));
  const wanted = given.methods ?? FIRST.map((name) => ({ name, lambda: null }));
  const methods = wanted.filter(({ name }) => known.has(name))
    .map(({ name, lambda }) => ({ name, lambda: known.get(name).sweep.length ? lambda ?? known.get(name).lambdas["fine-grained"] : null }));
  const views = Math.min(given.views || 64, server.limits.views);
  store.set({ ...given, views, methods, own: Boolean(given.classes?.length) });
  const example = server.examples.find((one) => one.id === drawing) ?? server.examples[0];
  if (list && server.lists.some((one) => one.name === list)) {
    await server.takeList(list);
    store.set({ own: true });
  }
  if (example && (server.model.embedded || drawing)) await picture.takeExample(example);
}

start().catch((error) => {
  const words = error instanceof Refused ? `${error.message} ${error.remedy}` : "The page could not start. Reload it.";
  byId("problem").replaceChildren(h("p", { class: "note bad", role: "alert" }, words));
  if (!(error instanceof Refused)) throw error;
});
