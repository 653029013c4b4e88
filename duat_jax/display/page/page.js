// @ts-check
// The page of results, one or several of which one is shown. `views` is the data of data.py.

import { button, choice, folded, full, largest, make, partsTable, quoted, scrolling, sentence, seven, shade, sum, toggle, whenPointedAt } from "./elements.js";
import { arrowOf, edgePanel, headMoves, neuronPanel, neuronPanels, nodePanel, whyList } from "./graph.js";
import { download, draw, fitting, savePicture } from "./picture.js";
import { cellPanel, choices, grid, largestUnits, MOST, shown, tokenName, without } from "./table.js";

/** @typedef {{name: string, value: number, predictions: [string, number][]}} Said */
/** @typedef {{name: string, note: string, parts: number[]}} Colouring */
/** @typedef {{top: number[][][], rest: number[]}} Units */
/** @typedef {{name: string, columns: string[], note: string, others: string | null}} UnitsKind */
/** @typedef {{name: string, parts: number[], units: (Units | null)[], layer: number | null}} Row */
/** @typedef {{title: string, columns: string[], rows: import("./elements.js").Entry[], total: import("./elements.js").Entry | null, note: string}} Table */
/** @typedef {{sum: number, error: number, tolerance: number, verdict: string, note?: string}} Completeness */
/**
 * @typedef {object} View
 * @property {string} kind
 * @property {string} target
 * @property {string} headline what was found, in one sentence; empty for none
 * @property {number | null} position of the token at which the number is read
 * @property {number | null} output
 * @property {string} exact
 * @property {string} value_name
 * @property {number} value
 * @property {Completeness | null} completeness
 * @property {Said[]} said
 * @property {string[]} tokens
 * @property {string[] | null} others
 * @property {number[]} line_ends
 * @property {{style: {}, grids: [number, number, string][]}} seen the patches over an image: first, end, label
 * @property {Colouring[]} colourings
 * @property {Row[]} rows
 * @property {(import("./graph.js").Moves | null)[]} moves what heads move to each row
 * @property {boolean} row_sums
 * @property {string} beside
 * @property {UnitsKind[]} kinds
 * @property {{title: string, entries: [string, number][]}[]} added
 * @property {string[]} notes
 * @property {string} heading
 * @property {Table[]} tables the numbers of a table are signed parts, and what else stands in it is text
 * @property {import("./graph.js").Graph | null} graph
 * @property {Record<string, [string, string, string, number][]>} examples
 */
/** What a page with a model behind it can do beside showing; absent in a file. Answers are absent where there is a problem.
 * @typedef {object} Acts
 * @property {(written: string, name: string) => void} change makes an edit, or takes it back if it is made; by the button of a name
 * @property {(written: string) => boolean} changed
 * @property {(layer: number, token: number, unit: number) => Promise<import("./graph.js").Neuron | null>} neuron
 * @property {(layer: number, head: number, query: number, key: number) => Promise<import("./score.js").Score | null>} score
 * @property {(changes: string[]) => Promise<number | null>} measure
 */

/** What the reader chose; it stands in the address.
 * @typedef {{colouring: number, columns: number, row: number, token: number, arrows: number, neuron: number, source: number, head: number}} State
 */

export const FORMAT = 4;

/** What a view is called where one of several is chosen. @param {View} view */
const kindName = ({ kind }) => (kind === "intervention" ? "edits" : kind);

/** Who said what: the number on each input, and the predictions if wanted. @param {View} view */
export function saidTable(view, wanted = true) {
  const predicted = wanted && view.said.some(({ predictions }) => predictions.length);
  const heads = ["input", "the number", ...(predicted ? ["the model says next"] : [])];
  return scrolling("the inputs", make("table", { class: "said" }, make("thead", {}, make("tr", {}, ...heads.map((title) => make("th", { scope: "col", class: "faint" }, title)))), make("tbody", {}, ...view.said.map((said) => make("tr", {},
    make("th", { scope: "row" }, make("bdi", {}, said.name)),
    make("td", { title: full(said.value) }, seven(said.value)),
    ...(predicted ? [make("td", {}, ...said.predictions.map(([text, probability]) => probabilityChip(text, probability)))] : []))))));
}

