// @ts-check
// The picture of a page: rows by tokens as coloured squares, with arrows of heads between them; kept as SVG or PNG.

import { full, largest, quoted, short, sum, whenPointedAt } from "./elements.js";

/** What a head brings from a token of a row to a token of the next row.
 * @typedef {{row: number, source: number, token: number, head: number, part: number, label: string, sentence: string}} Arrow
 */
/** Rows from the bottom to the top; `others` are the tokens that share a column, `reads` is where the number is read.
 * @typedef {{title: string, rows: string[], labels: string[], columns: number[], others: number[], parts: number[][], arrows: Arrow[], reads: {token: number, label: string} | null}} Drawing
 */

const [NARROW, WIDE, TOP] = [34, 140, 34];
const COLOURS = { positive: "#d53e34", negative: "#2976c7", ink: "#808590" };
/** The width beside the rows of wide pictures, in which the largest arrow to each row has its head's name. */
const NAMES = 120;

/** The width before the columns, in which each row has its name. @param {string[]} rows */
const before = (rows) => (rows.some((name) => name.length > 11) ? 120 : 84);

/** How many columns fit a width. @param {number} width @param {string[]} rows */
export const fitting = (width, rows) => Math.max(Math.floor((width - before(rows) - 12) / NARROW), 3);

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** @param {string} label @param {number} most */
const cut = (label, most) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);

