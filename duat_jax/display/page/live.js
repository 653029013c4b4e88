// @ts-check
// A live page: texts and targets are typed, parts are switched off, and a model answers.

import { button, choice, make, quoted, seven } from "./elements.js";
import { footer, saidTable, savePage, show, tablesOf, verdict } from "./page.js";

/** @typedef {import("./page.js").View} View */
/** A question to the model: its kind, and what it needs. @typedef {{ask: string, [name: string]: any}} Question */
/** @typedef {(question: Question, signal: AbortSignal, tell: (progress: string) => void) => Promise<any>} Ask */
/** What a page says of its model.
 * @typedef {{model: string, kind: string, text: string, other: string, pairs: boolean, longest: number, layers: number, edits: [string, string][], provenance: [string, string][]}} About */
/** What was asked. @typedef {{text: string, pair: string, target: string, contrast: string, against: string, other: string, alignment: string, changes: string[]}} Asked */
/** What was asked, and the answers by their kind, or why there is none.
 * @typedef {{asked: Asked, views: Map<string, View>, state: URLSearchParams, problem: string}} Entry */

const KINDS = { explain: "explanation", contrast: "contrast", intervene: "edits", graph: "graph" };
/** @typedef {keyof typeof KINDS} Kind */

/** The milliseconds without a key being pressed after which a text that is typed is cut into its tokens. */
const PAUSE = 150;

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
  let shownKind = /** @type {Kind[]} */ (Object.keys(KINDS)).find((kind) => kind === kept.get("view")) ?? (kept.get("other") ? "contrast" : "explain");
  /** @param {string} name @param {string} [otherwise] @param {Record<string, string>} [attributes] */
  const input = (name, otherwise = "", attributes = {}) => make("input", { type: "text", name, value: kept.get(name) ?? otherwise, autocomplete: "off", spellcheck: "false", ...attributes });
  const [text, other] = ["text", "other"].map((name) => make("textarea", { name, rows: "2", spellcheck: "false" }));
  [text.value, other.value] = [kept.get("text") ?? about.text, kept.get("other") ?? ""];
  if (about.other) other.placeholder = about.other;
  const [classes, hidden] = [about.kind === "classes", about.kind === "hidden"];
  const word = classes ? "class" : "token";
  const [pair, target, contrast, against, alignment] = ["pair", "target", "contrast", "against", "alignment"].map((name) => input(name, "", { form: "ask" }));
  /** @type {string[]} */
  let changes = kept.getAll("change");

  const status = make("span", { class: "status", role: "status" });
  const stop = button("Stop", () => stopper.abort(), { disabled: "" });
  const [cut, otherCut, says, otherSays, lengths, chips, effects, tabs, body, past, made] = Array.from({ length: 12 }, () => make("div"));
  const named = make("span", { class: "named" });

  /** @returns {Asked} */
  const asked = () => ({ text: text.value, pair: pair.value, target: target.value, contrast: contrast.value, against: against.value, other: other.value, alignment: alignment.value, changes: [...changes] });

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
    const tick = () => { if (!signal.aborted && !quiet) status.textContent = `${doing}, ${((performance.now() - began) / 1000).toFixed(0)} s`; };
    const timer = setInterval(tick, 1000);
    busy += 1;
    stop.disabled = false;
    status.className = "status busy";
    tick();
    try {
      const { problem, ...found } = await ask(question, signal, (progress) => { doing = progress; tick(); });
      if (problem !== undefined) { refuse(problem); return null; }
      status.className = "status";
      if (!quiet) [status.textContent, status.dataset.answered] = [`answered in ${((performance.now() - began) / 1000).toFixed(1)} s`, `${status.dataset.answered ?? ""} ${question.ask}`];
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

  /** An answer about the text as it is, of which there is one of any kind. */
  const known = () => entry?.views.get("explain") ?? entry?.views.get("contrast");

  /** The fields of a question of a kind. @param {Kind} kind @param {Asked} of @returns {Question} */
  const questionOf = (kind, of) => ({
    ask: kind, text: of.text, pair: of.pair || null, target: of.target || null, contrast: of.contrast || null, against: of.against || null,
    // What the model says was found once.
    output: of.target || kind === "explain" ? null : known()?.output ?? null,
    ...(kind === "contrast" ? { other: of.other, alignment: of.alignment || null } : {}),
    ...(kind === "intervene" ? { changes: of.changes, other: of.other || null } : {}),
  });

  /** Get the answer of a kind for an entry, once. @param {Entry} of @param {Kind} kind */
  async function get(of, kind) {
    if (of.views.has(kind)) return true;
    const found = await answer(questionOf(kind, of.asked));
    if (found) of.views.set(kind, found.view);
    of.problem = found ? "" : status.textContent ?? "";
    if (of === entry) draw();
    return found !== null;
  }

  /** Which kinds of answers there are to what is asked. @param {Asked} of @returns {Kind[]} */
  const kindsOf = (of) => ["explain", ...(of.other ? /** @type {const} */ (["contrast"]) : []), ...(of.changes.length ? /** @type {const} */ (["intervene"]) : []), "graph"];

  /** Ask everything anew; whether all was answered. @returns {Promise<boolean>} */
  async function start() {
    stopper.abort();
    stopper = new AbortController();
    delete status.dataset.answered;
    const [now, otherBefore] = [asked(), entry?.asked.other ?? kept.get("other") ?? ""];
    const same = entries.find((each) => JSON.stringify({ ...each.asked, changes: [] }) === JSON.stringify({ ...now, changes: [] }));
    entry = { asked: now, views: new Map(), state: new URLSearchParams(entry ? entry.state : kept), problem: "" };
    // Other edits of the same text leave everything else as it is.
    if (same) for (const kind of /** @type {const} */ (["explain", "contrast", "graph"])) { const view = same.views.get(kind); if (view) entry.views.set(kind, view); }
    if (now.other && now.other !== otherBefore) shownKind = "contrast";
    if (!kindsOf(now).includes(shownKind)) shownKind = "explain";
    const mine = entry;
    draw();
    address();
    for (const kind of kindsOf(now).sort((a, b) => Number(b === shownKind) - Number(a === shownKind))) {
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
    change: async (written, name) => {
      const made = changes.includes(written);
      changes = made ? changes.filter((each) => each !== written) : [...changes, written];
      const answering = start();
      const { signal } = stopper;
      tellAt(name, "The model is run again …");
      const answered = await answering;
      if (signal.aborted) return;
      const problem = status.textContent ?? "";
      // What the model can't do is taken out again.
      if (!answered && !made) {
        changes = changes.filter((each) => each !== written);
        await start();
        refuse(problem);
      }
      tellAt(name, answered ? outcome() : problem);
    },
    changed: (written) => changes.includes(written),
    neuron: async (layer, token, unit) => (entry && await answer({ ...questionOf("explain", entry.asked), output: known()?.output ?? null, ask: "neuron", layer, token, unit }))?.neuron ?? null,
    score: async (layer, head, query, key) => (entry && await answer({ ask: "score", text: entry.asked.text, layer, head, query, key }))?.score ?? null,
    measure: async (several) => {
      const found = entry && await answer({ ...questionOf("intervene", { ...entry.asked, changes: several }) });
      return found ? found.view.value : null;
    },
  };

  /** How what is shown was made. @returns {[string, string][]} */
  const provenance = () => {
    const of = entry?.asked ?? asked();
    return [...about.provenance, ["text", of.text], .../** @type {[string, string][]} */ ([["other text", of.other], ["decoder", of.pair]]).filter(([, value]) => value), ["date", new Date().toISOString().slice(0, 10)]];
  };

  async function save() {
    const shell = entry && await answer({ ask: "page" });
    if (shell && entry) savePage([...entry.views.values()], provenance(), new DOMParser().parseFromString(shell.page, "text/html").documentElement);
  }

  /** Show what the model says next on one of the texts. @param {HTMLElement} el @param {import("./page.js").Said | undefined} said */
  function drawSays(el, said) {
    const most = known()?.said[0];
    const chosen = { target: target.value || (said === most && most?.predictions[0]?.[0]), contrast: contrast.value };
    const choose = (/** @type {HTMLInputElement} */ field, /** @type {string} */ label) => { field.value = field.value === label ? "" : label; start(); };
    el.replaceChildren(...(said?.predictions.length ? [make("p", { class: "faint" }, `The model says${classes ? "" : " next"}${said === most ? ". Choose one to explain; “vs” asks why not that one." : ""}`),
      make("ul", { class: "next" }, ...said.predictions.map(([label, share]) => nextToken(label, share, chosen, () => choose(target, label), () => choose(contrast, label))))] : []));
  }

  /** Cuts the texts into tokens, of which the last answer counts. */
  let cutter = new AbortController();
  async function cutTexts() {
    cutter.abort();
    cutter = new AbortController();
    const { signal } = cutter;
    const found = await ask({ ask: "tokens", texts: [text.value, other.value] }, signal, () => {}).catch(() => null);
    if (!found?.tokens || signal.aborted) return;
    const [first, second] = /** @type {string[][]} */ (found.tokens);
    cut.replaceChildren(...strip(first, second, about.longest));
    otherCut.replaceChildren(...strip(second, first, about.longest));
    const unequal = second.length > 0 && first.length > 0 && first.length !== second.length;
    lengths.replaceChildren(...(unequal && !alignment.value ? [`${first.length} and ${second.length} tokens: make the texts equally long, or say which tokens belong together. `,
      button("Pair them from both ends", () => { alignment.value = pairs(first, second); lengths.replaceChildren(); start(); })] : []));
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
      show(view, body, { views: [...views.values()], given: state, keep, acts, opened, files: () => [button("Save as an offline page", save)] });
    } else body.replaceChildren(make("p", { class: "faint" }, entry.problem ? `There is no ${KINDS[shownKind]}: ${entry.problem}` : "It is being computed."));
    drawSays(says, known()?.said[0]);
    drawSays(otherSays, views.get("contrast")?.said[1]);
    drawNamed();
    drawChanges();
    made.replaceChildren(footer(provenance()));
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

  /** Say what an edit did where its button was pressed, which keeps the focus, or above all edits if it was written.
   * @param {string} name
   * @param {string} text
   */
  function tellAt(name, text) {
    el.querySelector(".outcome")?.remove();
    const pressed = [...el.querySelectorAll("button")].find((each) => name && each.getAttribute("aria-label") === name);
    const line = make("p", { class: "outcome", id: "outcome" }, text);
    const place = pressed?.closest(".scroll, p");
    if (place) place.after(line);
    else effects.prepend(line);
    pressed?.setAttribute("aria-describedby", line.id);
    pressed?.focus();
    line.scrollIntoView({ block: "nearest" });
  }

  /** Which outputs were chosen, to be taken back. */
  const drawNamed = () => named.replaceChildren(...[/** @type {const} */ (["explained", target]), /** @type {const} */ (["rather than", contrast])].filter(([, field]) => field.value).map(([says, field]) =>
    make("span", {}, make("span", { class: "faint" }, `${says} `), make("bdi", {}, field.value), " ", button("×", () => { field.value = ""; start(); }, { "aria-label": `take back: ${says} ${field.value}` }))));

  function drawChanges() {
    const list = make("ul", { class: "chips" }, ...changes.map((change, index) => make("li", {}, make("code", {}, change), " ",
      button("×", () => { changes = changes.filter((_, place) => place !== index); start(); }, { "aria-label": `take back ${change}` }))));
    chips.replaceChildren(...(changes.length ? [make("h2", {}, "Edits"), list] : []));
    const view = entry?.views.get("intervene");
    const said = view && saidTable(view);
    said?.setAttribute("aria-label", "the number with the edits and without");
    effects.replaceChildren(...(view && said && changes.length && shownKind !== "intervene" ? [said, ...tablesOf(view).slice(1, 2), verdict(view)] : []));
  }

  const drawPast = () => past.replaceChildren(make("details", {}, make("summary", {}, `History: ${entries.length}`), make("ol", {}, ...entries.map((each) => {
    const view = each.views.get("intervene") ?? each.views.get("explain");
    const short = each.asked.text.length > 40 ? `… ${each.asked.text.slice(-40)}` : each.asked.text;
    const label = `${quoted(short)}${view ? `: ${view.target} = ${seven(view.value)}` : ""}${each.asked.changes.length ? `, with ${each.asked.changes.join("; ")}` : ""}`;
    return make("li", {}, button(label, () => {
      stopper.abort();
      stopper = new AbortController();
      entry = each;
      [text.value, pair.value, target.value, contrast.value, against.value, other.value, alignment.value] = ["text", "pair", "target", "contrast", "against", "other", "alignment"].map((name) => String(/** @type {any} */ (each.asked)[name]));
      changes = [...each.asked.changes];
      if (!each.views.has(shownKind)) shownKind = "explain";
      draw();
      address();
      cutTexts();
    }));
  }))));

  const written = input("written", "", { placeholder: "head 5:3 set 0" });
  const [layer, strength, towards, away] = [make("input", { type: "number", min: "0", max: String(about.layers), value: String(Math.floor(about.layers / 2)) }), make("input", { type: "number", step: "any", value: "1" }), input("towards"), input("away")];
  /** @param {string} change */
  const add = (change) => { if (change.trim()) acts.change(change.trim(), ""); };
  const examples = make("ul", { class: "faint" }, ...about.edits.map(([example, says]) => make("li", {}, make("code", {}, example), `: ${says}`)));
  const writing = make("form", { class: "question" }, field("An edit", written), make("div", { class: "wide" }, examples), make("p", {}, make("button", { type: "submit" }, "Add the edit")));
  writing.addEventListener("submit", (event) => { event.preventDefault(); add(written.value); });
  const steering = make("form", { class: "question" }, field("After how many layers", layer), field("Strength", strength), field("Towards the text", towards), field("Away from the text", away),
    make("p", {}, make("button", { type: "submit" }, "Add the direction")));
  steering.addEventListener("submit", (event) => { event.preventDefault(); add(`stream ${layer.value} steer ${strength.value} ${JSON.stringify(towards.value)} ${JSON.stringify(away.value)}`); });
  const changing = [make("details", {}, make("summary", {}, "Write an edit"), writing), make("details", {}, make("summary", {}, "Steer along the direction from one text to another"), steering)];

  const example = about.other ? [button("Try an example", () => { [text.value, other.value] = [about.text, about.other]; cutTexts(); start(); }, { class: "example-text" })] : [];
  const form = make("form", { class: "ask", id: "ask" },
    make("div", {}, field("Text", text), cut, says), make("div", {}, field("Other text: what makes the difference?", other), ...example, otherCut, otherSays),
    lengths, ...(about.pairs ? [field("What the decoder said", pair)] : []), ...(hidden ? [field("Compared with", against)] : []), make("p", { class: "go" }, make("button", { type: "submit" }, "Ask"), stop, named, status));
  const more = make("details", {}, make("summary", {}, "More: name a token, write an edit, steer"), make("div", { class: "question" },
    ...(hidden ? [] : [field(`${classes ? "Class" : "Token"} that is explained; what the model says if empty`, target), field(`Minus this ${word}`, contrast)]),
    field("Tokens that belong together, in the text and in the other one, such as 0:0,1:2", alignment)), ...changing);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (other.value && lengths.hasChildNodes()) refuse("the texts have different numbers of tokens: pair them, as stands above, or make them equally long");
    else start();
  });
  let pause = 0;
  for (const each of [text, other]) {
    each.addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) start(); });
    each.addEventListener("input", () => {
      clearTimeout(pause);
      pause = setTimeout(cutTexts, PAUSE);
      // What was said next is of the text that was asked about.
      const changed = [[text.value, entry?.asked.text, says], [other.value, entry?.asked.other, otherSays]].filter(([now, before]) => now !== before);
      changed.forEach(([, , of]) => /** @type {HTMLElement} */ (of).replaceChildren());
      if (entry && changed.length) status.textContent = "What stands below is of the texts before: press Ask.";
    });
  }
  [cut.className, otherCut.className, lengths.className, tabs.className] = ["cut", "cut", "lengths", "tabs"];

  el.classList.add("live");
  el.replaceChildren(make("p", { class: "faint" }, about.model),
    form, more, make("section", { class: "changes" }, chips, effects), tabs, body, past, made);
  drawChanges();
  cutTexts();
  if (text.value && (kept.get("text") || !hidden)) start();
}

