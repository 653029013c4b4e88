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

/** A table of named numbers with its total.
 * @param {string[]} titles
 * @param {[string, ...(number | undefined)[]][]} entries
 * @param {[string, number] | null} total
 */
export function partsTable(titles, entries, total) {
  const columns = titles.slice(1).map((_, column) => largest(entries.map((entry) => Number(entry[column + 1] ?? 0))));
  /** @param {string} name @param {(number | undefined)[]} numbers */
  const line = (name, numbers) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, name)), ...numbers.map((number, column) =>
    number === undefined ? make("td") : make("td", { title: full(number), class: number < 0 ? "negative" : "positive" }, short(number, columns[column]))));
  const table = make("table", { class: "parts" },
    make("thead", {}, make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", {}, ...entries.map(([name, ...numbers]) => line(name, /** @type {(number | undefined)[]} */ (numbers)))));
  if (total) {
    const last = line(total[0], [total[1]]);
    last.className = "total";
    table.append(make("tfoot", {}, last));
  }
  return table;
}
