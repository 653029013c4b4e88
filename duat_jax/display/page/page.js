// @ts-check
// The page of a result. `render({ model, el })` fills an element with what `model.get("view")` returns, the data of
// view.py; the end of this file does that for the numbers in a document.

import { full, largest, make, partsTable, seven, shade, short, sum } from "./elements.js";
import { arrowsOf, neuronPanels, nodePanel } from "./graph.js";
import { download, draw, savePicture } from "./picture.js";

/** @typedef {{name: string, value: number, predictions: [string, number][]}} Said */
/** @typedef {{name: string, note: string, parts: number[]}} Colouring */
/** @typedef {{top: number[][][], rest: number[]}} Units */
/** @typedef {{name: string, columns: string[], note: string, others: string | null}} UnitsKind */
/** @typedef {{name: string, parts: number[], units: (Units | null)[]}} Row */
/** @typedef {{value: number, sum: number, error: number, tolerance: number, verdict: string, note?: string}} Completeness */
/**
 * @typedef {object} View
 * @property {number} format
 * @property {string} kind
 * @property {string} target
 * @property {string} exact
 * @property {string} value_name
 * @property {Completeness} completeness
 * @property {Said[]} said
 * @property {string[]} tokens
 * @property {string[] | null} others
 * @property {number[]} line_ends
 * @property {Colouring[]} colourings
 * @property {Row[]} rows
 * @property {boolean} row_sums
 * @property {string} beside
 * @property {UnitsKind[]} kinds
 * @property {{title: string, entries: [string, number][]}[]} added
 * @property {string[]} notes
 * @property {string} heading
 * @property {{name: string, frozen: number | null, part: number, alone: number | null}[]} effects
 * @property {import("./graph.js").Graph | null} graph
 */

/** What the reader chose; it stands in the address.
 * @typedef {{colouring: number, columns: number, row: number, token: number, arrows: number, neuron: number}} State
 */

const FORMAT = 1;
/** Tokens that have columns of their own at most; the others stand in one column, as their sum. */
const COLUMNS = [10, 20, 40, 80, 160, 320];
/** A text of more tokens never has a column for each: a browser would be slow. */
const MOST = 1024;

/** The tokens that have a column of their own: those whose largest number in any row is largest.
 * @param {View} view
 * @param {number} count
 */
function shown(view, count) {
  const sizes = view.tokens.map((_, token) => view.rows.reduce((most, row) => Math.max(most, Math.abs(row.parts[token])), 0));
  return [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, count).sort((a, b) => a - b);
}

/** @param {View} view @param {number} token */
function tokenName(view, token) {
  const [one, other] = [view.tokens[token], view.others?.[token]];
  return other === undefined || other === one ? one : `${one} (${other})`;
}

/** Who said what: the number and the predictions on each input. @param {View} view */
function saidTable(view) {
  return make("table", { class: "said" }, make("tbody", {}, ...view.said.map((said) => make("tr", {},
    make("th", { scope: "row" }, make("bdi", {}, said.name)),
    make("td", { title: full(said.value) }, seven(said.value)),
    make("td", {}, ...said.predictions.flatMap(([text, probability]) => [make("bdi", {}, JSON.stringify(text)), ` ${(100 * probability).toFixed(1)} %   `]))))));
}

/** What was predicted of each change, and what the model says when it is run again. @param {View} view */
function effectsTable(view) {
  if (!view.effects.length) return [];
  /** @type {[string, ...(number | undefined)[]][]} */
  const entries = view.effects.map(({ name, frozen, part, alone }) => [name, frozen ?? undefined, part, alone ?? undefined]);
  const table = partsTable(["change", "predicted", "its part", "run again alone"], entries, null);
  return [make("h2", {}, "What the changes did"), make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "changes" }, table),
    make("p", { class: "faint" }, "Predicted: from the run as it is, everything else held. Its part: of what happened, when the model was run again with all changes; the parts sum to the difference. Run again alone: with this change and no other.")];
}

/** What is exact, and whether the sum holds; always in sight. @param {View} view */
function verdict(view) {
  const { value, sum: total, error, tolerance, verdict } = view.completeness;
  return make("div", {},
    make("p", {}, `${view.value_name} ${seven(value)}, sum of all parts ${seven(total)}, error ${error.toExponential(1).replaceAll("-", "−")} ${verdict === "fails" ? ">" : "≤"} tolerance ${tolerance.toExponential(1).replace("e-", "e−")}: `,
      make("span", { class: `verdict ${verdict}` }, verdict)),
    ...(view.completeness.note ? [make("p", {}, view.completeness.note)] : []),
    ...view.notes.map((note) => make("p", {}, note)),
    make("p", { class: "faint" }, view.exact));
}

