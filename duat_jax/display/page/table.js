// @ts-check
// The table of a page: rows by tokens with their sums, and what a cell of it is made of.

import { button, full, largest, make, partsTable, quoted, scrolling, seven, shade, short, sum, toggle, whenPointedAt } from "./elements.js";

/** @typedef {import("./page.js").View} View */
/** @typedef {import("./page.js").State} State */
/** @typedef {import("./page.js").Acts} Acts */

/** Tokens that have columns of their own at most; the others stand in one column, as their sum. */
const COLUMNS = [3, 5, 10, 20, 40, 80, 160, 320];
/** A text of more tokens never has a column for each: a browser would be slow. */
export const MOST = 1024;

/** The tokens that have a column of their own: those whose largest number in any row is largest.
 * @param {View} view
 * @param {number} count
 */
export function shown(view, count) {
  const sizes = view.tokens.map((_, token) => view.rows.reduce((most, row) => Math.max(most, Math.abs(row.parts[token])), 0));
  return [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a] || a - b).slice(0, count).sort((a, b) => a - b);
}

/** The tokens without a column of their own. @param {View} view @param {number[]} columns */
export function without(view, columns) {
  const alone = new Set(columns);
  return [...view.tokens.keys()].filter((token) => !alone.has(token));
}

/** @param {View} view @param {number} token */
export function tokenName(view, token) {
  const [one, other] = [view.tokens[token], view.others?.[token]];
  return other === undefined || other === one ? one : `${one} (${other})`;
}

/** The table of rows and tokens, with its sums.
 * @param {View} view
 * @param {State} state
 * @param {(row: number, token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
export function grid(view, state, choose, say) {
  const columns = shown(view, state.columns);
  const others = without(view, columns);
  const most = largest(view.rows.flatMap((row) => columns.map((token) => row.parts[token])));
  const sums = view.rows.map((row) => sum(row.parts));
  const value = view.value;
  /** @type {[string, string][]} */
  const heads = [["", "row"], ...columns.map((token) => /** @type {[string, string]} */ ([`${token} `, tokenName(view, token)])), ...[...(others.length ? [`${others.length} others`] : []), ...(view.beside ? [view.beside] : []), "sum"].map((title) => /** @type {[string, string]} */ (["", title]))];
  const body = make("tbody");
  /** @param {string} sentence @param {number} number @param {string} kind @returns {HTMLTableCellElement} */
  const cell = (sentence, number, kind) => {
    const element = make("td", { class: kind, tabindex: "-1", "data-say": `${sentence}: ${full(number)}` }, short(number, most));
    if (Number(element.textContent?.replace("−", "-")) === 0) element.classList.add("zero");
    return element;
  };
  view.rows.forEach((row, index) => {
    const line = make("tr", {}, make("th", { scope: "row", title: row.name }, row.name));
    for (const token of columns) {
      const element = cell(`${row.name}, token ${token} ${quoted(tokenName(view, token))}`, row.parts[token], "");
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
    for (const token of columns) total.append(cell(`sum, token ${token} ${quoted(tokenName(view, token))}`, ofTokens[token], ""));
    if (others.length) total.append(cell(`sum, ${others.length} other tokens`, sum(others.map((token) => ofTokens[token])), ""));
    total.append(cell("sum of all cells", sum(ofTokens), "sum"));
    body.append(total);
  }
  const table = make("table", { class: "grid", role: "grid", "aria-label": `${view.target}: rows by tokens` },
    make("thead", {}, make("tr", {}, ...heads.map(([index, title]) => make("th", { scope: "col", title: index + title, ...(title === "sum" ? { class: "sum" } : {}) }, make("span", { class: "faint" }, index), title)))), body);

  /** @param {EventTarget | null} target */
  const told = (target) => target instanceof HTMLElement && target.closest("td");
  whenPointedAt(table, "pointerover", (target) => { const td = told(target); if (td) say(td.dataset.say ?? ""); });
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
  return scrolling("table", table);
}

/** The texts in which neurons are strongest, where there was a survey.
 * @param {View} view
 * @param {[number, string][]} neurons each with the name under which its texts are
 */
function examplesTable(view, neurons) {
  const found = neurons.filter(([, name]) => view.examples[name]);
  if (!found.length) return [];
  /** @param {string} text */
  const around = (text) => make("bdi", { class: "faint" }, text.replaceAll(/\s+/g, " "));
  const rows = found.map(([unit, name]) => make("tr", {}, make("th", { scope: "row" }, String(unit)), make("td", {}, ...view.examples[name].map(([before, token, after, activation]) =>
    make("p", { class: "example", title: `activation ${full(activation)}` }, around(before), make("mark", {}, make("bdi", {}, token.replaceAll("\n", "⏎"))), around(after))))));
  const head = make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "neuron"), make("th", { scope: "col" }, "is strongest at")));
  return [make("div", {}, scrolling("where the neurons are strongest", make("table", { class: "parts examples" }, head, make("tbody", {}, ...rows))))];
}

