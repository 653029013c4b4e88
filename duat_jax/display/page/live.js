// @ts-check
// A live page: texts and targets are typed, parts are switched off, and a model answers.

import { button, choice, make, quoted, seven } from "./elements.js";
import { saidTable, savePage, show, tablesOf, verdict } from "./page.js";

/** @typedef {import("./page.js").View} View */
/** A question to the model: its kind, and what it needs. @typedef {{ask: string, [name: string]: any}} Question */
/** @typedef {(question: Question, signal: AbortSignal, tell: (progress: string) => void) => Promise<any>} Ask */
/** What a page says of its model.
 * @typedef {{model: string, kind: string, text: string, longest: number, layers: number, edits: [string, string][]}} About */
/** What was asked. @typedef {{text: string, target: string, contrast: string, against: string, other: string, alignment: string, changes: string[]}} Asked */
/** What was asked, and the answers by their kind, or why there is none.
 * @typedef {{asked: Asked, views: Map<string, View>, state: URLSearchParams, problem: string}} Entry */

const KINDS = { explain: "explanation", contrast: "contrast", intervene: "edits", graph: "graph" };
/** @typedef {keyof typeof KINDS} Kind */

/** A field of a form with its label.
 * @param {string} label
 * @param {HTMLElement} input
 */
const field = (label, input) => make("label", { class: input instanceof HTMLTextAreaElement ? "field wide" : "field" }, make("span", {}, label), input);

/** Fill an element with a page whose questions are answered.
 * @param {{ask: Ask, about: About, el: HTMLElement, owned: boolean}} given
 */