/** The text, coloured.
 * @param {View} view
 * @param {State} state
 * @param {(token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
function textPanel(view, state, choose, say) {
  const { parts, note } = view.colourings[state.colouring];
  const most = largest(parts);
  const text = make("div", { class: "text", tabindex: "0", role: "group", "aria-label": "the text, token by token" });
  view.tokens.forEach((label, token) => {
    const other = view.others?.[token];
    const changed = other !== undefined && other !== label;
    const span = make("span", { class: `token${changed ? " other" : ""}${token === state.token ? " chosen" : ""}`, dir: "auto", ...(changed ? { "data-other": other } : {}) }, label);
    shade(span, parts[token], most);
    span.addEventListener("pointerenter", () => say(`token ${token} ${JSON.stringify(tokenName(view, token))}: ${full(parts[token])}`));
    span.addEventListener("click", () => choose(token));
    text.append(span, ...(view.line_ends.includes(token) ? [make("br")] : []));
  });
  return make("div", {}, make("p", { class: "faint" }, note), text);
}

/** The table of rows and tokens, with its sums.
 * @param {View} view
 * @param {State} state
 * @param {(row: number, token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
function grid(view, state, choose, say) {
  const columns = shown(view, state.columns);
  const alone = new Set(columns);
  const others = [...view.tokens.keys()].filter((token) => !alone.has(token));
  const most = largest(view.rows.flatMap((row) => columns.map((token) => row.parts[token])));
  const sums = view.rows.map((row) => sum(row.parts));
  const value = view.completeness.value;
  const heads = ["row", ...columns.map((token) => tokenName(view, token)), ...(others.length ? [`${others.length} others`] : []), ...(view.beside ? [view.beside] : []), "sum"];
  const body = make("tbody");
  /** @param {string} sentence @param {number} number @param {string} kind @returns {HTMLTableCellElement} */
  const cell = (sentence, number, kind) => {
    const element = make("td", { class: kind, tabindex: "-1", "data-say": `${sentence}: ${full(number)}` }, short(number, most));
    if (Number(element.textContent?.replace("−", "-")) === 0) element.classList.add("zero");
    return element;
  };
  view.rows.forEach((row, index) => {
    const line = make("tr", {}, make("th", { scope: "row" }, row.name));
    for (const token of columns) {
      const element = cell(`${row.name}, token ${token} ${JSON.stringify(tokenName(view, token))}`, row.parts[token], "");
      shade(element, row.parts[token], most);
      element.dataset.row = String(index);
      element.dataset.token = String(token);
      if (index === state.row && token === state.token) element.classList.add("chosen");
      line.append(element);
    }
    if (others.length) line.append(cell(`${row.name}, ${others.length} other tokens`, sum(others.map((token) => row.parts[token])), ""));
    if (view.beside) line.append(cell(`${row.name}, ${view.beside}`, value - sums[index], ""));
    line.append(cell(`${row.name}, sum`, view.beside ? value : sums[index], "sum"));
    body.append(line);
  });
  if (!view.row_sums) {
    const total = make("tr", { class: "total" }, make("th", { scope: "row" }, "sum"));
    const ofTokens = view.tokens.map((_, token) => sum(view.rows.map((row) => row.parts[token])));
    for (const token of columns) total.append(cell(`sum, token ${token} ${JSON.stringify(tokenName(view, token))}`, ofTokens[token], ""));
    if (others.length) total.append(cell(`sum, ${others.length} other tokens`, sum(others.map((token) => ofTokens[token])), ""));
    total.append(cell("sum of all cells", sum(ofTokens), "sum"));
    body.append(total);
  }
  const table = make("table", { class: "grid", role: "grid", "aria-label": `${view.target}: rows by tokens` },
    make("thead", {}, make("tr", {}, ...heads.map((title) => make("th", { scope: "col", title, ...(title === "sum" ? { class: "sum" } : {}) }, title)))), body);

  /** @param {EventTarget | null} target */
  const told = (target) => target instanceof HTMLElement && target.closest("td");
  table.addEventListener("pointerover", (event) => { const td = told(event.target); if (td) say(td.dataset.say ?? ""); });
  table.addEventListener("focusin", (event) => { const td = told(event.target); if (td) say(td.dataset.say ?? ""); });
  /** @param {HTMLElement} td */
  const open = (td) => { if (td.dataset.row !== undefined) choose(Number(td.dataset.row), Number(td.dataset.token)); };
  table.addEventListener("click", (event) => { const td = told(event.target); if (td) open(td); });
  table.addEventListener("keydown", (event) => {
    const td = told(event.target);
    const line = td && td.parentElement;
    if (!td || !(line instanceof HTMLTableRowElement)) return;
    const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key] ?? [0, 0];
    if (event.key === "Enter" || event.key === " ") open(td);
    else if (!down && !right) return;
    event.preventDefault();
    const next = body.rows[line.sectionRowIndex + down]?.cells[td.cellIndex + right];
    if (next instanceof HTMLTableCellElement && next.tagName === "TD") next.focus();
  });
  body.querySelector("td")?.setAttribute("tabindex", "0");
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "table" }, table);
}