/** A token that the model says next, with its probability: to be explained, or to be what another is explained rather than.
 * @param {string} label
 * @param {number} share
 * @param {{target: string | false | undefined, contrast: string}} chosen
 * @param {() => void} explain
 * @param {() => void} subtract
 */
function nextToken(label, share, chosen, explain, subtract) {
  const percent = `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
  const named = button("", explain, { "aria-pressed": String(chosen.target === label), "aria-label": `explain ${quoted(label)}, ${percent}`, title: "explain this one" });
  named.append(make("bdi", {}, label.replace(/^ /, "·")), ` ${percent}`);
  const item = make("li", {}, named, button("vs", subtract, { "aria-pressed": String(chosen.contrast === label), "aria-label": `rather than ${quoted(label)}`, title: "rather than this one" }));
  item.style.setProperty("--share", `${(100 * share).toFixed(1)}%`);
  return item;
}

/** A text cut into its tokens, with their number; those that differ in a text of as many tokens are marked.
 * @param {string[]} tokens
 * @param {string[]} others
 * @param {number} longest
 */
function strip(tokens, others, longest) {
  if (!tokens.length) return [];
  const many = tokens.length > longest ? `, of at most ${longest}` : "";
  return [...tokens.map((token, place) => make("span", others.length === tokens.length && others[place] !== token ? { class: "differs" } : {}, token)), make("em", {}, ` ${tokens.length} token${tokens.length === 1 ? "" : "s"}${many}`)];
}

/** Pairs of tokens, as an alignment is written: from the beginning as far as the texts are alike, and the rest from the end.
 * @param {string[]} first
 * @param {string[]} second
 */
function pairs(first, second) {
  const least = Math.min(first.length, second.length);
  const alike = first.slice(0, least).findIndex((token, place) => token !== second[place]);
  const same = alike < 0 ? least : alike;
  return Array.from({ length: least }, (_, place) => (place < same ? [place, place] : [first.length - least + place, second.length - least + place])).map((pair) => pair.join(":")).join(",");
}