/** What the model says, filled by its probability. @param {string} text @param {number} probability */
function probabilityChip(text, probability) {
  const chip = make("span", { class: "chip" }, make("bdi", {}, quoted(text)), ` ${(100 * probability).toFixed(1)} %`);
  chip.style.backgroundSize = `${(100 * probability).toFixed(1)}% 100%`;
  return chip;
}

/** The tables of the kind of result. @param {View} view */
export const tablesOf = (view) => view.tables.flatMap(({ title, columns, rows, total, note }) => [...(title ? [make("h2", {}, title)] : []),
  scrolling(title || "table", partsTable(columns, rows, total)), ...(note ? [make("p", { class: "faint" }, note)] : [])]);

/** Whether the parts sum, and what is exact. @param {View} view */
export function verdict(view) {
  const said = [...(view.completeness?.note ? [view.completeness.note] : []), ...view.notes].map((note) => make("p", {}, note));
  const exact = make("p", { class: "faint" }, view.exact);
  if (!view.completeness) return make("div", {}, ...said, exact);
  const { sum: total, error, tolerance, verdict } = view.completeness;
  return make("div", {},
    make("p", {}, "All parts sum to the number: ", make("span", { class: `verdict ${verdict}` }, verdict),
      make("span", { class: "faint" }, ` (${view.value_name} ${seven(view.value)}, sum of all parts ${seven(total)}, error ${error.toExponential(1).replaceAll("-", "−")} ${verdict === "fails" ? ">" : "≤"} tolerance ${tolerance.toExponential(1).replace("e-", "e−")})`)),
    ...said, ...(verdict === "fails" ? [] : [exact]));
}

/** The numbers of which a contrast's is the difference. @param {View} view */
function sidesOf({ kind, said }) {
  const [first, last] = [said[0], said.at(-1)];
  return kind === "contrast" && first && last ? [`: ${seven(first.value)} on A minus ${seven(last.value)} on B`] : [];
}

/** What the colours and lines of a view mean. @param {number[][]} parts @param {boolean} arrows */
function legend(parts, arrows) {
  const most = largest(parts.flat());
  const bar = make("span", { class: "bar", "aria-hidden": "true" });
  return make("p", { class: "legend" },
    make("span", {}, `lowers the number, ${seven(Number((-most).toPrecision(3)))} `, bar, ` raises it, ${seven(Number(most.toPrecision(3)))}`),
    ...(arrows ? [make("span", {}, make("span", { class: "lines" }, "━"), " what a head brings from token to token, or in a curve from the same one; the wider, the more")] : []));
}

/** The ways in which the text of a view can be coloured: its own, and of an explanation those of contrasts of the same text.
 * @param {View} view
 * @param {View[]} views
 */
function colouringsOf(view, views) {
  const same = views.filter(({ kind, tokens }) => kind === "contrast" && view.kind !== kind && tokens.join("\n") === view.tokens.join("\n"));
  return [...view.colourings, ...(view.kind === "intervention" ? [] : same.flatMap(({ colourings }) => colourings))];
}