/** What a cell is made of.
 * @param {View} view
 * @param {State} state
 */
function cellPanel(view, state) {
  const row = view.rows[state.row];
  const panel = make("section", { class: "cell", "aria-live": "polite" });
  if (!row || state.token < 0) return panel;
  panel.append(make("h2", {}, `${row.name}, token ${state.token} `, make("bdi", {}, JSON.stringify(tokenName(view, state.token))), `: ${full(row.parts[state.token])}`));
  const columns = make("div", { class: "columns" });
  panel.append(columns);
  row.units.forEach((units, index) => {
    if (!units) return;
    const { name, columns: titles, note, others } = view.kinds[index];
    /** @type {[string, ...number[]][]} */
    const entries = units.top[state.token].map(([unit, ...numbers]) => [String(unit), ...numbers]);
    const rest = units.rest[state.token];
    if (rest) entries.push([`all other ${name}s`, rest]);
    const told = sum(entries.map((entry) => entry[1]));
    if (others) entries.push([others, row.parts[state.token] - told]);
    columns.append(make("div", {}, partsTable([name, ...titles], entries, others === null ? null : ["the cell", row.parts[state.token]]), make("p", { class: "faint" }, note)));
  });
  if (row.units.every((units) => !units)) panel.append(make("p", { class: "faint" }, "It has no neurons or heads."));
  return panel;
}

/** The lists of what isn't at a token, and the account of the value.
 * @param {View} view
 */
function addedPanels(view) {
  const lists = view.added.map(({ title, entries }) => make("details", {}, make("summary", {}, `${title}: ${entries.length}, together ${seven(sum(entries.map((entry) => entry[1])))}`),
    partsTable(["name", "part"], entries, ["all of them", sum(entries.map((entry) => entry[1]))])));
  if (view.row_sums) return lists;
  /** @type {[string, number][]} */
  const account = [["all cells of the table", sum(view.rows.map((row) => sum(row.parts)))],
    ...view.added.map(({ title, entries }) => /** @type {[string, number]} */ ([title.toLowerCase(), sum(entries.map((entry) => entry[1]))]))];
  return [...lists, partsTable(["what", "sum"], account, [view.value_name, view.completeness.value])];
}

/** How many tokens can have columns of their own. @param {View} view */
function choices(view) {
  const count = view.tokens.length;
  return [...COLUMNS.filter((few) => few < count), ...(count <= MOST ? [count] : [])];
}

/** @param {View} view @returns {State} */
function stateOfAddress(view) {
  const given = new URLSearchParams(location.hash.slice(1));
  /** @param {string} name @param {number} most @param {number} otherwise */
  const read = (name, most, otherwise) => {
    const number = Number(given.get(name) ?? NaN);
    return Number.isInteger(number) && number >= -1 && number < most ? number : otherwise;
  };
  const columns = read("columns", view.tokens.length + 1, 0);
  return {
    colouring: Math.max(read("colouring", view.colourings.length, 0), 0),
    columns: choices(view).includes(columns) ? columns : Math.min(view.tokens.length, 40),
    row: read("row", view.rows.length, -1),
    token: read("token", view.tokens.length, -1),
    arrows: Math.max(read("arrows", MOST, 40), 0),
    neuron: read("neuron", view.graph?.neurons.length ?? 0, -1),
  };
}