/** Draw rows from the bottom to the top. Colours stand in attributes, so that a copy needs no style sheet.
 * @param {Drawing} drawing
 * @param {{row: number, token: number}} chosen
 * @param {number} room in pixels
 * @param {(row: number, token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
export function draw({ title, rows, labels, columns, others, parts, arrows, reads }, chosen, room, choose, say) {
  const most = largest(columns.flatMap((token) => parts.map((row) => row[token])));
  // The tokens that share a column stand first.
  const [first, left] = [others.length ? 1 : 0, before(rows)];
  const place = new Map(columns.map((token, column) => [token, column + first]));
  const count = columns.length + first;
  // Few tokens get wide columns, and many layers low rows.
  const names = arrows.length && room >= 700 ? NAMES : 0;
  const step = Math.min(Math.max(Math.floor((room - names - left - 12) / count), NARROW), WIDE);
  const high = (rows.length > 16 ? 20 : 32) + (arrows.length ? 10 : 0);
  const square = high - (arrows.length ? 16 : 6);
  const bottom = TOP + rows.length * high;
  const upright = step < 64;
  const longest = Math.min(columns.reduce((length, token) => Math.max(length, labels[token].length), 9), 14);
  const [width, height] = [left + count * step + 10 + names, bottom + (upright ? 30 + 7 * longest : 40)];
  const image = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "font-family": "ui-monospace, monospace", "font-size": 11, fill: "currentColor" });
  image.append(svg("title", {}, title));
  /** @param {number} row */
  const top = (row) => bottom - (row + 1) * high;
  /** @param {number} column */
  const middle = (column) => left + (column + 0.5) * step;
  rows.forEach((name, row) => image.append(svg("text", { x: left - 8, y: top(row) + high / 2 + 4, "text-anchor": "end", fill: COLOURS.ink }, cut(name, 16))));

  /** @param {number} column @param {number} row @param {number} part @param {string} sentence @param {boolean} isChosen */
  const box = (column, row, part, sentence, isChosen) => {
    const element = svg("rect", {
      x: left + column * step + 2, y: top(row) + (high - square) / 2, width: step - 4, height: square, rx: 4,
      fill: part < 0 ? COLOURS.negative : COLOURS.positive, "fill-opacity": most ? 0.75 * Math.min(Math.abs(part) / most, 1) : 0,
      stroke: isChosen ? "currentColor" : COLOURS.ink, "stroke-opacity": isChosen ? 1 : 0.25, "stroke-width": isChosen ? 2 : 1,
    });
    whenPointedAt(element, "pointerenter", () => say(`${sentence}: ${full(part)}`));
    image.append(element);
    if (step >= 42 && Math.abs(part) >= 0.02 * most) image.append(svg("text", { x: middle(column), y: top(row) + high / 2 + 4, "text-anchor": "middle", "font-size": step < 50 ? 10 : 11, "pointer-events": "none" }, short(part, most)));
    return element;
  };
  /** @param {number} column @param {string} index @param {string} label */
  const name = (column, index, label) => {
    const [x, y] = [middle(column), bottom + 14];
    image.append(svg("text", { x, y, "text-anchor": "middle", "font-size": 9, fill: COLOURS.ink }, index));
    if (upright) image.append(svg("text", { x: x + 4, y: y + 8, transform: `rotate(-90 ${x + 4} ${y + 8})`, "text-anchor": "end" }, cut(label, 14)));
    else image.append(svg("text", { x, y: y + 16, "text-anchor": "middle" }, cut(label, Math.floor(step / 7))));
  };
  columns.forEach((token, column) => {
    name(column + first, String(token), labels[token]);
    rows.forEach((row, index) => {
      const element = box(column + first, index, parts[index][token], `${row}, token ${token} ${quoted(labels[token])}`, index === chosen.row && token === chosen.token);
      element.setAttribute("class", "square");
      element.addEventListener("click", () => choose(index, token));
    });
  });
  if (first) {
    name(0, "", `${others.length} others`);
    rows.forEach((row, index) => box(0, index, sum(others.map((token) => parts[index][token])), `${row}, ${others.length} other tokens`, false));
  }

  const read = reads && place.get(reads.token);
  if (reads && read !== undefined && read !== null) {
    const [x, end] = [middle(read), reads.label.length * 3.4 + 8];
    image.append(svg("path", { d: `M${x - 4},${TOP - 8} L${x},${TOP - 15} L${x + 4},${TOP - 8} Z` }));
    image.append(svg("text", { x: Math.min(Math.max(x, end), width - end), y: 14, "text-anchor": "middle", "font-weight": 600 }, reads.label));
  }

  const widest = largest(arrows.map(({ part }) => part));
  /** @type {Set<number>} */
  const named = new Set();
  for (const { row, source, token, head, part, label, sentence } of arrows) {
    const [from, to] = [place.get(source), place.get(token)];
    if (from === undefined || to === undefined) continue;
    const aside = 3 * ((head % 5) - 2); // the heads of one move stand beside each other
    const [x, y] = [middle(from) + aside, top(row - 1) + (high - square) / 2];
    const [right, up] = [middle(to) + aside, top(row) + (high + square) / 2];
    const bend = from === to ? 10 : 0;
    const colour = part < 0 ? COLOURS.negative : COLOURS.positive;
    const arrow = svg("path", {
      d: `M${x},${y} C${x + bend},${y - 9} ${right + bend},${up + 9} ${right},${up}`, fill: "none", "stroke-opacity": 0.8, "stroke-linecap": "round",
      stroke: colour, "stroke-width": Math.max((7 * Math.abs(part)) / widest, 0.6),
    });
    whenPointedAt(arrow, "pointerenter", () => say(sentence));
    arrow.addEventListener("click", () => choose(row, token));
    image.append(arrow);
    if (!names || named.has(row) || Math.abs(part) < widest / 10) continue;
    named.add(row);
    image.append(svg("text", { x: left + count * step + 8, y: top(row) + high + 4, "font-weight": 600 }, label));
  }
  return /** @type {SVGSVGElement} */ (image);
}

/** Keep a picture as a file.
 * @param {SVGSVGElement} image
 * @param {"svg" | "png"} kind
 */
export async function savePicture(image, kind) {
  image.setAttribute("color", "#1b1d21");
  image.style.background = "#fff";
  const text = new XMLSerializer().serializeToString(image);
  if (kind === "svg") return download(new Blob([text], { type: "image/svg+xml" }), "picture.svg");
  const loaded = new Image();
  loaded.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await loaded.decode();
  const canvas = document.createElement("canvas");
  // Twice the size, for screens with fine pixels; no browser draws a side of more than 16,384.
  const scale = Math.min(2, 16_384 / Math.max(loaded.width, loaded.height));
  [canvas.width, canvas.height] = [loaded.width * scale, loaded.height * scale];
  canvas.getContext("2d")?.drawImage(loaded, 0, 0, canvas.width, canvas.height);
  canvas.toBlob((blob) => { if (blob) download(blob, "picture.png"); });
}

/** @param {Blob} blob @param {string} name */
export function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
