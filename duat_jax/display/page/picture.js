// @ts-check
// The picture of a page: rows by tokens as coloured squares, with arrows between them; kept as SVG or PNG.

import { full, largest, whenPointedAt } from "./elements.js";

/** An arrow from a token of a row to a token of the next row.
 * @typedef {{row: number, source: number, token: number, part: number, sentence: string}} Arrow
 */
/** @typedef {{title: string, rows: string[], labels: string[], columns: number[], parts: number[][], arrows: Arrow[]}} Drawing */

const [NARROW, WIDE, HEIGHT, LEFT, TOP] = [34, 90, 36, 90, 26];
const COLOURS = { positive: "#d53e34", negative: "#2976c7", ink: "#808590" };

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** Draw rows from the bottom to the top. Every colour stands in an attribute, so that a copy needs no style sheet.
 * @param {Drawing} drawing
 * @param {{row: number, token: number}} chosen
 * @param {(row: number, token: number) => void} choose
 * @param {(sentence: string) => void} say
 */
export function draw(drawing, chosen, choose, say) {
  const { title, rows, labels, columns, parts, arrows } = drawing;
  const most = largest(columns.flatMap((token) => parts.map((row) => row[token])));
  const place = new Map(columns.map((token, column) => [token, column]));
  // Few tokens get wide columns.
  const WIDTH = Math.min(Math.max(Math.floor(900 / columns.length), NARROW), WIDE);
  const bottom = TOP + rows.length * HEIGHT;
  const longest = Math.min(columns.reduce((length, token) => Math.max(length, labels[token].length), 0), 16);
  const [width, height] = [Math.max(LEFT + columns.length * WIDTH, 7 * title.length) + 10, bottom + 12 + 7 * longest];
  const image = svg("svg", { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "font-family": "monospace", "font-size": 11 });
  image.append(svg("title", {}, title), svg("text", { x: 4, y: 16, fill: COLOURS.ink }, title));
  /** @param {number} row */
  const top = (row) => bottom - (row + 1) * HEIGHT;
  rows.forEach((name, row) => image.append(svg("text", { x: LEFT - 6, y: top(row) + 22, "text-anchor": "end", fill: COLOURS.ink }, name)));
  columns.forEach((token, column) => {
    const [x, y] = [LEFT + column * WIDTH + WIDTH / 2 + 4, bottom + 8];
    const label = labels[token].length > 16 ? `${labels[token].slice(0, 15)}…` : labels[token];
    image.append(svg("text", { x, y, transform: `rotate(-90 ${x} ${y})`, "text-anchor": "end", fill: COLOURS.ink }, label));
    rows.forEach((name, row) => {
      const part = parts[row][token];
      const square = svg("rect", {
        x: LEFT + column * WIDTH + 2, y: top(row) + 8, width: WIDTH - 4, height: HEIGHT - 16, rx: 3,
        fill: part < 0 ? COLOURS.negative : COLOURS.positive, "fill-opacity": most ? (0.75 * Math.abs(part)) / most : 0,
        stroke: COLOURS.ink, "stroke-opacity": row === chosen.row && token === chosen.token ? 1 : 0.25, "stroke-width": row === chosen.row && token === chosen.token ? 2 : 1,
      });
      whenPointedAt(square, "pointerenter", () => say(`${name}, token ${token} ${JSON.stringify(labels[token])}: ${full(part)}`));
      square.addEventListener("click", () => choose(row, token));
      image.append(square);
    });
  });
  const widest = largest(arrows.map(({ part }) => part));
  for (const { row, source, token, part, sentence } of arrows) {
    const [from, to] = [place.get(source), place.get(token)];
    if (from === undefined || to === undefined) continue;
    const [x, y] = [LEFT + (from + 0.5) * WIDTH, top(row - 1) + 10];
    const [right, up] = [LEFT + (to + 0.5) * WIDTH, top(row) + HEIGHT - 10];
    const bend = from === to ? 10 : 0;
    const arrow = svg("path", {
      d: `M${x},${y} C${x + bend},${y - 6} ${right + bend},${up + 6} ${right},${up}`, fill: "none", "stroke-opacity": 0.8,
      stroke: part < 0 ? COLOURS.negative : COLOURS.positive, "stroke-width": Math.max((5 * Math.abs(part)) / widest, 0.6),
    });
    whenPointedAt(arrow, "pointerenter", () => say(sentence));
    image.append(arrow);
  }
  return /** @type {SVGSVGElement} */ (image);
}

/** Keep a picture as a file.
 * @param {SVGSVGElement} image
 * @param {"svg" | "png"} kind
 */
export async function savePicture(image, kind) {
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