export function live({ ask, about, el, owned }) {
  /** What was asked before, the last one first. @type {Entry[]} */
  const entries = [];
  /** @type {Entry | null} */
  let entry = null;
  /** Stops what is asked. */
  let stopper = new AbortController();
  let busy = 0;
  /** The neuron that is open. @type {{neuron: import("./graph.js").Neuron | null}} */
  const opened = { neuron: null };

  const kept = new URLSearchParams(owned ? location.hash.slice(1) : "");
  /** @type {Kind} */
  let shownKind = /** @type {Kind[]} */ (Object.keys(KINDS)).find((kind) => kind === kept.get("view")) ?? "explain";
  /** @param {string} name @param {string} [otherwise] @param {Record<string, string>} [attributes] */
  const input = (name, otherwise = "", attributes = {}) => make("input", { type: "text", name, value: kept.get(name) ?? otherwise, autocomplete: "off", spellcheck: "false", ...attributes });
  const [text, other] = ["text", "other"].map((name) => make("textarea", { name, rows: "2", spellcheck: "false" }));
  [text.value, other.value] = [kept.get("text") ?? about.text, kept.get("other") ?? ""];
  const [classes, hidden] = [about.kind === "classes", about.kind === "hidden"];
  const word = classes ? "class" : "token";
  const [target, contrast, against, alignment] = ["target", "contrast", "against", "alignment"].map((name) => input(name));
  /** @type {string[]} */
  let changes = kept.getAll("change");

  const status = make("p", { class: "status", role: "status" });
  const stop = button("Stop", () => stopper.abort(), { disabled: "" });
  const [chips, effects, tabs, body, past] = Array.from({ length: 5 }, () => make("div"));

  /** @returns {Asked} */
  const asked = () => ({ text: text.value, target: target.value, contrast: contrast.value, against: against.value, other: other.value, alignment: alignment.value, changes: [...changes] });

  /** Show what went wrong. @param {string} problem */
  const refuse = (problem) => { status.className = "status problem"; status.textContent = problem; };

  /** Ask one question; nothing where there is a problem, which is shown.
   * @param {Question} question
   */
  async function answer(question) {
    const { signal } = stopper;
    const began = performance.now();
    let doing = "waiting";
    const quiet = question.ask === "page";
    const tick = () => { if (!signal.aborted && !quiet) status.textContent = `${question.ask}: ${doing}, ${((performance.now() - began) / 1000).toFixed(0)} s`; };
    const timer = setInterval(tick, 1000);
    busy += 1;
    stop.disabled = false;
    tick();
    try {
      const { problem, ...found } = await ask(question, signal, (progress) => { doing = progress; tick(); });
      if (problem !== undefined) { refuse(problem); return null; }
      status.className = "status";
      if (!quiet) status.textContent = `${question.ask}: answered in ${((performance.now() - began) / 1000).toFixed(1)} s`;
      return found;
    } catch (error) {
      refuse(signal.aborted ? "stopped" : `there was no answer (${error}): is the server still running?`);
      return null;
    } finally {
      clearInterval(timer);
      busy -= 1;
      stop.disabled = busy === 0;
    }
  }

  /** The fields of a question of a kind. @param {Kind} kind @param {Asked} of @returns {Question} */
  const questionOf = (kind, of) => ({
    ask: kind, text: of.text, target: of.target || null, contrast: of.contrast || null, against: of.against || null,
    // What the model says was found once.
    output: of.target || kind === "explain" ? null : entry?.views.get("explain")?.output ?? null,
    ...(kind === "contrast" ? { other: of.other, alignment: of.alignment || null } : {}),
    ...(kind === "intervene" ? { changes: of.changes, other: of.other || null } : {}),
  });

  /** Get the answer of a kind for an entry, once. @param {Entry} of @param {Kind} kind */
  async function get(of, kind) {
    const question = questionOf(kind, of.asked);
    const found = of.views.get(kind) ? null : await answer(question);
    if (found) of.views.set(kind, found.view);
    of.problem = of.views.has(kind) ? "" : status.textContent ?? "";
    if (of === entry) draw();
    return of.views.has(kind);
  }

  /** Which kinds of answers there are to what is asked. @param {Asked} of @returns {Kind[]} */
  const kindsOf = (of) => ["explain", ...(of.other ? /** @type {const} */ (["contrast"]) : []), ...(of.changes.length ? /** @type {const} */ (["intervene"]) : []), "graph"];

  /** Ask everything anew; whether all was answered. @returns {Promise<boolean>} */
  async function start() {
    stopper.abort();
    stopper = new AbortController();
    const now = asked();
    const same = entries.find((each) => JSON.stringify({ ...each.asked, changes: [] }) === JSON.stringify({ ...now, changes: [] }));
    entry = { asked: now, views: new Map(), state: new URLSearchParams(entry ? entry.state : kept), problem: "" };
    // Other edits of the same text leave everything else as it is.
    if (same) for (const kind of /** @type {const} */ (["explain", "contrast", "graph"])) { const view = same.views.get(kind); if (view) entry.views.set(kind, view); }
    if (!kindsOf(now).includes(shownKind)) shownKind = "explain";
    const mine = entry;
    draw();
    address();
    for (const kind of kindsOf(now)) {
      if (kind === "graph" && shownKind !== "graph") continue;
      if (!await get(mine, kind) || mine !== entry) return false;
    }
    if (!entries.includes(mine)) entries.unshift(mine);
    entries.splice(20);
    drawPast();
    return true;
  }

  const address = () => {
    if (!owned) return;
    const { changes: all, ...fields } = asked();
    const state = new URLSearchParams(Object.entries(fields).filter(([, value]) => value));
    all.forEach((change) => state.append("change", change));
    entry?.state.forEach((value, name) => { if (!(name in fields) && name !== "change") state.set(name, value); });
    state.set("view", shownKind);
    history.replaceState(null, "", `${location.pathname}${location.search}#${state}`);
  };

  /** @type {import("./page.js").Acts} */
  const acts = {
    change: async (written) => {
      const made = changes.includes(written);
      changes = made ? changes.filter((each) => each !== written) : [...changes, written];
      const answered = start();
      const { signal } = stopper;
      if (await answered || made || signal.aborted) return;
      // What the model can't do is taken out again.
      const problem = status.textContent ?? "";
      changes = changes.filter((each) => each !== written);
      await start();
      refuse(problem);
    },
    changed: (written) => changes.includes(written),
    neuron: async (layer, token, unit) => (entry && await answer({ ...questionOf("explain", entry.asked), output: entry.views.get("explain")?.output ?? null, ask: "neuron", layer, token, unit }))?.neuron ?? null,
    score: async (layer, head, query, key) => (entry && await answer({ ask: "score", text: entry.asked.text, layer, head, query, key }))?.score ?? null,
    measure: async (several) => {
      const found = entry && await answer({ ...questionOf("intervene", { ...entry.asked, changes: several }) });
      return found ? found.view.value : null;
    },
  };

  async function save() {
    const shell = entry && await answer({ ask: "page" });
    if (shell && entry) savePage([...entry.views.values()], new DOMParser().parseFromString(shell.page, "text/html").documentElement);
  }

  function draw() {
    if (!entry) return;
    const { views, state, asked: of } = entry;
    const kinds = kindsOf(of);
    tabs.replaceChildren(choice("Show", "kind", kinds.map((kind) => KINDS[kind]), kinds.indexOf(shownKind), (index) => {
      shownKind = kinds[index];
      draw();
      address();
      if (entry && !views.has(shownKind)) get(entry, shownKind);
    }));
    const view = views.get(shownKind);
    if (view) {
      const keep = (/** @type {Record<string, number>} */ chosen) => { Object.entries(chosen).forEach(([name, value]) => state.set(name, String(value))); address(); };
      show(view, body, { views: [...views.values()], given: state, keep, acts, opened, said: outcome(), files: () => [button("Save as an offline page", save)] });
    } else body.replaceChildren(make("p", { class: "faint" }, entry.problem ? `There is no ${KINDS[shownKind]}: ${entry.problem}` : "It is being computed."));
    drawChanges();
  }

  /** What the edits did, in one line. */
  function outcome() {
    const view = changes.length ? entry?.views.get("intervene") : null;
    if (!view) return "";
    const [after, before] = view.said.map(({ value }) => seven(value));
    const [effects] = view.tables;
    const predicted = Number(effects.total?.[1]);
    return `${changes.length === 1 ? effects.rows[0][0] : `${changes.length} edits`}: ${before} → ${after}; difference ${seven(view.value)}, predicted ${seven(predicted)}`;
  }

  function drawChanges() {
    const list = make("ul", { class: "chips" }, ...changes.map((change, index) => make("li", {}, make("code", {}, change), " ",
      button("×", () => { changes = changes.filter((_, place) => place !== index); start(); }, { "aria-label": `take back ${change}` }))));
    chips.replaceChildren(...(changes.length ? [list] : [make("p", { class: "faint" }, "Nothing is edited. Open a cell, a neuron or an edge to switch it off, or write an edit.")]));
    const view = entry?.views.get("intervene");
    effects.replaceChildren(...(view && changes.length ? [saidTable(view), ...tablesOf(view).slice(1, 2), verdict(view)] : []));
  }

  const drawPast = () => past.replaceChildren(make("details", {}, make("summary", {}, `History: ${entries.length}`), make("ol", {}, ...entries.map((each) => {
    const view = each.views.get("intervene") ?? each.views.get("explain");
    const short = each.asked.text.length > 40 ? `… ${each.asked.text.slice(-40)}` : each.asked.text;
    const label = `${quoted(short)}${view ? `: ${view.target} = ${seven(view.value)}` : ""}${each.asked.changes.length ? `, with ${each.asked.changes.join("; ")}` : ""}`;
    return make("li", {}, button(label, () => {
      stopper.abort();
      stopper = new AbortController();
      entry = each;
      [text.value, target.value, contrast.value, against.value, other.value, alignment.value] = ["text", "target", "contrast", "against", "other", "alignment"].map((name) => String(/** @type {any} */ (each.asked)[name]));
      changes = [...each.asked.changes];
      if (!each.views.has(shownKind)) shownKind = "explain";
      draw();
      address();
    }));
  }))));

  const form = make("form", { class: "question" },
    field("Text", text), field("Other text, to contrast with or to take values from", other),
    ...(hidden ? [field("Compared with", against)] : [field(`${classes ? "Class" : "Token"} that is explained; what the model says if empty`, target), field(`Minus this ${word}`, contrast)]),
    make("details", {}, make("summary", {}, "The two texts have different numbers of tokens"), field("Which tokens belong together: pairs of indices, in the text and in the other one, such as 0:0,1:2", alignment)),
    make("p", {}, make("button", { type: "submit" }, "Ask"), " ", stop));
  form.addEventListener("submit", (event) => { event.preventDefault(); start(); });
  text.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start(); });

  const written = input("written", "", { placeholder: "head 5:3 set 0" });
  const [layer, strength, towards, away] = [make("input", { type: "number", min: "0", max: String(about.layers), value: String(Math.floor(about.layers / 2)) }), make("input", { type: "number", step: "any", value: "1" }), input("towards"), input("away")];
  /** @param {string} change */
  const add = (change) => { if (change.trim()) acts.change(change.trim()); };
  const examples = make("ul", { class: "faint" }, ...about.edits.map(([example, says]) => make("li", {}, make("code", {}, example), `: ${says}`)));
  const writing = make("form", { class: "question" }, field("An edit", written), make("div", { class: "wide" }, examples), make("p", {}, make("button", { type: "submit" }, "Add the edit")));
  writing.addEventListener("submit", (event) => { event.preventDefault(); add(written.value); });
  const steering = make("form", { class: "question" }, field("After how many layers", layer), field("Strength", strength), field("Towards the text", towards), field("Away from the text", away),
    make("p", {}, make("button", { type: "submit" }, "Add the direction")));
  steering.addEventListener("submit", (event) => { event.preventDefault(); add(`stream ${layer.value} steer ${strength.value} ${JSON.stringify(towards.value)} ${JSON.stringify(away.value)}`); });
  const changing = [make("details", {}, make("summary", {}, "Write an edit"), writing), make("details", {}, make("summary", {}, "Steer along the direction from one text to another"), steering)];

  el.replaceChildren(make("p", { class: "faint" }, `${about.model}; texts of at most ${about.longest} tokens. Everything is computed where this page came from.`),
    form, status, make("section", { class: "changes" }, make("h2", {}, "Edits"), chips, ...changing, effects), tabs, body, past);
  drawChanges();
  if (text.value && (kept.get("text") || !hidden)) start();
}
