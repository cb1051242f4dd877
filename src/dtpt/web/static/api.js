/** HTTP: JSON, images, progress lines, and the token if the server requires one. */

import { byId } from "./dom.js";

const HEADERS = { "X-Dtpt-Request": "1" };
const TOKEN = "dtpt-token"; // in the session's storage

/** An error response of the server. */
export class Refused extends Error {
  /** @param {{code: string, message: string, remedy: string}} problem */
  constructor(problem) {
    super(problem.message);
    this.code = problem.code;
    this.remedy = problem.remedy;
  }
}

/** Send a request; show the token dialog until the server accepts the token. */
async function send(path, options = {}) {
  for (;;) {
    const token = sessionStorage.getItem(TOKEN);
    const authorization = token ? { Authorization: `Bearer ${token}` } : {};
    const response = await reach(path, { ...options, headers: { ...options.headers, ...authorization } });
    if (response.ok) return response;
    const problem = await explain(response);
    if (problem.code !== "token_missing") throw new Refused(problem);
    await askToken();
  }
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused({
      code: "unreachable",
      message: "The server does not respond.",
      remedy: "Check that it is running; start it with: dtpt serve",
    });
  }
}

async function explain(response) {
  try {
    return (await response.json()).error;
  } catch {
    return { code: "internal", message: `The server responded with status ${response.status}.`, remedy: "Try again." };
  }
}

function askToken() {
  const dialog = byId("token");
  const input = byId("token-value");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      sessionStorage.setItem(TOKEN, input.value);
      input.value = "";
      resolve();
    }, { once: true });
    dialog.showModal();
  });
}

/** @param {string} path @returns {Promise<any>} */
export const getJson = async (path) => (await send(path)).json();

/** @param {string} path @returns {Promise<Blob>} */
export const getBlob = async (path) => (await send(path)).blob();

/**
 * Predict an image.
 * @param {Blob|null} image null for the one that `settings.image_id` names
 * @param {Object} settings as in the OpenAPI document
 * @param {{signal: AbortSignal, progress: (step: {stage: string, done: number, total: number}) => void}} options
 */
export async function predict(image, settings, { signal, progress }) {
  const text = JSON.stringify(settings);
  const accept = { ...HEADERS, Accept: "application/x-ndjson" };
  let request = { headers: { ...accept, "Content-Type": "application/json" }, body: text };
  if (image) {
    const form = new FormData();
    form.append("image", image, "image");
    form.append("settings", text);
    request = { headers: accept, body: form };
  }
  const response = await send("/v1/predict", { method: "POST", signal, ...request });
  for await (const line of lines(response)) {
    if (line.error) throw new Refused(line.error);
    if (line.result) return line.result;
    progress(line.progress);
  }
  throw new Refused({ code: "internal", message: "The connection was closed early.", remedy: "Try again." });
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

/** Score the text of a CSV file. */
export async function score(text) {
  const headers = { ...HEADERS, "Content-Type": "text/csv" };
  const response = await send("/v1/score", { method: "POST", headers, body: text });
  return response.json();
}
