// @ts-check
// The start of a page: a document's own numbers, or a model that answers. `render` is what a notebook's widget calls.

import { make } from "./elements.js";
import { live } from "./live.js";
import { FORMAT, showAll } from "./page.js";

/** The numbers that a document keeps: JSON, compressed by gzip, in base64. @param {string} text */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(JSON.parse(text)), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** The answers of the server that a page came from, line by line.
 * @type {import("./live.js").Ask}
 */
async function askServer(question, signal, tell) {
  const key = new URLSearchParams(location.search).get("key") ?? "";
  const response = await fetch("ask", { method: "POST", body: JSON.stringify(question), headers: { "content-type": "application/json", "duat-key": key }, signal });
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (let part = await reader?.read(); part && !part.done; part = await reader?.read()) {
    text += part.value;
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) {
      const { progress, ...answer } = JSON.parse(line);
      if (progress === undefined) return answer;
      tell(progress);
    }
  }
  return { problem: "the server stopped before it answered: is it still running?" };
}

/** The answers of a notebook's kernel.
 * @param {any} model
 * @returns {import("./live.js").Ask}
 */
const askKernel = (model) => (question, signal, tell) => new Promise((done, fail) => {
  const number = `${Date.now()} ${Math.random()}`;
  /** @param {any} message */
  const heard = ({ number: of, progress, ...answer }) => {
    if (of !== number) return;
    if (progress !== undefined) return tell(progress);
    model.off("msg:custom", heard);
    done(answer);
  };
  signal.addEventListener("abort", () => { model.off("msg:custom", heard); fail(signal.reason); });
  model.on("msg:custom", heard);
  model.send({ number, question });
});

/** Fill an element of a notebook; its own style is kept apart from the notebook's.
 * @param {{model: any, el: HTMLElement}} given
 */
export function render({ model, el }) {
  const root = el.attachShadow({ mode: "open" });
  const page = make("main");
  root.append(make("style", {}, model.get("style")), page);
  live({ ask: askKernel(model), about: model.get("about"), el: page, owned: false });
}
export default { render };

async function start() {
  const [page, kept] = ["page", "numbers"].map((id) => document.getElementById(id));
  if (!page || !kept) return;
  try {
    const content = await unpacked(kept.textContent ?? "");
    if (content.format > FORMAT) page.replaceChildren(make("p", {}, `These numbers are of format ${content.format}, and this page reads ${FORMAT}: write it again with one version of duat-jax.`));
    else if (content.views) showAll(content.views, content.provenance, page);
    else live({ ask: askServer, about: content, el: page, owned: true });
  } catch (error) {
    page.replaceChildren(make("p", {}, `The numbers of this page can't be read (${error}): the file is damaged or cut; write it again.`));
  }
}
start();