/** The text, coloured.
 * @param {View} view
 * @param {Colouring} colouring
 * @param {number} chosen
 * @param {(token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
function textPanel(view, { parts, note }, chosen, choose, say) {
  const text = make("div", { class: "text", tabindex: "0", role: "group", "aria-label": "the text, token by token" });
  // Parts of single patches are small beside those of tokens: each image has the scale of its own.
  const images = view.seen.grids.map(([first, end, label]) => {
    const inside = parts.slice(first, end);
    const [most, grid] = [largest(inside), make("div", { class: "seen", role: "group", "aria-label": label })];
    Object.assign(grid.style, view.seen.style);
    const caption = make("p", { class: "faint" }, `${label}: together ${seven(sum(inside))}, in full colour ${Number(most.toPrecision(3))}`);
    return { first, end, grid, most, box: make("div", { class: "image" }, grid, caption) };
  });
  /** @param {number} token */
  const imageOf = (token) => images.find(({ first, end }) => token >= first && token < end);
  const alone = parts.filter((_, token) => !imageOf(token));
  const most = largest(alone);
  view.tokens.forEach((label, token) => {
    const image = imageOf(token);
    const other = view.others?.[token];
    const changed = other !== undefined && other !== label;
    const span = make("span", { class: `token${changed ? " other" : ""}${token === chosen ? " chosen" : ""}`, dir: "auto", ...(changed ? { "data-other": other } : {}) }, label);
    shade(span, parts[token], image?.most ?? most);
    whenPointedAt(span, "pointerenter", () => say(`token ${token} ${quoted(tokenName(view, token))}: ${full(parts[token])}`));
    span.addEventListener("click", () => choose(token));
    (image?.grid ?? text).append(span, ...(view.line_ends.includes(token) ? [make("br")] : []));
  });
  const account = images.length ? ` All other tokens: together ${seven(sum(alone))}.` : "";
  return make("div", {}, make("div", { class: "columns" }, ...images.map(({ box }) => box), text), make("p", { class: "faint" }, note, account));
}

/** The lists of what isn't at a token, and the account of the value.
 * @param {View} view
 */
function addedPanels(view) {
  const lists = view.added.map(({ title, entries }) => make("details", {}, make("summary", {}, `${title}: ${entries.length}, together ${seven(sum(entries.map((entry) => entry[1])))}`),
    partsTable(["name", "part"], entries, ["all of them", sum(entries.map((entry) => entry[1]))])));
  if (view.row_sums || !view.completeness || !view.rows.length) return lists;
  /** @type {[string, number][]} */
  const account = [["all cells of the table", sum(view.rows.map((row) => sum(row.parts)))],
    ...view.added.map(({ title, entries }) => /** @type {[string, number]} */ ([title.toLowerCase(), sum(entries.map((entry) => entry[1]))]))];
  return [...lists, partsTable(["what", "sum"], account, [view.value_name, view.value])];
}

/** What was chosen of a view, as it stands in an address.
 * @param {View} view
 * @param {number} colourings
 * @param {URLSearchParams} given
 * @param {number} width of the page, in pixels: at first the table has as many columns as fit
 * @returns {State}
 */
function stateOf(view, colourings, given, width) {
  /** @param {string} name @param {number} most @param {number} otherwise */
  const read = (name, most, otherwise) => {
    const number = Number(given.get(name) ?? NaN);
    return Number.isInteger(number) && number >= -1 && number < most ? number : otherwise;
  };
  const columns = read("columns", view.tokens.length + 1, 0);
  const [least, ...more] = choices(view);
  const narrow = more.filter((count) => count * 75 <= width - 200).pop() ?? least;
  return {
    colouring: Math.max(read("colouring", colourings, 0), 0),
    columns: choices(view).includes(columns) ? columns : narrow,
    row: read("row", view.rows.length, -1),
    token: read("token", view.tokens.length, -1),
    arrows: Math.max(read("arrows", MOST, 40), 0),
    neuron: read("neuron", view.graph?.neurons.length ?? 0, -1),
    source: read("source", view.tokens.length, -1),
    head: read("head", MOST, -1),
  };
}

/** Fill an element with one view.
 * @param {View} view
 * @param {HTMLElement} el
 * @param {{views: View[], given: URLSearchParams, keep: (state: State) => void, files: () => Node[], acts: Acts | null, opened: {neuron: import("./graph.js").Neuron | null}}} page
 */