/** What a cell is made of.
 * @param {View} view
 * @param {State} state
 * @param {Acts | null} acts
 * @param {(layer: number, token: number, unit: number) => void} open opens a neuron
 */
export function cellPanel(view, state, acts, open) {
  const row = view.rows[state.row];
  const panel = make("section", { class: "cell", "aria-live": "polite" });
  if (!row || state.token < 0) return panel;
  panel.append(make("h2", {}, `${row.name}, token ${state.token} `, make("bdi", {}, quoted(tokenName(view, state.token))), ": ", make("span", { title: full(row.parts[state.token]) }, seven(row.parts[state.token]))));
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
    /** @param {number} entry */
    const act = (entry) => {
      const [unit] = units.top[state.token][entry] ?? [];
      if (unit === undefined || row.layer === null || !acts) return [];
      const layer = row.layer;
      const place = `${name} ${layer}:${unit}@${state.token}`;
      const off = toggle(acts, `${place} set 0`, "off", `switch ${name} ${unit} off`);
      const patched = view.others ? [toggle(acts, `${place} set reference`, "as on the other text", `${name} ${unit} as on the other text`)] : [];
      return [off, ...patched, ...(name === "neuron" ? [button("open", () => open(layer, state.token, unit), { "aria-label": `open neuron ${unit}` })] : [])];
    };
    const table = partsTable([name, ...titles], entries, others === null ? null : ["the cell", row.parts[state.token]], acts ? { act } : {});
    const known = name === "neuron" ? examplesTable(view, units.top[state.token].map(([unit]) => [unit, `${row.layer}:${unit}`])) : [];
    columns.append(make("div", {}, scrolling(`${name}s of the cell`, table), make("p", { class: "faint" }, note)), ...known);
  });
  if (row.units.every((units) => !units)) panel.append(make("p", { class: "faint" }, "It has no neurons or heads."));
  return panel;
}

/** The largest neurons and heads of all cells; each opens its cell.
 * @param {View} view
 * @param {(row: number, token: number) => void} choose
 */
export function largestUnits(view, choose) {
  return view.kinds.flatMap(({ name }, kind) => {
    const all = view.rows.flatMap(({ units, layer }, row) => (layer === null ? [] : (units[kind]?.top ?? []).flatMap((top, token) =>
      top.map(([unit, part]) => ({ row, token, part, title: `${name} ${layer}:${unit}, token ${token} ${quoted(tokenName(view, token))}` })))));
    const most = all.filter(({ part }) => part).sort((a, b) => Math.abs(b.part) - Math.abs(a.part)).slice(0, 8);
    if (!most.length) return [];
    return [make("details", {}, make("summary", {}, `The largest ${name}s, as layer:${name}`),
      make("div", { class: "units" }, ...most.map(({ row, token, part, title }) => button(`${title}: ${seven(part)}`, () => choose(row, token)))))];
  });
}

/** How many tokens can have columns of their own. @param {View} view */
export function choices(view) {
  const count = view.tokens.length;
  return [...COLUMNS.filter((few) => few < count), ...(count <= MOST ? [count] : [])];
}

