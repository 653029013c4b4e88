// @ts-check
// Elements and numbers of a page.

/** Make an element; texts are only ever text, never markup.
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} attributes
 * @param {...(Node | string)} children
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** @param {number[]} numbers */
export const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

/** @param {number[]} numbers */
export const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 0);

/** A number with its sign and with as many decimals as the largest beside it has in four digits.
 * @param {number} number
 * @param {number} most
 */
export function short(number, most) {
  const decimals = most > 0 ? Math.min(Math.max(3 - Math.floor(Math.log10(most)), 0), 8) : 0;
  const text = Math.abs(number).toFixed(decimals);
  return Number(text) === 0 ? text : (number < 0 ? "−" : "+") + text;
}

/** Seven digits of a number. @param {number} number */
export const seven = (number) => full(Number(number.toPrecision(7)));

/** A text in quotation marks. @param {string} text */
export const quoted = (text) => `“${text}”`;

/** A sentence whose quoted tokens stand apart. @param {string} text */
export const sentence = (text) => text.split(/(“[^”]*”)/).map((part) => (part.startsWith("“") ? make("bdi", { class: "quoted", title: part }, part.slice(1, -1).trim() || part.slice(1, -1)) : part));

/** All digits of a number. @param {number} number */
export const full = (number) => (number < 0 ? "−" : "+") + String(Math.abs(number));

/** Colour an element by a signed number.
 * @param {HTMLElement} element
 * @param {number} number
 * @param {number} most
 */
export function shade(element, number, most) {
  const share = most > 0 ? Math.min(Math.abs(number) / most, 1) : 0;
  const colour = number < 0 ? "var(--negative)" : "var(--positive)";
  element.style.background = share < 0.004 ? "" : `color-mix(in srgb, ${colour} ${(58 * share).toFixed(1)}%, transparent)`;
}

/** Where the pointer was moved to last. */
const rest = { x: -1, y: -1 };
document.addEventListener("pointermove", (event) => Object.assign(rest, { x: event.screenX, y: event.screenY }), { capture: true });

/** Act when the pointer comes over an element, not when a new layout brings one under a pointer that rests.
 * @param {Element} element
 * @param {"pointerenter" | "pointerover"} kind
 * @param {(target: EventTarget | null) => void} act
 */
export function whenPointedAt(element, kind, act) {
  element.addEventListener(kind, (event) => {
    if (event instanceof PointerEvent && (event.screenX !== rest.x || event.screenY !== rest.y)) act(event.target);
  });
}

/** A button. @param {string} label @param {() => void} act @param {Record<string, string>} attributes */
export function button(label, act, attributes = {}) {
  const element = make("button", { type: "button", ...attributes }, label);
  element.addEventListener("click", act);
  return element;
}

/** A button that makes an edit, or takes it back if it is made.
 * @param {import("./page.js").Acts} acts
 * @param {string} written the edit
 * @param {string} label
 * @param {string} name what it does, for a screen reader
 */
export const toggle = (acts, written, label, name) => button(label, () => acts.change(written, name), { "aria-pressed": String(acts.changed(written)), "aria-label": name });

/** A region that scrolls by itself. @param {string} label @param {...Node} children */
export const scrolling = (label, ...children) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, ...children);

/** What is shown on demand. @param {string} title @param {...Node} children */
export const folded = (title, ...children) => [make("details", {}, make("summary", {}, title), ...children)];

/** A choice by radio buttons.
 * @param {string} title
 * @param {string} name
 * @param {string[]} labels
 * @param {number} chosen
 * @param {(index: number) => void} choose
 */
export function choice(title, name, labels, chosen, choose) {
  return make("fieldset", {}, make("legend", { class: "faint" }, title), ...labels.map((label, index) => {
    const input = make("input", { type: "radio", name, value: String(index), ...(index === chosen ? { checked: "" } : {}) });
    input.addEventListener("change", () => choose(index));
    return make("label", {}, input, ` ${label}`);
  }));
}

/** A row of a table: its name, then signed numbers, texts, and nothing.
 * @typedef {[string, ...(number | string | null | undefined)[]]} Entry
 */

/** A table of named numbers with its total.
 * @param {string[]} titles
 * @param {Entry[]} entries
 * @param {Entry | null} total
 * @param {{act?: (entry: number) => Node[], pick?: (entry: number, column: number) => (() => void) | undefined}} can what a click does: buttons of a row, and what a number opens
 */
export function partsTable(titles, entries, total, { act, pick } = {}) {
  const columns = titles.slice(1).map((_, column) => largest(entries.map((entry) => Number(entry[column + 1]) || 0)));
  /** @param {Entry} cells @param {number} entry */
  const line = ([name, ...cells], entry) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, name)), ...cells.map((number, column) => {
    if (typeof number !== "number") return make("td", {}, make("bdi", {}, number ?? ""));
    const open = entry < 0 ? undefined : pick?.(entry, column);
    const text = short(number, columns[column]);
    const shown = open ? button(text, open, { class: "number", "aria-label": `${titles[column + 1]}, ${name}: ${text}` }) : text;
    return make("td", { title: full(number), class: number < 0 ? "negative" : "positive" }, shown);
  }), ...(act && entry >= 0 ? [make("td", { class: "acts" }, ...act(entry))] : []));
  const table = make("table", { class: "parts" },
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...entries.map(line)));
  if (total) {
    const last = line(total, -1);
    last.className = "total";
    table.append(make("tfoot", {}, last));
  }
  return table;
}