export function show(view, el, { views, given, keep, files, acts, opened }) {
  const head = [make("h1", {}, ...sentence(view.headline || `${view.target} = ${seven(view.value)}`)),
    make("p", { class: "number" }, "Explained: ", make("bdi", {}, view.target), ", ", make("strong", { title: full(view.value) }, seven(view.value)), ...sidesOf(view), ".")];
  const end = [verdict(view), make("p", { class: "files" }, ...files())];
  if (!view.tokens.length) {
    el.replaceChildren(...head, ...(view.said.length ? [saidTable(view)] : []), ...tablesOf(view), ...addedPanels(view), ...end);
    return;
  }
  const room = el.clientWidth || 1200;
  const colourings = colouringsOf(view, views);
  const state = stateOf(view, colourings.length, given, room);
  /** Whether the reader chose the columns; the picture takes more than the table where they fit. */
  let few = given.has("columns");
  /** What was chosen before, the last one at the end. @type {State[]} */
  const before = [];
  const [overPicture, overTable] = ["picture", "table"].map(() => make("output", { class: "readout", "aria-live": "off" }));
  /** @param {string} sentence */
  const say = (sentence) => { overPicture.textContent = overTable.textContent = sentence; };
  const [text, table, cell, neuron, drawn, node, edge, neurons] = Array.from({ length: 8 }, () => make("div"));
  const labels = view.tokens.map((_, token) => tokenName(view, token));
  const rows = view.graph?.rows ?? view.rows.map(({ name }) => name);
  const arrows = headMoves(view.graph?.moves ?? view.moves);
  const parts = view.graph?.streams ?? view.rows.map(({ parts }) => parts);
  /** The row of the picture that the chosen row is. */
  const pictureRow = () => rows.indexOf(view.rows[state.row]?.name);
  /** The row of the table that a row of the picture is. @param {number} row */
  const tableRow = (row) => view.rows.findIndex(({ name }) => name === rows[row]);
  const drawText = () => {
    const off = acts ? [make("p", { class: "held" }, ...(state.token < 0 ? [] : [toggle(acts, `token ${state.token} set mean`, `switch token ${state.token} off`, `switch token ${state.token} off`)]))] : [];
    text.replaceChildren(textPanel(view, colourings[state.colouring], state.token, (token) => change({ token, row: state.row < 0 ? 0 : state.row }), say), ...off);
  };
  const drawTable = () => {
    const [top, left] = [table.firstElementChild?.scrollTop ?? 0, table.firstElementChild?.scrollLeft ?? 0];
    table.replaceChildren(grid(view, state, (row, token) => change({ row, token }), say));
    table.firstElementChild?.scrollTo(left, top);
  };
  const drawCell = () => {
    cell.replaceChildren(cellPanel(view, state, acts, async (layer, token, unit) => {
      opened.neuron = await acts?.neuron(layer, token, unit) ?? opened.neuron;
      drawCell();
      neuron.scrollIntoView({ block: "nearest" });
    }));
    neuron.replaceChildren(...(opened.neuron ? [neuronPanel(opened.neuron, acts)] : []));
  };
  const picture = () => {
    const columns = shown(view, few ? state.columns : Math.max(Math.min(fitting(room, rows), view.tokens.length), state.columns));
    const drawing = {
      title: `${view.target} = ${seven(view.value)}`, rows, labels, columns, others: without(view, columns),
      parts, arrows: arrows.slice(0, state.arrows).map((move) => arrowOf(rows, labels, move)),
      reads: view.position === null ? null : { token: view.position, label: seven(view.value) },
    };
    return draw(drawing, { row: pictureRow(), token: state.token }, room, (row, token) => {
      change({ row: tableRow(row), token });
      cell.scrollIntoView({ block: "nearest" });
    }, say);
  };
  const told = make("output");
  const drawPicture = () => {
    const [few, all] = [arrows.slice(0, state.arrows), arrows].map((some) => sum(some.map(({ part }) => Math.abs(part))));
    told.textContent = ` the ${Math.min(state.arrows, arrows.length)} largest of ${arrows.length}, with ${((100 * few) / (all || 1)).toFixed(0)} % of the sum of their sizes`;
    const left = drawn.firstElementChild?.scrollLeft ?? Infinity; // the value is read at the end of the text
    drawn.replaceChildren(scrolling("the picture", picture()));
    if (drawn.firstElementChild) drawn.firstElementChild.scrollLeft = Math.min(left, drawn.firstElementChild.scrollWidth);
    if (!view.graph) return;
    node.replaceChildren(nodePanel(view.graph, labels, pictureRow(), state.token, (chosen) => change(chosen), acts));
    edge.replaceChildren(edgePanel(view.graph, labels, pictureRow(), state.token, state, acts));
  };
  const drawNeurons = () => view.graph && neurons.replaceChildren(...neuronPanels(view.graph, state.neuron, (neuron) => change({ neuron }), (group) => {
    view.graph?.groups.push(group);
    drawNeurons();
  }, acts));
  /** @param {Partial<State>} changes */
  const change = (changes) => {
    before.push({ ...state });
    undo.disabled = false;
    // Another cell has other edges and neurons.
    const other = "row" in changes || "token" in changes;
    if (other) opened.neuron = null;
    apply(other ? { source: -1, head: -1, ...changes } : changes);
  };
  /** @param {Partial<State>} changes */
  const apply = (changes) => {
    Object.assign(state, changes);
    keep(state);
    if ("colouring" in changes || "token" in changes) drawText();
    if ("columns" in changes) {
      few = true;
      drawTable();
    }
    table.querySelector("td.chosen")?.classList.remove("chosen");
    table.querySelector(`td[data-row="${state.row}"][data-token="${state.token}"]`)?.classList.add("chosen");
    drawCell();
    if (!("neuron" in changes && Object.keys(changes).length === 1)) drawPicture();
    if ("neuron" in changes) drawNeurons();
  };

  const coloured = choice("Coloured by", "colouring", colourings.map(({ name }) => name), state.colouring, (colouring) => change({ colouring }));
  const counts = choices(view);
  const select = make("select", { "aria-label": "columns of the table" }, ...counts.map((count) =>
    make("option", { value: String(count), ...(count === state.columns ? { selected: "" } : {}) }, count === view.tokens.length ? "all tokens" : `the ${count} largest tokens`)));
  select.addEventListener("change", () => change({ columns: Number(select.value) }));
  const slider = make("input", { type: "range", min: "0", max: String(Math.min(arrows.length, 400)), value: String(state.arrows), "aria-label": "number of arrows" });
  slider.addEventListener("change", () => change({ arrows: Number(slider.value) }));
  const undo = button("Undo", () => {
    const last = before.pop();
    undo.disabled = before.length === 0;
    if (!last) return;
    apply(last);
    [select.value, slider.value] = [String(state.columns), String(state.arrows)];
    coloured.querySelectorAll("input").forEach((input, index) => { input.checked = index === state.colouring; });
  }, { disabled: "" });
  const pictures = /** @type {const} */ (["svg", "png"]).map((kind) => button(`Save as ${kind.toUpperCase()}`, () => savePicture(picture(), kind)));
  const sums = view.row_sums ? `Every row sums to the difference${view.beside ? ", with what moved or jumped after it" : ""}.` : !view.completeness ? "" : `All squares and what is added below them sum to the ${view.value_name}.`;
  const layers = view.kind === "attribution" ? "Columns are tokens; of a layer with several units a square is the sum of their scores. " : "Rows are layers, from the embedding at the bottom to the last layer at the top; columns are tokens. ";
  const squares = view.graph ? `A square is the part of the number that the stream has at a token after a layer: the sum of what comes in from below. Those of the last layer sum to the ${view.value_name}${view.graph.after ? ` without ${seven(view.graph.after)}, which is added after it` : ""}.`
    : view.kind === "contrast" ? `A square is the part of the difference that is at a token after a layer. ${sums}${arrows.length ? " An arrow from a token whose values are the same on both texts is a change of attention to it." : ""}`
      : view.kind === "explanation" ? `A square is what a layer writes at a token, carried on to the number through attention as it is here. ${sums}` : sums;
  const tables = tablesOf(view);
  const edited = view.kind === "intervention";
  // A live page has what the model says next as buttons, and a single number stands above.
  const asButtons = acts !== null && !edited;
  const said = view.said.length > Number(asButtons) ? [saidTable(view, !asButtons)] : [];

  el.replaceChildren(
    ...head, ...(colourings.length > 1 ? [coloured] : []), text, ...said, ...(edited ? tables : []),
    ...(edited ? [] : [make("h2", {}, view.graph ? "How the number comes about" : view.heading), legend(parts, arrows.length > 0),
      make("p", { class: "faint" }, layers, squares, " Small parts have no number. Choose a square to open it."), overPicture, drawn]),
    ...(arrows.length ? [make("p", {}, "Arrows: ", slider, told)] : []), cell, neuron, node, edge, ...(edited ? [] : tables),
    ...folded(edited ? view.heading : "All numbers, as a table", make("p", {}, ...(counts.length > 1 ? ["Columns: ", select, " "] : []), make("span", { class: "faint" }, `${view.graph ? `${view.heading}. ` : ""}${sums}`)), overTable, table),
    ...largestUnits(view, (row, token) => change({ row, token })), ...addedPanels(view),
    ...(view.graph ? [...whyList(view.graph, acts, ({ layer, head, query, key }) => change({ row: tableRow(layer + 1), token: query, source: key, head })), ...(view.graph.neurons.length ? folded("The neurons with the largest contributions, and groups of them", neurons) : [])] : []),
    make("p", { class: "files" }, undo, " Picture: ", ...pictures), ...end);
  drawText(); drawTable(); drawCell(); drawPicture(); drawNeurons();
}