/** Fill an element with a result's page.
 * @param {{model: {get: (name: string) => any}, el: HTMLElement}} given
 */
export function render({ model, el }) {
  /** @type {View} */
  const view = model.get("view");
  if (view.format > FORMAT) {
    el.replaceChildren(make("p", {}, `These numbers are of format ${view.format}, and this page reads ${FORMAT}: write it again with one version of duat-jax.`));
    return;
  }
  const state = stateOfAddress(view);
  /** What was chosen before, the last one at the end. @type {State[]} */
  const before = [];
  const readout = make("output", { class: "readout", "aria-live": "off" });
  /** @param {string} sentence */
  const say = (sentence) => { readout.textContent = sentence; };
  const [text, table, cell, drawn, node, neurons] = Array.from({ length: 6 }, () => make("div"));
  const labels = view.tokens.map((_, token) => tokenName(view, token));
  const arrows = view.graph ? arrowsOf(view.graph, labels) : [];
  /** The row of the graph that the chosen row is. */
  const streamRow = () => view.graph?.rows.indexOf(view.rows[state.row]?.name) ?? -1;
  // A frame in a notebook has no address of its own.
  const keep = () => location.protocol !== "about:" && history.replaceState(null, "", `#${new URLSearchParams(Object.entries(state).map(([name, value]) => [name, String(value)]))}`);
  const drawText = () => text.replaceChildren(textPanel(view, state, (token) => change({ token, row: state.row < 0 ? 0 : state.row }), say));
  const drawTable = () => {
    const [top, left] = [table.firstElementChild?.scrollTop ?? 0, table.firstElementChild?.scrollLeft ?? 0];
    table.replaceChildren(grid(view, state, (row, token) => change({ row, token }), say));
    table.firstElementChild?.scrollTo(left, top);
  };
  const drawCell = () => cell.replaceChildren(cellPanel(view, state));
  const picture = () => {
    const drawing = { title: `${view.target} = ${seven(view.completeness.value)}`, labels, columns: shown(view, state.columns) };
    const { graph } = view;
    if (!graph) return draw({ ...drawing, rows: view.rows.map(({ name }) => name), parts: view.rows.map(({ parts }) => parts), arrows: [] }, state, () => {}, say);
    /** @param {number} row @param {number} token */
    const choose = (row, token) => change({ row: view.rows.findIndex(({ name }) => name === graph.rows[row]), token });
    return draw({ ...drawing, rows: graph.rows, parts: graph.streams, arrows: arrows.slice(0, state.arrows) }, { row: streamRow(), token: state.token }, choose, say);
  };
  const told = make("output");
  const drawPicture = () => {
    if (!view.graph) return;
    const [few, all] = [arrows.slice(0, state.arrows), arrows].map((some) => sum(some.map(({ part }) => Math.abs(part))));
    told.textContent = ` ${Math.min(state.arrows, arrows.length)} arrows, ${((100 * few) / (all || 1)).toFixed(0)} % of the sizes of all ${arrows.length}; the others stand in the tables of the tokens`;
    const scroll = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "the picture of the streams" }, picture());
    const left = drawn.firstElementChild?.scrollLeft ?? 0;
    drawn.replaceChildren(scroll);
    scroll.scrollLeft = left;
    node.replaceChildren(nodePanel(view.graph, labels, streamRow(), state.token));
  };
  const drawNeurons = () => view.graph && neurons.replaceChildren(...neuronPanels(view.graph, state.neuron, (neuron) => change({ neuron }), (group) => {
    view.graph?.groups.push(group);
    drawNeurons();
  }));
  /** @param {Partial<State>} changes */
  const change = (changes) => {
    before.push({ ...state });
    undo.disabled = false;
    apply(changes);
  };
  /** @param {Partial<State>} changes */
  const apply = (changes) => {
    Object.assign(state, changes);
    keep();
    if ("colouring" in changes || "token" in changes) drawText();
    if ("columns" in changes) drawTable();
    table.querySelector("td.chosen")?.classList.remove("chosen");
    table.querySelector(`td[data-row="${state.row}"][data-token="${state.token}"]`)?.classList.add("chosen");
    drawCell();
    if (!("neuron" in changes && Object.keys(changes).length === 1)) drawPicture();
    if ("neuron" in changes) drawNeurons();
  };

  const colourings = make("fieldset", {}, make("legend", { class: "faint" }, "The text is coloured by"), ...view.colourings.map(({ name }, index) => {
    const input = make("input", { type: "radio", name: "colouring", value: String(index), ...(index === state.colouring ? { checked: "" } : {}) });
    input.addEventListener("change", () => change({ colouring: index }));
    return make("label", {}, input, ` ${name}`);
  }));
  const counts = choices(view);
  const select = make("select", { "aria-label": "columns of the table" }, ...counts.map((count) =>
    make("option", { value: String(count), ...(count === state.columns ? { selected: "" } : {}) }, count === view.tokens.length ? "all tokens" : `the ${count} largest tokens`)));
  select.addEventListener("change", () => change({ columns: Number(select.value) }));
  const slider = make("input", { type: "range", min: "0", max: String(Math.min(arrows.length, 400)), value: String(state.arrows), "aria-label": "number of arrows" });
  slider.addEventListener("change", () => change({ arrows: Number(slider.value) }));
  const undo = make("button", { type: "button", disabled: "" }, "Undo");
  undo.addEventListener("click", () => {
    const last = before.pop();
    undo.disabled = before.length === 0;
    if (!last) return;
    apply(last);
    [select.value, slider.value] = [String(state.columns), String(state.arrows)];
    colourings.querySelectorAll("input").forEach((input, index) => { input.checked = index === state.colouring; });
  });
  const files = ["svg", "png"].map((kind) => {
    const button = make("button", { type: "button" }, `Save as ${kind.toUpperCase()}`);
    button.addEventListener("click", () => savePicture(picture(), kind === "svg" ? "svg" : "png"));
    return button;
  });
  if (view.graph && document.getElementById("numbers")) {
    const button = make("button", { type: "button" }, "Save this page with its groups");
    button.addEventListener("click", async () => download(new Blob([await written(view)], { type: "text/html" }), "page.html"));
    files.push(button);
  }
  const streams = view.graph ? [make("h2", {}, "The way of the value"),
    make("p", { class: "faint" }, "Squares are the parts of the tokens in each stream, from the embedding to the last layer; arrows are what heads move from token to token. Every square is the sum of what comes in: choose one."),
    make("p", {}, "Arrows: ", slider, told), drawn, node, neurons] : [];

  el.replaceChildren(
    make("h1", {}, view.target, ` = ${seven(view.completeness.value)}`),
    saidTable(view),
    verdict(view),
    make("h2", {}, "The text"), ...(view.colourings.length > 1 ? [colourings] : []), text,
    ...effectsTable(view), make("h2", {}, view.heading),
    make("p", { class: "faint" }, view.row_sums ? `Every row sums to the difference${view.beside ? ", with what moved or jumped after it" : ""}. Choose a cell to see its heads and neurons.` : `All cells and what stands below them sum to the ${view.value_name}. Choose a cell to see its ${view.effects.length ? "neurons or heads" : "neurons"}.`),
    make("p", {}, ...(counts.length > 1 ? ["Columns: ", select] : [])),
    table, cell, ...addedPanels(view), ...streams, make("p", { class: "files" }, undo, " Picture: ", ...files), readout);
  drawText(); drawTable(); drawCell(); drawPicture(); drawNeurons();
}

/** The numbers that a document keeps: JSON, compressed by gzip, in base64. @param {string} text */
async function unpacked(text) {
  const bytes = Uint8Array.from(atob(JSON.parse(text)), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

/** This document with other numbers. @param {View} view */
async function written(view) {
  const copy = /** @type {HTMLElement} */ (document.documentElement.cloneNode(true));
  const packed = await new Response(new Blob([JSON.stringify(view)]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  const bytes = Array.from(new Uint8Array(packed), (byte) => String.fromCharCode(byte)).join("");
  copy.querySelector("#page")?.replaceChildren("The numbers are being read.");
  const numbers = copy.querySelector("#numbers");
  if (numbers) numbers.textContent = JSON.stringify(btoa(bytes));
  return `<!doctype html>\n${copy.outerHTML}`;
}

const [page, kept] = ["page", "numbers"].map((id) => document.getElementById(id));
if (page && kept) {
  try {
    const view = await unpacked(kept.textContent ?? "");
    render({ model: { get: () => view }, el: page });
  } catch (error) {
    page.replaceChildren(make("p", {}, `The numbers of this page can't be read (${error}): the file is damaged or cut; write it again.`));
  }
}