/** How a page was made. @param {[string, string][]} provenance */
export const footer = (provenance) => make("footer", { class: "faint" }, make("dl", {}, ...provenance.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, make("bdi", {}, value))])));

/** Fill an element with several views, of which one is shown, as a file keeps them.
 * @param {View[]} views
 * @param {[string, string][]} provenance
 * @param {HTMLElement} el
 */
export function showAll(views, provenance, el) {
  // A frame in a notebook has no address of its own.
  const owned = location.protocol !== "about:";
  const given = new URLSearchParams(location.hash.slice(1));
  let shownView = Math.min(Math.max(Number.parseInt(given.get("view") ?? "0") || 0, 0), views.length - 1);
  const body = make("div");
  /** @param {Partial<State>} state */
  const keep = (state) => owned && history.replaceState(null, "", `#${new URLSearchParams(Object.entries({ ...(shownView ? { view: shownView } : {}), ...state }).map(([name, value]) => [name, String(value)]))}`);
  const files = () => views.some(({ graph }) => graph) ? [button("Save this page with its groups", () => savePage(views, provenance, document.documentElement))] : [];
  const draw = () => show(views[shownView], body, { views, given, keep, files, acts: null, opened: { neuron: null } });
  const tabs = choice("Show", "view", views.map(kindName), shownView, (index) => {
    shownView = index;
    [...given.keys()].forEach((name) => given.delete(name));
    keep({});
    draw();
  });
  el.replaceChildren(...(views.length > 1 ? [tabs] : []), body, footer(provenance));
  draw();
}

/** Write views into a copy of a page, and download it.
 * @param {View[]} views
 * @param {[string, string][]} provenance
 * @param {HTMLElement} shell
 */
export async function savePage(views, provenance, shell) {
  const copy = /** @type {HTMLElement} */ (shell.cloneNode(true));
  const packed = await new Response(new Blob([JSON.stringify({ format: FORMAT, views, provenance })]).stream().pipeThrough(new CompressionStream("gzip"))).arrayBuffer();
  const bytes = Array.from(new Uint8Array(packed), (byte) => String.fromCharCode(byte)).join("");
  const title = copy.querySelector("title");
  if (title) title.textContent = views[0].target;
  copy.querySelector("#page")?.replaceChildren("The numbers are being read.");
  const numbers = copy.querySelector("#numbers");
  if (numbers) numbers.textContent = JSON.stringify(btoa(bytes));
  download(new Blob([`<!doctype html>\n${copy.outerHTML}`], { type: "text/html" }), `${views[0].target.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "page"}.html`);
}
